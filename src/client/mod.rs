//! The client: watches for an application, kept up to date by one task.
//!
//! ```text
//!   Client ── watch ──▶ Registry ── Command ──▶ driver: engine.subscribe, handle_*, poll_output
//!                          │                      │  ▲
//!   Watch ◀── wakes ──── View ◀──── Notify ───────┘  └─ Input ── transport
//! ```
//!
//! A [`Client`] and its watches only record interest and look at the latest state; all else happens in the driver, which
//! waits for no user. See [`Watch`], [`WatchAll`] and [`Client::on_change`] for the three ways to look at resources, and
//! [`Resolution`] for the whole tree that a target leads to. [`Client::status`] shows an operator all of it.

mod builder;
mod changes;
mod cluster_subscription;
mod dns;
mod driver;
mod grpc_status;
mod members;
mod observer;
mod on_change;
mod pool;
mod registry;
mod resolution;
mod resource_selector;
mod slot;
mod status;
mod watch;
mod watcher;

use std::{fmt, sync::Arc};

use tokio::runtime::Handle;

pub use self::{
    builder::{BuildError, ClientBuilder},
    changes::{Changes, MemberChange},
    cluster_subscription::ClusterSubscription,
    dns::{Dns, Lookup, SystemDns},
    members::{Members, WatchAll},
    on_change::ChangeGuard,
    resolution::Resolution,
    resource_selector::{ResourceSelector, WatchName},
    status::{ClientStatus, ResourceStatus, ServerStatus, UpdateError},
    watch::Watch,
};
pub use crate::{
    cache::ResourceState,
    protocol::{ConnectionState, OnDeletion},
    resolve::Addresses,
    resource::Validation,
};

#[cfg(feature = "csds")]
pub(crate) use self::status::WeakClient;
#[cfg(feature = "cli")]
pub(crate) use self::status::table;
use self::{pool::Share, registry::Registry};
use crate::{
    config::{Bootstrap, Target},
    observed::Observed,
    resource::Resource,
};

/// A client of the management servers that a [`Bootstrap`] names. Clones are handles of the same client.
///
/// Its streams are opened when something is watched. It ends when the last handle, watch and [`ChangeGuard`] is dropped,
/// or by [`shutdown`](Self::shutdown).
///
/// ```no_run
/// use xdskit::{Client, config::Bootstrap, resource::Cluster};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::builder(Bootstrap::from_env()?).build()?;
///     let mut shop = client.watch::<Cluster>("shop");
///     while let Some(seen) = shop.next().await {
///         println!("{seen:?}");
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Client {
    registry: Arc<Registry>,
    /// Where callbacks run.
    runtime: Handle,
    /// The part in it, if it is shared.
    share: Option<Arc<Share>>,
}

impl Client {
    /// Starts a client with the defaults.
    pub fn builder(bootstrap: impl Into<Arc<Bootstrap>>) -> ClientBuilder {
        ClientBuilder::new(bootstrap.into())
    }

    /// What the client was built from, with the certificate providers of [registered](ClientBuilder::extensions) plugins
    /// parsed: what the instances mean that resources name.
    pub fn bootstrap(&self) -> &Bootstrap {
        self.registry.bootstrap()
    }

    /// Watches the resource of this name, an old-style or an `xdstp://` one, given as text or as a
    /// [`ResourceName`](crate::name::ResourceName).
    ///
    /// It records interest and returns at once. It cannot fail: what stands in the way of the resource, a name that
    /// cannot be parsed included, is seen as [`Observed::Absent`]. A watch of a name that is watched already joins it,
    /// sees the current state first, and sends nothing to the server.
    pub fn watch<T: Resource>(&self, name: impl WatchName) -> Watch<T> {
        Watch::new(self.registry_of::<T>().resources(resource_selector::one(&name)), self.share.clone())
    }

