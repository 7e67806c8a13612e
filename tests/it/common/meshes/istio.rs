//! The configuration that Istio sends to proxyless gRPC: listeners with names of services, below them
//! `outbound|port|subset|host`, and mutual TLS by the older fields.

use super::*;
use xdskit::pb::{
    envoy::{
        config::{
            cluster::v3::{
                CircuitBreakers, Cluster, OutlierDetection,
                circuit_breakers::Thresholds,
                cluster::{ClusterDiscoveryType, DiscoveryType, EdsClusterConfig},
            },
            core::v3::{Locality, Metadata, RoutingPriority},
            endpoint::v3::{
                ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
            },
            listener::v3::{ApiListener, Filter, FilterChain, FilterChainMatch, Listener, filter},
            rbac::v3::{
                self as rbac, Permission, Policy, Principal, permission, principal,
                rbac::Action as RbacAction,
            },
            route::v3::{
                HeaderMatcher, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
                WeightedCluster,
                header_matcher::HeaderMatchSpecifier,
                route::Action,
                route_action::{ClusterSpecifier, MaxStreamDuration},
                route_match::PathSpecifier,
                weighted_cluster::ClusterWeight,
            },
        },
        extensions::{
            filters::{
                http::rbac::v3::Rbac,
                network::http_connection_manager::v3::{Rds, http_connection_manager::RouteSpecifier},
            },
            transport_sockets::tls::v3::{
                CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, UpstreamTlsContext,
                common_tls_context::{
                    CertificateProviderInstance, CombinedCertificateValidationContext, ValidationContextType,
                },
            },
        },
        r#type::matcher::v3::{PathMatcher, StringMatcher, path_matcher, string_matcher::MatchPattern},
    },
    google::protobuf::{BoolValue, Duration},
};

pub(crate) fn mesh() -> Mesh {
    let clusters = [
        "outbound|8080||echo.shop.svc.cluster.local",
        "outbound|8080|v1|echo.shop.svc.cluster.local",
        "outbound|8080|v2|echo.shop.svc.cluster.local",
        "outbound|9090||echo.shop.svc.cluster.local",
        "outbound|8080||cart.shop.svc.cluster.local",
    ];
    let mut resources = vec![
        outbound("echo.shop.svc.cluster.local", 8080),
        outbound("echo.shop.svc.cluster.local", 9090),
        outbound("cart.shop.svc.cluster.local", 8080),
        subsets("echo.shop.svc.cluster.local", 8080),
        routes("echo.shop.svc.cluster.local", 9090, &[forward(clusters[3])]),
        routes("cart.shop.svc.cluster.local", 8080, &[forward(clusters[4])]),
        inbound(8080, Some(downstream_tls())),
        inbound(9090, None),
    ];
    resources.extend(clusters.map(cluster));
    resources.extend(clusters.iter().enumerate().map(|(i, name)| assignment(name, i)));
    Mesh {
        resources,
        bootstrap: BOOTSTRAP,
        targets: vec![
            ("xds:///echo.shop.svc.cluster.local:8080", clusters[..3].to_vec()),
            ("xds:///echo.shop.svc.cluster.local:9090", vec![clusters[3]]),
            ("xds:///cart.shop.svc.cluster.local:8080", vec![clusters[4]]),
        ],
        served: vec![
            "xds.istio.io/grpc/lds/inbound/0.0.0.0:8080",
            "xds.istio.io/grpc/lds/inbound/0.0.0.0:9090",
        ],
    }
}

fn outbound(host: &str, port: u32) -> Sent {
    let rds = Rds { config_source: ads(), route_config_name: format!("outbound|{port}||{host}") };
    let manager = manager(&HttpConnectionManager {
        http_filters: vec![fault(), router()],
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        ..HttpConnectionManager::default()
    });
    let listener = Listener {
        name: format!("{host}:{port}"),
        // In addition to the listener for clients, the address that proxies would intercept.
        address: address("10.96.0.17", port),
        api_listener: Some(ApiListener { api_listener: Some(manager) }),
        ..Listener::default()
    };
    resource(LISTENER, &listener.name, &listener, b"\x80\x01\x02")
}

/// A virtual service with two subsets: a header selects one, which also gets a tenth of the other requests.
fn subsets(host: &str, port: u32) -> Sent {
    let name = |subset: &str| format!("outbound|{port}|{subset}|{host}");
    let mut canary = forward(&name("v2"));
    let header = HeaderMatcher {
        name: "x-canary".into(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exactly("yes"))),
        ..HeaderMatcher::default()
    };
    canary.r#match.as_mut().expect("it has one").headers.push(header);
    canary
        .typed_per_filter_config
        .insert("envoy.filters.http.fault".into(), any(FAULT, &HttpFault::default()));
    let part =
        |subset, weight| ClusterWeight { name: name(subset), weight: number(weight), ..Default::default() };
    let split = ClusterSpecifier::WeightedClusters(WeightedCluster {
        clusters: vec![part("v1", 90), part("v2", 10)],
        total_weight: number(100),
    });
    let rest = forward(&name(""));
    let reviews = Route {
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/shop.Echo/".into())),
            ..RouteMatch::default()
        }),
        action: Some(action(split)),
        ..Route::default()
    };
    routes(host, port, &[canary, reviews, rest])
}

