//! Names in certificates: rule T15, A29-13 and A101.

use proptest::prelude::*;

use super::*;
use crate::resource::matcher::{Regex, StringMatcher, StringPattern};

fn matching(matchers: Vec<pb_matcher::StringMatcher>) -> CommonTlsContext {
    validated(validation(CertificateValidationContext { match_subject_alt_names: matchers, ..roots() }))
}

#[test]
fn t15_accepts_names_of_servers_that_are_matched() {
    let parsed = upstream(matching(vec![exact("a.b"), exact("c")])).unwrap();
    assert_eq!(
        serde_json::to_value(&parsed.san_matchers).unwrap(),
        serde_json::json!([
            {"san_type": null, "matcher": {"exact": "a.b"}}, {"san_type": null, "matcher": {"exact": "c"}},
        ])
    );
}

#[test]
fn t15_rejects_matchers_that_are_invalid_and_those_of_servers() {
    let at = format!("{AT}.validation_context.match_subject_alt_names");
    let e = upstream(matching(vec![exact("a"), pb_matcher::StringMatcher::default()])).unwrap_err();
    assert_eq!(e, format!("{at}[1]: no pattern that is supported"));
    let e = downstream(matching(vec![exact("a")])).unwrap_err();
    assert_eq!(e, format!("{at}: is not supported for listeners"));
}

fn typed(san_type: i32, matcher: Option<pb_matcher::StringMatcher>) -> tls::SubjectAltNameMatcher {
    tls::SubjectAltNameMatcher { san_type, matcher }
}

fn matching_typed(
    typed: tls::SubjectAltNameMatcher,
    any: Vec<pb_matcher::StringMatcher>,
) -> Result<UpstreamTls, String> {
    upstream(validated(validation(CertificateValidationContext {
        match_typed_subject_alt_names: vec![typed],
        match_subject_alt_names: any,
        ..roots()
    })))
}

#[test]
fn t15_accepts_names_that_are_matched_by_their_type() {
    for (number, san_type) in
        [(1, SanType::Email), (2, SanType::Dns), (3, SanType::Uri), (4, SanType::IpAddress)]
    {
        let parsed = matching_typed(typed(number, Some(exact("spiffe://a/b"))), vec![]).unwrap();
        assert_eq!(parsed.san_matchers[0].san_type, Some(san_type));
    }
}

#[test]
fn t15_rejects_types_of_names_that_are_not_known() {
    let at = format!("{AT}.validation_context.match_typed_subject_alt_names");
    for (matcher, path) in [
        (typed(0, Some(exact("a"))), "[0].san_type: SAN_TYPE_UNSPECIFIED is not supported"),
        (typed(5, Some(exact("a"))), "[0].san_type: OTHER_NAME is not supported"),
        (typed(9, Some(exact("a"))), "[0].san_type: 9 is no known type"),
        (typed(2, None), "[0].matcher: must be set"),
    ] {
        assert_eq!(matching_typed(matcher, vec![]).unwrap_err(), format!("{at}{path}"));
    }
    let e = matching_typed(typed(2, Some(exact("a"))), vec![exact("b")]).unwrap_err();
    assert_eq!(e, format!("{at}: excludes match_subject_alt_names, which is set too"));
}

fn client(sni: &str, auto_host_sni: bool, matchers: Vec<pb_matcher::StringMatcher>) -> UpstreamTls {
    upstream_message(tls::UpstreamTlsContext {
        common_tls_context: Some(matching(matchers)),
        sni: sni.into(),
        auto_host_sni,
        ..Default::default()
    })
    .unwrap()
}

