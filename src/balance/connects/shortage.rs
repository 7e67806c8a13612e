//! Attempts to connect while file descriptors are lacking.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::waiting::Urgency;
use crate::balance::command::LeafIndex;

/// The lack of file descriptors.
///
/// Whatever is attempted then takes the descriptor that becomes free next, from endpoints that need it more: a cluster with many
/// endpoints, all of which try again and again, would leave none to another one with a single endpoint. So attempts are few, and those of
/// clusters without any connection go first, as long as any of these has failed for that reason.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// Some time after the last attempt that failed for that reason.
    ends_at: Option<Instant>,
    /// When each cluster may begin its next attempt.
    next_at: BTreeMap<LeafIndex, Instant>,
    /// Clusters without connections that lack a descriptor, with the time until which others wait for them.
    deprived: BTreeMap<LeafIndex, Instant>,
}

impl Shortage {
    /// An attempt of a cluster failed since there was no descriptor.
    pub(super) fn on_failed(&mut self, urgency: Urgency, leaf: LeafIndex, now: Instant) {
        self.ends_at = Some(now + LASTS);
        self.next_at.insert(leaf, now + PACE);
        if is_needed(urgency) {
            self.deprived.insert(leaf, now + LASTS);
        }
    }

    /// An attempt of a cluster begins.
    pub(super) fn on_begin(&mut self, leaf: LeafIndex, now: Instant) {
        if self.ends_at.is_some() {
            self.next_at.insert(leaf, now + PACE);
        }
    }

    /// A cluster has a connection.
    pub(super) fn on_connected(&mut self, leaf: LeafIndex) {
        self.deprived.remove(&leaf);
    }

    /// Whether a cluster may begin an attempt.
    pub(super) fn permits(&self, urgency: Urgency, leaf: LeafIndex, now: Instant) -> bool {
        let is_paced = self.next_at.get(&leaf).is_some_and(|at| *at > now);
        let is_passed_over =
            // Ordinary attempts wait only for clusters that have failed for lack of a descriptor.
            !is_needed(urgency) && !self.deprived.contains_key(&leaf) && !self.deprived.is_empty();
        self.ends_at.is_none() || !(is_paced || is_passed_over)
    }

    /// Takes note of the time.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.ends_at.is_some_and(|at| at <= now) {
            *self = Self::default();
        }
        self.next_at.retain(|_, at| *at > now);
        self.deprived.retain(|_, at| *at > now);
    }

    /// When more attempts may be permitted than now.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let times = self.next_at.values().chain(self.deprived.values());
        times.copied().chain(self.ends_at).min()
    }
}

/// Whether a call waits for the attempt, or its cluster has no connection.
fn is_needed(urgency: Urgency) -> bool {
    match urgency {
        Urgency::Requested | Urgency::Unserved => true,
        Urgency::Ordinary | Urgency::Silent | Urgency::Replacement => false,
    }
}

/// How long descriptors count as lacking after an attempt that has failed for that reason; longer than the delay to the next one, which
/// is 1.2 s at most.
const LASTS: Duration = Duration::from_secs(2);
/// The time between two attempts of a cluster.
const PACE: Duration = Duration::from_secs(1);
