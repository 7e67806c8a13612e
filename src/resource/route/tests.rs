use pb::{route_action::ClusterSpecifier, weighted_cluster::ClusterWeight};
use serde_json::json;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{
                core::v3::{ConfigSource, TypedExtensionConfig, config_source::ConfigSourceSpecifier},
                route::v3::route::Action,
            },
            extensions::filters::network::http_connection_manager::v3::{
                HttpConnectionManager, http_connection_manager::RouteSpecifier,
            },
        },
        google::protobuf::{Any, UInt32Value},
    },
    resource::{
        Extension, Listener, Payload, Registry,
        route_action::{ClusterChoice, RouteAction},
        samples::{
            acting, any, api_listener, by, configuration, manager, matching, only_route, parse, parse_in,
            parse_routes, prefix, rejection, routes, to, virtual_host,
        },
    },
};

mod plugins;
mod regexes;

fn on(prefix_of_path: &str, action: Option<Action>) -> pb::Route {
    pb::Route { action, ..matching(prefix(prefix_of_path)) }
}

fn rejected(message: &pb::RouteConfiguration) -> String {
    rejection::<RouteConfiguration>(message)
}

#[test]
fn r5_accepts_no_virtual_hosts() {
    let parsed: RouteConfiguration = parse(&configuration(Vec::new())).unwrap();
    assert_eq!((&*parsed.name, parsed.virtual_hosts.len()), ("shop", 0));
    assert_eq!(parsed.virtual_host("shop"), None);
}

fn with_vhds(source: Option<ConfigSourceSpecifier>) -> pb::RouteConfiguration {
    let source = ConfigSource { config_source_specifier: source, ..Default::default() };
    let vhds = Some(pb::Vhds { config_source: Some(source) });
    pb::RouteConfiguration { vhds, ..configuration(vec![virtual_host(&["*"], Vec::new())]) }
}

#[test]
fn r29_accepts_virtual_hosts_on_demand_from_the_same_server() {
    let parsed: RouteConfiguration = parse(&configuration(Vec::new())).unwrap();
    assert!(!parsed.vhds);
    for source in
        [ConfigSourceSpecifier::Ads(Default::default()), ConfigSourceSpecifier::Self_(Default::default())]
    {
        let parsed: RouteConfiguration = parse(&with_vhds(Some(source))).unwrap();
        assert!(parsed.vhds && parsed.virtual_hosts.len() == 1);
        assert_eq!(serde_json::to_value(&parsed).unwrap()["vhds"], json!(true));
    }
}

#[test]
fn r29_rejects_virtual_hosts_on_demand_from_elsewhere() {
    let unset = "vhds.config_source: must be ads or self, is not set";
    assert_eq!(rejected(&with_vhds(None)), unset);
    let nowhere = pb::RouteConfiguration { vhds: Some(pb::Vhds::default()), ..with_vhds(None) };
    assert_eq!(rejected(&nowhere), unset);
    let elsewhere = ConfigSourceSpecifier::Path("/hosts".into());
    assert_eq!(
        rejected(&with_vhds(Some(elsewhere))),
        "vhds.config_source: only the sources ads and self are supported"
    );
}

#[test]
fn r29_rejects_virtual_hosts_on_demand_of_routes_without_a_name() {
    let source = Some(ConfigSourceSpecifier::Ads(Default::default()));
    let nameless = pb::RouteConfiguration { name: String::new(), ..with_vhds(source) };
    let inline =
        HttpConnectionManager { route_specifier: Some(RouteSpecifier::RouteConfig(nameless)), ..manager() };
    assert_eq!(
        rejection::<Listener>(&api_listener(&inline)),
        "api_listener.api_listener.route_config.vhds: needs a name of the route configuration"
    );
}

#[test]
fn g6_a_resource_has_a_name() {
    let nameless = pb::RouteConfiguration { name: String::new(), ..configuration(Vec::new()) };
    assert_eq!(rejected(&nameless), "name: must not be empty");
    assert!(RouteConfiguration::parse(&Bytes::from_static(&[0xff]), &Context::new()).is_err());
}

#[test]
fn r6_accepts_domains() {
    let message = configuration(vec![virtual_host(&["a", "*.b"], Vec::new())]);
    let parsed: RouteConfiguration = parse(&message).unwrap();
    let domains: Vec<_> = parsed.virtual_hosts[0].domains.iter().map(|domain| domain.as_str()).collect();
    assert_eq!(domains, ["a", "*.b"]);
}

/// As in C-core, deliberately.
#[test]
fn r6_rejects_a_virtual_host_without_domains() {
    let message = configuration(vec![virtual_host(&["a"], Vec::new()), virtual_host(&[], Vec::new())]);
    assert_eq!(rejected(&message), "virtual_hosts[1].domains: must not be empty");
}

