use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    crossed::Crossed,
    recent_unsubscribes::RecentUnsubscribes,
    request::{put_bytes, put_error, put_text, put_unless_empty},
    request_batcher::RequestBatcher,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    variant::{Answer, Head, Variant, Written},
};
use crate::resource::Version;

/// The state of one type on one server in the state-of-the-world variant (rules B1.1 to B1.20).
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
/// A change has the version that was accepted last, unless it subscribes to something that the server may have sent and that is
/// not held: as a member of a wildcard that has ended, or to an empty list of names. go-control-plane does not send that
/// again at the same version. Such a change does not ride on an ACK either, which makes such a server forget what it has sent.
#[derive(Debug)]
pub(crate) struct Sotw {
    type_url: &'static str,
    /// The version of the last response without errors.
    version: Version,
    /// That response is known to be one to a request for everything.
    covers_all: bool,
    /// A subscribed resource of that version was dropped, or may have been replaced.
    has_dropped: bool,
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
    /// A name was sent, so an empty list does not mean everything any more (B1.2 to B1.5).
    named: bool,
    /// A request that the server cannot have dropped as outdated (B1.8) held a name, so that the server has seen one.
    named_for_sure: bool,
    nonce: String,
    recent_unsubscribes: RecentUnsubscribes,
    /// The names of the last request, as sent.
    names: Bytes,
    /// Whether the server sends everything, according to the requests so far, or may take an empty list for that.
    wildcard: bool,
    /// Each with the version that it carries.
    answers: VecDeque<(Version, Answer)>,
    /// A response is in progress; a request before its answer would be taken for one.
    busy: bool,
    /// The names of the last request, if the server may have missed them.
    crossed: Crossed,
    /// The names of the last request are due once more, in a request of their own.
    repeat_at: Option<Instant>,
    /// The first request had a version, and no response has followed.
    version_sent: bool,
    /// A resource of the last accepted version was sent and is not held.
    has_unheld: bool,
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
        self.has_dropped = false;
        // No response can cross a first request.
        self.on_stream.accepted_since_all = usize::from(subscriptions.wildcard);
    }

    /// A NACK has the names of the last request: some servers read none from it (istiod, Consul), so that new ones
    /// there would be lost.
    fn write_nack(&mut self, node: Option<&Bytes>, now: Instant) -> Option<Bytes> {
        let (version, answer) = self.on_stream.answers.pop_front()?;
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

    /// The next request subscribes to something that the server may consider held.
    fn on_subscribing(&mut self, is_all_new: bool) {
        // A version of a response to names may stand for nothing, and be the current one.
        let came_for_names = is_all_new && self.on_stream.requested && !self.covers_all;
        if std::mem::take(&mut self.on_stream.has_unheld) || came_for_names {
            self.forget_version();
        }
    }

    /// The next request is without the unsubscribed names.
    fn put_unsubscribed(&mut self, subscriptions: &mut Subscriptions, written: &mut Written, now: Instant) {
        written.wildcard_left = std::mem::take(&mut subscriptions.wildcard_leaving);
        self.on_stream.has_unheld |= written.wildcard_left;
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
        self.subscribed.extend(held_back);
        names
    }

    /// Adopts the newest names for this and the following requests, without those that are held back if these are the
    /// names of that. True when the server sees no change: the legacy wildcard ends only by a name in the list (B1.3).
    fn refill(
        &mut self,
        subscriptions: &mut Subscriptions,
        held_back: Option<&BTreeSet<Arc<str>>>,
        now: Instant,
    ) -> bool {
        let on_stream = &mut self.on_stream;
        let recent = &mut on_stream.recent_unsubscribes;
        let may_be_missed = recent.may_have_missed_wildcard()
            || (!subscriptions.received_all && recent.is_wildcard_crossed());
        let wildcard = subscriptions.wildcard && !(held_back.is_some() && may_be_missed);
        let sorted = match held_back {
            Some(names) => subscriptions.names_without(|name| names.contains(name)),
            None => subscriptions.names(),
        };
        let had_wildcard = std::mem::replace(&mut on_stream.wildcard, wildcard);
        subscriptions.sends_all = wildcard;
        let mut others = BytesMut::new();
        if wildcard && (on_stream.named || !sorted.is_empty()) {
            put_text(3, "*", &mut others);
        }
        if held_back.is_some() && sorted.is_empty() && others.is_empty() && !on_stream.named_for_sure {
            // An empty list could mean everything to it, and the next request would change nothing.
            subscriptions.put_spelled(recent.last_name(), &mut others);
        }
        on_stream.names = match others.is_empty() {
            true => sorted,
            false => {
                others.extend_from_slice(&sorted);
                others.freeze()
            }
        };
        on_stream.named |= !on_stream.names.is_empty();
        let silent = !on_stream.named && !wildcard;
        if silent {
            // The server sends everything still, until something is named.
            on_stream.wildcard = had_wildcard;
        } else if had_wildcard && !wildcard {
            match subscriptions.wildcard {
                true => recent.on_wildcard_held_back(now),
                false => recent.on_wildcard_unsubscribed(now),
            }
        }
        if on_stream.names.is_empty() && !on_stream.named_for_sure {
            on_stream.wildcard = true;
        }
        silent
    }

    fn encode(&self, version: &str, node: Option<&Bytes>, error: Option<&str>) -> Bytes {
        let stream = &self.on_stream;
        let mut request = BytesMut::with_capacity(stream.names.len() + 256);
        put_unless_empty(1, version, &mut request);
        put_text(4, self.type_url, &mut request);
        put_unless_empty(5, &stream.nonce, &mut request);
        if let Some(node) = node {
            put_bytes(2, node, &mut request);
        }
        request.put_slice(&stream.names);
        if let Some(error) = error {
            put_error(6, error, &mut request);
        }
        request.freeze()
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
        self.batcher.on_change(now);
    }

    /// The end of a legacy wildcard could not be expressed.
    fn is_wildcard_stuck(&self, subscriptions: &Subscriptions) -> bool {
        self.on_stream.wildcard && !subscriptions.takes_all()
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
    }

    /// go-control-plane answers an empty list of names with everything when something changes. The skipped resources of
    /// another response were unsubscribed while that was in flight.
    fn on_skipped(&mut self) {
        self.on_stream.has_unheld |= self.on_stream.names.is_empty();
    }

    fn forget_version(&mut self) -> bool {
        (self.version, self.covers_all) = (Version::default(), false);
        std::mem::take(&mut self.on_stream.version_sent)
    }

    /// A newer answer replaces an ACK that is not written yet, but for a NACK that has to wait, which an ACK never has to. Of
    /// waiting NACKs the newest alone is kept, at the time of the first: a server that sends the same without end would fill
    /// the memory with them. A waiting NACK does not delay other answers.
    ///
    /// A NACK has the version that was accepted last. The valid resources of a rejected response are used, so that the
    /// held ones are not those of the accepted version any more.
    fn on_answer(&mut self, mut answer: Answer, now: Instant) {
        self.on_stream.busy = false;
        self.has_dropped |= answer.error.is_some();
        answer.not_before = answer.not_before.min(now + LONGEST_WAIT);
        for (_, waiting) in &mut self.on_stream.answers {
            waiting.not_before = waiting.not_before.min(answer.not_before);
        }
        let last = self.on_stream.answers.back().map(|(_, last)| last);
        let is_replaced = last.is_some_and(|last| match last.error {
            None => !answer.waits(now),
            Some(_) => last.waits(now) && answer.waits(now),
        });
        if is_replaced && let Some((_, last)) = self.on_stream.answers.pop_back() {
            answer.not_before = answer.not_before.min(last.not_before.max(now));
        }
        self.on_stream.answers.push_back((self.version.clone(), answer));
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
        let answer = self.on_stream.answers.front().map(|(_, answer)| answer.not_before);
        let change = self.batcher.due(subscriptions.named());
        [answer, change, self.on_stream.repeat_at].into_iter().flatten().min()
    }

    fn is_answer_due(&self, now: Instant) -> bool {
        let first = self.on_stream.answers.front();
        !self.on_stream.busy && first.is_some_and(|(_, answer)| answer.not_before <= now)
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
        let next = self.on_stream.answers.front();
        if next.is_some_and(|(_, answer)| answer.error.is_some()) {
            return (self.write_nack(head.node, now), written);
        }
        // The answer to a repeated response may be dropped like the requests before it.
        let is_new = next.is_some_and(|(_, ack)| ack.nonce.is_empty() || ack.nonce != self.on_stream.nonce);
        let is_ack = next.is_some();
        let is_repeated = !is_ack && self.on_stream.repeat_at.take().is_some();
        let answering = is_new || is_repeated;
        // It may have dropped the request that unsubscribed a name as outdated (B1.8). If the answer, which it accepts, had that
        // name again, nothing would have changed for it, and it would send nothing. So a request after the answer has it.
        let held_back = answering && self.was_resubscribed(subscriptions);
        let is_separate = is_ack && self.on_stream.has_unheld;
        let changed = !held_back
            && !is_separate
            && self.batcher.due(subscriptions.named()).is_some_and(|due| due <= now);
        let names = self.on_stream.names.clone();
        let mut silent = false;
        if held_back {
            self.put_unsubscribed(subscriptions, &mut written, now);
            let names = self.hold_back(subscriptions, now);
            self.refill(subscriptions, Some(&names), now);
            self.batcher.on_change(now);
        } else if changed {
            let is_all_new = subscriptions.wildcard && !self.on_stream.wildcard;
            if !self.subscribed.is_empty() || is_all_new {
                self.on_subscribing(is_all_new);
            }
            self.put_unsubscribed(subscriptions, &mut written, now);
            self.put_subscribed(subscriptions, &mut written);
            silent = self.refill(subscriptions, None, now);
            self.batcher.on_written(subscriptions.named(), now);
        }
        let ack = self.on_stream.answers.pop_front();
        let is_newest = answering && self.on_stream.answers.is_empty();
        if is_newest {
            self.on_stream.recent_unsubscribes.on_answered();
        }
        let is_first = !self.on_stream.requested;
        if is_newest || is_first {
            self.on_stream.named_for_sure |= !self.on_stream.names.is_empty();
        }
        if silent && !answering && ack.is_none() {
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
        let is_change = !is_first && names != stream.names;
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

/// The maximum delay of a NACK. Only one waits at a time, so that this is its rate too.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
