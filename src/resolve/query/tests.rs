use std::collections::BTreeSet;

use super::{super::Snapshot, *};
use crate::{
    pb::{
        envoy::{
            config::{
                core::v3::RuntimeFractionalPercent,
                route::v3::{
                    self as route,
                    header_matcher::HeaderMatchSpecifier::{self, PresentMatch, RangeMatch},
                    route_match::PathSpecifier,
                },
            },
            r#type::{
                matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
                v3::{FractionalPercent, Int64Range},
            },
        },
        google::protobuf::BoolValue,
    },
    resolve::fixture::{prefix, route, snapshot, to, virtual_host},
};

mod model;

/// A snapshot whose routes lead to clusters that are called after their places: `0`, `1` …
fn routes(matchers: impl IntoIterator<Item = route::RouteMatch>) -> Snapshot {
    let matchers = matchers.into_iter().enumerate();
    let routes: Vec<_> = matchers.map(|(place, matcher)| route(matcher, to(&place.to_string()))).collect();
    let clusters =
        (0..routes.len()).fold(snapshot("shop"), |draft, place| draft.eds(&place.to_string(), &[]));
    clusters.routes(routes).build()
}

/// The place of the route that a request takes.
fn place(snapshot: &Snapshot, query: &RouteQuery<'_>) -> Option<usize> {
    let cluster = snapshot.route(query)?.pick_cluster().expect("every cluster is in the snapshot");
    Some(cluster.name().parse().expect("a place"))
}

fn path(path: PathSpecifier) -> route::RouteMatch {
    route::RouteMatch { path_specifier: Some(path), ..Default::default() }
}

fn exact(text: &str) -> route::RouteMatch {
    path(PathSpecifier::Path(text.into()))
}

fn path_separated_prefix(text: &str) -> route::RouteMatch {
    path(PathSpecifier::PathSeparatedPrefix(text.into()))
}

fn regex(pattern: &str) -> route::RouteMatch {
    path(PathSpecifier::SafeRegex(RegexMatcher { regex: pattern.into() }))
}

fn ignoring_case(matcher: route::RouteMatch) -> route::RouteMatch {
    route::RouteMatch { case_sensitive: Some(BoolValue { value: false }), ..matcher }
}

fn header_only(matcher: route::RouteMatch) -> route::RouteMatch {
    route::RouteMatch { headers: vec![header("x", PresentMatch(true))], ..matcher }
}

fn fraction(numerator: u32, matcher: route::RouteMatch) -> route::RouteMatch {
    let default_value = Some(FractionalPercent { numerator, denominator: 2 });
    let runtime_fraction = Some(RuntimeFractionalPercent { default_value, ..Default::default() });
    route::RouteMatch { runtime_fraction, ..matcher }
}

fn header(name: &str, specifier: HeaderMatchSpecifier) -> route::HeaderMatcher {
    let header_match_specifier = Some(specifier);
    route::HeaderMatcher { name: name.into(), header_match_specifier, ..Default::default() }
}

fn is(text: &str) -> HeaderMatchSpecifier {
    HeaderMatchSpecifier::ExactMatch(text.into())
}

/// Whether a request takes a route for which all these headers must match.
fn takes(headers: &[route::HeaderMatcher], query: &RouteQuery<'_>) -> bool {
    let matcher = route::RouteMatch { headers: headers.to_vec(), ..prefix("/") };
    routes([matcher]).route(query).is_some()
}

#[test]
fn a28_2_paths_match_by_prefix_whole_or_regex() {
    for (matcher, yes, no) in [
        (prefix(""), &["", "x", "/", "/Shop/Get"][..], &[][..]),
        (
            prefix("/Shop/"),
            &["/Shop/", "/Shop/Get", "/Shop/?q"],
            &["/Shop", "/shop/", "Shop/", "/Sho?p/", ""],
        ),
        (exact("/Shop/Get"), &["/Shop/Get", "/Shop/Get?a=/b"], &["/Shop/Get/", "/Shop/GET", "/Shop", ""]),
        (exact(""), &["", "?q"], &["/"]),
        (regex("/a+|/b"), &["/a", "/aaa", "/b"], &["/ab", "x/a", "/A", "/b\n", ""]),
        (regex(".*/Get"), &["/Get", "/Shop/Get"], &["/Get/x", "/get"]),
    ] {
        let snapshot = routes([matcher]);
        for path in yes {
            assert!(snapshot.route(&RouteQuery::new(path, 0)).is_some(), "{path:?}, {snapshot:?}");
        }
        for path in no {
            assert!(snapshot.route(&RouteQuery::new(path, 0)).is_none(), "{path:?}, {snapshot:?}");
        }
    }
}

