//! The load of one locality of a cluster, as it is reported to one server.

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr, sync::Arc};

use super::{
    counters::{Calls, Counters, is_live},
    departed::DepartedCalls,
    encode::{self, Encoder, EndpointStats, Terms},
    endpoint_metadata::EndpointMetadata,
    metrics::MetricSums,
};
use crate::config::Locality;

/// The counters of a locality and of its endpoints: those of handles, and what departed handles have left.
#[derive(Debug)]
pub(super) struct LocalityLoads {
    /// The encoded locality.
    head: Box<[u8]>,
    /// The counters of the locality handles, without those of endpoints.
    own: Counted,
    /// Endpoints with counters. Their calls are part of the locality in reports.
    endpoints: BTreeMap<SocketAddr, EndpointLoads>,
    /// The counts of departed endpoints and handles that have no counters of their own any more. Few localities have any.
    departed: Option<Box<DepartedCalls>>,
    /// Whether there was something but zeros when a report was last taken.
    pub(super) has_activity: bool,
    /// Whether the locality was in the last report.
    pub(super) was_reported: bool,
}

/// The counters of an endpoint.
#[derive(Debug)]
struct EndpointLoads {
    /// The encoded address.
    head: Box<[u8]>,
    /// The counters of its handles.
    own: Counted,
}

/// The counters of all handles of a locality or an endpoint.
#[derive(Debug, Default)]
struct Counted {
    /// The listed counters: one for each handle that counts, or that has left something to report.
    counters: Vec<Arc<Counters>>,
    /// Calls that the report in progress covers.
    taken: Calls,
    /// The metrics that no written report has covered, but for those still in the counters. Few localities have any.
    metrics: Option<Box<MetricSums>>,
}

impl LocalityLoads {
    pub(super) fn new(locality: &Locality) -> Self {
        Self {
            head: encode::locality_head(locality),
            own: Counted::default(),
            endpoints: BTreeMap::new(),
            departed: None,
            has_activity: false,
            was_reported: false,
        }
    }

    /// The counters of a handle are in the reports from now on.
    pub(super) fn list(&mut self, counters: Arc<Counters>) {
        self.own.list(counters);
    }

    /// The counters of a handle of an endpoint are in the reports from now on.
    pub(super) fn list_endpoint(&mut self, address: SocketAddr, counters: Arc<Counters>) {
        let new = || EndpointLoads { head: encode::endpoint_head(address), own: Counted::default() };
        self.endpoints.entry(address).or_insert_with(new).own.list(counters);
    }

    /// The locality and its endpoints, as a measure of the work.
    pub(super) fn len(&self) -> usize {
        1 + self.endpoints.len()
    }

    /// Iterates over the counters of the locality and of its endpoints.
    fn counted(&self) -> impl Iterator<Item = &Counted> {
        [&self.own].into_iter().chain(self.endpoints.values().map(|endpoint| &endpoint.own))
    }

    fn counted_mut(&mut self) -> impl Iterator<Item = &mut Counted> {
        [&mut self.own].into_iter().chain(self.endpoints.values_mut().map(|endpoint| &mut endpoint.own))
    }

    /// Whether a handle counts.
    pub(super) fn is_live(&self) -> bool {
        self.counted().flat_map(|counted| &counted.counters).any(is_live)
    }

    /// Whether a call is in progress.
    pub(super) fn has_calls(&self) -> bool {
        self.counted().any(Counted::has_calls)
    }

    /// Whether there is something but zeros to report.
    pub(super) fn take(&mut self) -> bool {
        self.own.take();
        if let Some(departed) = &mut self.departed {
            // The sums of departed handles wait with those of a lost report, in one place for both.
            let calls = departed.take(&mut self.own.metrics);
            self.own.taken.add(calls);
        }
        self.has_activity = self.own.has_activity();
        for endpoint in self.endpoints.values_mut() {
            // No short-circuit: each endpoint has to be taken.
            self.has_activity |= endpoint.own.take();
        }
        self.has_activity
    }

    /// The report of the last [`take`](Self::take) was written. Returns the number of values of metrics that it does not have.
    pub(super) fn on_written(&mut self) -> u64 {
        self.was_reported = self.has_activity;
        if let Some(departed) = &mut self.departed {
            departed.on_written();
        }
        self.counted_mut().map(Counted::on_written).sum()
    }

