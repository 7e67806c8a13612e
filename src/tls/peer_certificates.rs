//! The verified certificates of a client, as handlers and filters of a server see them.

use std::{fmt, sync::Arc};

use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::{
    certificate::{CertificateInner, Raw},
    der::Decode,
};

use super::{names::CertificateNames, rfc_2253};
use crate::resource::tls::SanType;

/// The certificates with which a client has proved its identity, verified by the server. Clones share them.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerCertificates(Arc<Verified>);

/// Certificates with what is read of the leaf.
#[derive(PartialEq, Eq)]
struct Verified {
    /// The certificates as the client has sent them, its own first; at least one.
    chain: Vec<CertificateDer<'static>>,
    /// The names of the leaf.
    names: CertificateNames,
    /// The subject of the leaf (RFC 2253).
    subject: String,
    /// The SPIFFE id, if the leaf has one.
    spiffe_id: Option<String>,
}

impl PeerCertificates {
    /// The DER encoding of the client's own certificate, the leaf of the chain.
    pub fn certificate(&self) -> &[u8] {
        self.0.chain.first().map(AsRef::as_ref).unwrap_or_default()
    }

    /// The DER encodings of the certificates that the client has sent, its own first. The root is not among them, as a rule.
    pub fn chain(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.0.chain.iter().map(AsRef::as_ref)
    }

    /// The URIs among the subject alternative names, in the order of the certificate.
    pub fn uris(&self) -> impl Iterator<Item = &str> {
        self.of_type(SanType::Uri)
    }

    /// The DNS names among the subject alternative names, in the order of the certificate.
    pub fn dns_names(&self) -> impl Iterator<Item = &str> {
        self.of_type(SanType::Dns)
    }

    /// The subject, as in RFC 2253: `CN=shop,O=Example`. It may be empty.
    pub fn subject(&self) -> &str {
        &self.0.subject
    }

    /// The SPIFFE id (`spiffe://domain/path`): the only URI, if that is one.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.0.spiffe_id.as_deref()
    }

    /// Reads a chain, whose first certificate is the client's own.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Result<Self, String> {
        let leaf = chain.first().ok_or("there is no certificate")?;
        let names = CertificateNames::of(leaf)?;
        let spiffe_id = names.spiffe_id().ok().map(|id| id.as_str().to_owned());
        let parsed = CertificateInner::<Raw>::from_der(leaf).map_err(|e| e.to_string())?;
        let subject = rfc_2253::text(parsed.tbs_certificate().subject());
        let chain = chain.iter().map(|one| one.clone().into_owned()).collect();
        Ok(Self(Arc::new(Verified { chain, names, subject, spiffe_id })))
    }

    /// The names of a type.
    fn of_type(&self, of: SanType) -> impl Iterator<Item = &str> {
        self.0.names.iter().filter(move |(san_type, _)| *san_type == of).map(|(_, name)| name)
    }
}

impl fmt::Debug for PeerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificates")
            .field("names", &self.0.names.to_string())
            .field("subject", &self.0.subject)
            .finish_non_exhaustive()
    }
}
