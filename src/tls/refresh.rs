//! When material is read again, and what a reading changes: decisions alone, with times as arguments (CH7.5, CH7.6).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::files::{Unusable, parsed};
use crate::config::bounded;

/// One kind of material of a provider, such as its identity, which is refreshed apart from others. `S` is what is read,
/// and `M` what it means.
///
/// ```text
///            a good reading                  a reading that fails
///  Empty ───────────────────▶ Good ⟲ ◀─────────────────────────▶ Good, with a failure
///    └──▶ Empty, with a failure            a good reading
/// ```
///
/// The last good material is kept through every failure.
#[derive(Debug)]
pub(super) struct Refresh<S, M> {
    /// The time between readings.
    interval: Duration,
    /// The last good reading, and its meaning.
    good: Option<(S, Arc<M>)>,
    /// The failure of the readings since the last good one.
    failure: Option<Failure>,
    /// When the last reading began; `None` before the first one.
    begun: Option<Instant>,
    /// When the last reading ended; `None` before the first one.
    last: Option<Instant>,
    /// When the next reading is due; `None` is at once.
    due: Option<Instant>,
}

/// Why files are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// The interval may be over.
    Interval,
    /// A handshake needs material. If there is none yet, it is due a second after the last reading.
    Missing,
    /// A handshake that began then needs the contents that the files have.
    Handshake(Instant),
}

/// What a reading has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// No change.
    None,
    /// There is new material, the first or another.
    Material,
    /// The source is as it was before a failure.
    Mended,
    /// A failure begins, to be warned of.
    Failed,
    /// A failure goes on, maybe for another reason.
    StillFailed,
}

/// The failure of all readings since the last good one.
#[derive(Debug)]
struct Failure {
    /// The reason of the last reading.
    reason: Arc<str>,
    /// Whether a second reading soon after the first has been due: at most one in a row of failures.
    retried: bool,
}

impl<S: PartialEq, M> Refresh<S, M> {
    /// Creates material whose first reading is due at once.
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval: bounded(interval).max(MIN_INTERVAL),
            good: None,
            failure: None,
            begun: None,
            last: None,
            due: None,
        }
    }

    /// The last good material.
    pub(super) fn material(&self) -> Option<&Arc<M>> {
        self.good.as_ref().map(|(_, material)| material)
    }

    /// What the last good material was read from.
    pub(super) fn source(&self) -> Option<&S> {
        self.good.as_ref().map(|(source, _)| source)
    }

    /// The reason why the last reading failed.
    pub(super) fn failure(&self) -> Option<&Arc<str>> {
        self.failure.as_ref().map(|failure| &failure.reason)
    }

    /// When the next reading is due; `None` is at once.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// A handshake needs material. If there is none yet, the next reading is due earlier, a second after the last.
    pub(super) fn handle_need(&mut self) {
        if self.good.is_none() {
            let soon = self.last.map(|last| last + RETRY);
            // `None` is the least: what is due at once stays so.
            self.due = self.due.min(soon);
        }
    }

    /// Whether a reading is due, which begins then. A handshake may have it due earlier.
    pub(super) fn begin_reading(&mut self, trigger: Trigger, now: Instant) -> bool {
        match trigger {
            Trigger::Interval => {}
            Trigger::Missing => self.handle_need(),
            // Handshakes that waited for a reading which has begun after them find it done.
            Trigger::Handshake(at) if self.begun.is_some_and(|begun| begun > at) => {}
            Trigger::Handshake(_) => self.due = None,
        }
        let is_due = is_due(self.due, now);
        if is_due {
            self.begun = Some(now);
        }
        is_due
    }

    /// Takes a reading. `parse` is asked only if it differs from the last good one.
    pub(super) fn handle_reading(
        &mut self,
        now: Instant,
        reading: Result<S, String>,
        parse: impl FnOnce(&S) -> Result<M, Unusable>,
    ) -> Change {
        self.last = Some(now);
        self.due = Some(now + self.interval);
        let source = match reading {
            Ok(source) => source,
            Err(reason) => return self.fail(now, Unusable::new(reason)),
        };
        // Bytes are compared before they are parsed: files are read far more often than they change.
        if self.good.as_ref().is_some_and(|(known, _)| *known == source) {
            return if self.failure.take().is_some() { Change::Mended } else { Change::None };
        }
        match parsed(|| parse(&source)) {
            Ok(material) => {
                self.good = Some((source, Arc::new(material)));
                self.failure = None;
                Change::Material
            }
            Err(unusable) => self.fail(now, unusable),
        }
    }

    /// Handles a failed reading.
    fn fail(&mut self, now: Instant, unusable: Unusable) -> Change {
        let known = self.failure.take();
        let retried = known.as_ref().is_some_and(|failure| failure.retried);
        // CH7.6: the second file of a rotation is likely to follow in a moment. One early reading is enough; a file that stays
        // incomplete must not be read each second.
        if unusable.incomplete && !retried {
            self.due = Some(now + RETRY.min(self.interval));
        }
        let reason = unusable.reason.into();
        self.failure = Some(Failure { reason, retried: retried || unusable.incomplete });
        if known.is_some() { Change::StillFailed } else { Change::Failed }
    }
}

/// Whether a reading is due, which `None` is at once.
pub(super) fn is_due(due: Option<Instant>, now: Instant) -> bool {
    due.is_none_or(|due| due <= now)
}

/// The time until half a rotation is looked at again, and between readings that handshakes wait for.
const RETRY: Duration = Duration::from_secs(1);
/// The shortest time between readings.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
