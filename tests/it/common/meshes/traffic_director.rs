//! The configuration that Traffic Director sends to proxyless gRPC: opaque cluster names, load reports to itself,
//! names of its own authority.

use super::*;
use xdskit::pb::{
    envoy::{
        config::{
            cluster::v3::{
                CircuitBreakers, Cluster, LoadBalancingPolicy, OutlierDetection,
                circuit_breakers::Thresholds,
                cluster::{
                    ClusterDiscoveryType, CommonLbConfig, CustomClusterType, DiscoveryType, EdsClusterConfig,
                    LbConfig, LbPolicy, RingHashLbConfig,
                },
                load_balancing_policy::Policy,
            },
            core::v3::{HealthStatus, HealthStatusSet, Locality, Metadata, TypedExtensionConfig},
            endpoint::v3::{
                ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
                cluster_load_assignment::{Policy as DropPolicy, policy::DropOverload},
                lb_endpoint::HostIdentifier,
            },
            listener::v3::{ApiListener, Filter, FilterChain, FilterChainMatch, Listener, filter},
            route::v3::{
                RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
                WeightedCluster,
                retry_policy::RetryBackOff,
                route::Action,
                route_action::{
                    ClusterSpecifier, HashPolicy, MaxStreamDuration,
                    hash_policy::{FilterState, Header, PolicySpecifier},
                },
                route_match::PathSpecifier,
                weighted_cluster::ClusterWeight,
            },
        },
        extensions::{
            clusters::aggregate::v3::ClusterConfig,
            filters::network::http_connection_manager::v3::{Rds, http_connection_manager::RouteSpecifier},
            load_balancing_policies::{
                client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
                round_robin::v3::RoundRobin, wrr_locality::v3::WrrLocality,
            },
            transport_sockets::tls::v3::{
                CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
                DownstreamTlsContext, UpstreamTlsContext, common_tls_context::ValidationContextType,
            },
        },
        r#type::{
            matcher::v3::{StringMatcher, string_matcher::MatchPattern},
            v3::FractionalPercent,
        },
    },
    google::protobuf::{BoolValue, Duration, UInt64Value},
};

pub(crate) fn mesh() -> Mesh {
    let routes_of_mesh = "xdstp://traffic-director-global.xds.googleapis.com/envoy.config.route.v3.RouteConfiguration/123456/mesh/shop/cart";
    let mut resources = vec![
        client_listener("payments:8443", "URL_MAP/123456_url-map-payments_0_payments:8443"),
        client_listener(CART, routes_of_mesh),
        server_listener(),
        split(),
        routes(routes_of_mesh, "cart", vec![forward(ClusterSpecifier::Cluster(CART_CLUSTER.into()))]),
        service(CLUSTERS[0], weighted_by_load()),
        service(CLUSTERS[1], by_ring()),
        service(CART_CLUSTER, |cluster| {
            cluster.eds_cluster_config =
                Some(EdsClusterConfig { eds_config: itself(), service_name: CART_ENDPOINTS.into() });
        }),
        failover(),
        external(),
    ];
    let assigned = [CLUSTERS[0], CLUSTERS[1], CART_ENDPOINTS];
    resources.extend(assigned.iter().enumerate().map(|(i, name)| assignment(name, i)));
    Mesh {
        resources,
        bootstrap: BOOTSTRAP,
        targets: vec![
            ("xds:///payments:8443", vec![CLUSTERS[0], CLUSTERS[1], FAILOVER, EXTERNAL]),
            ("xds://traffic-director-global.xds.googleapis.com/cart", vec![CART_CLUSTER]),
        ],
        served: vec!["grpc/server?xds.resource.listening_address=0.0.0.0:8443"],
    }
}

fn client_listener(name: &str, routes: &str) -> Sent {
    let rds = Rds { config_source: ads(), route_config_name: routes.into() };
    let manager = manager(&HttpConnectionManager {
        http_filters: vec![fault(), router()],
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        ..HttpConnectionManager::default()
    });
    let api_listener = Some(ApiListener { api_listener: Some(manager) });
    let listener = Listener { name: name.into(), api_listener, ..Listener::default() };
    resource(LISTENER, name, &listener, b"")
}

