//! What a machine exchanges messages with, and how.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use super::settings::Settings;
use crate::{
    config::{
        ApiType, ConfigSource, PathSource, Polling, Server, ServerFeatures, TransportApiVersion, bounded,
    },
    resource::services::Service,
};

/// A source, and how it is fetched. There is one [`Machine`](super::Machine) for each.
///
/// An aggregated stream carries all types. Everything else carries one type, so that a source has as many keys as there are
/// requested types. The settings of a server are those that are in use: omitted fields have their defaults.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SourceKey {
    /// One stream for all types (ADS).
    AggregatedStream { server: Arc<Server>, variant: StreamVariant, method: &'static str },
    /// A stream for one type.
    TypeStream { server: Arc<Server>, variant: StreamVariant, method: &'static str, type_url: &'static str },
    /// Polls for one type.
    Rest { server: Arc<Server>, path: Arc<str>, polling: Polling, type_url: &'static str },
    /// A file with the resources of one type. The file system reports its changes.
    File { file: Arc<PathSource>, type_url: &'static str },
}

/// The variant of the protocol on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamVariant {
    /// Each request has all names, each response all resources of types of which absence means deletion.
    StateOfTheWorld,
    /// Requests and responses have changes (delta xDS).
    Incremental,
}

/// What the rules of the protocol depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capabilities {
    /// Messages are those of the incremental variant.
    pub(crate) incremental: bool,
    /// Messages belong to a stream, on which responses are acknowledged. Elsewhere each request is an exchange of its own.
    pub(crate) streaming: bool,
    /// There is a management server, which can be unreachable or silent, and may not know a resource yet. Without one, a
    /// response is complete: a missing resource does not exist.
    pub(crate) remote: bool,
    /// The schedule of requests that the client repeats by itself.
    pub(crate) polling: Option<Polling>,
    /// The one type that is carried; `None` for all types.
    pub(crate) type_url: Option<&'static str>,
}

/// The destination of a transport.
#[derive(Debug, Clone)]
pub(crate) enum ConnectTarget {
    Server {
        server: Arc<Server>,
        api_type: ApiType,
        /// The method of gRPC, or the path of REST.
        path: Cow<'static, str>,
        polling: Option<Polling>,
    },
    File {
        file: Arc<PathSource>,
        type_url: &'static str,
    },
}

impl SourceKey {
    /// The key of a source for a type; the text of an error if the source cannot have the type.
    pub(crate) fn new(
        source: &ConfigSource,
        type_url: &'static str,
        settings: &Settings,
    ) -> Result<Self, String> {
        match source {
            ConfigSource::Path(file) => Ok(Self::File { file: file.clone(), type_url }),
            ConfigSource::Server(server) => Self::of_server(server, type_url, settings),
        }
    }

    /// The key of a management server. Without an API type of its own it has that of the settings.
    fn of_server(server: &Arc<Server>, type_url: &'static str, settings: &Settings) -> Result<Self, String> {
        let api_type = server.api_type.unwrap_or(settings.api_type);
        let cannot = |why| format!("api_type {api_type} of xDS server {} does not fit: {why}", server.uri);
        let api_version = server.transport_api_version;
        let variant = match api_type.is_delta() {
            true => StreamVariant::Incremental,
            false => StreamVariant::StateOfTheWorld,
        };
        // The type need not be known here: whether an aggregated stream serves it is up to the server.
        if api_type.is_aggregated() {
            let method = api_version.ads().of_variant(api_type.is_delta());
            let method = method.ok_or_else(|| cannot("there is no such method"))?;
            return Ok(Self::AggregatedStream { server: with(server, api_type, None), variant, method });
        }
        let service = Service::of(type_url).ok_or_else(|| cannot("the type has no service of its own"))?;
        let spelling = service.spelling(api_version).ok_or_else(|| cannot("the type is not in V2"))?;
        if api_type == ApiType::Rest {
            let path = service.rest.ok_or_else(|| cannot("the type cannot be had over REST"))?;
            let path = format!("{}{path}", api_version.rest_prefix()).into();
            let polling = server.polling.unwrap_or(settings.polling).bounded();
            return Ok(Self::Rest { server: with(server, api_type, Some(polling)), path, polling, type_url });
        }
        let method = spelling.methods.of_variant(api_type.is_delta());
        let method = method.ok_or_else(|| cannot("the type is in the incremental variant alone"))?;
        Ok(Self::TypeStream { server: with(server, api_type, None), variant, method, type_url })
    }

