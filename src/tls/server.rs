//! TLS of a server with its clients: the handshakes of a filter chain, or of the fallback (A29).
//!
//! ```text
//!   DownstreamTls ─▶ Provider: identity, roots ─┐
//!   CRLs ──────────▶ Revocation ────────────────┴─▶ ServerTls ──▶ ServerGeneration ──▶ accept, verified by ClientVerifier
//! ```
//!
//! Handshakes share a generation, and its sessions, as long as the material is the same.

mod error;
mod generation;
mod verifier;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout_at,
};
use tokio_rustls::{
    LazyConfigAcceptor,
    rustls::{pki_types::UnixTime, server::Acceptor},
    server::{StartHandshake, TlsStream},
};

pub(crate) use self::error::{AcceptError, AcceptFailure};
use self::generation::{ServerGeneration, ServerMaterial};
use super::{
    Crypto, Providers,
    generation::NoMaterial,
    peer_certificates::PeerCertificates,
    providers::Provider,
    revocation::{Lists, Revocation},
    watching::Watching,
};
use crate::{config::FileWatcherConfig, resource::DownstreamTls};

/// TLS with the clients of one filter chain, or of the fallback: settings, and where the material comes from.
///
/// Each has sessions of its own, which end when the material changes (SV5.9).
pub(crate) struct ServerTls {
    /// The provider of the server's certificate with its key, or the reason why it cannot be used.
    identity: Result<Arc<Provider>, String>,
    /// The provider of the roots that verify clients; `None` requests no certificates of clients.
    roots: Option<Result<Arc<Provider>, String>>,
    /// Whether clients have to have a certificate.
    requires_client_certificate: bool,
    settings: ServerTlsSettings,
    /// The cryptography of handshakes and keys.
    crypto: Crypto,
    /// Keeps the providers and the revocation lists up to date, from the first use on.
    watching: OnceLock<Vec<Arc<Watching>>>,
    /// The last material with its sessions; `None` before the first handshake.
    generation: Mutex<Option<Arc<ServerGeneration>>>,
}

/// Settings of TLS that the application makes, and not the configuration.
#[derive(Clone, Default)]
pub(crate) struct ServerTlsSettings {
    /// Whether HTTP/1.1 is negotiated beside HTTP/2.
    pub(crate) http1: bool,
    /// Whether clients that negotiate no protocol (ALPN) are accepted.
    pub(crate) accepts_without_alpn: bool,
    /// The lists that no certificate of a client may be in; `None` checks no revocation.
    pub(crate) revocation: Option<Arc<Revocation>>,
}

/// A connection of a client after the handshake.
pub(crate) struct Accepted<IO> {
    pub(crate) stream: TlsStream<IO>,
    /// The verified certificates of the client; `None` if it has sent none.
    pub(crate) peer: Option<PeerCertificates>,
    /// The protocol that was negotiated.
    pub(crate) protocol: NegotiatedProtocol,
    /// The server's certificate in DER.
    pub(crate) local_certificate: Arc<[u8]>,
    /// The name of the cipher suite.
    pub(crate) cipher_suite: Option<&'static str>,
}

/// The protocol that a handshake has negotiated (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NegotiatedProtocol {
    /// `h2`.
    Http2,
    /// `http/1.1`.
    Http1,
    /// The client has offered none.
    None,
}

impl ServerTls {
    /// TLS as a filter chain configures it (A29). No I/O.
    pub(crate) fn of_chain(
        providers: &Arc<Providers>,
        tls: &DownstreamTls,
        settings: ServerTlsSettings,
    ) -> Self {
        let instance = |name: &str| providers.instance(name).cloned();
        let roots = tls.roots.as_ref().map(|roots| instance(&roots.instance_name));
        Self {
            identity: instance(&tls.identity.instance_name),
            requires_client_certificate: tls.require_client_certificate,
            roots,
            settings,
            crypto: providers.crypto().clone(),
            watching: OnceLock::new(),
            generation: Mutex::default(),
        }
    }

    /// TLS by files of the application: the fallback. Clients are requested to have certificates if there are roots. No I/O.
    pub(crate) fn of_files(
        config: &FileWatcherConfig,
        requires_client_certificate: bool,
        settings: ServerTlsSettings,
        crypto: &Crypto,
    ) -> Self {
        let provider = Provider::of_files("the TLS configuration of the server".to_owned(), config, crypto);
        let has_roots = config.ca_certificate_file.is_some() || config.spiffe_trust_bundle_map_file.is_some();
        Self {
            identity: Ok(provider.clone()),
            roots: has_roots.then_some(Ok(provider)),
            requires_client_certificate,
            settings,
            crypto: crypto.clone(),
            watching: OnceLock::new(),
            generation: Mutex::default(),
        }
    }

    /// Keeps the material up to date from now on, whether connections come or not (SV5.3). To be called within a runtime. The first
    /// handshake does it otherwise.
    pub(crate) fn start(&self) {
        self.watching.get_or_init(|| {
            let providers = [Some(&self.identity), self.roots.as_ref()];
            let providers = providers.into_iter().flatten().filter_map(|provider| provider.as_ref().ok());
            let lists = self.settings.revocation.iter().map(Revocation::watch);
            providers.map(|provider| provider.watch()).chain(lists).collect()
        });
    }

