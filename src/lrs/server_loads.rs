//! The loads that are reported to one server.

use std::{
    collections::BTreeMap,
    mem,
    ops::{Bound, RangeInclusive},
    sync::Arc,
    time::Instant,
};

use bytes::{Bytes, BytesMut};

use super::{
    destination::ReportKey,
    encode::{self, Encoder, Terms},
    endpoint_metadata::Assignment,
    key_loads::KeyLoads,
    response::Order,
    settings::LoadSettings,
    stats::LoadStats,
};
use crate::config::Server;

/// The loads of the clusters that are reported to a server, or may be.
#[derive(Debug)]
pub(super) struct ServerLoads {
    pub(super) server: Arc<Server>,
    /// Loads by key. The order is that of the reports, and of the slices that they are built in.
    keys: BTreeMap<ReportKey, KeyLoads>,
    /// The buffer for the report of one key.
    encoder: Encoder,
    /// The keys that were dropped without a report (LR6.6).
    dropped_residues: u64,
    /// The values of metrics with names beyond the limit (LR8.7).
    dropped_metrics: u64,
}

/// A request with the reports of some keys.
#[derive(Debug)]
pub(super) struct Part {
    /// The request, encoded.
    pub(super) message: Bytes,
    /// The first and the last key in it.
    range: RangeInclusive<ReportKey>,
    /// The number of keys in it.
    len: usize,
}

/// A request that reports are put into.
#[derive(Debug, Default)]
struct PartBuilder<'a> {
    /// The encoded request so far.
    message: BytesMut,
    /// The first and the last key of the request so far.
    range: Option<(&'a ReportKey, &'a ReportKey)>,
    /// The number of keys in the request so far.
    len: usize,
}

/// The reports of some keys, built at once, so that the lock is held for a bounded time.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// The requests, of limited size each.
    pub(super) parts: Vec<Part>,
    /// The key after which the next slice begins; `None` at the end.
    pub(super) last: Option<ReportKey>,
}

