use serde_json::json;

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{
                core::v3::RuntimeFractionalPercent,
                route::v3::route_action::hash_policy::{Cookie, FilterState, Header},
            },
            r#type::{matcher::v3::RegexMatcher, v3::FractionalPercent},
        },
        google::protobuf::{self, BoolValue, UInt32Value},
    },
    resource::{
        RouteConfiguration,
        matcher::{Denominator, Fraction},
        samples::{acting, by, matching, only_route, parse_in, parse_routes, prefix, rejection, routes, to},
    },
};

fn accepted(action: route::RouteAction) -> ForwardAction {
    match only_route(&routes(vec![acting(action)])).action {
        RouteAction::Forward(action) => action,
        other @ (RouteAction::NonForwarding | RouteAction::Unsupported(_)) => panic!("{other:?}"),
    }
}

/// Returns the reason of the error, behind the path of the action.
fn reason_of(action: route::RouteAction) -> String {
    let error = rejection::<RouteConfiguration>(&routes(vec![acting(action)]));
    error.strip_prefix("virtual_hosts[0].routes[0].route.").expect(&error).to_owned()
}

fn weighted(clusters: &[(&str, Option<u32>)]) -> route::RouteAction {
    let clusters = clusters.iter().map(|(name, weight)| route::weighted_cluster::ClusterWeight {
        name: (*name).into(),
        weight: weight.map(|value| UInt32Value { value }),
        ..Default::default()
    });
    by(ClusterSpecifier::WeightedClusters(route::WeightedCluster {
        clusters: clusters.collect(),
        // Deprecated and ignored.
        total_weight: Some(UInt32Value { value: 1 }),
    }))
}

fn fraction(numerator: u32, denominator: i32) -> route::RouteConfiguration {
    let default_value = Some(FractionalPercent { numerator, denominator });
    let runtime_fraction = Some(RuntimeFractionalPercent { default_value, ..Default::default() });
    routes(vec![matching(route::RouteMatch { runtime_fraction, ..prefix("/") })])
}

fn by_header(header: Option<route::HeaderMatcher>) -> route::RouteConfiguration {
    routes(vec![matching(route::RouteMatch { headers: header.into_iter().collect(), ..prefix("/") })])
}

#[test]
fn r16_accepts_headers() {
    let specifier = route::header_matcher::HeaderMatchSpecifier::PresentMatch(true);
    let header = route::HeaderMatcher {
        name: "x-user".into(),
        header_match_specifier: Some(specifier),
        ..Default::default()
    };
    let parsed = only_route(&by_header(Some(header))).matcher;
    assert!(parsed.headers[0].matches(Some("ada")) && !parsed.headers[0].matches(None));
    assert_eq!(only_route(&by_header(None)).matcher.headers.len(), 0);
}

#[test]
fn r16_rejects_a_bad_header() {
    let header = route::HeaderMatcher { name: "x-user".into(), ..Default::default() };
    assert_eq!(
        rejection::<RouteConfiguration>(&by_header(Some(header))),
        "virtual_hosts[0].routes[0].match.headers[0]: no match specifier that is supported"
    );
}

#[test]
fn r17_accepts_a_fraction_of_the_requests() {
    use Denominator::{Hundred, Million, TenThousand};
    for (numerator, code, denominator, per_million) in [
        (50, 0, Hundred, 500_000),
        (50, 1, TenThousand, 5_000),
        (50, 2, Million, 50),
        (u32::MAX, 0, Hundred, 1_000_000),
    ] {
        let parsed = only_route(&fraction(numerator, code)).matcher.fraction.unwrap();
        assert_eq!(parsed, Fraction::new(numerator, denominator));
        assert_eq!(parsed.per_million(), per_million);
    }
    // Without a default value, and without a fraction, all requests match.
    let runtime_fraction = Some(RuntimeFractionalPercent::default());
    for matcher in [route::RouteMatch { runtime_fraction, ..prefix("/") }, prefix("/")] {
        assert_eq!(only_route(&routes(vec![matching(matcher)])).matcher.fraction, None);
    }
}

/// As in C-core; grpc-go treats it as a million.
#[test]
fn r17_rejects_an_unknown_denominator() {
    assert_eq!(
        rejection::<RouteConfiguration>(&fraction(1, 9)),
        "virtual_hosts[0].routes[0].match.runtime_fraction.default_value.denominator: 9 is no known denominator"
    );
}

