use std::time::{Duration, Instant};

use bytes::Bytes;

use self::{
    answers::Answers,
    empty_list::EmptyList,
    requested_names::{Refilled, RequestedNames},
    unheld::Unheld,
};
use super::{
    crossed::{Crossed, WrittenNames},
    recent_unsubscribes::RecentUnsubscribes,
    request::SotwRequest,
    request_batcher::RequestBatcher,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    traffic::RequestKind,
    variant::{Answer, Crossing, Head, Variant, Written},
};
use crate::resource::Version;

mod answers;
mod changes;
mod empty_list;
mod requested_names;
mod unheld;

/// The state of one type on one server in the state-of-the-world variant (rules B1.1 to B1.24).
///
/// Each request repeats all names; a response is answered by a request that carries its nonce. The version belongs to
/// the server and outlives the stream, everything else dies with it (B0.5).
///
/// ```text
///   request                names                                version         nonce, error
///   ─────────────────────  ───────────────────────────────────  ──────────────  ─────────────────────
///   first of a stream      all                                  if all is held  none
///   change                 all                                  see below       of the last answer
///   ACK                    all                                  of the response of the response
///   NACK                   of the last request                  accepted last   of the response, error
///   repetition             all, behind a NACK that they         accepted last   of the NACK
///                          crossed: see `Crossed`
/// ```
///
/// A change has the version that was accepted last, unless that stands for something that is not held (B1.21): a name that
/// was sent on the stream and let go since, or a resource that was dropped. Such a name does not ride on an ACK either.
#[derive(Debug)]
pub(crate) struct Sotw {
    type_url: &'static str,
    /// The version of the last response without errors; empty if nothing of it may be claimed any more.
    version: Version,
    /// Set when the last response without errors is one to a request for everything.
    covers_all: bool,
    /// Set when a subscribed resource of that version was dropped, or may have been replaced.
    has_dropped: bool,
    /// Set once the server has shown that it takes `*` for a name (B1.23). It outlives streams: each would show it again.
    is_star_a_name: bool,
    /// Made anew with each stream.
    on_stream: OnStream,
    /// The time of the next request for a change.
    batcher: RequestBatcher,
    /// For how long absence proves nothing of a resubscribed name.
    doubt: Duration,
    /// Subscribed names that no request of this stream has held yet.
    subscribed: Vec<SubId>,
    /// Unsubscribed names that the server was not notified of yet.
    unsubscribed: Vec<SubId>,
}

/// The state of one stream.
#[derive(Debug, Default)]
struct OnStream {
    /// A request was written on the stream.
    requested: bool,
    /// The nonce of the last response that was answered; empty before.
    nonce: String,
    recent_unsubscribes: RecentUnsubscribes,
    /// The names in requests, and what the server makes of them.
    names: RequestedNames,
    /// The answers that are not written yet.
    answers: Answers,
    /// A response is in progress, or waits for one of an earlier stream; a request before its answer would be taken for one.
    busy: bool,
    /// The names of the last request, if the server may have missed them.
    crossed: Crossed,
    /// The names of the last request are due once more, in a request of their own.
    repeat_at: Option<Instant>,
    /// The first request had a version, and no response has followed.
    version_sent: bool,
    empty_list: EmptyList,
    /// What the server has sent and that is not held.
    unheld: Unheld,
    /// The number of accepted responses since everything was requested. One may have crossed the request, unless that
    /// was the first one.
    accepted_since_all: usize,
}

impl Sotw {
    /// A type without a request; it begins with its first subscription.
    pub(crate) fn new(type_url: &'static str, doubt: Duration) -> Self {
        Self {
            type_url,
            version: Version::default(),
            covers_all: false,
            has_dropped: false,
            is_star_a_name: false,
            on_stream: OnStream::default(),
            batcher: RequestBatcher::default(),
            doubt,
            subscribed: Vec::new(),
            unsubscribed: Vec::new(),
        }
    }

    /// Whether the held resources are exactly those of the version: a server that skips known resources skips none that
    /// is missing then (B1.6).
    fn is_version_held(&self, subscriptions: &Subscriptions) -> bool {
        let is_held = |sub: &Subscription| sub.holds_own() && sub.was_ever_mentioned();
        // There may be a member that only another server has sent.
        let mut covered =
            subscriptions.iter().map(|(_, sub)| sub).filter(|sub| sub.is_named() || sub.is_wildcard_member());
        !self.has_dropped && (self.covers_all || !subscriptions.wildcard) && covered.all(is_held)
    }

