//! Clusters: groups of endpoints that requests are sent to.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Serialize;

use super::{
    Context, HealthStatus, Invalid, LbPolicy, Metadata, OutlierDetection, Remarks, Resource, UpstreamTls,
    config_source::{self, ResourceConfigSource},
    parts, remarks, unexecuted, v2,
};
use crate::base::type_url;
use crate::pb::{
    envoy::{
        config::{
            cluster::v3::{
                self as cluster,
                cluster::{CustomClusterType, DiscoveryType},
            },
            core::v3::{self as core, transport_socket::ConfigType},
        },
        extensions::{
            clusters::aggregate::v3 as aggregate, transport_sockets::http_11_proxy::v3 as http_11_proxy,
            upstreams::http::v3 as upstreams,
        },
    },
    google::protobuf as google,
};

mod fields;
mod host_port;
mod json;

use self::fields::{ClusterFields, Discovery, EdsFields};
pub use self::host_port::HostPort;

/// A group of endpoints that requests are sent to, with the settings of its connections and load balancing.
///
/// In JSON, the fields of [`ClusterKind`] are on the same level as the others, with the kind's name as `kind`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Cluster {
    /// The name, not empty.
    pub name: Arc<str>,
    /// The source of the endpoints.
    pub kind: ClusterKind,
    /// The load balancing policy of the endpoints; not used for an aggregate (A75).
    pub lb_policy: LbPolicy,
    /// The maximum number of concurrent requests, 1024 by default (A32).
    pub max_requests: u32,
    /// The maximum number of connections to each endpoint, 1 by default (A105).
    pub max_connections: u32,
    /// The conditions for ejecting endpoints whose responses are worse than those of others; `None` disables
    /// ejection.
    pub outlier_detection: Option<Box<OutlierDetection>>,
    /// TLS settings of connections to the endpoints; `None` leaves TLS to the application's own credentials,
    /// or to the fallback of a channel's xDS credentials.
    pub tls: Option<Box<UpstreamTls>>,
    /// Whether connections go through the HTTP proxy in the metadata of the endpoint or of its locality, if there is
    /// one (A86).
    pub http_connect: bool,
    /// The time for which a connection without requests is kept, 3600 s by default (A75).
    pub idle_timeout: Duration,
    /// Whether load on the cluster is reported to the server that sent it.
    pub report_load: bool,
    /// The metrics of endpoints to include in load reports (A85).
    pub reported_metrics: ReportedMetrics,
    /// The health states in which session affinity prefers an endpoint (A55).
    pub override_host_status: OverrideHostStatus,
    /// The metadata of the cluster.
    pub metadata: Metadata,
    /// What is not used of it.
    pub remarks: Remarks,
    /// The resource has the name of its service, which may be that of the cluster.
    /// `kind` has the default in place of a missing name, so that it does not tell.
    pub(crate) names_service: bool,
}

/// The source of a cluster's endpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClusterKind {
    /// EDS: the endpoints of a `ClusterLoadAssignment`.
    #[non_exhaustive]
    Eds {
        /// The name of the `ClusterLoadAssignment`; by default, the name of the cluster.
        service_name: Arc<str>,
        /// The config source of the `ClusterLoadAssignment`, if it is not the server of the cluster.
        #[serde(skip)]
        source: Option<Arc<ResourceConfigSource>>,
    },
    /// DNS: all addresses of one name.
    #[non_exhaustive]
    LogicalDns {
        /// The name and the port.
        address: HostPort,
    },
    /// An aggregate of other clusters, in order of priority (A37).
    #[non_exhaustive]
    Aggregate {
        /// The names of the clusters, at least one.
        clusters: Box<[Arc<str>]>,
    },
}

/// The metrics of endpoints to include in load reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReportedMetrics {
    /// The CPU utilization.
    pub cpu_utilization: bool,
    /// The memory utilization.
    pub mem_utilization: bool,
    /// The utilization as defined by the application.
    pub application_utilization: bool,
    /// All metrics with names of the application's own.
    pub all_named_metrics: bool,
    /// Metrics with these names, without the prefix `named_metrics.`; empty if all are reported.
    pub named_metrics: Box<[Box<str>]>,
}

/// Labels for the application's metrics; `unknown` where the cluster's metadata has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TelemetryLabels<'a> {
    /// The name of the service in the mesh.
    pub service_name: &'a str,
    /// The namespace of the service.
    pub service_namespace: &'a str,
}

/// A set of health states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OverrideHostStatus {
    /// Endpoints of unknown health.
    pub unknown: bool,
    /// Healthy endpoints.
    pub healthy: bool,
    /// Draining endpoints.
    pub draining: bool,
}

