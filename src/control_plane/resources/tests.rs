use super::*;
use crate::{
    control_plane::{AnyResource, type_url},
    pb::{
        envoy::{
            config::{
                cluster::v3::{Cluster, ClusterCollection, cluster::ClusterDiscoveryType},
                core::v3::HealthStatus,
                route::v3::{
                    RouteAction, RouteConfiguration, route::Action, route_action::ClusterSpecifier,
                    route_match::PathSpecifier,
                },
            },
            extensions::{
                clusters::aggregate::v3::ClusterConfig,
                filters::network::http_connection_manager::v3::{
                    HttpConnectionManager, Rds, http_connection_manager::RouteSpecifier,
                },
            },
        },
        xds::core::v3::collection_entry::ResourceSpecifier,
    },
    resource::{self, Context, Resource},
};

fn manager(listener: ListenerBuilder) -> HttpConnectionManager {
    let api_listener = listener.into_message().api_listener.unwrap().api_listener.unwrap();
    assert_eq!(
        api_listener.type_url,
        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    );
    HttpConnectionManager::decode(api_listener.value).unwrap()
}

#[test]
fn a_listener_names_its_routes_or_carries_them() {
    for (listener, name) in [(listener("edge"), "edge"), (listener("edge").rds("routes"), "routes")] {
        let manager = manager(listener);
        let rds = Rds { config_source: Some(ads()), route_config_name: name.into() };
        assert_eq!(manager.route_specifier, Some(RouteSpecifier::Rds(rds)));
        assert_eq!(manager.http_filters.len(), 1, "the router");
    }
    let routes = || route_config("inline").virtual_host(["*"], [route::prefix("/").cluster("a")]);
    let inline = manager(listener("edge").inline_routes(routes())).route_specifier;
    assert_eq!(inline, Some(RouteSpecifier::RouteConfig(routes().into_message())));
}

#[test]
fn routes_go_to_clusters_in_order() {
    let routes = [
        route::path("/a").header("version", "2").per_million(500).cluster("a").named("first"),
        route::regex("/b+").weighted([("b", 90), ("c", 10)]),
        route::path_separated_prefix("/d").cluster("d"),
        route::prefix("/").non_forwarding(),
    ];
    let config = route_config("routes").virtual_host(["shop.example", "shop"], routes).into_message();
    let [host] = &config.virtual_hosts[..] else { panic!("one virtual host") };
    assert_eq!((host.name.as_str(), host.domains.len(), host.routes.len()), ("shop.example", 2, 4));
    assert_eq!(host.routes[0].name, "first");
    assert_eq!(host.routes[0].r#match.as_ref().unwrap().headers.len(), 1);
    let whole_segments = PathSpecifier::PathSeparatedPrefix("/d".into());
    assert_eq!(host.routes[2].r#match.as_ref().unwrap().path_specifier, Some(whole_segments));
    let Some(Action::Route(RouteAction {
        cluster_specifier: Some(ClusterSpecifier::WeightedClusters(weighted)),
        ..
    })) = &host.routes[1].action
    else {
        panic!("weighted clusters")
    };
    let weights = weighted.clusters.iter().map(|c| (c.name.as_str(), c.weight.unwrap().value));
    assert_eq!(weights.collect::<Vec<_>>(), [("b", 90), ("c", 10)]);
}

#[test]
fn clusters_ask_for_load_reports() {
    let parsed = |cluster: ClusterBuilder| {
        let bytes = cluster.into_message().encode_to_vec().into();
        resource::Cluster::parse(&bytes, &Context::new()).unwrap().report_load
    };
    assert!(!parsed(cluster("a")));
    assert!(parsed(cluster("a").report_load()));
}

#[test]
fn clusters_have_one_kind_of_discovery() {
    let types = |cluster: &Cluster| match &cluster.cluster_discovery_type {
        Some(ClusterDiscoveryType::Type(number)) => (*number, String::new()),
        Some(ClusterDiscoveryType::ClusterType(custom)) => (-1, custom.name.clone()),
        None => (-2, String::new()),
    };
    let eds = cluster("a").logical_dns("a.example", 80).eds_service("service").into_message();
    assert_eq!(types(&eds), (3, String::new()));
    assert_eq!(eds.eds_cluster_config.unwrap().service_name, "service");
    assert_eq!(eds.load_assignment, None);

    let dns = cluster("a").logical_dns("a.example", 80).into_message();
    assert_eq!(types(&dns), (2, String::new()));
    assert_eq!(dns.eds_cluster_config, None);
    assert_eq!(dns.load_assignment.unwrap().endpoints[0].lb_endpoints.len(), 1);

    let aggregate = cluster("a").aggregate(["b", "c"]).into_message();
    assert_eq!(types(&aggregate), (-1, "envoy.clusters.aggregate".into()));
    let Some(ClusterDiscoveryType::ClusterType(custom)) = aggregate.cluster_discovery_type else { panic!() };
    let config = ClusterConfig::decode(custom.typed_config.unwrap().value).unwrap();
    assert_eq!(config.clusters, ["b", "c"]);
}

#[test]
fn endpoints_have_localities_health_and_weights() {
    let message = endpoints("shop")
        .locality("eu", "a", ["10.0.0.1:80", "[2001:db8::1]:80"])
        .weight(3)
        .locality("us", "b", ["10.0.1.1:81"])
        .priority(1)
        .draining("[2001:db8::1]:80")
        .unhealthy("10.0.1.1:81")
        .endpoint_weight("10.0.0.1:80", 7)
        .drop_percent("overload", 5)
        .into_message();
    let localities = message.endpoints.iter().map(|l| {
        let zone = l.locality.as_ref().unwrap().zone.as_str();
        (zone, l.priority, l.load_balancing_weight.unwrap().value)
    });
    assert_eq!(localities.collect::<Vec<_>>(), [("a", 0, 3), ("b", 1, 1)]);
    let all = message.endpoints.iter().flat_map(|l| &l.lb_endpoints);
    let health = all.map(|e| (e.health_status(), e.load_balancing_weight.map_or(1, |weight| weight.value)));
    let expected = [(HealthStatus::Unknown, 7), (HealthStatus::Draining, 1), (HealthStatus::Unhealthy, 1)];
    assert_eq!(health.collect::<Vec<_>>(), expected);
    assert_eq!(message.policy.unwrap().drop_overloads[0].drop_percentage.unwrap().numerator, 5);
}

#[test]
#[should_panic(expected = "10.0.0.2:80 is no endpoint of \"shop\"")]
fn an_endpoint_that_is_not_there_is_a_mistake_of_the_test() {
    let _ = endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]).draining("10.0.0.2:80");
}

