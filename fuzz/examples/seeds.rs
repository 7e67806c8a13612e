//! Writes a corpus to start from: `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.
//!
//! Each message sets most of the fields that its type reads, so that a mutation of one byte reaches them.

#[path = "seeds/certificates.rs"]
mod certificates;
#[path = "seeds/listener.rs"]
mod listener;
#[path = "seeds/load_reports.rs"]
mod load_reports;
#[path = "../../tests/it/common/meshes/mod.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod meshes;
#[path = "seeds/texts.rs"]
mod texts;

use std::{collections::BTreeMap, fs, io, path::Path};

use prost::Message;
use xdskit::{
    fuzzing::Script,
    pb::{
        envoy::{
            config::{
                cluster::v3::{
                    CircuitBreakers, Cluster, LoadBalancingPolicy, OutlierDetection,
                    circuit_breakers::Thresholds,
                    cluster::{ClusterDiscoveryType, CustomClusterType, EdsClusterConfig, LbPolicy},
                    load_balancing_policy::Policy,
                },
                core::v3::{
                    Address, AggregatedConfigSource, ConfigSource, DataSource, HealthStatusSet, Locality,
                    Metadata, SelfConfigSource, SocketAddress, TransportSocket, TypedExtensionConfig,
                    address, config_source::ConfigSourceSpecifier, data_source::Specifier,
                    socket_address::PortSpecifier, transport_socket::ConfigType,
                },
                endpoint::v3::{
                    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
                    cluster_load_assignment::{Policy as DropPolicy, policy::DropOverload},
                    endpoint::AdditionalAddress,
                    lb_endpoint::HostIdentifier,
                },
                route::v3::{
                    HeaderMatcher, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch,
                    ScopedRouteConfiguration, VirtualHost, WeightedCluster,
                    header_matcher::HeaderMatchSpecifier, route, route_action::ClusterSpecifier,
                    route_match::PathSpecifier, scoped_route_configuration, weighted_cluster::ClusterWeight,
                },
            },
            extensions::{
                clusters::aggregate::v3::ClusterConfig,
                load_balancing_policies::{
                    client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
                    ring_hash::v3::RingHash, wrr_locality::v3::WrrLocality,
                },
                transport_sockets::tls::v3::{
                    CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
                    Secret, TlsCertificate, UpstreamTlsContext, common_tls_context::ValidationContextType,
                    secret,
                },
            },
            service::{
                discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource as Wrapper},
                runtime::v3::Runtime,
            },
            r#type::{
                matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
                v3::FractionalPercent,
            },
        },
        google::protobuf::{Any, Duration, ListValue, Struct, UInt32Value, Value, value::Kind},
        xds::r#type::v3::TypedStruct,
    },
    resource::{self, Context, Resource},
};

