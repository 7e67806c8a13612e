//! HTTP connection managers: the HTTP filters and the source of the routes of a listener or a filter chain.

use std::{sync::Arc, time::Duration};

use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Payload, RouteConfiguration,
    config_source::ResourceConfigSource,
    http_filter::{self, HttpFilter, Side},
    parts, remarks,
    scope::ScopedRoutes,
    unexecuted,
};
use crate::pb::{
    envoy::extensions::filters::network::http_connection_manager::v3::{
        self as hcm, http_connection_manager::RouteSpecifier,
    },
    google::protobuf::Any,
};

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
        // A41: RBAC would otherwise decide by addresses from headers, while gRPC knows the address of the peer alone.
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

/// The message of API listeners and of the network filter of filter chains.
const CONNECTION_MANAGER: &str =
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
