//! Config sources that resources name for other resources.

use std::{cmp::Ordering, hash, sync::Arc};

use bytes::Bytes;
use prost::Message;

use super::{Context, Invalid, parts};
use crate::{
    config::{
        ApiType, ConfigSource, NamedServers, PathSource, Polling, Server, ServerUri, TransportApiVersion,
    },
    pb::envoy::config::core::v3::{
        self as pb, api_config_source::ApiType as WrittenType, config_source::ConfigSourceSpecifier,
        grpc_service::TargetSpecifier,
    },
    wire::{self, Fields},
};

/// A source that a resource names for another resource: one other than `ads` and `self`, or one of these with authorities, which
/// are then those of the server that sent the resource.
///
/// Others than `ads` and `self` are only accepted from a server if the client follows config sources
/// (`ClientBuilder::follow_config_sources`).
///
/// Equality and order are those of the encoded message.
#[derive(Debug, Clone)]
pub struct ResourceConfigSource {
    /// The source as it was sent; equal ones have equal bytes.
    written: Bytes,
    /// The servers or the file.
    sources: Box<[ConfigSource]>,
    /// The authorities of names that the source is for.
    authorities: Box<[Box<str>]>,
    /// Whether the source is the server that sent the resource (`self`). Names of the older form belong to that server anyway.
    is_peer: bool,
}

impl ResourceConfigSource {
    /// Returns the sources in the order in which they are tried; never empty.
    pub fn sources(&self) -> &[ConfigSource] {
        &self.sources
    }

    /// Returns whether names of this authority are in the source's scope. Names of the older form have no
    /// authority, and are in the scope of all but `ads` and `self`.
    pub fn is_for(&self, authority: Option<&str>) -> bool {
        authority.map_or(!self.is_peer, |authority| self.authorities.iter().any(|own| **own == *authority))
    }

    /// Reads a `ConfigSource`; `None` for `ads` and `self` without authorities, the default sources of names (L7, C1).
    pub(super) fn parse(
        source: Option<&pb::ConfigSource>,
        cx: &Context<'_>,
    ) -> Result<Option<Arc<Self>>, Invalid> {
        let unset = || Invalid::new("must be ads or self, is not set");
        let source = source.ok_or_else(unset)?;
        let specifier = source.config_source_specifier.as_ref().ok_or_else(unset)?;
        let named = match (specifier, cx.named_servers) {
            (ConfigSourceSpecifier::Ads(_) | ConfigSourceSpecifier::Self_(_), _) => {
                return Self::of_peer(source, cx);
            }
            (_, None) => return Err(Invalid::new("only the sources ads and self are supported")),
            (_, Some(named)) => named,
        };
        let sources = match specifier {
            ConfigSourceSpecifier::Path(path) => file(path, None, cx)?,
            ConfigSourceSpecifier::PathConfigSource(from) => {
                let found = file(&from.path, from.watched_directory.as_ref(), cx);
                found.map_err(|e| e.at("path_config_source"))?
            }
            ConfigSourceSpecifier::ApiConfigSource(from) => {
                let sources = servers(from, named, cx).map_err(|e| e.at("api_config_source"))?;
                check_version(source, sources.first())?;
                sources
            }
            // Returned above.
            ConfigSourceSpecifier::Ads(_) | ConfigSourceSpecifier::Self_(_) => return Ok(None),
        };
        let written = source.encode_to_vec().into();
        Ok(Some(Arc::new(Self { written, sources, authorities: authorities(source), is_peer: false })))
    }

    /// `ads` or `self`: with authorities, the server that sent the resource is the source of their names (X11).
    fn of_peer(source: &pb::ConfigSource, cx: &Context<'_>) -> Result<Option<Arc<Self>>, Invalid> {
        check_version(source, cx.peer)?;
        let Some(peer) = cx.peer.filter(|_| !source.authorities.is_empty()) else { return Ok(None) };
        let mut written = source.encode_to_vec();
        // With the sender: the same message from two servers means two sources.
        written.extend_from_slice(peer.to_string().as_bytes());
        let (sources, authorities) = ([peer.clone()].into(), authorities(source));
        Ok(Some(Arc::new(Self { written: written.into(), sources, authorities, is_peer: true })))
    }
}

