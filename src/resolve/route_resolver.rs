use std::{mem, sync::Arc, time::Instant};

use super::{
    dependency::{Dependency, End},
    orders::{About, Order, Times, WatchKey},
    reference::Reference,
    scopes::{Chosen, Scopes, some_of},
    snapshot::{HostChoice, RoutingConfig},
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    observed::{ErasedMembers, Observed},
    resource::{
        Listener, Resource, RouteConfiguration, VirtualHost,
        listener::{RouteConfigRef, RouteSource},
        scope::{ScopeSource, ScopedRoutes},
        scoped_route::ScopedRouteSource,
    },
};

/// The way from the listener of a target to the virtual host for its authority.
///
/// ```text
///  listener ─┬───────────┬─▶ routes ─┬─▶ virtual host in them
///            └─▶ scope ──┘           └─▶ virtual host on demand (VHDS)
/// ```
///
/// Each step names what is watched for the next, or says why there is no way on.
#[derive(Debug)]
pub(super) struct RouteResolver {
    about: About,
    listener: Option<Arc<Observed<Listener>>>,
    scopes: Scopes,
    routes: Dependency<RouteConfiguration>,
    virtual_host: Dependency<VirtualHost>,
    times: Times,
    orders: Vec<Order>,
}

impl RouteResolver {
    pub(super) fn new(about: About, times: Times) -> Self {
        let watch = Order::Watch(WatchKey::Listener(about.listener.clone()));
        Self {
            scopes: Scopes::new(about.node_id.clone(), times),
            about,
            listener: None,
            routes: Dependency::new(WatchKey::Routes),
            virtual_host: Dependency::new(|host| WatchKey::VirtualHost(host.name)),
            times,
            orders: vec![watch],
        }
    }

    pub(super) fn on_listener(&mut self, seen: Arc<Observed<Listener>>) {
        self.listener = Some(seen);
    }

    pub(super) fn on_scopes(&mut self, seen: Arc<ErasedMembers>) {
        self.scopes.on_seen(seen);
    }

    pub(super) fn on_routes(&mut self, seen: Arc<Observed<RouteConfiguration>>) {
        self.routes.on_seen(seen);
    }

    pub(super) fn on_virtual_host(&mut self, seen: Arc<Observed<VirtualHost>>) {
        self.virtual_host.on_seen(seen);
    }

    /// What is to be watched, and what not any more.
    pub(super) fn take_orders(&mut self) -> Vec<Order> {
        mem::take(&mut self.orders)
    }

    /// When to follow it again though nothing was told: when something that is in use and deleted stops to serve, if a tree is
    /// in use, or the scopes are late.
    pub(super) fn next_timeout(&self, in_use: bool) -> Option<Instant> {
        let graces = [self.scopes.grace(), self.routes.grace(), self.virtual_host.grace()];
        graces.into_iter().flatten().filter(|_| in_use).chain(self.scopes.deadline()).min()
    }

    /// Goes from the listener as far as it leads. `current` is the tree in use.
    pub(super) fn follow(
        &mut self,
        current: Option<&RoutingConfig>,
        now: Instant,
    ) -> Result<RoutingConfig, End> {
        self.scopes.begin();
        self.routes.begin();
        self.virtual_host.begin();
        let found = self.find(current, now);
        // While the way is blocked, what was behind is needed again as soon as it is open.
        if !matches!(found, Err(End::Blocked(_))) {
            self.scopes.end(&mut self.orders);
            self.routes.end(&mut self.orders);
            self.virtual_host.end(&mut self.orders);
        }
        found
    }

    fn find(&mut self, current: Option<&RoutingConfig>, now: Instant) -> Result<RoutingConfig, End> {
        let (listener, warning) = self.listener()?;
        let mut warnings: Vec<_> = warning.into_iter().collect();
        let api = listener.api().ok_or_else(|| End::Nowhere(self.no_api_listener()))?;
        let mut scope = None;
        let source = match &api.routes {
            RouteSource::Rds(RouteConfigRef { name, source }) => {
                Source::Rds(Reference { name: name.clone(), source: source.clone() })
            }
            RouteSource::Inline(routes) => Source::Inline(routes),
            RouteSource::Scoped(scoped) => {
                let chosen = self.scope(&listener, scoped, current, now)?;
                warnings.extend(chosen.warnings);
                match &scope.insert(chosen.scope).routes {
                    ScopedRouteSource::Rds(name) => Source::Rds(name.clone().into()),
                    ScopedRouteSource::Inline(routes) => Source::Inline(routes),
                }
            }
        };
        let routes = match source {
            Source::Inline(routes) => routes.clone(),
            Source::Rds(routes) => {
                self.routes.lead(&routes, &mut self.orders);
                let in_use = current.is_some_and(|current| current.routes.name == routes.name);
                let (routes, warning) = self.routes.step(in_use, self.times.grace, now)?;
                warnings.extend(warning);
                routes
            }
        };
        let (virtual_host, warning) = match routes.virtual_host_index(&self.about.authority) {
            Some(index) => (HostChoice::Inline(index), None),
            None if routes.vhds => self.on_demand(&routes, current, now)?,
            None => return Err(End::Nowhere(self.no_virtual_host(&listener, &routes))),
        };
        warnings.extend(warning);
        let (target, authority) = (self.about.target.clone(), self.about.authority.clone());
        Ok(RoutingConfig { target, authority, listener, scope, routes, virtual_host, warnings })
    }