/// Nine of ten requests of one method to a service, by weight; other requests to a service with a failover.
fn split() -> Sent {
    let part = |name: &str, weight| ClusterWeight {
        name: name.into(),
        weight: number(weight),
        ..Default::default()
    };
    let weighted = forward(ClusterSpecifier::WeightedClusters(WeightedCluster {
        clusters: vec![part(CLUSTERS[0], 90), part(CLUSTERS[1], 10), part(EXTERNAL, 0)],
        total_weight: number(100),
    }));
    let path = PathSpecifier::Path("/payments.Payments/Pay".into());
    let pay = Route {
        r#match: Some(RouteMatch { path_specifier: Some(path), ..RouteMatch::default() }),
        ..weighted
    };
    let rest = forward(ClusterSpecifier::Cluster(FAILOVER.into()));
    routes("URL_MAP/123456_url-map-payments_0_payments:8443", "payments:8443", vec![pay, rest])
}

fn routes(name: &str, domain: &str, routes: Vec<Route>) -> Sent {
    let virtual_host = VirtualHost {
        name: format!("{domain}_vhost"),
        domains: vec![domain.into(), "*.svc.internal".into()],
        routes,
        ..VirtualHost::default()
    };
    let message = RouteConfiguration {
        name: name.into(),
        virtual_hosts: vec![virtual_host],
        ..RouteConfiguration::default()
    };
    resource(ROUTES, name, &message, b"")
}

fn forward(clusters: ClusterSpecifier) -> Route {
    let header = Header { header_name: "x-user".into(), regex_rewrite: None };
    let channel = FilterState { key: "io.grpc.channel_id".into() };
    let hash = |specifier, terminal| HashPolicy { policy_specifier: Some(specifier), terminal };
    let seconds = |seconds| Some(Duration { seconds, nanos: 0 });
    Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix(String::new())),
            case_sensitive: Some(BoolValue { value: true }),
            ..RouteMatch::default()
        }),
        action: Some(Action::Route(RouteAction {
            cluster_specifier: Some(clusters),
            hash_policy: vec![
                hash(PolicySpecifier::Header(header), true),
                hash(PolicySpecifier::FilterState(channel), false),
            ],
            max_stream_duration: Some(MaxStreamDuration {
                max_stream_duration: seconds(30),
                grpc_timeout_header_max: None,
            }),
            retry_policy: Some(RetryPolicy {
                retry_on: "unavailable,resource-exhausted".into(),
                num_retries: number(3),
                retry_back_off: Some(RetryBackOff { base_interval: seconds(1), max_interval: seconds(10) }),
                ..RetryPolicy::default()
            }),
            ..RouteAction::default()
        })),
        ..Route::default()
    }
}

fn service(name: &str, edit: impl FnOnce(&mut Cluster)) -> Sent {
    let thresholds = Thresholds { max_requests: number(500), ..Thresholds::default() };
    let labels = texts([("service_name", "payments"), ("service_namespace", "shop")]);
    let about = texts([("backend_service_name", "payments"), ("backend_service_project_number", "123456")]);
    let mut cluster = Cluster {
        name: name.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: ads(), service_name: String::new() }),
        circuit_breakers: Some(CircuitBreakers { thresholds: vec![thresholds], ..Default::default() }),
        outlier_detection: Some(OutlierDetection {
            enforcing_success_rate: number(100),
            success_rate_request_volume: number(100),
            enforcing_failure_percentage: number(0),
            ..OutlierDetection::default()
        }),
        common_lb_config: Some(CommonLbConfig {
            override_host_status: Some(HealthStatusSet {
                statuses: [HealthStatus::Unknown, HealthStatus::Healthy, HealthStatus::Draining]
                    .map(Into::into)
                    .into(),
            }),
            ..Default::default()
        }),
        transport_socket: tls(UPSTREAM_TLS, &upstream_tls()),
        lrs_server: itself(),
        lrs_report_endpoint_metrics: vec!["cpu_utilization".into(), "named_metrics.*".into()],
        metadata: Some(Metadata {
            filter_metadata: [
                ("com.google.csm.telemetry_labels".to_owned(), labels),
                ("com.google.trafficdirector".to_owned(), about),
            ]
            .into(),
            ..Metadata::default()
        }),
        ..Cluster::default()
    };
    edit(&mut cluster);
    resource(CLUSTER, name, &cluster, &[0x22, 0x02, 0x08, 0x1e])
}

