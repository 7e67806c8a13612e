use super::{RouteConfigBuilder, builder};
use crate::pb::envoy::config::route::v3::{
    ScopedRouteConfiguration,
    scoped_route_configuration::{
        Key,
        key::{Fragment, fragment::Type},
    },
};

/// A scope with this key; by default with RDS by its own name.
///
/// ```
/// use xdskit::control_plane::{
///     AnyResource,
///     resources::{listener, scope},
/// };
///
/// let resources: [AnyResource; 2] =
///     [listener("shop").srds(["x-region"]).into(), scope("eu-routes", ["eu"]).into()];
/// ```
pub fn scope<K: Into<String>>(name: impl Into<String>, key: impl IntoIterator<Item = K>) -> ScopeBuilder {
    let fragment = |text: K| Fragment { r#type: Some(Type::StringKey(text.into())) };
    let name = name.into();
    let message = ScopedRouteConfiguration {
        name: name.clone(),
        key: Some(Key { fragments: key.into_iter().map(fragment).collect() }),
        route_configuration_name: name,
        ..ScopedRouteConfiguration::default()
    };
    ScopeBuilder { message }
}

/// A builder of a ScopedRouteConfiguration; see [`scope`].
#[derive(Debug, Clone, PartialEq)]
pub struct ScopeBuilder {
    /// The message so far.
    message: ScopedRouteConfiguration,
}

impl ScopeBuilder {
    /// Uses RDS by name, from the same server.
    #[must_use]
    pub fn rds(mut self, route_config: impl Into<String>) -> Self {
        self.message.route_configuration_name = route_config.into();
        self.message.route_configuration = None;
        self
    }

    /// Contains the routes inline.
    #[must_use]
    pub fn inline_routes(mut self, routes: RouteConfigBuilder) -> Self {
        self.message.route_configuration_name.clear();
        self.message.route_configuration = Some(routes.into_message());
        self
    }
}

builder!(ScopeBuilder: ScopedRouteConfiguration);
