//! Where a [`Bootstrap`] comes from: gRPC's bootstrap format, as text, from a file or from the environment.
//!
//! ```
//! use xdskit::config::Bootstrap;
//!
//! let bootstrap = Bootstrap::from_json(
//!     r#"{
//!         "xds_servers": [
//!             { "server_uri": "xds.example.com:443", "channel_creds": [{ "type": "tls" }] },
//!             { "server_uri": "127.0.0.1:18000", "channel_creds": [{ "type": "insecure" }] }
//!         ],
//!         "node": { "id": "shop-7f9c", "cluster": "shop" }
//!     }"#,
//! )?;
//! assert_eq!(bootstrap.node().id, "shop-7f9c");
//!
//! let error = Bootstrap::from_json(r#"{ "xds_servers": [{ "server_uri": 1 }] }"#).unwrap_err();
//! let problems: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
//! assert_eq!(
//!     problems,
//!     [
//!         "xds_servers[0].server_uri: expected a string, found a number",
//!         "xds_servers[0].channel_creds: missing",
//!     ],
//! );
//! # Ok::<(), xdskit::bootstrap::BootstrapError>(())
//! ```
//!
//! # The format
//!
//! Fields that are not listed are ignored, at every level. `null` is the same as no field, but not in a list or as the
//! value of a map. All mistakes are reported together, each with its path.
//!
//! | field | type | meaning |
//! |---|---|---|
//! | `xds_servers` | list, required, not empty | the management servers in the order in which they are tried (A27, A71) |
//! | `xds_servers[].server_uri` | string, required | see [`ServerUri`](crate::config::ServerUri) for the forms |
//! | `xds_servers[].channel_creds` | list of `{type, config}`, required | the first entry of a supported type is used, the configuration of all supported ones is checked; `insecure`, `tls` |
//! | `xds_servers[].channel_creds[].config` of `tls` | object | `ca_certificate_file`, `certificate_file` and `private_key_file` (both or none, in one directory), `spiffe_trust_bundle_map_file` (A87), `refresh_interval` (`"600s"` by default); none: the system's roots (A65) |
//! | `xds_servers[].call_creds` | list of `{type, config}` | all entries of a supported type are used: `jwt_token_file`, with the path in its `config.jwt_token_file` (A97) |
//! | `xds_servers[].server_features` | list | `ignore_resource_deletion` (A53), `trusted_xds_server` (A81), `fail_on_data_errors`, `resource_timer_is_transient_error` (A88); other entries, whatever their type, are ignored |
//! | `xds_servers[].api_type` | string | an extension: the variant of the protocol, as in Envoy's `ApiConfigSource`: `AGGREGATED_GRPC`, `AGGREGATED_DELTA_GRPC`, … |
//! | `node` | object | `id`, `cluster`: strings; `locality`: `region`, `zone`, `sub_zone`; `metadata`: any object |
//! | `certificate_providers` | map of `{plugin_name, config}` | sources of certificates by the names that resources use (A29); unknown plugins are kept, for [those that an application registers](crate::resource::Registry::with_certificate_provider) |
//! | `certificate_providers[].config` of `file_watcher` | object | as of `tls`, but with at least one file |
//! | `client_default_listener_resource_name_template` | string | makes a listener's name from a target without authority; `%s` by default (A47) |
//! | `server_listener_resource_name_template` | string | makes a listener's name from a server's address (A36); no default |
//! | `authorities` | map | authorities of `xdstp:` names; the key may be empty (A47) |
//! | `authorities[].xds_servers` | list | as above; empty or absent: the `xds_servers` of the top level |
//! | `authorities[].client_listener_resource_name_template` | string | must start with `xdstp://<authority>/`; by default `xdstp://<authority>/envoy.config.listener.v3.Listener/%s` |
//! | `authorities[].fallback_on_reachability_only` | boolean | fall back only when a server is unreachable (A95) |
//! | `allowed_grpc_services` | map of `{channel_creds, call_creds}` | the gRPC services that resources may name, by target (A102) |
//!
//! Templates that are empty strings, and files whose names are, count as absent.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use crate::config::Bootstrap;

mod document;
mod error;
mod reader;

pub use self::error::{BootstrapError, Origin};

impl Bootstrap {
    /// Reads a bootstrap in gRPC's format; see [`bootstrap`](crate::bootstrap).
    ///
    /// # Errors
    ///
    /// Text that is not JSON, with line and column; everything that is wrong in it, with paths.
    pub fn from_json(text: &str) -> Result<Self, BootstrapError> {
        Self::parse_json(text, Origin::Text)
    }

    /// Reads a bootstrap from a file in gRPC's format. It blocks while the file is read.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, and the errors of [`from_json`](Self::from_json).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BootstrapError> {
        Self::read_file(path.as_ref(), None)
    }

    /// Reads the bootstrap that the environment names: the file in `GRPC_XDS_BOOTSTRAP`, otherwise the JSON in
    /// `GRPC_XDS_BOOTSTRAP_CONFIG`. A variable that is empty counts as unset.
    ///
    /// # Errors
    ///
    /// Neither variable is set, and the errors of [`from_file`](Self::from_file).
    pub fn from_env() -> Result<Self, BootstrapError> {
        Self::from_variables(|name| env::var_os(name))
    }

    /// The environment as an argument, so that tests need not change the process's.
    fn from_variables(lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, BootstrapError> {
        let set = |name| lookup(name).filter(|value| !value.is_empty());
        if let Some(path) = set(FILE_VARIABLE) {
            return Self::read_file(&PathBuf::from(path), Some(FILE_VARIABLE));
        }
        let Some(text) = set(TEXT_VARIABLE) else { return Err(BootstrapError::unset()) };
        let origin = Origin::Variable(TEXT_VARIABLE);
        match text.to_str() {
            Some(text) => Self::parse_json(text, origin),
            None => Err(BootstrapError::unreadable(origin, NOT_UTF8)),
        }
    }

    fn read_file(path: &Path, variable: Option<&'static str>) -> Result<Self, BootstrapError> {
        let origin = Origin::File { path: path.to_owned(), variable };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => return Err(BootstrapError::unreadable(origin, error.to_string())),
        };
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse_json(&text, origin),
            Err(_) => Err(BootstrapError::unreadable(origin, NOT_UTF8)),
        }
    }

    fn parse_json(text: &str, origin: Origin) -> Result<Self, BootstrapError> {
        if text.trim().is_empty() {
            return Err(BootstrapError::unreadable(origin, "it is empty"));
        }
        match serde_json::from_str(text) {
            Ok(document) => {
                document::read(&document).map_err(|problems| BootstrapError::invalid(origin, problems))
            }
            Err(error) => Err(BootstrapError::syntax(origin, &error)),
        }
    }
}

/// Names a file with a bootstrap.
const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";

/// Holds a bootstrap.
const TEXT_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

const NOT_UTF8: &str = "it is not UTF-8";

#[cfg(test)]
mod tests;