/// Weighted by the load that endpoints report, with the simplest policy for clients that do not support it.
fn weighted_by_load() -> impl FnOnce(&mut Cluster) {
    let policy = |name: &str, config: Any| Policy {
        typed_extension_config: Some(TypedExtensionConfig { name: name.into(), typed_config: Some(config) }),
    };
    let in_each_locality = |inner| {
        let picking = LoadBalancingPolicy { policies: vec![inner] };
        policy(
            "envoy.wrr_locality",
            any(WRR_LOCALITY, &WrrLocality { endpoint_picking_policy: Some(picking) }),
        )
    };
    let by_load = ClientSideWeightedRoundRobin {
        enable_oob_load_report: Some(BoolValue { value: false }),
        ..ClientSideWeightedRoundRobin::default()
    };
    let newer = policy("td.next", any("google.trafficdirector.lb.v9.Next", &RoundRobin::default()));
    let policies = vec![
        newer,
        in_each_locality(policy("envoy.client_side_weighted_round_robin", any(BY_LOAD, &by_load))),
        in_each_locality(policy("envoy.round_robin", any(ROUND_ROBIN, &RoundRobin::default()))),
    ];
    |cluster| {
        cluster.load_balancing_policy = Some(LoadBalancingPolicy { policies });
        cluster.lb_policy = LbPolicy::LoadBalancingPolicyConfig.into();
    }
}

fn by_ring() -> impl FnOnce(&mut Cluster) {
    |cluster| {
        cluster.lb_policy = LbPolicy::RingHash.into();
        cluster.lb_config = Some(LbConfig::RingHashLbConfig(RingHashLbConfig {
            minimum_ring_size: Some(UInt64Value { value: 1024 }),
            maximum_ring_size: Some(UInt64Value { value: 8_388_608 }),
            ..RingHashLbConfig::default()
        }));
    }
}

fn failover() -> Sent {
    let config = ClusterConfig { clusters: vec![CLUSTERS[0].into(), EXTERNAL.into()] };
    let cluster = Cluster {
        name: FAILOVER.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(CustomClusterType {
            name: "envoy.clusters.aggregate".into(),
            typed_config: Some(any(AGGREGATE, &config)),
        })),
        lb_policy: LbPolicy::ClusterProvided.into(),
        ..Cluster::default()
    };
    resource(CLUSTER, FAILOVER, &cluster, b"")
}

fn external() -> Sent {
    let endpoint = Endpoint { address: address("localhost", 443), ..Endpoint::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
    let locality = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() };
    let cluster = Cluster {
        name: EXTERNAL.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::LogicalDns.into())),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: EXTERNAL.into(),
            endpoints: vec![locality],
            ..ClusterLoadAssignment::default()
        }),
        ..Cluster::default()
    };
    resource(CLUSTER, EXTERNAL, &cluster, b"")
}

/// Two zones, then another region; some requests are dropped; one endpoint is draining.
fn assignment(name: &str, number_of_it: usize) -> Sent {
    let locality = |zone: &str, priority: u32, hosts: &[u32]| LocalityLbEndpoints {
        locality: Some(Locality {
            region: zone.rsplit_once('-').expect("region and zone").0.into(),
            zone: zone.into(),
            sub_zone: format!("jf:{zone}_7"),
        }),
        lb_endpoints: hosts
            .iter()
            .map(|host| endpoint(&format!("10.{number_of_it}.{priority}.{host}")))
            .collect(),
        load_balancing_weight: number(hosts.len() as u32 * 10),
        priority,
        ..LocalityLbEndpoints::default()
    };
    let mut away = locality("us-central1-a", 1, &[4]);
    away.lb_endpoints[0].health_status = HealthStatus::Draining.into();
    let drop_overloads = vec![DropOverload {
        category: "throttle".into(),
        drop_percentage: Some(FractionalPercent { numerator: 5, denominator: 0 }),
    }];
    let assignment = ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: vec![
            locality("europe-west1-b", 0, &[1, 2]),
            locality("europe-west1-c", 0, &[3]),
            away,
            LocalityLbEndpoints { load_balancing_weight: None, ..locality("europe-west1-d", 0, &[9]) },
        ],
        policy: Some(DropPolicy { drop_overloads, ..DropPolicy::default() }),
    };
    resource(ENDPOINTS, name, &assignment, b"")
}

fn endpoint(host: &str) -> LbEndpoint {
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: address(host, 8443),
            ..Endpoint::default()
        })),
        health_status: HealthStatus::Healthy.into(),
        load_balancing_weight: number(1),
        ..LbEndpoint::default()
    }
}

fn instance(certificate: &str) -> Option<CertificateProviderPluginInstance> {
    Some(CertificateProviderPluginInstance {
        instance_name: "google_cloud_private_spiffe".into(),
        certificate_name: certificate.into(),
    })
}

fn upstream_tls() -> UpstreamTlsContext {
    let account = StringMatcher {
        match_pattern: Some(MatchPattern::Exact(
            "spiffe://123456.global.workload.id.goog/ns/shop/sa/pay".into(),
        )),
        ..StringMatcher::default()
    };
    UpstreamTlsContext {
        common_tls_context: Some(common_tls(vec![account])),
        ..UpstreamTlsContext::default()
    }
}

