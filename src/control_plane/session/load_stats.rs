//! The session of a stream of load reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{super::store::loads::LoadReport, wrap};
use crate::{
    config::bounded,
    pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse},
};

/// What a client is asked to report: the clusters, how often, and whether each endpoint for itself.
///
/// ```
/// use std::time::Duration;
///
/// use xdskit::control_plane::LoadReporting;
///
/// let everything = LoadReporting::all(Duration::from_secs(10));
/// let one = LoadReporting::of(["shop"], Duration::from_secs(1)).with_endpoints();
/// assert_ne!(everything, one);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadReporting {
    /// The clusters to report; `None` for all.
    clusters: Option<BTreeSet<String>>,
    /// The time between reports.
    interval: Duration,
    /// Whether endpoints are reported one by one.
    with_endpoints: bool,
}

/// What clients are asked to report: all of them, and single ones by the id of their node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReportingConfig {
    /// The number of changes so far.
    revision: u64,
    /// What clients without an entry in `nodes` are asked.
    all: Option<Asked>,
    /// What single clients are asked, by the id of their node.
    nodes: BTreeMap<Arc<str>, Asked>,
}

/// A configuration, with the change that has set it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Asked {
    /// The number of the change. Setting an equal configuration is a change: it is sent again.
    revision: u64,
    /// The clusters and the interval that clients are asked for.
    reporting: LoadReporting,
}

/// The server side of one stream of load reports, without I/O.
///
/// A client begins: [`handle_request`](Self::handle_request) takes each of its requests, and
/// [`poll_response`](Self::poll_response) returns a response if one is due, after the first request and after each change of the
/// configuration that is for this client.
#[derive(Debug, Clone)]
pub struct LoadSession {
    /// The number of the stream, for reports.
    stream: u64,
    /// The id of the client, from its first request.
    node: Option<Arc<str>>,
    /// The number of the change that the last response was made of.
    sent: Option<u64>,
}

impl LoadReporting {
    /// All clusters, every `interval`, which is 30 years at most.
    pub fn all(interval: Duration) -> Self {
        Self { clusters: None, interval: bounded(interval), with_endpoints: false }
    }

    /// These clusters, every `interval`, which is 30 years at most. With no names, a client reports nothing, and its stream stays open.
    pub fn of<N: Into<String>>(clusters: impl IntoIterator<Item = N>, interval: Duration) -> Self {
        let clusters = Some(clusters.into_iter().map(Into::into).collect());
        Self { clusters, interval: bounded(interval), with_endpoints: false }
    }

    /// Asks for the load of each endpoint, too.
    #[must_use]
    pub fn with_endpoints(mut self) -> Self {
        self.with_endpoints = true;
        self
    }

    /// The response that asks for this.
    pub fn response(&self) -> LoadStatsResponse {
        LoadStatsResponse {
            clusters: self.clusters.iter().flatten().cloned().collect(),
            send_all_clusters: self.clusters.is_none(),
            load_reporting_interval: Some(wrap::duration(self.interval)),
            report_endpoint_granularity: self.with_endpoints,
        }
    }
}

impl LoadReportingConfig {
    /// Sets what clients are asked that are not configured by their node.
    pub fn set(&mut self, reporting: LoadReporting) {
        self.revision += 1;
        self.all = Some(Asked { revision: self.revision, reporting });
    }

    /// Sets what the clients with this node id are asked.
    pub fn set_for(&mut self, node: &str, reporting: LoadReporting) {
        self.revision += 1;
        self.nodes.insert(node.into(), Asked { revision: self.revision, reporting });
    }

    /// Returns what a client is asked.
    fn of(&self, node: &str) -> Option<&Asked> {
        self.nodes.get(node).or(self.all.as_ref())
    }
}

impl LoadSession {
    /// A session of the stream with this number.
    pub fn new(stream: u64) -> Self {
        Self { stream, node: None, sent: None }
    }

    /// Handles a request. Returns the report that it is; `None` if it is the first one and has no node, which the protocol forbids.
    /// Later requests may repeat the node.
    pub fn handle_request(&mut self, request: LoadStatsRequest, now: Instant) -> Option<LoadReport> {
        if let Some(node) = &request.node {
            self.node = Some(node.id.as_str().into());
        }
        let node = self.node.clone()?;
        Some(LoadReport::new(node, self.stream, request, now))
    }

    /// Whether a response is due.
    pub fn is_response_due(&self, config: &LoadReportingConfig) -> bool {
        self.due(config).is_some()
    }

    /// Returns the response that is due.
    pub fn poll_response(&mut self, config: &LoadReportingConfig) -> Option<LoadStatsResponse> {
        let (revision, response) =
            self.due(config).map(|asked| (asked.revision, asked.reporting.response()))?;
        self.sent = Some(revision);
        Some(response)
    }

    /// Returns the configuration that the client has not received yet.
    fn due<'a>(&self, config: &'a LoadReportingConfig) -> Option<&'a Asked> {
        let asked = config.of(self.node.as_ref()?)?;
        (self.sent != Some(asked.revision)).then_some(asked)
    }
}

#[cfg(test)]
mod tests;