impl PartialEq for ResourceConfigSource {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl Eq for ResourceConfigSource {}

impl PartialOrd for ResourceConfigSource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceConfigSource {
    fn cmp(&self, other: &Self) -> Ordering {
        self.written.cmp(&other.written)
    }
}

impl hash::Hash for ResourceConfigSource {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.written.hash(state);
    }
}

/// Accepts only the config sources on the stream of the referring resource: `ads` and `self`.
pub(super) fn same_stream(source: Option<&pb::ConfigSource>, cx: &Context<'_>) -> Result<(), Invalid> {
    // Without named servers, all other sources are errors, even if the client follows them elsewhere.
    ResourceConfigSource::parse(source, &Context { named_servers: None, ..*cx }).map(drop)
}

/// Reads a config source; the outer error is that of bytes that are not a `ConfigSource`.
#[allow(clippy::type_complexity, reason = "the first is of the bytes, the second of their content")]
pub(super) fn read_source(
    bytes: Option<&[u8]>,
    cx: &Context<'_>,
) -> Result<Result<Option<Arc<ResourceConfigSource>>, Invalid>, Invalid> {
    let Some(bytes) = bytes else { return Ok(ResourceConfigSource::parse(None, cx)) };
    // The source of most clusters is recognized without decoding it; everything else is left to the decoder.
    let (mut sources, mut others) = (0, 0);
    for field in Fields::of(bytes) {
        let field = field?;
        match (field.number, field.value) {
            // Empty `ads` and `self`; the version is that of most servers.
            (3 | 5, wire::Value::Bytes([])) => sources += 1,
            (6, wire::Value::Varint(V3)) if !cx.is_peer_of_v2() => {}
            _ => others += 1,
        }
    }
    if (sources, others) == (1, 0) {
        return Ok(Ok(None));
    }
    Ok(ResourceConfigSource::parse(Some(&pb::ConfigSource::decode(bytes)?), cx))
}

/// The authorities of a source.
fn authorities(source: &pb::ConfigSource) -> Box<[Box<str>]> {
    source.authorities.iter().map(|authority| authority.name.as_str().into()).collect()
}

/// The version of resources is that of the protocol that they are sent by. Without a server it is v3.
fn check_version(source: &pb::ConfigSource, sender: Option<&ConfigSource>) -> Result<(), Invalid> {
    let sent = match sender {
        Some(ConfigSource::Server(server)) => server.transport_api_version,
        Some(ConfigSource::Path(_)) | None => TransportApiVersion::V3,
    };
    let reason = match (pb::ApiVersion::try_from(source.resource_api_version), sent) {
        (Ok(pb::ApiVersion::Auto), _)
        | (Ok(pb::ApiVersion::V2), TransportApiVersion::V2)
        | (Ok(pb::ApiVersion::V3), TransportApiVersion::V3) => return Ok(()),
        (Ok(pb::ApiVersion::V2), _) => "is V2, and the resources are sent by v3 of the protocol",
        (Ok(pb::ApiVersion::V3), _) => "is V3, and the resources are sent by v2 of the protocol",
        (Err(_), _) => "is no known version",
    };
    Err(Invalid::field("resource_api_version", reason))
}

/// A file as a source.
fn file(
    path: &str,
    directory: Option<&pb::WatchedDirectory>,
    cx: &Context<'_>,
) -> Result<Box<[ConfigSource]>, Invalid> {
    let mut file = PathSource::new(path);
    if let Some(directory) = directory {
        file = file.with_watched_directory(&directory.path);
    }
    file.check().map_err(|(field, reason)| Invalid::field(field, reason))?;
    // Servers must not choose among all files of the machine.
    if let Some(root) = cx.file_root {
        file = file.within(root).map_err(|field| {
            let root = root.display();
            Invalid::field(field, format!("is outside of {root} (setting config_source_root)"))
        })?;
    }
    Ok([ConfigSource::Path(Arc::new(file))].into())
}

