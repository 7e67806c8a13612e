//! A resolver with nothing around it: tests pass states, and read its orders as text.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use prost::Message;

use super::super::{cluster_entry::ClusterEntry, dns::HostSeen, snapshot::HostChoice, *};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    invariant,
    observed::{ErasedMembers, Member, Observed},
    pb::envoy::config::route::v3::VirtualHost,
    resource::{Context, Resource, ScopedRouteConfiguration, Version, cluster::HostPort},
    testing::resources::{
        ClusterBuilder, EndpointsBuilder, ListenerBuilder, RouteConfigBuilder, ScopeBuilder, route,
        route_config,
    },
};

pub(super) const GRACE: Duration = Duration::from_secs(1);
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);

/// A resolver of `xds:///shop`, and its clock.
pub(super) struct Rig {
    pub(super) resolver: Resolver,
    pub(super) now: Instant,
    /// The last tree that was published.
    pub(super) tree: Option<Arc<Snapshot>>,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_authority("shop")
    }

    pub(super) fn with_authority(authority: &str) -> Self {
        Self::with_headers(authority, &[])
    }

    pub(super) fn with_headers(authority: &str, headers: &[(&str, &str)]) -> Self {
        let about = About {
            target: "xds:///shop".into(),
            authority: authority.into(),
            headers: headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            listener: "shop".into(),
            node_id: "n".into(),
            loads: crate::lrs::Loads::new(crate::lrs::LoadSettings::default()),
        };
        let resolver = Resolver::new(about, Times { grace: GRACE, timeout: TIMEOUT });
        let mut rig = Self { resolver, now: Instant::now(), tree: None };
        assert_eq!(rig.orders(), ["+listener shop"]);
        rig
    }

    /// A resolver with a tree of one cluster behind routes of their own: `routes` leads to `a` at 10.0.0.1:80.
    pub(super) fn with_tree() -> Self {
        use crate::testing::resources::{cluster, endpoints, listener, route, route_config};

        let mut rig = Self::new();
        rig.listener(listener("shop").rds("routes"));
        rig.routes(route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("a")]));
        rig.cluster(cluster("a"));
        let orders = rig.endpoints(endpoints("a").locality("eu", "a", ["10.0.0.1:80"]));
        assert_eq!(orders, ["routes: a=10.0.0.1:80"]);
        rig
    }

    pub(super) fn listener(&mut self, listener: ListenerBuilder) -> Vec<String> {
        self.handle(Seen::Listener(present(&listener.into_message(), None)))
    }

    pub(super) fn routes(&mut self, routes: RouteConfigBuilder) -> Vec<String> {
        self.handle(Seen::Routes(present(&routes.into_message(), None)))
    }

    /// A virtual host by itself, of this name and for this domain, that leads to a cluster of its own.
    pub(super) fn virtual_host(&mut self, (name, domain): (&str, &str), cluster: &str) -> Vec<String> {
        self.handle(Seen::VirtualHost(present(&virtual_host((name, domain), cluster), None)))
    }

    /// All scopes that there are.
    pub(super) fn scopes(&mut self, scopes: &[ScopeBuilder]) -> Vec<String> {
        self.handle(Seen::Scopes(members(scopes, true, None)))
    }

    pub(super) fn no_virtual_host(&mut self, name: &str, code: Code) -> Vec<String> {
        self.handle(Seen::VirtualHost(absent(name, code)))
    }

    pub(super) fn cluster(&mut self, cluster: ClusterBuilder) -> Vec<String> {
        let message = cluster.into_message();
        self.handle(Seen::Cluster(message.name.as_str().into(), present(&message, None)))
    }

    pub(super) fn endpoints(&mut self, endpoints: EndpointsBuilder) -> Vec<String> {
        let message = endpoints.into_message();
        let source = Source::Eds(message.cluster_name.as_str().into());
        self.handle(Seen::Endpoints(source, Endpoints::Eds(present(&message, None))))
    }

    pub(super) fn no_listener(&mut self, code: Code) -> Vec<String> {
        self.handle(Seen::Listener(absent("shop", code)))
    }

    pub(super) fn no_routes(&mut self, name: &str, code: Code) -> Vec<String> {
        self.handle(Seen::Routes(absent(name, code)))
    }

    pub(super) fn no_cluster(&mut self, name: &str, code: Code) -> Vec<String> {
        self.handle(Seen::Cluster(name.into(), absent(name, code)))
    }

    pub(super) fn no_endpoints(&mut self, name: &str, code: Code) -> Vec<String> {
        self.handle(Seen::Endpoints(Source::Eds(name.into()), Endpoints::Eds(absent(name, code))))
    }

    /// What is known of a host, by the words of [`DnsResolver`].
    pub(super) fn host(&mut self, address: &HostPort, seen: HostSeen) -> Vec<String> {
        self.handle(Seen::Endpoints(Source::Host(address.clone()), Endpoints::Host(seen)))
    }

    pub(super) fn hold(&mut self, name: &str, held: bool) -> Vec<String> {
        self.resolver.set_held(&name.into(), held);
        self.orders()
    }

    pub(super) fn handle(&mut self, seen: Seen) -> Vec<String> {
        self.resolver.handle(seen);
        self.orders()
    }

    /// Lets time pass, with what is due in it.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<String> {
        let until = self.now + time;
        let mut orders = Vec::new();
        while let Some(at) = self.resolver.next_timeout().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            orders.extend(self.orders());
        }
        self.now = until;
        orders
    }

    /// Runs the resolver, and returns its orders: `+cluster a`, `-routes r`, `routes: a=10.0.0.1:80 b!NOT_FOUND`.
    pub(super) fn orders(&mut self) -> Vec<String> {
        self.resolver.process(self.now);
        assert_eq!(invariant::count(), 0);
        let mut orders = Vec::new();
        while let Some(order) = self.resolver.poll_order() {
            orders.push(match order {
                Order::Watch(key) => format!("+{}", describe_key(&key)),
                Order::Unwatch(key) => format!("-{}", describe_key(&key)),
                Order::Publish(Err(why)) => {
                    self.tree = None;
                    format!("{}: {why}", why.code())
                }
                Order::Publish(Ok(tree)) => {
                    let orders = describe_tree(&tree);
                    self.tree = Some(tree);
                    orders
                }
            });
        }
        orders
    }
}

