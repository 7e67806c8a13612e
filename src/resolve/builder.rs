//! Snapshots without a client: of endpoints that an application has discovered itself, and for tests.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

use super::{
    Snapshot,
    endpoints::{Endpoints, Source},
    messages,
    orders::{About, Order, Resolved, Seen, Times, WatchKey},
    resolver::Resolver,
};
use crate::{
    base::type_url,
    config::{Target, TargetError},
    error::{Blame, Code, Subject, WatchError},
    escape::debug_as_message,
    lrs::{LoadSettings, Loads},
    observed::Observed,
    resource::{
        Cluster, ClusterLoadAssignment, Context, Invalid, Listener, Registry, Resource, RouteConfiguration,
        Version,
    },
};

/// Resources of which a [`Snapshot`] is made, in place of those of a management server.
///
/// They are validated and resolved as those of a server are. Without a listener, all requests have a route to the first cluster that
/// was added, and all clusters are in the snapshot; a listener leads to the clusters of its routes, and the others are in the snapshot
/// as well.
///
/// ```
/// use std::time::Instant;
/// use xdskit::Snapshot;
///
/// // Two endpoints, and a third one for the time when neither can be reached.
/// let preferred = ["10.0.0.1:80".parse()?, "10.0.0.2:80".parse()?];
/// let fallback = ["10.1.0.1:80".parse()?];
/// let builder = Snapshot::builder("xds:///shop").cluster("shop", [preferred.as_slice(), &fallback]);
/// let snapshot = builder.build(Instant::now())?;
/// assert_eq!(snapshot.cluster("shop").unwrap().endpoints().count(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct SnapshotBuilder {
    target: Target,
    registry: Arc<Registry>,
    listener: Option<Arc<Listener>>,
    routes: BTreeMap<Arc<str>, Arc<RouteConfiguration>>,
    clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    /// The cluster that was added first.
    first: Option<Arc<str>>,
    endpoints: BTreeMap<Arc<str>, Arc<ClusterLoadAssignment>>,
    /// The first error of what was added.
    error: Option<SnapshotError>,
}

/// The reason why there is no snapshot of some resources.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The target is not of the form `xds:///service` or `xds://authority/service`.
    #[error(transparent)]
    Target(TargetError),
    /// A resource is invalid.
    #[error("{type_url}: {invalid}")]
    Invalid {
        /// The type of the resource.
        type_url: String,
        /// The field and the reason.
        invalid: Invalid,
    },
    /// A resource has another type than `Listener`, `RouteConfiguration`, `Cluster` and `ClusterLoadAssignment`.
    #[error("{type_url} is not the type of a resource that a snapshot is built of")]
    Type {
        /// The type of the resource.
        type_url: String,
    },
    /// The resources do not lead to a virtual host: the listener or the routes are missing, or have no virtual host for the target.
    #[error(transparent)]
    Unresolved(WatchError),
    /// The resources refer to another one of a type that a snapshot cannot be built of: scopes, virtual hosts on demand, filter
    /// configurations by name, collections of endpoints, or the host of a logical DNS cluster.
    #[error("a snapshot cannot be built of resources that need {needed}")]
    Unsupported {
        /// The type of the resource, and its name.
        needed: String,
    },
}

debug_as_message!(SnapshotError);

impl Snapshot {
    /// Builds a snapshot for a target without a management server: see [`SnapshotBuilder`].
    pub fn builder(target: impl Into<Target>) -> SnapshotBuilder {
        SnapshotBuilder {
            target: target.into(),
            registry: Arc::default(),
            listener: None,
            routes: BTreeMap::new(),
            clusters: BTreeMap::new(),
            first: None,
            endpoints: BTreeMap::new(),
            error: None,
        }
    }
}

impl SnapshotBuilder {
    /// Sets the extensions of the application, such as policies, for the resources that are added from now on.
    pub fn registry(mut self, registry: impl Into<Arc<Registry>>) -> Self {
        self.registry = registry.into();
        self
    }