#[test]
fn ch7_12_a101_the_server_name_is_the_hostname_without_port_or_the_one_of_the_cluster() {
    let auto = client("cluster.example", true, vec![]);
    for (hostname, expected) in [
        (Some("a.example"), "a.example"),
        (Some("a.example:8443"), "a.example"),
        (Some(":8443"), "cluster.example"),
        (Some(""), "cluster.example"),
        (None, "cluster.example"),
    ] {
        assert_eq!(auto.server_name(hostname), Some(expected), "{hostname:?}");
    }
    // An address is the endpoint's name all the same, so the cluster's takes its place no more than others would.
    for address in ["[2001:db8::1]:8443", "[2001:db8::1]", "2001:db8::1", "10.0.0.1:443", "10.0.0.1"] {
        assert_eq!(auto.server_name(Some(address)), None, "{address:?}");
    }
    assert_eq!(client("10.0.0.1", false, vec![]).server_name(Some("a")), None);
    assert_eq!(client("cluster.example", false, vec![]).server_name(Some("a")), Some("cluster.example"));
    assert_eq!(client("", true, vec![]).server_name(Some("a")), Some("a"));
    assert_eq!(client("", true, vec![]).server_name(None), None);
    assert_eq!(client("", false, vec![]).server_name(Some("a")), None);
}

#[test]
fn ch7_13_a101_a_server_name_that_was_sent_takes_the_place_of_the_matchers() {
    let plain = client("", false, vec![exact("spiffe://a/b")]);
    let auto = UpstreamTls { auto_sni_san_validation: true, ..plain.clone() };
    let dns = [(SanType::Dns, "*.example"), (SanType::Uri, "spiffe://x/y")];
    let spiffe = [(SanType::Dns, "a.other"), (SanType::Uri, "spiffe://a/b")];
    assert!(auto.accepts_names(Some("a.example"), dns) && !auto.accepts_names(Some("a.example"), spiffe));
    assert!(auto.accepts_names(None, spiffe) && !auto.accepts_names(None, dns));
    assert!(plain.accepts_names(Some("a.example"), spiffe) && !plain.accepts_names(Some("a.example"), dns));
    // Names of other types are not server names, whatever their content.
    assert!(!auto.accepts_names(Some("a.example"), [(SanType::Uri, "a.example")]));
}

#[test]
fn ch7_9_a29_13_any_name_is_accepted_without_matchers_and_otherwise_one_must_match() {
    let names = [(SanType::Email, "a@example"), (SanType::IpAddress, "10.0.0.1")];
    assert!(client("", false, vec![]).accepts_names(None, names));
    assert!(client("", false, vec![]).accepts_names(None, []));
    assert!(client("", false, vec![exact("x"), exact("10.0.0.1")]).accepts_names(None, names));
    assert!(!client("", false, vec![exact("x"), exact("10.0.0.2")]).accepts_names(None, names));
    assert!(!client("", false, vec![exact("")]).accepts_names(None, [(SanType::Uri, "")]));
    assert!(!client("", false, vec![exact("x")]).accepts_names(None, []));
}

#[test]
fn ch7_9_a29_13_addresses_are_compared_in_their_canonical_form() {
    let any = client("", false, vec![exact("2001:db8::1")]);
    assert!(any.accepts_names(None, [(SanType::IpAddress, "2001:0DB8:0:0::1")]));
    assert!(!any.accepts_names(None, [(SanType::Uri, "2001:0DB8:0:0::1")]));
}