#[test]
fn a_path_separated_prefix_matches_whole_segments() {
    let snapshot = routes([path_separated_prefix("/api/dev"), ignoring_case(path_separated_prefix("/Api"))]);
    for (path, expected) in [
        ("/api/dev", Some(0)),
        ("/api/dev/", Some(0)),
        ("/api/dev/v1", Some(0)),
        ("/api/dev?param=true", Some(0)),
        ("/api/dev/?param=true", Some(0)),
        ("/api/developer", Some(1)),
        ("/api/DEV", Some(1)),
        ("/aPI?x=/", Some(1)),
        ("/api//dev", Some(1)),
        ("/apis/dev", None),
        ("/api-/dev", None),
        ("/ap", None),
        ("//api", None),
        ("/", None),
        ("", None),
    ] {
        assert_eq!(place(&snapshot, &RouteQuery::new(path, 0)), expected, "{path:?}");
    }
}

/// With so many routes the paths are looked up.
#[test]
fn a_path_separated_prefix_is_found_among_many_routes() {
    let many = (0..40).map(|i| prefix(&format!("/{i}/")));
    let own = [
        header_only(path_separated_prefix("/api/dev")),
        ignoring_case(path_separated_prefix("/API/dev")),
        prefix("/api/dev"),
        path_separated_prefix("/api"),
        exact("/api"),
    ];
    let snapshot = routes(many.chain(own));
    for (path, has_header, expected) in [
        ("/api/dev", true, Some(40)),
        ("/api/dev/v1?q", true, Some(40)),
        ("/api/dev", false, Some(41)),
        ("/aPi/DEV/v1", true, Some(41)),
        ("/aPi/DEV", false, Some(41)),
        ("/api/dev/v1", false, Some(41)),
        ("/api/developer", true, Some(42)),
        ("/api/developer/v1", false, Some(42)),
        ("/api", false, Some(43)),
        ("/api/de", false, Some(43)),
        ("/apis", false, None),
        ("/API/developer", false, None),
        ("/7/", false, Some(7)),
    ] {
        let query = RouteQuery::new(path, 0);
        let query = if has_header { query.with_header("x", "") } else { query };
        assert_eq!(place(&snapshot, &query), expected, "{path:?} {has_header}");
    }
}

#[test]
fn a28_6_case_can_be_ignored_in_a_path_but_not_in_a_regex() {
    let snapshot = routes([exact("/Shop/Get"), prefix("/Pay/"), regex("/Ship")].map(ignoring_case));
    for (path, expected) in [
        ("/shop/GET", Some(0)),
        ("/sHOP/gETS", None),
        ("/PAY/", Some(1)),
        ("/pAy/Get", Some(1)),
        ("/PAY", None),
        ("/Ship", Some(2)),
        ("/ship", None),
        // Only letters of ASCII have another case: this is a Kelvin sign.
        ("/pa\u{212a}/", None),
    ] {
        assert_eq!(place(&snapshot, &RouteQuery::new(path, 0)), expected, "{path:?}");
    }
}

#[test]
fn a28_9_the_first_route_that_matches_wins() {
    let snapshot = routes([prefix("/shop/"), exact("/shop/cart"), prefix("/shop/"), prefix("/")]);
    for (path, expected) in [
        ("/shop/cart", Some(0)),
        ("/shop", Some(3)),
        ("/?/shop/", Some(3)),
        ("/shop/?q", Some(0)),
        ("*", None),
    ] {
        assert_eq!(place(&snapshot, &RouteQuery::new(path, 0)), expected, "{path:?}");
    }
}

#[test]
fn a28_1_only_the_virtual_host_of_the_snapshot_has_routes() {
    let host = |domain: &str, cluster| virtual_host(&[domain], vec![route(prefix("/"), to(cluster))]);
    let snapshot = snapshot("shop.example")
        .eds("1", &[])
        .virtual_hosts(vec![host("*", "0"), host("*.example", "1"), host("pay.example", "2")])
        .build();
    for (host, expected) in
        [("shop.example", Some(1)), ("CART.Example", Some(1)), ("pay.example", None), ("example", None)]
    {
        assert_eq!(place(&snapshot, &RouteQuery::new("/", 0).with_host(host)), expected, "{host:?}");
    }
    assert_eq!(place(&snapshot, &RouteQuery::new("/", 0)), Some(1));
}

#[test]
fn a28_3_all_header_matchers_must_match() {
    let range = RangeMatch(Int64Range { start: -3, end: 7 });
    let matchers = [header("X-User", is("ada")), header("x-age", range)];
    for (headers, expected) in [
        (&[("x-user", "ada"), ("x-age", "6")][..], true),
        (&[("X-AGE", "-3"), ("x-USER", "ada")], true),
        (&[("x-user", "ada")], false),
        (&[("x-user", "ada"), ("x-age", "7")], false),
        (&[("x-user", "ada"), ("x-age", "")], false),
        (&[("x-user", "Ada"), ("x-age", "0")], false),
        (&[("x-userr", "ada"), ("x-age", "0")], false),
    ] {
        assert_eq!(
            takes(&matchers, &RouteQuery::new("/", 0).with_headers(&headers)),
            expected,
            "{headers:?}"
        );
    }
}

