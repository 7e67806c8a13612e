//! Certificate providers.

use std::{path::PathBuf, time::Duration};

use serde_json::{Map, Value};

use super::credentials::{self, DEFAULT_REFRESH_INTERVAL, FilesError};
use crate::base::{Custom, Invalid};

/// A certificate provider instance, to which resources refer by its name (A29).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum CertificateProvider {
    /// PEM files that are read again at an interval.
    FileWatcher(FileWatcherConfig),
    /// A plugin that the application has registered, with its configuration
    /// ([`Registry::with_certificate_provider`](crate::resource::Registry::with_certificate_provider)).
    Custom(Custom),
    /// A plugin that this library does not support. Resources that name the instance are rejected, unless the
    /// application registers the plugin: then it becomes `Custom` when the client is built.
    Unknown {
        /// The plugin's name.
        plugin_name: String,
        /// Its configuration as written; `null` if there is none.
        config: Value,
    },
}

/// The files of the plugin `file_watcher` (A29, A65, A87). At least one file is set.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FileWatcherConfig {
    /// PEM file of root certificates.
    pub ca_certificate_file: Option<PathBuf>,
    /// PEM file of a certificate chain; `None` exactly if `private_key_file` is.
    pub certificate_file: Option<PathBuf>,
    /// PEM file of the certificate's private key, in the same directory.
    pub private_key_file: Option<PathBuf>,
    /// JSON file of a SPIFFE trust bundle map, used in place of the roots (A87).
    pub spiffe_trust_bundle_map_file: Option<PathBuf>,
    /// The interval at which the files are read again.
    pub refresh_interval: Duration,
}

/// Parses the configuration of a plugin by its name; `None` if there is no such plugin.
pub(crate) type ParsePlugin<'a> = dyn Fn(&str, Map<String, Value>) -> Option<Result<Custom, Invalid>> + 'a;

impl CertificateProvider {
    /// The plugin's name, such as `file_watcher`.
    pub fn plugin_name(&self) -> &str {
        match self {
            Self::FileWatcher(_) => Self::FILE_WATCHER,
            Self::Custom(custom) => custom.type_name(),
            Self::Unknown { plugin_name, .. } => plugin_name,
        }
    }

    /// Whether this library supports the plugin, so that a resource may refer to it.
    pub fn is_known(&self) -> bool {
        match self {
            Self::FileWatcher(_) | Self::Custom(_) => true,
            Self::Unknown { .. } => false,
        }
    }

    /// The instance with its configuration parsed, if the plugin is registered. An error has its path below `config`.
    pub(super) fn plug(&self, parse: &ParsePlugin<'_>) -> Option<Result<Self, Invalid>> {
        let Self::Unknown { plugin_name, config } = self else { return None };
        let (config, misplaced) = match config {
            Value::Object(config) => (config.clone(), false),
            Value::Null => (Map::new(), false),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => (Map::new(), true),
        };
        // Before the shape is judged: the configuration of a plugin that nobody has registered may be anything.
        let parsed = parse(plugin_name, config)?;
        Some(if misplaced { Err(Invalid::new("expected an object")) } else { parsed.map(Self::Custom) })
    }

    /// The plugin that this crate has.
    pub(crate) const FILE_WATCHER: &'static str = "file_watcher";
}

impl FileWatcherConfig {
    /// Root certificates only.
    pub fn roots(ca_certificate_file: impl Into<PathBuf>) -> Self {
        Self { ca_certificate_file: Some(ca_certificate_file.into()), ..Self::empty() }
    }

    /// A certificate with its key only.
    pub fn identity(certificate_file: impl Into<PathBuf>, private_key_file: impl Into<PathBuf>) -> Self {
        Self {
            certificate_file: Some(certificate_file.into()),
            private_key_file: Some(private_key_file.into()),
            ..Self::empty()
        }
    }

    /// Settings without files.
    pub(crate) fn empty() -> Self {
        Self {
            ca_certificate_file: None,
            certificate_file: None,
            private_key_file: None,
            spiffe_trust_bundle_map_file: None,
            refresh_interval: DEFAULT_REFRESH_INTERVAL,
        }
    }

    /// Checks that there is something to provide.
    ///
    /// # Errors
    /// No file is set, or the files do not fit together, as for `TlsConfig::check`.
    pub(crate) fn check(&self) -> Result<(), FilesError> {
        let files = [&self.ca_certificate_file, &self.certificate_file, &self.private_key_file];
        if files.iter().all(|file| file.is_none()) && self.spiffe_trust_bundle_map_file.is_none() {
            return Err(FilesError {
                field: "",
                reason: "needs a certificate_file or a ca_certificate_file",
            });
        }
        credentials::check_identity(self.certificate_file.as_deref(), self.private_key_file.as_deref())?;
        credentials::check_interval(self.refresh_interval)
    }
}
