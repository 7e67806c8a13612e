use super::{
    LbPolicyBuilder, OutlierDetectionBuilder, UpstreamTlsBuilder, ads, any, builder, lb_policies, number,
    socket_address,
};
use crate::pb::envoy::{
    config::{
        cluster::v3::{
            CircuitBreakers, Cluster,
            circuit_breakers::Thresholds,
            cluster::{ClusterDiscoveryType, CustomClusterType, DiscoveryType, EdsClusterConfig},
        },
        core::v3::{ConfigSource, SelfConfigSource, config_source::ConfigSourceSpecifier},
        endpoint::v3::{
            ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
        },
    },
    extensions::clusters::aggregate::v3::ClusterConfig,
};

/// A cluster; by default with EDS by its own name, from the same server.
pub fn cluster(name: impl Into<String>) -> ClusterBuilder {
    ClusterBuilder { message: Cluster { name: name.into(), ..Cluster::default() } }.eds()
}

/// A builder of a Cluster; see [`cluster`].
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterBuilder {
    /// The message so far.
    message: Cluster,
}

impl ClusterBuilder {
    /// Uses EDS by the cluster's name, from the same server.
    #[must_use]
    pub fn eds(self) -> Self {
        self.eds_service("")
    }

    /// Uses EDS by another name, from the same server.
    #[must_use]
    pub fn eds_service(mut self, service: impl Into<String>) -> Self {
        self.message.eds_cluster_config =
            Some(EdsClusterConfig { eds_config: Some(ads()), service_name: service.into() });
        self.message.load_assignment = None;
        self.discovery(ClusterDiscoveryType::Type(DiscoveryType::Eds.into()))
    }

    /// Uses EDS from this source, by the current name.
    #[must_use]
    pub fn eds_from(mut self, source: ConfigSource) -> Self {
        self.message.eds_cluster_config.get_or_insert_default().eds_config = Some(source);
        self
    }

    /// Uses logical DNS with one host.
    #[must_use]
    pub fn logical_dns(mut self, host: &str, port: u16) -> Self {
        let endpoint = Endpoint { address: Some(socket_address(host, port)), ..Endpoint::default() };
        let lb_endpoint =
            LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
        self.message.load_assignment = Some(ClusterLoadAssignment {
            cluster_name: self.message.name.clone(),
            endpoints: vec![LocalityLbEndpoints { lb_endpoints: vec![lb_endpoint], ..Default::default() }],
            ..ClusterLoadAssignment::default()
        });
        self.message.eds_cluster_config = None;
        self.discovery(ClusterDiscoveryType::Type(DiscoveryType::LogicalDns.into()))
    }

    /// Makes it an aggregate of other clusters, in order of priority.
    #[must_use]
    pub fn aggregate<N: Into<String>>(mut self, clusters: impl IntoIterator<Item = N>) -> Self {
        let config = ClusterConfig { clusters: clusters.into_iter().map(Into::into).collect() };
        let custom = CustomClusterType {
            name: "envoy.clusters.aggregate".to_owned(),
            typed_config: Some(any(AGGREGATE, &config)),
        };
        self.message.eds_cluster_config = None;
        self.message.load_assignment = None;
        self.discovery(ClusterDiscoveryType::ClusterType(custom))
    }

    /// Has clients report the load of the cluster to the server that sends it; see
    /// [`TestControlPlane::ask_reports`](crate::testing::TestControlPlane::ask_reports).
    #[must_use]
    pub fn report_load(mut self) -> Self {
        let this_server = ConfigSourceSpecifier::Self_(SelfConfigSource::default());
        let source = ConfigSource { config_source_specifier: Some(this_server), ..ConfigSource::default() };
        self.message.lrs_server = Some(source);
        self
    }

    /// Secures the connections to the endpoints, for channels with `xds_credentials`.
    #[must_use]
    pub fn tls(mut self, tls: UpstreamTlsBuilder) -> Self {
        self.message.transport_socket = Some(tls.into_socket());
        self
    }

    /// Sets the load balancing policy; `round_robin` by default.
    #[must_use]
    pub fn lb_policy(self, policy: LbPolicyBuilder) -> Self {
        self.lb_policies([policy])
    }

    /// Sets several load balancing policies, of which clients use the first that they support.
    #[must_use]
    pub fn lb_policies(mut self, policies: impl IntoIterator<Item = LbPolicyBuilder>) -> Self {
        self.message.load_balancing_policy = Some(lb_policies::list(policies));
        self
    }

    /// Enables outlier detection.
    #[must_use]
    pub fn outlier_detection(mut self, detection: OutlierDetectionBuilder) -> Self {
        self.message.outlier_detection = Some(detection.into_message());
        self
    }

    /// Limits the requests of a client in flight; 1024 by default.
    #[must_use]
    pub fn max_requests(mut self, limit: u32) -> Self {
        let thresholds = Thresholds { max_requests: number(limit), ..Thresholds::default() };
        self.message.circuit_breakers =
            Some(CircuitBreakers { thresholds: vec![thresholds], ..CircuitBreakers::default() });
        self
    }

    /// Sets the kind of discovery.
    fn discovery(mut self, discovery: ClusterDiscoveryType) -> Self {
        self.message.cluster_discovery_type = Some(discovery);
        self
    }
}

builder!(ClusterBuilder: Cluster);

/// The type of the configuration of an aggregate.
const AGGREGATE: &str = "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig";
