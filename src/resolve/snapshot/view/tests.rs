use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{
                core::v3::{HttpProtocolOptions, RuntimeFractionalPercent},
                route::v3::{
                    self as pb,
                    route::Action,
                    route_action::{
                        ClusterSpecifier, HashPolicy as Policy, HostRewriteSpecifier, MaxStreamDuration,
                        hash_policy,
                    },
                },
            },
            extensions::filters::{http::fault::v3::HttpFault, network::http_connection_manager::v3 as hcm},
            r#type::v3::FractionalPercent,
        },
        google::protobuf::{self, Any, BoolValue, UInt32Value},
    },
    resolve::{
        RouteQuery,
        fixture::{any, http_filter, prefix, route, snapshot, split, to, virtual_host},
    },
    resource::{
        Extension,
        http_filter::{EffectiveFilter, Fault, HttpFilterConfig, HttpFilterOverride},
        retry::RetryOn,
        route_action::HashSource,
    },
};

/// The only route of a snapshot for `/`.
fn only(snapshot: &Snapshot) -> RouteView<'_> {
    routed(snapshot, 0)
}

/// The only route of a snapshot for `/`, for a request of this random number.
fn routed(snapshot: &Snapshot, random: u64) -> RouteView<'_> {
    snapshot.route(&RouteQuery::new("/", random)).expect("a route")
}

/// A snapshot with one route to the cluster `a`.
fn with_action(action: pb::RouteAction) -> Snapshot {
    snapshot("shop").eds("a", &[]).routes(vec![route(prefix("/"), action)]).build()
}

fn seconds(seconds: u64) -> protobuf::Duration {
    protobuf::Duration { seconds: seconds as i64, nanos: 0 }
}

/// The limits of the route (of the timeout header, of the stream) and of the listener, in seconds.
fn with_limits(header: Option<u64>, stream: Option<u64>, listener: Option<u64>) -> Snapshot {
    let limits = MaxStreamDuration {
        grpc_timeout_header_max: header.map(seconds),
        max_stream_duration: stream.map(seconds),
    };
    let max_stream_duration = (limits != MaxStreamDuration::default()).then_some(limits);
    let action = pb::RouteAction { max_stream_duration, ..to("a") };
    let options = HttpProtocolOptions { max_stream_duration: listener.map(seconds), ..Default::default() };
    let manager =
        hcm::HttpConnectionManager { common_http_protocol_options: Some(options), ..Default::default() };
    snapshot("shop").eds("a", &[]).manager(manager).routes(vec![route(prefix("/"), action)]).build()
}

#[test]
fn a31_1_the_limit_of_the_route_stands_before_that_of_the_listener() {
    for (header, stream, listener, expected) in [
        (None, None, None, None),
        (None, None, Some(7), Some(7)),
        (None, None, Some(0), None),
        (None, Some(9), Some(7), Some(9)),
        (None, Some(0), Some(7), None),
        (Some(0), Some(3), Some(7), None),
        (Some(5), None, Some(7), Some(5)),
    ] {
        let snapshot = with_limits(header, stream, listener);
        let limit = only(&snapshot).max_stream_duration();
        assert_eq!(limit, expected.map(Duration::from_secs), "{header:?} {stream:?} {listener:?}");
    }
}

#[test]
fn a31_2_the_timeout_is_the_shorter_of_the_limit_and_what_the_application_wants() {
    // Of the application, the timeout header, the stream; what follows from them.
    for (application, header, stream, expected) in [
        (None, None, None, None),
        (None, None, Some(0), None),
        (None, None, Some(10), Some(10)),
        (None, Some(0), Some(10), None),
        (None, Some(20), Some(10), Some(20)),
        (Some(30), None, None, Some(30)),
        (Some(30), None, Some(10), Some(10)),
        (Some(30), Some(0), Some(10), Some(30)),
        (Some(30), Some(20), Some(10), Some(20)),
        (Some(30), Some(40), Some(10), Some(30)),
    ] {
        let snapshot = with_limits(header, stream, None);
        let timeout = only(&snapshot).timeout(application.map(Duration::from_secs));
        assert_eq!(timeout, expected.map(Duration::from_secs), "{application:?} {header:?} {stream:?}");
    }
}

