//! The load of one cluster, as it is reported to one server.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::debug;

use super::{
    counters::{Calls, Counters, DropCounter, is_live},
    departed::DepartedDrops,
    destination::ReportKey,
    encode::{self, Encoder, Terms},
    endpoint_metadata::{Assignment, EndpointMetadata},
    locality_loads::LocalityLoads,
    metrics::MetricSums,
    stats::{LoadStats, LocalityStats},
};
use crate::{config::Locality, escape::Escaped};

/// The load of a key: what its handles count, and what ended handles have left.
///
/// ```text
///            take             on_written
///   counted ──────▶ in a report ──────▶ reported
///      ▲                │
///      └────────────────┘ the stream ended before: the next `take` covers it as well
/// ```
#[derive(Debug, Default)]
pub(super) struct KeyLoads {
    /// Since when the next report counts; set when the driver first looks at it (LR4.6).
    since: Option<Instant>,
    /// When the report in progress was taken; `None` if there is none.
    taken_at: Option<Instant>,
    /// Localities with handles or with something to report.
    localities: BTreeMap<Locality, LocalityLoads>,
    /// Dropped calls by category; `None` is the key of drops without a category.
    drops: BTreeMap<Option<Arc<str>>, Drops>,
    /// The last report was of the activity, so that one of zeros follows it (LR4.8).
    is_closing_due: bool,
    /// Whether the report in progress has activity.
    takes_activity: bool,
    /// The endpoints that the cluster has by EDS, for their metadata.
    assignment: Assignment,
    /// How many counters were listed since departed ones were last removed.
    listed: usize,
    /// The number of listed counters at which departed ones are removed.
    /// 0 at first, so that the first listing sets it.
    sweep_at: usize,
}

/// The dropped calls of a category.
#[derive(Debug, Default)]
struct Drops {
    counters: Vec<Arc<DropCounter>>,
    /// Drops that the report in progress covers.
    taken: u64,
    /// Drops of counters that no handle has.
    departed: DepartedDrops,
}

impl KeyLoads {
    /// Puts the counters of a locality handle into reports.
    pub(super) fn list_locality(&mut self, locality: &Locality, counters: Arc<Counters>) {
        self.locality(locality).list(counters);
    }

    /// Puts the counters of an endpoint handle into reports.
    pub(super) fn list_endpoint(
        &mut self,
        locality: &Locality,
        address: SocketAddr,
        counters: Arc<Counters>,
    ) {
        self.locality(locality).list_endpoint(address, counters);
    }

    /// Puts the counter of a drop category into reports.
    pub(super) fn list_drops(&mut self, category: Option<&Arc<str>>, counter: Arc<DropCounter>) {
        let counters = &mut self.drops.entry(category.cloned()).or_default().counters;
        if !counters.iter().any(|known| Arc::ptr_eq(known, &counter)) {
            counter.on_listed();
            counters.push(counter);
        }
    }

    /// Sets the endpoints whose metadata is reported.
    pub(super) fn set_assignment(&mut self, assignment: &Assignment) {
        self.assignment = assignment.clone();
    }

    /// Returns the loads of a locality, made if there are none.
    fn locality(&mut self, locality: &Locality) -> &mut LocalityLoads {
        self.localities.entry(locality.clone()).or_insert_with(|| LocalityLoads::new(locality))
    }

    /// The number of localities and endpoints, as a measure of the work.
    pub(super) fn len(&self) -> usize {
        self.localities.values().map(LocalityLoads::len).sum()
    }

    /// The number of drop categories, and the counters of each but its first.
    #[cfg(test)]
    pub(super) fn categories(&self) -> usize {
        self.drops
            .iter()
            .filter_map(|(category, drops)| category.as_ref().map(|_| drops.counters.len().max(1)))
            .sum()
    }

    /// Begins the first interval.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Returns the begin of the interval in progress; `None` before [`begin`](Self::begin).
    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether a handle counts.
    pub(super) fn is_live(&self) -> bool {
        self.drops.values().any(Drops::is_live) || self.localities.values().any(LocalityLoads::is_live)
    }

    /// Whether a call is in progress.
    pub(super) fn has_calls(&self) -> bool {
        self.localities.values().any(LocalityLoads::has_calls)
    }

