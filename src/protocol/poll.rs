use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::{
    request::{put_bytes, put_text, put_unless_empty},
    subscriptions::{SubId, Subscriptions},
    variant::{Answer, Head, Variant, Written},
};
use crate::{config::Polling, resource::Version};

/// The state of one type at a source without streams: a server that is polled over REST (rules D10 to D14), or a file.
///
/// ```text
///             write                 on_response … on_answer, on_unchanged, on_failed
///  Due at ────────────▶ Outstanding ───────────────────────────────────────────────▶ Due at
///    ▲                                                                                 │
///    └───────────── refresh_delay and up to as much again at random (D12) ◀────────────┘
/// ```
///
/// A file is requested once for each change of the subscriptions, and reports its own changes. There are no answers: a
/// polled server gets the accepted version with the next request, and never a rejection (D11).
#[derive(Debug)]
pub(crate) struct Poll {
    type_url: &'static str,
    /// `None` for a file.
    polling: Option<Polling>,
    /// The source of jitter, from a seed of the machine.
    random: fastrand::Rng,
    /// The version of the last response without errors.
    version: Version,
    /// The names of the request that this response answered.
    version_names: Option<Bytes>,
    /// The names of the last request.
    names: Bytes,
    /// The time of the next request.
    next: Option<Instant>,
    /// A request is in flight. There is never more than one (D12).
    is_outstanding: bool,
    /// The time at which the request in flight was written.
    written_at: Option<Instant>,
    /// Set when names were subscribed since the request was written: if its answer is held back, it is given up for another
    /// one (D13).
    is_superseded: bool,
    /// Set when a request was given up for the one in flight: the answer of either may come next.
    has_given_up: bool,
    /// A response is in progress.
    is_busy: bool,
    /// Something was requested since the source was reachable.
    is_requested: bool,
    /// Subscribed names that no request has had yet, or whose request has failed.
    subscribed: Vec<SubId>,
    /// Unsubscribed names that are released with the next request.
    unsubscribed: Vec<SubId>,
    /// The time of the last unsubscription: names are released at once if nothing else is subscribed.
    unsubscribed_at: Option<Instant>,
}

impl Poll {
    /// A type that was not requested yet; `seed` is that of the jitter.
    pub(crate) fn new(type_url: &'static str, polling: Option<Polling>, seed: u64) -> Self {
        Self {
            type_url,
            polling,
            random: fastrand::Rng::with_seed(seed),
            version: Version::default(),
            version_names: None,
            names: Bytes::new(),
            next: None,
            is_outstanding: false,
            written_at: None,
            is_superseded: false,
            has_given_up: false,
            is_busy: false,
            is_requested: false,
            subscribed: Vec::new(),
            unsubscribed: Vec::new(),
            unsubscribed_at: None,
        }
    }

    /// There are more subscriptions than before. A file is read again; a server gets the next request as scheduled
    /// (D13), or at once if there was none before.
    fn on_change(&mut self, now: Instant) {
        // Without subscriptions there was no schedule that the request could wait for.
        let is_idle = self.next.is_none() && !self.is_outstanding && !self.is_busy;
        if self.polling.is_none() || is_idle {
            self.next = Some(now);
        }
        self.is_superseded = self.is_outstanding && self.polling.is_some();
    }

    /// The time at which a request whose answer is held back is given up: not before the next one would be due at the earliest.
    fn gives_up_at(&self) -> Option<Instant> {
        let polling = self.polling.filter(|_| self.is_superseded)?;
        Some(self.written_at? + polling.refresh_delay)
    }

    /// A request was answered, in whatever way.
    fn on_exchanged(&mut self, now: Instant) {
        (self.is_outstanding, self.is_superseded) = (false, false);
        let next = self.polling.map(|polling| now + polling.refresh_delay + self.jitter(polling));
        // A file may have to be read again meanwhile.
        self.next = next.or(self.next);
    }

    /// Up to the delay itself (D12).
    fn jitter(&mut self, polling: Polling) -> Duration {
        polling.refresh_delay.mul_f64(self.random.f64())
    }

    /// Puts the unsubscribed names.
    fn put_unsubscribed(&mut self, subscriptions: &mut Subscriptions, written: &mut Written) {
        written.wildcard_left = std::mem::take(&mut subscriptions.wildcard_leaving);
        written.unsubscribed = std::mem::take(&mut self.unsubscribed);
        self.unsubscribed_at = None;
        for id in &written.unsubscribed {
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| !sub.is_named()) {
                sub.on_unrequested();
            }
        }
    }

    /// The request with the names of `self.names`.
    fn encode(&self, node: Option<&Bytes>) -> Bytes {
        let mut request = BytesMut::with_capacity(self.names.len() + 256);
        // A server that compares versions alone would not send newly subscribed names.
        if self.version_names.as_ref() == Some(&self.names) {
            put_unless_empty(1, self.version.as_str(), &mut request);
        }
        if let Some(node) = node {
            put_bytes(2, node, &mut request);
        }
        request.extend_from_slice(&self.names);
        put_text(4, self.type_url, &mut request);
        request.freeze()
    }
}

impl Variant for Poll {
    fn is_requested(&self) -> bool {
        self.is_requested
    }

