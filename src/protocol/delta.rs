use std::{
    collections::VecDeque,
    mem,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use super::{
    burst::REFILL,
    recent_unsubscribes::RecentUnsubscribes,
    request::{pair_len, put_bytes, put_error, put_pair, put_text, put_unless_empty, text_len},
    request_batcher::RequestBatcher,
    sent_names::SentNames,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    traffic::RequestKind,
    variant::{Answer, Head, Variant, Written},
};
use crate::resource::Version;

/// The state of one type on one server in the incremental variant (rules B2.1 to B2.35).
///
/// A request has the changes of the subscriptions, or answers one response, or both; each resource has a version of its
/// own. The first request of a stream has the versions that are held from the streams before it.
///
/// ```text
///   first request of a stream                      later ones
///   ─────────────────────────────────────────────  ─────────────────────────────────────────────────────
///   subscribe    all names, or nothing if          names subscribed since, `*` for a new wildcard
///                the wildcard is subscribed
///   unsubscribe  nothing                           names unsubscribed since, `*`
///   versions     of all that is held, if they fit  nothing (B2.2)
///   nonce        nothing                           of the response that it answers
/// ```
///
/// A NACK has no changes. With a wildcard, names beside it follow in the second request: servers that know only the
/// older form of the wildcard, the empty first request, take `*` for a name like others (Consul).
///
/// A held resource whose version could not be sent has to be sent again. If it is not, after a quiet time, it is missing.
#[derive(Debug)]
pub(crate) struct Delta {
    type_url: &'static str,
    /// The maximum length of a request, in bytes.
    limit: usize,
    /// For how long a removal proves nothing of a resubscribed name; and how long a quiet time is.
    doubt: Duration,
    /// Made anew with each stream.
    on_stream: OnStream,
    /// The time of the next request for changes.
    batcher: RequestBatcher,
    /// Subscribed names that no request of this stream has held yet. Some of them are unsubscribed since, or here twice.
    subscribed: Vec<SubId>,
    /// Unsubscribed names that the server was not notified of yet. Some of them are subscribed again since.
    unsubscribed: Vec<SubId>,
}

/// The state of one stream.
#[derive(Debug, Default)]
struct OnStream {
    /// A request was written.
    requested: bool,
    /// Whether the server sends everything, according to the requests so far.
    wildcard: bool,
    /// The wildcard was sent as `*`, since it began behind names.
    has_star: bool,
    /// The end of the wildcard was sent. go-control-plane ignores that on a stream without a name in a request, and
    /// considers its resources held ever after.
    wildcard_ended: bool,
    /// The server took `*` for a name, and sends only what was requested by name.
    wildcard_refused: bool,
    recent_unsubscribes: RecentUnsubscribes,
    /// What the server has sent and that was not held then, or was let go since.
    sent: SentNames,
    /// The oldest first: each is a request of its own.
    answers: VecDeque<Answer>,
    /// Responses in progress.
    busy: usize,
    /// The last request was full, and more changes are to be sent.
    more: Option<Instant>,
    /// Some resource is unconfirmed.
    quiet: Option<Quiet>,
}

/// Unconfirmed resources are decided on when the server has been quiet for a while, or has sent other messages for too long.
#[derive(Debug, Clone, Copy)]
struct Quiet {
    /// The begin of the wait.
    since: Instant,
    /// The time of the server's last message, if there was one.
    last_response: Option<Instant>,
    /// The quiet time passed without a message. That has no effect on what it had sent on earlier streams.
    was_silent: bool,
}

impl Delta {
    /// A type without a request; it begins with its first subscription.
    pub(crate) fn new(type_url: &'static str, doubt: Duration, limit: usize) -> Self {
        Self {
            type_url,
            limit,
            doubt,
            on_stream: OnStream::default(),
            batcher: RequestBatcher::default(),
            subscribed: Vec::new(),
            unsubscribed: Vec::new(),
        }
    }

    /// The time at which the pending change is due.
    fn change_due(&self, subscriptions: &Subscriptions) -> Option<Instant> {
        self.on_stream.more.or_else(|| self.batcher.due(subscriptions.named()))
    }

    /// Puts the changes into a request, as far as they fit. True when there are some.
    fn put_changes(
        &mut self,
        subscriptions: &mut Subscriptions,
        request: &mut BytesMut,
        written: &mut Written,
        now: Instant,
    ) -> bool {
        let first = !self.on_stream.requested;
        if first && subscriptions.is_empty() {
            // An empty first request would subscribe to everything (B2.7).
            written.wildcard_left = mem::take(&mut subscriptions.wildcard_leaving);
            written.unsubscribed = mem::take(&mut self.unsubscribed);
            self.subscribed.clear();
            return false;
        }
        // Before the names: versions are sent together or not at all, while names that do not fit go into the next request.
        if first {
            self.put_versions(subscriptions, request, now);
        }
        let empty = request.len();
        self.put_wildcard(subscriptions, request, written, now);
        // The first request of a wildcard is empty, and names follow in the next one (B2.6).
        if !(first && subscriptions.wildcard) {
            self.put_leaving(subscriptions, request, written, now);
            self.put_fresh(subscriptions, request, written);
        }
        // What did not fit goes into another request at once: the run of changes has waited already.
        let is_full = !(self.unsubscribed.is_empty() && self.subscribed.is_empty());
        self.on_stream.more = is_full.then_some(now);
        if !is_full {
            self.batcher.on_written(subscriptions.named(), now);
        }
        first || request.len() > empty
    }

    /// Puts the beginning or the end of the wildcard, if it has changed. On a fresh stream the empty list of the first
    /// request means its beginning (B2.4, B2.6).
    fn put_wildcard(
        &mut self,
        subscriptions: &mut Subscriptions,
        request: &mut BytesMut,
        written: &mut Written,
        now: Instant,
    ) {
        written.wildcard_left = mem::take(&mut subscriptions.wildcard_leaving);
        let was_requested = mem::replace(&mut self.on_stream.wildcard, subscriptions.wildcard);
        self.on_stream.wildcard_refused &= was_requested;
        subscriptions.sends_all = subscriptions.wildcard && !self.on_stream.wildcard_refused;
        if subscriptions.wildcard && !was_requested {
            // Behind another request an empty list would change nothing (B2.5).
            self.on_stream.has_star = self.on_stream.requested;
            if self.on_stream.has_star {
                put_text(SUBSCRIBE, "*", request);
            }
            subscriptions.on_wildcard_requested();
        } else if was_requested && !subscriptions.wildcard {
            put_text(UNSUBSCRIBE, "*", request);
            self.on_stream.wildcard_ended = true;
            self.on_stream.recent_unsubscribes.on_wildcard_unsubscribed(now);
        }
    }

    /// Puts the unsubscribed names. A name that was not requested on this stream is unsubscribed without a message.
    fn put_leaving(
        &mut self,
        subscriptions: &mut Subscriptions,
        request: &mut BytesMut,
        written: &mut Written,
        now: Instant,
    ) {
        let mut done = 0;
        for id in &self.unsubscribed {
            // Resubscribed names are in the other list, and the server sends them again (B2.8, B2.9).
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| !sub.is_named()) {
                if sub.is_requested() {
                    if is_over(self.limit, request, sub.spelling(), done) {
                        break;
                    }
                    put_text(UNSUBSCRIBE, sub.spelling(), request);
                    sub.on_unrequested();
                    self.on_stream.recent_unsubscribes.on_name_unsubscribed(
                        sub.name().clone(),
                        self.doubt,
                        now,
                    );
                }
                written.unsubscribed.push(*id);
            }
            done += 1;
        }
        self.unsubscribed.drain(..done);
    }

    /// Puts the newly subscribed names.
    fn put_fresh(
        &mut self,
        subscriptions: &mut Subscriptions,
        request: &mut BytesMut,
        written: &mut Written,
    ) {
        // The request is full of unsubscriptions already.
        if !self.unsubscribed.is_empty() {
            return;
        }
        // A name that was removed and added again is listed twice.
        self.subscribed.sort_unstable();
        self.subscribed.dedup();
        let mut done = 0;
        for id in &self.subscribed {
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| sub.is_named()) {
                if is_over(self.limit, request, sub.spelling(), written.subscribed.len()) {
                    break;
                }
                put_text(SUBSCRIBE, sub.spelling(), request);
                sub.on_requested();
                written.subscribed.push(*id);
            }
            done += 1;
        }
        self.subscribed.drain(..done);
    }

    /// Puts the versions of held resources, if they fit (B2.1); a resource without its version has to be sent again. So has
    /// one of an alias: the alias means nothing to the server here, and the own name, that all of its aliases are held.
    fn put_versions(&mut self, subscriptions: &mut Subscriptions, request: &mut BytesMut, now: Instant) {
        let aliases = mem::take(&mut subscriptions.aliases);
        let can_be_told = |sub: &Subscription| sub.has_version() && !aliases.is_alias(sub.name());
        let subs = || subscriptions.iter().map(|(_, sub)| sub).filter(|sub| can_be_told(sub));
        let size: usize = subs().map(|sub| pair_len(sub.spelling(), sub.version().as_str())).sum();
        // A first request without any name would subscribe to everything.
        let fits = request.len() + size + ROOM_FOR_A_NAME <= self.limit;
        if fits {
            subs().for_each(|sub| put_pair(VERSIONS, sub.spelling(), sub.version().as_str(), request));
        }
        let mut any = false;
        for (_, sub) in subscriptions.iter_mut() {
            let is_sent = fits && can_be_told(sub);
            any |= sub.on_versions_sent(is_sent);
        }
        subscriptions.aliases = aliases;
        self.on_stream.quiet = any.then_some(Quiet { since: now, last_response: None, was_silent: false });
    }
}

