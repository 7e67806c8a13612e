//! Reading a [`Bootstrap`]: in gRPC's bootstrap format from text, a file or the environment, or in
//! [Envoy's format](#envoys-format).
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
//! let problems: Vec<String> = error.errors().iter().map(ToString::to_string).collect();
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
//! # gRPC's format
//!
//! Fields that are not listed are ignored, at every level, with a [warning](Bootstrap::warnings), which is logged, too: there may be a typing
//! error in their names. `null` is the same as no field, but not in a list or as the
//! value of a map. All errors are reported together, each with its path.
//!
//! | field | type | meaning |
//! |---|---|---|
//! | `xds_servers` | list, required and not empty unless there are `type_sources` | the management servers in the order in which they are tried (A27, A71) |
//! | `xds_servers[].server_uri` | string, required | see [`ServerUri`](crate::config::ServerUri) for the forms |
//! | `xds_servers[].channel_creds` | list of `{type, config}`, required | the first entry of a supported type is used, the configuration of all supported ones is checked; `insecure`, `tls`, and the [`CredentialTypes`] of the application |
//! | `xds_servers[].channel_creds[].config` of `tls` | object | `ca_certificate_file`, `certificate_file` and `private_key_file` (both or none, in one directory), `spiffe_trust_bundle_map_file` (A87), `refresh_interval` (`"600s"` by default); none: the system's roots (A65) |
//! | `xds_servers[].call_creds` | list of `{type, config}` | all entries of a supported type are used: `jwt_token_file`, with the path in its `config.jwt_token_file` (A97), and those of the application |
//! | `xds_servers[].initial_metadata` | list of `{key, value}` or `{key, raw_value}` | an extension, as in Envoy's `GrpcService`: the metadata of each call to the server, of REST too, such as a token. `raw_value` is base64, for keys that end with `-bin`. At most 64 entries and 16 KiB; values are in no log or error |
//! | `xds_servers[].server_features` | list | `ignore_resource_deletion` (A53), `trusted_xds_server` (A81), `fail_on_data_errors`, `resource_timer_is_transient_error` (A88); other entries, whatever their type, are ignored |
//! | `xds_servers[].api_type` | string | an extension: the variant of the protocol, as in Envoy's `ApiConfigSource`: `AGGREGATED_GRPC`, `AGGREGATED_DELTA_GRPC`, `GRPC` and `DELTA_GRPC` (a stream for each type), `REST` |
//! | `xds_servers[].refresh_delay` | duration such as `"5s"`, required for `REST` | an extension: the minimum time between two polls, at least 1 ms; a random delay of up to the same time is added |
//! | `xds_servers[].request_timeout` | duration, `"1s"` by default | an extension: the timeout of the response to a poll |
//! | `xds_servers[].transport_api_version` | `V3` (the default), `AUTO` or `V2` | an extension: the version of the methods and type URLs that the server supports |
//! | `type_sources` | map of lists | an extension: the sources of single types, by their names such as `envoy.config.cluster.v3.Cluster`, in place of `xds_servers`; each is like an entry of these, or a file |
//! | `type_sources[][].path_config_source` | object | a file in the format of its extension: `path`, and `watched_directory` with `path` and `watch_modify`, if only moves into that directory count as changes; see [`PathSource`](crate::config::PathSource). `server_features` is on the same level |
//! | `default_authority` | object | an extension: as an entry of `authorities`, for all other authorities (X11) |
//! | `named_servers` | map | an extension: servers, as in `xds_servers`, by their names in config sources of resources |
//! | `node` | object | `id`, `cluster`: strings; `locality`: `region`, `zone`, `sub_zone`; `metadata`: any object |
//! | `certificate_providers` | map of `{plugin_name, config}` | sources of certificates by the names that resources use (A29); unknown plugins are kept, for [those that an application registers](crate::resource::Registry::with_certificate_provider) |
//! | `certificate_providers[].config` of `file_watcher` | object | as of `tls`, but with at least one file |
//! | `client_default_listener_resource_name_template` | string | the template of listener names for targets without authority; `%s` by default (A47) |
//! | `server_listener_resource_name_template` | string | the template of listener names for the addresses of servers (A36); no default |
//! | `authorities` | map | authorities of `xdstp:` names; the key may be empty (A47) |
//! | `authorities[].xds_servers`, `authorities[].type_sources` | list, map | as above; both empty or absent: those of the top level |
//! | `authorities[].client_listener_resource_name_template` | string | must start with `xdstp://<authority>/`; by default `xdstp://<authority>/envoy.config.listener.v3.Listener/%s` |
//! | `authorities[].fallback_on_reachability_only` | boolean | fall back only when a server is unreachable (A95) |
//! | `allowed_grpc_services` | map of `{channel_creds, call_creds}` | the gRPC services that resources may name, by target (A102) |
//!
//! Templates and file names that are empty strings count as absent.
//!
//! # Envoy's format
//!
//! [`Bootstrap::from_envoy_file`], [`Bootstrap::from_envoy_text`] and [`Bootstrap::from_file`], which detects the
//! format, read the sources of resources from Envoy's bootstrap, in YAML (feature `json`) or JSON, with names in
//! either spelling.
//!
//! ```
//! use xdskit::config::{ApiType, Bootstrap};
//!
//! let bootstrap = Bootstrap::from_envoy_text(
//!     r#"{
//!         "node": { "id": "shop-7f9c", "cluster": "shop" },
//!         "dynamic_resources": { "ads_config": {
//!             "api_type": "DELTA_GRPC",
//!             "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }]
//!         } },
//!         "static_resources": { "clusters": [{
//!             "name": "xds",
//!             "type": "STRICT_DNS",
//!             "load_assignment": { "cluster_name": "xds", "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": {
//!                 "socket_address": { "address": "xds.example.com", "port_value": 18000 }
//!             } } }] }] }
//!         }] },
//!         "admin": {}
//!     }"#,
//! )?;
//! let server = bootstrap.servers().next().expect("there is one");
//! assert_eq!(server.uri.as_str(), "xds.example.com:18000");
//! assert_eq!(server.api_type, Some(ApiType::AggregatedDeltaGrpc));
//! assert_eq!(bootstrap.warnings()[0].to_string(), "admin: not used");
//! # Ok::<(), xdskit::bootstrap::BootstrapError>(())
//! ```
//!
//! Nothing is ignored silently. An unsupported setting that would change what a client trusts, sends or receives, such as
//! credentials or validation, is an error; a setting without a meaning for a client, or for this one, and a wish about connecting, such
//! as retries and timeouts, is a [warning](Bootstrap::warnings), which is logged, too.
//!
//! | field | meaning |
//! |---|---|
//! | `node` | `id`, `cluster`, `locality`, `metadata`; the user agent is the library's own |
//! | `node_context_params` | parts of the node that are added to the names of collections (rule X7); `metadata` is all of it |
//! | `dynamic_resources.ads_config` | the sources of all types without sources of their own: an aggregated stream, state of the world (`GRPC`) or incremental (`DELTA_GRPC`) |
//! | `dynamic_resources.lds_config`, `.cds_config` | a source of listeners or clusters; for its `authorities` it takes precedence for the type |
//! | `dynamic_resources.lds_resources_locator`, `.cds_resources_locator` | the collection that replaces the [wildcard](crate::config::Bootstrap::collection_of) of the type, by its `xdstp://` URL, whose authority must have a source, or a file (`file:///path`) |
//! | `config_sources[]` | sources of the `authorities` that they name; the first one for an authority is used (rule X11) |
//! | `default_config_source` | the source of all other authorities |
//! | a `ConfigSource` | one of `api_config_source`, `path_config_source` or `path`, and `ads` or `self`, which are the sources of `ads_config` |
//! | `api_config_source` | `api_type`: `GRPC` and `DELTA_GRPC` (a stream for the type alone), `AGGREGATED_GRPC`, `AGGREGATED_DELTA_GRPC`, `REST`; `transport_api_version`; `grpc_services`, or for REST `cluster_names`, `refresh_delay` (required) and `request_timeout`. Later services are fallbacks for earlier ones, as in `xds_servers` |
//! | `grpc_services[]` | `envoy_grpc` with `cluster_name` and `authority`, which is the host and port of the server by default; or `google_grpc` with `target_uri` and `channel_credentials`: `ssl_credentials` by files, or `google_default`, in plain text without. `google_default` and each of `call_credentials`, such as `google_compute_engine`, are [credentials of the application](crate::config::CustomCredentials) with that name as their type. `initial_metadata` is sent with each call; values have no commands (`%...%`) |
//! | `static_resources.clusters[]` | read if a source names them; the others are servers that [resources may name](Bootstrap::named_servers), if they are valid as such, and ignored otherwise |
//! | … `type` | `STATIC`, `STRICT_DNS`, `LOGICAL_DNS` |
//! | … `load_assignment` | `socket_address` or `pipe`. Addresses of one family are tried in turn; host names are separate servers in fallback order, by `priority` |
//! | … `transport_socket` | `UpstreamTlsContext` by files: `trusted_ca` (the system's roots by default), one of `tls_certificates`, `sni`. The certificate of the server must be valid for the name in `sni`, for the only name in `match_typed_subject_alt_names`, which then is sent as `sni`, or for its host, which is stricter than Envoy's default |
//! | … `tls_certificate_sds_secret_configs`, `validation_context_sds_secret_config`, `combined_validation_context` | secrets by SDS from a file (`path_config_source`), JSON or YAML of 1 MiB at most, in which the data are names of files. It is read with the bootstrap, the files in it for each connection |
//! | … `typed_extension_protocol_options` | `connection_keepalive` of HTTP/2 |

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tracing::warn;

