//! The verification of a client's certificate: chain, then SPIFFE id, then revocation (SV5.5 to SV5.7).

use std::{fmt, sync::Arc};

use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use webpki::{EndEntityCert, KeyUsage};

use crate::tls::{
    names::CertificateNames,
    revocation::{Chain, Lists, Role},
    validity::outside_of_validity,
    verifier::{Refused, TrustRoots},
};

/// Verifies clients by roots. There is no rule for their names (SV5.6). Its errors name what was seen.
pub(super) struct ClientVerifier {
    /// The roots, one of which must have signed the chain.
    pub(super) roots: Arc<TrustRoots>,
    /// Where the roots come from, for errors.
    pub(super) origin: Box<str>,
    /// Whether clients have to have a certificate.
    pub(super) is_required: bool,
    /// The implementation of the algorithms of signatures.
    pub(super) crypto: Arc<CryptoProvider>,
    /// What no certificate of the chain may be in.
    pub(super) revocation: Option<Arc<Lists>>,
}

impl ClientVerifier {
    /// Verifies a chain, of which the first is the client's own, at a time.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Refused> {
        let malformed =
            |e: &dyn fmt::Display| Refused::new(format!("the client's certificate is malformed: {e}"));
        let parsed = EndEntityCert::try_from(leaf).map_err(|e| malformed(&e))?;
        // Read before the chain is verified, for errors and for the trust domain; nothing of it is trusted until then.
        let names = CertificateNames::of(leaf).map_err(|e| malformed(&e))?;
        let origin = &self.origin;
        let refused = |why: String| {
            Refused::new(format!("the client's certificate ({names}) is not trusted by {origin}: {why}"))
        };
        let roots = self.roots.of(&names).map_err(refused)?;
        let algorithms = self.crypto.signature_verification_algorithms.all;
        let usage = KeyUsage::client_auth();
        let verified =
            parsed.verify_for_usage(algorithms, &roots.roots, intermediates, now, usage, None, None);
        verified.map_err(|e| {
            refused(outside_of_validity(leaf, intermediates, now).unwrap_or_else(|| reason(&e)))
        })?;
        if let Some(lists) = &self.revocation {
            let chain = Chain { leaf, intermediates, roots, role: Role::Client };
            lists.verify(&chain, now, algorithms).map_err(refused)?;
        }
        Ok(())
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.is_required
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Without hints a client sends the certificate that it has. With them it would have to know which root its own leads to, and
        // the roots of trust domains may be many.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match self.verify(end_entity, intermediates, now) {
            Ok(()) => Ok(ClientCertVerified::assertion()),
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

impl fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientVerifier").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// What is wrong with a certificate, in words.
#[allow(clippy::wildcard_enum_match_arm, reason = "the errors of webpki are not exhaustive")]
fn reason(error: &webpki::Error) -> String {
    use webpki::Error::{InvalidSignatureForPublicKey, RequiredEkuNotFoundContext, UnknownIssuer};
    match error {
        // Another authority of the same name is found by its name, and does not fit by its key.
        UnknownIssuer | InvalidSignatureForPublicKey => "it is not signed by one of the roots".to_owned(),
        RequiredEkuNotFoundContext(_) => "it is not for clients, by its extended key usage".to_owned(),
        other => other.to_string(),
    }
}