    /// Discards everything counted so far.
    pub(super) fn discard(&mut self) {
        (self.was_reported, self.departed) = (false, None);
        self.counted_mut().for_each(Counted::discard);
    }

    /// Removes the counters that no handle counts with any more and that have nothing to report.
    pub(super) fn remove_ended(&mut self) {
        self.departed = self.departed.take().filter(|departed| !departed.is_empty());
        self.own.forget_ended();
        self.endpoints.retain(|_, endpoint| {
            endpoint.own.forget_ended();
            !endpoint.own.is_empty()
        });
    }

    /// What no written report has covered.
    pub(super) fn unreported(&self) -> (Calls, MetricSums) {
        let (mut calls, mut metrics) = (Calls::default(), MetricSums::default());
        if let Some(departed) = &self.departed {
            let (departed, sums) = departed.unreported();
            calls.add(departed);
            // Without a limit: this is for display, and the sums are within their limits already.
            metrics.append(sums.clone(), usize::MAX);
        }
        for counted in self.counted() {
            counted.counters.iter().for_each(|counters| calls.add(counters.unreported()));
            counted.metrics.iter().for_each(|sums| metrics.append((**sums).clone(), usize::MAX));
            counted.counters.iter().for_each(|counters| counters.copy_metrics(&mut metrics));
        }
        (calls, metrics)
    }

    /// Whether nothing is left to count or to report.
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.endpoints.is_empty() && self.departed.is_none()
    }

    /// Whether a part of it may be without a handle.
    pub(super) fn has_ended(&self) -> bool {
        self.departed.is_some() || self.is_empty() || !self.counted().all(Counted::is_live_or_none)
    }

    /// The number of counters that count no call any more.
    pub(super) fn departed(&self) -> usize {
        self.counted().flat_map(|counted| &counted.counters).filter(|counters| is_departed(counters)).count()
    }

    /// Whether nothing is left of the locality but counts for a report.
    pub(super) fn is_departed(&self) -> bool {
        self.counted().flat_map(|counted| &counted.counters).all(is_departed)
    }

    /// Counts for the locality alone what its departed endpoints and handles have left.
    pub(super) fn fold_departed(&mut self) {
        let Self { own, endpoints, departed, .. } = self;
        let mut fold = |counted: &mut Counted| {
            for counters in counted.counters.extract_if(.., |counters| is_departed(counters)) {
                departed.get_or_insert_default().add(&counters);
            }
        };
        fold(own);
        endpoints.retain(|_, endpoint| {
            fold(&mut endpoint.own);
            let is_gone = endpoint.own.counters.is_empty();
            // Those of the report in progress, or of one that was lost.
            if let Some(metrics) = endpoint.own.metrics.take_if(|_| is_gone) {
                own.metrics.get_or_insert_default().append(*metrics, usize::MAX);
            }
            !is_gone
        });
    }

    /// Writes the report that was taken. `metadata` is that of the endpoints of the cluster, if it is reported.
    pub(super) fn encode(
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
    /// Puts counters into reports.
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

    /// Whether the report in progress has something but zeros.
    fn has_activity(&self) -> bool {
        !self.taken.is_zero() || self.has_metrics()
    }

    fn has_metrics(&self) -> bool {
        self.metrics.as_ref().is_some_and(|sums| !sums.is_zero())
    }

    /// Handles that the report in progress was written. Returns the number of values of metrics that it does not have.
    fn on_written(&mut self) -> u64 {
        self.counters.iter().for_each(|counters| counters.on_written());
        self.metrics.take().map_or(0, |sums| sums.dropped)
    }

    /// Forgets everything counted so far.
    fn discard(&mut self) {
        self.counters.iter().for_each(|counters| counters.discard());
        self.metrics = None;
    }

    /// Removes counters without a handle and without anything to report.
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

    /// Whether a call is in progress.
    fn has_calls(&self) -> bool {
        self.counters.iter().any(|counters| counters.unreported().in_progress > 0)
    }
}

/// Whether nothing is counted with it any more: neither new calls nor the end of one.
fn is_departed(counters: &Arc<Counters>) -> bool {
    !is_live(counters) && counters.unreported().in_progress == 0
}
