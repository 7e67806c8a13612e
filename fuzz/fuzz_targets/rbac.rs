//! What management servers and peers choose together: policies of RBAC, and the heads of requests.

#![no_main]

use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use xdskit::rbac::{ConnectionFacts, MalformedRequest, Rbac, RequestFacts, TlsFacts};

/// The method, the path, the authority and the headers of a request.
type Head<'a> = (&'a str, &'a str, Option<&'a str>, Vec<(&'a str, &'a [u8])>);
/// The addresses of a connection; the URIs, the DNS names and the subject of a certificate.
type Connection<'a> = ([([u8; 16], u16); 2], Option<(Vec<&'a str>, Vec<&'a str>, &'a str)>);

fuzz_target!(|input: (Head<'_>, Connection<'_>, bool, &[u8])| {
    let ((method, path, authority, headers), (addresses, tls), is_strict, policies) = input;
    let Ok(rbac) = Rbac::from_protobuf(policies.to_vec()) else { return };
    let [local, peer] = addresses.map(SocketAddr::from);
    let mut connection = ConnectionFacts::new(local, peer);
    if let Some((uris, dns, subject)) = tls {
        let tls = TlsFacts::new().with_uri_sans(uris).with_dns_sans(dns).with_subject(subject);
        connection = connection.with_tls(tls);
    }
    let mut facts =
        RequestFacts::new(method, path, &connection).with_headers(&headers).with_strict_path(is_strict);
    if let Some(authority) = authority {
        facts = facts.with_authority(authority);
    }
    let decision = rbac.decide(&facts);
    assert_eq!(decision, rbac.decide(&facts));
    match decision.malformed {
        Some(malformed) => {
            assert!(!decision.allowed && decision.matched_policy.is_none());
            if let MalformedRequest::HeaderNotUtf8(name) = malformed {
                let is_bad = |(other, value): &(&str, &[u8])| {
                    other.eq_ignore_ascii_case(name) && std::str::from_utf8(value).is_err()
                };
                assert!(headers.iter().any(is_bad), "{name}");
            } else {
                assert!(is_strict);
            }
        }
        None => assert!(facts.path().starts_with(facts.url_path())),
    }
});
