//! Names in certificates: rule T15, A29-13 and A101.

use super::*;

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
fn a101_the_server_name_is_the_hostname_without_port_or_the_one_of_the_cluster() {
    let auto = client("cluster.example", true, vec![]);
    for (hostname, expected) in [
        (Some("a.example"), "a.example"),
        (Some("a.example:8443"), "a.example"),
        (Some("[2001:db8::1]:8443"), "2001:db8::1"),
        (Some("2001:db8::1"), "2001:db8::1"),
        (Some(":8443"), "cluster.example"),
        (None, "cluster.example"),
    ] {
        assert_eq!(auto.server_name(hostname), Some(expected), "{hostname:?}");
    }
    assert_eq!(client("cluster.example", false, vec![]).server_name(Some("a")), Some("cluster.example"));
    assert_eq!(client("", true, vec![]).server_name(Some("a")), Some("a"));
    assert_eq!(client("", true, vec![]).server_name(None), None);
    assert_eq!(client("", false, vec![]).server_name(Some("a")), None);
}

#[test]
fn a101_a_server_name_that_was_sent_takes_the_place_of_the_matchers() {
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
fn a29_13_any_name_is_accepted_without_matchers_and_otherwise_one_must_match() {
    let names = [(SanType::Email, "a@example"), (SanType::IpAddress, "10.0.0.1")];
    assert!(client("", false, vec![]).accepts_names(None, names));
    assert!(client("", false, vec![]).accepts_names(None, []));
    assert!(client("", false, vec![exact("x"), exact("10.0.0.1")]).accepts_names(None, names));
    assert!(!client("", false, vec![exact("x"), exact("10.0.0.2")]).accepts_names(None, names));
    assert!(!client("", false, vec![exact("")]).accepts_names(None, [(SanType::Uri, "")]));
    assert!(!client("", false, vec![exact("x")]).accepts_names(None, []));
}

#[test]
fn a29_13_addresses_are_compared_in_their_canonical_form() {
    let any = client("", false, vec![exact("2001:db8::1")]);
    assert!(any.accepts_names(None, [(SanType::IpAddress, "2001:0DB8:0:0::1")]));
    assert!(!any.accepts_names(None, [(SanType::Uri, "2001:0DB8:0:0::1")]));
}

#[test]
fn a29_13_a_wildcard_in_a_dns_name_stands_for_one_label() {
    for (name, host, expected) in [
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
