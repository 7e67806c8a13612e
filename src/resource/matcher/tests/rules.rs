//! Rules M1 to M8, in the routes of a route configuration.

use super::*;
use crate::{
    pb::google::protobuf::BoolValue,
    resource::{
        RouteConfiguration,
        samples::{matching, only_route, path, prefix, rejection, routes},
    },
};

/// A route configuration with one header matcher.
fn by_header(specifier: Option<HeaderMatchSpecifier>) -> route::RouteConfiguration {
    let header = route::HeaderMatcher {
        name: "x-user".into(),
        header_match_specifier: specifier,
        ..Default::default()
    };
    routes(vec![matching(route::RouteMatch { headers: vec![header], ..prefix("/") })])
}

fn by_string(match_pattern: Option<MatchPattern>, ignore_case: bool) -> route::RouteConfiguration {
    let matcher = pb::StringMatcher { match_pattern, ignore_case };
    by_header(Some(HeaderMatchSpecifier::StringMatch(matcher)))
}

/// Returns the header matcher of the parsed message.
fn accepted(message: &route::RouteConfiguration) -> HeaderMatcher {
    only_route(message).matcher.headers[0].clone()
}

fn accepted_string(pattern: MatchPattern, ignore_case: bool) -> StringMatcher {
    match accepted(&by_string(Some(pattern), ignore_case)).condition {
        HeaderCondition::Value(matcher) => matcher,
        other @ (HeaderCondition::Range { .. } | HeaderCondition::Present(_)) => panic!("{other:?}"),
    }
}

/// Returns the reason of the error, behind the path of the header matcher.
fn rejected(message: &route::RouteConfiguration) -> String {
    let error = rejection::<RouteConfiguration>(message);
    let error = error.strip_prefix("virtual_hosts[0].routes[0].match.headers[0]").expect(&error);
    error.trim_start_matches('.').to_owned()
}

#[test]
fn m1_accepts_each_pattern() {
    for (pattern, expected) in [
        (MatchPattern::Exact("a".into()), StringPattern::Exact("a".into())),
        (MatchPattern::Prefix("a".into()), StringPattern::Prefix("a".into())),
        (MatchPattern::Suffix("a".into()), StringPattern::Suffix("a".into())),
        (MatchPattern::Contains("a".into()), StringPattern::Contains("a".into())),
        (MatchPattern::SafeRegex(regex("a")), StringPattern::SafeRegex(Regex::new("a").unwrap())),
    ] {
        let parsed = accepted_string(pattern, false);
        assert_eq!(parsed, StringMatcher { pattern: expected, ignore_case: false });
    }
}

#[test]
fn m1_rejects_a_matcher_without_a_pattern() {
    assert_eq!(rejected(&by_string(None, false)), "string_match: no pattern that is supported");
}

#[test]
fn m2_m3_m4_accepts_parts_of_one_letter() {
    for pattern in [
        MatchPattern::Prefix("a".into()),
        MatchPattern::Suffix("a".into()),
        MatchPattern::Contains("a".into()),
    ] {
        let parsed = accepted_string(pattern, true);
        assert!(parsed.ignore_case && parsed.matches("A") && !parsed.matches(""), "{parsed:?}");
    }
}

#[test]
fn m2_rejects_an_empty_prefix() {
    let message = by_string(Some(MatchPattern::Prefix(String::new())), false);
    assert_eq!(rejected(&message), "string_match.prefix: must not be empty");
}

#[test]
fn m3_rejects_an_empty_suffix() {
    let message = by_string(Some(MatchPattern::Suffix(String::new())), false);
    assert_eq!(rejected(&message), "string_match.suffix: must not be empty");
}

#[test]
fn m4_rejects_an_empty_part() {
    let message = by_string(Some(MatchPattern::Contains(String::new())), false);
    assert_eq!(rejected(&message), "string_match.contains: must not be empty");
}

#[test]
fn m5_accepts_an_empty_text_to_be_equal_to() {
    let parsed = accepted_string(MatchPattern::Exact(String::new()), false);
    assert_eq!(parsed.pattern, StringPattern::Exact("".into()));
    assert!(parsed.matches("") && !parsed.matches("a"));
}

#[test]
fn m6_accepts_a_regex_for_the_whole_text() {
    let parsed = accepted_string(MatchPattern::SafeRegex(regex("a|b+")), false);
    for (text, expected) in [("a", true), ("bb", true), ("ab", false), ("xa", false), ("a\n", false)] {
        assert_eq!(parsed.matches(text), expected, "{text:?}");
    }
    // Large for its length, but under the limit.
    let parsed = accepted_string(MatchPattern::SafeRegex(regex("[a-z0-9-]{1,253}")), false);
    assert!(parsed.matches("shop-1"));
}