#[test]
fn clients_accept_what_builders_build() {
    fn parse<T: Resource>(resource: impl Into<AnyResource>) -> T {
        let resource = resource.into();
        assert_eq!(resource.type_url(), T::TYPE_URL);
        T::parse(resource.bytes(), &Context::new()).unwrap()
    }
    let routes = || {
        let canary = route::prefix("/cart/").header("x", "1").per_million(500).weighted([("b", 9), ("c", 1)]);
        let rest = [canary, route::regex("/b+").cluster("b"), route::path("/c").cluster("c").named("c")];
        route_config("routes").virtual_host(["shop.example", "*.shop"], rest)
    };
    parse::<resource::RouteConfiguration>(routes());
    parse::<resource::Listener>(listener("a"));
    parse::<resource::Listener>(listener("a").rds("routes"));
    parse::<resource::Listener>(listener("a").inline_routes(routes()));
    parse::<resource::Cluster>(cluster("a"));
    parse::<resource::Cluster>(cluster("a").eds_service("service"));
    parse::<resource::Cluster>(cluster("a").logical_dns("a.example", 80));
    parse::<resource::Cluster>(cluster("a").aggregate(["b", "c"]));
    let all_of_it = endpoints("shop")
        .locality("eu", "a", ["10.0.0.1:80", "[2001:db8::1]:80"])
        .locality("us", "b", ["10.0.1.1:81"])
        .priority(1)
        .draining("[2001:db8::1]:80")
        .drop_percent("overload", 5);
    parse::<resource::ClusterLoadAssignment>(all_of_it);
}

#[test]
fn builders_turn_into_resources_by_type_and_name() {
    let resources: [AnyResource; 4] = [
        listener("a").into(),
        route_config("b").into(),
        cluster("c").edit(|cluster| cluster.name = "edited".into()).into(),
        endpoints("d").into(),
    ];
    let expected = [
        (type_url::LISTENER, "a"),
        (type_url::ROUTE_CONFIGURATION, "b"),
        (type_url::CLUSTER, "edited"),
        (type_url::ENDPOINTS, "d"),
    ];
    assert_eq!(resources.each_ref().map(|r| (r.type_url(), r.name())), expected);
    let decoded = RouteConfiguration::decode(resources[1].bytes().clone()).unwrap();
    assert_eq!(decoded, route_config("b").into_message());
}

