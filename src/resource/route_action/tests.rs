use serde_json::json;

use super::*;
use crate::pb::{
    envoy::{
        config::route::v3::route_action::hash_policy::{Cookie, FilterState, Header},
        r#type::matcher::v3::RegexMatcher,
    },
    google::protobuf::{self, BoolValue, UInt32Value},
};

fn parse(action: route::RouteAction) -> Result<Option<ForwardAction>, Invalid> {
    let plugins = ["ignored".into()];
    ForwardAction::parse(action, &Scope { cx: &Context::new(), plugins: &plugins })
}

fn to(specifier: ClusterSpecifier) -> route::RouteAction {
    route::RouteAction { cluster_specifier: Some(specifier), ..Default::default() }
}

fn to_shop() -> route::RouteAction {
    to(ClusterSpecifier::Cluster("shop".into()))
}

fn error_path(action: route::RouteAction) -> String {
    parse(action).unwrap_err().path().to_owned()
}

fn weighted(clusters: &[(&str, Option<u32>)]) -> route::RouteAction {
    let clusters = clusters.iter().map(|(name, weight)| route::weighted_cluster::ClusterWeight {
        name: (*name).into(),
        weight: weight.map(|value| UInt32Value { value }),
        ..Default::default()
    });
    to(ClusterSpecifier::WeightedClusters(route::WeightedCluster {
        clusters: clusters.collect(),
        total_weight: Some(UInt32Value { value: 1 }),
    }))
}

