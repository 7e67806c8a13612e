//! The budget of all regexes in a resource.

use prost::Message;

use super::*;
use crate::{
    pb::envoy::{config::route::v3::route_match::PathSpecifier, r#type::matcher::v3::RegexMatcher},
    resource::{Context, Invalid, Resource, ResourceType, matcher::RegexLimits},
};

fn by_regex(regex: String) -> pb::Route {
    let path_specifier = Some(PathSpecifier::SafeRegex(RegexMatcher { regex }));
    matching(pb::RouteMatch { path_specifier, ..pb::RouteMatch::default() })
}

/// Parses a route table with these path patterns, as a client does.
fn parse_patterns(patterns: impl Iterator<Item = String>) -> (usize, Result<(), Invalid>) {
    let message = configuration(vec![virtual_host(&["*"], patterns.map(by_regex).collect())]);
    let bytes: Bytes = message.encode_to_vec().into();
    let parsed = ResourceType::of::<RouteConfiguration>().parse(&bytes, &Context::new());
    (bytes.len(), parsed.map(drop))
}

#[test]
fn m6_rejects_the_regex_with_which_a_resource_is_over_its_budget() {
    let large = |count: usize| (0..count).map(|i| format!("/{i}(?:ab{{1,99}}){{10}}"));
    let (size, parsed) = parse_patterns(large(350));
    assert!((12_000..20_000).contains(&size), "{size}");
    let error = parsed.unwrap_err();
    assert_eq!(
        error.reason(),
        "the regexes of the resource are over the budget of 16777216 bytes when compiled (setting regex_limits)"
    );
    assert!(error.path().starts_with("virtual_hosts[0].routes["), "{error}");
    assert!(error.path().ends_with("].match.safe_regex.regex"), "{error}");
    assert!(parse_patterns(large(8)).1.is_ok(), "each resource has its own");
    assert!(parse_patterns(large(8)).1.is_ok());
    // The budget does not apply to resources that an application parses by itself.
    let table = configuration(vec![virtual_host(&["*"], large(150).map(by_regex).collect())]);
    assert!(RouteConfiguration::parse(&table.encode_to_vec().into(), &Context::new()).is_ok());
}

#[test]
fn m6_accepts_thousands_of_simple_regexes_within_the_budget() {
    // A quarter of 4,000, within a quarter of the budget: they take their time to compile.
    let simple = (0..1_000).map(|i| by_regex(format!("/api/v[0-9]+/shop{i}/.*")));
    let bytes: Bytes = configuration(vec![virtual_host(&["*"], simple.collect())]).encode_to_vec().into();
    let limits = RegexLimits::default();
    let cx = Context::new().with_regex_limits(RegexLimits { resource: limits.resource / 4, ..limits });
    assert_eq!(ResourceType::of::<RouteConfiguration>().parse(&bytes, &cx).map(drop), Ok(()));
}

#[test]
fn m6_limits_of_regexes_are_settings() {
    let parse = |limits, patterns: &[&str]| {
        let routes = patterns.iter().map(|pattern| by_regex((*pattern).to_owned())).collect();
        let bytes: Bytes = configuration(vec![virtual_host(&["*"], routes)]).encode_to_vec().into();
        let cx = Context::new().with_regex_limits(limits);
        ResourceType::of::<RouteConfiguration>()
            .parse(&bytes, &cx)
            .map(drop)
            .map_err(|e| e.reason().to_owned())
    };
    let limits = RegexLimits::default();
    let (longest, longer) = ("a".repeat(4096), "a".repeat(4097));
    assert_eq!(parse(limits, &[&longest]), Ok(()));
    let reason = "the regex of 4097 bytes is over the limit of 4096 bytes (setting regex_limits)";
    assert_eq!(parse(limits, &[&longer]), Err(reason.to_owned()));
    assert_eq!(parse(RegexLimits { pattern: 4097, ..limits }, &[&longer]), Ok(()));

    let few = RegexLimits { compiled: 10_000, ..limits };
    assert_eq!(parse(few, &["a{100}"]), Ok(()));
    let reason = "the regex is over the size limit of 10000 bytes when compiled (setting regex_limits)";
    assert_eq!(parse(few, &["a{1000}"]), Err(reason.to_owned()));

    let few = RegexLimits { resource: 64 << 10, ..limits };
    assert_eq!(parse(few, &["a{100}", "b{100}", "c{100}"]), Ok(()));
    let reason =
        "the regexes of the resource are over the budget of 65536 bytes when compiled (setting regex_limits)";
    assert_eq!(parse(few, &["a{100}"; 6]), Err(reason.to_owned()));
}

#[test]
fn m6_a_pattern_of_megabytes_is_rejected_before_it_is_parsed_with_a_short_text() {
    let (_, parsed) = parse_patterns([format!("/{}", "(a".repeat(8 << 20))].into_iter());
    let error = parsed.unwrap_err();
    assert_eq!(
        error.reason(),
        "the regex of 16777217 bytes is over the limit of 4096 bytes (setting regex_limits)"
    );
    let (_, parsed) = parse_patterns(["é".repeat(2000) + "("].into_iter());
    let error = parsed.unwrap_err();
    assert!(error.reason().ends_with(" is no regex: `(` without `)` at byte 4000"), "{error}");
    assert!(error.reason().len() < 300, "{error}");
}
