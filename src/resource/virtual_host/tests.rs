use super::*;
use crate::resource::samples::{acting, parse, rejection, to, virtual_host};

#[test]
fn g6_a_resource_has_a_name() {
    let nameless = pb::VirtualHost { name: String::new(), ..virtual_host(&["*"], Vec::new()) };
    assert_eq!(rejection::<VirtualHost>(&nameless), "name: must not be empty");
}

#[test]
fn a_virtual_host_by_itself_is_checked_like_one_of_a_route_configuration() {
    let parsed: VirtualHost = parse(&virtual_host(&["shop"], vec![acting(to("a"))])).unwrap();
    assert_eq!((&*parsed.name, parsed.routes.len()), ("shop", 1));
    let nowhere = pb::VirtualHost { domains: Vec::new(), ..virtual_host(&["shop"], Vec::new()) };
    assert_eq!(rejection::<VirtualHost>(&nowhere), "domains: must not be empty");
    let bad = virtual_host(&["shop"], vec![acting(to(""))]);
    assert_eq!(rejection::<VirtualHost>(&bad), "routes[0].route.cluster: must not be empty");
}

#[test]
fn a_virtual_host_by_itself_is_the_same_as_in_a_route_configuration() {
    let message = pb::VirtualHost {
        retry_policy: Some(pb::RetryPolicy { retry_on: "unavailable".into(), ..Default::default() }),
        ..virtual_host(&["a.shop", "*.shop"], vec![acting(to("a")), acting(to("b"))])
    };
    let config: crate::resource::RouteConfiguration =
        parse(&crate::resource::samples::configuration(vec![message.clone()])).unwrap();
    assert_eq!(parse::<VirtualHost>(&message).unwrap(), config.virtual_hosts[0]);
}

/// Plugins are declared in a route configuration, which is not available to it.
#[test]
fn r20_rejects_a_plugin_in_a_virtual_host_by_itself() {
    use pb::route_action::ClusterSpecifier::ClusterSpecifierPlugin;

    let by_plugin = acting(crate::resource::samples::by(ClusterSpecifierPlugin("p".into())));
    assert_eq!(
        rejection::<VirtualHost>(&virtual_host(&["shop"], vec![by_plugin])),
        "routes[0].route.cluster_specifier_plugin: \"p\" is not among the cluster_specifier_plugins"
    );
}

#[test]
fn the_best_domain_ranks_a_virtual_host() {
    let parsed: VirtualHost = parse(&virtual_host(&["*", "*.shop", "a.shop"], Vec::new())).unwrap();
    assert!(parsed.fit("a.shop") > parsed.fit("b.shop"));
    assert!(parsed.fit("b.shop") > parsed.fit("c"));
    let parsed: VirtualHost = parse(&virtual_host(&["a"], Vec::new())).unwrap();
    assert_eq!(parsed.fit("b"), None);
}

#[test]
fn it_is_requested_by_route_configuration_and_host() {
    for (routes, host, name) in [
        ("routes", "a.shop", "routes/a.shop"),
        ("a/b", "A.Shop:8080", "a/b/a.shop:8080"),
        (
            "xdstp://mesh/envoy.config.route.v3.RouteConfiguration/a/b?x=y",
            "shop",
            "xdstp://mesh/envoy.config.route.v3.VirtualHost/a/b/shop?x=y",
        ),
        (
            "xdstp:///envoy.config.route.v3.RouteConfiguration",
            "shop",
            "xdstp:///envoy.config.route.v3.VirtualHost/shop",
        ),
        ("xdstp:nothing", "shop", "xdstp:nothing/shop"),
    ] {
        assert_eq!(VirtualHost::resource_name(routes, host), name);
    }
}