fn routes(host: &str, port: u32, routes: &[Route]) -> Sent {
    let short = host.split('.').next().expect("its first label");
    let names = [host, short, "10.96.0.17"];
    let virtual_host = VirtualHost {
        name: format!("{host}:{port}"),
        domains: names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}:{port}")]).collect(),
        routes: routes.to_vec(),
        ..VirtualHost::default()
    };
    let routes = RouteConfiguration {
        name: format!("outbound|{port}||{host}"),
        virtual_hosts: vec![virtual_host],
        ..RouteConfiguration::default()
    };
    resource(ROUTES, &routes.name, &routes, &[0x3a, 0x02, 0x08, 0x00])
}

fn forward(cluster: &str) -> Route {
    Route {
        name: "default".into(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".into())),
            ..RouteMatch::default()
        }),
        action: Some(action(ClusterSpecifier::Cluster(cluster.into()))),
        ..Route::default()
    }
}

fn action(clusters: ClusterSpecifier) -> Action {
    Action::Route(RouteAction {
        cluster_specifier: Some(clusters),
        retry_policy: Some(RetryPolicy {
            retry_on: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes".into(),
            num_retries: number(2),
            ..RetryPolicy::default()
        }),
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: Some(Duration::default()),
            grpc_timeout_header_max: Some(Duration::default()),
        }),
        ..RouteAction::default()
    })
}

fn cluster(name: &str) -> Sent {
    let host = name.rsplit('|').next().expect("its last part");
    let account = format!("spiffe://cluster.local/ns/shop/sa/{}", host.split('.').next().expect("a label"));
    let thresholds = Thresholds {
        max_requests: number(u32::MAX),
        priority: RoutingPriority::Default.into(),
        ..Thresholds::default()
    };
    let cluster = Cluster {
        name: name.into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: ads(), service_name: name.into() }),
        circuit_breakers: Some(CircuitBreakers { thresholds: vec![thresholds], ..Default::default() }),
        outlier_detection: Some(OutlierDetection {
            interval: Some(Duration { seconds: 10, nanos: 0 }),
            base_ejection_time: Some(Duration { seconds: 30, nanos: 0 }),
            max_ejection_percent: number(10),
            enforcing_success_rate: number(0),
            ..OutlierDetection::default()
        }),
        transport_socket: tls(UPSTREAM_TLS, &upstream_tls(&account)),
        metadata: Some(Metadata {
            filter_metadata: [("istio".to_owned(), texts([("config", "/apis/networking/echo")]))].into(),
            ..Metadata::default()
        }),
        ..Cluster::default()
    };
    // With a connect timeout, which is a setting of the application here.
    resource(CLUSTER, name, &cluster, &[0x22, 0x02, 0x08, 0x0a])
}

/// STRICT: the workload's own certificate, and a peer with the service's account.
fn upstream_tls(account: &str) -> UpstreamTlsContext {
    UpstreamTlsContext { common_tls_context: Some(common_tls(&[account])), ..UpstreamTlsContext::default() }
}

fn downstream_tls() -> DownstreamTlsContext {
    DownstreamTlsContext {
        common_tls_context: Some(common_tls(&[])),
        require_client_certificate: Some(BoolValue { value: true }),
        ..DownstreamTlsContext::default()
    }
}

fn common_tls(accounts: &[&str]) -> CommonTlsContext {
    let instance = |certificate: &str| {
        Some(CertificateProviderInstance {
            instance_name: "default".into(),
            certificate_name: certificate.into(),
        })
    };
    let validation = CombinedCertificateValidationContext {
        default_validation_context: Some(CertificateValidationContext {
            match_subject_alt_names: accounts.iter().map(|account| exactly(account)).collect(),
            ..CertificateValidationContext::default()
        }),
        validation_context_certificate_provider_instance: instance("ROOTCA"),
        ..CombinedCertificateValidationContext::default()
    };
    CommonTlsContext {
        tls_certificate_certificate_provider_instance: instance("default"),
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(validation)),
        ..CommonTlsContext::default()
    }
}