use listener::listener;
use texts::{BOOTSTRAP, ENVOY_JSON, ENVOY_YAML, NAMES};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let resources: &[(&str, usize, Vec<u8>)] = &[
        ("cluster-eds", 0, accepted::<resource::Cluster>(&eds_cluster())),
        ("cluster-policies", 0, accepted::<resource::Cluster>(&policies())),
        ("cluster-dns", 0, accepted::<resource::Cluster>(&dns_cluster())),
        ("cluster-aggregate", 0, accepted::<resource::Cluster>(&aggregate_cluster())),
        ("endpoints", 1, accepted::<resource::ClusterLoadAssignment>(&assignment())),
        ("secret-certificate", 2, accepted::<resource::Secret>(&certificate())),
        ("secret-validation", 2, accepted::<resource::Secret>(&validation_secret())),
        ("runtime", 3, accepted::<resource::Runtime>(&Runtime { name: "rt".into(), layer: Some(layer()) })),
        ("listener", 4, accepted::<resource::Listener>(&listener())),
        ("route", 5, accepted::<resource::RouteConfiguration>(&routes())),
        ("virtual-host", 6, accepted::<resource::VirtualHost>(&virtual_host())),
        ("scoped-route", 7, accepted::<resource::ScopedRouteConfiguration>(&scoped_route())),
    ];
    for (name, kind, message) in resources {
        seed(&corpus, name, *kind, message)?;
    }
    for (mesh, resources) in [("istio", meshes::istio::mesh()), ("td", meshes::traffic_director::mesh())] {
        for (i, sent) in resources.resources.iter().enumerate() {
            let kind = TARGETS.iter().position(|(_, type_url)| *type_url == sent.type_url);
            seed(&corpus, &format!("{mesh}-{i}"), kind.expect("a known type"), &sent.bytes)?;
        }
    }
    for (i, [kind, pattern, text]) in PATTERNS.iter().enumerate() {
        write(&corpus.join(format!("matcher/{i}")), format!("{kind}{pattern}{text}").as_bytes())?;
    }
    responses(&corpus)?;
    write(&corpus.join("bootstrap/full"), BOOTSTRAP.as_bytes())?;
    for (format, text) in [(1, TEXT), (2, YAML), (3, JSON)] {
        write(&corpus.join(format!("document/{format}")), &[&[format], text.as_bytes()].concat())?;
    }
    write(&corpus.join("envoy_bootstrap/yaml"), ENVOY_YAML.as_bytes())?;
    write(&corpus.join("envoy_bootstrap/json"), ENVOY_JSON.as_bytes())?;
    for (i, name) in NAMES.iter().enumerate() {
        write(&corpus.join(format!("name/{i}")), name.as_bytes())?;
    }
    for (name, input) in certificates::inputs() {
        write(&corpus.join("certificates").join(name), &input)?;
    }
    load_reports::inputs().iter().try_for_each(|(name, input)| write(&corpus.join(name), input))?;
    for seed in 0..8_u64 {
        let bytes = [&seed.to_le_bytes()[..], &Script::random_bytes(seed)].concat();
        write(&corpus.join(format!("operations/{seed}")), &bytes)?;
    }
    Ok(())
}

/// One for the target of its type, and one for the target of all types.
fn seed(corpus: &Path, name: &str, kind: usize, message: &[u8]) -> io::Result<()> {
    let (target, _) = TARGETS[kind];
    write(&corpus.join(target).join(name), &[&[0], message].concat())?;
    write(&corpus.join("structured").join(format!("{target}-{name}")), &[&[kind as u8, 0], message].concat())
}

/// One message for each type of a mesh, in both variants, with the names that the target watches.
fn responses(corpus: &Path) -> io::Result<()> {
    for (target, type_url) in TARGETS {
        let resources =
            meshes::istio::mesh().resources.into_iter().chain(meshes::traffic_director::mesh().resources);
        let of_type: Vec<_> = resources.filter(|sent| sent.type_url == *type_url).take(3).collect();
        let any = |sent: &meshes::Sent| Any { type_url: sent.type_url.clone(), value: sent.bytes.clone() };
        let sotw = DiscoveryResponse {
            version_info: "1".into(),
            nonce: "n".into(),
            type_url: (*type_url).into(),
            resources: of_type.iter().map(any).collect(),
            ..DiscoveryResponse::default()
        };
        let wrap = |sent: &meshes::Sent| Wrapper {
            name: "a".into(),
            version: "1".into(),
            resource: Some(any(sent)),
            ..Wrapper::default()
        };
        let delta = DeltaDiscoveryResponse {
            nonce: "n".into(),
            type_url: (*type_url).into(),
            resources: of_type.iter().take(1).map(wrap).collect(),
            removed_resources: vec!["b".into()],
            ..DeltaDiscoveryResponse::default()
        };
        for (variant, message) in [sotw.encode_to_vec(), delta.encode_to_vec()].iter().enumerate() {
            let length = u16::try_from(message.len()).expect("it is short").to_le_bytes();
            let twice = [&[variant as u8][..], &length, message, &length, message].concat();
            write(&corpus.join(format!("response/{target}-{variant}")), &twice)?;
        }
    }
    Ok(())
}