impl Resource for Cluster {
    const TYPE_URL: &'static str = type_url::CLUSTER;
    const COLLECTION_TYPE_URL: Option<&'static str> =
        Some("type.googleapis.com/envoy.config.cluster.v3.ClusterCollection");
    const FULL_STATE: bool = true;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        // On the bytes: the message of v3 lacks the field.
        v2::check_cluster(bytes)?;
        let (cluster, remarks) = remarks::collect(|| {
            let cluster = parts::read::<cluster::Cluster, _>(bytes, |bytes| {
                let mut fields = ClusterFields::new(bytes);
                fields.read()?;
                Self::of(&fields, cx)
            })?;
            remarks::scan(&unexecuted::CLUSTER, bytes);
            Ok(cluster)
        })?;
        Ok(Self { remarks, ..cluster })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

impl Cluster {
    /// Returns the labels for the application's metrics (A89).
    pub fn telemetry_labels(&self) -> TelemetryLabels<'_> {
        TelemetryLabels::of(&self.metadata)
    }

    /// The name of the service in load reports: as the resource has it, and not its default (LR4.2).
    pub(crate) fn reported_service(&self) -> Option<&Arc<str>> {
        match &self.kind {
            ClusterKind::Eds { service_name, .. } => Some(service_name).filter(|_| self.names_service),
            ClusterKind::LogicalDns { .. } | ClusterKind::Aggregate { .. } => None,
        }
    }

    /// Validates the fields of a cluster.
    fn of(from: &ClusterFields<'_>, cx: &Context<'_>) -> Result<Self, Invalid> {
        if from.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        // One string for the watch, the cache and the cluster.
        let name = cx.share(from.name);
        let kind = ClusterKind::of(from, &name, cx)?;
        let lb_policy = LbPolicy::parse(&from.choice()?, cx)?;
        if from.has_socket_matches {
            // Ignoring it would send in plain text what the server configured for TLS (A29-1, A29-8).
            return Err(Invalid::field("transport_socket_matches", "is not supported; use transport_socket"));
        }
        let outlier_detection = from
            .decode(from.outlier_detection)?
            .map(|detection| OutlierDetection::parse(&detection).map_err(|e| e.at("outlier_detection")))
            .transpose()?
            .map(Box::new);
        let (tls, http_connect) = match from.decode(from.transport_socket)? {
            Some(socket) => transport(&socket, cx).map_err(|e| e.at("transport_socket"))?,
            None => (None, false),
        };
        let (metadata, whole) = from.metadata();
        let metadata = Metadata::read(metadata, whole, cx).map_err(|e| e.at("metadata"))?;
        let upstream_config = from.decode(from.upstream_config)?;
        let idle_timeout = idle_timeout(upstream_config.as_ref()).map_err(|e| e.at("upstream_config"))?;
        let lrs_server = from.decode(from.lrs_server)?;
        let circuit_breakers = from.decode(from.circuit_breakers)?;
        let max_connections =
            max_connections(circuit_breakers.as_ref()).map_err(|e| e.at("circuit_breakers"))?;
        Ok(Self {
            name,
            kind,
            lb_policy,
            max_requests: max_requests(circuit_breakers.as_ref()),
            max_connections,
            outlier_detection,
            tls,
            http_connect,
            idle_timeout,
            report_load: report_load(lrs_server.as_ref()).map_err(|e| e.at("lrs_server"))?,
            names_service: from.eds_config.as_ref().is_some_and(|eds| !eds.service_name.is_empty()),
            reported_metrics: ReportedMetrics::parse(&from.reported_metrics),
            override_host_status: OverrideHostStatus::parse(from.decode(from.common_lb_config)?),
            metadata,
            remarks: Remarks::default(),
        })
    }
}

impl ClusterKind {
    /// Rules C1 to C5.
    fn of(from: &ClusterFields<'_>, name: &Arc<str>, cx: &Context<'_>) -> Result<Self, Invalid> {
        // Fields that the kind does not use must be well-formed, too.
        let load_assignment = from.decode(from.load_assignment)?;
        let source =
            from.eds_config.as_ref().map(|eds| config_source::read_source(eds.source, cx)).transpose()?;
        let number = match from.discovery {
            Some(Discovery::Type(number)) => number,
            Some(Discovery::Custom(bytes)) => {
                let custom: Option<CustomClusterType> = from.decode(Some(bytes))?;
                return aggregate(&custom.unwrap_or_default()).map_err(|e| e.at("cluster_type"));
            }
            // Envoy takes an unset type for `STATIC`, which is not supported either.
            None => return Err(Invalid::field("type", "must be set")),
        };
        match DiscoveryType::try_from(number) {
            Ok(DiscoveryType::Eds) => {
                let config = from.eds_config.as_ref().zip(source).ok_or(Invalid::new("must be set"));
                config
                    .and_then(|(config, source)| eds(config, source, name))
                    .map_err(|e| e.at("eds_cluster_config"))
            }
            Ok(DiscoveryType::LogicalDns) => {
                let config = load_assignment.as_ref().ok_or(Invalid::new("must be set"));
                let address = config.and_then(HostPort::parse).map_err(|e| e.at("load_assignment"))?;
                Ok(Self::LogicalDns { address })
            }
            Ok(other @ (DiscoveryType::Static | DiscoveryType::StrictDns | DiscoveryType::OriginalDst)) => {
                let reason = format!("{} is not supported, only EDS and LOGICAL_DNS", other.as_str_name());
                Err(Invalid::field("type", reason))
            }
            Err(_) => Err(Invalid::field("type", format!("{number} is no known type"))),
        }
    }
}