impl Variant for Delta {
    fn is_requested(&self) -> bool {
        self.on_stream.requested
    }

    /// Shortly after an unsubscription, a response to it that removes the resource may be in flight.
    fn on_named(&mut self, subscriptions: &mut Subscriptions, sub: SubId, now: Instant) {
        if let Some(sub) = subscriptions.get_mut(sub).filter(|sub| !sub.is_settled()) {
            let doubtful = self.on_stream.recent_unsubscribes.on_name_subscribed(sub.name(), self.doubt, now);
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
        subscriptions.subscribe_all();
        self.batcher.on_change(now);
    }

    fn on_wildcard_ended(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        subscriptions.wildcard = false;
        subscriptions.wildcard_leaving = true;
        self.batcher.on_change(now);
    }

    fn on_wildcard_refused(&mut self, subscriptions: &mut Subscriptions) {
        self.on_stream.wildcard_refused = true;
        subscriptions.sends_all = false;
    }

    fn is_wildcard_spelled(&self, subscriptions: &Subscriptions) -> bool {
        subscriptions.wildcard && self.on_stream.has_star
    }

    fn on_released(&mut self, sub: &Subscription) {
        if sub.was_ever_mentioned() {
            self.on_stream.sent.add(sub.name());
        }
    }

    fn notes_skipped(&self) -> bool {
        self.on_stream.sent.has_room()
    }

    fn on_skipped(&mut self, name: &str) {
        self.on_stream.sent.add(name);
    }

    fn has_sent(&self, sub: &Subscription) -> bool {
        self.on_stream.sent.contains(sub.name())
    }

    /// The end of the wildcard can always be sent (B2.4), but not every server sends again what it sent before.
    fn is_wildcard_stuck(&self, _: &Subscriptions) -> bool {
        self.on_stream.wildcard_ended
    }

    fn may_skip_names(&self) -> bool {
        self.on_stream.wildcard_ended
    }

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
        mem::take(&mut self.unsubscribed)
    }

