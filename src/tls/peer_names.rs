//! The names of the certificate of a peer, for the authorization of its requests (A41).

use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::Decode,
};

use super::{names::CertificateNames, rfc_2253};
use crate::resource::{http_filter::rbac::TlsFacts, tls::SanType};

/// Reads the names of a certificate in DER that authorization depends on (SV9.14).
pub(crate) fn names_of_peer(certificate: &[u8]) -> Result<TlsFacts, String> {
    let parsed = CertificateInner::<Raw>::from_der(certificate).map_err(|e| e.to_string())?;
    let names = CertificateNames::of(certificate)?;
    let of = |wanted| names.iter().filter(move |(san_type, _)| *san_type == wanted).map(|(_, name)| name);
    Ok(TlsFacts::new()
        .with_uri_sans(of(SanType::Uri))
        .with_dns_sans(of(SanType::Dns))
        .with_subject(rfc_2253::text(parsed.tbs_certificate().subject())))
}
