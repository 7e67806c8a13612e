//! The certificate of a peer, as applications see it.

use std::{fmt, sync::Arc};

use tokio_rustls::rustls::pki_types::CertificateDer;

use super::names::CertificateNames;

/// The certificate with which a server has proved its identity.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The certificate in DER.
    certificate: Arc<[u8]>,
    /// The SPIFFE id, if the certificate has one.
    spiffe_id: Option<Arc<str>>,
    /// The SPIFFE id, or else the first name, shortened for display.
    name: Option<Arc<str>>,
}

impl PeerIdentity {
    /// The DER encoding of the server's certificate, the leaf of its chain.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The encoding of the certificate, shared.
    #[cfg(feature = "channel")]
    pub(crate) fn shared_certificate(&self) -> &Arc<[u8]> {
        &self.certificate
    }

    /// The SPIFFE id of the certificate (`spiffe://domain/path`): its only URI, if that is one.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.spiffe_id.as_deref()
    }

    /// The SPIFFE id, or else the first name, for operators.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// Reads the names of a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let names = CertificateNames::of(certificate)?;
        let spiffe_id: Option<Arc<str>> = names.spiffe_id().ok().map(|id| id.as_str().into());
        let first = || names.iter().next().map(|(_, name)| name);
        let name = spiffe_id.as_deref().or_else(first);
        let name = name.map(|name| name.chars().take(MAX_NAME_SHOWN).collect::<String>().into());
        Ok(Self { certificate: certificate.as_ref().into(), spiffe_id, name })
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIdentity").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}

/// How many characters of a name operators see.
const MAX_NAME_SHOWN: usize = 256;