/// The servers of an `ApiConfigSource`, in fallback order.
fn servers(
    from: &pb::ApiConfigSource,
    named: &NamedServers,
    cx: &Context<'_>,
) -> Result<Box<[ConfigSource]>, Invalid> {
    let api_type = api_type(from.api_type)?;
    let polling = (api_type == ApiType::Rest).then(|| polling(from)).transpose()?;
    let version = match pb::ApiVersion::try_from(from.transport_api_version) {
        Ok(pb::ApiVersion::Auto | pb::ApiVersion::V3) => TransportApiVersion::V3,
        Ok(pb::ApiVersion::V2) => TransportApiVersion::V2,
        Err(_) => return Err(Invalid::field("transport_api_version", "unknown")),
    };
    let found = match api_type {
        ApiType::Rest => {
            parts::each("cluster_names", from.cluster_names.clone(), |name| by_name(named, &name))?
        }
        ApiType::Grpc | ApiType::DeltaGrpc | ApiType::AggregatedGrpc | ApiType::AggregatedDeltaGrpc => {
            parts::each("grpc_services", from.grpc_services.clone(), |service| {
                by_service(&service, named, cx)
            })?
        }
    };
    if found.is_empty() {
        let field = if polling.is_some() { "cluster_names" } else { "grpc_services" };
        return Err(Invalid::field(field, "must have at least one entry"));
    }
    let source = |server: &Server| {
        let server =
            Server { api_type: Some(api_type), polling, transport_api_version: version, ..server.clone() };
        ConfigSource::Server(Arc::new(server))
    };
    Ok(found.iter().map(source).collect())
}

/// The transport and the variant of the protocol.
fn api_type(written: i32) -> Result<ApiType, Invalid> {
    match WrittenType::try_from(written) {
        Ok(WrittenType::Rest) => Ok(ApiType::Rest),
        Ok(WrittenType::Grpc) => Ok(ApiType::Grpc),
        Ok(WrittenType::DeltaGrpc) => Ok(ApiType::DeltaGrpc),
        Ok(WrittenType::AggregatedGrpc) => Ok(ApiType::AggregatedGrpc),
        Ok(WrittenType::AggregatedDeltaGrpc) => Ok(ApiType::AggregatedDeltaGrpc),
        Ok(WrittenType::DeprecatedAndUnavailableDoNotUse) | Err(_) => {
            Err(Invalid::field("api_type", format!("{written} is not an API type")))
        }
    }
}

/// Rule D12.
fn polling(from: &pb::ApiConfigSource) -> Result<Polling, Invalid> {
    let delay = from.refresh_delay.as_ref().ok_or_else(|| Invalid::field("refresh_delay", "must be set"))?;
    let polling = Polling::every(parts::positive(delay).map_err(|e| e.at("refresh_delay"))?);
    match &from.request_timeout {
        Some(timeout) => {
            Ok(polling.with_request_timeout(parts::positive(timeout).map_err(|e| e.at("request_timeout"))?))
        }
        None => Ok(polling),
    }
}

/// A server of the bootstrap.
fn by_name(named: &NamedServers, name: &str) -> Result<Server, Invalid> {
    match named.get(name) {
        Some(server) => Ok(Server::clone(server)),
        None => Err(Invalid::new(format!("{name:?} is not among the bootstrap's named_servers"))),
    }
}

/// A server by its name, or one of the bootstrap's allowed gRPC services by its target (A102).
fn by_service(service: &pb::GrpcService, named: &NamedServers, cx: &Context<'_>) -> Result<Server, Invalid> {
    let google = match &service.target_specifier {
        Some(TargetSpecifier::EnvoyGrpc(envoy)) => {
            return by_name(named, &envoy.cluster_name).map_err(|e| e.at("cluster_name").at("envoy_grpc"));
        }
        Some(TargetSpecifier::GoogleGrpc(google)) => google,
        None => return Err(Invalid::new("neither envoy_grpc nor google_grpc is set")),
    };
    let at = |reason: String| Invalid::field("google_grpc.target_uri", reason);
    let target = &google.target_uri;
    // A resource must not choose the server to which credentials are sent.
    let allowed = cx.allowed_grpc_services.and_then(|all| all.get(target));
    let allowed = allowed
        .ok_or_else(|| at(format!("{target:?} is not among the bootstrap's allowed_grpc_services")))?;
    let uri: ServerUri = target.parse().map_err(|error| at(format!("{error}")))?;
    Server::check_scheme(&uri, &allowed.channel_credentials).map_err(at)?;
    Ok(Server::reached(uri, allowed))
}

/// `ApiVersion.V3`.
const V3: u64 = 2;
