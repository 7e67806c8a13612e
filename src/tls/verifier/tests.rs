//! CH7.8 to CH7.13: which servers are accepted, and what the error names.

use std::time::Duration;

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};
use serde_json::json;

use super::*;
use crate::{
    resource::{
        UpstreamTls,
        matcher::{StringMatcher, StringPattern},
        tls::{Roots, SanMatcher, SanType},
    },
    tls::fixture::{self, Ca, dns, email, ip, uri},
};

fn upstream(exact: &[&str]) -> UpstreamTls {
    let matcher = |text: &&str| SanMatcher {
        san_type: None,
        matcher: StringMatcher { pattern: StringPattern::Exact((*text).into()), ignore_case: false },
    };
    UpstreamTls {
        identity: None,
        roots: Roots::System,
        san_matchers: exact.iter().map(matcher).collect(),
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    }
}

fn verifier(roots: TrustRoots, tls: UpstreamTls, sent: Option<&str>) -> Verifier {
    Verifier {
        roots: Arc::new(roots),
        origin: "certificate provider instance \"ca\"".into(),
        rule: NameRule::Cluster { tls: Arc::new(tls), sent: sent.map(Into::into) },
        crypto: fixture::provider(),
        revocation: None,
    }
}

fn by_roots(ca: &Ca, exact: &[&str]) -> Verifier {
    verifier(TrustRoots::Certificates(ca.store()), upstream(exact), None)
}

fn by_bundles(domains: &[(&str, &Ca)], exact: &[&str]) -> Verifier {
    let bundles: serde_json::Map<_, _> =
        domains.iter().map(|(domain, ca)| ((*domain).to_owned(), ca.bundle())).collect();
    let map = json!({ "trust_domains": bundles }).to_string();
    let map = TrustBundleMap::parse(map.as_bytes()).unwrap();
    verifier(TrustRoots::Spiffe(map), upstream(exact), None)
}

/// In 2026, when all certificates of the tests are valid unless they say otherwise.
fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(date_time_ymd(2026, 1, 1).unix_timestamp().unsigned_abs()))
}

/// The server name of the handshake, which no rule of a cluster looks at.
fn host() -> ServerName<'static> {
    ServerName::try_from("sent.example").unwrap()
}

fn refusal(verifier: &Verifier, certificate: &CertificateDer<'_>) -> String {
    verifier.verify(certificate, &[], &host(), now()).unwrap_err().0
}

fn accepts(verifier: &Verifier, certificate: &CertificateDer<'_>) -> bool {
    verifier.verify(certificate, &[], &host(), now()).is_ok()
}

#[test]
fn ch7_8_the_chain_is_verified_before_the_names() {
    let (ca, other) = (Ca::new(), Ca::new());
    let named = other.issue([dns("a.example")]).der;
    assert_eq!(
        refusal(&by_roots(&ca, &["a.example"]), &named),
        "the server's certificate (DNS \"a.example\") is not trusted by certificate provider instance \"ca\": \
         it is not signed by one of the roots"
    );
    // Names that do not match hide no chain that is not trusted, and the other way around.
    assert!(refusal(&by_roots(&ca, &["b.example"]), &named).contains("is not trusted by"));
    assert!(refusal(&by_roots(&other, &["b.example"]), &named).contains("has no name that is"));
    assert!(accepts(&by_roots(&other, &["a.example"]), &named));
}

#[test]
fn ch7_8_a_certificate_that_is_not_for_servers_is_refused() {
    let ca = Ca::new();
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let error = refusal(&by_roots(&ca, &[]), &ca.issue_with([dns("a")], for_clients).der);
    assert!(error.contains("is not trusted by"), "{error}");
    let for_any = |params: &mut CertificateParams| params.extended_key_usages = vec![];
    assert!(accepts(&by_roots(&ca, &[]), &ca.issue_with([dns("a")], for_any).der));
}

