//! A report, as it was received.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message;
use serde_json::{Map, Value};

use crate::{
    config::Locality,
    pb::{
        envoy::{
            config::{
                core::v3::{self as core, address::Address as AnyAddress},
                endpoint::v3::{self as endpoint, ClusterStats, EndpointLoadMetricStats},
            },
            service::load_stats::v3::LoadStatsRequest,
        },
        google::protobuf,
    },
    resource::json_object,
};

/// A request of a client on a stream of load reports. The first one of a stream has no loads.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadReport {
    /// The ID of the node that a request of the stream has named last.
    node: Arc<str>,
    /// The number of the stream.
    stream: u64,
    /// The time at the server.
    received_at: Instant,
    /// The size of the message.
    bytes: usize,
    /// The request itself.
    message: LoadStatsRequest,
}

/// The load of a cluster in a report.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ClusterLoad {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of its EDS service, if the report has it.
    pub service: Option<String>,
    /// The time that the report covers, if the report has a valid one.
    pub interval: Option<Duration>,
    /// The localities, in the order of the report.
    pub localities: Vec<LocalityLoad>,
    /// All dropped requests, including those of no category.
    pub dropped: u64,
    /// The dropped requests by category.
    pub dropped_by_category: BTreeMap<String, u64>,
}

/// The load of a locality in a report.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LocalityLoad {
    /// The locality.
    pub locality: Locality,
    /// The priority, for clients that report each one for itself.
    pub priority: u32,
    /// The requests.
    pub requests: RequestCounts,
    /// The utilization of the processor, if endpoints reported it.
    pub cpu_utilization: Option<LoadMetric>,
    /// The utilization of the memory.
    pub memory_utilization: Option<LoadMetric>,
    /// The utilization as the application defines it.
    pub application_utilization: Option<LoadMetric>,
    /// All other metrics by name, such as `named_metrics.queue`.
    pub metrics: BTreeMap<String, LoadMetric>,
    /// The endpoints, if the server asked for them.
    pub endpoints: Vec<EndpointLoad>,
}

/// The load of an endpoint in a report.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EndpointLoad {
    /// The address, if it is an IP address with a port.
    pub address: Option<SocketAddr>,
    /// The requests.
    pub requests: RequestCounts,
    /// Metrics by name.
    pub metrics: BTreeMap<String, LoadMetric>,
    /// The metadata, as a rule that of EDS for load balancing (`envoy.lb`); empty if there is none.
    pub metadata: Map<String, Value>,
}

/// Numbers of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Requests that were sent.
    pub issued: u64,
    /// Requests that ended well.
    pub successful: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were running at the time of the report.
    pub in_progress: u64,
}

/// Values of a metric.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct LoadMetric {
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl LoadReport {
    /// A report on a stream of a client with this node id.
    pub fn new(node: Arc<str>, stream: u64, message: LoadStatsRequest, received_at: Instant) -> Self {
        Self { node, stream, received_at, bytes: message.encoded_len(), message }
    }

    /// The id of the client's node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The number of the stream, counted from 1 over the control plane.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The time at which it was received.
    pub fn received_at(&self) -> Instant {
        self.received_at
    }

    /// The size of the message in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message.
    pub fn message(&self) -> &LoadStatsRequest {
        &self.message
    }

    /// The loads of clusters, in the order of the message.
    pub fn clusters(&self) -> impl Iterator<Item = ClusterLoad> {
        self.message.cluster_stats.iter().map(ClusterLoad::of)
    }

    /// The first load of a cluster.
    pub fn cluster(&self, name: &str) -> Option<ClusterLoad> {
        let stats = self.message.cluster_stats.iter().find(|stats| stats.cluster_name == name);
        stats.map(ClusterLoad::of)
    }

    /// Whether there are no loads in it.
    pub fn is_empty(&self) -> bool {
        self.message.cluster_stats.is_empty()
    }
}