#[test]
fn a44_4_the_retry_policy_of_the_route_stands_before_that_of_the_virtual_host() {
    let policy = |retry_on: &str| pb::RetryPolicy { retry_on: retry_on.into(), ..Default::default() };
    // A policy without a condition that is known means that nothing is tried again.
    for (of_route, of_host, expected) in [
        (None, None, None),
        (None, Some("internal"), Some(&[RetryOn::Internal][..])),
        (Some("unavailable"), Some("internal"), Some(&[RetryOn::Unavailable])),
        (Some("5xx"), Some("internal"), Some(&[])),
        (Some("cancelled"), None, Some(&[RetryOn::Cancelled])),
    ] {
        let action = pb::RouteAction { retry_policy: of_route.map(policy), ..to("a") };
        let host = pb::VirtualHost {
            retry_policy: of_host.map(policy),
            ..virtual_host(&["*"], vec![route(prefix("/"), action)])
        };
        let snapshot = snapshot("shop").eds("a", &[]).virtual_hosts(vec![host]).build();
        let found = only(&snapshot).retry_policy().map(|policy| &*policy.retry_on);
        assert_eq!(found, expected, "{of_route:?} {of_host:?}");
    }
}

#[test]
fn a42_1_hash_policies_are_those_of_the_route() {
    let by = |name: &str| Policy {
        terminal: name == "x",
        policy_specifier: Some(hash_policy::PolicySpecifier::Header(hash_policy::Header {
            header_name: name.into(),
            ..Default::default()
        })),
    };
    let snapshot = with_action(pb::RouteAction { hash_policy: vec![by("x"), by("y")], ..to("a") });
    let policies = only(&snapshot).hash_policies().iter().map(|policy| match &policy.source {
        HashSource::Header { name, .. } => (&**name, policy.terminal),
        HashSource::ChannelId => ("", false),
    });
    assert_eq!(policies.collect::<Vec<_>>(), [("x", true), ("y", false)]);
    assert!(only(&with_action(to("a"))).hash_policies().is_empty());
}

#[test]
fn a81_1_the_host_is_rewritten_where_the_route_enables_it() {
    for rewrite in [false, true] {
        let specifier = HostRewriteSpecifier::AutoHostRewrite(BoolValue { value: rewrite });
        let snapshot = with_action(pb::RouteAction { host_rewrite_specifier: Some(specifier), ..to("a") });
        assert_eq!(only(&snapshot).auto_host_rewrite(), rewrite);
    }
}

#[test]
fn r27_a_route_that_is_not_supported_matches_and_leads_nowhere() {
    let of = |action| pb::Route { action, ..route(prefix("/"), to("a")) };
    for action in [
        None,
        Some(Action::NonForwardingAction(pb::NonForwardingAction {})),
        Some(Action::Redirect(Default::default())),
    ] {
        let policy = pb::RetryPolicy { retry_on: "internal".into(), ..Default::default() };
        let routes = vec![of(action.clone()), route(prefix("/"), to("a"))];
        let host = pb::VirtualHost { retry_policy: Some(policy), ..virtual_host(&["*"], routes) };
        let snapshot = snapshot("shop").eds("a", &[]).virtual_hosts(vec![host]).build();
        let route = only(&snapshot);
        assert!(route.is_unsupported(), "{action:?}");
        assert_eq!((route.weighted_clusters().count(), route.pick_cluster().is_none()), (0, true));
        assert!(route.forward().is_none() && route.retry_policy().is_none());
        assert!(route.hash_policies().is_empty() && !route.auto_host_rewrite());
    }
    assert!(!only(&with_action(to("a"))).is_unsupported());
}

#[test]
fn a28_7_one_cluster_takes_all_requests() {
    let snapshot = with_action(to("a"));
    let splits: Vec<_> =
        only(&snapshot).weighted_clusters().map(|(weight, cluster)| (weight, cluster.name())).collect();
    assert_eq!(splits, [(1, "a")]);
    assert!(
        (0..99).all(|random| routed(&snapshot, random)
            .pick_cluster()
            .is_some_and(|cluster| cluster.name() == "a"))
    );
}

