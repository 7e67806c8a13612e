//! Handshakes with the settings and the material of one time.

use std::{fmt, io, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, HandshakeKind,
        client::{ClientConnection, Resumption},
        crypto::CryptoProvider,
        pki_types::{CertificateDer, ServerName, UnixTime},
        sign::SingleCertAndKey,
    },
};

use super::{
    published::Identity,
    revocation::Lists,
    verifier::{NameRule, TrustRoots, Verifier},
};
use crate::dial::Alpn;

/// Settings with the material of one time, and its sessions.
pub(crate) struct Generation {
    /// The roots, compared with those of the next handshake.
    roots: Arc<TrustRoots>,
    /// The certificate of the client, compared likewise; `None` if none is configured.
    identity: Option<Arc<Identity>>,
    /// The revocation lists, compared likewise; `None` checks no revocation.
    lists: Option<Arc<Lists>>,
    /// The verifier of the handshake, for sessions that skip it.
    verifier: Arc<Verifier>,
    /// The protocols that are offered.
    alpn: Alpn,
    /// The settings of rustls, which own the sessions.
    connector: TlsConnector,
}

/// The material of a handshake.
pub(super) struct Loaded {
    pub(super) roots: Arc<TrustRoots>,
    /// The source of the roots, for errors.
    pub(super) origin: Box<str>,
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) lists: Option<Arc<Lists>>,
}

/// The reason why there is no material for a handshake.
#[derive(Debug)]
pub(crate) struct NoMaterial {
    /// What is missing of whom; empty if the reason names it.
    missing: String,
    reason: Arc<str>,
}

/// The reason why a handshake has not led to a connection.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// An error of rustls, or of the stream below.
    Failed(io::Error),
    /// The server has no usable name, or has completed the handshake and is not one to talk to.
    Unusable(String),
}

impl Generation {
    /// Prepares handshakes with some material.
    pub(super) fn new(
        loaded: Loaded,
        rule: NameRule,
        alpn: Alpn,
        crypto: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let Loaded { roots, origin, identity, lists } = loaded;
        let verifier = Arc::new(Verifier {
            roots: roots.clone(),
            origin,
            rule,
            crypto: crypto.clone(),
            revocation: lists.clone(),
        });
        let builder = ClientConfig::builder_with_provider(crypto.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            // rustls verifies host names alone. Rules for SANs and SPIFFE need a verifier of our own.
            .dangerous()
            .with_custom_certificate_verifier(verifier.clone());
        let mut config = match &identity {
            Some(identity) => {
                // The key is parsed already, when its file is read.
                let key = SingleCertAndKey::from((*identity.key).clone());
                builder.with_client_cert_resolver(Arc::new(key))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = match alpn {
            Alpn::Http2 => vec![HTTP2.to_vec()],
            #[cfg(feature = "rest")]
            Alpn::Http2OrHttp1 => vec![HTTP2.to_vec(), b"http/1.1".to_vec()],
        };
        config.resumption = Resumption::in_memory_sessions(SESSIONS);
        let connector = TlsConnector::from(Arc::new(config));
        Ok(Self { roots, identity, lists, verifier, alpn, connector })
    }

    /// Whether the generation has this material.
    // Compared by pointers: files with the same content keep their material, and so do the sessions.
    pub(super) fn is_of(&self, loaded: &Loaded) -> bool {
        Arc::ptr_eq(&self.roots, &loaded.roots)
            && is_same(self.identity.as_ref(), loaded.identity.as_ref())
            && is_same(self.lists.as_ref(), loaded.lists.as_ref())
    }

    /// Returns the client's identity.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// Makes the handshake with a server of this name, and checks what was agreed on.
    pub(super) async fn handshake<IO: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        name: ServerName<'static>,
        io: IO,
    ) -> Result<TlsStream<IO>, HandshakeError> {
        let connected = self.connector.connect(name.clone(), io).await;
        let stream = connected.map_err(HandshakeError::Failed)?;
        self.check(stream.get_ref().1, &name, UnixTime::now())?;
        Ok(stream)
    }

    /// Checks what a handshake has agreed on. A resumed session skips the verification, so its certificates are verified here: they
    /// may have expired since (CH7.16).
    pub(super) fn check(
        &self,
        connection: &ClientConnection,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), HandshakeError> {
        // CH7.15: a server without `h2` may use HTTP/1.1, whose bytes would be errors of HTTP/2.
        if self.alpn == Alpn::Http2 && connection.alpn_protocol() != Some(HTTP2) {
            let why = "ALPN: the server did not select `h2`, so it does not use HTTP/2";
            return Err(HandshakeError::Unusable(why.to_owned()));
        }
        if connection.handshake_kind() == Some(HandshakeKind::Resumed) {
            let (leaf, intermediates) = chain(connection)?;
            let verified = self.verifier.verify(leaf, intermediates, name, now);
            verified
                .map_err(|refused| HandshakeError::Unusable(format!("TLS handshake failed: {refused}")))?;
        }
        Ok(())
    }
}

impl NoMaterial {
    /// Creates the reason why `missing` is not there.
    pub(super) fn new(missing: String, reason: Arc<str>) -> Self {
        Self { missing, reason }
    }

    /// Returns the reason alone, which names the file.
    pub(crate) fn reason(&self) -> &str {
        &self.reason
    }
}

impl From<String> for NoMaterial {
    fn from(reason: String) -> Self {
        Self::new(String::new(), reason.into())
    }
}

impl fmt::Display for NoMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.missing.as_str() {
            "" => f.write_str(&self.reason),
            missing => write!(f, "no {missing}: {}", self.reason),
        }
    }
}

/// Returns the certificates of the server: its own, and those behind it.
pub(super) fn chain(
    connection: &ClientConnection,
) -> Result<(&CertificateDer<'static>, &[CertificateDer<'static>]), HandshakeError> {
    let chain = connection.peer_certificates().and_then(<[_]>::split_first);
    chain.ok_or_else(|| HandshakeError::Unusable("the server has no certificate".to_owned()))
}

/// Whether both are the same value, or both are none.
pub(super) fn is_same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The protocol of ALPN.
pub(crate) const HTTP2: &[u8] = b"h2";
/// The number of sessions of an endpoint that are kept: connections to it are few.
const SESSIONS: usize = 8;