impl ReportedMetrics {
    /// Rule C31; other names are skipped.
    fn parse(from: &[&str]) -> Self {
        let mut metrics = Self::default();
        let mut named = Vec::new();
        for name in from {
            match (*name, name.strip_prefix("named_metrics.")) {
                ("cpu_utilization", _) => metrics.cpu_utilization = true,
                ("mem_utilization", _) => metrics.mem_utilization = true,
                ("application_utilization", _) => metrics.application_utilization = true,
                (_, Some("*")) => metrics.all_named_metrics = true,
                (_, Some(name)) if !name.is_empty() => named.push(name.into()),
                (_, Some(_) | None) => {}
            }
        }
        if !metrics.all_named_metrics {
            // Sorted for `includes_named`, and so that equal sets are equal values, which share the counters of load reports.
            named.sort();
            named.dedup();
            metrics.named_metrics = named.into();
        }
        metrics
    }

    /// Returns whether a metric of the application's own is reported, by its name without prefix.
    pub fn includes_named(&self, name: &str) -> bool {
        self.all_named_metrics || self.named_metrics.binary_search_by(|at| (**at).cmp(name)).is_ok()
    }
}

impl<'a> TelemetryLabels<'a> {
    /// Rule C30.
    fn of(metadata: &'a Metadata) -> Self {
        let label = |field| metadata.text("com.google.csm.telemetry_labels", field).unwrap_or("unknown");
        Self { service_name: label("service_name"), service_namespace: label("service_namespace") }
    }
}

impl OverrideHostStatus {
    /// Returns whether a health state is in the set.
    pub const fn contains(&self, health: HealthStatus) -> bool {
        match health {
            HealthStatus::Unknown => self.unknown,
            HealthStatus::Healthy => self.healthy,
            HealthStatus::Draining => self.draining,
            // A55 has the three statuses above alone: the set has no others, even if the message names them.
            HealthStatus::Unhealthy
            | HealthStatus::Timeout
            | HealthStatus::Degraded
            | HealthStatus::Unrecognized => false,
        }
    }

    /// Rule A55-1.
    /// An unset field is not an empty set: it has the default of A55.
    fn parse(from: Option<cluster::cluster::CommonLbConfig>) -> Self {
        let Some(set) = from.and_then(|config| config.override_host_status) else {
            return Self { unknown: true, healthy: true, draining: false };
        };
        let has = |status: core::HealthStatus| set.statuses.contains(&(status as i32));
        Self {
            unknown: has(core::HealthStatus::Unknown),
            healthy: has(core::HealthStatus::Healthy),
            draining: has(core::HealthStatus::Draining),
        }
    }
}

/// Rules C1 and C2; an equal name of the cluster and its endpoints is stored once.
fn eds(
    config: &EdsFields<'_>,
    source: Result<Option<Arc<ResourceConfigSource>>, Invalid>,
    name: &Arc<str>,
) -> Result<ClusterKind, Invalid> {
    let source = source.map_err(|e| e.at("eds_config"))?;
    let service_name = config.service_name;
    if service_name.is_empty() && name.starts_with("xdstp:") {
        let reason = "must be set, because the cluster's xdstp: name cannot be the name of its endpoints";
        return Err(Invalid::field("service_name", reason));
    }
    let is_same = service_name.is_empty() || *service_name == **name;
    Ok(ClusterKind::Eds { service_name: if is_same { name.clone() } else { service_name.into() }, source })
}

/// Rule C4, by the type of the configuration (A37-3).
fn aggregate(from: &CustomClusterType) -> Result<ClusterKind, Invalid> {
    let config = from.typed_config.as_ref().ok_or_else(|| Invalid::field("typed_config", "must be set"))?;
    let name = parts::message_name(&config.type_url);
    if name != AGGREGATE {
        let reason = format!("{name:?} is not supported, only {AGGREGATE}");
        return Err(Invalid::field("typed_config", reason));
    }
    let config: aggregate::ClusterConfig = parts::decode(config).map_err(|e| e.at("typed_config"))?;
    if config.clusters.is_empty() {
        return Err(Invalid::field("clusters", "must not be empty").at("typed_config"));
    }
    Ok(ClusterKind::Aggregate { clusters: config.clusters.into_iter().map(Into::into).collect() })
}