#[test]
fn ch7_10_a29_13_a_wildcard_in_a_dns_name_stands_for_one_label() {
    for (name, host, expected) in [
        ("*.*.example", "a.*.example", false),
        ("*.*", "a.*", false),
        ("*", "*", false),
        ("*.", "*.", false),
        ("**.example", "a.example", false),
        ("a*.example", "a*.example", false),
        ("a.*.example", "a.*.example", false),
        ("*a.example", "*a.example", false),
        (".example", ".example", false),
        (".example", "example", false),
        (".", ".", false),
        (".", "", false),
        ("a.example", "a.example..", false),
        ("a.example.", "A.example.", true),
        ("*.x.y", "a.X.Y.", true),
        ("*.x.y", "x.y", false),
        ("*.x.y", "a.b.x.y", false),
        ("x.y", "*.x.y", false),
        ("a.example", "A.Example", true),
        ("a.example.", "a.example", true),
        ("*.example", "a.example", true),
        ("*.Example", "a.example.", true),
        ("*.example", "a.b.example", false),
        ("*.example", ".example", false),
        ("*.example", "example", false),
        ("*", "a", false),
        ("*.", "a.", false),
        ("a*.example", "ab.example", false),
        ("*.example", "*.example", true),
    ] {
        let matcher = client("", false, vec![exact(host)]);
        assert_eq!(matcher.accepts_names(None, [(SanType::Dns, name)]), expected, "{name} {host}");
    }
    let of_type = matching_typed(typed(3, Some(exact("a.example"))), vec![]).unwrap();
    assert!(!of_type.accepts_names(None, [(SanType::Dns, "a.example")]));
    assert!(of_type.accepts_names(None, [(SanType::Uri, "a.example")]));
}

/// One matcher of a pattern, for all types of names or one.
fn one(san_type: Option<SanType>, pattern: StringPattern, ignore_case: bool) -> UpstreamTls {
    let matcher = SanMatcher { san_type, matcher: StringMatcher { pattern, ignore_case } };
    UpstreamTls { san_matchers: Box::new([matcher]), ..client("", false, vec![]) }
}

#[test]
fn ch7_10_other_types_and_kinds_match_the_text_as_it_stands() {
    use StringPattern::{Contains, Exact, Prefix, SafeRegex, Suffix};
    let regex = |pattern: &str| SafeRegex(Regex::new(pattern).unwrap());
    for (san_type, name, pattern, ignore_case, expected) in [
        (SanType::Uri, "spiffe://A/b", Exact("spiffe://a/b".into()), false, false),
        (SanType::Uri, "spiffe://A/b", Exact("spiffe://a/b".into()), true, true),
        (SanType::Uri, "*.example", Exact("a.example".into()), false, false),
        (SanType::Uri, "a.example.", Exact("a.example".into()), false, false),
        (SanType::Email, "o@A.example", Exact("o@a.example".into()), false, false),
        (SanType::Email, "o@a.example", Suffix("@a.example".into()), false, true),
        (SanType::Email, "o@A.example", Suffix("@a.example".into()), false, false),
        (SanType::Dns, "a.example", Prefix("a.".into()), false, true),
        (SanType::Dns, "A.example", Prefix("a.".into()), false, false),
        (SanType::Dns, "A.example", Prefix("a.".into()), true, true),
        (SanType::Dns, "a.example.", Suffix(".example".into()), false, false),
        // A wildcard is only text to these.
        (SanType::Dns, "*.example", Prefix("a.".into()), false, false),
        (SanType::Dns, "*.example", Prefix("*.".into()), false, true),
        (SanType::Dns, "*.example", Suffix(".example".into()), false, true),
        (SanType::Dns, "*.example", Contains("exam".into()), false, true),
        (SanType::Dns, "*.example", regex("[a-z]+\\.example"), false, false),
        (SanType::Dns, "a.example", regex("[a-z]+\\.example"), false, true),
        (SanType::Dns, "A.example", regex("[a-z]+\\.example"), false, false),
        (SanType::Dns, "a.example.com", regex("[a-z]+\\.example"), false, false),
        (SanType::IpAddress, "10.0.0.1", Prefix("10.0.".into()), false, true),
        (SanType::IpAddress, "2001:DB8::1", Prefix("2001:db8:".into()), false, true),
        (SanType::IpAddress, "2001:db8::1", Exact("2001:DB8::1".into()), false, false),
        (SanType::IpAddress, "2001:db8::1", Exact("2001:DB8::1".into()), true, true),
    ] {
        let tls = one(None, pattern.clone(), ignore_case);
        assert_eq!(tls.accepts_names(None, [(san_type, name)]), expected, "{name} {pattern:?} {ignore_case}");
    }
}