#[test]
fn m6_rejects_what_is_no_regex_or_not_linear() {
    for bad in ["(", "a)|(b", "*", r"(a)\1", "(?=a)", r"\8"] {
        let error = rejected(&by_string(Some(MatchPattern::SafeRegex(regex(bad))), false));
        let reason = format!("string_match.safe_regex.regex: {bad:?} is no regex: ");
        assert!(error.starts_with(&reason) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn m6_rejects_a_regex_over_the_size_limit() {
    let huge = MatchPattern::SafeRegex(regex(r"(?:\pL{20}){20}"));
    let expected = "string_match.safe_regex.regex: the regex is over the size limit of 1048576 bytes when compiled (setting regex_limits)";
    assert_eq!(rejected(&by_string(Some(huge), false)), expected);
}

#[test]
fn m7_ignores_that_a_regex_is_to_ignore_case() {
    let parsed = accepted_string(MatchPattern::SafeRegex(regex("a")), true);
    assert!(!parsed.ignore_case);
    assert!(parsed.matches("a") && !parsed.matches("A"));
}

#[test]
fn m7_accepts_a_regex_that_ignores_case_by_itself() {
    let parsed = accepted_string(MatchPattern::SafeRegex(regex("(?i)a")), false);
    assert!(parsed.matches("a") && parsed.matches("A"));
}

#[test]
fn m8_accepts_each_condition() {
    let value = |pattern| HeaderCondition::Value(StringMatcher { pattern, ignore_case: false });
    let range = |start, end| HeaderMatchSpecifier::RangeMatch(Int64Range { start, end });
    for (specifier, expected) in [
        (HeaderMatchSpecifier::ExactMatch(String::new()), value(StringPattern::Exact("".into()))),
        (HeaderMatchSpecifier::PrefixMatch("a".into()), value(StringPattern::Prefix("a".into()))),
        (HeaderMatchSpecifier::SuffixMatch("a".into()), value(StringPattern::Suffix("a".into()))),
        (HeaderMatchSpecifier::ContainsMatch("a".into()), value(StringPattern::Contains("a".into()))),
        (
            HeaderMatchSpecifier::SafeRegexMatch(regex("a")),
            value(StringPattern::SafeRegex(Regex::new("a").unwrap())),
        ),
        (range(1, 1), HeaderCondition::Range { start: 1, end: 1 }),
        (range(i64::MIN, i64::MAX), HeaderCondition::Range { start: i64::MIN, end: i64::MAX }),
        (HeaderMatchSpecifier::PresentMatch(false), HeaderCondition::Present(false)),
    ] {
        let parsed = accepted(&by_header(Some(specifier)));
        assert_eq!((&*parsed.name, parsed.condition), ("x-user", expected));
    }
    let mut message = by_header(Some(HeaderMatchSpecifier::PresentMatch(true)));
    let header = &mut message.virtual_hosts[0].routes[0].r#match.as_mut().unwrap().headers[0];
    header.invert_match = true;
    header.treat_missing_header_as_empty = true;
    let parsed = accepted(&message);
    assert!(parsed.invert && parsed.missing_is_empty);
}

/// A range that ends before it starts is rejected, as in C-core.
#[test]
fn m8_rejects_conditions_that_make_no_sense() {
    assert_eq!(rejected(&by_header(None)), ": no match specifier that is supported");
    for (specifier, expected) in [
        (HeaderMatchSpecifier::PrefixMatch(String::new()), "prefix_match: must not be empty"),
        (HeaderMatchSpecifier::SuffixMatch(String::new()), "suffix_match: must not be empty"),
        (HeaderMatchSpecifier::ContainsMatch(String::new()), "contains_match: must not be empty"),
        (
            HeaderMatchSpecifier::SafeRegexMatch(regex("(")),
            "safe_regex_match.regex: \"(\" is no regex: `(` without `)` at byte 0",
        ),
        (
            HeaderMatchSpecifier::RangeMatch(Int64Range { start: 2, end: 1 }),
            "range_match: start 2 is after end 1",
        ),
    ] {
        assert_eq!(rejected(&by_header(Some(specifier))), expected);
    }
}

#[test]
fn r12_accepts_each_path_specifier_that_is_supported() {
    for (specifier, expected) in [
        (PathSpecifier::Prefix("/a".into()), PathPattern::Prefix("/a".into())),
        (PathSpecifier::Path("/a".into()), PathPattern::Exact("/a".into())),
        (PathSpecifier::PathSeparatedPrefix("/a".into()), PathPattern::PathSeparatedPrefix("/a".into())),
        (PathSpecifier::SafeRegex(regex("/a")), PathPattern::SafeRegex(Regex::new("/a").unwrap())),
    ] {
        let parsed = only_route(&routes(vec![matching(path(specifier))])).matcher.path;
        assert_eq!(parsed, PathMatcher { pattern: expected, case_sensitive: true });
    }
}

#[test]
fn r12_rejects_a_route_without_a_path_that_is_supported() {
    let rejected = |matcher| rejection::<RouteConfiguration>(&routes(vec![matching(matcher)]));
    assert_eq!(
        rejected(route::RouteMatch::default()),
        "virtual_hosts[0].routes[0].match: no path specifier that is supported: \
         prefix, path, path_separated_prefix or safe_regex"
    );
    for (specifier, field) in [
        (PathSpecifier::ConnectMatcher(route::route_match::ConnectMatcher {}), "connect_matcher"),
        (PathSpecifier::PathMatchPolicy(Default::default()), "path_match_policy"),
    ] {
        assert_eq!(
            rejected(path(specifier)),
            format!(
                "virtual_hosts[0].routes[0].match.{field}: not supported; \
                 expected prefix, path, path_separated_prefix or safe_regex"
            )
        );
    }
}

/// The forms that Envoy's rule allows, `^[^?#]+[^?#/]$`, which does not require a leading slash.
#[test]
fn r30_accepts_path_separated_prefixes_of_two_characters_or_more() {
    for shape in ["/a", "//a", "/a/b", "/a//b", "/é", "ab", "\n\n"] {
        let specifier = PathSpecifier::PathSeparatedPrefix(shape.into());
        let parsed = only_route(&routes(vec![matching(path(specifier))])).matcher.path;
        assert!(parsed.matches(shape) && parsed.matches(&format!("{shape}/")), "{parsed:?}");
    }
}

#[test]
fn r30_rejects_path_separated_prefixes_that_end_with_a_slash_or_go_beyond_the_path() {
    for (shape, reason) in [
        ("", "must have at least two characters"),
        ("/", "must have at least two characters"),
        ("a", "must have at least two characters"),
        ("é", "must have at least two characters"),
        ("/a/", "must not end with `/`"),
        ("//", "must not end with `/`"),
        ("/a?", "must not contain `?` or `#`"),
        ("/a?b=/", "must not contain `?` or `#`"),
        ("/#a", "must not contain `?` or `#`"),
        ("?", "must not contain `?` or `#`"),
    ] {
        let message = routes(vec![matching(path(PathSpecifier::PathSeparatedPrefix(shape.into())))]);
        assert_eq!(
            rejection::<RouteConfiguration>(&message),
            format!("virtual_hosts[0].routes[0].match.path_separated_prefix: {shape:?} {reason}")
        );
    }
}

#[test]
fn r13_accepts_a_regex_for_the_whole_path() {
    let matcher = path(PathSpecifier::SafeRegex(regex("/a|/b")));
    let parsed = only_route(&routes(vec![matching(matcher)])).matcher.path;
    assert!(parsed.matches("/b") && !parsed.matches("/bc") && !parsed.matches("/a|/b"));
}

#[test]
fn r13_rejects_what_is_no_regex() {
    let message = routes(vec![matching(path(PathSpecifier::SafeRegex(regex("("))))]);
    assert_eq!(
        rejection::<RouteConfiguration>(&message),
        "virtual_hosts[0].routes[0].match.safe_regex.regex: \"(\" is no regex: `(` without `)` at byte 0"
    );
}

/// A deliberate deviation from gRPC, where such a path drops the route: plain HTTP applications use these types, too.
#[test]
fn r14_accepts_any_shape_of_a_path() {
    for shape in ["", "a", "//", "/a/b/c", "/a//"] {
        for specifier in [PathSpecifier::Prefix(shape.into()), PathSpecifier::Path(shape.into())] {
            let parsed = only_route(&routes(vec![matching(path(specifier))])).matcher.path;
            assert!(parsed.matches(shape), "{parsed:?}");
        }
    }
}

#[test]
fn r15_accepts_paths_of_either_case_where_the_route_allows_it() {
    let of = |case_sensitive: Option<bool>| {
        let case_sensitive = case_sensitive.map(|value| BoolValue { value });
        let matcher = route::RouteMatch { case_sensitive, ..prefix("/Shop") };
        only_route(&routes(vec![matching(matcher)])).matcher.path
    };
    for (case_sensitive, expected) in [(None, true), (Some(true), true), (Some(false), false)] {
        let parsed = of(case_sensitive);
        assert_eq!(parsed.case_sensitive, expected);
        assert_eq!(parsed.matches("/shop"), !expected);
        assert!(parsed.matches("/Shop") && !parsed.matches("/shore"));
    }
}