#[test]
fn a41_3_values_of_a_header_are_one_text_joined_by_commas() {
    let headers = [("x-user", "ada"), ("x-other", ""), ("X-User", "bob")];
    let query = RouteQuery::new("/", 0).with_headers(&headers);
    assert_eq!(query.header_value("x-USER").as_deref(), Some(&b"ada,bob"[..]));
    assert!(takes(&[header("x-user", is("ada,bob"))], &query));
    assert!(!takes(&[header("x-user", is("ada"))], &query));
    let query = query.with_header("x-USER", "").with_header("y", "1");
    assert!(takes(&[header("x-user", is("ada,bob,")), header("y", is("1"))], &query));
}

#[test]
fn a41_3_a_missing_header_matches_only_matchers_that_allow_it() {
    let query = RouteQuery::new("/", 0).with_header("x", "");
    let inverted = |matcher| route::HeaderMatcher { invert_match: true, ..matcher };
    let as_empty = |matcher| route::HeaderMatcher { treat_missing_header_as_empty: true, ..matcher };
    for (matcher, expected) in [
        (header("y", PresentMatch(true)), false),
        (header("y", PresentMatch(false)), true),
        (inverted(header("y", PresentMatch(true))), true),
        (inverted(header("y", PresentMatch(false))), false),
        (header("y", is("")), false),
        (inverted(header("y", is("a"))), false),
        (as_empty(header("y", is(""))), true),
        (inverted(as_empty(header("y", is("a")))), true),
        (header("x", PresentMatch(true)), true),
        (header("x", is("")), true),
        (inverted(header("x", is("a"))), true),
    ] {
        assert_eq!(takes(std::slice::from_ref(&matcher), &query), expected, "{matcher:?}");
    }
}

#[test]
fn a28_10_only_custom_metadata_is_matched() {
    let headers = [(":path", "/"), (":authority", "shop"), ("x-trace-bin", "a"), ("-bin", "a"), ("bin", "a")];
    let query = RouteQuery::new("/", 0).with_headers(&headers).with_header("X-Other-BIN", "a");
    for name in [":path", ":authority", "x-trace-bin", "X-Trace-Bin", "x-other-bin", "-BIN"] {
        assert_eq!(query.header_value(name), None, "{name:?}");
        assert!(takes(&[header(name, PresentMatch(false))], &query), "{name:?}");
    }
    assert!(takes(&[header("bin", is("a"))], &query));
}

#[test]
fn a28_10_a_request_without_content_type_is_one_of_grpc() {
    let matcher = [header("Content-Type", is("application/grpc"))];
    assert!(takes(&matcher, &RouteQuery::new("/", 0)));
    assert!(takes(&matcher, &RouteQuery::new("/", 0).with_header("x", "text/html")));
    assert!(!takes(&matcher, &RouteQuery::new("/", 0).with_header("content-type", "text/html")));
    let html = RouteQuery::new("/", 0).with_header("content-TYPE", "text/html");
    assert!(takes(&[header("content-type", is("text/html"))], &html));
}

#[test]
fn ch2_11_a_value_that_is_not_text_matches_nothing_but_its_presence() {
    let suffix = StringMatcher { match_pattern: Some(MatchPattern::Suffix("b".into())), ignore_case: false };
    let suffix = || header("x", HeaderMatchSpecifier::StringMatch(suffix.clone()));
    let range = || header("x", RangeMatch(Int64Range { start: 0, end: 9 }));
    let inverted = |matcher| route::HeaderMatcher { invert_match: true, ..matcher };
    // One such value of several makes the joined one no text.
    let several: [(&str, &[u8]); 2] = [("x", b"\xff"), ("x", b"b")];
    for headers in [&[("x", &b"\xff\x00b"[..])][..], &[("x", b"1\xff")], &several] {
        let headers = headers.to_vec();
        let query = RouteQuery::new("/", 0).with_headers(&headers);
        assert!(takes(&[header("x", PresentMatch(true))], &query), "{headers:?}");
        assert!(!takes(&[header("x", PresentMatch(false))], &query), "{headers:?}");
        for matcher in [suffix(), range(), inverted(suffix()), inverted(range())] {
            assert!(!takes(std::slice::from_ref(&matcher), &query), "{headers:?} {matcher:?}");
        }
    }
    let headers = vec![("x", "ü, b".as_bytes())];
    let text = RouteQuery::new("/", 0).with_headers(&headers);
    assert!(takes(&[suffix()], &text) && takes(&[inverted(range())], &text), "text need not be ASCII");
}