/// The targets of single types, by the number of the type in the target of all types.
const TARGETS: &[(&str, &str)] = &[
    ("cluster", resource::Cluster::TYPE_URL),
    ("endpoints", resource::ClusterLoadAssignment::TYPE_URL),
    ("secret", resource::Secret::TYPE_URL),
    ("runtime", resource::Runtime::TYPE_URL),
    ("listener", resource::Listener::TYPE_URL),
    ("route", resource::RouteConfiguration::TYPE_URL),
    ("virtual_host", resource::VirtualHost::TYPE_URL),
    ("scoped_route", resource::ScopedRouteConfiguration::TYPE_URL),
];

const PATTERNS: [[&str; 3]; 4] = [
    ["0", "*.shop.example", "cart.shop.example"],
    ["1", "/shop.Cart/", "/shop.Cart/Add"],
    ["2", "a", "ba"],
    ["4", "a+|b", "aa"],
];

/// A seed that is rejected would lead nowhere.
fn accepted<T: Resource>(message: &impl Message) -> Vec<u8> {
    let providers = ["ca", "id"].map(str::to_owned).into();
    let cx = Context::new().with_certificate_providers(&providers);
    let bytes = message.encode_to_vec();
    if let Err(invalid) = T::parse(&bytes.clone().into(), &cx) {
        panic!("{}: {invalid}", T::TYPE_URL);
    }
    bytes
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(path.parent().expect("below the corpus"))?;
    fs::write(path, bytes)
}

