//! The routing of requests on the connections of a filter chain.

use std::sync::Arc;

use super::{
    Refusal,
    compiled_routes::{CompiledRoutes, RouteFilters, action_name},
};
use crate::{
    error::WatchError,
    filters::FilterChain,
    observed::Observed,
    resolve::RouteQuery,
    resource::{RouteConfiguration, VirtualHost, route::Route},
};

/// The routes of a filter chain at one time, with their filters.
///
/// A request takes the latest one when it begins, and keeps it to its end.
#[derive(Debug)]
pub(crate) struct Routing {
    /// The id of the node, for refused requests.
    node: Arc<str>,
    /// The routes, or the reason why there are none; without one they are not known yet.
    routes: Result<CompiledRoutes, Option<WatchError>>,
}

/// A request with its route.
#[derive(Debug, Clone)]
pub(crate) struct RoutedRequest {
    routing: Arc<Routing>,
    /// The indexes of the virtual host and the route.
    host: usize,
    route: usize,
    filters: Option<Arc<FilterChain>>,
}

impl Routing {
    pub(super) fn new(node: Arc<str>, routes: Result<CompiledRoutes, Option<WatchError>>) -> Self {
        Self { node, routes }
    }

    /// The routes, if there are some.
    pub(super) fn routes(&self) -> Option<&CompiledRoutes> {
        self.routes.as_ref().ok()
    }

    /// The mistakes because of which requests are refused.
    pub(super) fn errors(&self) -> Vec<String> {
        match &self.routes {
            Ok(routes) => routes.errors(),
            Err(reason) => reason.iter().map(WatchError::to_string).collect(),
        }
    }

    /// Whether it is that of a state of a route configuration.
    pub(super) fn is_of(&self, observed: &Observed<RouteConfiguration>) -> bool {
        match (observed, &self.routes) {
            (Observed::Present { resource, .. }, Ok(routes)) => Arc::ptr_eq(resource, &routes.config),
            (Observed::Absent { reason }, Err(Some(known))) => reason == known,
            (Observed::Pending, Err(None)) => true,
            (Observed::Present { .. }, Err(_))
            | (Observed::Absent { .. }, Ok(_) | Err(None))
            | (Observed::Pending, Ok(_) | Err(Some(_))) => false,
        }
    }

    /// Why there are no routes.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "the server logs it"))]
    pub(crate) fn error(&self) -> Option<&WatchError> {
        self.routes.as_ref().err().and_then(Option::as_ref)
    }

    /// Chooses the route of a request by its authority and its query; a request without an authority has only virtual hosts for
    /// all.
    ///
    /// # Errors
    /// There is no route, or a filter of it cannot be executed.
    pub(crate) fn route(
        self: &Arc<Self>,
        authority: Option<&str>,
        query: &RouteQuery<'_>,
    ) -> Result<RoutedRequest, Refusal> {
        let refused = |message: &str| Refusal::unavailable(message, &self.node);
        let Ok(routes) = &self.routes else { return Err(refused(NO_ROUTES)) };
        let hosts = &routes.config.virtual_hosts;
        let host = routes.config.virtual_host_index(authority.unwrap_or_default());
        let Some(host) = host else { return Err(refused(NO_VIRTUAL_HOST)) };
        let Some(route) = query.index_in(&hosts[host]) else { return Err(refused(NO_ROUTE)) };
        match routes.filters(host, route) {
            RouteFilters::Executed(filters) => {
                Ok(RoutedRequest { routing: self.clone(), host, route, filters: filters.clone() })
            }
            RouteFilters::Unexecuted(_) => Err(refused(UNEXECUTED)),
        }
    }
}

impl RoutedRequest {
    /// The virtual host.
    pub(crate) fn virtual_host(&self) -> &VirtualHost {
        // A routed request has routes.
        let routes = self.routing.routes.as_ref().expect("a routed request is of routes");
        &routes.config.virtual_hosts[self.host]
    }

    /// The route.
    pub(crate) fn route(&self) -> &Route {
        &self.virtual_host().routes[self.route]
    }

    /// The HTTP filters that the request passes, before its action is looked at.
    pub(crate) fn filters(&self) -> Option<&Arc<FilterChain>> {
        self.filters.as_ref()
    }

    /// Checks that the service may have the request, once it has passed the filters (SV7.10).
    ///
    /// # Errors
    /// The action of the route is not for servers.
    pub(crate) fn check_action(&self) -> Result<(), Refusal> {
        match action_name(&self.route().action) {
            None => Ok(()),
            Some(_) => Err(Refusal::unavailable(WRONG_ACTION, &self.routing.node)),
        }
    }
}

const NO_ROUTES: &str = "the server has no route configuration";
const NO_VIRTUAL_HOST: &str = "no virtual host matches the authority of the request";
const NO_ROUTE: &str = "no route matches the request";
const UNEXECUTED: &str = "an HTTP filter of the route is not executed";
const WRONG_ACTION: &str = "the action of the route is not for servers";