#[test]
fn ch2_12_a_range_matches_numbers_from_its_start_to_below_its_end() {
    let range = || header("x", RangeMatch(Int64Range { start: -1, end: 9 }));
    let inverted = |matcher| route::HeaderMatcher { invert_match: true, ..matcher };
    for (values, expected) in [
        (&["-1"][..], true),
        (&["8"], true),
        (&["9"], false),
        (&["-2"], false),
        (&["five"], false),
        (&[""], false),
        (&["9223372036854775808"], false),
        (&["5", "6"], false),
    ] {
        let headers: Vec<_> = values.iter().map(|value| ("x", *value)).collect();
        let query = RouteQuery::new("/", 0).with_headers(&headers);
        assert_eq!(takes(&[range()], &query), expected, "{values:?}");
        assert_eq!(takes(&[inverted(range())], &query), !expected, "{values:?}");
    }
    let query = RouteQuery::new("/", 0);
    assert!(!takes(&[range()], &query) && !takes(&[inverted(range())], &query), "it is absent");
}

#[cfg(feature = "client")]
#[test]
fn a_header_map_can_be_looked_up() {
    let mut headers = http::HeaderMap::new();
    headers.append("x-user", http::HeaderValue::from_static("ada"));
    headers.append("x-user", http::HeaderValue::from_static("bob"));
    headers.append("x-raw", http::HeaderValue::from_bytes(b"\xfe").unwrap());
    let query = RouteQuery::new("/", 0).with_headers(&headers);
    assert_eq!(query.header_value("X-User").as_deref(), Some(&b"ada,bob"[..]));
    assert_eq!(query.header_value("x-raw").as_deref(), Some(&b"\xfe"[..]));
    // Names that no header can have.
    for name in ["", "a b", "ä"] {
        assert_eq!(query.header_value(name), None);
    }
}

#[test]
fn a_plain_lookup_allocates_nothing() {
    let headers = [("x", "1"), ("y", "2")];
    let query = RouteQuery::new("/", 0).with_headers(&headers);
    assert_eq!(query.more_headers.capacity(), 0);
    for name in ["x", "Y", "content-type"] {
        assert!(matches!(query.header_value(name), Some(Cow::Borrowed(_))), "{name}");
    }
}

#[test]
fn headers_are_not_in_what_is_logged() {
    let headers = [("authorization", "Bearer 1")];
    let query = RouteQuery::new("/a?token=2", 0).with_headers(&headers).with_header("cookie", "3");
    assert_eq!(format!("{query:?}"), r#"RouteQuery { path: "/a", host: None, random: 0, .. }"#);
}

#[test]
fn a28_4_a_fraction_is_of_the_requests() {
    let everything = routes([fraction(0, prefix("/")), fraction(1_000_000, prefix("/")), prefix("/")]);
    let quarter = routes([fraction(250_000, prefix("/")), prefix("/")]);
    let taken = (0..20_000).filter(|random| {
        let query = RouteQuery::new("/", *random);
        assert_eq!(place(&everything, &query), Some(1));
        place(&quarter, &query) == Some(0)
    });
    // Five standard deviations are 306.
    assert!(taken.count().abs_diff(5_000) < 306);
}

#[test]
fn a28_4_each_route_draws_for_itself_and_the_same_every_time() {
    let half = || fraction(500_000, prefix("/"));
    let snapshot = routes([half(), half(), half(), prefix("/")]);
    let mut counts = [0_u32; 4];
    for random in 0..16_000 {
        let query = RouteQuery::new("/", random);
        let found = place(&snapshot, &query).unwrap();
        assert_eq!(place(&snapshot, &query), Some(found));
        counts[found] += 1;
    }
    for (count, expected) in counts.into_iter().zip([8_000, 4_000, 2_000, 2_000]) {
        assert!(count.abs_diff(expected) < 316, "{counts:?}");
    }
}

#[test]
fn draws_are_spread_evenly_over_what_is_drawn_from() {
    for bound in [1, 2, 3, 5, 7, 1000, u32::MAX] {
        assert_eq!(scale(0, bound), 0);
        assert_eq!(scale(u64::MAX, bound), bound - 1);
        // Each number has as many draws as the others, or one more: its first one is where it should be.
        for number in [1, bound / 2, bound - 1].into_iter().filter(|number| (1..bound).contains(number)) {
            let first = (u128::from(number) << 64).div_ceil(u128::from(bound)) as u64;
            assert_eq!((scale(first - 1, bound), scale(first, bound)), (number - 1, number));
        }
    }
    // The first output of SplitMix64 from seed 0, as everyone has it.
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    let drawn: BTreeSet<_> = (0..100).map(|salt| draw(1, salt, u32::MAX)).collect();
    assert_eq!(drawn.len(), 100);
}
