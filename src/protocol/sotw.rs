use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use self::{
    answers::Answers,
    requested_names::{Refilled, RequestedNames, Spelling},
    unheld::Unheld,
};
use super::{
    crossed::Crossed,
    recent_unsubscribes::RecentUnsubscribes,
    request::SotwRequest,
    request_batcher::RequestBatcher,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    variant::{Answer, Head, Variant, Written},
};
use crate::resource::Version;

mod answers;
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
    /// The version of the last response without errors.
    version: Version,
    /// That response is one to a request for everything.
    covers_all: bool,
    /// A subscribed resource of that version was dropped, or may have been replaced.
    has_dropped: bool,
    /// The server has shown that it takes `*` for a name (B1.23).
    is_star_a_name: bool,
    on_stream: OnStream,
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
    requested: bool,
    nonce: String,
    recent_unsubscribes: RecentUnsubscribes,
    names: RequestedNames,
    answers: Answers,
    /// A response is in progress; a request before its answer would be taken for one.
    busy: bool,
    /// The names of the last request, if the server may have missed them.
    crossed: Crossed,
    /// The names of the last request are due once more, in a request of their own.
    repeat_at: Option<Instant>,
    /// The first request had a version, and no response has followed.
    version_sent: bool,
    unheld: Unheld,
    /// The number of accepted responses since everything was requested. One may have crossed the request, unless that
    /// was the first one.
    accepted_since_all: usize,
}

impl Sotw {
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
        let is_held = |sub: &Subscription| sub.is_held() && sub.was_ever_mentioned();
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

