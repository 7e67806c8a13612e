use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How the connection to a management server is secured.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChannelCredentials {
    /// Plain text.
    Insecure,
    /// TLS (A65).
    Tls(TlsConfig),
}

/// TLS to a management server (A65). Without any file: the system's root certificates and no client certificate.
///
/// Files can be replaced while a client runs. What cannot be used (a file that is missing or garbled, a certificate that is
/// not for the key because only one of the two was replaced) is an error of the watches that names the field, the file and
/// the reason; no connection is made with less, and the next attempt reads the files again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TlsConfig {
    /// PEM file of the roots that the server's certificate is checked with; `None` for those of the system.
    pub ca_certificate_file: Option<PathBuf>,
    /// PEM file of the client's certificate chain; `None` exactly if `private_key_file` is.
    pub certificate_file: Option<PathBuf>,
    /// PEM file of the client's private key.
    pub private_key_file: Option<PathBuf>,
    /// JSON file of a SPIFFE trust bundle map, used in place of the roots (A87).
    pub spiffe_trust_bundle_map_file: Option<PathBuf>,
    /// The name that the server is asked for (SNI) and that its certificate must have; `None` for its host.
    pub server_name: Option<String>,
    /// How old the contents of the files may be when a connection is made. They are read for each connection, so they are
    /// never older than it, whatever this says; a connection that is up keeps those that it was made with.
    pub refresh_interval: Duration,
}

/// Credentials that go with each call to a management server (A97).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallCredentials {
    /// A JSON web token from a file, sent as `Authorization: Bearer`, on secured connections only.
    ///
    /// The file is read for each stream that is opened, so a token can be replaced at any time. It must say when it expires
    /// (claim `exp`). One that has expired, or cannot be read, is an error of the watches; nothing is sent, and the next
    /// attempt reads the file again. A stream that is open stays when its token expires, unless the server ends it.
    JwtTokenFile(PathBuf),
}

impl TlsConfig {
    /// Checks the server's certificate with the roots in a PEM file.
    #[must_use]
    pub fn with_ca_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_certificate_file = Some(path.into());
        self
    }

    /// Presents a client certificate: the PEM files of its chain and of its private key, in one directory.
    #[must_use]
    pub fn with_identity(mut self, certificate: impl Into<PathBuf>, private_key: impl Into<PathBuf>) -> Self {
        self.certificate_file = Some(certificate.into());
        self.private_key_file = Some(private_key.into());
        self
    }

    /// Asks the server for this name (SNI), which its certificate must have, in the place of its host.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sets how old the contents of the files may be when a connection is made.
    #[must_use]
    pub fn with_refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = interval;
        self
    }

    pub(crate) fn check(&self) -> Result<(), FilesError> {
        check_identity(self.certificate_file.as_deref(), self.private_key_file.as_deref())?;
        check_interval(self.refresh_interval)
    }
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            ca_certificate_file: None,
            certificate_file: None,
            private_key_file: None,
            spiffe_trust_bundle_map_file: None,
            server_name: None,
            refresh_interval: DEFAULT_REFRESH_INTERVAL,
        }
    }
}

/// The field of a set of certificate files that is wrong, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilesError {
    pub(crate) field: &'static str,
    pub(crate) reason: &'static str,
}

/// Certificate and key come together and from one directory: a rotation replaces both by switching one link.
pub(crate) fn check_identity(certificate: Option<&Path>, key: Option<&Path>) -> Result<(), FilesError> {
    match (certificate, key) {
        (Some(_), None) => {
            Err(FilesError { field: "private_key_file", reason: "missing beside certificate_file" })
        }
        (None, Some(_)) => {
            Err(FilesError { field: "certificate_file", reason: "missing beside private_key_file" })
        }
        (Some(certificate), Some(key)) if certificate.parent() != key.parent() => {
            Err(FilesError { field: "private_key_file", reason: "not in the directory of certificate_file" })
        }
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

pub(crate) fn check_interval(interval: Duration) -> Result<(), FilesError> {
    if interval.is_zero() {
        return Err(FilesError { field: "refresh_interval", reason: "must be more than 0 s" });
    }
    Ok(())
}

/// How often certificate files are read again where a bootstrap does not say (A65).
pub const DEFAULT_REFRESH_INTERVAL: Duration = Duration::from_secs(600);
