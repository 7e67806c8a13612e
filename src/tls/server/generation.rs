//! The settings of handshakes with the material of one time.

use std::sync::Arc;

use tokio_rustls::rustls::{
    HandshakeKind, ServerConfig,
    crypto::CryptoProvider,
    pki_types::UnixTime,
    server::{ServerConnection, ServerSessionMemoryCache},
    sign::SingleCertAndKey,
};

use super::{AcceptError, ServerTls, verifier::ClientVerifier};
use crate::tls::{
    generation::{HTTP2, is_same},
    peer_certificates::PeerCertificates,
    published::Identity,
    revocation::Lists,
    verifier::TrustRoots,
};

/// Settings with the material of one time, and its sessions.
pub(super) struct ServerGeneration {
    /// The material, compared with that of the next handshake.
    material: ServerMaterial,
    /// The verifier of clients, for sessions that skip it; `None` requests no certificates.
    verifier: Option<Arc<ClientVerifier>>,
    /// The settings of rustls, which own the sessions.
    config: Arc<ServerConfig>,
}

/// The material of a handshake.
pub(super) struct ServerMaterial {
    pub(super) identity: Arc<Identity>,
    /// The roots, and where they come from, for errors; `None` requests no certificates of clients.
    pub(super) roots: Option<(Arc<TrustRoots>, Box<str>)>,
    pub(super) lists: Option<Arc<Lists>>,
}

impl ServerGeneration {
    /// Prepares handshakes with some material.
    pub(super) fn new(
        material: ServerMaterial,
        tls: &ServerTls,
        crypto: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let verifier = material.roots.as_ref().map(|(roots, origin)| {
            Arc::new(ClientVerifier {
                roots: roots.clone(),
                origin: origin.clone(),
                is_required: tls.requires_client_certificate,
                crypto: crypto.clone(),
                revocation: material.lists.clone(),
            })
        });
        // SV5.12: TLS 1.2 and 1.3.
        let builder = ServerConfig::builder_with_provider(crypto.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        // SV5.11: one certificate, whatever server name the client sends.
        let key = SingleCertAndKey::from((*material.identity.key).clone());
        let mut config = builder.with_cert_resolver(Arc::new(key));
        config.alpn_protocols = match tls.settings.http1 {
            true => vec![HTTP2.to_vec(), b"http/1.1".to_vec()],
            false => vec![HTTP2.to_vec()],
        };
        // SV5.9: sessions are in the memory of this generation, so that no key of tickets outlives it.
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        // SV5.12: early data could be replayed, and compression is of no use.
        config.max_early_data_size = 0;
        config.cert_compressors.clear();
        config.cert_decompressors.clear();
        Ok(Self { material, verifier, config: Arc::new(config) })
    }

    /// Whether the generation has this material.
    // Compared by pointers: files with the same content keep their material, and so do the sessions.
    pub(super) fn is_of(&self, material: &ServerMaterial) -> bool {
        let roots = |of: &ServerMaterial| of.roots.as_ref().map(|(roots, _)| roots.clone());
        Arc::ptr_eq(&self.material.identity, &material.identity)
            && is_same(roots(&self.material).as_ref(), roots(material).as_ref())
            && is_same(self.material.lists.as_ref(), material.lists.as_ref())
    }

    /// Returns the settings of rustls.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Returns the server's certificate in DER.
    pub(super) fn leaf(&self) -> Arc<[u8]> {
        self.material.identity.key.cert.first().map(AsRef::as_ref).unwrap_or_default().into()
    }

    /// Returns the certificates of a client after the handshake. A resumed session skips the verification, so its certificates are
    /// verified here: they may have expired since (SV5.9).
    pub(super) fn peer(
        &self,
        connection: &ServerConnection,
        now: UnixTime,
    ) -> Result<Option<PeerCertificates>, AcceptError> {
        let chain = connection.peer_certificates().unwrap_or_default();
        let Some((leaf, intermediates)) = chain.split_first() else { return Ok(None) };
        let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        if let Some(verifier) = self.verifier.as_ref().filter(|_| is_resumed) {
            verifier.verify(leaf, intermediates, now).map_err(AcceptError::refused)?;
        }
        PeerCertificates::of(chain).map(Some).map_err(AcceptError::refused)
    }
}

/// The number of sessions that are kept, each with the certificates of its client.
const SESSIONS: usize = 256;
