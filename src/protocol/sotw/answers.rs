use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::super::variant::Answer;
use crate::resource::Version;

/// The answers of one type that are not written yet, in the order of their responses, each with the version that it carries.
///
/// | behind | a newer answer |
/// |---|---|
/// | an ACK | replaces it, but for a NACK that has to wait, which an ACK never has to |
/// | a NACK that is due | follows it |
/// | a NACK that has to wait | replaces it: the nonce of a NACK behind it would be outdated |
///
/// So one NACK waits at most, whatever the server sends, and it waits no longer than the first of those that it has replaced.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The oldest first; a NACK that has to wait is the last one.
    queue: VecDeque<(Version, Answer)>,
}

impl Answers {
    /// Adds an answer, which may replace the last one.
    pub(super) fn push(&mut self, version: Version, mut answer: Answer, now: Instant) {
        answer.not_before = answer.not_before.min(now + LONGEST_WAIT);
        let is_replaced = self.next_back().is_some_and(|last| match last.error {
            // A NACK that has to wait behind an ACK would leave the accepted response without an answer for up to ten seconds.
            None => !answer.waits(now),
            Some(_) => last.waits(now),
        });
        if is_replaced && let Some((_, last)) = self.queue.pop_back() {
            answer.not_before = answer.not_before.min(last.not_before.max(now));
        }
        self.queue.push_back((version, answer));
    }

    /// The next answer.
    pub(super) fn next(&self) -> Option<&Answer> {
        self.queue.front().map(|(_, answer)| answer)
    }

    /// Takes the next answer, whether or not it is due: the caller has decided to write.
    pub(super) fn pop(&mut self) -> Option<(Version, Answer)> {
        self.queue.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a NACK waits.
    pub(super) fn has_held_back(&self, now: Instant) -> bool {
        self.next_back().is_some_and(|last| last.waits(now))
    }

    /// The NACK that waits is due.
    pub(super) fn release_held_back(&mut self, now: Instant) {
        if let Some((_, last)) = self.queue.back_mut().filter(|(_, last)| last.waits(now)) {
            last.not_before = now;
        }
    }

    /// The newest answer.
    fn next_back(&self) -> Option<&Answer> {
        self.queue.back().map(|(_, answer)| answer)
    }
}

/// The maximum delay of a NACK. Only one waits at a time, so that this is its rate too.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
