use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{super::store::Type, Settings};
use crate::config::bounded;

/// When the resources of a type that have a time to live are confirmed on one stream.
///
/// There is a beat for each time to live, not for each resource: at every beat all resources with it are confirmed.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulse {
    first: Option<Instant>,
    now: Option<Instant>,
    confirmed: u32,
    beats: BTreeMap<Duration, Beat>,
}

#[derive(Debug, Clone)]
struct Beat {
    next: Instant,
    /// The last time that clients heard of all the resources; before the first beat, when it was begun to look.
    confirmed: Instant,
    due: bool,
}

/// What is due of the resources with a time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confirm {
    /// They are told to be as they were.
    Heartbeat,
    /// The client may have dropped them meanwhile, so that they must be sent again.
    Again,
}

impl Pulse {
    /// Takes note of the time. Returns when the next beat is.
    pub(super) fn handle_time(&mut self, now: Instant, of_type: &Type) -> Option<Instant> {
        self.first.get_or_insert(now);
        self.now = Some(now);
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

    /// Whether no time has passed since the client came.
    pub(super) fn is_fresh(&self) -> bool {
        self.first == self.now
    }

    /// How many times its time to live the next heartbeat gives a resource; see
    /// [`heartbeats_change_ttl`](super::Behavior::heartbeats_change_ttl).
    pub(super) fn factor(&mut self, settings: &Settings) -> u32 {
        self.confirmed = self.confirmed.wrapping_add(1);
        if settings.behavior.heartbeats_change_ttl { 1 + self.confirmed % 2 } else { 1 }
    }

    /// What is due, each time to live once; it is taken as said. `blindly`, nothing counts as late.
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

/// How often a resource is confirmed within its time to live.
const BEATS: u32 = 3;
/// A bound on what very short times to live cost.
const SHORTEST: Duration = Duration::from_millis(1);