    /// Writes a report of what was not reported; `None` if there is nothing to say (LR4.8).
    pub(super) fn take<'a>(
        &mut self,
        key: &ReportKey,
        terms: Terms,
        encoder: &'a mut Encoder,
    ) -> Option<&'a [u8]> {
        // No short-circuit: each counter has to be taken, whether or not others have activity already.
        self.takes_activity = self.drops.values_mut().map(Drops::take).sum::<u64>() > 0;
        for locality in self.localities.values_mut() {
            self.takes_activity |= locality.take();
        }
        let has_report = self.takes_activity || self.is_closing_due;
        // Without a report the interval goes on, so that the next report covers the time of all that it counts.
        self.taken_at = has_report.then_some(terms.now);
        if !has_report {
            return None;
        }
        let assignment = terms.has_endpoints.then(|| self.assignment.get()).flatten();
        let metadata = assignment.as_deref().and_then(EndpointMetadata::of);
        self.encode(key, &terms, metadata.as_ref(), encoder);
        if metadata.is_some() && encoder.cluster().len() > terms.max_size {
            // Counts must arrive, and metadata of some endpoints alone would look like the absence of the others'.
            debug!(cluster = %Escaped(&key.cluster), "the metadata of endpoints is too large for a load report, and left out");
            self.encode(key, &terms, None, encoder);
        }
        Some(encoder.cluster())
    }

    /// Writes the report that was taken.
    fn encode(
        &self,
        key: &ReportKey,
        terms: &Terms,
        metadata: Option<&EndpointMetadata<'_>>,
        encoder: &mut Encoder,
    ) {
        encoder.begin_cluster(&key.cluster);
        for (at, locality) in &self.localities {
            // The zeros of the localities of the last report end its activity.
            let is_closed = !self.takes_activity && locality.was_reported;
            if is_closed || locality.has_activity {
                locality.encode(terms, metadata.map(|all| (at, all)), encoder);
            }
        }
        encoder.set_dropped(self.drops.values().map(|drops| drops.taken).sum());
        for (category, drops) in &self.drops {
            if let Some(category) = category.as_ref().filter(|_| drops.taken > 0) {
                encoder.add_drops(category, drops.taken);
            }
        }
        // A key that was listed since the driver last looked has no beginning yet.
        let interval = self.since.map_or(Duration::ZERO, |since| terms.now.saturating_duration_since(since));
        encoder.end_cluster(interval, key.service.as_deref());
    }

    /// The report of the last [`take`](Self::take) was written, if there was one. Returns the number of values of metrics that it does
    /// not have, since there were too many names.
    pub(super) fn on_written(&mut self) -> u64 {
        let Some(taken_at) = self.taken_at.take() else { return 0 };
        let (mut dropped, mut has_ended) = (0, false);
        for drops in self.drops.values_mut() {
            drops.departed.on_written();
            drops.counters.iter().for_each(|counter| counter.on_written());
            has_ended |= drops.has_ended();
        }
        for locality in self.localities.values_mut() {
            dropped += locality.on_written();
            has_ended |= locality.has_ended();
        }
        // LR4.8: one report of zeros follows, so that a server that keeps the last report does not take the load for present.
        self.is_closing_due = self.takes_activity;
        self.since = Some(taken_at);
        if has_ended {
            self.remove_ended();
        }
        dropped
    }

    /// The server does not want to know of it: nothing of it is reported later (LR6.2).
    pub(super) fn discard(&mut self, now: Instant) {
        for drops in self.drops.values_mut() {
            drops.departed = DepartedDrops::default();
            drops.counters.iter().for_each(|counter| counter.discard());
        }
        self.localities.values_mut().for_each(LocalityLoads::discard);
        self.is_closing_due = false;
        // A server that names the cluster later gets neither these counts nor their time.
        (self.since, self.taken_at) = (Some(now), None);
        self.forget_ended();
    }

    /// Removes the counters that no handle counts with any more and that have nothing to report.
    pub(super) fn forget_ended(&mut self) {
        if !self.has_no_ended() {
            self.remove_ended();
        }
    }

    /// Removes counters without a handle and without anything to report, and what is empty after that.
    fn remove_ended(&mut self) {
        self.drops.retain(|_, drops| {
            drops.counters.retain(|counter| is_live(counter) || counter.unreported() > 0);
            !drops.is_empty()
        });
        self.localities.retain(|_, locality| {
            locality.remove_ended();
            !locality.is_empty()
        });
    }

    /// Bounds what departed handles have left (LR6.6): beyond the limit, endpoints and handles have no counters of their own, drop
    /// categories are none, and localities are dropped; their number is returned. It is looked at after as many listed counters as
    /// there were the last time, so that listing many costs as much each as listing few.
    pub(super) fn bound_departed(&mut self, limit: usize) -> u64 {
        self.listed += 1;
        if self.listed < self.sweep_at {
            return 0;
        }
        // First, so that what has nothing to report does not count towards the limit.
        self.remove_ended();
        if self.localities.values().map(LocalityLoads::departed).sum::<usize>() > limit {
            self.localities.values_mut().for_each(LocalityLoads::fold_departed);
        }
        // By the order of names: when a handle departed is not known any more.
        let departed = self.localities.iter().filter(|(_, locality)| locality.is_departed());
        let excess: Vec<_> = departed.skip(limit).map(|(at, _)| at.clone()).collect();
        excess.iter().for_each(|at| drop(self.localities.remove(at)));
        self.drops.values_mut().for_each(Drops::fold_departed);
        self.fold_departed_categories(limit);
        self.listed = 0;
        self.sweep_at = (self.len() + self.drops.len()).max(SMALL);
        excess.len() as u64
    }

    /// The drops of departed categories beyond the limit are of none.
    fn fold_departed_categories(&mut self, limit: usize) {
        let departed =
            self.drops.iter().filter(|(category, drops)| category.is_some() && drops.counters.is_empty());
        let excess: Vec<_> = departed.skip(limit).map(|(category, _)| category.clone()).collect();
        for category in excess {
            let departed = self.drops.remove(&category).map(|drops| drops.departed).unwrap_or_default();
            self.drops.entry(None).or_default().departed.append(departed);
        }
    }

    /// Whether a handle counts with all of the counters, as usual.
    fn has_no_ended(&self) -> bool {
        !self.drops.values().any(Drops::has_ended) && !self.localities.values().any(LocalityLoads::has_ended)
    }

    /// Whether there is neither a handle nor anything to report.
    pub(super) fn is_empty(&self) -> bool {
        self.drops.is_empty() && self.localities.is_empty()
    }

    /// Returns the next report as it would be now, without taking it.
    pub(super) fn stats(&self) -> LoadStats {
        let mut stats = LoadStats::default();
        for (category, drops) in &self.drops {
            let count: u64 = drops.counters.iter().map(|counter| counter.unreported()).sum();
            let count = count + drops.departed.unreported();
            stats.dropped += count;
            if let Some(category) = category.as_ref().filter(|_| count > 0) {
                stats.dropped_by_category.insert(category.to_string(), count);
            }
        }
        for (locality, loads) in &self.localities {
            let (calls, metrics) = loads.unreported();
            if !calls.is_zero() || !metrics.is_zero() {
                stats.localities.insert(locality.clone(), LocalityStats::new(&calls, metrics));
            }
        }
        stats
    }
}

