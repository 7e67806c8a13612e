use std::time::Duration;

use prost::Message;

use super::{HttpFilterBuilder, RouteConfigBuilder, ScopeBuilder, ads, any, builder, duration};
use crate::pb::envoy::{
    config::{
        core::v3::ConfigSource,
        listener::v3::{ApiListener, Listener},
    },
    extensions::filters::network::http_connection_manager::v3::{
        HttpConnectionManager, Rds, ScopedRds, ScopedRouteConfigurationsList, ScopedRoutes,
        http_connection_manager::RouteSpecifier,
        scoped_routes::{
            ConfigSpecifier, ScopeKeyBuilder,
            scope_key_builder::{
                FragmentBuilder,
                fragment_builder::{self, HeaderValueExtractor, header_value_extractor::ExtractType},
            },
        },
    },
};

/// A listener for clients; by default with RDS by its own name.
pub fn listener(name: impl Into<String>) -> ListenerBuilder {
    let name = name.into();
    let routes = name.clone();
    // gRPC's clients reject a list of filters without the router.
    let router = HttpFilterBuilder::router().into_filter("router".to_owned());
    let manager = HttpConnectionManager { http_filters: vec![router], ..HttpConnectionManager::default() };
    let message = Listener { name, api_listener: Some(api_listener(&manager)), ..Listener::default() };
    ListenerBuilder { message }.rds(routes)
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

    /// Adds an HTTP filter behind those before it, and before the router, by a name for overrides.
    #[must_use]
    pub fn http_filter(self, name: impl Into<String>, filter: impl Into<HttpFilterBuilder>) -> Self {
        let filter = filter.into().into_filter(name.into());
        self.edit_manager(|manager| {
            let router = manager.http_filters.len().saturating_sub(1);
            manager.http_filters.insert(router, filter);
        })
    }

    /// Limits the time of requests without a limit of their route.
    #[must_use]
    pub fn max_stream_duration(self, limit: Duration) -> Self {
        self.edit_manager(|manager| {
            let options = manager.common_http_protocol_options.get_or_insert_default();
            options.max_stream_duration = Some(duration(limit));
        })
    }

    /// Edits the HTTP connection manager directly.
    ///
    /// # Panics
    /// The listener was edited to have none.
    #[must_use]
    pub fn edit_manager(mut self, edit: impl FnOnce(&mut HttpConnectionManager)) -> Self {
        let any = self.message.api_listener.take().and_then(|api_listener| api_listener.api_listener);
        let manager = any.and_then(|any| HttpConnectionManager::decode(any.value).ok());
        let mut manager = manager.expect("a listener that was not edited has a manager");
        edit(&mut manager);
        self.message.api_listener = Some(api_listener(&manager));
        self
    }

    /// Sets the routes of the HTTP connection manager.
    fn routes(self, routes: RouteSpecifier) -> Self {
        self.edit_manager(|manager| manager.route_specifier = Some(routes))
    }
}

builder!(ListenerBuilder: Listener);

/// What is in a listener for clients.
fn api_listener(manager: &HttpConnectionManager) -> ApiListener {
    ApiListener { api_listener: Some(any(MANAGER, manager)) }
}

/// The type of an HTTP connection manager.
const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