#[test]
fn r18_accepts_a_cluster() {
    let action = accepted(to("shop"));
    assert_eq!(action.clusters, ClusterChoice::Cluster("shop".into()));
    let action = RouteAction::Forward(action);
    assert_eq!(action.clusters().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
}

/// As in C-core, deliberately.
#[test]
fn r18_rejects_a_cluster_without_a_name() {
    assert_eq!(reason_of(to("")), "cluster: must not be empty");
}

#[test]
fn r19_accepts_weighted_clusters_and_skips_those_of_weight_0() {
    let action = accepted(weighted(&[("a", Some(90)), ("", Some(0)), ("b", None), ("c", Some(10))]));
    let ClusterChoice::WeightedClusters(clusters) = &action.clusters else { panic!("{action:?}") };
    assert_eq!(clusters.total_weight, 100);
    let json = json!({"weighted_clusters": [{"name": "a", "weight": 90}, {"name": "c", "weight": 10}]});
    assert_eq!(serde_json::to_value(&action.clusters).unwrap(), json);
    for (draw, name) in [(0, Some("a")), (89, Some("a")), (90, Some("c")), (99, Some("c")), (100, None)] {
        assert_eq!(clusters.pick(draw).map(|c| &*c.name), name, "{draw}");
    }
    let names: Vec<_> = RouteAction::Forward(action).clusters().cloned().collect();
    assert_eq!(names, ["a".into(), "c".into()]);
    let action = accepted(weighted(&[("a", Some(u32::MAX - 1)), ("b", Some(1))]));
    let ClusterChoice::WeightedClusters(clusters) = &action.clusters else { panic!("{action:?}") };
    assert_eq!(clusters.total_weight, u32::MAX);
}

#[test]
fn r19_rejects_weights_whose_sum_is_0_or_too_large_and_clusters_without_a_name() {
    let at = "weighted_clusters.clusters";
    for (clusters, expected) in [
        (&[][..], ": no cluster has a weight above 0"),
        (&[("a", Some(0))], ": no cluster has a weight above 0"),
        (&[("a", None)], ": no cluster has a weight above 0"),
        (&[("a", Some(u32::MAX)), ("b", Some(1))], ": the sum of the weights is 4294967296, over 4294967295"),
        (&[("a", Some(1)), ("", Some(1))], "[1].name: must not be empty"),
    ] {
        assert_eq!(reason_of(weighted(clusters)), format!("{at}{expected}"));
    }
}

#[test]
fn r21_ignores_routes_with_another_cluster_specifier() {
    let by_header = acting(by(ClusterSpecifier::ClusterHeader("x-cluster".into())));
    let unset = acting(route::RouteAction::default());
    let left = parse_routes(&routes(vec![by_header, unset, acting(to("left"))]));
    let names: Vec<_> = left.iter().flat_map(|route| route.action.clusters()).cloned().collect();
    assert_eq!((left.len(), &names[..]), (1, &["left".into()][..]));
}

#[test]
fn r21_accepts_routes_by_a_cluster_or_several() {
    let message = routes(vec![acting(to("a")), acting(weighted(&[("b", Some(1)), ("c", Some(1))]))]);
    let left = parse_routes(&message);
    assert_eq!(left.iter().map(|route| route.action.clusters().count()).collect::<Vec<_>>(), [1, 2]);
}

fn hashing(policy: PolicySpecifier) -> route::RouteAction {
    let policy = Policy { policy_specifier: Some(policy), terminal: true };
    route::RouteAction { hash_policy: vec![Policy::default(), policy], ..to("shop") }
}

fn by_value_of(name: &str, pattern: Option<&str>) -> route::RouteAction {
    let pattern = pattern.map(|regex| RegexMatcher { regex: regex.into() });
    let rewrite = RegexMatchAndSubstitute { pattern, substitution: r"<\1$>".into() };
    hashing(PolicySpecifier::Header(Header { header_name: name.into(), regex_rewrite: Some(rewrite) }))
}

#[test]
fn r22_accepts_a_header_and_what_is_rewritten_in_it() {
    let action = accepted(by_value_of("x-user", Some("u([0-9])")));
    let [HashPolicy { source, terminal: true }] = &*action.hash_policies else { panic!("{action:?}") };
    let HashSource::Header { name, regex_rewrite: Some(rewrite) } = source else { panic!("{source:?}") };
    assert_eq!((&**name, rewrite.pattern(), rewrite.substitution()), ("x-user", "u([0-9])", r"<\1$>"));
    assert_eq!(&*rewrite.apply("u1-u2-x"), b"<1$>-<2$>-x");
}

/// As in C-core, which requires a name and a pattern.
#[test]
fn r22_rejects_a_header_without_a_name_and_what_is_no_regex() {
    for (action, expected) in [
        (by_value_of("", Some("a")), "header_name: must not be empty"),
        (by_value_of("x", None), "regex_rewrite.pattern: must be set"),
        (by_value_of("x", Some("")), "regex_rewrite.pattern.regex: must not be empty"),
        (
            by_value_of("x", Some("(")),
            "regex_rewrite.pattern.regex: \"(\" is no regex: `(` without `)` at byte 0",
        ),
    ] {
        assert_eq!(reason_of(action), format!("hash_policy[1].header.{expected}"));
    }
}

#[test]
fn r22_accepts_references_to_groups_by_backslash() {
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

fn filter_state(key: &str) -> PolicySpecifier {
    PolicySpecifier::FilterState(FilterState { key: key.into() })
}

#[test]
fn r23_accepts_the_identity_of_the_channel() {
    let action = accepted(hashing(filter_state("io.grpc.channel_id")));
    assert_eq!(*action.hash_policies, [HashPolicy { source: HashSource::ChannelId, terminal: true }]);
}

#[test]
fn r23_ignores_sources_that_a_client_lacks() {
    for policy in [filter_state("other"), PolicySpecifier::Cookie(Cookie { name: "a".into() })] {
        assert_eq!(accepted(hashing(policy)).hash_policies.len(), 0);
    }
}

fn limited(stream: Option<i64>, asked: Option<i64>) -> route::RouteAction {
    let seconds = |seconds: Option<i64>| seconds.map(|seconds| protobuf::Duration { seconds, nanos: 0 });
    let max_stream_duration = Some(MaxStreamDuration {
        max_stream_duration: seconds(stream),
        grpc_timeout_header_max: seconds(asked),
    });
    route::RouteAction { max_stream_duration, ..to("shop") }
}

#[test]
fn r24_accepts_limits_of_which_that_for_the_requested_timeout_wins() {
    for (stream, asked, expected) in
        [(None, None, None), (Some(5), None, Some(5)), (Some(5), Some(0), Some(0)), (None, Some(7), Some(7))]
    {
        let limit = accepted(limited(stream, asked)).max_stream_duration;
        assert_eq!(limit, expected.map(Duration::from_secs));
    }
}

/// As in C-core.
#[test]
fn r24_rejects_what_is_no_duration() {
    for (action, field) in [
        (limited(Some(-1), Some(1)), "max_stream_duration"),
        (limited(None, Some(-1)), "grpc_timeout_header_max"),
    ] {
        let expected = "seconds: must be between 0 and 315576000000, is -1";
        assert_eq!(reason_of(action), format!("max_stream_duration.{field}.{expected}"));
    }
}

fn retrying(value: u32) -> route::RouteAction {
    let policy = route::RetryPolicy { num_retries: Some(UInt32Value { value }), ..Default::default() };
    route::RouteAction { retry_policy: Some(policy), ..to("shop") }
}

#[test]
fn r25_accepts_a_retry_policy_of_a_route() {
    assert_eq!(accepted(retrying(3)).retry_policy.unwrap().num_retries, 3);
    assert_eq!(accepted(to("shop")).retry_policy, None);
}

#[test]
fn r25_rejects_a_bad_retry_policy_of_a_route() {
    assert_eq!(reason_of(retrying(0)), "retry_policy.num_retries: must be at least 1, is 0");
}

/// Returns whether the authority is rewritten, by the trust in the server and the field's value.
fn rewritten(trusted: bool, value: bool) -> bool {
    let rewrite = Some(HostRewriteSpecifier::AutoHostRewrite(BoolValue { value }));
    let message = routes(vec![acting(route::RouteAction { host_rewrite_specifier: rewrite, ..to("shop") })]);
    let context = Context::new().with_trusted_server(trusted);
    let parsed: RouteConfiguration = parse_in(&message, &context).unwrap();
    let RouteAction::Forward(action) = &parsed.virtual_hosts[0].routes[0].action else {
        panic!("{parsed:?}")
    };
    action.auto_host_rewrite
}

#[test]
fn r26_accepts_the_rewriting_of_the_authority_from_a_trusted_server() {
    assert!(rewritten(true, true));
    assert!(!rewritten(true, false));
}

#[test]
fn r26_ignores_the_rewriting_of_the_authority_from_other_servers() {
    assert!(!rewritten(false, true));
}