    fn on_named(&mut self, subscriptions: &mut Subscriptions, sub: SubId, now: Instant) {
        if let Some(sub) = subscriptions.get_mut(sub).filter(|sub| !sub.is_settled()) {
            sub.on_subscribed(None);
        }
        self.subscribed.push(sub);
        self.on_change(now);
    }

    fn on_unnamed(&mut self, sub: SubId, now: Instant) {
        self.unsubscribed.push(sub);
        self.unsubscribed_at = Some(now);
    }

    fn on_wildcard(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        subscriptions.subscribe_all();
        self.version_names = None;
        self.on_change(now);
    }

    fn on_wildcard_ended(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        subscriptions.wildcard = false;
        subscriptions.wildcard_leaving = true;
        self.unsubscribed_at = Some(now);
    }

    /// Each request has all subscriptions.
    fn is_wildcard_stuck(&self, _: &Subscriptions) -> bool {
        false
    }

    fn on_stream_opened(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        (self.is_outstanding, self.is_busy, self.is_requested) = (false, false, false);
        (self.is_superseded, self.has_given_up) = (false, false);
        self.subscribed = subscriptions.iter().filter(|(_, sub)| sub.is_named()).map(|(id, _)| id).collect();
        self.next = (!subscriptions.is_empty()).then_some(now);
    }

    fn on_stream_closed(&mut self, subscriptions: &mut Subscriptions) -> Vec<SubId> {
        (self.is_outstanding, self.is_busy, self.is_requested) = (false, false, false);
        (self.next, self.unsubscribed_at) = (None, None);
        self.subscribed.clear();
        subscriptions.on_stream_closed();
        std::mem::take(&mut self.unsubscribed)
    }

    fn on_response(&mut self, _: &Version, now: Instant) {
        self.is_busy = true;
        self.on_exchanged(now);
    }

    fn on_unchanged(&mut self, now: Instant) {
        self.on_exchanged(now);
    }

    /// The requested names have to be requested again, and have their time from then on.
    fn on_failed(&mut self, subscriptions: &mut Subscriptions, now: Instant) {
        self.on_exchanged(now);
        self.subscribed.clear();
        // Names that the server has answered keep their state: the next request has them anyway.
        let owed = subscriptions.iter_mut().filter_map(|(id, sub)| sub.on_request_failed().then_some(id));
        self.subscribed.extend(owed);
    }

    /// Keeps the version for the next request, which has it while the names are those that this response answered.
    fn on_accepted(&mut self, _: &Subscriptions, version: &Version) {
        self.version = version.clone();
        // It may be the answer to the request before.
        self.version_names = Some(self.names.clone()).filter(|_| !std::mem::take(&mut self.has_given_up));
    }

    fn on_dropped(&mut self) {
        self.version_names = None;
    }

    fn forget_version(&mut self) -> bool {
        self.version_names = None;
        false
    }

    fn on_answer(&mut self, _: Answer, _: Instant) {
        self.is_busy = false;
    }

    fn has_unwritten(&self, _: &Subscriptions) -> bool {
        self.is_busy || self.is_outstanding
    }

    fn due(&self, subscriptions: &Subscriptions) -> Option<Instant> {
        match (subscriptions.is_empty(), self.is_busy || self.is_outstanding) {
            // The response that is being applied decides which version the next request has.
            (_, true) if self.is_busy => None,
            (_, true) => self.gives_up_at(),
            // No request is sent without subscriptions.
            (true, false) => self.unsubscribed_at,
            (false, false) => self.next,
        }
    }

    fn is_answer_due(&self, _: Instant) -> bool {
        false
    }

    fn write(
        &mut self,
        subscriptions: &mut Subscriptions,
        head: Head<'_>,
        now: Instant,
    ) -> (Option<Bytes>, Written) {
        let mut written = Written::nothing(head.ty);
        // A request is only written beside one in flight if that is given up (D13).
        self.has_given_up |= self.is_outstanding;
        (self.is_outstanding, self.is_superseded, self.written_at) = (false, false, Some(now));
        self.put_unsubscribed(subscriptions, &mut written);
        self.next = None;
        subscriptions.sends_all = subscriptions.wildcard;
        if subscriptions.is_empty() {
            return (None, written);
        }
        written.subscribed = std::mem::take(&mut self.subscribed);
        if !written.subscribed.is_empty() {
            // A newly subscribed name may have been held before, and unsubscribed: "unchanged" would be no answer.
            self.version_names = None;
        }
        for id in &written.subscribed {
            if let Some(sub) = subscriptions.get_mut(*id).filter(|sub| sub.is_named()) {
                sub.on_requested();
            }
        }
        // Without a stream no name can have been requested before: no names are everything.
        self.names = if subscriptions.wildcard { Bytes::new() } else { subscriptions.names() };
        (self.is_outstanding, self.is_requested) = (true, true);
        (Some(self.encode(head.node)), written)
    }

    fn on_unconfirmed(&mut self, _: Instant) {}

    /// Each response has everything that was requested.
    fn quiet_from(&self) -> Option<Instant> {
        None
    }

    fn on_quiet(&mut self) -> bool {
        true
    }
}