use crate::config::{Bootstrap, CredentialTypes};

mod document;
mod envoy;
mod error;
mod metadata;
mod reader;

pub use self::error::{BootstrapError, Origin};

impl Bootstrap {
    /// Reads a bootstrap in gRPC's format; see [`bootstrap`](crate::bootstrap).
    ///
    /// # Errors
    ///
    /// The text is not JSON, with line and column, or has errors, each with its path.
    pub fn from_json(text: &str) -> Result<Self, BootstrapError> {
        Self::from_json_with(text, &CredentialTypes::default())
    }

    /// Like [`from_json`](Self::from_json), for a bootstrap with further types of credentials, which the application
    /// implements.
    ///
    /// # Errors
    ///
    /// Those of [`from_json`](Self::from_json).
    pub fn from_json_with(text: &str, types: &CredentialTypes) -> Result<Self, BootstrapError> {
        Self::parse(text, Origin::Text, Dialect::Grpc, false, types)
    }

    /// Reads a bootstrap in [Envoy's format](crate::bootstrap#envoys-format): JSON if the text begins with `{`, and otherwise
    /// YAML, which needs the feature `json`.
    ///
    /// # Errors
    ///
    /// The text is neither, with line and column, or has errors, each with its path. Ignored parts of it are not
    /// errors, but [`warnings`](Self::warnings).
    pub fn from_envoy_text(text: &str) -> Result<Self, BootstrapError> {
        let is_yaml = !text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
        Self::parse(text, Origin::Text, Dialect::Envoy, is_yaml, &CredentialTypes::default())
    }

