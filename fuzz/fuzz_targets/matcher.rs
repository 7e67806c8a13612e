//! Patterns and texts: a matcher that is accepted says what the plainest reading of the rules says.

#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use prost::Message;
use xdskit::{
    pb::envoy::{
        config::route::v3::{
            HeaderMatcher, Route, RouteMatch, VirtualHost, header_matcher::HeaderMatchSpecifier,
            route::Action, route_match::PathSpecifier,
        },
        r#type::matcher::v3::{RegexMatcher, StringMatcher, string_matcher::MatchPattern},
    },
    pb::google::protobuf::BoolValue,
    resource::{
        self, Context, Resource,
        matcher::{Cidr, DomainPattern, Regex},
    },
};

#[derive(Debug, Arbitrary)]
struct Case<'a> {
    kind: Kind,
    pattern: &'a str,
    text: &'a str,
    ignore_case: bool,
    invert: bool,
    address: u128,
    other: u128,
    prefix_len: u8,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Kind {
    Exact,
    Prefix,
    Suffix,
    Contains,
    Regex,
    /// Of paths; a header must begin with it.
    PathSeparatedPrefix,
}

fuzz_target!(|case: Case<'_>| {
    check_route(&case);
    check_domain(&case);
    check_range(&case);
});

/// A header and a path of one route.
fn check_route(case: &Case<'_>) {
    let Some(host) = host(case) else { return };
    let route = &host.routes[0];
    let (pattern, text, ignore) = (case.pattern, case.text, case.ignore_case);
    let header = &route.matcher.headers[0];
    let matches = header.matches(Some(text)) != case.invert;
    assert!(!header.matches(None), "what is not there is not matched, inverted or not");
    let of_path = match case.kind {
        Kind::Exact | Kind::Suffix | Kind::Contains => plain(Kind::Exact, (pattern, text), ignore),
        Kind::Prefix => plain(Kind::Prefix, (pattern, text), ignore),
        Kind::PathSeparatedPrefix => {
            let below = format!("{pattern}/");
            plain(Kind::Exact, (pattern, text), ignore) || plain(Kind::Prefix, (&below, text), ignore)
        }
        Kind::Regex => {
            // What matches as a whole matches with anything around it, too, unless that is too large.
            let around = Regex::new(&format!("(?s:.*)(?:{pattern})(?s:.*)"));
            assert!(!matches || around.map_or(true, |regex| regex.matches(text)), "{case:?}");
            matches
        }
    };
    if !matches!(case.kind, Kind::Regex) {
        assert_eq!(matches, plain(case.kind, (pattern, text), ignore), "{case:?}");
    }
    assert_eq!(route.matcher.path.matches(text), of_path, "{case:?}");
}

/// A virtual host whose only route has the case's matchers, if they are accepted.
fn host(case: &Case<'_>) -> Option<resource::VirtualHost> {
    let pattern = || case.pattern.to_owned();
    let regex = || RegexMatcher { regex: pattern() };
    let (header, path) = match case.kind {
        Kind::Exact => (MatchPattern::Exact(pattern()), PathSpecifier::Path(pattern())),
        Kind::Prefix => (MatchPattern::Prefix(pattern()), PathSpecifier::Prefix(pattern())),
        Kind::PathSeparatedPrefix => {
            (MatchPattern::Prefix(pattern()), PathSpecifier::PathSeparatedPrefix(pattern()))
        }
        Kind::Suffix => (MatchPattern::Suffix(pattern()), PathSpecifier::Path(pattern())),
        Kind::Contains => (MatchPattern::Contains(pattern()), PathSpecifier::Path(pattern())),
        Kind::Regex => (MatchPattern::SafeRegex(regex()), PathSpecifier::SafeRegex(regex())),
    };
    let header = StringMatcher { match_pattern: Some(header), ignore_case: case.ignore_case };
    let header = HeaderMatcher {
        name: "x".into(),
        invert_match: case.invert,
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(header)),
        ..HeaderMatcher::default()
    };
    let matcher = RouteMatch {
        path_specifier: Some(path),
        case_sensitive: Some(BoolValue { value: !case.ignore_case }),
        headers: vec![header],
        ..RouteMatch::default()
    };
    let route = Route {
        r#match: Some(matcher),
        action: Some(Action::NonForwardingAction(Default::default())),
        ..Route::default()
    };
    let host = VirtualHost {
        name: "v".into(),
        domains: vec!["*".into()],
        routes: vec![route],
        ..VirtualHost::default()
    };
    resource::VirtualHost::parse(&host.encode_to_vec().into(), &Context::new()).ok()
}

fn plain(kind: Kind, (pattern, text): (&str, &str), ignore_case: bool) -> bool {
    let fold = |text: &str| if ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let (folded, at) = (fold(pattern), fold(text));
    match kind {
        Kind::Exact => at == folded,
        Kind::Prefix | Kind::PathSeparatedPrefix => at.starts_with(&folded),
        Kind::Suffix => at.ends_with(&folded),
        Kind::Contains => at.contains(&folded),
        // What is matched as a whole is found in it.
        Kind::Regex => unreachable!("checked by itself"),
    }
}

fn check_domain(case: &Case<'_>) {
    let Ok(domain) = DomainPattern::new(case.pattern) else { return };
    let (pattern, host) = (case.pattern.to_ascii_lowercase(), case.text.to_ascii_lowercase());
    let expected = match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(""), _) => true,
        (Some(suffix), _) => host.ends_with(suffix) && host.len() > suffix.len(),
        (None, Some(prefix)) => host.starts_with(prefix) && host.len() > prefix.len(),
        (None, None) => host == pattern,
    };
    assert_eq!(domain.fit(case.text).is_some(), expected, "{case:?}");
    let exact = DomainPattern::new(case.text).ok().filter(|_| !case.text.contains('*'));
    if let (Some(exact), Some(fit)) = (exact, domain.fit(case.text)) {
        assert!(exact.fit(case.text) >= Some(fit), "nothing fits better than the host itself");
    }
}

fn check_range(case: &Case<'_>) {
    let address = |bits: u128| match case.ignore_case {
        true => IpAddr::V6(Ipv6Addr::from(bits)),
        false => IpAddr::V4(Ipv4Addr::from(bits as u32)),
    };
    let width = if case.ignore_case { 128 } else { 32 };
    let (prefix, other) = (address(case.address), address(case.other));
    // An IPv4 address in IPv6 is one of IPv4, unless the prefix is of the IPv6 addresses around it.
    if width == 128 && prefix.to_canonical().is_ipv4() {
        return;
    }
    let range = Cidr::new(prefix, case.prefix_len);
    assert!(range.contains(prefix) && range.contains(range.address()), "{case:?}");
    let bits = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(v4) => format!("4{:032b}", u32::from(v4)),
        IpAddr::V6(v6) => format!("6{:0128b}", u128::from(v6)),
    };
    let length = usize::from(case.prefix_len).min(width) + 1;
    let same = bits(prefix).get(..length) == bits(other).get(..length);
    assert_eq!(range.contains(other), same, "{case:?}");
}
