use super::{RouteConfigBuilder, ads, any, builder};
use crate::pb::envoy::{
    config::listener::v3::{ApiListener, Listener},
    extensions::filters::{
        http::router::v3::Router,
        network::http_connection_manager::v3::{
            HttpConnectionManager, HttpFilter, Rds, http_connection_manager::RouteSpecifier,
            http_filter::ConfigType,
        },
    },
};

/// A listener for clients; it gets its routes from the route configuration of its own name unless told otherwise.
pub fn listener(name: impl Into<String>) -> ListenerBuilder {
    let name = name.into();
    let routes = name.clone();
    ListenerBuilder { message: Listener { name, ..Listener::default() } }.rds(routes)
}

/// Builds a Listener; see [`listener`].
#[derive(Debug, Clone, PartialEq)]
pub struct ListenerBuilder {
    message: Listener,
}

impl ListenerBuilder {
    /// Gets the routes by name, from the same server.
    #[must_use]
    pub fn rds(self, route_config: impl Into<String>) -> Self {
        let rds = Rds { config_source: Some(ads()), route_config_name: route_config.into() };
        self.routes(RouteSpecifier::Rds(rds))
    }

    /// Carries the routes itself.
    #[must_use]
    pub fn inline_routes(self, routes: RouteConfigBuilder) -> Self {
        self.routes(RouteSpecifier::RouteConfig(routes.into_message()))
    }

    fn routes(mut self, routes: RouteSpecifier) -> Self {
        let router = HttpFilter {
            name: "router".to_owned(),
            config_type: Some(ConfigType::TypedConfig(any(ROUTER, &Router {}))),
            ..HttpFilter::default()
        };
        let manager = HttpConnectionManager {
            route_specifier: Some(routes),
            http_filters: vec![router],
            ..HttpConnectionManager::default()
        };
        self.message.api_listener = Some(ApiListener { api_listener: Some(any(MANAGER, &manager)) });
        self
    }
}

builder!(ListenerBuilder: Listener);

const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