/// The members of a set of scopes.
pub(super) fn members(
    scopes: &[ScopeBuilder],
    complete: bool,
    warning: Option<WatchError>,
) -> Arc<ErasedMembers> {
    let member = |scope: &ScopeBuilder| {
        let message = scope.clone().into_message();
        let member: Arc<Observed<ScopedRouteConfiguration>> = present(&message, None);
        (Arc::from(message.name), Member(member))
    };
    Arc::new(ErasedMembers {
        name: "*".into(),
        map: scopes.iter().map(member).collect(),
        complete,
        warning,
        type_url: ScopedRouteConfiguration::TYPE_URL,
        node: "n".into(),
    })
}

/// A virtual host for one domain, that leads to one cluster.
pub(super) fn virtual_host((name, domain): (&str, &str), cluster: &str) -> VirtualHost {
    let config = route_config("").virtual_host([domain], [route::prefix("/").cluster(cluster)]);
    VirtualHost { name: name.into(), ..config.into_message().virtual_hosts[0].clone() }
}

pub(super) fn present<T: Resource>(message: &impl Message, warning: Option<WatchError>) -> Arc<Observed<T>> {
    let resource =
        T::parse(&message.encode_to_vec().into(), &Context::new()).unwrap_or_else(|e| panic!("{e}"));
    Arc::new(Observed::Present {
        resource: Arc::new(resource),
        version: Version::from("1"),
        warning,
        source: None,
    })
}

pub(super) fn absent<T: Resource>(name: &str, code: Code) -> Arc<Observed<T>> {
    Arc::new(Observed::Absent { reason: error::<T>(name, code) })
}

/// An error about a resource, or `UNAVAILABLE` about its server.
pub(super) fn error<T: Resource>(name: &str, code: Code) -> WatchError {
    let about = Subject { type_url: T::TYPE_URL, name: name.into(), node: "n".into() };
    let new = if code == Code::Unavailable { WatchError::of_server } else { WatchError::new };
    new(code, Blame::Peer, about, "it is so")
}

fn describe_key(key: &WatchKey) -> String {
    match key {
        WatchKey::Listener(name) => format!("listener {name}"),
        WatchKey::Scopes(collection) => format!("scopes {collection}"),
        WatchKey::ExtensionConfig(config) => format!("extension {}", config.name),
        WatchKey::Routes(routes) => format!("routes {}", routes.name),
        WatchKey::VirtualHost(name) => format!("virtual host {name}"),
        WatchKey::Cluster(name) => format!("cluster {name}"),
        WatchKey::Endpoints(endpoints) => format!("endpoints {}", endpoints.name),
        WatchKey::LbEndpoints(collection) => format!("collection {}", collection.name),
        WatchKey::Host(address) => format!("host {address}"),
    }
}

fn describe_tree(tree: &Snapshot) -> String {
    let clusters: Vec<_> = tree.clusters.values().map(|entry| describe_entry(entry)).collect();
    let warnings: Vec<_> = tree.routing.warnings.iter().map(|why| format!(" ({})", why.code())).collect();
    let on_demand = match &tree.routing.virtual_host {
        HostChoice::Inline(_) => String::new(),
        HostChoice::OnDemand(_, host) => format!(" {}", host.name),
    };
    let scope = tree.routing.scope.as_ref().map(|scope| format!("{} > ", scope.name)).unwrap_or_default();
    format!("{scope}{}{on_demand}: {}{}", tree.routing.routes.name, clusters.join(" "), warnings.concat())
}

fn describe_entry(entry: &ClusterEntry) -> String {
    let mut orders = entry.name.to_string();
    if let Some(why) = &entry.error {
        orders += &format!("!{}", why.code());
    }
    if !entry.leaves.is_empty() {
        orders += &format!(">{}", entry.leaves.join(","));
    }
    if let Some(endpoints) = &entry.endpoints {
        let addresses = endpoints.endpoints().flat_map(|endpoint| endpoint.addresses());
        orders += &format!("={}", addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(","));
    }
    for why in entry.warning.iter().chain(&entry.endpoints_error) {
        orders += &format!("({})", why.code());
    }
    orders
}
