//! Sources that come with resources, followed with permission: rules C1, X11, L7.

use prost::Message;

use super::{super::rig::Rig, response};
use crate::{
    config::{
        AllowedGrpcService, AuthorityBuilder, Bootstrap, BootstrapBuilder, ChannelCredentials, Node, Server,
    },
    engine::Settings,
    pb::{
        envoy::config::core::v3::{
            ApiConfigSource, ApiVersion, ConfigSource, GrpcService, PathConfigSource, SelfConfigSource,
            api_config_source::ApiType,
            config_source::ConfigSourceSpecifier,
            grpc_service::{EnvoyGrpc, GoogleGrpc, TargetSpecifier},
        },
        google::protobuf::Duration,
        xds::core::v3::Authority,
    },
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

fn bootstrap() -> BootstrapBuilder {
    Bootstrap::builder().node(Node::new("n")).server(Server::new("127.0.0.1:1").insecure())
}

fn rig(bootstrap: BootstrapBuilder) -> Rig {
    let settings = Settings { follow_config_sources: true, ..Settings::default() };
    let mut rig = Rig::of(bootstrap.build().unwrap(), settings);
    rig.resolve("xds:///shop");
    rig.connect(1);
    rig.sent(1);
    rig
}

fn source(specifier: ConfigSourceSpecifier) -> ConfigSource {
    ConfigSource { config_source_specifier: Some(specifier), ..ConfigSource::default() }
}

fn file(path: &str) -> ConfigSource {
    source(ConfigSourceSpecifier::PathConfigSource(PathConfigSource {
        path: path.into(),
        ..PathConfigSource::default()
    }))
}

fn api(api_type: ApiType, services: Vec<TargetSpecifier>) -> ApiConfigSource {
    let service = |target| GrpcService { target_specifier: Some(target), ..GrpcService::default() };
    ApiConfigSource {
        api_type: api_type.into(),
        grpc_services: services.into_iter().map(service).collect(),
        ..ApiConfigSource::default()
    }
}

fn ads() -> ConfigSource {
    source(ConfigSourceSpecifier::Ads(Default::default()))
}

fn of_version(source: ConfigSource, version: ApiVersion) -> ConfigSource {
    ConfigSource { resource_api_version: version.into(), ..source }
}

fn by_api(from: ApiConfigSource) -> ConfigSource {
    source(ConfigSourceSpecifier::ApiConfigSource(from))
}

fn named(name: &str) -> TargetSpecifier {
    TargetSpecifier::EnvoyGrpc(EnvoyGrpc { cluster_name: name.into(), ..EnvoyGrpc::default() })
}

fn target(uri: &str) -> TargetSpecifier {
    TargetSpecifier::GoogleGrpc(GoogleGrpc { target_uri: uri.into(), ..GoogleGrpc::default() })
}

/// What is done about a listener that has its routes there.
fn routes_from(bootstrap: BootstrapBuilder, source: ConfigSource) -> Vec<String> {
    let mut rig = rig(bootstrap);
    let outputs = rig.receive(1, &response("1", [listener("shop").rds_from("routes", source)]));
    outputs.into_iter().filter(|outputs| outputs != "read" && !outputs.starts_with("send Listener")).collect()
}

#[test]
fn c1_without_permission_other_sources_are_rejected() {
    let mut rig = Rig::new();
    rig.resolve("xds:///shop");
    rig.connect(1);
    rig.sent(1);
    let outputs = rig.receive(1, &response("1", [listener("shop").rds_from("routes", file("routes.json"))]));
    let rejected = outputs.iter().find(|outputs| outputs.starts_with("send Listener")).unwrap();
    assert!(
        rejected.contains("rds.config_source: only the sources ads and self are supported"),
        "{rejected}"
    );
}

#[test]
fn l7_routes_come_from_the_source_that_their_listener_names() {
    assert_eq!(routes_from(bootstrap(), file("routes.json")), ["open 1.1 routes.json"]);
    let with = || bootstrap().named_server("other", Server::new("b:1").insecure());
    assert_eq!(
        routes_from(with(), by_api(api(ApiType::DeltaGrpc, vec![named("other")]))),
        ["connect 1.1 /envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes"]
    );
    assert_eq!(
        routes_from(with(), by_api(api(ApiType::AggregatedGrpc, vec![named("other")]))),
        ["connect 1.1"]
    );
    let service = AllowedGrpcService::new(ChannelCredentials::Insecure);
    assert_eq!(
        routes_from(
            bootstrap().allowed_grpc_service("dns:///b:1", service),
            by_api(api(ApiType::Grpc, vec![target("dns:///b:1")]))
        ),
        ["connect 1.1 /envoy.service.route.v3.RouteDiscoveryService/StreamRoutes"]
    );
    let rest = ApiConfigSource {
        cluster_names: vec!["other".into()],
        refresh_delay: Some(Duration { seconds: 1, nanos: 0 }),
        ..api(ApiType::Rest, Vec::new())
    };
    assert_eq!(routes_from(with(), by_api(rest)), ["connect 1.1 /v3/discovery:routes"]);
    for same in [
        source(ConfigSourceSpecifier::Self_(SelfConfigSource::default())),
        source(ConfigSourceSpecifier::Ads(Default::default())),
    ] {
        assert_eq!(routes_from(bootstrap(), same), [""; 0], "they are requested after the answer");
    }
}

#[test]
fn a_source_that_cannot_be_followed_is_rejected_with_its_path() {
    let rejection = |source: ConfigSource| {
        let service = AllowedGrpcService::new(ChannelCredentials::Insecure);
        let mut rig = rig(bootstrap().allowed_grpc_service("dns:///b:1", service));
        let outputs = rig.receive(1, &response("1", [listener("shop").rds_from("routes", source)]));
        outputs.into_iter().find(|outputs| outputs.starts_with("send Listener")).unwrap()
    };
    let rest = |delay| ApiConfigSource {
        cluster_names: vec!["other".into()],
        refresh_delay: delay,
        ..api(ApiType::Rest, Vec::new())
    };
    for (source, why) in [
        (file(""), "path_config_source.path: empty"),
        (by_api(api(ApiType::Grpc, Vec::new())), "grpc_services: must have at least one entry"),
        (
            by_api(api(ApiType::Grpc, vec![named("other")])),
            "grpc_services[0].envoy_grpc.cluster_name: \"other\" is not among the bootstrap's named_servers",
        ),
        (
            by_api(api(ApiType::Grpc, vec![target("b:1")])),
            "grpc_services[0].google_grpc.target_uri: \"b:1\" is not among the bootstrap's allowed_grpc_services",
        ),
        (
            by_api(api(ApiType::DeprecatedAndUnavailableDoNotUse, Vec::new())),
            "api_type: 0 is not an API type",
        ),
        (by_api(rest(None)), "refresh_delay: must be set"),
        (by_api(rest(Some(Duration::default()))), "refresh_delay: "),
        (ConfigSource::default(), "must be ads or self, is not set"),
        (of_version(ads(), ApiVersion::V2), "resource_api_version: is V2, and the resources are sent by v3"),
        (
            of_version(by_api(api(ApiType::Grpc, vec![target("dns:///b:1")])), ApiVersion::V2),
            "resource_api_version: is V2, and the resources are sent by v3",
        ),
    ] {
        let outputs = rejection(source);
        assert!(
            outputs.contains("rds.config_source") && outputs.contains(why),
            "{why:?} is not in {outputs}"
        );
    }
}

#[test]
fn a_file_outside_of_the_root_is_rejected_with_its_path() {
    let root = std::path::Path::new("/etc/xds");
    let settings = Settings {
        follow_config_sources: true,
        config_source_root: Some(root.into()),
        ..Settings::default()
    };
    let outputs = |source: ConfigSource| {
        let mut rig = Rig::of(bootstrap().build().unwrap(), settings.clone());
        rig.resolve("xds:///shop");
        rig.connect(1);
        rig.sent(1);
        rig.receive(1, &response("1", [listener("shop").rds_from("routes", source)]))
    };
    for (path, opened) in
        [("routes.json", "/etc/xds/routes.json"), ("/etc/xds/in/routes.json", "/etc/xds/in/routes.json")]
    {
        let outputs = outputs(file(path));
        assert!(outputs.contains(&format!("open 1.1 {opened}")), "{outputs:?}");
    }
    let old = ConfigSourceSpecifier::Path("../passwd".into());
    for (source, field) in [
        (file("/etc/passwd"), "rds.config_source.path_config_source.path"),
        (file("../passwd"), "rds.config_source.path_config_source.path"),
        (source(old), "rds.config_source.path"),
    ] {
        let outputs = outputs(source);
        let reason = format!("{field}: is outside of /etc/xds (setting config_source_root)");
        assert!(outputs.iter().any(|outputs| outputs.contains(&reason)), "{reason:?} is not in {outputs:?}");
    }
}

#[test]
fn c1_endpoints_come_from_the_source_that_their_cluster_names_and_clusters_share_it() {
    let mut rig = rig(bootstrap());
    let routes = [route::prefix("/a").cluster("a"), route::prefix("/").cluster("b")];
    let routes = route_config("").virtual_host(["shop"], routes);
    rig.receive_all("1", [listener("shop").inline_routes(routes)]);
    let from = |name: &str| cluster(name).eds_from(file("endpoints.json"));
    let outputs = rig.receive_all("1", [from("a"), from("b")]);
    assert_eq!(
        outputs.iter().filter(|outputs| outputs.starts_with("open")).collect::<Vec<_>>(),
        ["open 1.1 endpoints.json"]
    );
    let stream = super::super::rig::stream_to(1, 1);
    let outputs = rig.connect_to(stream);
    assert_eq!(outputs, ["read", "send ClusterLoadAssignment [a,b] / node"]);
    rig.sent_to(stream);
    let of = |name: &str, address| endpoints(name).locality("r", "z", [address]);
    let both = [of("a", "10.0.0.1:80"), of("b", "10.0.0.2:80")];
    let outputs = rig.receive_from(stream, response("1", both).encode_to_vec());
    assert!(outputs.contains(&"#1 tree : a=10.0.0.1:80 b=10.0.0.2:80".to_owned()), "{outputs:?}");
    // Another source for one of them: the old endpoints serve until the new are there.
    let outputs = rig.receive_all("2", [from("a"), cluster("b").eds_from(file("others.json"))]);
    assert!(outputs.contains(&"open 2.1 others.json".to_owned()), "{outputs:?}");
}

#[test]
fn x11_an_authority_is_looked_for_in_the_source_that_came_with_the_name_and_then_in_the_bootstrap() {
    let name = "xdstp://a/envoy.config.route.v3.RouteConfiguration/routes";
    let mut of_a = file("routes.json");
    let requested = |source: &ConfigSource| {
        let bootstrap =
            bootstrap().default_authority(AuthorityBuilder::default().server(Server::new("d:1").insecure()));
        let mut rig = rig(bootstrap);
        let listener = listener("shop").rds_from(name, source.clone());
        let outputs = rig.receive(1, &response("1", [listener]));
        outputs.into_iter().find(|outputs| outputs.starts_with("open") || outputs.starts_with("connect"))
    };
    assert_eq!(requested(&of_a).as_deref(), Some("connect 1.1"), "the default");
    of_a.authorities = vec![Authority { name: "a".into() }];
    assert_eq!(requested(&of_a).as_deref(), Some("open 1.1 routes.json"));
}

#[test]
fn x11_x21_a_source_that_came_with_a_name_is_that_of_the_name_and_of_its_alternative() {
    let name =
        |authority: &str| format!("xdstp://{authority}/envoy.config.route.v3.RouteConfiguration/routes");
    let mut of_a = file("routes.json");
    of_a.authorities = vec![Authority { name: "a".into() }];
    for (first, alternative) in [("a", "b"), ("b", "a")] {
        let mut rig = rig(bootstrap());
        let routes = format!("{}#alt={}", name(first), name(alternative));
        let outputs = rig.receive(1, &response("1", [listener("shop").rds_from(&routes, of_a.clone())]));
        assert!(outputs.contains(&"open 1.1 routes.json".to_owned()), "{first}: {outputs:?}");
    }
}

#[test]
fn a_source_that_is_the_same_as_the_bootstraps_shares_its_stream() {
    let mut rig = rig(bootstrap().named_server("same", Server::new("127.0.0.1:1").insecure()));
    let source = by_api(api(ApiType::AggregatedGrpc, vec![named("same")]));
    let outputs = rig.receive_all("1", [listener("shop").rds_from("routes", source)]);
    assert!(!outputs.iter().any(|outputs| outputs.starts_with("connect")), "{outputs:?}");
}

#[test]
fn sources_that_nothing_leads_to_any_more_are_forgotten() {
    let mut rig = rig(bootstrap());
    let mut streams = std::collections::BTreeSet::new();
    for number in 0..50 {
        let routes = file(&format!("routes-{number}.json"));
        let outputs = rig.receive_all(&number.to_string(), [listener("shop").rds_from("routes", routes)]);
        let opened = outputs.iter().find_map(|outputs| outputs.strip_prefix("open ")).unwrap();
        let (stream, path) = opened.split_once(' ').unwrap();
        assert_eq!(path, format!("routes-{number}.json"));
        assert!(streams.insert(stream.to_owned()), "{stream} was there before");
        let (server, attempt) = stream.split_once('.').unwrap();
        let stream = super::super::rig::stream_to(server.parse().unwrap(), attempt.parse().unwrap());
        rig.connect_to(stream);
        rig.sent_to(stream);
        let routes = route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("web")]);
        rig.receive_from(stream, response("1", [routes]).encode_to_vec());
        rig.pass(std::time::Duration::from_secs(60));
        let left = (rig.engine.authorities.servers().len(), rig.engine.authorities.groups().len());
        assert!(left.0 <= 3 && left.1 <= 3, "{left:?} servers and groups are left of {number}");
    }
}