impl ServerLoads {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            keys: BTreeMap::new(),
            encoder: Encoder::default(),
            dropped_residues: 0,
            dropped_metrics: 0,
        }
    }

    /// Returns the number of localities and endpoints with counters.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.keys.values().map(KeyLoads::len).sum()
    }

    /// Returns the loads of a key, made if there are none.
    pub(super) fn key(&mut self, key: &ReportKey) -> &mut KeyLoads {
        self.keys.entry(key.clone()).or_default()
    }

    /// Bounds what departed handles of a key have left, after something was listed (LR6.6).
    pub(super) fn bound_departed(&mut self, key: &ReportKey, limit: usize) {
        if let Some(loads) = self.keys.get_mut(key) {
            self.dropped_residues += loads.bound_departed(limit);
        }
    }

    /// The endpoints of a cluster have changed. A key without handles has no use for them.
    pub(super) fn set_assignment(&mut self, key: &ReportKey, assignment: &Assignment) {
        if let Some(loads) = self.keys.get_mut(key) {
            loads.set_assignment(assignment);
        }
    }

    /// Whether there is a handle, or a call in progress.
    pub(super) fn is_used(&self) -> bool {
        self.is_live() || self.keys.values().any(KeyLoads::has_calls)
    }

    /// Whether there is a handle.
    pub(super) fn is_live(&self) -> bool {
        self.keys.values().any(KeyLoads::is_live)
    }

    /// The number of localities, endpoints and drop categories that have counters, or have left any.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.keys.values().map(|loads| loads.len() + loads.categories()).sum()
    }

    /// Returns how many keys and localities were dropped without a report.
    pub(super) fn dropped_residues(&self) -> u64 {
        self.dropped_residues
    }

    /// Returns how many values of metrics were dropped.
    pub(super) fn dropped_metrics(&self) -> u64 {
        self.dropped_metrics
    }

    /// Returns the next report of a key as it would be now.
    pub(super) fn stats(&self, key: &ReportKey) -> Option<LoadStats> {
        Some(self.keys.get(key)?.stats())
    }

    /// Builds the reports of some keys, as many as a slice has localities and endpoints (LR7.3). Those that are not wanted are discarded (LR6.2).
    pub(super) fn take(
        &mut self,
        after: Option<&ReportKey>,
        order: &Order,
        now: Instant,
        settings: &LoadSettings,
    ) -> Slice {
        let Self { keys, encoder, .. } = self;
        let (mut slice, mut part) = (Slice::default(), PartBuilder::default());
        let mut budget = settings.slice;
        let max_size = settings.max_request_size.saturating_sub(OVERHEAD);
        let terms = Terms { now, has_endpoints: order.has_endpoints, max_size };
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut emptied = Vec::new();
        for (key, loads) in keys.range_mut::<ReportKey, _>((begin, Bound::Unbounded)) {
            // At least 1 for each key, so that many keys without localities do not make a slice of any length.
            budget = budget.saturating_sub(loads.len() + 1);
            if !order.wants(&key.cluster) {
                loads.discard(now);
            } else if let Some(report) = loads.take(key, terms, encoder) {
                // A key that is larger than the limit goes alone (LR4.10).
                if part.message.len() + report.len() + OVERHEAD > settings.max_request_size {
                    slice.parts.extend(part.finish());
                }
                part.add(key, report);
            } else {
                loads.forget_ended();
            }
            if loads.is_empty() {
                emptied.push(key.clone());
            }
            if budget == 0 {
                slice.last = Some(key.clone());
                break;
            }
        }
        slice.parts.extend(part.finish());
        emptied.iter().for_each(|key| drop(self.keys.remove(key)));
        slice
    }

    /// The reports of a request were written: accepted by the transport (LR6.7).
    pub(super) fn on_written(&mut self, part: &Part) {
        let mut emptied = Vec::new();
        // Keys in between that are not in the request have no report in progress.
        for (key, loads) in self.keys.range_mut(part.range.clone()) {
            self.dropped_metrics += loads.on_written();
            if loads.is_empty() {
                emptied.push(key.clone());
            }
        }
        emptied.iter().for_each(|key| drop(self.keys.remove(key)));
    }

    /// Begins the intervals of new keys, and forgets what is over.
    pub(super) fn sweep(&mut self, max_residues: usize, now: Instant) {
        self.keys.retain(|_, loads| {
            loads.begin(now);
            loads.forget_ended();
            !loads.is_empty()
        });
        if self.keys.len() <= max_residues {
            return;
        }
        let residues = self.keys.iter().filter(|(_, loads)| !loads.is_live());
        let mut oldest: Vec<_> = residues.map(|(key, loads)| (loads.since(), key.clone())).collect();
        let excess = oldest.len().saturating_sub(max_residues);
        // By the begin of their interval: those that have waited longest are the least likely to be reported still.
        oldest.sort();
        for (_, key) in &oldest[..excess] {
            self.keys.remove(key);
            self.dropped_residues += 1;
        }
    }
}

impl Part {
    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl<'a> PartBuilder<'a> {
    /// Appends the report of a key, which is behind all others of the request.
    fn add(&mut self, key: &'a ReportKey, report: &[u8]) {
        encode::put_cluster(report, &mut self.message);
        self.range = Some((self.range.map_or(key, |(first, _)| first), key));
        self.len += 1;
    }

    /// The request; `None` if there is no report for it. Reports that follow go into another one.
    fn finish(&mut self) -> Option<Part> {
        let Self { message, range, len } = mem::take(self);
        let (first, last) = range?;
        Some(Part { message: message.freeze(), range: first.clone()..=last.clone(), len })
    }
}

/// The bytes around a report in its request.
/// The key of the field, and a length of up to five bytes.
const OVERHEAD: usize = 6;
