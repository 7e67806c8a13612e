//! Credentials of connections and calls.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use super::bounded;

/// The channel credentials of a management server: the security of connections to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChannelCredentials {
    /// Plain text.
    Insecure,
    /// TLS (A65).
    Tls(TlsConfig),
    /// A type that the application implements; see [`CredentialTypes`].
    Custom(CustomCredentials),
}

/// The TLS settings of a management server (A65). Without any file: the root certificates of the system and no client
/// certificate.
///
/// Files can be replaced while a client runs. A file may be unusable: missing, malformed, or a certificate that does not match
/// the key since only one of the two was replaced. If it has never been usable, no connection is made, and the watches get an error
/// with the field, the file and the reason. If it was usable before, its last good content stays in use, and a warning is logged
/// once. Each attempt to connect reads the files again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TlsConfig {
    /// PEM file of the root certificates for the server; `None` for those of the system.
    pub ca_certificate_file: Option<PathBuf>,
    /// PEM file of the client's certificate chain; `None` exactly if `private_key_file` is.
    pub certificate_file: Option<PathBuf>,
    /// PEM file of the client's private key.
    pub private_key_file: Option<PathBuf>,
    /// JSON file of a SPIFFE trust bundle map, used in place of the roots (A87). The server's certificate must have a
    /// SPIFFE id of a trust domain in the map; its host is not validated, unless `server_name` is set.
    pub spiffe_trust_bundle_map_file: Option<PathBuf>,
    /// The server name for SNI and for the validation of its certificate; `None` for its host.
    pub server_name: Option<String>,
    /// The maximum age of the contents of the files when a connection is made. For management servers they are read
    /// for each connection, so it has no effect; an open connection keeps the contents that it was opened with.
    pub refresh_interval: Duration,
}

/// Credentials for each call to a management server (A97).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallCredentials {
    /// A JSON web token from a file, sent as `Authorization: Bearer`, on secured connections only.
    ///
    /// The file is read whenever a stream is opened, so a token can be replaced at any time. The token must contain
    /// an expiration time (claim `exp`). An expired or unreadable token is an error of the watches; no request is
    /// sent, and the next attempt reads the file again. An open stream outlives the expiration of its token, unless
    /// the server ends it.
    JwtTokenFile(PathBuf),
    /// A type that the application implements; see [`CredentialTypes`].
    Custom(CustomCredentials),
}

/// Credentials of a type that the application implements: the type and its configuration.
///
/// Equal credentials allow servers to share one stream. The configuration may contain secrets, so `Debug` shows the
/// type only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CustomCredentials {
    /// The type, by which the application knows them.
    type_name: String,
    /// The configuration, as it was written.
    config: Value,
}

/// The types of credentials that a bootstrap may name in addition to `insecure`, `tls` and `jwt_token_file`.
///
/// Unknown types are skipped; a server without a known type of channel credentials is an error of the bootstrap
/// (A27). Credentials of these types become [`ChannelCredentials::Custom`] and [`CallCredentials::Custom`], for the
/// implementations that are passed to the client (`ClientBuilder::credentials`).
///
/// ```
/// use xdskit::config::{Bootstrap, ChannelCredentials, CredentialTypes};
///
/// let types = CredentialTypes::default().with_channel("google_default");
/// let bootstrap = Bootstrap::from_json_with(
///     r#"{ "xds_servers": [{
///         "server_uri": "trafficdirector.googleapis.com:443",
///         "channel_creds": [{ "type": "google_default" }]
///     }] }"#,
///     &types,
/// )?;
/// let server = bootstrap.servers().next().expect("there is one");
/// assert!(matches!(&server.channel_credentials, ChannelCredentials::Custom(own) if own.type_name() == "google_default"));
/// # Ok::<(), xdskit::bootstrap::BootstrapError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CredentialTypes {
    /// The types for connections.
    channel: BTreeSet<String>,
    /// The types for calls.
    call: BTreeSet<String>,
}

impl CustomCredentials {
    /// Credentials of a type, with the value of `config` in a bootstrap; `null` if there is none.
    pub fn new(type_name: impl Into<String>, config: Value) -> Self {
        Self { type_name: type_name.into(), config }
    }