#[test]
fn x11_authorities_beside_ads_and_self_are_those_of_the_server_that_sent_the_resource() {
    let of = |source: ConfigSource, authority: &str, name: &str| {
        let other = Server::new("127.0.0.1:2").insecure();
        let bootstrap = bootstrap().authority("known", AuthorityBuilder::default().server(other));
        let mut rig = Rig::of(bootstrap.build().unwrap(), Settings::default());
        rig.resolve("xds:///shop");
        rig.connect(1);
        rig.sent(1);
        let authorities = vec![Authority { name: authority.into() }];
        let source = ConfigSource { authorities, ..source };
        let mut outputs = rig.receive(1, &response("1", [listener("shop").rds_from(name, source)]));
        outputs.extend(rig.sent(1));
        outputs.extend(rig.pass(std::time::Duration::from_millis(20)));
        outputs.retain(|output| output.contains("RouteConfiguration") || output.starts_with("connect"));
        outputs
    };
    let itself = || source(ConfigSourceSpecifier::Self_(SelfConfigSource::default()));
    let name = |authority: &str| format!("xdstp://{authority}/envoy.config.route.v3.RouteConfiguration/r");
    for same in [ads, itself] {
        // The bootstrap has no such authority.
        let outputs = of(same(), "other", &name("other"));
        let requested = format!("send RouteConfiguration [{}] /", name("other"));
        assert!(outputs.iter().any(|output| output.starts_with(&requested)), "{outputs:?}");
        // It has this one with another server, and the source comes first.
        let outputs = of(same(), "known", &name("known"));
        let requested = format!("send RouteConfiguration [{}] /", name("known"));
        assert!(outputs.iter().any(|output| output.starts_with(&requested)), "{outputs:?}");
        // Other authorities, and names of the older form, are looked up as without them.
        assert_eq!(of(same(), "other", &name("known")), ["connect 1.1"]);
        let outputs = of(same(), "other", "routes");
        assert!(outputs[0].starts_with("send RouteConfiguration [routes] /"), "{outputs:?}");
    }
}
