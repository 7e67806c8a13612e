//! Services that resources name, for an application to call (A102).

use std::{fmt, time::Duration};

use bytes::Bytes;
use serde::Serialize;

use super::{Context, Invalid, parts};
use crate::pb::{
    envoy::config::core::v3::{self as pb, grpc_service::TargetSpecifier},
    google::protobuf::Any,
};

/// A gRPC service that a resource names.
///
/// Its settings are only accepted from a server that the bootstrap trusts (`trusted_xds_server`). A service that
/// another server names must be among the bootstrap's
/// [`allowed_grpc_services`](crate::Bootstrap::allowed_grpc_services), whose settings apply.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GrpcService {
    /// The target URI of the channel, such as `dns:///authz.example:443`; not empty.
    pub target_uri: Box<str>,
    /// The timeout of a call, more than 0; `None` is no limit. In JSON as seconds: `"1.5s"`.
    #[serde(serialize_with = "parts::serialize_some_seconds")]
    pub timeout: Option<Duration>,
    /// The metadata of each call, from a trusted server alone.
    pub initial_metadata: Box<[MetadataEntry]>,
    /// The credentials of the channel, the first supported one to be used. Empty if the bootstrap configures them.
    pub channel_credentials: Box<[CredentialsPlugin]>,
    /// The call credentials of types that the application supports.
    pub call_credentials: Box<[CredentialsPlugin]>,
}

/// An entry of a call's metadata. The value is excluded from logs and JSON, since it may be secret.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MetadataEntry {
    /// The key, in lower case.
    pub key: Box<str>,
    /// The value; any bytes if the key ends with `-bin`.
    #[serde(skip)]
    pub value: Bytes,
}

/// Credentials of an extension type. The configuration is excluded from logs and JSON, since it may be secret.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CredentialsPlugin {
    /// The full name of the configuration message.
    pub type_name: Box<str>,
    /// The configuration message.
    #[serde(skip)]
    pub config: Bytes,
}

impl GrpcService {
    /// Checks the parts of H11 and H12 that concern a service.
    pub(super) fn parse(message: pb::GrpcService, cx: &Context<'_>) -> Result<Self, Invalid> {
        let google = match message.target_specifier {
            Some(TargetSpecifier::GoogleGrpc(google)) => google,
            Some(TargetSpecifier::EnvoyGrpc(_)) => {
                return Err(Invalid::field("envoy_grpc", "not supported; expected google_grpc"));
            }
            None => return Err(Invalid::field("google_grpc", "must be set")),
        };
        let timeout = message.timeout.as_ref().map(parts::positive).transpose();
        let mut service = Self {
            target_uri: google.target_uri.into(),
            timeout: timeout.map_err(|e| e.at("timeout"))?,
            initial_metadata: Box::default(),
            channel_credentials: Box::default(),
            call_credentials: Box::default(),
        };
        if service.target_uri.is_empty() {
            return Err(Invalid::field("google_grpc.target_uri", "must not be empty"));
        }
        // A102: credentials and metadata from a server without trust are not used; the bootstrap has those of allowed services.
        if !cx.trusted_server {
            service.check_allowed(cx)?;
            return Ok(service);
        }
        if google.channel_credentials_plugin.is_empty() {
            return Err(Invalid::field("google_grpc.channel_credentials_plugin", "must not be empty"));
        }
        service.channel_credentials = plugins(google.channel_credentials_plugin);
        service.call_credentials = plugins(google.call_credentials_plugin);
        service.initial_metadata =
            parts::each("initial_metadata", message.initial_metadata, MetadataEntry::parse)?;
        Ok(service)
    }

    /// Checks that the bootstrap allows the service.
    fn check_allowed(&self, cx: &Context<'_>) -> Result<(), Invalid> {
        if cx.is_grpc_service_allowed(&self.target_uri) {
            return Ok(());
        }
        let reason = format!("{:?} is not among the bootstrap's allowed_grpc_services", self.target_uri);
        Err(Invalid::field("google_grpc.target_uri", reason))
    }
}

impl MetadataEntry {
    /// Parses an entry.
    fn parse(message: pb::HeaderValue) -> Result<Self, Invalid> {
        let pb::HeaderValue { key, value, raw_value } = message;
        let is_key = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
        if key.is_empty() || key.len() > MAX_HEADER || !key.bytes().all(is_key) {
            return Err(Invalid::field("key", "must be a key of metadata, in lower case"));
        }
        // `raw_value` takes precedence if a server sets both, which the definition of the message does not permit.
        let value = if raw_value.is_empty() { Bytes::from(value) } else { raw_value };
        let is_text = value.iter().all(|c| matches!(c, b' '..=b'~'));
        if value.len() > MAX_HEADER || !(is_text || key.ends_with("-bin")) {
            return Err(Invalid::field("value", "must be at most 16384 bytes, of printable ASCII"));
        }
        Ok(Self { key: key.into(), value })
    }
}

impl fmt::Debug for MetadataEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataEntry").field("key", &self.key).finish_non_exhaustive()
    }
}

impl fmt::Debug for CredentialsPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsPlugin").field("type_name", &self.type_name).finish_non_exhaustive()
    }
}

/// Credentials that plugins make.
fn plugins(all: Vec<Any>) -> Box<[CredentialsPlugin]> {
    let plugin = |any: Any| CredentialsPlugin {
        type_name: parts::message_name(&any.type_url).into(),
        config: any.value,
    };
    all.into_iter().map(plugin).collect()
}

/// The maximum length of a key or a value, in bytes (A93).
const MAX_HEADER: usize = 16_384;