    /// The first request of the stream is about to be written.
    fn on_first_request(&mut self, subscriptions: &Subscriptions) {
        if !self.is_version_held(subscriptions) {
            self.forget_version();
        }
        // The server has sent nothing on this stream.
        self.has_dropped = false;
        self.on_stream.unheld.on_first_request();
        // No response can cross a first request.
        self.on_stream.accepted_since_all = usize::from(subscriptions.wildcard);
    }

    /// The newest response is answered, by an ACK or by names that are repeated: that, no server drops as outdated (B1.8).
    fn on_newest_answered(&mut self, subscriptions: &Subscriptions, is_ack: bool, now: Instant) {
        self.on_stream.recent_unsubscribes.on_answered();
        if is_ack {
            self.on_stream.unheld.on_acknowledged();
        }
        // It has the names that were to be repeated.
        self.on_stream.repeat_at = None;
        if self.on_stream.names.is_end_doubtful() && !subscriptions.wildcard {
            // The server may have dropped the request that spelled it. An answer it does not drop.
            self.on_stream.names.spell_star();
            if !is_ack {
                self.forget_version();
            }
            self.batcher.on_change(now);
        }
    }

    /// The first request of a stream has a version, which may be empty.
    fn on_version_claimed(&mut self, subscriptions: &mut Subscriptions, version: &Version) {
        self.on_stream.version_sent = !version.is_empty();
        self.on_stream.empty_list.on_claimed(version);
        // The version stands for everything at the server: if that is still so, it may send nothing.
        subscriptions.received_all |= subscriptions.wildcard && !version.is_empty();
    }

    /// A NACK has the names of the last request: some servers read none from it (istiod, Consul).
    fn write_nack(&mut self, node: Option<&Bytes>, now: Instant) -> Option<Bytes> {
        let (version, answer) = self.on_stream.answers.pop()?;
        let stream = &mut self.on_stream;
        stream.nonce = answer.nonce;
        let is_crossed = stream.crossed.is_crossed_by(&stream.nonce);
        if is_crossed || stream.recent_unsubscribes.was_resubscribed() {
            stream.repeat_at = Some(now);
        }
        stream.requested = true;
        Some(self.encode(version.as_str(), node, answer.error.as_deref()))
    }

    /// A request with the names as they were put last.
    fn encode(&self, version: &str, node: Option<&Bytes>, error: Option<&str>) -> Bytes {
        let (nonce, names) = (&self.on_stream.nonce, self.on_stream.names.encoded());
        SotwRequest { version, type_url: self.type_url, nonce, node, names, error }.encode()
    }
}

impl Variant for Sotw {
    fn is_requested(&self) -> bool {
        self.on_stream.requested
    }

    /// Shortly after an unsubscription, a response that lacks the resource although it exists may be in flight (B1.13).
    fn on_named(&mut self, subscriptions: &mut Subscriptions, sub: SubId, now: Instant) {
        // At such a server the wildcard stands for the name, which is in no request.
        let is_covered = self.is_star_a_name && subscriptions.wildcard;
        let is_settled = |sub: &Subscription| sub.is_settled() || (is_covered && sub.was_sent_on_stream());
        // A server that takes `*` for a name lacks what it stands for in responses that cross the request of the name.
        let is_star_unproven = self.on_stream.empty_list.is_star_unproven();
        if let Some(sub) = subscriptions.get_mut(sub).filter(|sub| !is_settled(sub)) {
            let doubtful = self.on_stream.recent_unsubscribes.on_name_subscribed(sub.name(), self.doubt, now);
            // Its timer, if it had one, ended with the last subscription.
            let doubtful = doubtful || (is_star_unproven && sub.is_held());
            sub.on_subscribed(doubtful.then_some(now + self.doubt));
        }
        self.subscribed.push(sub);
        self.batcher.on_change(now);
    }

    fn on_unnamed(&mut self, sub: SubId, now: Instant) {
        self.unsubscribed.push(sub);
        self.batcher.on_change(now);
    }

    fn on_wildcard(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        // If its end was not written, nothing has happened for the server.
        if !subscriptions.wildcard_leaving {
            self.on_stream.recent_unsubscribes.on_wildcard_subscribed();
        }
        // Responses to requests before this one do not have everything.
        self.on_stream.accepted_since_all = 0;
        subscriptions.subscribe_all();
        self.batcher.on_change(now);
    }