    /// Reads a bootstrap from a file in [Envoy's format](crate::bootstrap#envoys-format): YAML by the extensions `.yaml`
    /// and `.yml`, otherwise JSON. It blocks while the file is read.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or one of the errors of [`from_envoy_text`](Self::from_envoy_text).
    pub fn from_envoy_file(path: impl AsRef<Path>) -> Result<Self, BootstrapError> {
        Self::read_file(path.as_ref(), None, Dialect::Envoy, &CredentialTypes::default())
    }

    /// Reads a bootstrap from a file in gRPC's or Envoy's format. The fields `dynamic_resources`, `static_resources`,
    /// `config_sources` and `default_config_source` identify Envoy's. The file is YAML by the extensions `.yaml` and `.yml`
    /// (with the feature `json`), otherwise JSON. It blocks while the file is read.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or one of the errors of [`from_json`](Self::from_json) or
    /// [`from_envoy_text`](Self::from_envoy_text).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, BootstrapError> {
        Self::from_file_with(path, &CredentialTypes::default())
    }

    /// Like [`from_file`](Self::from_file), for a bootstrap with further types of credentials, which the application
    /// implements. Envoy's format has those of `google_grpc`, whether they are among the types or not.
    ///
    /// # Errors
    ///
    /// Those of [`from_file`](Self::from_file).
    pub fn from_file_with(path: impl AsRef<Path>, types: &CredentialTypes) -> Result<Self, BootstrapError> {
        Self::read_file(path.as_ref(), None, Dialect::Either, types)
    }

    /// Reads the bootstrap from the environment: the file in `GRPC_XDS_BOOTSTRAP`, or else the JSON in
    /// `GRPC_XDS_BOOTSTRAP_CONFIG`. An empty variable is treated as unset.
    ///
    /// # Errors
    ///
    /// Neither variable is set, or one of the errors of [`from_file`](Self::from_file).
    pub fn from_env() -> Result<Self, BootstrapError> {
        Self::from_env_with(&CredentialTypes::default())
    }

    /// Like [`from_env`](Self::from_env), for a bootstrap with further types of credentials, which the application
    /// implements.
    ///
    /// # Errors
    ///
    /// Those of [`from_env`](Self::from_env).
    pub fn from_env_with(types: &CredentialTypes) -> Result<Self, BootstrapError> {
        Self::from_variables(|name| env::var_os(name), types)
    }

    /// Takes the environment as an argument, so that tests need not change that of the process.
    fn from_variables(
        lookup: impl Fn(&str) -> Option<OsString>,
        types: &CredentialTypes,
    ) -> Result<Self, BootstrapError> {
        let set = |name| lookup(name).filter(|value| !value.is_empty());
        // A27-6: the file takes precedence even if it cannot be read, since the text may name other servers.
        if let Some(path) = set(FILE_VARIABLE) {
            return Self::read_file(&PathBuf::from(path), Some(FILE_VARIABLE), Dialect::Grpc, types);
        }
        let Some(text) = set(TEXT_VARIABLE) else { return Err(BootstrapError::unset()) };
        let origin = Origin::Variable(TEXT_VARIABLE);
        // In gRPC's format alone: other gRPC clients of the process read the same variables.
        match text.to_str() {
            Some(text) => Self::parse(text, origin, Dialect::Grpc, false, types),
            None => Err(BootstrapError::unreadable(origin, NOT_UTF8)),
        }
    }

    /// Reads a file; `variable` is the environment variable that names it.
    fn read_file(
        path: &Path,
        variable: Option<&'static str>,
        dialect: Dialect,
        types: &CredentialTypes,
    ) -> Result<Self, BootstrapError> {
        let origin = Origin::File { path: path.to_owned(), variable };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => return Err(BootstrapError::unreadable(origin, error.to_string())),
        };
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        let is_yaml = matches!(extension.as_deref(), Some("yaml" | "yml"));
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&text, origin, dialect, is_yaml, types),
            Err(_) => Err(BootstrapError::unreadable(origin, NOT_UTF8)),
        }
    }

    /// Reads a text in a dialect.
    fn parse(
        text: &str,
        origin: Origin,
        dialect: Dialect,
        is_yaml: bool,
        types: &CredentialTypes,
    ) -> Result<Self, BootstrapError> {
        // The mark that some editors write before a text in UTF-8.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.trim().is_empty() {
            return Err(BootstrapError::unreadable(origin, "it is empty"));
        }
        let document = if is_yaml { yaml(text, &origin) } else { json(text, &origin) }?;
        let is_envoys = match dialect {
            Dialect::Grpc => false,
            Dialect::Envoy => true,
            Dialect::Either => envoy::is_envoys(&document),
        };
        let read = if is_envoys { envoy::read(&document) } else { document::read(&document, types) };
        let bootstrap = read.map_err(|problems| match is_envoys {
            true => BootstrapError::invalid_for_envoy(origin.clone(), problems),
            false => BootstrapError::invalid(origin.clone(), problems),
        })?;
        for warning in bootstrap.warnings() {
            warn!(%origin, path = warning.path(), reason = warning.reason(), "bootstrap field ignored");
        }
        Ok(bootstrap)
    }
}