#[test]
fn a28_8_clusters_of_a_split_have_their_weights() {
    let routes = vec![route(prefix("/"), split(&[("a", 1), ("zero", 0), ("b", 3)]))];
    let snapshot = snapshot("shop").eds("a", &[]).eds("b", &[]).routes(routes).build();
    let splits: Vec<_> =
        only(&snapshot).weighted_clusters().map(|(weight, cluster)| (weight, cluster.name())).collect();
    assert_eq!(splits, [(1, "a"), (3, "b")]);
}

#[test]
fn a28_8_a_split_does_not_depend_on_what_the_routes_drew() {
    let default_value = Some(FractionalPercent { numerator: 50, denominator: 0 });
    let half = pb::RouteMatch {
        runtime_fraction: Some(RuntimeFractionalPercent { default_value, ..Default::default() }),
        ..prefix("/")
    };
    let routes =
        vec![route(half, split(&[("a", 1), ("b", 1)])), route(prefix("/"), split(&[("a", 1), ("c", 1)]))];
    let snapshot = snapshot("shop").eds("a", &[]).eds("b", &[]).eds("c", &[]).routes(routes).build();
    let mut counts = BTreeMap::<_, u32>::new();
    for random in 0..16_000 {
        let route = snapshot.route(&RouteQuery::new("/", random)).unwrap();
        let first = std::ptr::eq(route.route(), &snapshot.virtual_host().routes[0]);
        *counts.entry((first, route.pick_cluster().unwrap().name())).or_default() += 1;
    }
    let names: Vec<_> = counts.keys().copied().collect();
    assert_eq!(names, [(false, "a"), (false, "c"), (true, "a"), (true, "b")]);
    assert!(counts.values().all(|count| count.abs_diff(4_000) < 274), "{counts:?}");
}

proptest! {
    #[test]
    fn a28_8_over_all_draws_each_cluster_is_chosen_as_often_as_its_weight(
        weights in prop::collection::vec(0..9_u32, 1..6),
    ) {
        prop_assume!(weights.iter().any(|weight| *weight > 0));
        let names: Vec<_> = (0..weights.len()).map(|place| place.to_string()).collect();
        let list: Vec<_> = names.iter().map(String::as_str).zip(weights.iter().copied()).collect();
        let snapshot = names.iter().fold(snapshot("shop"), |draft, name| draft.eds(name, &[]));
        let snapshot = snapshot.routes(vec![route(prefix("/"), split(&list))]).build();
        let ClusterChoice::WeightedClusters(weighted) = &only(&snapshot).forward().unwrap().clusters else {
            panic!("not weighted");
        };
        // Draw after draw, the clusters in their order, each as often as its weight.
        let expected = list.iter().flat_map(|(name, weight)| (0..*weight).map(move |_| *name));
        let picked = (0..weighted.total_weight).map(|draw| &*weighted.pick(draw).unwrap().name);
        prop_assert!(picked.eq(expected));
        prop_assert!(weighted.pick(weighted.total_weight).is_none());
    }
}

/// A configuration that differs from others.
fn fault(number: u32) -> HttpFault {
    HttpFault { max_active_faults: Some(UInt32Value { value: number }), ..Default::default() }
}

fn overrides(list: &[(&str, Any)]) -> BTreeMap<String, Any> {
    list.iter().map(|(name, setting)| ((*name).to_owned(), setting.clone())).collect()
}

fn config(number: u32) -> Any {
    any(Fault::TYPE_NAME, &fault(number))
}

fn disabled() -> Any {
    any("envoy.config.route.v3.FilterConfig", &pb::FilterConfig { disabled: true, ..Default::default() })
}

