//! The verification of a server's certificate: chain, then SPIFFE id, then names (CH7.8).

use std::{error, fmt, io, sync::Arc};

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::{
    names::{CertificateNames, Matchers},
    revocation::{Chain, Lists, Role},
    spiffe::TrustBundleMap,
    validity::outside_of_validity,
};
use crate::resource::UpstreamTls;

/// The roots that verify peers.
#[derive(Debug)]
pub(crate) enum TrustRoots {
    /// The root certificates, one of which must have signed the chain.
    Certificates(Arc<RootCertStore>),
    /// Root certificates for each trust domain; the SPIFFE id of the certificate selects the domain.
    Spiffe(TrustBundleMap),
}

/// The rule for the names of a server's certificate, applied once its chain is verified.
pub(crate) enum NameRule {
    /// The matchers of a cluster (CH7.9, CH7.13).
    Cluster {
        /// The settings of the cluster, with its matchers.
        tls: Arc<UpstreamTls>,
        /// The server name that is sent, if one is.
        sent: Option<Box<str>>,
    },
    /// The name that is sent, compared as in HTTPS (CH7.3).
    Host,
    /// Any name, where the SPIFFE id has been verified with the chain.
    Any,
}

/// Verifies servers by roots and a rule. Its errors name what was seen and what is required (CH7.18).
pub(crate) struct Verifier {
    /// The roots, one of which must have signed the chain.
    pub(crate) roots: Arc<TrustRoots>,
    /// Where the roots come from, for errors.
    pub(crate) origin: Box<str>,
    /// The rule for the names of the certificate.
    pub(crate) rule: NameRule,
    /// The implementation of the algorithms of signatures.
    pub(crate) crypto: Arc<CryptoProvider>,
    /// What no certificate of the chain may be in (CH7.17).
    pub(crate) revocation: Option<Arc<Lists>>,
}

/// The reason why the certificate of a peer is refused, for errors.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl TrustRoots {
    /// The roots of the trust domain of a certificate, or those for all peers (CH7.11).
    pub(super) fn of(&self, names: &CertificateNames) -> Result<&RootCertStore, String> {
        let map = match self {
            Self::Certificates(roots) => return Ok(roots),
            Self::Spiffe(map) => map,
        };
        let id = names.spiffe_id()?;
        map.roots(id.domain()).map(AsRef::as_ref).ok_or_else(|| {
            let known: Vec<_> = map.domains().take(MAX_SHOWN).collect();
            format!("its trust domain is none of those of the map: {known:?}")
        })
    }
}

impl Verifier {
    /// Verifies a chain, of which the first is the server's own, at a time. `sent` is the server name of the handshake.
    pub(crate) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        sent: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Refused> {
        let parsed = ParsedCertificate::try_from(leaf)
            .map_err(|e| Refused(format!("the server's certificate is malformed: {}", reason(&e))))?;
        // Read before the chain is verified, for errors and for the trust domain; nothing of it is trusted until then.
        let names = CertificateNames::of(leaf)
            .map_err(|e| Refused(format!("the server's certificate is malformed: {e}")))?;
        let roots = self.roots.of(&names).map_err(|why| {
            Refused(format!("the server's certificate ({names}) is refused by {}: {why}", self.origin))
        })?;
        let algorithms = self.crypto.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, algorithms).map_err(
            |e| {
                let why = outside_of_validity(leaf, intermediates, now).unwrap_or_else(|| reason(&e));
                let origin = &self.origin;
                Refused(format!("the server's certificate ({names}) is not trusted by {origin}: {why}"))
            },
        )?;
        // CH7.17: after the chain, whose keys must have signed the lists, and before names that a revoked certificate may claim.
        if let Some(lists) = &self.revocation {
            let checked =
                lists.verify(&Chain { leaf, intermediates, roots, role: Role::Server }, now, algorithms);
            checked.map_err(|why| self.refused(&names, &format!("is refused: {why}")))?;
        }
        self.verify_names(&parsed, &names, sent)
    }

    /// Verifies the names of a certificate whose chain is trusted.
    fn verify_names(
        &self,
        parsed: &ParsedCertificate<'_>,
        names: &CertificateNames,
        host: &ServerName<'_>,
    ) -> Result<(), Refused> {
        match &self.rule {
            NameRule::Any => Ok(()),
            NameRule::Host => verify_server_name(parsed, host).map_err(|_| {
                let host = host.to_str();
                self.refused(names, &format!("is not for the host {host:?}"))
            }),
            NameRule::Cluster { tls, sent } => {
                if tls.accepts_names(sent.as_deref(), names.iter()) {
                    return Ok(());
                }
                let required = match sent.as_deref().filter(|_| tls.auto_sni_san_validation) {
                    Some(sent) => format!("DNS {sent:?}, the server name that was sent"),
                    None => Matchers(&tls.san_matchers).to_string(),
                };
                Err(self.refused(names, &format!("has no name that is {required}")))
            }
        }
    }

    /// Why a certificate is refused although its chain is trusted (CH7.18).
    fn refused(&self, names: &CertificateNames, why: &str) -> Refused {
        Refused(format!("the server's certificate ({names}), trusted by {}, {why}", self.origin))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The rule knows whether the name that is sent is what is accepted. Stapled OCSP responses are not used.
        match self.verify(end_entity, intermediates, server_name, now) {
            Ok(()) => Ok(ServerCertVerified::assertion()),
            Err(refused) => Err(CertificateError::Other(OtherError(Arc::new(refused))).into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.crypto.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.crypto.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Refused {
    /// Creates a reason.
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Refused {}

/// The reason why a handshake has failed, if it is that a verifier of ours has refused the peer. The text of rustls' own error
/// is not for readers.
pub(crate) fn refusal(error: &io::Error) -> Option<&Refused> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let Error::InvalidCertificate(CertificateError::Other(OtherError(own))) = error else { return None };
    own.downcast_ref()
}

/// What is wrong with a certificate, in words.
fn reason(error: &Error) -> String {
    let Error::InvalidCertificate(error) = error else { return error.to_string() };
    // Another authority of the same name is found by its name, and does not fit by its key.
    if [CertificateError::UnknownIssuer, CertificateError::BadSignature].contains(error) {
        return "it is not signed by one of the roots".to_owned();
    }
    error.to_string()
}

/// How many trust domains an error shows.
const MAX_SHOWN: usize = 8;

#[cfg(test)]
mod tests;