    /// What the protocol can rely on with the source.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let of_stream = |variant: StreamVariant, type_url| Capabilities {
            incremental: variant == StreamVariant::Incremental,
            streaming: true,
            remote: true,
            polling: None,
            type_url,
        };
        match self {
            Self::AggregatedStream { variant, .. } => of_stream(*variant, None),
            Self::TypeStream { variant, type_url, .. } => of_stream(*variant, Some(type_url)),
            Self::Rest { polling, type_url, .. } => Capabilities {
                incremental: false,
                streaming: false,
                remote: true,
                polling: Some(*polling),
                type_url: Some(type_url),
            },
            Self::File { type_url, .. } => Capabilities {
                incremental: false,
                streaming: false,
                remote: false,
                polling: None,
                type_url: Some(type_url),
            },
        }
    }

    pub(crate) fn source(&self) -> ConfigSource {
        match self.server() {
            Ok(server) => ConfigSource::Server(server.clone()),
            Err(file) => ConfigSource::Path(file.clone()),
        }
    }

    /// The features that the bootstrap lists for the server, or for a file.
    pub(crate) fn features(&self) -> ServerFeatures {
        match self.server() {
            Ok(server) => server.features,
            Err(file) => file.features,
        }
    }

    /// The path of the polls, for logs and errors.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Rest { path, .. } => Some(path),
            Self::AggregatedStream { .. } | Self::TypeStream { .. } | Self::File { .. } => None,
        }
    }

    /// The interval of the keepalive pings, if the server has one of its own.
    /// Files and polls have none.
    pub(crate) fn keepalive(&self) -> Option<Duration> {
        self.server().ok()?.keep_alive.map(|own| bounded(own.interval))
    }

    /// The version of the API, which decides how type URLs are spelled.
    pub(crate) fn api_version(&self) -> TransportApiVersion {
        self.server().map_or(TransportApiVersion::V3, |server| server.transport_api_version)
    }

    /// What the transport needs to connect.
    pub(crate) fn connect_target(&self) -> ConnectTarget {
        let stream = |server: &Arc<Server>, api_type, method| ConnectTarget::Server {
            server: server.clone(),
            api_type,
            path: Cow::Borrowed(method),
            polling: None,
        };
        match self {
            Self::AggregatedStream { server, variant, method } => {
                let api_type = match variant {
                    StreamVariant::StateOfTheWorld => ApiType::AggregatedGrpc,
                    StreamVariant::Incremental => ApiType::AggregatedDeltaGrpc,
                };
                stream(server, api_type, *method)
            }
            Self::TypeStream { server, variant, method, .. } => {
                let api_type = match variant {
                    StreamVariant::StateOfTheWorld => ApiType::Grpc,
                    StreamVariant::Incremental => ApiType::DeltaGrpc,
                };
                stream(server, api_type, *method)
            }
            Self::Rest { server, path, polling, .. } => ConnectTarget::Server {
                server: server.clone(),
                api_type: ApiType::Rest,
                path: Cow::Owned(path.to_string()),
                polling: Some(*polling),
            },
            Self::File { file, type_url } => ConnectTarget::File { file: file.clone(), type_url },
        }
    }

    /// The server, if it has streams.
    pub(crate) fn stream_server(&self) -> Option<&Arc<Server>> {
        match self {
            Self::AggregatedStream { server, .. } | Self::TypeStream { server, .. } => Some(server),
            Self::Rest { .. } | Self::File { .. } => None,
        }
    }

    /// The management server, or the file in place of one.
    fn server(&self) -> Result<&Arc<Server>, &Arc<PathSource>> {
        match self {
            Self::AggregatedStream { server, .. }
            | Self::TypeStream { server, .. }
            | Self::Rest { server, .. } => Ok(server),
            Self::File { file, .. } => Err(file),
        }
    }
}

/// The server's URI, or the file's path.
impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source().fmt(f)
    }
}

/// The server with the settings in use, so that omitted fields are equal to their defaults.
fn with(server: &Arc<Server>, api_type: ApiType, polling: Option<Polling>) -> Arc<Server> {
    // The common case of a complete entry keeps the shared allocation.
    if (server.api_type, server.polling) == (Some(api_type), polling) {
        return server.clone();
    }
    Arc::new(Server { api_type: Some(api_type), polling, ..Server::clone(server) })
}
