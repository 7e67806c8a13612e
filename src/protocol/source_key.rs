use std::{borrow::Cow, sync::Arc, time::Duration};

use super::settings::Settings;
use crate::{
    config::{
        ApiType, ConfigSource, PathSource, Polling, Server, ServerFeatures, TransportApiVersion, bounded,
    },
    resource::services::Service,
};

/// The server of a [`Machine`](super::Machine), and the fetch mode.
///
/// Over an aggregated stream all types are requested; every other mode is for one type alone, so that a source has as
/// many keys as requested types.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SourceKey {
    source: ConfigSource,
    manner: FetchMode,
    /// The one type, unless all share it.
    only: Option<&'static str>,
}

/// How a source is fetched.
#[derive(Debug, Clone, PartialEq)]
enum FetchMode {
    Stream {
        api_type: ApiType,
        method: &'static str,
    },
    Poll {
        path: Arc<str>,
        polling: Polling,
    },
    /// Its changes are reported by the file system.
    File,
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
    /// The fetch mode of a source for a type; an error in words if there is none.
    pub(crate) fn new(
        source: &ConfigSource,
        type_url: &'static str,
        settings: &Settings,
    ) -> Result<Self, String> {
        let (manner, only) = match source {
            ConfigSource::Path(_) => (FetchMode::File, Some(type_url)),
            ConfigSource::Server(server) => {
                let api_type = server.api_type.unwrap_or(settings.api_type);
                let manner = manner(server, api_type, type_url, settings)?;
                (manner, (!api_type.is_aggregated()).then_some(type_url))
            }
        };
        Ok(Self { source: said(source, &manner), manner, only })
    }

    pub(crate) fn source(&self) -> &ConfigSource {
        &self.source
    }

    pub(crate) fn features(&self) -> ServerFeatures {
        self.source.features()
    }

    /// Whether the server's variant of the protocol is the incremental one.
    pub(crate) fn is_delta(&self) -> bool {
        match &self.manner {
            FetchMode::Stream { api_type, .. } => api_type.is_delta(),
            FetchMode::Poll { .. } | FetchMode::File => false,
        }
    }

    /// Whether each request is an exchange of its own, without answers to responses.
    pub(crate) fn is_polled(&self) -> bool {
        match self.manner {
            FetchMode::Stream { .. } => false,
            FetchMode::Poll { .. } | FetchMode::File => true,
        }
    }

    /// Whether it is a file, which is always complete.
    pub(crate) fn is_file(&self) -> bool {
        self.manner == FetchMode::File
    }

    /// The polling of the source, where that is needed.
    pub(crate) fn polling(&self) -> Option<Polling> {
        match self.manner {
            FetchMode::Poll { polling, .. } => Some(polling),
            FetchMode::Stream { .. } | FetchMode::File => None,
        }
    }

    /// The path that is polled, where one is.
    pub(crate) fn path(&self) -> Option<&str> {
        match &self.manner {
            FetchMode::Poll { path, .. } => Some(path),
            FetchMode::Stream { .. } | FetchMode::File => None,
        }
    }

    /// The interval of its keepalive pings, where it has one of its own.
    pub(crate) fn keepalive(&self) -> Option<Duration> {
        self.source.server()?.keepalive.map(|own| bounded(own.interval))
    }

    /// The one type that is requested from it, unless all types share it.
    pub(crate) fn only(&self) -> Option<&'static str> {
        self.only
    }

    /// The names of types there.
    pub(crate) fn api_version(&self) -> TransportApiVersion {
        self.source.server().map_or(TransportApiVersion::V3, |server| server.transport_api_version)
    }

    pub(crate) fn place(&self) -> ConnectTarget {
        let (server, api_type, path) = match (&self.source, &self.manner) {
            (ConfigSource::Path(file), _) => {
                let type_url = self.only.expect("a file is asked for one type");
                return ConnectTarget::File { file: file.clone(), type_url };
            }
            (ConfigSource::Server(server), FetchMode::Stream { api_type, method }) => {
                (server, *api_type, Cow::Borrowed(*method))
            }
            (ConfigSource::Server(server), FetchMode::Poll { path, .. }) => {
                (server, ApiType::Rest, Cow::Owned(path.to_string()))
            }
            (ConfigSource::Server(_), FetchMode::File) => unreachable!("only a path is asked as a file"),
        };
        ConnectTarget::Server { server: server.clone(), api_type, path, polling: self.polling() }
    }
}

/// The source as it is fetched: omitted fields are equal to their defaults.
fn said(source: &ConfigSource, manner: &FetchMode) -> ConfigSource {
    let (ConfigSource::Server(server), Some((api_type, polling))) = (source, manner.settings()) else {
        return source.clone();
    };
    if (server.api_type, server.polling) == (Some(api_type), polling) {
        return source.clone();
    }
    ConfigSource::Server(Arc::new(Server { api_type: Some(api_type), polling, ..Server::clone(server) }))
}

impl FetchMode {
    /// The settings that a server's entry in a bootstrap can have.
    fn settings(&self) -> Option<(ApiType, Option<Polling>)> {
        match self {
            Self::Stream { api_type, .. } => Some((*api_type, None)),
            Self::Poll { polling, .. } => Some((ApiType::Rest, Some(*polling))),
            Self::File => None,
        }
    }
}

fn manner(
    server: &Server,
    api_type: ApiType,
    type_url: &'static str,
    settings: &Settings,
) -> Result<FetchMode, String> {
    let api_version = server.transport_api_version;
    let stream = |method| FetchMode::Stream { api_type, method };
    let cannot = |why| format!("api_type {api_type} of xDS server {} does not fit: {why}", server.uri);
    if api_type.is_aggregated() {
        let methods = api_version.ads();
        let method = methods.of_variant(api_type.is_delta());
        return method.map(stream).ok_or_else(|| cannot("there is no such method"));
    }
    let service = Service::of(type_url).ok_or_else(|| cannot("the type has no service of its own"))?;
    let spelling = service.spelling(api_version).ok_or_else(|| cannot("the type is not in V2"))?;
    match api_type {
        ApiType::Rest => {
            let path = service.rest.ok_or_else(|| cannot("the type cannot be had over REST"))?;
            let path = format!("{}{path}", api_version.rest_prefix()).into();
            Ok(FetchMode::Poll { path, polling: server.polling.unwrap_or(settings.polling).bounded() })
        }
        ApiType::Grpc | ApiType::DeltaGrpc | ApiType::AggregatedGrpc | ApiType::AggregatedDeltaGrpc => {
            let method = spelling.methods.of_variant(api_type.is_delta());
            method.map(stream).ok_or_else(|| cannot("the type is in the incremental variant alone"))
        }
    }
}
