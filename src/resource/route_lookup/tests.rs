use super::*;
use crate::{
    pb::{
        envoy::config::{
            core::v3::TypedExtensionConfig,
            route::v3::{self as route, route_action::ClusterSpecifier},
        },
        google::protobuf::Duration as Proto,
    },
    resource::{
        Registry, RouteConfiguration,
        route_action::{ClusterChoice, RouteAction},
        samples::{acting, any, by, parse_in, routes},
    },
};

fn name(service: &str, method: &str) -> pb::grpc_key_builder::Name {
    pb::grpc_key_builder::Name { service: service.into(), method: method.into() }
}

fn builder(names: Vec<pb::grpc_key_builder::Name>) -> pb::GrpcKeyBuilder {
    pb::GrpcKeyBuilder { names, ..Default::default() }
}

fn header(key: &str) -> pb::NameMatcher {
    pb::NameMatcher { key: key.into(), names: vec!["x-user".into(), "user".into()], required_match: false }
}

fn config() -> pb::RouteLookupConfig {
    pb::RouteLookupConfig {
        grpc_keybuilders: vec![builder(vec![name("shop.Cart", "")])],
        lookup_service: "lookup.example:443".into(),
        cache_size_bytes: 1000,
        ..Default::default()
    }
}

fn with_builder(builder: pb::GrpcKeyBuilder) -> pb::RouteLookupConfig {
    pb::RouteLookupConfig { grpc_keybuilders: vec![builder], ..config() }
}

fn seconds(seconds: i64) -> Option<Proto> {
    Some(Proto { seconds, nanos: 0 })
}

/// A route configuration with one route, which uses the plugin.
fn message(config: Option<pb::RouteLookupConfig>) -> route::RouteConfiguration {
    let lookup = pb::RouteLookupClusterSpecifier { route_lookup_config: config };
    let typed_config = Some(any(RouteLookup::TYPE_NAME, lookup.encode_to_vec()));
    let extension = Some(TypedExtensionConfig { name: "rls".into(), typed_config });
    route::RouteConfiguration {
        cluster_specifier_plugins: vec![route::ClusterSpecifierPlugin { extension, is_optional: false }],
        ..routes(vec![acting(by(ClusterSpecifier::ClusterSpecifierPlugin("rls".into())))])
    }
}

fn parse(config: Option<pb::RouteLookupConfig>) -> Result<RouteLookup, String> {
    let registry = Registry::new().with_cluster_specifier::<RouteLookup>();
    let context = Context::new().with_registry(&registry);
    let parsed: RouteConfiguration =
        parse_in(&message(config), &context).map_err(|error| error.to_string())?;
    match &parsed.virtual_hosts[0].routes[0].action {
        RouteAction::Forward(action) => match &action.clusters {
            ClusterChoice::Plugin(plugin) => Ok(plugin.config.get::<RouteLookup>().unwrap().clone()),
            other @ (ClusterChoice::Cluster(_) | ClusterChoice::WeightedClusters(_)) => panic!("{other:?}"),
        },
        other @ (RouteAction::NonForwarding | RouteAction::Unsupported(_)) => panic!("{other:?}"),
    }
}

fn accepted(config: pb::RouteLookupConfig) -> RouteLookup {
    parse(Some(config)).unwrap()
}

/// Returns the reason of the error, behind the path of the plugin.
fn reason_of(config: Option<pb::RouteLookupConfig>) -> String {
    let error = parse(config).unwrap_err();
    let below = error.strip_prefix("cluster_specifier_plugins[0].extension.typed_config.").expect(&error);
    below.to_owned()
}

#[test]
fn h10_accepts_a_lookup_and_fills_in_defaults() {
    let parsed = accepted(config());
    assert_eq!(&*parsed.lookup_service, "lookup.example:443");
    assert_eq!(parsed.lookup_service_timeout, Duration::from_secs(10));
    assert_eq!((parsed.max_age, parsed.stale_age), (Duration::from_secs(300), None));
    assert_eq!((parsed.cache_size_bytes, &parsed.default_target), (1000, &None));
    let [builder] = &*parsed.key_builders else { panic!("{parsed:?}") };
    assert_eq!(*builder.methods, [MethodName { service: "shop.Cart".into(), method: None }]);
}