/// The expected format of a document.
#[derive(Debug, Clone, Copy)]
enum Dialect {
    /// The form that gRPC defines.
    Grpc,
    /// The form that Envoy defines.
    Envoy,
    /// Detected by its fields.
    Either,
}

/// Parses JSON.
fn json(text: &str, origin: &Origin) -> Result<Value, BootstrapError> {
    serde_json::from_str(text).map_err(|error| BootstrapError::syntax(origin.clone(), &error))
}

/// Parses YAML.
#[cfg(feature = "json")]
fn yaml(text: &str, origin: &Origin) -> Result<Value, BootstrapError> {
    crate::format::read_yaml(text).map_err(|error| BootstrapError::yaml(origin.clone(), &error))
}

/// Rejects YAML in a build without the parser.
#[cfg(not(feature = "json"))]
fn yaml(_: &str, origin: &Origin) -> Result<Value, BootstrapError> {
    Err(BootstrapError::unreadable(
        origin.clone(),
        "it is YAML, and this build of xdskit lacks the feature `json`",
    ))
}

/// The variable with the path of a bootstrap file.
const FILE_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP";

/// The variable with a bootstrap.
const TEXT_VARIABLE: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

/// The reason for a file or variable that is not text.
const NOT_UTF8: &str = "it is not UTF-8";

#[cfg(test)]
mod tests;
