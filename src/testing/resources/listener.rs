use super::{RouteConfigBuilder, ScopeBuilder, ads, any, builder};
use crate::pb::envoy::{
    config::{
        core::v3::ConfigSource,
        listener::v3::{ApiListener, Listener},
    },
    extensions::filters::{
        http::router::v3::Router,
        network::http_connection_manager::v3::{
            HttpConnectionManager, HttpFilter, Rds, ScopedRds, ScopedRouteConfigurationsList, ScopedRoutes,
            http_connection_manager::RouteSpecifier,
            http_filter::ConfigType,
            scoped_routes::{
                ConfigSpecifier, ScopeKeyBuilder,
                scope_key_builder::{
                    FragmentBuilder,
                    fragment_builder::{self, HeaderValueExtractor, header_value_extractor::ExtractType},
                },
            },
        },
    },
};

/// A listener for clients; by default with RDS by its own name.
pub fn listener(name: impl Into<String>) -> ListenerBuilder {
    let name = name.into();
    let routes = name.clone();
    ListenerBuilder { message: Listener { name, ..Listener::default() } }.rds(routes)
}

/// A builder of a Listener; see [`listener`].
#[derive(Debug, Clone, PartialEq)]
pub struct ListenerBuilder {
    /// The message so far.
    message: Listener,
}

impl ListenerBuilder {
    /// Uses RDS by name, from the same server.
    #[must_use]
    pub fn rds(self, route_config: impl Into<String>) -> Self {
        self.rds_from(route_config, ads())
    }

    /// Uses RDS by name, from this source.
    #[must_use]
    pub fn rds_from(self, route_config: impl Into<String>, source: ConfigSource) -> Self {
        let rds = Rds { config_source: Some(source), route_config_name: route_config.into() };
        self.routes(RouteSpecifier::Rds(rds))
    }

    /// Contains the routes inline.
    #[must_use]
    pub fn inline_routes(self, routes: RouteConfigBuilder) -> Self {
        self.routes(RouteSpecifier::RouteConfig(routes.into_message()))
    }

    /// Uses SRDS: the routes of the scope whose key is built from these headers, among all scopes of the same server.
    #[must_use]
    pub fn srds<N: Into<String>>(self, headers: impl IntoIterator<Item = N>) -> Self {
        self.srds_in("", headers)
    }

    /// Uses SRDS with the scopes of a collection, by its `xdstp:` name.
    #[must_use]
    pub fn srds_in<N: Into<String>>(
        self,
        collection: impl Into<String>,
        headers: impl IntoIterator<Item = N>,
    ) -> Self {
        let scoped_rds =
            ScopedRds { scoped_rds_config_source: Some(ads()), srds_resources_locator: collection.into() };
        self.scoped(headers, ConfigSpecifier::ScopedRds(scoped_rds))
    }

    /// Contains scopes inline, with keys that are built from these headers.
    #[must_use]
    pub fn inline_scopes<N: Into<String>>(
        self,
        headers: impl IntoIterator<Item = N>,
        scopes: impl IntoIterator<Item = ScopeBuilder>,
    ) -> Self {
        let scopes = scopes.into_iter().map(ScopeBuilder::into_message);
        let list = ScopedRouteConfigurationsList { scoped_route_configurations: scopes.collect() };
        self.scoped(headers, ConfigSpecifier::ScopedRouteConfigurationsList(list))
    }

    /// Uses scopes by a key of the values of these headers.
    fn scoped<N: Into<String>>(self, headers: impl IntoIterator<Item = N>, scopes: ConfigSpecifier) -> Self {
        let fragments = headers.into_iter().map(|name| FragmentBuilder {
            r#type: Some(fragment_builder::Type::HeaderValueExtractor(HeaderValueExtractor {
                name: name.into(),
                extract_type: Some(ExtractType::Index(0)),
                ..HeaderValueExtractor::default()
            })),
        });
        self.routes(RouteSpecifier::ScopedRoutes(ScopedRoutes {
            name: "scopes".to_owned(),
            scope_key_builder: Some(ScopeKeyBuilder { fragments: fragments.collect() }),
            rds_config_source: Some(ads()),
            config_specifier: Some(scopes),
        }))
    }

    /// Sets an HTTP connection manager with these routes. The router is its only filter: gRPC's clients reject a list without it.
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

/// The type of the router's configuration.
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
/// The type of an HTTP connection manager.
const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
