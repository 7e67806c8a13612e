//! TLS with the clients of a control plane.

use std::{
    fmt,
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::CryptoProvider, server::WebPkiClientVerifier, sign::SingleCertAndKey},
    server::TlsStream,
};

use crate::{
    escape::{Escaped, debug_as_message},
    tls::{
        Crypto,
        files::{self, Content},
    },
};

/// TLS of a control plane with its clients: a certificate, and the authorities of clients' certificates if they need one.
///
/// The files are read once, and again by [`reload`](Self::reload). TLS 1.2 and 1.3 are accepted, as by the clients of this crate.
/// Clones share what was read.
#[derive(Clone)]
pub struct ServerTls {
    /// The files that `reload` reads.
    files: Arc<Files>,
    /// Read for each connection, written by `reload`.
    current: Arc<RwLock<Current>>,
}

/// The paths of the files.
#[derive(Debug)]
struct Files {
    /// The PEM file of the certificate chain.
    certificates: PathBuf,
    /// The PEM file of the key.
    private_key: PathBuf,
    /// The PEM file of the certificate authorities for client certificates; without it, clients need none.
    client_ca: Option<PathBuf>,
    /// The cryptography of keys and handshakes.
    crypto: Crypto,
}

/// The contents of the files. They include a private key, so there is no `Debug`.
#[derive(PartialEq)]
struct Contents {
    certificates: Vec<u8>,
    private_key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// The last usable contents.
struct Current {
    /// The contents from which the acceptor was made, to notice changes.
    contents: Contents,
    /// The settings of handshakes with these contents.
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
    /// A file cannot be read, does not contain what it should, or the key is not that of the first certificate. Or TLS has no
    /// cryptography: that of the process or of the features, as for
    /// [clients](crate::client::ClientBuilder::crypto_provider).
    pub fn from_files(
        certificates: impl AsRef<Path>,
        private_key: impl AsRef<Path>,
        client_ca: Option<&Path>,
    ) -> Result<Self, ServerTlsError> {
        let (certificates, private_key) = (certificates.as_ref(), private_key.as_ref());
        Self::new(Crypto::choose(None), certificates, private_key, client_ca)
    }

    /// TLS like that of [`from_files`](Self::from_files), with the cryptography of a provider.
    ///
    /// # Errors
    /// A file cannot be read, does not contain what it should, or the key is not that of the first certificate.
    pub fn from_files_with_provider(
        provider: impl Into<Arc<CryptoProvider>>,
        certificates: impl AsRef<Path>,
        private_key: impl AsRef<Path>,
        client_ca: Option<&Path>,
    ) -> Result<Self, ServerTlsError> {
        let (certificates, private_key) = (certificates.as_ref(), private_key.as_ref());
        Self::new(Crypto::choose(Some(&provider.into())), certificates, private_key, client_ca)
    }

    /// Reads the files for the first time.
    fn new(
        crypto: Crypto,
        certificates: &Path,
        private_key: &Path,
        client_ca: Option<&Path>,
    ) -> Result<Self, ServerTlsError> {
        let files = Files {
            certificates: certificates.to_owned(),
            private_key: private_key.to_owned(),
            client_ca: client_ca.map(Path::to_owned),
            crypto,
        };
        let contents = files.read()?;
        let acceptor = files.acceptor(&contents)?;
        Ok(Self { files: Arc::new(files), current: Arc::new(RwLock::new(Current { contents, acceptor })) })
    }

    /// Reads the files again, and returns whether they have changed. Connections that are accepted later use what was read; others
    /// stay as they are. It blocks while the files are read.
    ///
    /// # Errors
    /// The errors are those of [`from_files`](Self::from_files). What was read before stays in use.
    pub fn reload(&self) -> Result<bool, ServerTlsError> {
        let contents = self.files.read()?;
        // Most readings change nothing: they build no acceptor, and handshakes do not wait for them.
        if contents == self.current.read().unwrap_or_else(PoisonError::into_inner).contents {
            return Ok(false);
        }
        let acceptor = self.files.acceptor(&contents)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Current { contents, acceptor };
        Ok(true)
    }

    /// The handshake of a connection.
    pub(super) fn accept(
        &self,
        socket: TcpStream,
    ) -> impl Future<Output = io::Result<TlsStream<TcpStream>>> + Send + use<> {
        let acceptor = self.current.read().unwrap_or_else(PoisonError::into_inner).acceptor.clone();
        acceptor.accept(socket)
    }
}

impl Files {
    /// Reads all files.
    fn read(&self) -> Result<Contents, ServerTlsError> {
        let read = |field, path| files::read(field, path).map_err(ServerTlsError);
        Ok(Contents {
            certificates: read("certificate_file", &self.certificates)?,
            private_key: read("private_key_file", &self.private_key)?,
            client_ca: self.client_ca.as_ref().map(|path| read("ca_certificate_file", path)).transpose()?,
        })
    }

    /// Prepares handshakes with the contents.
    fn acceptor(&self, contents: &Contents) -> Result<TlsAcceptor, ServerTlsError> {
        let provider = self.crypto.provider().map_err(|missing| ServerTlsError(missing.to_string()))?;
        let identity = files::identity(
            &Content { path: &self.certificates, bytes: &contents.certificates },
            &Content { path: &self.private_key, bytes: &contents.private_key },
            provider,
        );
        let identity = identity.map_err(|unusable| ServerTlsError(unusable.reason))?;
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ServerTlsError(error.to_string()))?;
        let config = match self.client_ca.as_deref().zip(contents.client_ca.as_deref()) {
            None => config.with_no_client_auth(),
            Some((path, bytes)) => {
                let roots = files::roots(&Content { path, bytes });
                let roots = roots.map_err(|unusable| ServerTlsError(unusable.reason))?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
                config.with_client_cert_verifier(verifier.map_err(|error| ServerTlsError(error.to_string()))?)
            }
        };
        let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
        // gRPC needs HTTP/2; clients of REST may use HTTP/1.1.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}
