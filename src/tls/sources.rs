//! The files that material is read from, and their contents.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::rustls::pki_types::CertificateDer;

use super::{
    Crypto,
    files::{self, Content, Unusable, in_file},
    spiffe::TrustBundleMap,
    verifier::TrustRoots,
};
use crate::config::{FileWatcherConfig, TlsConfig};

/// The files to read.
#[derive(Clone)]
pub(super) struct Sources {
    /// The certificate and its key; `None` if they are not configured.
    pub(super) identity: Option<IdentityFiles>,
    /// The roots; `None` if they are not configured.
    pub(super) roots: Option<RootsSource>,
}

/// The files of a certificate with its key.
#[derive(Clone)]
pub(super) struct IdentityFiles {
    /// The PEM file of the certificate chain.
    pub(super) certificate: PathBuf,
    /// The PEM file of the key.
    pub(super) key: PathBuf,
    /// The cryptography that loads the key.
    pub(super) crypto: Crypto,
}

/// The source of roots.
#[derive(Clone)]
pub(super) enum RootsSource {
    /// A PEM file of certificates.
    Pem(PathBuf),
    /// A map of SPIFFE trust bundles.
    SpiffeMap(PathBuf),
    /// The certificates that the operating system trusts.
    System,
}

/// The contents of two files. They include a private key, so there is no `Debug`.
#[derive(PartialEq)]
pub(super) struct IdentityBytes {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// The content of a source of roots, compared with the last one before it is parsed.
#[derive(PartialEq)]
pub(super) enum RootsContent {
    Pem(PathBuf, Vec<u8>),
    SpiffeMap(PathBuf, Vec<u8>),
    System(Vec<CertificateDer<'static>>),
}

impl Sources {
    /// The files of a `file_watcher`. A map of trust bundles replaces the roots, even if it is unusable (CH7.11).
    pub(super) fn of_file_watcher(config: &FileWatcherConfig, crypto: &Crypto) -> Self {
        let files = config.certificate_file.as_ref().zip(config.private_key_file.as_ref());
        let identity = files.map(|(certificate, key)| IdentityFiles::new(certificate, key, crypto));
        let map = config.spiffe_trust_bundle_map_file.as_ref();
        Self { identity, roots: RootsSource::of(map, config.ca_certificate_file.as_ref()) }
    }

    /// The files of TLS without certificate providers. Without roots, those of the system are used (A65).
    pub(super) fn of_config(config: &TlsConfig, crypto: &Crypto) -> Self {
        let files = config.certificate_file.as_ref().zip(config.private_key_file.as_ref());
        let identity = files.map(|(certificate, key)| IdentityFiles::new(certificate, key, crypto));
        let map = config.spiffe_trust_bundle_map_file.as_ref();
        let roots = RootsSource::of(map, config.ca_certificate_file.as_ref());
        Self { identity, roots: roots.or(Some(RootsSource::System)) }
    }

    /// The roots of the operating system (A82).
    pub(super) fn of_system() -> Self {
        Self { identity: None, roots: Some(RootsSource::System) }
    }

    /// Names the source of the roots, for the errors of verification.
    pub(super) fn roots_origin(&self) -> String {
        match &self.roots {
            Some(source @ (RootsSource::Pem(_) | RootsSource::SpiffeMap(_))) => {
                let (field, path) = source.file();
                format!("{field} {}", path.display())
            }
            Some(RootsSource::System) | None => {
                "the system's root certificates (no ca_certificate_file is configured)".to_owned()
            }
        }
    }
}

impl IdentityFiles {
    /// Creates the files of a certificate and its key, which nobody has read.
    fn new(certificate: &Path, key: &Path, crypto: &Crypto) -> Self {
        Self { certificate: certificate.to_owned(), key: key.to_owned(), crypto: crypto.clone() }
    }

    /// Reads both files. Called on a thread for blocking operations.
    pub(super) fn read(&self) -> Result<IdentityBytes, String> {
        let certificate = files::read("certificate_file", &self.certificate)?;
        Ok(IdentityBytes { certificate, key: files::read("private_key_file", &self.key)? })
    }
}

impl RootsSource {
    /// Returns the source of the roots, if there is one: a map of trust bundles precedes a file (CH7.11).
    fn of(map: Option<&PathBuf>, roots: Option<&PathBuf>) -> Option<Self> {
        map.cloned().map(Self::SpiffeMap).or_else(|| roots.cloned().map(Self::Pem))
    }

    /// The name of the file in the configuration, and its path.
    pub(super) fn file(&self) -> (&'static str, PathBuf) {
        match self {
            Self::Pem(path) => ("ca_certificate_file", path.clone()),
            Self::SpiffeMap(path) => ("spiffe_trust_bundle_map_file", path.clone()),
            Self::System => ("the system's root certificates", PathBuf::new()),
        }
    }

    /// Reads the source. Called on a thread for blocking operations.
    pub(super) fn read(&self) -> Result<RootsContent, String> {
        Ok(match self {
            Self::Pem(path) => RootsContent::Pem(path.clone(), files::read("ca_certificate_file", path)?),
            Self::SpiffeMap(path) => {
                RootsContent::SpiffeMap(path.clone(), files::read("spiffe_trust_bundle_map_file", path)?)
            }
            Self::System => RootsContent::System(files::system_certificates()?),
        })
    }
}

impl RootsContent {
    /// Parses the roots.
    pub(super) fn parse(&self) -> Result<TrustRoots, Unusable> {
        match self {
            Self::Pem(path, bytes) => {
                let roots = files::roots(&Content { path, bytes })?;
                Ok(TrustRoots::Certificates(Arc::new(roots)))
            }
            Self::SpiffeMap(path, bytes) => TrustBundleMap::parse(bytes)
                .map(TrustRoots::Spiffe)
                .map_err(|why| Unusable::incomplete(in_file("spiffe_trust_bundle_map_file", path, &why))),
            Self::System(certificates) => {
                let roots = files::system_roots(certificates).map_err(Unusable::new)?;
                Ok(TrustRoots::Certificates(Arc::new(roots)))
            }
        }
    }
}