/// Two zones with a failover to another region; the localities are weighted by their endpoints.
fn assignment(cluster: &str, number_of_it: usize) -> Sent {
    let locality = |zone: &str, priority: u32, hosts: &[u32]| LocalityLbEndpoints {
        locality: Some(Locality {
            region: zone.split('-').next().expect("a region").into(),
            zone: zone.into(),
            sub_zone: String::new(),
        }),
        lb_endpoints: hosts
            .iter()
            .map(|host| endpoint(&format!("10.{number_of_it}.{priority}.{host}")))
            .collect(),
        load_balancing_weight: number(hosts.len() as u32),
        priority,
        ..LocalityLbEndpoints::default()
    };
    let assignment = ClusterLoadAssignment {
        cluster_name: cluster.into(),
        endpoints: vec![
            locality("eu-a", 0, &[1, 2]),
            locality("eu-b", 0, &[3]),
            locality("us-a", 1, &[4]),
            // Endpoints without a locality are in an empty one.
            LocalityLbEndpoints { locality: Some(Locality::default()), ..locality("eu-c", 1, &[5]) },
        ],
        ..ClusterLoadAssignment::default()
    };
    resource(ENDPOINTS, cluster, &assignment, b"")
}

fn endpoint(host: &str) -> LbEndpoint {
    let metadata = [
        ("envoy.transport_socket_match".to_owned(), texts([("tlsMode", "istio")])),
        ("istio".to_owned(), texts([("workload", "echo;shop;echo;v1;Kubernetes")])),
    ];
    LbEndpoint {
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: address(host, 8080),
            ..Endpoint::default()
        })),
        metadata: Some(Metadata { filter_metadata: metadata.into(), ..Metadata::default() }),
        load_balancing_weight: number(1),
        ..LbEndpoint::default()
    }
}

/// A server's listener: one chain for all connections, with inline routes.
fn inbound(port: u32, tls_context: Option<DownstreamTlsContext>) -> Sent {
    let routes = everything("inbound");
    let manager = manager(&HttpConnectionManager {
        http_filters: vec![denied(), allowed(), router()],
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        ..HttpConnectionManager::default()
    });
    let chain = FilterChain {
        name: format!("inbound-[*]:{port}"),
        filter_chain_match: tls_context.is_none().then(FilterChainMatch::default),
        filters: vec![Filter {
            name: format!("inbound-hcm[*]:{port}"),
            config_type: Some(filter::ConfigType::TypedConfig(manager)),
        }],
        transport_socket: tls_context.and_then(|context| tls(DOWNSTREAM_TLS, &context)),
    };
    let listener = Listener {
        name: format!("xds.istio.io/grpc/lds/inbound/0.0.0.0:{port}"),
        address: address("0.0.0.0", port),
        filter_chains: vec![chain],
        ..Listener::default()
    };
    resource(LISTENER, &listener.name, &listener, b"\x80\x01\x01")
}

/// Denies one account one method.
fn denied() -> HttpFilter {
    let method = Permission {
        rule: Some(permission::Rule::UrlPath(PathMatcher {
            rule: Some(path_matcher::Rule::Path(exactly("/shop.Echo/Reset"))),
        })),
    };
    http_filter("envoy.filters.http.rbac.DENY", rules(RbacAction::Deny, method, "reporter"))
}

/// Allows another account all methods.
fn allowed() -> HttpFilter {
    let anything = Permission { rule: Some(permission::Rule::Any(true)) };
    http_filter("envoy.filters.http.rbac.ALLOW", rules(RbacAction::Allow, anything, "client"))
}

fn rules(action: RbacAction, permission: Permission, account: &str) -> Any {
    let name = format!("spiffe://cluster.local/ns/shop/sa/{account}");
    let authenticated = Principal {
        identifier: Some(principal::Identifier::Authenticated(principal::Authenticated {
            principal_name: Some(exactly(&name)),
        })),
    };
    let all = principal::Identifier::AndIds(principal::Set { ids: vec![authenticated] });
    let every = permission::Rule::AndRules(permission::Set { rules: vec![permission] });
    let policy = Policy {
        permissions: vec![Permission { rule: Some(every) }],
        principals: vec![Principal { identifier: Some(all) }],
        ..Policy::default()
    };
    let policies = [(format!("ns[shop]-policy[{account}]-rule[0]"), policy)].into();
    let rules = rbac::Rbac { action: action.into(), policies, ..rbac::Rbac::default() };
    any(RBAC, &Rbac { rules: Some(rules), ..Default::default() })
}

fn exactly(text: &str) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Exact(text.into())), ..StringMatcher::default() }
}

const RBAC: &str = "envoy.extensions.filters.http.rbac.v3.RBAC";

/// The bootstrap of Istio's agent, without the server.
const BOOTSTRAP: &str = r#"{
    "node": {
        "id": "sidecar~10.1.0.9~client.shop~shop.svc.cluster.local",
        "metadata": {"GENERATOR": "grpc", "NAMESPACE": "shop", "INSTANCE_IPS": "10.1.0.9"},
        "locality": {"region": "eu", "zone": "eu-a"}
    },
    "certificate_providers": {
        "default": {
            "plugin_name": "file_watcher",
            "config": {
                "certificate_file": "/var/lib/istio/data/cert-chain.pem",
                "private_key_file": "/var/lib/istio/data/key.pem",
                "ca_certificate_file": "/var/lib/istio/data/root-cert.pem",
                "refresh_interval": "900s"
            }
        }
    },
    "server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s"
}"#;
