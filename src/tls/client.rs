use std::{fmt, sync::Arc};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{client::TlsStream, rustls::pki_types::CertificateDer};

use super::Providers;
use crate::{config::TlsConfig, resource::UpstreamTls};

/// TLS to one endpoint, of one security generation (CH7.16): settings, and the material that they name.
pub(crate) struct ClientTls {
    security: Security,
}

/// The certificate with which a server has proved its identity (CH7.22).
#[derive(Clone)]
pub struct PeerIdentity {
    certificate: CertificateDer<'static>,
    spiffe_id: Option<Arc<str>>,
}

/// Where material and rules of verification come from.
enum Security {
    Cluster { providers: Arc<Providers>, tls: Arc<UpstreamTls>, server_name: Option<Box<str>> },
    Config { config: TlsConfig, authority: Box<str> },
}

impl ClientTls {
    /// TLS as a cluster configures it (A29). No I/O. `hostname` is the endpoint's (CH7.12).
    pub(crate) fn of_cluster(
        providers: Arc<Providers>,
        tls: Arc<UpstreamTls>,
        hostname: Option<&str>,
    ) -> Self {
        let server_name = tls.server_name(hostname).map(Into::into);
        Self { security: Security::Cluster { providers, tls, server_name } }
    }

    /// The fallback: TLS that verifies the host name, the channel's authority (CH7.3). No I/O.
    pub(crate) fn of_config(config: &TlsConfig, authority: &str) -> Self {
        Self { security: Security::Config { config: config.clone(), authority: authority.into() } }
    }

    /// Loads material if need be, and makes the handshake with ALPN `h2` (CH3.4, CH7.2, CH7.14, CH7.15). The error is
    /// the text for a status: what, which provider, which names (CH7.18).
    pub(crate) async fn connect<IO: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        _io: IO,
    ) -> Result<(TlsStream<IO>, PeerIdentity), String> {
        match &self.security {
            Security::Cluster { providers, tls, server_name } => {
                Err(format!("not implemented: {providers:?} {tls:?} {server_name:?}"))
            }
            Security::Config { config, authority } => Err(format!("not implemented: {config:?} {authority}")),
        }
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

impl PeerIdentity {
    /// The DER encoding of the server's certificate, the leaf of its chain.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The SPIFFE id of the certificate (`spiffe://domain/path`), if it has exactly one URI as its name and this is one.
    pub fn spiffe_id(&self) -> Option<&str> {
        self.spiffe_id.as_deref()
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIdentity").field("spiffe_id", &self.spiffe_id).finish_non_exhaustive()
    }
}