#[test]
fn ch7_8_an_authority_is_no_server() {
    let ca = Ca::new();
    assert!(refusal(&by_roots(&ca, &[]), ca.0.der()).contains("is not trusted by"));
}

#[test]
fn ch7_18_the_authority_in_a_chain_that_has_expired_is_named() {
    let ca = Ca::new();
    let intermediate = ca.intermediate("between", 7, |params| params.not_after = date_time_ymd(2025, 6, 1));
    let leaf = intermediate.issue([dns("a")]).der;
    let chain = [intermediate.0.der().clone()];
    let refused = by_roots(&ca, &["a"]).verify(&leaf, &chain, &host(), now()).unwrap_err().0;
    let end = "the certificate of the authority \"CN=between\" in its chain has expired (not after 2025-06-01T00:00:00Z; now \
               is 2026-01-01T00:00:00Z)";
    assert!(
        refused.starts_with("the server's certificate (DNS \"a\")") && refused.ends_with(end),
        "{refused}"
    );
}

#[test]
fn ch7_19_a_certificate_is_valid_by_the_time_of_the_handshake() {
    let ca = Ca::new();
    let in_2026 = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = (date_time_ymd(2025, 12, 1), date_time_ymd(2026, 2, 1));
    };
    let (certificate, verifier) = (ca.issue_with([dns("a")], in_2026).der, by_roots(&ca, &["a"]));
    let day = |days: i64| {
        let seconds = now().as_secs().checked_add_signed(days * 86_400).unwrap();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    for (days, expected) in [
        (
            -32,
            "it is not valid yet (not before 2025-12-01T00:00:00Z, not after 2026-02-01T00:00:00Z; now is 2025-11-30T00:00:00Z)",
        ),
        (32, "it has expired (not after 2026-02-01T00:00:00Z; now is 2026-02-02T00:00:00Z)"),
    ] {
        let error = verifier.verify(&certificate, &[], &host(), day(days)).unwrap_err().0;
        let refused =
            "the server's certificate (DNS \"a\") is not trusted by certificate provider instance \"ca\"";
        assert_eq!(error, format!("{refused}: {expected}"));
    }
    assert!(verifier.verify(&certificate, &[], &host(), day(-30)).is_ok());
    assert!(verifier.verify(&certificate, &[], &host(), day(30)).is_ok());
}

#[test]
fn ch7_9_any_name_is_accepted_without_matchers_and_otherwise_one_must_match() {
    let ca = Ca::new();
    let nameless = ca.issue([]).der;
    let named = ca.issue([dns("*.x.y"), uri("spiffe://a/b"), email("o@a"), ip("2001:db8:0::1")]).der;
    assert!(accepts(&by_roots(&ca, &[]), &nameless) && accepts(&by_roots(&ca, &[]), &named));
    assert!(!accepts(&by_roots(&ca, &["a"]), &nameless));
    for name in ["z.X.y", "spiffe://a/b", "o@a", "2001:db8::1"] {
        assert!(accepts(&by_roots(&ca, &["q", name]), &named), "{name}");
    }
    for name in ["x.y", "z.z.x.y", "spiffe://A/b", "O@a", "2001:db8::2", "2001:db8:0::1"] {
        assert!(!accepts(&by_roots(&ca, &[name]), &named), "{name}");
    }
}

#[test]
fn ch7_18_a_name_that_does_not_match_is_an_error_with_those_seen_and_those_required() {
    let ca = Ca::new();
    let certificate = ca.issue([dns("a.example"), uri("spiffe://a/b")]).der;
    let mut tls = upstream(&["x"]);
    let uri_prefix = SanMatcher {
        san_type: Some(SanType::Uri),
        matcher: StringMatcher { pattern: StringPattern::Prefix("spiffe://b/".into()), ignore_case: false },
    };
    tls.san_matchers = tls.san_matchers.into_iter().chain([uri_prefix]).collect();
    assert_eq!(
        refusal(&verifier(TrustRoots::Certificates(ca.store()), tls, None), &certificate),
        "the server's certificate (DNS \"a.example\", URI \"spiffe://a/b\"), trusted by certificate \
         provider instance \"ca\", has no name that is exact \"x\" or URI prefix \"spiffe://b/\""
    );
}