    fn on_wildcard_ended(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        subscriptions.wildcard = false;
        subscriptions.wildcard_leaving = true;
        self.covers_all = false;
        if self.is_star_a_name {
            // At such a server no request beside the wildcard has had the names (B1.23).
            self.subscribed = subscriptions.request_again();
        }
        self.batcher.on_change(now);
    }

    /// The server may not have taken the wildcard to be ended, or its beginning behind names would be another name for it.
    fn is_wildcard_stuck(&self, subscriptions: &Subscriptions) -> bool {
        let is_ending = self.on_stream.names.has_wildcard() && !subscriptions.requests_all();
        is_ending || (self.is_star_a_name && self.on_stream.requested && !subscriptions.requests_all())
    }

    /// The next stream begins with an empty list, and no name follows while the wildcard is subscribed.
    fn on_wildcard_refused(&mut self, subscriptions: &mut Subscriptions) {
        self.is_star_a_name = true;
        subscriptions.sends_all = false;
    }

    fn is_wildcard_spelled(&self, subscriptions: &Subscriptions) -> bool {
        subscriptions.wildcard && self.on_stream.names.has_star()
    }

    fn stands_wildcard_for_names(&self, subscriptions: &Subscriptions) -> bool {
        self.is_star_a_name && subscriptions.wildcard && self.on_stream.names.is_plain_wildcard()
    }

    fn wildcard_crossing(&self) -> Crossing {
        self.on_stream.empty_list.crossing()
    }

    fn was_wildcard_before_star(&self) -> bool {
        self.on_stream.empty_list.was_wildcard_before_star()
    }

    fn on_sent(&mut self, now: Instant) {
        self.on_stream.empty_list.on_sent(now);
    }

    /// Rules B1.5, B1.6.
    fn on_stream_opened(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        self.on_stream = OnStream::default();
        self.batcher.reset();
        self.subscribed = subscriptions.iter().filter(|(_, sub)| sub.is_named()).map(|(id, _)| id).collect();
        if !subscriptions.is_empty() {
            self.batcher.on_change(now);
        }
    }

    fn on_stream_closed(&mut self, subscriptions: &mut Subscriptions) -> Vec<SubId> {
        self.on_stream = OnStream::default();
        self.subscribed.clear();
        subscriptions.on_stream_closed();
        std::mem::take(&mut self.unsubscribed)
    }

    /// The response is in progress: nothing of the type is written until it is answered, since a server would take that for
    /// the answer.
    fn on_response(&mut self, version: &Version, now: Instant) {
        self.on_stream.busy = true;
        self.on_stream.version_sent = false;
        self.on_stream.empty_list.on_response(version, now);
        self.on_stream.crossed.on_response(self.doubt, now);
        self.on_stream.recent_unsubscribes.on_response(self.doubt, now);
    }

    /// The server has sent the response, whether or not it is worked on: a request before its answer would be taken for one, and its
    /// version would stand for names in the response that are not held yet (B1.21).
    fn on_waiting(&mut self) {
        self.on_stream.busy = true;
    }

    /// Keeps the version, which belongs to the server, not to the stream (B0.5).
    fn on_accepted(&mut self, subscriptions: &Subscriptions, version: &Version) {
        self.version = version.clone();
        // No subscription may keep the resources that are received while the end of the wildcard is not written.
        if subscriptions.sends_all && subscriptions.wildcard {
            // The first response since the wildcard was requested may have crossed the request, and then has the names alone.
            self.covers_all |= self.on_stream.accepted_since_all > 0;
            self.on_stream.accepted_since_all += 1;
        }
    }

    fn on_dropped(&mut self) {
        self.has_dropped = true;
        self.on_stream.unheld.on_lost();
    }

    fn on_released(&mut self, sub: &Subscription) {
        self.on_stream.unheld.on_released(sub);
    }

    fn notes_skipped(&self) -> bool {
        self.on_stream.unheld.has_room()
    }

    fn on_skipped(&mut self, name: &str) {
        self.on_stream.unheld.on_skipped(name);
    }

    fn has_sent(&self, sub: &Subscription) -> bool {
        self.on_stream.unheld.contains(sub.name()) || sub.was_answered_before_doubt()
    }

    fn forget_version(&mut self) -> bool {
        (self.version, self.covers_all) = (Version::default(), false);
        self.on_stream.unheld.on_lost();
        std::mem::take(&mut self.on_stream.version_sent)
    }