impl ClusterLoad {
    /// Reads the load of a cluster.
    fn of(stats: &ClusterStats) -> Self {
        let interval = stats.load_report_interval.as_ref();
        let mut dropped_by_category = BTreeMap::new();
        for dropped in &stats.dropped_requests {
            let count: &mut u64 = dropped_by_category.entry(dropped.category.clone()).or_default();
            // Clients can send any numbers, also several for a category.
            *count = count.saturating_add(dropped.dropped_count);
        }
        Self {
            cluster: stats.cluster_name.clone(),
            service: Some(stats.cluster_service_name.clone()).filter(|service| !service.is_empty()),
            interval: interval.and_then(valid),
            localities: stats.upstream_locality_stats.iter().map(LocalityLoad::of).collect(),
            dropped: stats.total_dropped_requests,
            dropped_by_category,
        }
    }

    /// The load of a locality, by region, zone and sub-zone: the first one, if there are several priorities.
    pub fn locality(&self, region: &str, zone: &str, sub_zone: &str) -> Option<&LocalityLoad> {
        let locality = Locality::new(region, zone, sub_zone);
        self.localities.iter().find(|load| load.locality == locality)
    }
}

impl LocalityLoad {
    /// Reads the load of a locality.
    fn of(stats: &endpoint::UpstreamLocalityStats) -> Self {
        let unnamed = |stats: &Option<endpoint::UnnamedEndpointLoadMetricStats>| {
            let stats = stats.as_ref()?;
            Some(LoadMetric { count: stats.num_requests_finished_with_metric, sum: stats.total_metric_value })
        };
        let locality = stats.locality.as_ref();
        Self {
            locality: locality
                .map(|locality| Locality::new(&locality.region, &locality.zone, &locality.sub_zone))
                .unwrap_or_default(),
            priority: stats.priority,
            requests: RequestCounts {
                issued: stats.total_issued_requests,
                successful: stats.total_successful_requests,
                failed: stats.total_error_requests,
                in_progress: stats.total_requests_in_progress,
            },
            cpu_utilization: unnamed(&stats.cpu_utilization),
            memory_utilization: unnamed(&stats.mem_utilization),
            application_utilization: unnamed(&stats.application_utilization),
            metrics: metrics(&stats.load_metric_stats),
            endpoints: stats.upstream_endpoint_stats.iter().map(EndpointLoad::of).collect(),
        }
    }
}

impl EndpointLoad {
    /// Reads the load of an endpoint.
    fn of(stats: &endpoint::UpstreamEndpointStats) -> Self {
        Self {
            address: stats.address.as_ref().and_then(socket_address),
            requests: RequestCounts {
                issued: stats.total_issued_requests,
                successful: stats.total_successful_requests,
                failed: stats.total_error_requests,
                in_progress: stats.total_requests_in_progress,
            },
            metrics: metrics(&stats.load_metric_stats),
            metadata: stats.metadata.clone().map(json_object).unwrap_or_default(),
        }
    }
}

impl RequestCounts {
    /// Adds other requests. Those in progress are of the newest report and are no sum.
    pub(super) fn add(&mut self, other: &Self) {
        self.issued = self.issued.saturating_add(other.issued);
        self.successful = self.successful.saturating_add(other.successful);
        self.failed = self.failed.saturating_add(other.failed);
    }
}

impl LoadMetric {
    /// Adds the values of another report.
    pub(super) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
    }
}

/// Sums metrics by name, since a report may have a name several times.
fn metrics(stats: &[EndpointLoadMetricStats]) -> BTreeMap<String, LoadMetric> {
    let mut metrics = BTreeMap::new();
    for stats in stats {
        let sum: &mut LoadMetric = metrics.entry(stats.metric_name.clone()).or_default();
        sum.add(&LoadMetric {
            count: stats.num_requests_finished_with_metric,
            sum: stats.total_metric_value,
        });
    }
    metrics
}

/// Returns a duration that is neither negative nor malformed.
fn valid(interval: &protobuf::Duration) -> Option<Duration> {
    let nanos = u32::try_from(interval.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(u64::try_from(interval.seconds).ok()?, nanos))
}

/// Returns an IP address with a port; `None` for a host name, a named port or a pipe.
fn socket_address(address: &core::Address) -> Option<SocketAddr> {
    let Some(AnyAddress::SocketAddress(address)) = &address.address else { return None };
    let Some(core::socket_address::PortSpecifier::PortValue(port)) = address.port_specifier else {
        return None;
    };
    Some(SocketAddr::new(address.address.parse::<IpAddr>().ok()?, port.try_into().ok()?))
}
