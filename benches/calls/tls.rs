//! Certificates of the servers, and what the clients trust.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// The name of the servers, which is the authority of the channel.
pub(crate) const NAME: &str = "shop";

/// A certificate that is its own authority, in files.
pub(crate) struct Pki(tempfile::TempDir);

impl Pki {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let key = KeyPair::generate().expect("there is entropy");
        let params = CertificateParams::new([NAME.to_owned()]).expect("it is a name");
        let certificate = params.self_signed(&key).expect("it can be signed");
        fs::write(folder.path().join(CERTIFICATE), certificate.pem()).expect("there is room");
        fs::write(folder.path().join(KEY), key.serialize_pem()).expect("there is room");
        Self(folder)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder().join(CERTIFICATE)
    }
}

/// What servers accept connections with.
pub(crate) fn acceptor(folder: &Path) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(folder.join(CERTIFICATE)).expect("it is there");
    let key = PrivateKeyDer::from_pem_file(folder.join(KEY)).expect("it is there");
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("there are some").with_no_client_auth();
    let mut config = builder.with_single_cert(vec![certificate], key).expect("they are of each other");
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
