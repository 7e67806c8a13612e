//! Listeners.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Payload, Remarks, Resource, RouteConfiguration,
    config_source::ResourceConfigSource,
    filter_chain::SocketListener,
    http_filter::{self, HttpFilter, Side},
    parts, remarks,
    scope::ScopedRoutes,
    unexecuted, v2,
};
use crate::base::type_url;
use crate::pb::{
    envoy::{
        config::listener::v3 as pb,
        extensions::filters::network::http_connection_manager::v3::{
            self as hcm, http_connection_manager::RouteSpecifier,
        },
    },
    google::protobuf::Any,
};

/// The entry point of requests: the HTTP filters and routes of a client's target, or the filter chains of a server's
/// socket.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Listener {
    /// The name.
    pub name: Arc<str>,
    /// The kind, client or server.
    #[serde(flatten)]
    pub kind: ListenerKind,
    /// What is not used of it.
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
}

/// The kind of a [`Listener`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ListenerKind {
    /// A client's listener: the handling of its requests to a target.
    #[serde(rename = "api_listener")]
    Api(HttpConnectionManager),
    /// A server's listener: the handling of the connections to a socket.
    Socket(SocketListener),
}

/// The handling of HTTP requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HttpConnectionManager {
    /// The source of the routes.
    #[serde(flatten)]
    pub routes: RouteSource,
    /// The HTTP filters, in order; the last is a router.
    pub http_filters: Box<[HttpFilter]>,
    /// The maximum duration of a request, if the route has none; 0 and `None` are no limit. In JSON as
    /// seconds: `"1.5s"`.
    #[serde(serialize_with = "parts::serialize_some_seconds")]
    pub max_stream_duration: Option<Duration>,
}

/// The source of a listener's routes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RouteSource {
    /// RDS: a route configuration that is a resource of its own.
    #[serde(rename = "route_config_name")]
    Rds(RouteConfigRef),
    /// A route configuration in the listener itself.
    #[serde(rename = "route_config")]
    Inline(Arc<RouteConfiguration>),
    /// SRDS: a route configuration chosen by the headers of a request. Only a client's listener can have it.
    #[serde(rename = "scoped_routes")]
    Scoped(Arc<ScopedRoutes>),
}

/// A reference to a route configuration resource. In JSON it is the name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteConfigRef {
    /// The name, not empty.
    pub name: Arc<str>,
    /// The config source, if it is not the server of the listener.
    pub source: Option<Arc<ResourceConfigSource>>,
}

impl Serialize for RouteConfigRef {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

impl Listener {
    /// Returns the handling of a client's requests; `None` for a server's listener.
    pub fn api(&self) -> Option<&HttpConnectionManager> {
        // L22: a watch accepts both kinds, since one type URL serves clients and servers.
        match &self.kind {
            ListenerKind::Api(manager) => Some(manager),
            ListenerKind::Socket(_) => None,
        }
    }
}

impl Resource for Listener {
    const TYPE_URL: &'static str = type_url::LISTENER;
    const COLLECTION_TYPE_URL: Option<&'static str> =
        Some("type.googleapis.com/envoy.config.listener.v3.ListenerCollection");
    const FULL_STATE: bool = true;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let mut message = pb::Listener::decode(bytes.clone())?;
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let name = std::mem::take(&mut message.name).into();
        v2::check_listener(bytes)?;
        let (kind, remarks) = remarks::collect(|| ListenerKind::parse(message, cx))?;
        Ok(Self { name, kind, remarks })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

impl ListenerKind {
    /// Parses what tells listeners of clients and servers apart.
    fn parse(message: pb::Listener, cx: &Context<'_>) -> Result<Self, Invalid> {
        match message.api_listener {
            Some(api) => {
                let any = api.api_listener.unwrap_or_default();
                let manager = HttpConnectionManager::parse(&any, Side::Client, cx);
                Ok(Self::Api(manager.map_err(|e| e.at("api_listener").at("api_listener"))?))
            }
            None if message.address.is_none() => Err(Invalid::new("neither api_listener nor address is set")),
            None => SocketListener::parse(message, cx).map(Self::Socket),
        }
    }
}

impl HttpConnectionManager {
    /// Rules L1 to L20, and S8, S9, S12 and S13 for a server's listener.
    pub(super) fn parse(any: &Any, side: Side, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message: hcm::HttpConnectionManager = match parts::extension(any)? {
            (name, Payload::Message(bytes)) if name == CONNECTION_MANAGER => {
                remarks::scan(&unexecuted::CONNECTION_MANAGER, &bytes);
                Message::decode(bytes)?
            }
            (name, Payload::Message(_) | Payload::Struct(_)) => {
                let reason = format!("expected a message of type {CONNECTION_MANAGER}, not {name:?}");
                return Err(Invalid::new(reason));
            }
        };
        if message.xff_num_trusted_hops != 0 {
            return Err(Invalid::field("xff_num_trusted_hops", "not supported; must be 0"));
        }
        if !message.original_ip_detection_extensions.is_empty() {
            return Err(Invalid::field("original_ip_detection_extensions", "not supported; must be empty"));
        }
        let routes = RouteSource::parse(message.route_specifier, side, cx)?;
        let options = message.common_http_protocol_options.unwrap_or_default();
        let max_stream_duration = options.max_stream_duration.as_ref().map(parts::duration).transpose();
        Ok(Self {
            routes,
            http_filters: http_filter::parse_filters(message.http_filters, side, cx)?,
            max_stream_duration: max_stream_duration
                .map_err(|e| e.at("max_stream_duration").at("common_http_protocol_options"))?,
        })
    }
}

impl RouteSource {
    /// Parses where the routes are.
    fn parse(specifier: Option<RouteSpecifier>, side: Side, cx: &Context<'_>) -> Result<Self, Invalid> {
        match specifier {
            Some(RouteSpecifier::Rds(rds)) => {
                let source = ResourceConfigSource::parse(rds.config_source.as_ref(), cx)
                    .map_err(|e| e.at("config_source").at("rds"))?;
                if rds.route_config_name.is_empty() {
                    return Err(Invalid::field("rds.route_config_name", "must not be empty"));
                }
                Ok(Self::Rds(RouteConfigRef { name: rds.route_config_name.into(), source }))
            }
            Some(RouteSpecifier::RouteConfig(inline)) => RouteConfiguration::parse_message(inline, cx)
                .map(|inline| Self::Inline(Arc::new(inline)))
                .map_err(|e| e.at("route_config")),
            Some(RouteSpecifier::ScopedRoutes(scoped)) => match side {
                Side::Client => ScopedRoutes::parse(scoped, cx)
                    .map(|scoped| Self::Scoped(Arc::new(scoped)))
                    .map_err(|e| e.at("scoped_routes")),
                Side::Server => {
                    Err(Invalid::field("scoped_routes", "not supported; expected rds or route_config"))
                }
            },
            None => Err(Invalid::new("no route specifier; expected rds or route_config")),
        }
    }
}

const CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

#[cfg(test)]
mod tests;