#[test]
fn r7_accepts_wildcards_at_an_end() {
    for (pattern, host) in
        [("a", "a"), ("*", "x"), ("*.a", "x.a"), ("a.*", "a.x"), ("*a", "ba"), ("a:80", "A:80")]
    {
        let parsed: RouteConfiguration =
            parse(&configuration(vec![virtual_host(&[pattern], Vec::new())])).unwrap();
        assert_eq!(parsed.virtual_host_index(host), Some(0), "{pattern}");
    }
}

/// As in C-core, deliberately.
#[test]
fn r7_rejects_other_patterns() {
    for (bad, expected) in [
        ("", "a domain must not be empty"),
        ("a*b", "\"a*b\" has its wildcard neither at the beginning nor at the end"),
    ] {
        let message = configuration(vec![virtual_host(&["ok", bad], Vec::new())]);
        assert_eq!(rejected(&message), format!("virtual_hosts[0].domains[1]: {expected}"));
    }
}

fn retrying(num_retries: u32) -> pb::VirtualHost {
    let num_retries = Some(UInt32Value { value: num_retries });
    let retry_policy = Some(pb::RetryPolicy { num_retries, ..Default::default() });
    pb::VirtualHost { retry_policy, ..virtual_host(&["*"], Vec::new()) }
}

#[test]
fn r8_accepts_a_retry_policy_of_a_virtual_host() {
    let parsed: RouteConfiguration = parse(&configuration(vec![retrying(3)])).unwrap();
    assert_eq!(parsed.virtual_hosts[0].retry_policy.as_ref().unwrap().num_retries, 3);
}

#[test]
fn r8_rejects_a_bad_retry_policy_of_a_virtual_host() {
    let expected = "virtual_hosts[0].retry_policy.num_retries: must be at least 1, is 0";
    assert_eq!(rejected(&configuration(vec![retrying(0)])), expected);
}

/// Overrides of one filter, on a virtual host, its route, and a cluster of that route.
fn overridden([host, route, cluster]: [Option<&str>; 3]) -> pb::RouteConfiguration {
    let overrides =
        |type_name: Option<&str>| type_name.map(|name| ("f".to_owned(), any(name, ""))).into_iter().collect();
    let weight = ClusterWeight {
        name: "a".into(),
        weight: Some(UInt32Value { value: 1 }),
        typed_per_filter_config: overrides(cluster),
        ..Default::default()
    };
    let weighted = pb::WeightedCluster { clusters: vec![weight], ..Default::default() };
    let action = by(ClusterSpecifier::WeightedClusters(weighted));
    let route = pb::Route { typed_per_filter_config: overrides(route), ..acting(action) };
    let host =
        pb::VirtualHost { typed_per_filter_config: overrides(host), ..virtual_host(&["*"], vec![route]) };
    configuration(vec![host])
}

#[test]
fn r9_accepts_overrides_at_each_level() {
    let fault = Some("envoy.extensions.filters.http.fault.v3.HTTPFault");
    for levels in [[fault, None, None], [None, fault, None], [None, None, fault], [fault; 3]] {
        let parsed: RouteConfiguration = parse(&overridden(levels)).unwrap();
        let host = &parsed.virtual_hosts[0];
        let route = &host.routes[0];
        let RouteAction::Forward(action) = &route.action else { panic!("{route:?}") };
        let ClusterChoice::WeightedClusters(weighted) = &action.clusters else { panic!("{action:?}") };
        let found = [
            host.filter_overrides.len(),
            route.filter_overrides.len(),
            weighted.clusters[0].filter_overrides.len(),
        ];
        assert_eq!(found, levels.map(|level| level.iter().len()));
    }
}

#[test]
fn r9_rejects_overrides_that_are_not_known_at_each_level() {
    let unknown = Some("x.Unknown");
    for (levels, path) in [
        ([unknown, None, None], "virtual_hosts[0]"),
        ([None, unknown, None], "virtual_hosts[0].routes[0]"),
        ([None, None, unknown], "virtual_hosts[0].routes[0].route.weighted_clusters.clusters[0]"),
    ] {
        let error = rejected(&overridden(levels));
        assert!(error.starts_with(&format!("{path}.typed_per_filter_config[\"f\"]")), "{error}");
        assert!(error.contains("x.Unknown"), "{error}");
    }
}

#[test]
fn r10_r11_accepts_a_route_with_a_match() {
    let parsed = only_route(&routes(vec![matching(prefix("/a"))]));
    assert!(parsed.matcher.path.matches("/a/b") && !parsed.matcher.path.matches("/b"));
}