/// Each filter with the number in its configuration, and `off` where it is disabled.
fn described(route: RouteView<'_>, cluster: ClusterView<'_>) -> String {
    let one = |filter: FilterView<'_>| {
        let fault = match (filter.setting, &filter.filter.config) {
            (Some(OverrideSetting::Config(HttpFilterOverride::Fault(fault))), _)
            | (_, HttpFilterConfig::Fault(fault)) => fault,
            (_, other) => panic!("not a fault: {other:?}"),
        };
        let number = fault.max_active_faults.unwrap_or(0);
        let off = filter.effective() == EffectiveFilter::Nothing;
        assert_eq!(off, filter.is_disabled());
        assert!(off || filter.effective() == EffectiveFilter::Fault(fault));
        format!("{}:{number}{}", filter.filter.name, if off { ":off" } else { "" })
    };
    let filters = route.filters(cluster).filter(|filter| filter.filter.config != HttpFilterConfig::Router);
    filters.map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn a39_6_the_most_specific_override_of_a_filter_wins() {
    let filter = |name: &str| http_filter(name, Fault::TYPE_NAME, &fault(1));
    let off = |filter| hcm::HttpFilter { disabled: true, ..filter };
    let manager = hcm::HttpConnectionManager {
        http_filters: vec![filter("f"), off(filter("g")), filter("h")],
        ..Default::default()
    };
    let mut action = split(&[("a", 1), ("b", 1), ("a", 1), ("d", 1)]);
    let Some(ClusterSpecifier::WeightedClusters(weighted)) = &mut action.cluster_specifier else {
        panic!("not weighted");
    };
    weighted.clusters[0].typed_per_filter_config = overrides(&[("f", config(4)), ("g", disabled())]);
    // The same cluster again, and settings for other filters than the listener has.
    weighted.clusters[2].typed_per_filter_config = overrides(&[("g", config(5)), ("x", disabled())]);
    let other_kind = any("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", &());
    weighted.clusters[3].typed_per_filter_config = overrides(&[("f", other_kind), ("h", config(6))]);
    let first = pb::Route {
        typed_per_filter_config: overrides(&[("f", config(3)), ("h", disabled())]),
        ..route(prefix("/"), action)
    };
    let for_the_rest = route(prefix(""), to("b"));
    let host = pb::VirtualHost {
        typed_per_filter_config: overrides(&[("f", disabled()), ("g", config(2)), ("h", config(2))]),
        ..virtual_host(&["*"], vec![first, for_the_rest])
    };
    let snapshot = snapshot("shop")
        .aggregate("a", &["leaf"])
        .eds("b", &[])
        .eds("d", &[])
        .eds("leaf", &[])
        .manager(manager)
        .virtual_hosts(vec![host])
        .build();
    let route = only(&snapshot);
    let seen: Vec<_> = route.weighted_clusters().map(|(_, cluster)| described(route, cluster)).collect();
    assert_eq!(seen, ["f:4 g:1:off h:1:off", "f:3 g:2 h:1:off", "f:3 g:5 h:1:off", "f:3 g:2 h:6"]);
    // The leaf of an aggregate is reached by the aggregate's split.
    let (_, first) = route.weighted_clusters().next().unwrap();
    assert_eq!(described(route, first.leaves().next().unwrap()), seen[0]);
    // An owned cluster keeps the overrides.
    let owned: Vec<_> = route.weighted_clusters().map(|(_, cluster)| cluster.to_ref()).collect();
    let again: Vec<_> = owned.iter().map(|cluster| described(route, cluster.view())).collect();
    assert_eq!(again, seen);
    // What is picked is what the splits show, overrides included.
    let picked: BTreeMap<_, _> = (0..99)
        .filter_map(|random| routed(&snapshot, random).pick_cluster())
        .map(|c| (described(route, c), c.name()))
        .collect();
    let mut expected: Vec<_> = seen.iter().cloned().zip(["a", "b", "a", "d"]).collect();
    expected.sort();
    assert_eq!(picked.into_iter().collect::<Vec<_>>(), expected);
    // A route without overrides has those of the virtual host, one without any those of the listener.
    let other = snapshot.route(&RouteQuery::new("other", 0)).unwrap();
    assert_eq!(described(other, other.pick_cluster().unwrap()), "f:1:off g:2 h:2");
}

#[test]
fn a39_6_without_overrides_filters_are_as_in_the_listener() {
    let filter = |name: &str| http_filter(name, Fault::TYPE_NAME, &fault(1));
    let manager = hcm::HttpConnectionManager {
        http_filters: vec![filter("f"), hcm::HttpFilter { disabled: true, ..filter("g") }],
        ..Default::default()
    };
    let snapshot = snapshot("shop").eds("a", &[]).manager(manager).build();
    let route = only(&snapshot);
    let cluster = snapshot.cluster("a").unwrap();
    assert_eq!(described(route, cluster), "f:1 g:1:off");
    let last = route.filters(cluster).last().unwrap();
    assert_eq!(last.effective(), EffectiveFilter::Router);
}