/// Rules C20 to C22 and A86: TLS, with an HTTP proxy below it or without.
/// A proxy without a transport socket inside is plain text through the proxy.
fn transport(
    socket: &core::TransportSocket,
    cx: &Context<'_>,
) -> Result<(Option<Box<UpstreamTls>>, bool), Invalid> {
    let proxy = match &socket.config_type {
        Some(ConfigType::TypedConfig(any)) if parts::message_name(&any.type_url) == HTTP_11_PROXY => any,
        Some(ConfigType::TypedConfig(_)) | None => {
            return Ok((Some(Box::new(UpstreamTls::parse(socket, cx)?)), false));
        }
    };
    let proxy: http_11_proxy::Http11ProxyUpstreamTransport =
        parts::decode(proxy).map_err(|e| e.at("typed_config"))?;
    let tls = proxy
        .transport_socket
        .map(|inner| UpstreamTls::parse(&inner, cx).map(Box::new))
        .transpose()
        .map_err(|e| e.at("transport_socket").at("typed_config"))?;
    Ok((tls, true))
}

/// Rule C25.
/// Later thresholds and those of other priorities have no effect, as in gRPC.
fn max_requests(from: Option<&cluster::CircuitBreakers>) -> u32 {
    let default = core::RoutingPriority::Default as i32;
    from.and_then(|breakers| breakers.thresholds.iter().find(|one| one.priority == default))
        .and_then(|threshold| threshold.max_requests)
        .map_or(DEFAULT_MAX_REQUESTS, |max| max.value)
}

/// Rule CH4.9.
fn max_connections(from: Option<&cluster::CircuitBreakers>) -> Result<u32, Invalid> {
    let default = core::RoutingPriority::Default as i32;
    let thresholds = from.map_or(&[][..], |breakers| &breakers.per_host_thresholds);
    let Some(place) = thresholds.iter().position(|one| one.priority == default) else { return Ok(1) };
    match thresholds[place].max_connections {
        Some(google::UInt32Value { value: 0 }) => {
            let invalid = Invalid::field("max_connections", "must be greater than 0");
            Err(invalid.at_index("per_host_thresholds", place))
        }
        Some(google::UInt32Value { value }) => Ok(value),
        None => Ok(1),
    }
}

/// Rule C33 and A75-2.
fn idle_timeout(from: Option<&core::TypedExtensionConfig>) -> Result<Duration, Invalid> {
    let Some(config) = from else { return Ok(DEFAULT_IDLE_TIMEOUT) };
    let config: &google::Any =
        config.typed_config.as_ref().ok_or_else(|| Invalid::field("typed_config", "must be set"))?;
    let name = parts::message_name(&config.type_url);
    if name != HTTP_PROTOCOL_OPTIONS {
        let reason = format!("{name:?} is not supported, only {HTTP_PROTOCOL_OPTIONS}");
        return Err(Invalid::field("typed_config", reason));
    }
    let options: upstreams::HttpProtocolOptions = parts::decode(config).map_err(|e| e.at("typed_config"))?;
    let timeout = options.common_http_protocol_options.and_then(|common| common.idle_timeout);
    timeout.map_or(Ok(DEFAULT_IDLE_TIMEOUT), |timeout| {
        parts::duration(&timeout)
            .map_err(|e| e.at("idle_timeout").at("common_http_protocol_options").at("typed_config"))
    })
}

/// Rule C24.
fn report_load(from: Option<&core::ConfigSource>) -> Result<bool, Invalid> {
    use core::config_source::ConfigSourceSpecifier as Specifier;
    match from.map(|source| &source.config_source_specifier) {
        // Unset means no reports; a source without a specifier is an error.
        None => Ok(false),
        Some(Some(Specifier::Self_(_))) => Ok(true),
        Some(
            None
            | Some(
                Specifier::Path(_)
                | Specifier::PathConfigSource(_)
                | Specifier::ApiConfigSource(_)
                | Specifier::Ads(_),
            ),
        ) => Err(Invalid::new("only the server that sends the cluster is supported: self")),
    }
}

/// The configuration by which an aggregate cluster is recognized, whatever the name of its type is (A37-3).
const AGGREGATE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";
/// The transport socket of connections through an HTTP proxy, around the one of the connections themselves (A86).
const HTTP_11_PROXY: &str =
    "envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport";
/// The only configuration that `upstream_config` may have (C33).
const HTTP_PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
/// The limit of concurrent requests of a cluster without one.
const DEFAULT_MAX_REQUESTS: u32 = 1024;
/// The time after which a connection without requests is closed, unless the cluster has another one.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests;