    /// The value of `type` in a bootstrap, such as `google_default`.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The value of `config` in a bootstrap; `null` if there is none.
    pub fn config(&self) -> &Value {
        &self.config
    }
}

impl fmt::Debug for CustomCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomCredentials").field("type_name", &self.type_name).finish_non_exhaustive()
    }
}

impl CredentialTypes {
    /// Adds a type of `channel_creds`. Built-in types cannot be replaced.
    #[must_use]
    pub fn with_channel(mut self, type_name: impl Into<String>) -> Self {
        self.channel.insert(type_name.into());
        self
    }

    /// Adds a type of `call_creds`. The built-in type cannot be replaced.
    #[must_use]
    pub fn with_call(mut self, type_name: impl Into<String>) -> Self {
        self.call.insert(type_name.into());
        self
    }

    /// Whether the application has credentials of a type for connections.
    pub(crate) fn has_channel(&self, type_name: &str) -> bool {
        self.channel.contains(type_name)
    }

    /// Whether the application has credentials of a type for calls.
    pub(crate) fn has_call(&self, type_name: &str) -> bool {
        self.call.contains(type_name)
    }

    /// All types of channel credentials, quoted.
    pub(crate) fn channel_names(&self) -> Vec<String> {
        let known = ["insecure", "tls"].into_iter().chain(self.channel.iter().map(String::as_str));
        known.map(|name| format!("{name:?}")).collect()
    }
}

impl TlsConfig {
    /// Validates the server's certificate with the root certificates in a PEM file.
    #[must_use]
    pub fn with_ca_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_certificate_file = Some(path.into());
        self
    }

    /// Validates the server's certificate with a SPIFFE trust bundle map in a JSON file, in place of root certificates
    /// (A87).
    #[must_use]
    pub fn with_spiffe_trust_bundle_map_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.spiffe_trust_bundle_map_file = Some(path.into());
        self
    }

    /// Presents a client certificate: the PEM files of its chain and of its private key, in one directory.
    #[must_use]
    pub fn with_identity(mut self, certificate: impl Into<PathBuf>, private_key: impl Into<PathBuf>) -> Self {
        self.certificate_file = Some(certificate.into());
        self.private_key_file = Some(private_key.into());
        self
    }

    /// Sets the server name for SNI and for the validation of the certificate, in place of the server's host.
    #[must_use]
    pub fn with_server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sets the maximum age of the contents of the files when a connection is made: up to 30 years.
    #[must_use]
    pub fn with_refresh_interval(mut self, interval: Duration) -> Self {
        self.refresh_interval = bounded(interval);
        self
    }

    /// Checks that the files fit together.
    ///
    /// # Errors
    /// Only one of certificate and key is set, or they are in different directories, or the interval is zero.
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

/// The invalid field of a set of certificate files, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilesError {
    /// The field; empty for the settings as a whole.
    pub(crate) field: &'static str,
    /// What is wrong.
    pub(crate) reason: &'static str,
}

/// Certificate and key must be in one directory: a rotation replaces both by switching one symbolic link.
pub(crate) fn check_identity(certificate: Option<&Path>, key: Option<&Path>) -> Result<(), FilesError> {
    match (certificate, key) {
        (Some(_), None) => {
            Err(FilesError { field: "private_key_file", reason: "missing beside certificate_file" })
        }
        (None, Some(_)) => {
            Err(FilesError { field: "certificate_file", reason: "missing beside private_key_file" })
        }
        // As they are written, without the file system: the files may be created after the bootstrap is read.
        (Some(certificate), Some(key)) if certificate.parent() != key.parent() => {
            Err(FilesError { field: "private_key_file", reason: "not in the directory of certificate_file" })
        }
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

/// Checks the time between two readings of files.
pub(crate) fn check_interval(interval: Duration) -> Result<(), FilesError> {
    if interval.is_zero() {
        return Err(FilesError { field: "refresh_interval", reason: "must be more than 0 s" });
    }
    Ok(())
}

/// The interval at which certificate files are read again, unless a bootstrap sets it (A65).
pub const DEFAULT_REFRESH_INTERVAL: Duration = Duration::from_secs(600);