fn eds_cluster() -> Cluster {
    let thresholds = Thresholds { max_requests: value(100), ..Default::default() };
    let validation = Some(ValidationContextType::ValidationContext(validation()));
    let common = CommonTlsContext {
        validation_context_type: validation,
        tls_certificate_provider_instance: provider("id"),
        ..Default::default()
    };
    let tls =
        UpstreamTlsContext { common_tls_context: Some(common), sni: "shop".into(), ..Default::default() };
    Cluster {
        name: "shop".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(3)),
        eds_cluster_config: Some(EdsClusterConfig {
            eds_config: source(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
            service_name: "shop-eds".into(),
        }),
        circuit_breakers: Some(CircuitBreakers { thresholds: vec![thresholds], ..Default::default() }),
        outlier_detection: Some(OutlierDetection {
            interval: Some(Duration { seconds: 1, nanos: 5 }),
            enforcing_failure_percentage: value(50),
            max_ejection_percent: value(20),
            ..Default::default()
        }),
        transport_socket: Some(TransportSocket {
            name: "tls".into(),
            config_type: Some(ConfigType::TypedConfig(extension(
                "transport_sockets.tls.v3.UpstreamTlsContext",
                &tls,
            ))),
        }),
        lrs_server: source(ConfigSourceSpecifier::Self_(SelfConfigSource::default())),
        lrs_report_endpoint_metrics: vec!["cpu_utilization".into(), "named_metrics.a".into()],
        metadata: metadata(),
        common_lb_config: Some(xdskit::pb::envoy::config::cluster::v3::cluster::CommonLbConfig {
            override_host_status: Some(HealthStatusSet { statuses: vec![1, 3] }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn policies() -> Cluster {
    let typed = TypedStruct { type_url: "t/my.Policy".into(), value: Some(layer()) };
    let typed = Any { type_url: "t/xds.type.v3.TypedStruct".into(), value: typed.encode_to_vec().into() };
    let ring = lb("ring_hash.v3.RingHash", &RingHash { hash_function: 1, ..Default::default() });
    let weighted = ClientSideWeightedRoundRobin {
        blackout_period: Some(Duration { seconds: 1, nanos: 0 }),
        ..Default::default()
    };
    let weighted = lb("client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin", &weighted);
    let inner = WrrLocality { endpoint_picking_policy: Some(list([ring, weighted])) };
    let outer = lb("wrr_locality.v3.WrrLocality", &inner);
    let unknown = Any { type_url: "t/a.B".into(), value: Default::default() };
    Cluster { load_balancing_policy: Some(list([unknown, outer, typed])), ..eds_cluster() }
}

fn dns_cluster() -> Cluster {
    let endpoint = Endpoint { address: address("shop.local", 443), ..Default::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..Default::default() };
    let locality = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() };
    Cluster {
        name: "dns".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(2)),
        lb_policy: LbPolicy::LeastRequest as i32,
        load_assignment: Some(ClusterLoadAssignment { endpoints: vec![locality], ..Default::default() }),
        ..Default::default()
    }
}

fn aggregate_cluster() -> Cluster {
    let config = extension(
        "clusters.aggregate.v3.ClusterConfig",
        &ClusterConfig { clusters: vec!["a".into(), "b".into()] },
    );
    let custom = CustomClusterType { name: "aggregate".into(), typed_config: Some(config) };
    Cluster {
        name: "aggregate".into(),
        cluster_discovery_type: Some(ClusterDiscoveryType::ClusterType(custom)),
        lb_policy: LbPolicy::RingHash as i32,
        ..Default::default()
    }
}

fn assignment() -> ClusterLoadAssignment {
    let endpoint = |ip: &str, health_status| {
        let endpoint = Endpoint {
            address: address(ip, 80),
            hostname: "a.shop".into(),
            additional_addresses: vec![AdditionalAddress {
                address: address("2001:db8::1", health_status as u32),
            }],
        };
        LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
            health_status,
            load_balancing_weight: value(3),
            metadata: metadata(),
        }
    };
    let locality = |zone: &str, priority, lb_endpoints| LocalityLbEndpoints {
        locality: Some(Locality { zone: zone.into(), ..Default::default() }),
        load_balancing_weight: value(2),
        priority,
        lb_endpoints,
        ..Default::default()
    };
    let drop = DropOverload {
        category: "throttle".into(),
        drop_percentage: Some(FractionalPercent { numerator: 1, denominator: 1 }),
    };
    ClusterLoadAssignment {
        cluster_name: "shop-eds".into(),
        endpoints: vec![
            locality("a", 0, vec![endpoint("10.0.0.1", 1), endpoint("10.0.0.2", 2)]),
            locality("b", 1, vec![endpoint("10.0.0.3", 3)]),
        ],
        policy: Some(DropPolicy { drop_overloads: vec![drop], ..Default::default() }),
    }
}

fn routes() -> RouteConfiguration {
    RouteConfiguration { name: "edge".into(), virtual_hosts: vec![virtual_host()], ..Default::default() }
}

fn virtual_host() -> VirtualHost {
    let header = HeaderMatcher {
        name: "x-canary".into(),
        header_match_specifier: Some(HeaderMatchSpecifier::SafeRegexMatch(RegexMatcher {
            regex: "a+|b".into(),
        })),
        ..Default::default()
    };
    let part =
        |name: &str, weight| ClusterWeight { name: name.into(), weight: value(weight), ..Default::default() };
    let clusters = vec![part("a", 90), part("b", 10)];
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::WeightedClusters(WeightedCluster {
            clusters,
            total_weight: None,
        })),
        retry_policy: Some(RetryPolicy { retry_on: "unavailable,cancelled".into(), ..Default::default() }),
        ..Default::default()
    };
    let route = Route {
        name: "r".into(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/shop.Cart/".into())),
            headers: vec![header],
            ..Default::default()
        }),
        action: Some(route::Action::Route(action)),
        ..Default::default()
    };
    VirtualHost {
        name: "shop".into(),
        domains: vec!["shop".into(), "*.shop".into()],
        routes: vec![route],
        ..Default::default()
    }
}