#[test]
fn ch7_13_the_server_name_that_was_sent_takes_the_place_of_the_matchers() {
    let ca = Ca::new();
    let tls = UpstreamTls { auto_sni_san_validation: true, ..upstream(&["spiffe://a/b"]) };
    let verifier = |sent| verifier(TrustRoots::Certificates(ca.store()), tls.clone(), sent);
    let host = ca.issue([dns("*.example")]).der;
    let workload = ca.issue([uri("spiffe://a/b")]).der;
    assert!(accepts(&verifier(Some("a.example")), &host) && !accepts(&verifier(None), &host));
    assert!(accepts(&verifier(None), &workload));
    assert_eq!(
        refusal(&verifier(Some("a.example")), &workload),
        "the server's certificate (URI \"spiffe://a/b\"), trusted by certificate provider instance \
         \"ca\", has no name that is DNS \"a.example\", the server name that was sent"
    );
}

#[test]
fn ch7_11_roots_are_those_of_the_trust_domain_alone() {
    let (a, b) = (Ca::new(), Ca::new());
    let verifier = by_bundles(&[("a", &a), ("b", &b)], &[]);
    let of = |ca: &Ca, id: &str| ca.issue([uri(id), dns("ignored.example")]).der;
    assert!(accepts(&verifier, &of(&a, "spiffe://a/x")) && accepts(&verifier, &of(&b, "spiffe://b/x")));
    assert!(refusal(&verifier, &of(&b, "spiffe://a/x")).ends_with("it is not signed by one of the roots"));
    assert_eq!(
        refusal(&verifier, &of(&a, "spiffe://c/x")),
        "the server's certificate (URI \"spiffe://c/x\", DNS \"ignored.example\") is refused by certificate \
         provider instance \"ca\": its trust domain is none of those of the map: [\"a\", \"b\"]"
    );
    assert!(!accepts(&by_bundles(&[], &[]), &of(&a, "spiffe://a/x")), "the empty map trusts nobody");
}

#[test]
fn ch7_11_a_spiffe_certificate_has_exactly_one_uri_which_is_an_id() {
    let ca = Ca::new();
    let verifier = by_bundles(&[("a", &ca)], &[]);
    for (names, reason) in [
        (vec![dns("a")], "it has no URI, so no SPIFFE id"),
        (
            vec![uri("spiffe://a/b"), uri("spiffe://a/c")],
            "it has several URIs, a SPIFFE id must be the only one",
        ),
        (vec![uri("spiffe://a")], "\"spiffe://a\" is no SPIFFE id: it has no path"),
        (vec![uri("https://a/b")], "\"https://a/b\" is no SPIFFE id: it does not begin with spiffe://"),
    ] {
        let error = refusal(&verifier, &ca.issue(names).der);
        assert!(error.ends_with(reason), "{error:?} does not end with {reason:?}");
    }
}

#[test]
fn ch7_11_names_are_matched_after_the_spiffe_id() {
    let ca = Ca::new();
    let certificate = ca.issue([uri("spiffe://a/b")]).der;
    assert!(accepts(&by_bundles(&[("a", &ca)], &["spiffe://a/b"]), &certificate));
    let error = refusal(&by_bundles(&[("a", &ca)], &["spiffe://a/c"]), &certificate);
    assert!(error.ends_with("has no name that is exact \"spiffe://a/c\""), "{error}");
}

#[test]
fn ch7_8_bytes_that_are_no_certificate_are_refused() {
    let ca = Ca::new();
    for bytes in [&[][..], b"x", &ca.0.der()[..100]] {
        assert!(refusal(&by_roots(&ca, &[]), &CertificateDer::from(bytes)).contains("malformed"));
    }
}
