//! Requests that are repeated on another stream, because they have no effect on the current one.

use std::time::{Duration, Instant};

use super::Machine;
use crate::protocol::TypeId;

/// The schedule of reopening a stream because of resources that the server considers held, or for a name: at most once in
/// the does-not-exist time. A need before that waits for its end.
#[derive(Debug, Default)]
pub(super) struct Reopening {
    last: Option<Instant>,
    waiting: Option<PendingReopen>,
}

#[derive(Debug, Clone, Copy)]
struct PendingReopen {
    at: Instant,
    why: &'static str,
    /// The type of the wildcard that it is for, and is not needed without; `None` if it is for something else, or for several.
    wildcard: Option<TypeId>,
}

impl Reopening {
    /// The time of reopening; nothing waits after that.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.map(|waiting| waiting.at)
    }

    /// The stream has ended, and the next one is another stream for all needs.
    pub(super) fn on_stream_gone(&mut self) {
        self.waiting = None;
    }

    /// Another stream is opened as soon as it may be, behind what is due at the same time.
    fn plan(&mut self, why: &'static str, pause: Duration, now: Instant) {
        let at = self.last.map_or(now, |last| (last + pause).max(now));
        let waiting = self.waiting.get_or_insert(PendingReopen { at, why, wildcard: None });
        waiting.wildcard = None;
    }

    /// Whether another stream may be opened now; otherwise that waits.
    fn begin(&mut self, why: Why, pause: Duration, now: Instant) -> bool {
        let Why { text: why, wildcard } = why;
        let at = self.last.map_or(now, |last| last + pause);
        if at > now {
            let waiting = self.waiting.get_or_insert(PendingReopen { at, why, wildcard });
            waiting.wildcard = waiting.wildcard.filter(|_| waiting.wildcard == wildcard);
            return false;
        }
        (self.last, self.waiting) = (Some(now), None);
        true
    }
}

/// The reason for another stream.
#[derive(Debug, Clone, Copy)]
struct Why {
    /// The reason in the log.
    text: &'static str,
    /// The type of the wildcard that the stream is for; `None` if it is for names.
    wildcard: Option<TypeId>,
}

impl Machine {
    /// The server considers something held that is not: a resource without its version in the requests of the next
    /// stream is sent there. At most one stream is opened for that in the does-not-exist time.
    pub(crate) fn request_again_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        let why = Why { text: "the server confirms a resource that has expired", wildcard: None };
        self.ask_on_another_stream(ty, why, now);
    }

    /// The server has sent a name on this stream before and does not send it again: on another stream it knows of nothing that
    /// was sent (B1.22).
    pub(super) fn request_name_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        let pause = self.resource_timeout();
        let Some(channel) = self.channel(ty) else { return };
        channel.variant.forget_version();
        self.reopening.plan("the server does not send again what it has sent before", pause, now);
    }

    /// The server considered the wildcard a name: it needs none in the first request of a type on a stream (B2.4).
    /// Until then it does not send everything.
    pub(crate) fn ask_for_all_on_another_stream(&mut self, ty: TypeId, now: Instant) {
        let Some(channel) = self.channel(ty) else { return };
        channel.variant.on_wildcard_refused(&mut channel.subscriptions);
        let why = Why { text: "the server takes the wildcard for a name", wildcard: Some(ty) };
        self.ask_on_another_stream(ty, why, now);
    }

    fn ask_on_another_stream(&mut self, ty: TypeId, why: Why, now: Instant) {
        let pause = self.resource_timeout();
        if !self.source_key.capabilities().streaming {
            return;
        }
        let Some(channel) = self.channel(ty) else { return };
        channel.variant.forget_version();
        if self.reopening.begin(why, pause, now) {
            self.reopen(why.text, now);
        }
    }

    /// Opens the stream anew for the names that have waited for that, if they are still subscribed.
    pub(super) fn reopen_if_due(&mut self, now: Instant) {
        let Some(waiting) = self.reopening.waiting.take_if(|waiting| waiting.at <= now) else { return };
        let lacks_all = |ty| {
            self.subscriptions_mut(ty)
                .is_some_and(|subscriptions| subscriptions.wildcard && !subscriptions.sends_all)
        };
        if waiting.wildcard.is_none_or(lacks_all) {
            self.reopening.last = Some(now);
            self.reopen(waiting.why, now);
        }
    }
}
