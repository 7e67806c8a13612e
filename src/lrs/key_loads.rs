//! The load of one cluster, as it is reported to one server.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::debug;

use super::{
    counters::{Calls, Count, Counters, DropCounter},
    destination::Key,
    encode::{self, Encoder, EndpointStats},
    endpoint_metadata::{Assignment, EndpointMetadata},
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
    localities: BTreeMap<Locality, LocalityLoads>,
    /// By category; those without one under `None`.
    drops: BTreeMap<Option<Arc<str>>, Drops>,
    /// The last report was of the activity, so that one of zeros follows it (LR4.8).
    is_closing_due: bool,
    /// Whether the report in progress has activity.
    takes_activity: bool,
    /// The endpoints that the cluster has by EDS, for their metadata.
    assignment: Assignment,
}

/// How a report is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) now: Instant,
    /// The server asks for the counts of endpoints (LR3.7).
    pub(super) has_endpoints: bool,
    /// The size in bytes above which a report has no metadata.
    pub(super) max_size: usize,
}

#[derive(Debug)]
struct LocalityLoads {
    /// The encoded locality.
    head: Box<[u8]>,
    own: Counted,
    endpoints: BTreeMap<SocketAddr, EndpointLoads>,
    /// There was something but zeros when a report was last taken.
    has_activity: bool,
    /// It was in the last report.
    was_reported: bool,
}

#[derive(Debug)]
struct EndpointLoads {
    /// The encoded address.
    head: Box<[u8]>,
    own: Counted,
}

/// The counters of all handles of a locality or an endpoint.
#[derive(Debug, Default)]
struct Counted {
    counters: Vec<Arc<Counters>>,
    taken: Calls,
    /// The metrics that no written report has covered, but for those still in the counters. Few localities have any.
    metrics: Option<Box<MetricSums>>,
}

#[derive(Debug, Default)]
struct Drops {
    counters: Vec<Arc<DropCounter>>,
    taken: u64,
}

impl KeyLoads {
    pub(super) fn list_locality(&mut self, locality: &Locality, counters: Arc<Counters>) {
        self.locality(locality).own.list(counters);
    }

    pub(super) fn list_endpoint(
        &mut self,
        (locality, address): (&Locality, SocketAddr),
        counters: Arc<Counters>,
    ) {
        let endpoints = &mut self.locality(locality).endpoints;
        let new = || EndpointLoads { head: encode::endpoint_head(address), own: Counted::default() };
        endpoints.entry(address).or_insert_with(new).own.list(counters);
    }

    pub(super) fn list_drops(&mut self, category: Option<&Arc<str>>, counter: Arc<DropCounter>) {
        let counters = &mut self.drops.entry(category.cloned()).or_default().counters;
        if !counters.iter().any(|known| Arc::ptr_eq(known, &counter)) {
            counter.on_listed();
            counters.push(counter);
        }
    }

    pub(super) fn set_assignment(&mut self, assignment: &Assignment) {
        self.assignment = assignment.clone();
    }

    fn locality(&mut self, locality: &Locality) -> &mut LocalityLoads {
        self.localities.entry(locality.clone()).or_insert_with(|| LocalityLoads::new(locality))
    }

    /// The number of localities and endpoints, as a measure of the work.
    pub(super) fn len(&self) -> usize {
        self.localities.values().map(|locality| 1 + locality.endpoints.len()).sum()
    }

    /// Begins the first interval.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    pub(super) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether a handle counts.
    pub(super) fn is_live(&self) -> bool {
        self.drops.values().any(Drops::is_live) || self.localities.values().any(LocalityLoads::is_live)
    }

    /// Whether a call is in progress.
    pub(super) fn has_calls(&self) -> bool {
        self.localities.values().any(|locality| locality.counted().any(Counted::has_calls))
    }