impl Drops {
    /// Takes the drops for a report.
    fn take(&mut self) -> u64 {
        let counted: u64 = self.counters.iter().map(|counter| counter.take()).sum();
        self.taken = counted + self.departed.take();
        self.taken
    }

    /// Whether there is neither a counter nor anything to report.
    fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.departed.unreported() == 0
    }

    /// Counts as a number what counters without a handle have left.
    fn fold_departed(&mut self) {
        for counter in self.counters.extract_if(.., |counter| !is_live(counter)) {
            self.departed.add(&counter);
        }
    }

    /// Whether a handle counts.
    fn is_live(&self) -> bool {
        self.counters.iter().any(is_live)
    }

    /// Whether a part of it is without a handle.
    fn has_ended(&self) -> bool {
        self.counters.is_empty() || !self.counters.iter().all(is_live)
    }
}

impl LocalityStats {
    /// Converts counts for applications, with the names of metrics as `lrs_report_endpoint_metrics` has them.
    fn new(calls: &Calls, metrics: MetricSums) -> Self {
        let utilizations = [
            ("cpu_utilization", metrics.cpu),
            ("mem_utilization", metrics.mem),
            ("application_utilization", metrics.application),
        ];
        let utilizations = utilizations.into_iter().filter(|(_, sum)| !sum.is_zero());
        let utilizations = utilizations.map(|(name, sum)| (name.to_owned(), sum));
        let named = metrics.named.into_iter().map(|(name, sum)| (format!("{}{name}", encode::NAMED), sum));
        Self {
            issued: calls.issued,
            succeeded: calls.succeeded,
            failed: calls.failed,
            in_progress: calls.in_progress,
            metrics: utilizations.chain(named).collect(),
        }
    }
}

/// So few listed counters are not worth a sweep.
const SMALL: usize = 64;