    /// Adds a cluster with the policy `round_robin` and the default of everything else. `priorities` are the addresses of its
    /// endpoints, those of the highest priority first. It replaces a cluster of this name.
    pub fn cluster<'a>(self, name: &str, priorities: impl IntoIterator<Item = &'a [SocketAddr]>) -> Self {
        let cluster = messages::cluster(name).encode_to_vec();
        let endpoints = messages::endpoints(name, priorities).encode_to_vec();
        self.encoded(type_url::CLUSTER, cluster).encoded(type_url::ENDPOINTS, endpoints)
    }

    /// Adds an encoded `Listener`, `RouteConfiguration`, `Cluster` or `ClusterLoadAssignment` by its type URL. It replaces one of the
    /// same type and name.
    pub fn encoded(mut self, type_url: &str, bytes: impl Into<Bytes>) -> Self {
        let added = match type_url {
            type_url::LISTENER => self.parse(bytes).map(|listener| self.listener = Some(listener)),
            type_url::ROUTE_CONFIGURATION => self.parse(bytes).map(|routes: Arc<RouteConfiguration>| {
                self.routes.insert(routes.name.clone(), routes);
            }),
            type_url::CLUSTER => self.parse(bytes).map(|cluster: Arc<Cluster>| {
                self.first.get_or_insert_with(|| cluster.name.clone());
                self.clusters.insert(cluster.name.clone(), cluster);
            }),
            type_url::ENDPOINTS => self.parse(bytes).map(|endpoints: Arc<ClusterLoadAssignment>| {
                self.endpoints.insert(endpoints.cluster_name.clone(), endpoints);
            }),
            _ => Err(SnapshotError::Type { type_url: type_url.to_owned() }),
        };
        if let Err(error) = added {
            self.error.get_or_insert(error);
        }
        self
    }

    fn parse<T: Resource>(&self, bytes: impl Into<Bytes>) -> Result<Arc<T>, SnapshotError> {
        let mut context = Context::new();
        context.registry = &self.registry;
        let parsed = T::parse(&bytes.into(), &context);
        parsed
            .map(Arc::new)
            .map_err(|invalid| SnapshotError::Invalid { type_url: T::TYPE_URL.to_owned(), invalid })
    }

    /// Resolves the target. The time is that of the resolution, which ends at once.
    ///
    /// # Errors
    /// A resource is invalid, or they do not lead to a virtual host. The lack of a cluster or of its endpoints is no error: the snapshot
    /// has the reason.
    pub fn build(mut self, now: Instant) -> Result<Arc<Snapshot>, SnapshotError> {
        let (service, authority) = self.target.service_and_host().map_err(SnapshotError::Target)?;
        if let (None, Some(cluster)) = (&self.listener, &self.first) {
            let listener = messages::listener(&service, cluster).encode_to_vec();
            self = self.encoded(type_url::LISTENER, listener);
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let listener =
            self.listener.as_ref().map_or_else(|| service.into(), |listener| listener.name.clone());
        let about = About {
            target: self.target.as_str().into(),
            authority,
            headers: self.target.headers().clone(),
            listener,
            node_id: Arc::default(),
            loads: Loads::new(LoadSettings::default()),
        };
        let mut resolver = Resolver::new(about, Times { grace: Duration::ZERO, timeout: Duration::ZERO });
        self.clusters.keys().for_each(|name| resolver.set_held(name, true));
        match self.resolve(&mut resolver, now)? {
            Ok(snapshot) => Ok(snapshot),
            Err(error) => Err(SnapshotError::Unresolved(error)),
        }
    }

    /// Passes all that the resolver watches to it, until it watches nothing more. Returns its last result.
    fn resolve(&self, resolver: &mut Resolver, now: Instant) -> Result<Resolved, SnapshotError> {
        let mut resolved = None;
        loop {
            resolver.process(now);
            let mut has_more = false;
            while let Some(order) = resolver.poll_order() {
                match order {
                    Order::Watch(key) => {
                        resolver.handle(self.seen(key)?);
                        has_more = true;
                    }
                    Order::Unwatch(_) => {}
                    Order::Publish(result) => resolved = Some(result),
                }
            }
            if !has_more {
                break;
            }
        }
        // All that it watches was passed to it, so that it has a result.
        resolved.ok_or_else(|| SnapshotError::Unsupported { needed: "more than was added".to_owned() })
    }

    /// The state of a watched resource.
    fn seen(&self, key: WatchKey) -> Result<Seen, SnapshotError> {
        let unsupported = |kind: &str, name: &str| {
            Err(SnapshotError::Unsupported { needed: format!("{kind} {name}").trim_end().to_owned() })
        };
        Ok(match key {
            WatchKey::Listener(name) => Seen::Listener(observed(self.listener.as_ref(), &name)),
            WatchKey::Routes(routes) => Seen::Routes(observed(self.routes.get(&routes.name), &routes.name)),
            WatchKey::Cluster(name) => Seen::Cluster(name.clone(), observed(self.clusters.get(&name), &name)),
            WatchKey::Endpoints(endpoints) => {
                let seen = observed(self.endpoints.get(&endpoints.name), &endpoints.name);
                Seen::Endpoints(Source::Eds(endpoints), Endpoints::Eds(seen))
            }
            WatchKey::Scopes(name) => return unsupported("scopes", &name),
            WatchKey::ExtensionConfig(config) => {
                return unsupported("the filter configuration", &config.name);
            }
            WatchKey::VirtualHost(name) => return unsupported("the virtual host", &name),
            WatchKey::LbEndpoints(collection) => return unsupported("the collection", &collection.name),
            WatchKey::Host(host) => return unsupported("the addresses of", &host.to_string()),
        })
    }
}

/// The state of a resource that was added or not.
fn observed<T: Resource>(resource: Option<&Arc<T>>, name: &Arc<str>) -> Arc<Observed<T>> {
    Arc::new(match resource {
        Some(resource) => Observed::Present {
            resource: resource.clone(),
            version: Version::default(),
            warning: None,
            source: None,
        },
        None => {
            let about = Subject { type_url: T::TYPE_URL, name: name.clone(), node: Arc::default() };
            let reason =
                WatchError::new(Code::NotFound, Blame::Local, about, "was not added to the snapshot");
            Observed::Absent { reason }
        }
    })
}