    /// Writes a report of what was not reported; `None` if there is nothing to say (LR4.8).
    pub(super) fn take<'a>(&mut self, key: &Key, terms: Terms, encoder: &'a mut Encoder) -> Option<&'a [u8]> {
        self.takes_activity = self.drops.values_mut().map(Drops::take).sum::<u64>() > 0;
        for locality in self.localities.values_mut() {
            self.takes_activity |= locality.take();
        }
        let has_report = self.takes_activity || self.is_closing_due;
        self.taken_at = has_report.then_some(terms.now);
        if !has_report {
            return None;
        }
        let assignment = terms.has_endpoints.then(|| self.assignment.get()).flatten();
        let metadata = assignment.as_deref().and_then(EndpointMetadata::of);
        self.encode(key, &terms, metadata.as_ref(), encoder);
        if metadata.is_some() && encoder.cluster().len() > terms.max_size {
            // Counts must arrive, and metadata of some endpoints alone would look like the absence of the others'.
            debug!(cluster = %Escaped(&key.0), "the metadata of endpoints is too large for a load report, and left out");
            self.encode(key, &terms, None, encoder);
        }
        Some(encoder.cluster())
    }

    /// Writes the report that was taken.
    fn encode(
        &self,
        (name, service): &Key,
        terms: &Terms,
        metadata: Option<&EndpointMetadata<'_>>,
        encoder: &mut Encoder,
    ) {
        encoder.begin_cluster(name);
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
        let interval = self.since.map_or(Duration::ZERO, |since| terms.now.saturating_duration_since(since));
        encoder.end_cluster(interval, service.as_deref());
    }

    /// The report of the last [`take`](Self::take) was written, if there was one. Returns the number of values of metrics that it does
    /// not have, since there were too many names.
    pub(super) fn on_written(&mut self) -> u64 {
        let Some(taken_at) = self.taken_at.take() else { return 0 };
        let (mut dropped, mut has_ended) = (0, false);
        for counter in self.drops.values().flat_map(|drops| &drops.counters) {
            counter.on_written();
            has_ended |= !is_live(counter);
        }
        for locality in self.localities.values_mut() {
            locality.was_reported = locality.has_activity;
            for counted in locality.counted_mut() {
                dropped += counted.on_written();
                has_ended |= !counted.is_live_or_none();
            }
        }
        self.is_closing_due = self.takes_activity;
        self.since = Some(taken_at);
        if has_ended {
            self.remove_ended();
        }
        dropped
    }

    /// The server does not want to know of it: nothing of it is reported later (LR6.2).
    pub(super) fn discard(&mut self, now: Instant) {
        self.drops.values().flat_map(|drops| &drops.counters).for_each(|counter| counter.discard());
        for locality in self.localities.values_mut() {
            locality.was_reported = false;
            locality.counted_mut().for_each(Counted::discard);
        }
        self.is_closing_due = false;
        (self.since, self.taken_at) = (Some(now), None);
        self.forget_ended();
    }

    /// Removes the counters that no handle counts with any more and that have nothing to report.
    pub(super) fn forget_ended(&mut self) {
        if !self.has_no_ended() {
            self.remove_ended();
        }
    }

    fn remove_ended(&mut self) {
        self.drops.retain(|_, drops| {
            drops.counters.retain(|counter| is_live(counter) || counter.unreported() > 0);
            !drops.counters.is_empty()
        });
        self.localities.retain(|_, locality| {
            locality.own.forget_ended();
            locality.endpoints.retain(|_, endpoint| {
                endpoint.own.forget_ended();
                !endpoint.own.is_empty()
            });
            !locality.own.is_empty() || !locality.endpoints.is_empty()
        });
    }

    /// Whether a handle counts with all of the counters, as usual.
    fn has_no_ended(&self) -> bool {
        let mut counted = self.localities.values().flat_map(LocalityLoads::counted);
        let mut drops = self.drops.values().flat_map(|drops| &drops.counters);
        drops.all(is_live) && counted.all(Counted::is_live_or_none)
    }

    /// Whether there is neither a handle nor anything to report.
    pub(super) fn is_empty(&self) -> bool {
        self.drops.is_empty() && self.localities.is_empty()
    }

    pub(super) fn stats(&self) -> LoadStats {
        let mut stats = LoadStats::default();
        for (category, drops) in &self.drops {
            let count: u64 = drops.counters.iter().map(|counter| counter.unreported()).sum();
            stats.dropped += count;
            if let Some(category) = category.as_ref().filter(|_| count > 0) {
                stats.dropped_by_category.insert(category.to_string(), count);
            }
        }
        for (locality, loads) in &self.localities {
            let (mut calls, mut metrics) = (Calls::default(), MetricSums::default());
            for counted in loads.counted() {
                counted.counters.iter().for_each(|counters| calls.add(counters.unreported()));
                counted.metrics.iter().for_each(|sums| metrics.append((**sums).clone(), usize::MAX));
                counted.counters.iter().for_each(|counters| counters.copy_metrics(&mut metrics));
            }
            if !calls.is_zero() || !metrics.is_zero() {
                stats.localities.insert(locality.clone(), LocalityStats::new(&calls, metrics));
            }
        }
        stats
    }
}

