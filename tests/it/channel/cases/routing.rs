//! Which of two clusters a call goes to: `cart` with the backend `one`, `pay` with `two`.

use xdskit::{
    pb::{
        envoy::{
            config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
            r#type::{
                matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
                v3::Int64Range,
            },
        },
        google::protobuf::BoolValue,
    },
    testing::resources::RouteBuilder,
};

use super::*;
use crate::channel::backend::EMPTY;

/// A mesh with these routes, and a default route to `cart`.
async fn routed(routes: Vec<RouteBuilder>, [one, two]: &[Backend; 2]) -> Mesh {
    let mesh = Mesh::start(&[one]).await;
    mesh.server.set(cluster("pay"));
    mesh.server.set(locality(endpoints("pay"), "a", 0, &[two]));
    let default = route::prefix("").cluster("cart");
    // A channel is idle until its first call, so that all calls are routed by these.
    mesh.server.set(route_config("routes").virtual_host(["*"], routes.into_iter().chain([default])));
    mesh
}

#[tokio::test]
async fn ch12_traffic_splitting_sends_20_and_80_percent_of_1000_calls() {
    let backends = Backend::start_all(["one", "two"]).await;
    let mesh = routed(vec![route::prefix("").weighted([("cart", 20), ("pay", 80)])], &backends).await;
    mesh.reach(&["one", "two"]).await;
    mesh.has_share("one", 20).await;
}

#[tokio::test]
async fn ch12_path_matching_of_each_kind_chooses_the_cluster() {
    let backends = Backend::start_all(["one", "two"]).await;
    let any_case = |route: RouteBuilder| {
        route.edit(|it| it.r#match.as_mut().unwrap().case_sensitive = Some(BoolValue { value: false }))
    };
    let cases = [
        ("prefix", vec![route::prefix("/test.Echo/Em").cluster("pay")], ["one", "two"]),
        ("exact", vec![route::path(EMPTY).cluster("pay")], ["one", "two"]),
        ("exact, not a prefix", vec![route::path("/test.Echo/Em").cluster("pay")], ["one", "one"]),
        ("regex", vec![route::regex(r"^/[a-z]+\.Echo/E.p.*$").cluster("pay")], ["one", "two"]),
        ("regex, as a whole", vec![route::regex("/test.Echo/E").cluster("pay")], ["one", "one"]),
        ("ignored case", vec![any_case(route::path("/TEST.echo/EMPTY").cluster("pay"))], ["one", "two"]),
        ("ignored case of a prefix", vec![any_case(route::prefix("/TEST.").cluster("pay"))], ["two", "two"]),
        ("observed case", vec![route::path("/TEST.echo/EMPTY").cluster("pay")], ["one", "one"]),
        (
            "two",
            vec![route::path(ECHO).cluster("pay"), route::prefix("/test").cluster("cart")],
            ["two", "one"],
        ),
    ];
    for (case, routes, expected) in cases {
        let mesh = routed(routes, &backends).await;
        for (method, expected) in [ECHO, EMPTY].into_iter().zip(expected) {
            let response = mesh.call(method, "hello").await.unwrap();
            assert_eq!(backend_of(&response), expected, "{case}: {method}");
        }
    }
}

#[tokio::test]
async fn ch12_header_matching_of_each_kind_chooses_the_cluster() {
    let backends = Backend::start_all(["one", "two"]).await;
    let text = |pattern| {
        HeaderMatchSpecifier::StringMatch(StringMatcher {
            match_pattern: Some(pattern),
            ..Default::default()
        })
    };
    let regex = |regex: &str| RegexMatcher { regex: regex.into() };
    // The specifier, whether it is inverted, the value of x-user, and whether they match.
    let cases = [
        (HeaderMatchSpecifier::ExactMatch("ada".into()), false, Some("ada"), true),
        (HeaderMatchSpecifier::ExactMatch("ada".into()), false, Some("adam"), false),
        (HeaderMatchSpecifier::ExactMatch("ada".into()), false, None, false),
        (text(MatchPattern::Exact("ada".into())), false, Some("ada"), true),
        (HeaderMatchSpecifier::PrefixMatch("ad".into()), false, Some("ada"), true),
        (HeaderMatchSpecifier::PrefixMatch("ad".into()), false, Some("bad"), false),
        (text(MatchPattern::Prefix("ad".into())), false, Some("ada"), true),
        (HeaderMatchSpecifier::SuffixMatch("da".into()), false, Some("ada"), true),
        (HeaderMatchSpecifier::SuffixMatch("da".into()), false, Some("adam"), false),
        (text(MatchPattern::Contains("d".into())), false, Some("ada"), true),
        (HeaderMatchSpecifier::PresentMatch(true), false, Some(""), true),
        (HeaderMatchSpecifier::PresentMatch(true), false, None, false),
        (HeaderMatchSpecifier::PresentMatch(false), false, None, true),
        (HeaderMatchSpecifier::ExactMatch("ada".into()), true, Some("bob"), true),
        (HeaderMatchSpecifier::ExactMatch("ada".into()), true, Some("ada"), false),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 100, end: 200 }), false, Some("100"), true),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 100, end: 200 }), false, Some("199"), true),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 100, end: 200 }), false, Some("200"), false),
        (HeaderMatchSpecifier::RangeMatch(Int64Range { start: 100, end: 200 }), false, Some("ada"), false),
        (HeaderMatchSpecifier::SafeRegexMatch(regex("a.*a")), false, Some("ada"), true),
        (HeaderMatchSpecifier::SafeRegexMatch(regex("a.*a")), false, Some("adam"), false),
        (text(MatchPattern::SafeRegex(regex("a.*a"))), false, Some("ada"), true),
    ];
    for (specifier, invert_match, value, is_match) in cases {
        let matcher = HeaderMatcher {
            name: "x-user".into(),
            invert_match,
            header_match_specifier: Some(specifier.clone()),
            ..HeaderMatcher::default()
        };
        let matched =
            route::prefix("").cluster("pay").edit(|it| it.r#match.as_mut().unwrap().headers.push(matcher));
        let mesh = routed(vec![matched], &backends).await;
        let mut request = Request::new("hello".into());
        if let Some(value) = value {
            request.metadata_mut().insert("x-user", value.parse().unwrap());
        }
        let response = call(&mesh.channel, ECHO, request).await.unwrap();
        let expected = if is_match { "two" } else { "one" };
        assert_eq!(
            backend_of(&response),
            expected,
            "{specifier:?} inverted: {invert_match}, value: {value:?}"
        );
    }
}
