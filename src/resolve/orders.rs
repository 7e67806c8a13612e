//! What goes into a resolver, and what comes out of it.

use std::{sync::Arc, time::Duration};

use super::{
    endpoints::{Endpoints, Source},
    reference::Reference,
    snapshot::Snapshot,
};
use crate::{
    error::WatchError,
    lrs::Loads,
    observed::{ErasedMembers, Observed},
    resource::{Cluster, ExtensionConfig, Listener, RouteConfiguration, VirtualHost, cluster::HostPort},
};

/// The result of a resolution: the tree, or the reason why there is none.
pub(crate) type Resolved = Result<Arc<Snapshot>, WatchError>;

/// The target of a resolution, and the client that resolves it.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// The target as it was given.
    pub(crate) target: Arc<str>,
    /// The host that chooses the virtual host.
    pub(crate) authority: Arc<str>,
    /// The headers that choose the scope. In the order of the target; of several values of a header the first counts.
    pub(crate) headers: Arc<[(Arc<str>, Arc<str>)]>,
    /// The name of the listener.
    pub(crate) listener: Arc<str>,
    /// The id of the node, for errors.
    pub(crate) node_id: Arc<str>,
    /// The load counters of the client, for snapshots.
    pub(crate) loads: Arc<Loads>,
}

/// The periods for which a resolution waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// For the replacement of a deleted resource in use.
    pub(crate) grace: Duration,
    /// For scopes. The does-not-exist time: a wildcard has no timer of its own.
    pub(crate) timeout: Duration,
}

/// A resource or collection that a resolution watches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WatchKey {
    /// A listener.
    Listener(Arc<str>),
    /// All scopes of a collection, or of the server by `*`.
    Scopes(Arc<str>),
    /// The configuration of an HTTP filter.
    ExtensionConfig(Reference),
    /// A route configuration.
    Routes(Reference),
    /// A virtual host on demand.
    VirtualHost(Arc<str>),
    /// A cluster.
    Cluster(Arc<str>),
    /// The endpoints of a cluster.
    Endpoints(Reference),
    /// The endpoints of a locality, in a collection of their own.
    LbEndpoints(Reference),
    /// The addresses of a host.
    Host(HostPort),
}

/// An update of a watched resource or collection.
///
/// Only updates that may be those of several watches have the key of their watch: a resolver has one listener, one route
/// configuration and one virtual host at a time.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Listener(Arc<Observed<Listener>>),
    Scopes(Arc<ErasedMembers>),
    ExtensionConfig(Reference, Arc<Observed<ExtensionConfig>>),
    Routes(Arc<Observed<RouteConfiguration>>),
    VirtualHost(Arc<Observed<VirtualHost>>),
    Cluster(Arc<str>, Arc<Observed<Cluster>>),
    Endpoints(Source, Endpoints),
    LbEndpoints(Reference, Arc<ErasedMembers>),
}

/// An order to the owner of a resolution.
///
/// Orders are executed in their order: the watches of a new tree begin before those of the old one end.
#[derive(Debug)]
pub(crate) enum Order {
    /// Begin a watch.
    Watch(WatchKey),
    /// End a watch.
    Unwatch(WatchKey),
    /// Pass a result on to the watchers of the target.
    Publish(Resolved),
}

impl WatchKey {
    /// The name of the wildcard. No collection has this name, since it would have to be an `xdstp:` name.
    pub(crate) const ALL: &str = "*";
}

impl From<&Source> for WatchKey {
    fn from(source: &Source) -> Self {
        match source {
            Source::Eds(reference) => Self::Endpoints(reference.clone()),
            Source::Host(address) => Self::Host(address.clone()),
        }
    }
}