fn common_tls(match_subject_alt_names: Vec<StringMatcher>) -> CommonTlsContext {
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: instance("ROOTCA"),
        match_subject_alt_names,
        ..CertificateValidationContext::default()
    };
    CommonTlsContext {
        tls_certificate_provider_instance: instance("DEFAULT"),
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        alpn_protocols: vec!["h2".into()],
        ..CommonTlsContext::default()
    }
}

/// Plaintext for health checks from the host itself, mutual TLS for other connections.
fn server_listener() -> Sent {
    use xdskit::pb::envoy::config::listener::v3::filter_chain_match::ConnectionSourceType;
    let context = DownstreamTlsContext {
        common_tls_context: Some(common_tls(Vec::new())),
        require_client_certificate: Some(BoolValue { value: true }),
        ..DownstreamTlsContext::default()
    };
    let secured = FilterChain {
        transport_socket: tls(DOWNSTREAM_TLS, &context),
        ..chain("mtls", FilterChainMatch::default())
    };
    let local = FilterChainMatch {
        source_type: ConnectionSourceType::SameIpOrLoopback.into(),
        ..FilterChainMatch::default()
    };
    let listener = Listener {
        name: "grpc/server?xds.resource.listening_address=0.0.0.0:8443".into(),
        address: address("0.0.0.0", 8443),
        filter_chains: vec![chain("health", local)],
        default_filter_chain: Some(secured),
        ..Listener::default()
    };
    resource(LISTENER, &listener.name, &listener, b"")
}

fn chain(name: &str, filter_chain_match: FilterChainMatch) -> FilterChain {
    let routes = everything("default_inbound_config");
    let manager = manager(&HttpConnectionManager {
        http_filters: vec![router()],
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        ..HttpConnectionManager::default()
    });
    FilterChain {
        name: name.into(),
        filter_chain_match: Some(filter_chain_match),
        filters: vec![Filter {
            name: "envoy.http_connection_manager".into(),
            config_type: Some(filter::ConfigType::TypedConfig(manager)),
        }],
        ..FilterChain::default()
    }
}

const CART: &str = "xdstp://traffic-director-global.xds.googleapis.com/envoy.config.listener.v3.Listener/123456/mesh/shop/cart";
const CART_CLUSTER: &str = "xdstp://traffic-director-global.xds.googleapis.com/envoy.config.cluster.v3.Cluster/123456/mesh/shop/cart";
const CART_ENDPOINTS: &str = "xdstp://traffic-director-global.xds.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment/123456/mesh/shop/cart";
const CLUSTERS: [&str; 2] = [
    "cloud-internal-istio:cloud_mp_123456_1111111111111111111",
    "cloud-internal-istio:cloud_mp_123456_2222222222222222222",
];
const FAILOVER: &str = "cloud-internal-istio:cloud_mp_123456_3333333333333333333";
const EXTERNAL: &str = "cloud-internal-istio:cloud_mp_123456_4444444444444444444";

const AGGREGATE: &str = "envoy.extensions.clusters.aggregate.v3.ClusterConfig";
const WRR_LOCALITY: &str = "envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality";
const BY_LOAD: &str = "envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin";
const ROUND_ROBIN: &str = "envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin";

/// The bootstrap of its generator, without the server.
const BOOTSTRAP: &str = r#"{
    "node": {
        "id": "projects/123456/networks/default/nodes/6f3a",
        "cluster": "cluster",
        "metadata": {"TRAFFICDIRECTOR_NETWORK_NAME": "default", "TRAFFICDIRECTOR_GCP_PROJECT_NUMBER": "123456"},
        "locality": {"zone": "europe-west1-b"}
    },
    "authorities": {
        "traffic-director-global.xds.googleapis.com": {
            "client_listener_resource_name_template": "xdstp://traffic-director-global.xds.googleapis.com/envoy.config.listener.v3.Listener/123456/mesh/shop/%s"
        }
    },
    "certificate_providers": {
        "google_cloud_private_spiffe": {
            "plugin_name": "file_watcher",
            "config": {
                "certificate_file": "/var/run/secrets/workload-spiffe-credentials/certificates.pem",
                "private_key_file": "/var/run/secrets/workload-spiffe-credentials/private_key.pem",
                "ca_certificate_file": "/var/run/secrets/workload-spiffe-credentials/ca_certificates.pem",
                "refresh_interval": "600s"
            }
        }
    },
    "server_listener_resource_name_template": "grpc/server?xds.resource.listening_address=%s"
}"#;