#[test]
fn h10_accepts_keys_of_every_kind() {
    let parsed = accepted(with_builder(pb::GrpcKeyBuilder {
        headers: vec![header("user")],
        extra_keys: Some(pb::grpc_key_builder::ExtraKeys { host: "host".into(), ..Default::default() }),
        constant_keys: [("zone".to_owned(), "eu".to_owned())].into(),
        ..builder(vec![name("shop.Cart", ""), name("shop.Cart", "Get")])
    }));
    let json = serde_json::json!({
        "methods": [
            {"service": "shop.Cart", "method": null}, {"service": "shop.Cart", "method": "Get"},
        ],
        "headers": [{"key": "user", "names": ["x-user", "user"]}],
        "host": "host", "service": null, "method": null,
        "constants": {"zone": "eu"},
    });
    assert_eq!(serde_json::to_value(&parsed.key_builders[0]).unwrap(), json);
}

#[test]
fn h10_accepts_ages_and_sizes_and_caps_them() {
    for (max, stale, expected) in [
        (None, None, (300, None)),
        (seconds(0), seconds(0), (300, None)),
        (seconds(60), None, (60, None)),
        (seconds(60), seconds(50), (60, Some(50))),
        (seconds(60), seconds(60), (60, None)),
        (seconds(600), seconds(290), (300, Some(290))),
        (seconds(600), seconds(500), (300, None)),
    ] {
        let parsed = accepted(pb::RouteLookupConfig { max_age: max, stale_age: stale, ..config() });
        let secs = |age: Duration| age.as_secs();
        assert_eq!((secs(parsed.max_age), parsed.stale_age.map(secs)), expected);
    }
    for (size, expected) in [(1, 1), (5 << 20, 5 << 20), (6 << 20, 5 << 20), (i64::MAX, 5 << 20)] {
        let parsed = accepted(pb::RouteLookupConfig { cache_size_bytes: size, ..config() });
        assert_eq!(parsed.cache_size_bytes, expected);
    }
    for target in ["lookup", "lookup:1", "dns:///lookup:1", "xds:///lookup", "unix:/lookup", "[::1]:443"] {
        let parsed = accepted(pb::RouteLookupConfig { lookup_service: target.into(), ..config() });
        assert_eq!(&*parsed.lookup_service, target);
    }
}

#[test]
fn h10_rejects_what_makes_no_keys() {
    let twice = builder(vec![name("a.B", "C"), name("a.B", "C")]);
    for (builders, expected) in [
        (vec![], ": must not be empty"),
        (vec![builder(vec![])], "[0].names: must not be empty"),
        (vec![builder(vec![name("", "Get")])], "[0].names[0].service: must not be empty"),
        (vec![builder(vec![name("a.B", "/C")])], "[0].names[0].method: \"/C\" has a slash"),
        (vec![twice], "[0].names[1]: keys of this method are made by it or an earlier one already"),
        (
            vec![builder(vec![name("a.B", "")]), builder(vec![name("a.B", "")])],
            "[1].names[0]: keys of this method are made by it or an earlier one already",
        ),
    ] {
        let config = pb::RouteLookupConfig { grpc_keybuilders: builders, ..config() };
        assert_eq!(reason_of(Some(config)), format!("route_lookup_config.grpc_keybuilders{expected}"));
    }
}

#[test]
fn h10_rejects_keys_that_are_empty_or_there_twice() {
    let named = || builder(vec![name("a.B", "")]);
    let headers = |headers| pb::GrpcKeyBuilder { headers, ..named() };
    let constant = |key: &str| [(key.to_owned(), "x".to_owned())].into();
    let extra = Some(pb::grpc_key_builder::ExtraKeys { method: "a".into(), ..Default::default() });
    for (builder, expected) in [
        (headers(vec![header("")]), "headers[0].key: must not be empty"),
        (headers(vec![header("a"), header("a")]), "headers[1].key: \"a\" is a key already"),
        (
            headers(vec![pb::NameMatcher { required_match: true, ..header("a") }]),
            "headers[0].required_match: not supported; must be false",
        ),
        (
            pb::GrpcKeyBuilder { constant_keys: constant("a"), ..headers(vec![header("a")]) },
            "constant_keys[\"a\"]: \"a\" is a key already",
        ),
        (
            pb::GrpcKeyBuilder { constant_keys: constant(""), ..named() },
            "constant_keys[\"\"]: must not be empty",
        ),
        (
            pb::GrpcKeyBuilder { extra_keys: extra, ..headers(vec![header("a")]) },
            "extra_keys.method: \"a\" is a key already",
        ),
    ] {
        assert_eq!(
            reason_of(Some(with_builder(builder))),
            format!("route_lookup_config.grpc_keybuilders[0].{expected}")
        );
    }
}

