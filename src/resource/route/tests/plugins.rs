//! Rules R1 to R4 and R20: cluster specifier plugins.

use serde::Serialize;

use super::*;

/// A plugin that routes all requests to one cluster.
#[derive(Debug, PartialEq, Serialize)]
struct Always {
    cluster: String,
}

impl Extension for Always {
    const TYPE_NAME: &'static str = "x.Always";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let cluster = String::from_utf8(payload.message()?.to_vec()).unwrap();
        if cluster.is_empty() { Err(Invalid::field("cluster", "must be set")) } else { Ok(Self { cluster }) }
    }
}

fn plugin(name: &str, any: Option<Any>, is_optional: bool) -> pb::ClusterSpecifierPlugin {
    let extension = TypedExtensionConfig { name: name.into(), typed_config: any };
    pb::ClusterSpecifierPlugin { extension: Some(extension), is_optional }
}

/// A route configuration that declares plugins, with one route for each of the names.
fn message(plugins: Vec<pb::ClusterSpecifierPlugin>, names: &[&str]) -> pb::RouteConfiguration {
    let by_plugin = |name: &&str| acting(by(ClusterSpecifier::ClusterSpecifierPlugin((*name).into())));
    pb::RouteConfiguration {
        cluster_specifier_plugins: plugins,
        ..routes(names.iter().map(by_plugin).collect())
    }
}

/// Parses a message in an application that handles `x.Always`.
fn parse_known(message: &pb::RouteConfiguration) -> Result<RouteConfiguration, String> {
    let registry = Registry::new().with_cluster_specifier::<Always>();
    parse_in(message, &Context::new().with_registry(&registry)).map_err(|error| error.to_string())
}

/// Returns the plugins of the routes: name and cluster of each.
fn named(parsed: &RouteConfiguration) -> Vec<(String, String)> {
    let plugin = |route: &Route| {
        let RouteAction::Forward(action) = &route.action else { panic!("{route:?}") };
        let ClusterChoice::Plugin(plugin) = &action.clusters else { panic!("{action:?}") };
        (plugin.name.to_string(), plugin.config.get::<Always>().unwrap().cluster.clone())
    };
    parsed.virtual_hosts[0].routes.iter().map(plugin).collect()
}

fn known(name: &str, cluster: &'static str) -> pb::ClusterSpecifierPlugin {
    plugin(name, Some(any("x.Always", cluster)), false)
}

fn unknown(name: &str, is_optional: bool) -> pb::ClusterSpecifierPlugin {
    plugin(name, Some(any("x.Other", "")), is_optional)
}

fn pair(name: &str, cluster: &str) -> (String, String) {
    (name.into(), cluster.into())
}

#[test]
fn r1_r2_r3_r20_accepts_plugins_that_the_application_handles() {
    let parsed = parse_known(&message(vec![known("p", "a"), known("q", "b")], &["q", "p"])).unwrap();
    assert_eq!(named(&parsed), [pair("q", "b"), pair("p", "a")]);
    assert_eq!(parsed.virtual_hosts[0].routes[0].action.clusters().count(), 0, "it names no cluster");
    let json = serde_json::to_value(&parsed.virtual_hosts[0].routes[0].action).unwrap();
    assert_eq!(json["route"]["plugin"], json!({"name": "q", "config": {"x.Always": {"cluster": "b"}}}));
}

#[test]
fn r1_ignores_an_optional_plugin_that_is_not_supported() {
    let message = message(vec![unknown("other", true), known("p", "a")], &["p"]);
    assert_eq!(named(&parse_known(&message).unwrap()), [pair("p", "a")]);
    // An empty plugin, too.
    let empty = pb::RouteConfiguration {
        cluster_specifier_plugins: vec![pb::ClusterSpecifierPlugin { extension: None, is_optional: true }],
        ..message
    };
    assert!(parse_known(&empty).unwrap_err().contains("\"p\" is not among"));
}

#[test]
fn r1_rejects_a_plugin_that_is_not_supported() {
    let message = message(vec![known("p", "a"), unknown("other", false)], &["p"]);
    assert_eq!(
        parse_known(&message).unwrap_err(),
        "cluster_specifier_plugins[1].extension.typed_config: plugin type \"x.Other\" is not supported"
    );
    // Without an application that handles it, the first plugin is not supported either.
    assert_eq!(
        rejected(&message),
        "cluster_specifier_plugins[0].extension.typed_config: plugin type \"x.Always\" is not supported"
    );
}

#[test]
fn r2_rejects_a_bad_configuration_also_of_an_optional_plugin() {
    for is_optional in [false, true] {
        let bad = plugin("p", Some(any("x.Always", "")), is_optional);
        assert_eq!(
            parse_known(&message(vec![bad], &[])).unwrap_err(),
            "cluster_specifier_plugins[0].extension.typed_config.cluster: must be set"
        );
        let torn = plugin("p", Some(any("xds.type.v3.TypedStruct", &[0xff][..])), is_optional);
        let error = parse_known(&message(vec![torn], &[])).unwrap_err();
        assert!(error.starts_with("cluster_specifier_plugins[0].extension.typed_config.value: "), "{error}");
    }
}

/// As in C-core; in grpc-go the last one wins.
#[test]
fn r3_rejects_two_plugins_of_the_same_name() {
    for second in [known("p", "b"), unknown("p", true)] {
        let message = message(vec![known("p", "a"), second], &["p"]);
        assert_eq!(
            parse_known(&message).unwrap_err(),
            "cluster_specifier_plugins[1].extension.name: \"p\" is the name of an earlier plugin too"
        );
    }
}

#[test]
fn r4_ignores_plugins_that_no_route_names() {
    let parsed = parse_known(&message(vec![known("unused", "a"), known("p", "b")], &["p"])).unwrap();
    assert!(!format!("{parsed:?}").contains("unused"));
}

#[test]
fn r4_accepts_one_plugin_for_several_routes() {
    let parsed = parse_known(&message(vec![known("p", "a")], &["p", "p"])).unwrap();
    assert_eq!(named(&parsed), [pair("p", "a"), pair("p", "a")]);
}

#[test]
fn r20_ignores_a_route_by_an_optional_plugin_that_is_not_supported() {
    let message = message(vec![unknown("other", true), known("p", "a")], &["other", "p"]);
    assert_eq!(named(&parse_known(&message).unwrap()), [pair("p", "a")]);
}

#[test]
fn r20_rejects_a_route_by_a_plugin_that_is_not_declared() {
    for (name, expected) in
        [("q", "\"q\" is not among the cluster_specifier_plugins"), ("", "must not be empty")]
    {
        let error = parse_known(&message(vec![known("p", "a")], &["p", name])).unwrap_err();
        assert_eq!(error, format!("virtual_hosts[0].routes[1].route.cluster_specifier_plugin: {expected}"));
    }
}
