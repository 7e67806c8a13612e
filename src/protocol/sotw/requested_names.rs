use std::{collections::BTreeSet, sync::Arc, time::Instant};

use bytes::{Bytes, BytesMut};

use super::super::{
    recent_unsubscribes::RecentUnsubscribes, request::put_text, subscription::Subscription,
    subscriptions::Subscriptions,
};

/// The names in the requests of one type on one stream, and what the server makes of them (B1.2 to B1.5, B1.23, B1.24).
///
/// ```text
///   subscribed               first request   later ones
///   ───────────────────────  ──────────────  ─────────────────────────────────────────────────────────────────
///   names                    names           names
///   the wildcard             nothing         nothing; behind a request with names `*`
///   the wildcard and names   nothing         nothing, if all of the names were sent for the wildcard; otherwise `*` and names,
///                                            at a server that is not known to take `*` for a name
///   nothing any more         no request      nothing; of a wildcard alone, `*` in a request before
/// ```
#[derive(Debug, Default)]
pub(super) struct RequestedNames {
    /// The names of the last request, as sent.
    encoded: Bytes,
    /// A name was sent, so an empty list does not mean everything any more.
    named: bool,
    /// A request that the server cannot have dropped as outdated (B1.8) held a name, so that the server has seen one.
    named_for_sure: bool,
    /// Whether the server sends everything, according to the requests so far, or may take an empty list for that.
    wildcard: bool,
    /// The last request has `*`.
    has_star: bool,
    /// The last request has a name that is not subscribed, in place of an empty list.
    has_stand_in: bool,
}

/// How the names are to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spelling<'a> {
    /// The request is the first one on the stream.
    pub(super) is_first: bool,
    /// The server takes `*` for a name.
    pub(super) is_star_a_name: bool,
    /// The version of the first request stands for everything that is held.
    pub(super) is_version_claimed: bool,
    /// Names that are left out of the request, if it is the answer before a change.
    pub(super) held_back: Option<&'a BTreeSet<Arc<str>>>,
    /// The version of an answer does not stand for the wildcard, which is new.
    pub(super) is_wildcard_uncovered: bool,
}

/// What follows from a new list of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refilled {
    /// The request has everything.
    Whole,
    /// A second request has to follow: with the names beside the wildcard, or with the end of it.
    InPart,
    /// The server is to be sent nothing: nothing is subscribed, or the wildcard stands for the names.
    Silent,
}

impl RequestedNames {
    /// The names of the last request, as fields of the message.
    pub(super) fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// Whether the server sends everything, or may.
    pub(super) fn has_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Whether the last request has the wildcard as `*`, which servers may take for a name.
    pub(super) fn has_star(&self) -> bool {
        self.has_star
    }

    /// Whether the last request has a name that nothing is held of, in place of an empty list.
    pub(super) fn has_stand_in(&self) -> bool {
        self.has_stand_in
    }

    /// Whether everything is requested as an empty list, on a stream without any name.
    pub(super) fn is_plain_wildcard(&self) -> bool {
        self.wildcard && !self.named
    }

    /// Whether the wildcard, requested as an empty list on this stream, has all names that are subscribed.
    fn is_covered(&self, subscriptions: &Subscriptions, spelling: Spelling<'_>) -> bool {
        let is_plain = self.is_plain_wildcard() && !spelling.is_first && spelling.held_back.is_none();
        let is_sent = |sub: &Subscription| {
            let is_claimed = spelling.is_version_claimed && sub.is_wildcard_member();
            sub.is_held() && (is_claimed || sub.was_sent_on_stream())
        };
        is_plain && subscriptions.iter().map(|(_, sub)| sub).filter(|sub| sub.is_named()).all(is_sent)
    }

    /// A request was written that the server cannot drop as outdated.
    pub(super) fn on_read_for_sure(&mut self) {
        self.named_for_sure |= !self.encoded.is_empty();
    }

    /// Whether the end of a wildcard was sent, and the server may have missed that it was spelled.
    pub(super) fn is_end_doubtful(&self) -> bool {
        self.wildcard && self.named && !self.named_for_sure && self.encoded.is_empty()
    }

    /// Spells the wildcard, so that an empty list can end it.
    pub(super) fn spell_star(&mut self) {
        let mut star = BytesMut::new();
        put_text(3, "*", &mut star);
        (self.encoded, self.named, self.has_star) = (star.freeze(), true, true);
    }

    /// Adopts the newest names for this and the following requests, without those that are held back.
    pub(super) fn refill(
        &mut self,
        subscriptions: &mut Subscriptions,
        recent: &mut RecentUnsubscribes,
        spelling: Spelling<'_>,
        now: Instant,
    ) -> Refilled {
        let held_back = spelling.held_back;
        if subscriptions.wildcard && self.is_covered(subscriptions, spelling) {
            // A request with `*` could only change what is sent, at a server that takes it for a name (B1.26).
            return Refilled::Silent;
        }
        let may_be_missed = spelling.is_wildcard_uncovered
            || recent.may_have_missed_wildcard()
            || (!subscriptions.received_all && recent.is_wildcard_crossed());
        let wildcard = subscriptions.wildcard && !(held_back.is_some() && may_be_missed);
        let sorted = match held_back {
            Some(names) => subscriptions.names_without(|name| names.contains(name)),
            None => subscriptions.names(),
        };
        let had_wildcard = std::mem::replace(&mut self.wildcard, wildcard);
        subscriptions.sends_all = wildcard;
        if wildcard && !self.named && (spelling.is_first || spelling.is_star_a_name) {
            // All editions of the protocol take an empty list for everything, and some servers nothing else.
            (self.encoded, self.has_star) = (Bytes::new(), false);
            return match (sorted.is_empty() || spelling.is_star_a_name, spelling.is_first) {
                (false, _) => Refilled::InPart,
                (true, true) => Refilled::Whole,
                (true, false) => Refilled::Silent,
            };
        }
        self.has_star = wildcard && (self.named || !sorted.is_empty());
        let mut others = BytesMut::new();
        if self.has_star {
            put_text(3, "*", &mut others);
        }
        self.has_stand_in = held_back.is_some() && !wildcard && sorted.is_empty() && !self.named_for_sure;
        if self.has_stand_in {
            // An empty list could mean everything to it, and the next request would change nothing.
            subscriptions.put_spelled(recent.last_name(), &mut others);
        }
        self.encoded = joined(others, sorted);
        self.named |= !self.encoded.is_empty();
        if !self.named && !wildcard {
            if !had_wildcard {
                // Nothing was requested, and nothing is to be.
                return Refilled::Silent;
            }
            // The server sends everything still, until something is named (B1.24).
            self.wildcard = had_wildcard;
            self.spell_star();
            return Refilled::InPart;
        }
        if had_wildcard && !wildcard {
            on_wildcard_left_out(subscriptions, recent, now);
        }
        if self.encoded.is_empty() && !self.named_for_sure {
            self.wildcard = true;
        }
        Refilled::Whole
    }
}

/// A request is without the wildcard that the one before had: it has ended, or is held back for the request after this one.
fn on_wildcard_left_out(subscriptions: &Subscriptions, recent: &mut RecentUnsubscribes, now: Instant) {
    match subscriptions.wildcard {
        true => recent.on_wildcard_held_back(now),
        false => recent.on_wildcard_unsubscribed(now),
    }
}

/// Two lists of names as one. The sorted names are shared with the subscriptions as long as nothing is put before them.
fn joined(mut first: BytesMut, sorted: Bytes) -> Bytes {
    if first.is_empty() {
        return sorted;
    }
    first.extend_from_slice(&sorted);
    first.freeze()
}