    fn on_response(&mut self, _: &Version, now: Instant) {
        self.on_stream.busy += 1;
        if let Some(quiet) = &mut self.on_stream.quiet {
            // The first response after a long silence may be one of several.
            quiet.since = if quiet.was_silent && quiet.last_response.is_none() { now } else { quiet.since };
            quiet.last_response = Some(now);
        }
    }

    /// Versions are those of resources; that of a response is for people (B2.31).
    fn on_accepted(&mut self, _: &Subscriptions, _: &Version) {}

    /// In the order of the responses, and none for another (B0.18); but a NACK that has to wait delays no later answer. Those that
    /// wait are a second apart (B0.24), and at most [`MOST_WAITING`].
    fn on_answer(&mut self, mut answer: Answer, now: Instant) {
        self.on_stream.busy = self.on_stream.busy.saturating_sub(1);
        let answers = &mut self.on_stream.answers;
        let due = answers.iter().take_while(|other| !other.waits(now)).count();
        if !answer.waits(now) {
            // Before the NACKs that wait: a server may send nothing until its last response is answered.
            answers.insert(due, answer);
            return;
        }
        if let Some(last) = answers.range(due..).last() {
            answer.not_before = answer.not_before.max(last.not_before + REFILL);
        }
        // A server that sends rejected responses without end gets no answer to most of them.
        if answers.len() - due < MOST_WAITING as usize {
            answers.push_back(answer);
        }
    }

    fn has_held_back(&self, now: Instant) -> bool {
        self.on_stream.answers.iter().any(|answer| answer.waits(now))
    }

    fn release_held_back(&mut self, now: Instant) {
        if let Some(first) = self.on_stream.answers.iter_mut().find(|answer| answer.waits(now)) {
            first.not_before = now;
        }
    }