    /// The scope whose key the headers of the target have.
    fn scope(
        &mut self,
        listener: &Listener,
        scoped: &ScopedRoutes,
        current: Option<&RoutingConfig>,
        now: Instant,
    ) -> Result<Chosen, End> {
        let about = (Listener::TYPE_URL, listener.name.clone());
        let key = scoped.key(|name| self.about.header(name)).map_err(|fragment| {
            let text =
                format!("could not find a scope: the target lacks {fragment}, which is a part of the key");
            End::Nowhere(self.error(Code::NotFound, about.clone(), text))
        })?;
        match &scoped.scopes {
            ScopeSource::Inline(list) => self.scopes.choose(list, &key, about),
            ScopeSource::Srds(collection) => {
                self.scopes.lead(collection.as_ref(), &mut self.orders, now);
                let in_use = current.and_then(|current| current.scope.as_deref());
                self.scopes.step(&key, in_use, now)
            }
        }
    }

    /// The virtual host that the server has for the authority, beside those in the routes.
    fn on_demand(
        &mut self,
        routes: &RouteConfiguration,
        current: Option<&RoutingConfig>,
        now: Instant,
    ) -> Result<(HostChoice, Option<WatchError>), End> {
        let name: Arc<str> = VirtualHost::resource_name(&routes.name, &self.about.authority).into();
        self.virtual_host.lead(&Reference::from(name.clone()), &mut self.orders);
        let in_use = current.is_some_and(|current| match &current.virtual_host {
            HostChoice::OnDemand(other, _) => *other == name,
            HostChoice::Inline(_) => false,
        });
        let (host, warning) = self.virtual_host.step(in_use, self.times.grace, now)?;
        match host.fit(&self.about.authority) {
            Some(_) => Ok((HostChoice::OnDemand(name, host), warning)),
            None => {
                let domains = some_of(host.domains.iter().map(|domain| domain.as_str().to_owned()));
                let text = format!("it is not for {:?}; its domains are: {domains}", self.about.authority);
                Err(End::Nowhere(self.error(Code::NotFound, (VirtualHost::TYPE_URL, name), text)))
            }
        }
    }

    fn listener(&self) -> Result<(Arc<Listener>, Option<WatchError>), End> {
        match self.listener.as_deref() {
            None | Some(Observed::Pending) => Err(End::Unknown),
            Some(Observed::Absent { reason }) => Err(End::Nowhere(reason.clone())),
            Some(Observed::Present { resource, warning, .. }) => Ok((resource.clone(), warning.clone())),
        }
    }

    fn no_api_listener(&self) -> WatchError {
        let name = &self.about.listener;
        let text =
            format!("client-side listener resource {name:?} does not contain API listener configuration");
        self.error(Code::FailedPrecondition, (Listener::TYPE_URL, name.clone()), text)
    }

    fn no_virtual_host(&self, listener: &Listener, routes: &RouteConfiguration) -> WatchError {
        let domains = routes.virtual_hosts.iter().flat_map(|host| &host.domains);
        let domains = some_of(domains.map(|domain| domain.as_str().to_owned()));
        let text =
            format!("could not find VirtualHost for {:?}; the domains are: {domains}", self.about.authority);
        // Routes within a listener need no name.
        let about = match &*routes.name {
            "" => (Listener::TYPE_URL, listener.name.clone()),
            _ => (RouteConfiguration::TYPE_URL, routes.name.clone()),
        };
        self.error(Code::NotFound, about, text)
    }

    fn error(&self, code: Code, (type_url, name): (&'static str, Arc<str>), text: String) -> WatchError {
        WatchError::new(code, Blame::Peer, Subject { type_url, name, node: self.about.node_id.clone() }, text)
    }
}

/// Where routes are.
enum Source<'a> {
    Rds(Reference),
    Inline(&'a Arc<RouteConfiguration>),
}

impl About {
    /// The first value of a header of the target. That of the host is the authority, unless it says otherwise.
    fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter().filter(|(other, _)| other.eq_ignore_ascii_case(name));
        let is_host = [":authority", "host"].iter().any(|host| host.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| &**value).or_else(|| is_host.then_some(&*self.authority))
    }
}