#[test]
fn r18_a_cluster_has_a_name() {
    assert_eq!(error_path(to(ClusterSpecifier::Cluster(String::new()))), "cluster");
    let action = parse(to_shop()).unwrap().unwrap();
    assert_eq!(action.clusters, ClusterChoice::Cluster("shop".into()));
    let action = RouteAction::Forward(action);
    assert_eq!(action.clusters().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
}

#[test]
fn r19_clusters_of_weight_0_are_skipped() {
    let action = parse(weighted(&[("a", Some(90)), ("", Some(0)), ("b", None), ("c", Some(10))]));
    let action = action.unwrap().unwrap();
    let ClusterChoice::WeightedClusters(clusters) = &action.clusters else { panic!("{action:?}") };
    assert_eq!(clusters.total_weight, 100);
    let json = json!({"weighted_clusters": [{"name": "a", "weight": 90}, {"name": "c", "weight": 10}]});
    assert_eq!(serde_json::to_value(&action.clusters).unwrap(), json);
    for (draw, name) in [(0, Some("a")), (89, Some("a")), (90, Some("c")), (99, Some("c")), (100, None)] {
        assert_eq!(clusters.pick(draw).map(|c| &*c.name), name, "{draw}");
    }
    let names: Vec<_> = RouteAction::Forward(action).clusters().cloned().collect();
    assert_eq!(names, ["a".into(), "c".into()]);
}

#[test]
fn r19_the_sum_of_weights_is_a_positive_u32() {
    for bad in [&[][..], &[("a", Some(0))], &[("a", None)], &[("a", Some(u32::MAX)), ("b", Some(1))]] {
        assert_eq!(error_path(weighted(bad)), "weighted_clusters.clusters", "{bad:?}");
    }
    assert!(parse(weighted(&[("a", Some(u32::MAX - 1)), ("b", Some(1))])).is_ok());
}

#[test]
fn r19_weighted_clusters_have_names() {
    assert_eq!(error_path(weighted(&[("a", Some(1)), ("", Some(1))])), "weighted_clusters.clusters[1].name");
}

#[test]
fn r20_a_plugin_is_declared_and_an_optional_one_drops_the_route() {
    assert_eq!(parse(to(ClusterSpecifier::ClusterSpecifierPlugin("ignored".into()))), Ok(None));
    for name in ["other", ""] {
        let path = error_path(to(ClusterSpecifier::ClusterSpecifierPlugin(name.into())));
        assert_eq!(path, "cluster_specifier_plugin");
    }
}

#[test]
fn r21_an_unsupported_specifier_drops_the_route() {
    assert_eq!(parse(to(ClusterSpecifier::ClusterHeader("x-cluster".into()))), Ok(None));
    assert_eq!(parse(route::RouteAction::default()), Ok(None));
}

fn hashing(policy: PolicySpecifier) -> route::RouteAction {
    let policy = Policy { policy_specifier: Some(policy), terminal: true };
    route::RouteAction { hash_policy: vec![Policy::default(), policy], ..to_shop() }
}

fn by_header(name: &str, pattern: Option<&str>) -> route::RouteAction {
    let pattern = pattern.map(|regex| RegexMatcher { regex: regex.into() });
    let rewrite = RegexMatchAndSubstitute { pattern, substitution: r"<\1$>".into() };
    hashing(PolicySpecifier::Header(Header { header_name: name.into(), regex_rewrite: Some(rewrite) }))
}

#[test]
fn r22_a_header_is_named_and_its_regex_valid() {
    for (action, path) in [
        (by_header("", Some("a")), "hash_policy[1].header.header_name"),
        (by_header("x", None), "hash_policy[1].header.regex_rewrite.pattern"),
        (by_header("x", Some("")), "hash_policy[1].header.regex_rewrite.pattern.regex"),
        (by_header("x", Some("(")), "hash_policy[1].header.regex_rewrite.pattern.regex"),
    ] {
        assert_eq!(error_path(action), path);
    }
    let action = parse(by_header("x-user", Some("u([0-9])"))).unwrap().unwrap();
    let [HashPolicy { source, terminal: true }] = &*action.hash_policies else { panic!("{action:?}") };
    let HashSource::Header { name, regex_rewrite: Some(rewrite) } = source else { panic!("{source:?}") };
    assert_eq!((&**name, rewrite.pattern(), rewrite.substitution()), ("x-user", "u([0-9])", r"<\1$>"));
    assert_eq!(&*rewrite.apply("u1-u2-x"), b"<1$>-<2$>-x");
}

#[test]
fn r22_a_substitution_refers_to_groups_by_backslash() {
    for (substitution, expected) in [
        ("", ""),
        ("a", "a"),
        (r"\0", "${0}"),
        (r"\12", "${1}2"),
        ("$1", "$$1"),
        (r"\\1", r"\1"),
        (r"\", r"\"),
    ] {
        assert_eq!(template(substitution), expected);
    }
}

#[test]
fn r23_sources_that_a_client_lacks_are_ignored() {
    let state = |key: &str| PolicySpecifier::FilterState(FilterState { key: key.into() });
    for (policy, count) in [
        (state("io.grpc.channel_id"), 1),
        (state("other"), 0),
        (PolicySpecifier::Cookie(Cookie { name: "a".into() }), 0),
    ] {
        assert_eq!(parse(hashing(policy)).unwrap().unwrap().hash_policies.len(), count);
    }
}

#[test]
fn r24_the_limit_for_the_asked_timeout_wins() {
    let seconds = |seconds: Option<i64>| seconds.map(|seconds| protobuf::Duration { seconds, nanos: 0 });
    let limit = |stream, asked| {
        let max_stream_duration = Some(MaxStreamDuration {
            max_stream_duration: seconds(stream),
            grpc_timeout_header_max: seconds(asked),
        });
        parse(route::RouteAction { max_stream_duration, ..to_shop() })
            .map(|action| action.unwrap().max_stream_duration.map(|limit| limit.as_secs()))
            .map_err(|e| e.path().to_owned())
    };
    for (stream, asked, expected) in
        [(None, None, None), (Some(5), None, Some(5)), (Some(5), Some(0), Some(0)), (None, Some(7), Some(7))]
    {
        assert_eq!(limit(stream, asked), Ok(expected));
    }
    assert_eq!(limit(Some(-1), Some(1)), Err("max_stream_duration.max_stream_duration.seconds".into()));
    assert_eq!(limit(None, Some(-1)), Err("max_stream_duration.grpc_timeout_header_max.seconds".into()));
}

#[test]
fn r25_the_retry_policy_is_checked() {
    let retry = |value| {
        let policy = route::RetryPolicy { num_retries: Some(UInt32Value { value }), ..Default::default() };
        route::RouteAction { retry_policy: Some(policy), ..to_shop() }
    };
    assert!(parse(retry(1)).unwrap().unwrap().retry_policy.is_some());
    assert_eq!(error_path(retry(0)), "retry_policy.num_retries");
}

#[test]
fn r26_the_host_is_rewritten_only_for_a_trusted_server() {
    let rewrite = Some(HostRewriteSpecifier::AutoHostRewrite(BoolValue { value: true }));
    let action = route::RouteAction { host_rewrite_specifier: rewrite, ..to_shop() };
    for trusted in [false, true] {
        let cx = Context::new().with_trusted_server(trusted);
        let parsed = ForwardAction::parse(action.clone(), &Scope { cx: &cx, plugins: &[] }).unwrap().unwrap();
        assert_eq!(parsed.auto_host_rewrite, trusted);
    }
}