    /// A NACK has the version that was accepted last.
    fn on_answer(&mut self, answer: Answer, now: Instant) {
        self.on_stream.busy = false;
        if answer.error.is_some() {
            // Some of its resources are not held, which the server has sent and may consider known (B1.21).
            self.on_stream.unheld.on_lost();
        }
        self.on_stream.answers.push(self.version.clone(), answer, now);
    }

    fn has_held_back(&self, now: Instant) -> bool {
        self.on_stream.answers.has_held_back(now)
    }

    fn release_held_back(&mut self, now: Instant) {
        self.on_stream.answers.release_held_back(now);
    }

    fn has_unwritten(&self, subscriptions: &Subscriptions) -> bool {
        !self.on_stream.answers.is_empty()
            || !self.unsubscribed.is_empty()
            || subscriptions.wildcard_leaving
            || self.on_stream.busy
            || self.on_stream.repeat_at.is_some()
    }

    fn due(&self, subscriptions: &Subscriptions) -> Option<Instant> {
        if self.on_stream.busy {
            return None;
        }
        // A change does not wait for a NACK that is held back: that goes first.
        let answer = self.on_stream.answers.next().map(|answer| answer.not_before);
        let change = self.change_due(subscriptions);
        [answer, change, self.on_stream.repeat_at].into_iter().flatten().min()
    }

    fn is_answer_due(&self, now: Instant) -> bool {
        let first = self.on_stream.answers.next();
        !self.on_stream.busy && first.is_some_and(|answer| answer.not_before <= now)
    }

    /// A NACK, or else all names: as an ACK, as a change, or once more behind a NACK.
    ///
    /// The names are the newest, unless the batcher holds back a run of changes: then they are those of the last
    /// request, since every new name in an answer would cause a response, and that an answer.
    fn write(
        &mut self,
        subscriptions: &mut Subscriptions,
        head: Head<'_>,
        now: Instant,
    ) -> (Option<Bytes>, Written) {
        let mut written = Written::nothing(head.ty);
        if !self.on_stream.requested {
            self.on_first_request(subscriptions);
        }
        let next = self.on_stream.answers.next();
        if next.is_some_and(|answer| answer.error.is_some()) {
            // Names beside an error are lost to some servers (MS1), so that changes wait for the next request.
            written.kind = RequestKind::Nack;
            return (self.write_nack(head.node, now), written);
        }
        let is_new = next.is_some_and(|ack| ack.nonce.is_empty() || ack.nonce != self.on_stream.nonce);
        let is_ack = next.is_some();
        let is_repeated = !is_ack && self.on_stream.repeat_at.take().is_some();
        let answering = is_new || is_repeated;
        let names = self.on_stream.names.encoded().clone();
        let (had_star, had_wildcard) = (self.on_stream.names.has_star(), self.on_stream.names.has_wildcard());
        let refilled = self.put_names(subscriptions, answering, &mut written, now);
        let ack = self.on_stream.answers.pop();
        let is_newest = answering && self.on_stream.answers.is_empty();
        if is_newest {
            self.on_newest_answered(subscriptions, ack.is_some(), now);
        }
        let is_first = !self.on_stream.requested;
        // The wildcard goes alone, and the names wait for its answer (B1.26).
        if is_first && refilled == Refilled::InPart {
            self.on_stream.empty_list.on_written(now);
        }
        written.spells_all = !is_first && !had_star && self.on_stream.names.has_star();
        if written.spells_all {
            self.on_stream.empty_list.on_spelled(had_wildcard);
        }
        if is_newest || is_first {
            self.on_stream.names.on_read_for_sure();
        }
        if refilled == Refilled::Silent && !answering && ack.is_none() {
            return (None, written);
        }
        let mut version = self.version.clone();
        if let Some((answered, ack)) = ack {
            written.kind = ack.kind();
            self.on_stream.nonce = ack.nonce;
            version = answered;
        }
        if is_first {
            self.on_version_claimed(subscriptions, &version);
        }
        let stream = &mut self.on_stream;
        // No response can cross a first request: the server has sent nothing before it.
        let is_change = !is_first && names != *stream.names.encoded();
        let names = WrittenNames::of(is_change, is_repeated);
        stream.crossed.on_written(names, &stream.nonce, now);
        stream.requested = true;
        (Some(self.encode(version.as_str(), head.node, None)), written)
    }

    fn on_unconfirmed(&mut self, _: Instant) {}

    /// Each response has everything, or absence proves nothing.
    fn quiet_from(&self) -> Option<Instant> {
        None
    }

    fn on_quiet(&mut self) -> bool {
        true
    }
}
