use std::{fmt, future::Future, io, path::Path, sync::Arc};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, server::WebPkiClientVerifier, sign::SingleCertAndKey},
    server::TlsStream,
};

use crate::{
    escape::{Escaped, debug_as_message},
    tls::files::{self, Content},
};

/// TLS of a control plane with its clients: a certificate, and the authorities of clients' certificates if they need one.
///
/// The files are read once. TLS 1.2 and 1.3 are accepted, as by the clients of this crate.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
}

/// Files that cannot be used for TLS, with the reason.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", Escaped(.0))]
pub struct ServerTlsError(String);

debug_as_message!(ServerTlsError);

impl ServerTls {
    /// TLS with the certificates and the private key in PEM files. `client_ca` is a file of authorities, one of which has to
    /// have issued the certificate of each client; without it, clients need no certificate.
    ///
    /// # Errors
    /// A file cannot be read, does not contain what it should, or the key is not that of the first certificate.
    pub fn from_files(
        certificates: impl AsRef<Path>,
        private_key: impl AsRef<Path>,
        client_ca: Option<&Path>,
    ) -> Result<Self, ServerTlsError> {
        let provider = files::crypto();
        let (certificates, private_key) = (certificates.as_ref(), private_key.as_ref());
        let read = |field, path| files::read(field, path).map_err(ServerTlsError);
        let certificate_bytes = read("certificate_file", certificates)?;
        let key_bytes = read("private_key_file", private_key)?;
        let identity = files::identity(
            &Content { path: certificates, bytes: &certificate_bytes },
            &Content { path: private_key, bytes: &key_bytes },
            &provider,
        );
        let identity = identity.map_err(|unusable| ServerTlsError(unusable.reason))?;
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ServerTlsError(error.to_string()))?;
        let config = match client_ca {
            None => config.with_no_client_auth(),
            Some(path) => {
                let bytes = read("ca_certificate_file", path)?;
                let roots = files::roots(&Content { path, bytes: &bytes });
                let roots = roots.map_err(|unusable| ServerTlsError(unusable.reason))?;
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                config.with_client_cert_verifier(verifier.map_err(|error| ServerTlsError(error.to_string()))?)
            }
        };
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)) })
    }

    /// The handshake of a connection.
    pub(super) fn accept(
        &self,
        socket: TcpStream,
    ) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + use<> {
        self.acceptor.accept(socket)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}