#[test]
fn r10_rejects_a_route_without_a_match() {
    let matchless = pb::Route { r#match: None, ..matching(prefix("/")) };
    let message = routes(vec![matching(prefix("/")), matchless]);
    assert_eq!(rejected(&message), "virtual_hosts[0].routes[1].match: must be set");
}

#[test]
fn r11_ignores_a_route_with_query_parameters() {
    let query_parameters = vec![pb::QueryParameterMatcher { name: "debug".into() }];
    let queried = matching(pb::RouteMatch { query_parameters, ..prefix("/a") });
    let message = routes(vec![matching(prefix("/b")), queried]);
    let left = parse_routes(&message);
    assert_eq!(left.len(), 1);
    assert!(left[0].matcher.path.matches("/b"));
    let parsed: RouteConfiguration = parse(&message).unwrap();
    let [omitted] = &*parsed.virtual_hosts[0].omitted_routes else { panic!("{parsed:?}") };
    assert_eq!((omitted.index, omitted.field), (1, "query_parameters"));
}

#[test]
fn r27_accepts_actions_of_servers_and_of_proxies() {
    let served = on("/", Some(Action::NonForwardingAction(pb::NonForwardingAction {})));
    assert_eq!(only_route(&routes(vec![served])).action, RouteAction::NonForwarding);
    // A request that matches one of these fails.
    for (action, name) in [
        (None, "unknown"),
        (Some(Action::Redirect(pb::RedirectAction {})), "redirect"),
        (Some(Action::DirectResponse(pb::DirectResponseAction::default())), "direct_response"),
        (Some(Action::FilterAction(pb::FilterAction {})), "filter_action"),
    ] {
        let parsed = only_route(&routes(vec![on("/", action)]));
        assert!(
            matches!(parsed.action, RouteAction::Unsupported(action) if action.name() == name),
            "{parsed:?}"
        );
        assert_eq!(parsed.action.clusters().count(), 0);
    }
}

#[test]
fn r28_accepts_several_virtual_hosts() {
    let hosts = ["a", "b"].map(|name| virtual_host(&[name], vec![acting(to(name))]));
    let parsed: RouteConfiguration = parse(&configuration(hosts.into())).unwrap();
    assert_eq!(&*parsed.virtual_host("b").unwrap().name, "b");
}

#[test]
fn r28_rejects_the_whole_for_one_bad_route() {
    let hosts = ["a", ""].map(|name| virtual_host(&["a"], vec![acting(to(name))]));
    let expected = "virtual_hosts[1].routes[0].route.cluster: must not be empty";
    assert_eq!(rejected(&configuration(hosts.into())), expected);
}

#[test]
fn a28_1_the_most_specific_virtual_host_is_chosen() {
    let domains: [&[&str]; 5] =
        [&["*"], &["shop.*", "a.shop.example"], &["*.example"], &["*.shop.example"], &["*"]];
    let hosts = domains.map(|domains| virtual_host(domains, Vec::new()));
    let parsed: RouteConfiguration = parse(&configuration(hosts.into())).unwrap();
    for (host, expected) in
        [("other", 0), ("shop.test", 1), ("A.shop.EXAMPLE", 1), ("shop.example", 2), ("b.shop.example", 3)]
    {
        assert_eq!(parsed.virtual_host_index(host), Some(expected), "{host}");
    }
    let one: RouteConfiguration = parse(&configuration(vec![virtual_host(&["a"], Vec::new())])).unwrap();
    assert_eq!(one.virtual_host("b"), None);
}

#[test]
fn what_is_written_is_what_was_sent() {
    let mut route = on("/cart", Some(Action::Route(to("cart-v1"))));
    route.name = "cart".into();
    let message = configuration(vec![virtual_host(&["shop.example"], vec![route])]);
    let parsed: RouteConfiguration = parse(&message).unwrap();
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

#[test]
fn what_searches_have_found_out_is_no_part_of_the_value() {
    let hosts = (0..20).map(|i| {
        let routes = (0..40).map(|j| matching(prefix(&format!("/{i}/{j}/"))));
        virtual_host(&[&format!("{i}.example")], routes.collect())
    });
    let message = configuration(hosts.collect());
    let (untouched, searched): (RouteConfiguration, RouteConfiguration) =
        (parse(&message).unwrap(), parse(&message).unwrap());
    let found = |from: &RouteConfiguration| {
        let host = from.virtual_host("7.example").unwrap();
        let routes = &host.routes;
        let route = &routes[routes.first("/7/9/x", |_, route| route.matcher.path.matches("/7/9/x")).unwrap()];
        routes.iter().position(|other| std::ptr::eq(route, other))
    };
    assert_eq!(found(&searched), Some(9));
    let copy = searched.clone();
    assert_eq!((found(&copy), found(&searched)), (Some(9), Some(9)));
    assert_eq!(untouched, searched);
    assert_eq!(format!("{untouched:?}"), format!("{searched:?}"));
    assert_eq!(serde_json::to_value(&untouched).unwrap(), serde_json::to_value(&searched).unwrap());
}