fn scoped_route() -> ScopedRouteConfiguration {
    use scoped_route_configuration::{
        Key,
        key::{Fragment, fragment},
    };
    let fragment = Fragment { r#type: Some(fragment::Type::StringKey("blue".into())) };
    ScopedRouteConfiguration {
        name: "scope".into(),
        route_configuration_name: "edge".into(),
        key: Some(Key { fragments: vec![fragment] }),
        ..Default::default()
    }
}

fn certificate() -> Secret {
    let certificate = TlsCertificate {
        certificate_chain: data(Specifier::InlineString("chain".into())),
        private_key: data(Specifier::Filename("/key".into())),
        password: data(Specifier::EnvironmentVariable("PASSWORD".into())),
        ocsp_staple: data(Specifier::InlineBytes(vec![0x30, 3].into())),
        ..TlsCertificate::default()
    };
    Secret { name: "s".into(), r#type: Some(secret::Type::TlsCertificate(certificate)) }
}

fn validation_secret() -> Secret {
    Secret { name: "s".into(), r#type: Some(secret::Type::ValidationContext(validation())) }
}

fn validation() -> CertificateValidationContext {
    let matcher = |pattern| StringMatcher { match_pattern: Some(pattern), ignore_case: true };
    CertificateValidationContext {
        ca_certificate_provider_instance: provider("ca"),
        match_subject_alt_names: vec![
            matcher(MatchPattern::Prefix("spiffe://a/".into())),
            matcher(MatchPattern::SafeRegex(RegexMatcher { regex: "a|b[c-d]+".into() })),
        ],
        ..Default::default()
    }
}

fn metadata() -> Option<Metadata> {
    let proxy = address("10.9.9.9", 3128).expect("an address");
    let proxy =
        Any { type_url: "t/envoy.config.core.v3.Address".into(), value: proxy.encode_to_vec().into() };
    Some(Metadata {
        filter_metadata: [("envoy.lb".to_owned(), layer())].into(),
        typed_filter_metadata: [("envoy.http11_proxy_transport_socket.proxy_address".to_owned(), proxy)]
            .into(),
    })
}

fn layer() -> Struct {
    let value = |kind| Value { kind: Some(kind) };
    let list = ListValue { values: vec![value(Kind::BoolValue(true)), value(Kind::NumberValue(1.5))] };
    let fields = BTreeMap::from([
        ("hash_key".to_owned(), value(Kind::StringValue("k".into()))),
        ("list".to_owned(), value(Kind::ListValue(list))),
        ("none".to_owned(), value(Kind::NullValue(0))),
    ]);
    Struct { fields }
}

fn list(policies: impl IntoIterator<Item = Any>) -> LoadBalancingPolicy {
    let policy = |any| Policy {
        typed_extension_config: Some(TypedExtensionConfig { name: "p".into(), typed_config: Some(any) }),
    };
    LoadBalancingPolicy { policies: policies.into_iter().map(policy).collect() }
}

fn lb(name: &str, message: &impl Message) -> Any {
    extension(&format!("load_balancing_policies.{name}"), message)
}

fn extension(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("t/envoy.extensions.{name}"), value: message.encode_to_vec().into() }
}

fn address(host: &str, port: u32) -> Option<Address> {
    let socket = SocketAddress {
        address: host.into(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    };
    Some(Address { address: Some(address::Address::SocketAddress(socket)) })
}

fn source(specifier: ConfigSourceSpecifier) -> Option<ConfigSource> {
    Some(ConfigSource { config_source_specifier: Some(specifier), ..Default::default() })
}

fn data(specifier: Specifier) -> Option<DataSource> {
    Some(DataSource { specifier: Some(specifier), ..Default::default() })
}

fn provider(name: &str) -> Option<CertificateProviderPluginInstance> {
    Some(CertificateProviderPluginInstance { instance_name: name.into(), ..Default::default() })
}

fn value(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

const JSON: &str = r#"{"versionInfo":"1","resources":[{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster",
"name":"shop","edsClusterConfig":{"edsConfig":{"ads":{}}},"connectTimeout":"1.5s"},{"@type":"type.googleapis.com/a.B","c":1}]}"#;

const YAML: &str = "version_info: \"1\"\nresources:\n- '@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: shop\n  endpoints: &all\n  - priority: 1\n    load_balancing_weight: 3\n";

const TEXT: &str = "version_info: 'a\\n' resources { [type.googleapis.com/envoy.config.listener.v3.Listener] { name: \"l\" } }";
