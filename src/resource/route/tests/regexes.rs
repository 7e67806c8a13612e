//! The budget of all regexes in a resource.

use prost::Message;

use super::*;
use crate::{
    pb::envoy::{config::route::v3::route_match::PathSpecifier, r#type::matcher::v3::RegexMatcher},
    resource::{Context, Invalid, Resource, ResourceType},
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
    let large = |count: usize| (0..count).map(|i| format!("/{i}(?:ab{{1,99}}){{70}}"));
    let (size, parsed) = parse_patterns(large(350));
    assert!((12_000..20_000).contains(&size), "{size}");
    let error = parsed.unwrap_err();
    assert_eq!(
        error.reason(),
        "the regexes of the resource are over the budget of 16777216 bytes when compiled"
    );
    assert!(error.path().starts_with("virtual_hosts[0].routes["), "{error}");
    assert!(error.path().ends_with("].match.safe_regex.regex"), "{error}");
    assert!(parse_patterns(large(8)).1.is_ok(), "each resource has its own");
    assert!(parse_patterns(large(8)).1.is_ok());
    // The budget does not apply to resources that an application parses by itself.
    let table = configuration(vec![virtual_host(&["*"], large(40).map(by_regex).collect())]);
    assert!(RouteConfiguration::parse(&table.encode_to_vec().into(), &Context::new()).is_ok());
}

#[test]
fn m6_accepts_thousands_of_simple_regexes_within_the_budget() {
    let simple = (0..4_000).map(|i| format!("/api/v[0-9]+/shop{i}/.*"));
    assert_eq!(parse_patterns(simple).1, Ok(()));
}
