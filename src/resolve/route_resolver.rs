//! The way from a target to its routes: listener, scope, route configuration and virtual host.
//!
//! Each pass begins at the listener, whatever has changed: the way has four steps at most, and a pass is cheap. Each step
//! requires its resource, and what a pass has not required is unsubscribed at its end.

use std::{mem, sync::Arc, time::Instant};

use super::{
    dependency::{Dependency, End},
    extension_configs::ExtensionConfigs,
    orders::{About, Order, Times, WatchKey},
    reference::{Reference, ResourceId},
    scopes::{Chosen, Scopes, some_of},
    snapshot::{HostChoice, RoutingConfig},
};
use crate::{
    error::{Blame, Code, WatchError},
    observed::{ErasedMembers, Observed},
    resource::{
        ExtensionConfig, Listener, RouteConfiguration, VirtualHost,
        listener::{RouteConfigRef, RouteSource},
        scope::{ScopeSource, ScopedRoutes},
        scoped_route::ScopedRouteSource,
    },
};

/// Resolves the routing configuration of a target, from its listener down to the virtual host for its authority.
///
/// ```text
///  listener ─┬───────────┬─▶ routes ─┬─▶ virtual host in them
///            ├─▶ scope ──┘           └─▶ virtual host on demand (VHDS)
///            └─▶ configurations of HTTP filters (ECDS)
/// ```
///
/// Each resource names the next, which is watched then, or gives the reason why there is none.
#[derive(Debug)]
pub(super) struct RouteResolver {
    /// The target.
    about: About,
    /// The listener; `None` before the first state. Watched as long as the resolution lives, unlike the resources below it.
    listener: Option<Arc<Observed<Listener>>>,
    /// The configurations of filters.
    extension_configs: ExtensionConfigs,
    /// The scopes of routes.
    scopes: Scopes,
    /// The route configuration.
    routes: Dependency<RouteConfiguration>,
    /// The virtual host on demand. Not watched if a virtual host of the route configuration matches.
    virtual_host: Dependency<VirtualHost>,
    /// How long deleted resources stay in use.
    times: Times,
    /// What the caller has to do.
    orders: Vec<Order>,
}

impl RouteResolver {
    /// Begins with the listener.
    pub(super) fn new(about: About, times: Times) -> Self {
        let watch = Order::Watch(WatchKey::Listener(about.listener.clone()));
        Self {
            extension_configs: ExtensionConfigs::new(about.node_id.clone(), times.grace),
            scopes: Scopes::new(about.node_id.clone(), times),
            about,
            listener: None,
            routes: Dependency::new(WatchKey::Routes),
            virtual_host: Dependency::new(|host| WatchKey::VirtualHost(host.name)),
            times,
            orders: vec![watch],
        }
    }

    /// Handles the state of the listener.
    pub(super) fn on_listener(&mut self, seen: Arc<Observed<Listener>>) {
        self.listener = Some(seen);
    }

    /// Handles the state of a filter configuration.
    pub(super) fn on_extension_config(&mut self, what: &Reference, seen: Arc<Observed<ExtensionConfig>>) {
        self.extension_configs.on_seen(what, seen);
    }

    /// Handles the state of the scopes.
    pub(super) fn on_scopes(&mut self, seen: Arc<ErasedMembers>) {
        self.scopes.on_seen(seen);
    }

    /// Handles the state of the route configuration.
    pub(super) fn on_routes(&mut self, seen: Arc<Observed<RouteConfiguration>>) {
        self.routes.on_seen(seen);
    }

    /// Handles the state of the virtual host.
    pub(super) fn on_virtual_host(&mut self, seen: Arc<Observed<VirtualHost>>) {
        self.virtual_host.on_seen(seen);
    }