    fn has_unwritten(&self, subscriptions: &Subscriptions) -> bool {
        !self.on_stream.answers.is_empty()
            || !self.unsubscribed.is_empty()
            || subscriptions.wildcard_leaving
            || self.on_stream.busy > 0
    }

    fn due(&self, subscriptions: &Subscriptions) -> Option<Instant> {
        let answer = self.on_stream.answers.front().map(|answer| answer.not_before);
        match (answer, self.change_due(subscriptions)) {
            (Some(answer), Some(change)) => Some(answer.min(change)),
            (due, None) | (None, due) => due,
        }
    }

    fn is_answer_due(&self, now: Instant) -> bool {
        self.on_stream.answers.front().is_some_and(|answer| answer.not_before <= now)
    }

    /// An answer that is due, and the changes that are due: an ACK and changes may ride on each other (B2.10). Names beside an
    /// error are lost to some servers (istiod, Consul), so that a NACK goes alone.
    fn write(
        &mut self,
        subscriptions: &mut Subscriptions,
        head: Head<'_>,
        now: Instant,
    ) -> (Option<Bytes>, Written) {
        let mut written = Written::nothing(head.ty);
        let mut request = BytesMut::with_capacity(256);
        if let Some(node) = head.node {
            put_bytes(NODE, node, &mut request);
        }
        put_text(TYPE_URL, self.type_url, &mut request);
        let answer = match self.is_answer_due(now) {
            true => self.on_stream.answers.pop_front(),
            false => None,
        };
        let mut says_something = answer.is_some();
        written.kind = answer.as_ref().map_or(RequestKind::Subscription, Answer::kind);
        if let Some(Answer { nonce, error, .. }) = answer {
            put_unless_empty(NONCE, &nonce, &mut request);
            if let Some(error) = error {
                put_error(ERROR, &error, &mut request);
            }
        }
        if written.kind != RequestKind::Nack && self.change_due(subscriptions).is_some_and(|due| due <= now) {
            says_something |= self.put_changes(subscriptions, &mut request, &mut written, now);
        }
        if !says_something {
            // The changes since the last request have cancelled each other out.
            self.batcher.on_written(subscriptions.named(), now);
            return (None, written);
        }
        self.on_stream.requested = true;
        (Some(request.freeze()), written)
    }

    /// A server without a request so far owes nothing; what it does not confirm is found at the request.
    fn on_unconfirmed(&mut self, now: Instant) {
        if self.on_stream.requested {
            self.on_stream.quiet = Some(Quiet { since: now, last_response: Some(now), was_silent: false });
        }
    }

    fn on_undecided(&mut self, now: Instant) {
        if self.on_stream.requested {
            let quiet = Quiet { since: now, last_response: None, was_silent: false };
            self.on_stream.quiet.get_or_insert(quiet).last_response = Some(now);
        }
    }

    /// A server that is never quiet, such as one that repeats rejected resources, has its time as well.
    fn quiet_from(&self) -> Option<Instant> {
        let Quiet { since, last_response, was_silent } = self.on_stream.quiet?;
        match last_response {
            Some(last_response) => Some((last_response + self.doubt).min(since + LONGEST_QUIET * self.doubt)),
            None => Some(since + self.doubt).filter(|_| !was_silent),
        }
    }

    fn on_quiet(&mut self) -> bool {
        let quiet = self.on_stream.quiet.take();
        self.on_stream.quiet = quiet
            .filter(|quiet| quiet.last_response.is_none())
            .map(|quiet| Quiet { was_silent: true, ..quiet });
        self.on_stream.quiet.is_none()
    }
}

/// Whether a name does not fit any more into a request that holds `names` of them. One always fits.
fn is_over(limit: usize, request: &BytesMut, name: &str, names: usize) -> bool {
    names > 0 && request.len() + text_len(name) > limit
}

/// The maximum of waiting NACKs: beyond it rejected responses are not answered. It bounds the memory for a server that sends
/// them without end.
pub(super) const MOST_WAITING: u32 = 256;

/// The number of quiet times after which a server that always sends something has sent everything.
const LONGEST_QUIET: u32 = 4;

/// The space that is left free beside the versions.
const ROOM_FOR_A_NAME: usize = 4 << 10;

const NODE: u32 = 1;
const TYPE_URL: u32 = 2;
const SUBSCRIBE: u32 = 3;
const UNSUBSCRIBE: u32 = 4;
const VERSIONS: u32 = 5;
const NONCE: u32 = 6;
const ERROR: u32 = 7;