#[test]
fn ch7_9_a_typed_matcher_matches_names_of_its_type_alone() {
    let types = [SanType::Email, SanType::Dns, SanType::Uri, SanType::IpAddress];
    for own in types {
        for other in types {
            let tls = one(Some(own), StringPattern::Exact("a.example".into()), false);
            assert_eq!(tls.accepts_names(None, [(other, "a.example")]), own == other, "{own:?} {other:?}");
        }
    }
}

#[test]
fn ch7_9_an_empty_name_never_matches() {
    let patterns = [StringPattern::Exact("".into()), StringPattern::SafeRegex(Regex::new(".*").unwrap())];
    for pattern in patterns {
        for san_type in [SanType::Email, SanType::Dns, SanType::Uri, SanType::IpAddress] {
            assert!(!one(None, pattern.clone(), false).accepts_names(None, [(san_type, "")]), "{pattern:?}");
        }
    }
    // Nor does a name that is empty but for the dot.
    assert!(!one(None, StringPattern::Exact("".into()), false).accepts_names(None, [(SanType::Dns, ".")]));
}

/// The rules of CH7.10 by labels.
fn is_valid_for(name: &str, host: &str) -> bool {
    let labels = |text: &str| {
        let text = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        text.split('.').map(str::to_owned).collect::<Vec<_>>()
    };
    let (name, host) = (labels(name), labels(host));
    let stars = name.iter().filter(|label| label.contains('*')).count();
    match (stars, name.first().is_some_and(|first| first == "*")) {
        _ if name[0].is_empty() || host[0].is_empty() => false,
        (0, _) => name == host,
        (1, true) => {
            name.len() > 1 && name[1..] != [""] && name.len() == host.len() && name[1..] == host[1..]
        }
        _ => false,
    }
}

/// Some labels, so few that names and hosts are often alike.
const LABELS: &str = "(a|A|\\*|a\\*|)(\\.(a|A|\\*|)){0,2}\\.?";

proptest! {
    #[test]
    fn ch7_10_dns_names_agree_with_a_naive_model(name in LABELS, host in LABELS) {
        let expected = !name.is_empty() && is_valid_for(&name, &host);
        let exact = one(None, StringPattern::Exact(host.as_str().into()), false);
        let ignoring = one(None, StringPattern::Exact(host.as_str().into()), true);
        prop_assert_eq!(exact.accepts_names(None, [(SanType::Dns, &*name)]), expected);
        prop_assert_eq!(ignoring.accepts_names(None, [(SanType::Dns, &*name)]), expected);
        let auto = UpstreamTls { auto_sni_san_validation: true, ..exact };
        prop_assert_eq!(auto.accepts_names(Some(&host), [(SanType::Dns, &*name)]), expected);
    }

    #[test]
    fn ch7_10_a_wildcard_covers_each_label_and_only_one(label in "[a-z0-9-]{1,20}", parent in "[a-z]{1,5}(\\.[a-z]{1,5}){0,2}") {
        let name = format!("*.{parent}");
        let covers = |host: String| {
            one(None, StringPattern::Exact(host.into()), false).accepts_names(None, [(SanType::Dns, &*name)])
        };
        let (one, two) = (format!("{label}.{parent}"), format!("x.{label}.{parent}"));
        prop_assert!(covers(one) && !covers(two) && !covers(parent));
    }

    #[test]
    fn ch7_9_every_text_of_an_address_is_the_same_address(bits in any::<u128>()) {
        let address = std::net::Ipv6Addr::from(bits);
        let long = address.segments().map(|segment| format!("{segment:04X}")).join(":");
        let exact = one(None, StringPattern::Exact(address.to_string().into()), false);
        prop_assert!(exact.accepts_names(None, [(SanType::IpAddress, &*long)]));
        let other = std::net::Ipv6Addr::from(bits ^ 1).to_string();
        prop_assert!(!exact.accepts_names(None, [(SanType::IpAddress, &*other)]));
    }
}