    /// The watches to begin and to end.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        mem::take(&mut self.orders)
    }

    /// The time of the next resolution without an update: when a deleted resource in use stops to serve, if a tree is
    /// in use, or the scopes are late.
    ///
    /// Graces matter only to a tree in use: without one, the deletion is an error at once.
    pub(super) fn next_timeout(&self, in_use: bool) -> Option<Instant> {
        let graces = [
            self.extension_configs.grace(),
            self.scopes.grace(),
            self.routes.grace(),
            self.virtual_host.grace(),
        ];
        graces.into_iter().flatten().filter(|_| in_use).chain(self.scopes.deadline()).min()
    }

    /// Resolves from the listener down. `current` is the configuration in use.
    pub(super) fn resolve(
        &mut self,
        current: Option<&RoutingConfig>,
        now: Instant,
    ) -> Result<RoutingConfig, End> {
        self.extension_configs.start_pass();
        self.scopes.start_pass();
        self.routes.start_pass();
        self.virtual_host.start_pass();
        let found = self.find(current, now);
        // While a resource is unavailable, those below it are needed again as soon as it is available.
        if !matches!(found, Err(End::Blocked(_))) {
            self.extension_configs.release_unrequired(&mut self.orders);
            self.scopes.release_unrequired(&mut self.orders);
            self.routes.release_unrequired(&mut self.orders);
            self.virtual_host.release_unrequired(&mut self.orders);
        }
        found
    }

    /// Follows the resources from the listener to the routes, and requests those that are missing.
    ///
    /// The order of the steps decides the error if several resources are missing: that of the uppermost one.
    fn find(&mut self, current: Option<&RoutingConfig>, now: Instant) -> Result<RoutingConfig, End> {
        let (listener, warning) = self.listener()?;
        let mut warnings: Vec<_> = warning.into_iter().collect();
        let api = listener.api().ok_or_else(|| End::Nowhere(self.no_api_listener()))?;
        // They are requested beside the routes.
        self.extension_configs.require(&listener, &mut self.orders);
        let mut scope = None;
        let source = match &api.routes {
            RouteSource::Rds(RouteConfigRef { name, source }) => {
                RoutesSource::Rds(Reference { name: name.clone(), source: source.clone() })
            }
            RouteSource::Inline(routes) => RoutesSource::Inline(routes),
            RouteSource::Scoped(scoped) => {
                let chosen = self.scope(&listener, scoped, current, now)?;
                warnings.extend(chosen.warnings);
                match &scope.insert(chosen.scope).routes {
                    ScopedRouteSource::Rds(name) => RoutesSource::Rds(name.clone().into()),
                    ScopedRouteSource::Inline(routes) => RoutesSource::Inline(routes),
                }
            }
        };
        let routes = match source {
            RoutesSource::Inline(routes) => routes.clone(),
            RoutesSource::Rds(routes) => {
                self.routes.require(&routes, &mut self.orders);
                // Only routes in use have a grace: others that do not exist are an error at once.
                let in_use = current.is_some_and(|current| current.routes.name == routes.name);
                let (routes, warning) = self.routes.resolve(in_use, self.times.grace, now)?;
                warnings.extend(warning);
                routes
            }
        };
        let (virtual_host, warning) = match routes.virtual_host_index(&self.about.authority) {
            Some(index) => (HostChoice::Inline(index), None),
            // A match in the route configuration has precedence, a wildcard of it included.
            None if routes.vhds => self.on_demand(&routes, current, now)?,
            None => return Err(End::Nowhere(self.no_virtual_host(&listener, &routes))),
        };
        warnings.extend(warning);
        // Last, so that routes, virtual host and filters are requested in one round trip.
        let (listener, stale) = self.extension_configs.complete(&listener, current.is_some(), now)?;
        warnings.extend(stale);
        let (target, authority) = (self.about.target.clone(), self.about.authority.clone());
        let loads = self.about.loads.clone();
        Ok(RoutingConfig { target, authority, listener, scope, routes, virtual_host, warnings, loads })
    }

    /// The scope whose key the headers of the target have.
    ///
    /// A target without one of the headers of the key can have no scope, which no update of the scopes changes.
    fn scope(
        &mut self,
        listener: &Listener,
        scoped: &ScopedRoutes,
        current: Option<&RoutingConfig>,
        now: Instant,
    ) -> Result<Chosen, End> {
        let about = ResourceId::of::<Listener>(listener.name.clone());
        let key = scoped.key(|name| self.about.header(name)).map_err(|fragment| {
            let text =
                format!("could not find a scope: the target lacks {fragment}, which is a part of the key");
            End::Nowhere(self.error(Code::NotFound, about.clone(), text))
        })?;
        match &scoped.scopes {
            ScopeSource::Inline(list) => self.scopes.choose(list, &key, about),
            ScopeSource::Srds(collection) => {
                self.scopes.require(collection.as_ref(), &mut self.orders, now);
                let in_use = current.and_then(|current| current.scope.as_deref());
                self.scopes.resolve(&key, in_use, now)
            }
        }
    }

    /// The virtual host that the server has for the authority, beside those in the routes.
    ///
    /// The server decides which virtual host it sends for the name: one that is not for the authority would misroute the
    /// requests.
    fn on_demand(
        &mut self,
        routes: &RouteConfiguration,
        current: Option<&RoutingConfig>,
        now: Instant,
    ) -> Result<(HostChoice, Option<WatchError>), End> {
        let name: Arc<str> = VirtualHost::resource_name(&routes.name, &self.about.authority).into();
        self.virtual_host.require(&Reference::from(name.clone()), &mut self.orders);
        let in_use = current.is_some_and(|current| match &current.virtual_host {
            HostChoice::OnDemand(other, _) => *other == name,
            HostChoice::Inline(_) => false,
        });
        let (host, warning) = self.virtual_host.resolve(in_use, self.times.grace, now)?;
        match host.fit(&self.about.authority) {
            Some(_) => Ok((HostChoice::OnDemand(name, host), warning)),
            None => {
                let domains = some_of(host.domains.iter().map(|domain| domain.as_str().to_owned()));
                let text = format!("it is not for {:?}; its domains are: {domains}", self.about.authority);
                Err(End::Nowhere(self.error(Code::NotFound, ResourceId::of::<VirtualHost>(name), text)))
            }
        }
    }

    /// The listener, and why it may be stale.
    fn listener(&self) -> Result<(Arc<Listener>, Option<WatchError>), End> {
        match self.listener.as_deref() {
            None | Some(Observed::Pending) => Err(End::Unknown),
            Some(Observed::Absent { reason }) => Err(End::Nowhere(reason.clone())),
            Some(Observed::Present { resource, warning, .. }) => Ok((resource.clone(), warning.clone())),
        }
    }

    /// The error of a listener that is none for clients.
    fn no_api_listener(&self) -> WatchError {
        let name = &self.about.listener;
        let text =
            format!("client-side listener resource {name:?} does not contain API listener configuration");
        self.error(Code::FailedPrecondition, ResourceId::of::<Listener>(name.clone()), text)
    }

    /// The error of routes without a virtual host for the target. The domains in it show a mistyped authority at a glance.
    fn no_virtual_host(&self, listener: &Listener, routes: &RouteConfiguration) -> WatchError {
        let domains = routes.virtual_hosts.iter().flat_map(|host| &host.domains);
        let domains = some_of(domains.map(|domain| domain.as_str().to_owned()));
        let text =
            format!("could not find VirtualHost for {:?}; the domains are: {domains}", self.about.authority);
        // Routes within a listener need no name.
        let about = match &*routes.name {
            "" => ResourceId::of::<Listener>(listener.name.clone()),
            _ => ResourceId::of::<RouteConfiguration>(routes.name.clone()),
        };
        self.error(Code::NotFound, about, text)
    }

    /// An error about a resource.
    fn error(&self, code: Code, about: ResourceId, text: String) -> WatchError {
        WatchError::new(code, Blame::Peer, about.subject(&self.about.node_id), text)
    }
}

/// The source of the routes.
enum RoutesSource<'a> {
    /// Routes by their name.
    Rds(Reference),
    /// Routes in the listener or the scope.
    Inline(&'a Arc<RouteConfiguration>),
}

impl About {
    /// The first value of a header of the target. That of the host is the authority, unless it is set.
    fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let is_host = [":authority", "host"].iter().any(|host| host.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| &**value).or_else(|| is_host.then_some(&*self.authority))
    }
}