impl LocalityLoads {
    fn new(locality: &Locality) -> Self {
        Self {
            head: encode::locality_head(locality),
            own: Counted::default(),
            endpoints: BTreeMap::new(),
            has_activity: false,
            was_reported: false,
        }
    }

    fn counted(&self) -> impl Iterator<Item = &Counted> {
        [&self.own].into_iter().chain(self.endpoints.values().map(|endpoint| &endpoint.own))
    }

    fn counted_mut(&mut self) -> impl Iterator<Item = &mut Counted> {
        [&mut self.own].into_iter().chain(self.endpoints.values_mut().map(|endpoint| &mut endpoint.own))
    }

    fn is_live(&self) -> bool {
        self.counted().flat_map(|counted| &counted.counters).any(is_live)
    }

    /// Whether there is something but zeros to report.
    fn take(&mut self) -> bool {
        self.has_activity = self.own.take();
        for endpoint in self.endpoints.values_mut() {
            self.has_activity |= endpoint.own.take();
        }
        self.has_activity
    }

    fn encode(
        &self,
        terms: &Terms,
        metadata: Option<(&Locality, &EndpointMetadata<'_>)>,
        encoder: &mut Encoder,
    ) {
        let begun = encoder.begin_locality(&self.head);
        let mut calls = self.own.taken;
        for (address, EndpointLoads { head, own }) in &self.endpoints {
            calls.add(own.taken);
            if terms.has_endpoints && own.has_activity() {
                // A report that is too large already is written anew without metadata, so that the buffer needs no more room.
                let metadata = metadata.filter(|_| encoder.cluster().len() <= terms.max_size);
                let metadata = metadata.and_then(|(locality, all)| all.get(locality, *address));
                let (calls, metrics) = (&own.taken, own.metrics.as_deref());
                encoder.add_endpoint(&EndpointStats { head, calls, metrics, metadata });
            }
        }
        encoder.end_locality(&begun, &calls, self.metrics().as_deref());
    }

    /// The sums of all, copied if there are several.
    fn metrics(&self) -> Option<Cow<'_, MetricSums>> {
        let mut all = self.counted().filter_map(|counted| Some((counted.metrics.as_deref()?, counted)));
        let mut sums = Cow::Borrowed(all.next()?.0);
        for (more, counted) in all {
            let limit = counted.counters.iter().filter_map(|counters| counters.max_metric_names()).max();
            sums.to_mut().append(more.clone(), limit.unwrap_or(usize::MAX));
        }
        Some(sums)
    }
}

impl Counted {
    fn list(&mut self, counters: Arc<Counters>) {
        // One that is listed already may be in the report in progress.
        if !self.counters.iter().any(|known| Arc::ptr_eq(known, &counters)) {
            counters.on_listed();
            self.counters.push(counters);
        }
    }

    /// Whether there is something but zeros to report.
    fn take(&mut self) -> bool {
        self.taken = Calls::default();
        for counters in &self.counters {
            self.taken.add(counters.take(&mut self.metrics));
        }
        self.has_activity()
    }

    fn has_activity(&self) -> bool {
        !self.taken.is_zero() || self.has_metrics()
    }

    fn has_metrics(&self) -> bool {
        self.metrics.as_ref().is_some_and(|sums| !sums.is_zero())
    }

    fn on_written(&mut self) -> u64 {
        self.counters.iter().for_each(|counters| counters.on_written());
        self.metrics.take().map_or(0, |sums| sums.dropped)
    }

    fn discard(&mut self) {
        self.counters.iter().for_each(|counters| counters.discard());
        self.metrics = None;
    }

    fn forget_ended(&mut self) {
        self.counters.retain(|counters| is_live(counters) || counters.has_unreported());
    }

    /// Whether a handle counts with each of the counters.
    fn is_live_or_none(&self) -> bool {
        self.counters.iter().all(is_live)
    }

    fn is_empty(&self) -> bool {
        self.counters.is_empty() && !self.has_metrics()
    }

    fn has_calls(&self) -> bool {
        self.counters.iter().any(|counters| counters.unreported().in_progress > 0)
    }
}

impl Drops {
    fn take(&mut self) -> u64 {
        self.taken = self.counters.iter().map(|counter| counter.take()).sum();
        self.taken
    }

    fn is_live(&self) -> bool {
        self.counters.iter().any(is_live)
    }
}

impl LocalityStats {
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

/// Whether a handle counts with it: its handle is there, and has not gone over to another destination.
fn is_live<C: Count>(counter: &Arc<C>) -> bool {
    counter.is_current() && Arc::strong_count(counter) > 1
}