#[test]
fn x12_x13_a_collection_has_locators_and_inline_entries() {
    let name = "xdstp://mesh/envoy.config.cluster.v3.ClusterCollection/shop?b=2&a=1";
    let resource: AnyResource = collection(name)
        .locator("xdstp://other/envoy.config.cluster.v3.Cluster/cart?x=1")
        .inline("pay", "7", cluster("pay"))
        .into();
    assert_eq!(resource.type_url(), "type.googleapis.com/envoy.config.cluster.v3.ClusterCollection");
    assert_eq!(resource.name(), "xdstp://mesh/envoy.config.cluster.v3.ClusterCollection/shop?a=1&b=2");
    let [locator, inline] = &ClusterCollection::decode(resource.bytes().clone()).unwrap().entries[..] else {
        panic!("two entries")
    };
    let Some(ResourceSpecifier::Locator(locator)) = &locator.resource_specifier else { panic!("a locator") };
    assert_eq!((locator.authority.as_str(), locator.id.as_str()), ("other", "cart"));
    assert_eq!(locator.resource_type, "envoy.config.cluster.v3.Cluster");
    let Some(ResourceSpecifier::InlineEntry(inline)) = &inline.resource_specifier else { panic!("inline") };
    assert_eq!((inline.name.as_str(), inline.version.as_str()), ("pay", "7"));
    let any = inline.resource.as_ref().unwrap();
    assert_eq!(any.type_url, type_url::CLUSTER);
    assert_eq!(Cluster::decode(any.value.clone()).unwrap().name, "pay");
}

#[test]
#[should_panic(expected = "is not an xdstp: name")]
fn a_collection_has_an_xdstp_name() {
    let _ = collection("shop");
}

#[test]
fn clients_accept_all_settings_of_clusters_that_builders_build() {
    use resource::load_balancing::LbPolicy;

    let providers = ["roots".to_owned()].into();
    let context = Context::new().with_certificate_providers(&providers);
    let parsed = |cluster: ClusterBuilder| {
        resource::Cluster::parse(&cluster.into_message().encode_to_vec().into(), &context).unwrap()
    };
    let policy = |policy| parsed(cluster("a").lb_policy(policy)).lb_policy;
    assert_eq!(policy(lb_policy::round_robin()), LbPolicy::RoundRobin);
    assert!(
        matches!(policy(lb_policy::least_request(5)), LbPolicy::LeastRequest(it) if it.choice_count == 5)
    );
    let ring = policy(lb_policy::ring_hash(7, 9));
    assert!(matches!(ring, LbPolicy::RingHash(it) if (it.minimum_ring_size, it.maximum_ring_size) == (7, 9)));
    assert!(matches!(policy(lb_policy::maglev()), LbPolicy::Maglev(_)));
    assert!(matches!(policy(lb_policy::pick_first()), LbPolicy::PickFirst(_)));
    let blackout = Duration::from_millis(1500);
    let weighted = policy(lb_policy::client_side_weighted_round_robin(blackout));
    assert!(matches!(weighted, LbPolicy::ClientSideWeightedRoundRobin(it) if it.blackout_period == blackout));
    assert!(matches!(policy(lb_policy::wrr_locality(lb_policy::maglev())), LbPolicy::WrrLocality(_)));
    let subset = lb_policy::random_subsetting(3, lb_policy::round_robin());
    assert!(matches!(policy(subset), LbPolicy::RandomSubsetting(it) if it.subset_size.get() == 3));
    let unknown = lb_policy::custom("test.Unknown", &Cluster::default());
    let list = cluster("a").lb_policies([unknown, lb_policy::pick_first(), lb_policy::round_robin()]);
    assert!(matches!(parsed(list).lb_policy, LbPolicy::PickFirst(_)), "the first that clients support");
    let detection = parsed(cluster("a").outlier_detection(outlier_detection().success_rate(1900, 5, 100)));
    let detection = detection.outlier_detection.unwrap();
    assert!(detection.success_rate.is_some() && detection.failure_percentage.is_none(), "{detection:?}");
    let tls = parsed(cluster("a").tls(upstream_tls("roots").san("a.example").sni("b.example"))).tls.unwrap();
    assert_eq!(tls.sni.as_deref(), Some("b.example"));
}
