use std::{collections::VecDeque, time::Instant};

use super::{id::TypeId, subscription::Subscription, subscriptions::SubId};
use crate::capacity::Shrink;

/// The does-not-exist timers of one server (A57-5): one queue for any number of names.
///
/// All of them have the same duration, so the order of starting is the order of expiry. A timer that does not matter any more
/// (its resource was received, its stream broke) is not searched for; it is skipped when it comes to the front.
/// Those that one request has started are kept together.
#[derive(Debug, Default)]
pub(crate) struct DoesNotExistTimers {
    /// In the order of expiry.
    queue: VecDeque<Together>,
    /// The number of the timers that were started last.
    last: u32,
}

/// Timers that were started together. There is at least one.
#[derive(Debug)]
struct Together {
    /// The time of expiry.
    until: Instant,
    /// The number of all of them, by which later timers of a name are told apart.
    number: u32,
    ty: TypeId,
    /// The names, in the order of starting.
    subs: VecDeque<SubId>,
}

/// One name that was requested from a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) ty: TypeId,
    pub(crate) sub: SubId,
    /// Distinguishes a timer from those of the same subscription before it, and from those of others that had its slot.
    pub(crate) number: u32,
}

impl DoesNotExistTimers {
    /// Starts the timer of a name, which expires at `until`: not before those that were started earlier.
    pub(crate) fn start(&mut self, ty: TypeId, id: SubId, sub: &mut Subscription, until: Instant) {
        // A request may have 10,000 names: together with the others of it, each takes four bytes, and no deadline of its own.
        match self.queue.back_mut().filter(|last| last.until == until && last.ty == ty) {
            Some(last) => last.subs.push_back(id),
            None => {
                // No timer runs for as long as the numbers take to wrap around; 0 is no timer.
                self.last = self.last.checked_add(1).unwrap_or(1);
                self.queue.push_back(Together { until, number: self.last, ty, subs: [id].into() });
            }
        }
        sub.on_timer_started(self.last);
    }

    /// The number of the timers that were started last; 0 if none were.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// Forgets all: the stream broke.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }

    /// Drops timers from the front until one that `matters`.
    pub(crate) fn skip_obsolete(&mut self, matters: impl Fn(&Wait) -> bool) {
        while self.first().is_some_and(|wait| !matters(&wait)) {
            self.pass();
        }
    }

    /// The expiry of the first timer; exact after [`skip_obsolete`](Self::skip_obsolete).
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.front().map(|wait| wait.until)
    }

    /// Takes the first timer if it has expired.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Wait> {
        let expired = self.next().is_some_and(|until| until <= now);
        let wait = self.first().filter(|_| expired)?;
        self.pass();
        Some(wait)
    }

    /// The first timer, whether or not it still matters.
    fn first(&self) -> Option<Wait> {
        let Together { number, ty, subs, .. } = self.queue.front()?;
        Some(Wait { ty: *ty, sub: *subs.front()?, number: *number })
    }

    /// Drops the first one.
    fn pass(&mut self) {
        if let Some(first) = self.queue.front_mut() {
            first.subs.pop_front();
            if first.subs.is_empty() {
                self.queue.pop_front();
                self.queue.shrink_if_sparse();
            }
        }
    }
}