    /// The next request has the newly subscribed names.
    fn put_subscribed(&mut self, subscriptions: &mut Subscriptions, written: &mut Written) {
        written.subscribed = std::mem::take(&mut self.subscribed);
        for id in &written.subscribed {
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| sub.is_named()) {
                sub.on_requested();
            }
        }
    }

    /// The wildcard is new, and the accepted version came for names: it may stand for nothing, and be the current one.
    fn is_wildcard_uncovered(&self, subscriptions: &Subscriptions) -> bool {
        let is_new = subscriptions.wildcard && !self.on_stream.names.has_wildcard();
        is_new && self.on_stream.requested && !self.covers_all
    }

    /// The next request is without the unsubscribed names.
    fn put_unsubscribed(&mut self, subscriptions: &mut Subscriptions, written: &mut Written, now: Instant) {
        written.wildcard_left = std::mem::take(&mut subscriptions.wildcard_leaving);
        written.unsubscribed = std::mem::take(&mut self.unsubscribed);
        for id in &written.unsubscribed {
            // Names that were subscribed again before are in the list.
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| !sub.is_named()) {
                sub.on_unrequested();
                self.on_stream.recent_unsubscribes.on_name_unsubscribed(sub.name().clone(), self.doubt, now);
            }
        }
    }

    /// Whether something is subscribed again whose unsubscription the server may have missed.
    fn was_resubscribed(&self, subscriptions: &Subscriptions) -> bool {
        let recent = &self.on_stream.recent_unsubscribes;
        let is_awaited = |name: &str| {
            let sub = subscriptions.find(name).and_then(|id| subscriptions.get(id));
            sub.is_some_and(Subscription::is_unanswered)
        };
        recent.was_resubscribed()
            || (subscriptions.wildcard && !subscriptions.received_all && recent.is_wildcard_crossed())
            || recent.crossed_names().any(is_awaited)
    }

    /// Leaves the names out of the next request that were resubscribed too early, and returns them: responses lack them then.
    fn hold_back(&mut self, subscriptions: &mut Subscriptions, now: Instant) -> BTreeSet<Arc<str>> {
        let recent = &mut self.on_stream.recent_unsubscribes;
        let may_be_missed = |sub: &Subscription| {
            let is_crossed = || sub.is_unanswered() && recent.is_name_crossed(sub.name());
            sub.is_named() && (recent.may_have_missed_name(sub.name()) || is_crossed())
        };
        let held_back = subscriptions.iter().filter(|(_, sub)| may_be_missed(sub));
        let held_back: Vec<_> = held_back.map(|(id, _)| id).collect();
        let mut names = BTreeSet::new();
        for id in &held_back {
            if let Some(sub) = subscriptions.get_mut(*id) {
                sub.on_held_back(now + self.doubt);
                recent.on_name_held_back(sub.name().clone(), self.doubt, now);
                names.insert(sub.name().clone());
            }
        }
        // What was sent before does not ride on an answer either.
        names.extend(
            self.on_stream.unheld.sent_of(&self.subscribed, subscriptions).map(|sub| sub.name().clone()),
        );
        self.subscribed.extend(held_back);
        names
    }

    /// Adopts the newest names for this and the following requests, without those that are held back.
    fn refill(
        &mut self,
        subscriptions: &mut Subscriptions,
        held_back: Option<&BTreeSet<Arc<str>>>,
        now: Instant,
    ) -> Refilled {
        let spelling =
            Spelling { is_first: !self.on_stream.requested, is_star_a_name: self.is_star_a_name, held_back };
        let OnStream { names, recent_unsubscribes, .. } = &mut self.on_stream;
        names.refill(subscriptions, recent_unsubscribes, spelling, now)
    }

    /// Puts the names into the next request that are to be in it. It is `answering` if the server does not drop it as outdated.
    fn put_names(
        &mut self,
        subscriptions: &mut Subscriptions,
        answering: bool,
        written: &mut Written,
        now: Instant,
    ) -> Refilled {
        // It may have dropped the request that unsubscribed a name as outdated (B1.8). If the answer, which it accepts, had that
        // name again, nothing would have changed for it, and it would send nothing. So a request after the answer has it.
        let held_back = answering && self.was_resubscribed(subscriptions);
        let is_uncovered = self.is_wildcard_uncovered(subscriptions);
        let subscribes_sent = self.on_stream.unheld.sent_of(&self.subscribed, subscriptions).next().is_some();
        let is_ack = !self.on_stream.answers.is_empty();
        let is_separate = is_ack && (subscribes_sent || is_uncovered);
        let changed = !held_back
            && !is_separate
            && self.batcher.due(subscriptions.named()).is_some_and(|due| due <= now);
        let mut refilled = Refilled::Whole;
        if held_back {
            self.put_unsubscribed(subscriptions, written, now);
            let names = self.hold_back(subscriptions, now);
            self.refill(subscriptions, Some(&names), now);
            self.batcher.on_change(now);
        } else if changed {
            if subscribes_sent {
                self.on_stream.unheld.on_lost();
            }
            if is_uncovered {
                self.forget_version();
            }
            self.put_unsubscribed(subscriptions, written, now);
            refilled = self.refill(subscriptions, None, now);
            if refilled != Refilled::InPart {
                self.put_subscribed(subscriptions, written);
                self.batcher.on_written(subscriptions.named(), now);
            }
        }
        let has_dropped = subscriptions.wildcard && self.has_dropped;
        if self.on_stream.requested
            && !is_ack
            && (has_dropped || self.on_stream.unheld.is_lacking(subscriptions))
        {
            self.forget_version();
        }
        refilled
    }

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
        if let Some(sub) = subscriptions.get_mut(sub).filter(|sub| !sub.is_settled()) {
            let doubtful = self.on_stream.recent_unsubscribes.on_name_subscribed(sub.name(), self.doubt, now);
            // Its timer, if it had one, ended with the last subscription.
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
        if !subscriptions.wildcard_leaving {
            self.on_stream.recent_unsubscribes.on_wildcard_subscribed();
        }
        self.on_stream.accepted_since_all = 0;
        subscriptions.subscribe_all();
        self.batcher.on_change(now);
    }

    fn on_wildcard_ended(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        subscriptions.wildcard = false;
        subscriptions.wildcard_leaving = true;
        self.covers_all = false;
        if self.is_star_a_name {
            self.subscribed = subscriptions.request_again();
        }
        self.batcher.on_change(now);
    }

    /// The server may not have taken the wildcard to be ended, or its beginning behind names would be another name for it.
    fn is_wildcard_stuck(&self, subscriptions: &Subscriptions) -> bool {
        let is_ending = self.on_stream.names.has_wildcard() && !subscriptions.takes_all();
        is_ending || (self.is_star_a_name && self.on_stream.requested && !subscriptions.takes_all())
    }

    /// The next stream begins with an empty list, and no name follows while the wildcard is subscribed.
    fn on_wildcard_refused(&mut self, subscriptions: &mut Subscriptions) {
        self.is_star_a_name = true;
        subscriptions.sends_all = false;
    }

    fn is_wildcard_spelled(&self, subscriptions: &Subscriptions) -> bool {
        subscriptions.wildcard && self.on_stream.names.has_star()
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

    /// Nothing of the type is written until it is answered.
    fn on_response(&mut self, now: Instant) {
        self.on_stream.busy = true;
        self.on_stream.version_sent = false;
        self.on_stream.crossed.on_response(self.doubt, now);
        self.on_stream.recent_unsubscribes.on_response(self.doubt, now);
    }

    /// It counts from now on, also on later streams.
    fn on_accepted(&mut self, subscriptions: &Subscriptions, version: &Version) {
        self.version = version.clone();
        // No subscription may keep the resources that are received while the end of the wildcard is not written.
        if subscriptions.sends_all && subscriptions.wildcard {
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

    fn has_sent(&self, name: &str) -> bool {
        self.on_stream.unheld.contains(name)
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
        let change = self.batcher.due(subscriptions.named());
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
            return (self.write_nack(head.node, now), written);
        }
        let is_new = next.is_some_and(|ack| ack.nonce.is_empty() || ack.nonce != self.on_stream.nonce);
        let is_ack = next.is_some();
        let is_repeated = !is_ack && self.on_stream.repeat_at.take().is_some();
        let answering = is_new || is_repeated;
        let names = self.on_stream.names.encoded().clone();
        let refilled = self.put_names(subscriptions, answering, &mut written, now);
        let ack = self.on_stream.answers.pop();
        let is_newest = answering && self.on_stream.answers.is_empty();
        if is_newest {
            self.on_stream.recent_unsubscribes.on_answered();
            if self.on_stream.names.is_end_doubtful() && !subscriptions.wildcard {
                // The server may have dropped the request that spelled it. An answer it does not drop.
                self.on_stream.names.spell_star();
                self.batcher.on_change(now);
            }
        }
        let is_first = !self.on_stream.requested;
        if is_newest || is_first {
            self.on_stream.names.on_read_for_sure();
        }
        if refilled == Refilled::Silent && !answering && ack.is_none() {
            return (None, written);
        }
        let mut version = self.version.clone();
        if let Some((answered, ack)) = ack {
            self.on_stream.nonce = ack.nonce;
            version = answered;
        }
        if is_first {
            self.on_stream.version_sent = !version.is_empty();
            // The version stands for everything at the server: if that is still so, it may send nothing.
            subscriptions.received_all |= subscriptions.wildcard && !version.is_empty();
        }
        let stream = &mut self.on_stream;
        let is_change = !is_first && names != *stream.names.encoded();
        stream.crossed.on_written((is_change, is_repeated), &stream.nonce, now);
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