    /// Watches many resources of a type at once, all of them or the members of a collection; the items carry their names.
    ///
    /// ```no_run
    /// use xdskit::{Client, ResourceSelector, resource::Cluster};
    ///
    /// fn watch(client: &Client) {
    ///     let all = client.watch_all::<Cluster>(ResourceSelector::All);
    ///     let shop = client.watch_all::<Cluster>("xdstp://mesh.example/envoy.config.cluster.v3.Cluster/shop/*");
    /// }
    /// ```
    pub fn watch_all<T: Resource>(&self, names: impl Into<ResourceSelector>) -> WatchAll<T> {
        WatchAll::new(self.registry_of::<T>().resources(names.into().into()), self.share.clone())
    }

    /// Resolves a target, `xds:///service` or `xds://authority/service`, to the tree of listener, routes, clusters and
    /// endpoints that it leads to.
    ///
    /// It records interest and returns at once. It cannot fail: a target that cannot be read, or whose authority is not in
    /// the bootstrap, is seen as an error. The resolution of a target that is resolved already joins that. A [`Target`] may
    /// say by which host its virtual host is chosen, if that is not the service's name, and by which headers the scope of its
    /// routes, where the server has such.
    ///
    /// ```no_run
    /// use xdskit::{Client, Target, WatchError};
    ///
    /// async fn resolve(client: &Client) -> Result<(), WatchError> {
    ///     let shop = client.resolve("xds:///shop").ready().await?;
    ///     let same = client.resolve(Target::new("xds:///shop").with_authority("shop.example.com"));
    ///     Ok(())
    /// }
    /// ```
    pub fn resolve(&self, target: impl Into<Target>) -> Resolution {
        Resolution::new(self.registry.resolution(target.into()), self.share.clone())
    }

    /// Calls back with the state of a resource, now if it is known, and whenever it changes, until the guard is
    /// dropped.
    ///
    /// The calls are made one after the other in a task of their own on the runtime that the client was built in: a
    /// slow callback skips states and holds up nobody but that task, which must not be blocked for long. If it panics,
    /// the task ends, and with it the watch.
    ///
    /// ```no_run
    /// use xdskit::{Client, client::ChangeGuard, resource::Cluster};
    ///
    /// fn print_changes(client: &Client) -> ChangeGuard {
    ///     client.on_change::<Cluster, _>("shop", |seen| println!("{seen:?}"))
    /// }
    /// ```
    pub fn on_change<T, F>(&self, name: impl WatchName, callback: F) -> ChangeGuard
    where
        T: Resource,
        F: FnMut(&Arc<Observed<T>>) + Send + 'static,
    {
        on_change::call(&self.runtime, self.watch(name), callback)
    }

    /// Calls back with all members of a wildcard or a collection, now if something is known of it, and whenever that changes,
    /// until the guard is dropped. What [`on_change`](Self::on_change) says of the calls goes for these, too.
    ///
    /// ```no_run
    /// use xdskit::{Client, ResourceSelector, client::ChangeGuard, resource::Cluster};
    ///
    /// fn count(client: &Client) -> ChangeGuard {
    ///     client.on_change_all::<Cluster, _>(ResourceSelector::All, |members| match members.absence() {
    ///         Some(reason) => println!("no clusters: {reason}"),
    ///         None => println!("{} clusters", members.len()),
    ///     })
    /// }
    /// ```
    pub fn on_change_all<T, F>(&self, names: impl Into<ResourceSelector>, callback: F) -> ChangeGuard
    where
        T: Resource,
        F: FnMut(&Arc<Members<T>>) + Send + 'static,
    {
        on_change::call(&self.runtime, self.watch_all(names), callback)
    }

    /// The part of the client that has the streams for the type's profile of validation.
    fn registry_of<T: Resource>(&self) -> Arc<Registry> {
        match T::VALIDATION {
            Validation::Grpc => self.registry.clone(),
            Validation::Observe => observer::of(&self.registry, &self.runtime),
        }
    }

    /// Ends the client and waits until its streams are given up. All of its watches end, also those that are started
    /// later.
    ///
    /// A client that is [shared](ClientBuilder::shared) ends with the last of those who share it: for any other, this gives
    /// up its share and returns at once.
    ///
    /// # Cancel safety
    /// The client ends even if the future is dropped once it was polled.
    pub async fn shutdown(&self) {
        if self.share.as_ref().is_none_or(|share| share.leave()) {
            self.registry.shutdown().await;
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("registry", &self.registry).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
