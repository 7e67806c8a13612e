use pb::{route_action::ClusterSpecifier, route_match::PathSpecifier};
use serde_json::json;

use super::*;
use crate::pb::{envoy::config::core::v3::TypedExtensionConfig, google::protobuf::Any};

fn to(cluster: &str) -> Action {
    let cluster_specifier = Some(ClusterSpecifier::Cluster(cluster.into()));
    Action::Route(pb::RouteAction { cluster_specifier, ..Default::default() })
}

fn on(prefix: &str, action: Option<Action>) -> pb::Route {
    let path_specifier = Some(PathSpecifier::Prefix(prefix.into()));
    let matcher = pb::RouteMatch { path_specifier, ..Default::default() };
    pb::Route { r#match: Some(matcher), action, ..Default::default() }
}

fn host(domains: &[&str], routes: Vec<pb::Route>) -> pb::VirtualHost {
    let domains: Vec<String> = domains.iter().map(|&domain| domain.into()).collect();
    pb::VirtualHost { name: domains.join(" "), domains, routes, ..Default::default() }
}

fn configuration(virtual_hosts: Vec<pb::VirtualHost>) -> pb::RouteConfiguration {
    pb::RouteConfiguration { name: "shop".into(), virtual_hosts, ..Default::default() }
}

fn parse(message: &pb::RouteConfiguration) -> Result<RouteConfiguration, Invalid> {
    RouteConfiguration::parse(message.encode_to_vec().into(), &Context::new())
}

/// The routes that are left of those of one virtual host.
fn routes(routes: Vec<pb::Route>) -> Result<Vec<Route>, Invalid> {
    Ok(parse(&configuration(vec![host(&["*"], routes)]))?.virtual_hosts[0].routes.to_vec())
}

fn plugin(name: &str, is_optional: bool) -> pb::ClusterSpecifierPlugin {
    let any = Any { type_url: "type.googleapis.com/x.Rls".into(), value: Bytes::new() };
    let extension = TypedExtensionConfig { name: name.into(), typed_config: Some(any) };
    pb::ClusterSpecifierPlugin { extension: Some(extension), is_optional }
}

#[test]
fn r1_unsupported_plugins_are_ignored_only_when_optional() {
    let with = |is_optional| pb::RouteConfiguration {
        cluster_specifier_plugins: vec![plugin("rls", is_optional)],
        ..configuration(Vec::new())
    };
    assert!(parse(&with(true)).is_ok());
    let error = parse(&with(false)).unwrap_err();
    assert_eq!(error.path(), "cluster_specifier_plugins[0].extension.typed_config");
    assert!(error.reason().contains("x.Rls"), "{error}");
}

#[test]
fn r3_plugins_have_unique_names() {
    let with = |second: &str| pb::RouteConfiguration {
        cluster_specifier_plugins: vec![plugin("rls", true), plugin(second, true)],
        ..configuration(Vec::new())
    };
    assert!(parse(&with("other")).is_ok());
    assert_eq!(parse(&with("rls")).unwrap_err().path(), "cluster_specifier_plugins[1].extension.name");
}

#[test]
fn r5_there_may_be_no_virtual_hosts() {
    assert_eq!(parse(&configuration(Vec::new())).unwrap().virtual_hosts.len(), 0);
}

#[test]
fn g6_a_resource_has_a_name() {
    let nameless = pb::RouteConfiguration { name: String::new(), ..configuration(Vec::new()) };
    assert_eq!(parse(&nameless).unwrap_err().path(), "name");
    assert!(RouteConfiguration::parse(Bytes::from_static(&[0xff]), &Context::new()).is_err());
}

#[test]
fn r9_overrides_are_checked_at_each_level() {
    let bad = || [("f".into(), Any { type_url: "x/x.Unknown".into(), value: Bytes::new() })].into();
    let of_host = pb::VirtualHost { typed_per_filter_config: bad(), ..host(&["*"], Vec::new()) };
    let path = "virtual_hosts[0].typed_per_filter_config[\"f\"]";
    assert_eq!(parse(&configuration(vec![of_host])).unwrap_err().path(), path);
    let of_route = pb::Route { typed_per_filter_config: bad(), ..on("/", Some(to("a"))) };
    let path = "virtual_hosts[0].routes[0].typed_per_filter_config[\"f\"]";
    assert_eq!(routes(vec![of_route]).unwrap_err().path(), path);
    let weight = pb::weighted_cluster::ClusterWeight {
        name: "a".into(),
        weight: Some(crate::pb::google::protobuf::UInt32Value { value: 1 }),
        typed_per_filter_config: bad(),
        ..Default::default()
    };
    let weighted = pb::WeightedCluster { clusters: vec![weight], ..Default::default() };
    let cluster_specifier = Some(ClusterSpecifier::WeightedClusters(weighted));
    let action = Action::Route(pb::RouteAction { cluster_specifier, ..Default::default() });
    let path =
        "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[0].typed_per_filter_config[\"f\"]";
    assert_eq!(routes(vec![on("/", Some(action))]).unwrap_err().path(), path);
}

#[test]
fn r10_a_route_has_a_match() {
    let error = routes(vec![on("/", Some(to("a"))), pb::Route::default()]).unwrap_err();
    assert_eq!(error.path(), "virtual_hosts[0].routes[1].match");
}

#[test]
fn r11_a_route_with_query_parameters_is_dropped() {
    let mut route = on("/", Some(to("a")));
    let parameters = &mut route.r#match.as_mut().unwrap().query_parameters;
    parameters.push(pb::QueryParameterMatcher { name: "debug".into() });
    assert_eq!(routes(vec![route, on("/", Some(to("b")))]).unwrap().len(), 1);
}

#[test]
fn r14_the_shape_of_a_path_drops_no_route() {
    let all = ["", "a", "//", "/a/b/c"].map(|prefix| on(prefix, Some(to("a"))));
    assert_eq!(routes(all.into()).unwrap().len(), 4);
}

#[test]
fn r20_r21_routes_to_what_is_not_supported_are_dropped() {
    let by = |specifier| {
        let cluster_specifier = Some(specifier);
        Action::Route(pb::RouteAction { cluster_specifier, ..Default::default() })
    };
    let header = by(ClusterSpecifier::ClusterHeader("x".into()));
    let rls = by(ClusterSpecifier::ClusterSpecifierPlugin("rls".into()));
    let all = vec![on("/a", Some(header)), on("/b", Some(rls)), on("/c", Some(to("c")))];
    let message = pb::RouteConfiguration {
        cluster_specifier_plugins: vec![plugin("rls", true)],
        ..configuration(vec![host(&["*"], all)])
    };
    assert_eq!(parse(&message).unwrap().virtual_hosts[0].routes.len(), 1);
    let undeclared = pb::RouteConfiguration { cluster_specifier_plugins: Vec::new(), ..message };
    let path = "virtual_hosts[0].routes[1].route.cluster_specifier_plugin";
    assert_eq!(parse(&undeclared).unwrap_err().path(), path);
}

#[test]
fn r27_actions_of_proxies_are_kept_as_unsupported() {
    let unsupported = [
        None,
        Some(Action::Redirect(pb::RedirectAction {})),
        Some(Action::DirectResponse(pb::DirectResponseAction::default())),
        Some(Action::FilterAction(pb::FilterAction {})),
    ];
    for route in routes(unsupported.map(|action| on("/", action)).into()).unwrap() {
        assert_eq!(route.action, RouteAction::Unsupported);
    }
    let served = on("/", Some(Action::NonForwardingAction(pb::NonForwardingAction {})));
    assert_eq!(routes(vec![served]).unwrap()[0].action, RouteAction::NonForwarding);
}

#[test]
fn r28_one_bad_route_rejects_the_whole() {
    let good = host(&["a"], vec![on("/", Some(to("a")))]);
    let bad = host(&["b"], vec![on("/", Some(to("")))]);
    let error = parse(&configuration(vec![good, bad])).unwrap_err();
    assert_eq!(error.path(), "virtual_hosts[1].routes[0].route.cluster");
}

#[test]
fn a28_1_the_most_specific_virtual_host_is_chosen() {
    let domains: [&[&str]; 5] =
        [&["*"], &["shop.*", "a.shop.example"], &["*.example"], &["*.shop.example"], &["*"]];
    let parsed = parse(&configuration(domains.map(|domains| host(domains, Vec::new())).into())).unwrap();
    let index = |host: &str| {
        let found = parsed.virtual_host(host).unwrap();
        parsed.virtual_hosts.iter().position(|v| std::ptr::eq(v, found)).unwrap()
    };
    for (host, expected) in
        [("other", 0), ("shop.test", 1), ("A.shop.EXAMPLE", 1), ("shop.example", 2), ("b.shop.example", 3)]
    {
        assert_eq!(index(host), expected, "{host}");
    }
    assert_eq!(parse(&configuration(vec![host(&["a"], Vec::new())])).unwrap().virtual_host("b"), None);
}

#[test]
fn what_is_written_is_what_was_sent() {
    let mut route = on("/cart", Some(to("cart-v1")));
    route.name = "cart".into();
    let parsed = parse(&configuration(vec![host(&["shop.example"], vec![route])])).unwrap();
    let json = json!({"name": "shop", "virtual_hosts": [{
        "name": "shop.example",
        "domains": ["shop.example"],
        "routes": [{
            "name": "cart",
            "match": {"prefix": "/cart", "case_sensitive": true, "headers": [], "fraction": null},
            "action": {"route": {
                "cluster": "cart-v1", "hash_policies": [], "max_stream_duration": null,
                "retry_policy": null, "auto_host_rewrite": false,
            }},
        }],
        "retry_policy": null,
    }]});
    assert_eq!(serde_json::to_value(parsed).unwrap(), json);
}