#[test]
fn h10_rejects_what_cannot_be_looked_up() {
    assert_eq!(reason_of(None).trim_start_matches("route_lookup_config"), ": must be set");
    let target = |target: &str| pb::RouteLookupConfig { lookup_service: target.into(), ..config() };
    for (config, expected) in [
        (target(""), "lookup_service: must not be empty"),
        (target("dns://[lookup"), "lookup_service: \"dns://[lookup\" is no target"),
        (
            pb::RouteLookupConfig { lookup_service_timeout: seconds(-1), ..config() },
            "lookup_service_timeout.seconds: must be between 0 and 315576000000, is -1",
        ),
        (
            pb::RouteLookupConfig { max_age: seconds(-1), ..config() },
            "max_age.seconds: must be between 0 and 315576000000, is -1",
        ),
        (
            pb::RouteLookupConfig { stale_age: seconds(1), ..config() },
            "stale_age: needs max_age, which is not set",
        ),
        (
            pb::RouteLookupConfig { cache_size_bytes: 0, ..config() },
            "cache_size_bytes: must be greater than 0, is 0",
        ),
        (
            pb::RouteLookupConfig { cache_size_bytes: -1, ..config() },
            "cache_size_bytes: must be greater than 0, is -1",
        ),
    ] {
        assert_eq!(reason_of(Some(config)), format!("route_lookup_config.{expected}"));
    }
}

#[test]
fn rl14_it_is_known_without_a_registration_where_there_are_channels() {
    let parsed = parse_in::<RouteConfiguration>(&message(Some(config())), &Context::new());
    if cfg!(feature = "channel") {
        assert!(parsed.is_ok(), "{parsed:?}");
        let invalid = parse_in::<RouteConfiguration>(&message(None), &Context::new()).unwrap_err();
        let expected = "cluster_specifier_plugins[0].extension.typed_config.route_lookup_config: must be set";
        assert_eq!(invalid.to_string(), expected);
    } else {
        let expected = "cluster_specifier_plugins[0].extension.typed_config: plugin type \
                        \"grpc.lookup.v1.RouteLookupClusterSpecifier\" is not supported";
        assert_eq!(parsed.unwrap_err().to_string(), expected);
    }
}

/// An application may execute it otherwise.
#[test]
fn rl14_a_registered_plugin_of_the_same_type_replaces_it() {
    #[derive(Debug, PartialEq, Serialize)]
    struct Own;
    impl Extension for Own {
        const TYPE_NAME: &'static str = RouteLookup::TYPE_NAME;

        fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
            Ok(Self)
        }
    }
    let registry = Registry::new().with_cluster_specifier::<Own>();
    let context = Context::new().with_registry(&registry);
    // Its own rules decide: this configuration is none of route lookup.
    let parsed: RouteConfiguration = parse_in(&message(None), &context).unwrap();
    let RouteAction::Forward(forward) = &parsed.virtual_hosts[0].routes[0].action else {
        panic!("it forwards")
    };
    let ClusterChoice::Plugin(plugin) = &forward.clusters else { panic!("{:?}", forward.clusters) };
    assert_eq!(plugin.config.get(), Some(&Own));
}

#[test]
fn keys_are_made_as_for_the_method_or_else_its_service() {
    let parsed = accepted(pb::RouteLookupConfig {
        grpc_keybuilders: vec![
            builder(vec![name("a.B", "")]),
            builder(vec![name("a.B", "Get"), name("c.D", "E")]),
        ],
        ..config()
    });
    let index = |path: &str| {
        let found = parsed.key_builder(path)?;
        parsed.key_builders.iter().position(|builder| std::ptr::eq(builder, found))
    };
    for (path, expected) in
        [("/a.B/Get", Some(1)), ("/a.B/Put", Some(0)), ("/c.D/E", Some(1)), ("/c.D/F", None), ("a.B", None)]
    {
        assert_eq!(index(path), expected, "{path}");
    }
}
