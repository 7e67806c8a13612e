use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{
    id::TypeId,
    interest::{Sub, SubId},
};

/// The does-not-exist timers of one server (A57-5): one queue for any number of names.
///
/// All of them run equally long, so the order of starting is the order of expiry. A timer that does not matter any
/// more (its resource came, its stream broke) is not searched for; it is passed over when it comes to the front.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    queue: VecDeque<Wait>,
}

/// One name that a server was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) until: Instant,
    pub(crate) ty: TypeId,
    pub(crate) sub: SubId,
    /// Tells a subscription from a later one in the same place, or of the same name on a later stream.
    pub(crate) serial: u64,
}

impl Waiting {
    /// Starts the timer of a name.
    pub(crate) fn start(&mut self, ty: TypeId, id: SubId, sub: &mut Sub, (now, length): (Instant, Duration)) {
        let until = now + length;
        sub.deadline = Some(until);
        self.queue.push_back(Wait { until, ty, sub: id, serial: sub.serial });
    }

    /// Forgets all: the stream broke.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Drops timers from the front until one that `matters`.
    pub(crate) fn settle(&mut self, matters: impl Fn(&Wait) -> bool) {
        while self.queue.front().is_some_and(|wait| !matters(wait)) {
            self.queue.pop_front();
        }
    }

    /// When the first timer expires; exact after [`settle`](Self::settle).
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|wait| wait.until)
    }

    /// Takes the first timer if it has expired.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Wait> {
        let expired = self.queue.front().is_some_and(|wait| wait.until <= now);
        if expired { self.queue.pop_front() } else { None }
    }
}
