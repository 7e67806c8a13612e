//! The heartbeats of resources with a time to live.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{super::store::Type, Settings};
use crate::config::bounded;

/// The times of the heartbeats of a type's resources on one stream.
///
/// There is one timer for each time to live, not for each resource: it confirms all resources with this time to live
/// together.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse {
    /// The first known time of the stream.
    first: Option<Instant>,
    /// The last known time.
    now: Option<Instant>,
    /// The number of heartbeats so far.
    confirmed: u32,
    /// The timers, by time to live.
    beats: BTreeMap<Duration, Beat>,
}

/// The timer of a time to live.
#[derive(Debug, Clone)]
struct Beat {
    /// The time of the next heartbeats.
    next: Instant,
    /// The last time at which all the resources were confirmed; before the first time, the beginning of the timer.
    confirmed: Instant,
    /// Whether heartbeats are due.
    due: bool,
}

/// The way in which resources with a time to live are confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirm {
    /// A heartbeat, which has no resource.
    Heartbeat,
    /// The resource itself, since the client may have dropped it in the meantime.
    Again,
}

impl Pulse {
    /// Updates the time. Returns the time of the next heartbeat.
    pub(super) fn handle_time(&mut self, now: Instant, of_type: &Type) -> Option<Instant> {
        self.first.get_or_insert(now);
        self.now = Some(now);
        // Times to live that no resource has any more are left behind, with their beats.
        let mut beats = std::mem::take(&mut self.beats);
        for ttl in of_type.ttls() {
            let period = bounded(ttl / BEATS).max(SHORTEST);
            let mut beat =
                beats.remove(&ttl).unwrap_or(Beat { next: now + period, confirmed: now, due: false });
            if beat.next <= now {
                beat.due = true;
                beat.next = now + period;
            }
            self.beats.insert(ttl, beat);
        }
        self.beats.values().map(|beat| beat.next).min()
    }

    /// Whether no time has passed since the client connected.
    pub(super) fn is_fresh(&self) -> bool {
        self.first == self.now
    }

    /// The factor for the time to live in the next heartbeat; see
    /// [`heartbeats_change_ttl`](super::Behavior::heartbeats_change_ttl).
    pub(super) fn factor(&mut self, settings: &Settings) -> u32 {
        self.confirmed = self.confirmed.wrapping_add(1);
        if settings.behavior.heartbeats_change_ttl { 1 + self.confirmed % 2 } else { 1 }
    }

    /// Returns the times to live whose resources are due, which then count as confirmed. With `blindly`, none is
    /// treated as expired.
    pub(super) fn take_due(&mut self, blindly: bool) -> Vec<(Duration, Confirm)> {
        let Some(now) = self.now else { return Vec::new() };
        let due = self.beats.iter_mut().filter(|(_, beat)| beat.due);
        due.map(|(ttl, beat)| {
            let late = !blindly && now.saturating_duration_since(beat.confirmed) >= *ttl;
            (beat.due, beat.confirmed) = (false, now);
            (*ttl, if late { Confirm::Again } else { Confirm::Heartbeat })
        })
        .collect()
    }
}

/// The number of heartbeats within a time to live.
const BEATS: u32 = 3;
/// The minimum interval, which bounds the cost of very short times to live.
const SHORTEST: Duration = Duration::from_millis(1);
