//! Certificates, their names, and SPIFFE: everything that reads what peers and files contain.

use std::{path::Path, sync::Arc, time::Duration};

use tokio_rustls::rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::{
    resource::{
        UpstreamTls,
        matcher::{StringMatcher, StringPattern},
        tls::{Roots, SanMatcher, SanType},
    },
    tls::{
        CertificateNames, Crypto, NameRule, SpiffeId, TrustBundleMap, TrustRoots, Verifier,
        files::{self, Content},
        names_of_peer,
    },
};

/// Reads the names of a certificate in DER, and has it verified with itself as its root.
pub fn read_certificate(certificate: &[u8]) -> Option<Vec<(SanType, String)>> {
    let leaf = CertificateDer::from(certificate.to_vec());
    let roots = tokio_rustls::rustls::RootCertStore::empty();
    let verifier = Verifier {
        roots: Arc::new(TrustRoots::Certificates(Arc::new(roots))),
        origin: "fuzzing".into(),
        rule: NameRule::Any,
        crypto: crypto(),
        revocation: None,
    };
    let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
    let time = UnixTime::since_unix_epoch(TIME);
    let refused = verifier.verify(&leaf, std::slice::from_ref(&leaf), &name, time);
    let refused = refused.expect_err("nobody is trusted").to_string();
    assert!(refused.starts_with("the server's certificate"), "{refused}");
    let names = reasoned(CertificateNames::of(certificate))?;
    assert!(!names.to_string().is_empty());
    // A certificate whose names can be read has a subject that can be written.
    names_of_peer(certificate).expect("a subject");
    Some(names.iter().map(|(san_type, name)| (san_type, name.to_owned())).collect())
}

/// Reads the value of the extension of subject alternative names.
pub fn read_names(value: &[u8]) -> Option<Vec<(SanType, String)>> {
    reasoned(CertificateNames::in_extension(value))
}

/// Reads a certificate and a key as PEM; returns whether they are a pair.
pub fn read_pair(certificate: &[u8], key: &[u8]) -> bool {
    let certificate = Content { path: Path::new("certificate"), bytes: certificate };
    let key = Content { path: Path::new("key"), bytes: key };
    reasoned(files::roots(&certificate).map_err(|unusable| unusable.reason));
    reasoned(files::identity(&certificate, &key, &crypto()).map_err(|unusable| unusable.reason)).is_some()
}

/// Reads a map of trust bundles; returns how many roots each domain has.
pub fn read_trust_bundles(json: &[u8]) -> Option<Vec<(String, usize)>> {
    let map = reasoned(TrustBundleMap::parse(json))?;
    let roots = |domain| map.roots(domain).map_or(0, |roots| roots.len());
    Some(map.domains().map(|domain| (domain.to_owned(), roots(domain))).collect())
}

/// Reads revocation lists in PEM or DER; returns the serial numbers in each.
pub fn read_revocation_lists(file: &[u8]) -> Option<Vec<Vec<Vec<u8>>>> {
    reasoned(crate::tls::revocation::read_lists(file))
}

/// The trust domain of a SPIFFE id.
pub fn spiffe_domain(uri: &str) -> Option<&str> {
    reasoned(SpiffeId::parse(uri).map_err(str::to_owned)).map(|id| id.domain())
}

/// Whether a cluster with one exact matcher accepts a certificate with one name.
pub fn accepts_name(exact: &str, ignore_case: bool, name: (SanType, &str)) -> bool {
    let matcher = StringMatcher { pattern: StringPattern::Exact(exact.into()), ignore_case };
    let tls = UpstreamTls {
        identity: None,
        roots: Roots::System,
        san_matchers: Box::new([SanMatcher { san_type: None, matcher }]),
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    };
    tls.accepts_names(None, [name])
}

fn reasoned<T>(result: Result<T, String>) -> Option<T> {
    match result {
        Ok(read) => Some(read),
        Err(reason) => {
            assert!(!reason.is_empty(), "every refusal has a reason");
            None
        }
    }
}

/// The cryptography of the fuzzer.
fn crypto() -> Arc<CryptoProvider> {
    Crypto::choose(None).provider().expect("the fuzzer has the feature `tls-ring`").clone()
}

/// A time at which most certificates are valid.
const TIME: Duration = Duration::from_secs(1_800_000_000);