    /// Makes the handshake with a client, before the deadline. Without material it waits for it (SV5.4).
    ///
    /// # Errors
    /// The reason, by which failures are counted, with a text for logs.
    pub(crate) async fn accept<IO: AsyncRead + AsyncWrite + Unpin>(
        &self,
        io: IO,
        deadline: Instant,
    ) -> Result<Accepted<IO>, AcceptError> {
        self.start();
        let too_late = |_| AcceptError::timeout();
        let hello = LazyConfigAcceptor::new(Acceptor::default(), io);
        let hello = timeout_at(deadline.into(), hello).await.map_err(too_late)?;
        let start = hello.map_err(|e| AcceptError::of(&e))?;
        // SV5.10: rustls would accept it. The alert tells the client why.
        if !self.settings.accepts_without_alpn && start.client_hello().alpn().is_none() {
            let refused = refuse_without_alpn(start);
            // The client is refused, whether it reads that or not.
            let _ = timeout_at(deadline.into(), refused).await;
            return Err(AcceptError::without_alpn());
        }
        let generation = self.generation(deadline).await?;
        let accepted = start.into_stream(generation.config());
        let accepted = timeout_at(deadline.into(), accepted).await.map_err(too_late)?;
        let stream = accepted.map_err(|e| AcceptError::of(&e))?;
        let connection = stream.get_ref().1;
        let peer = generation.peer(connection, UnixTime::now())?;
        let protocol = match connection.alpn_protocol() {
            Some(b"h2") => NegotiatedProtocol::Http2,
            Some(_) => NegotiatedProtocol::Http1,
            None => NegotiatedProtocol::None,
        };
        let cipher_suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str());
        Ok(Accepted { peer, protocol, local_certificate: generation.leaf(), cipher_suite, stream })
    }

    /// Returns settings with the material of the latest time; waits for material until the deadline.
    async fn generation(&self, deadline: Instant) -> Result<Arc<ServerGeneration>, AcceptError> {
        let mut missing = None;
        let material = async {
            loop {
                // Subscribed before the look, so that nothing is missed in between.
                let retry = self.retry();
                match self.material().await {
                    Ok(material) => return material,
                    Err(reason) => missing = Some(reason),
                }
                retry.await;
            }
        };
        let material = timeout_at(deadline.into(), material).await;
        let Ok(material) = material else { return Err(AcceptError::no_material(missing)) };
        let mut current = self.generation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = current.as_ref().filter(|current| current.is_of(&material)) {
            return Ok(current.clone());
        }
        let crypto = self.crypto.provider().map_err(AcceptError::unusable)?;
        let new = ServerGeneration::new(material, self, crypto).map_err(AcceptError::unusable)?;
        let new = Arc::new(new);
        *current = Some(new.clone());
        Ok(new)
    }

    /// Loads the material of a handshake. None is an error, never a handshake without.
    async fn material(&self) -> Result<ServerMaterial, NoMaterial> {
        let provider = self.identity.as_ref().map_err(|reason| NoMaterial::from(reason.clone()))?;
        let identity = provider.identity("server").await?;
        let roots = match &self.roots {
            None => None,
            Some(Err(reason)) => return Err(reason.clone().into()),
            Some(Ok(provider)) => Some((provider.roots().await?, provider.origin().into())),
        };
        let lists: Option<Arc<Lists>> = match &self.settings.revocation {
            Some(revocation) => Some(revocation.for_handshake().await),
            None => None,
        };
        Ok(ServerMaterial { identity, roots, lists })
    }

    /// Waits until there may be material that was missing, from now on.
    fn retry(&self) -> impl Future<Output = ()> + Send + use<> {
        let retry = |provider: &Result<Arc<Provider>, String>| {
            provider.as_ref().ok().map(|provider| Box::pin(provider.retry()))
        };
        let (identity, roots) = (retry(&self.identity), self.roots.as_ref().and_then(retry));
        async move {
            match (identity, roots) {
                (Some(identity), Some(roots)) => tokio::select! { () = identity => {}, () = roots => {} },
                (Some(one), None) | (None, Some(one)) => one.await,
                // Instances that cannot be used stay so.
                (None, None) => std::future::pending().await,
            }
        }
    }
}

/// Shows what is configured, never what is in the files.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = |provider: &Result<Arc<Provider>, String>| match provider {
            Ok(provider) => provider.origin().to_owned(),
            Err(reason) => reason.clone(),
        };
        f.debug_struct("ServerTls")
            .field("identity", &origin(&self.identity))
            .field("roots", &self.roots.as_ref().map(origin))
            .field("requires_client_certificate", &self.requires_client_certificate)
            .finish_non_exhaustive()
    }
}

/// Sends the alert `no_application_protocol` in the place of the handshake, and closes the connection.
async fn refuse_without_alpn<IO: AsyncRead + AsyncWrite + Unpin>(
    start: StartHandshake<IO>,
) -> std::io::Result<()> {
    let mut io = start.io;
    io.write_all(&NO_APPLICATION_PROTOCOL).await?;
    io.shutdown().await
}

/// A record with the fatal alert 120 (RFC 7301, section 3.2); before the keys, it is plaintext.
const NO_APPLICATION_PROTOCOL: [u8; 7] = [21, 3, 3, 0, 2, 2, 120];

#[cfg(test)]
mod tests;
