//! The client: watches and resolutions of an application, kept up to date by one task.
//!
//! ```text
//!   Client ── watch ──▶ Registry ── Command ──▶ driver: engine.subscribe, handle_*, poll_output
//!                          │                      │  ▲
//!   Watch ◀── wakes ── SharedWatch ◀─── Notify ────┘  └─ Input ── transport
//! ```
//!
//! A [`Client`] and its watches only register subscriptions and read the latest state; the protocol is executed by the driver,
//! a task that never waits for the application. [`Watch`], [`WatchAll`] and [`Client::on_change`] are the three forms of watching
//! resources; a [`Resolution`] provides the whole tree of a target. [`Client::status`] reports the state of all resources and
//! servers to an operator.

mod batch_options;
mod batches;
mod build_error;
mod builder;
#[cfg(feature = "tls")]
mod certificates;
mod clock;
mod cluster_subscription;
mod command;
#[cfg(feature = "tls")]
mod crypto;
mod debug;
mod dns;
mod driver;
mod extensions;
mod grpc_status;
mod identity;
mod load_driver;
mod members;
mod observer;
mod on_change;
mod pool;
pub mod recorder;
mod recording;
mod registry;
mod resolution;
mod resource_selector;
mod slot;
mod status;
mod unapplied;
mod watch;
mod watcher;

use std::{borrow::Cow, sync::Arc};

use tokio::runtime::Handle;
use tracing::warn;

pub use self::{
    batch_options::{BatchOptions, Keep},
    batches::{Added, Batch, BatchAnswered, BatchLimits, BatchSubscriptions, Batches},
    build_error::BuildError,
    builder::ClientBuilder,
    cluster_subscription::ClusterSubscription,
    dns::{Dns, Lookup, SystemDns},
    members::{Changes, MemberChange, Members, MembersIter, WatchAll},
    on_change::ChangeGuard,
    resolution::Resolution,
    resource_selector::{ResourceSelector, WatchName},
    status::{ClientStatus, LastLoadReport, LoadReportStatus, ResourceStatus, ServerStatus, UpdateError},
    unapplied::NotAppliedError,
    watch::Watch,
};
pub use crate::{
    cache::ResourceState,
    engine::{BatchOutcome, InitialResources, OnDeletion},
    protocol::ConnectionState,
    resolve::Addresses,
    resource::Validation,
};

#[cfg(feature = "tool-support")]
pub(crate) use self::registry::any_types::check as check_type_url;
#[cfg(feature = "csds")]
pub(crate) use self::status::WeakClient;
#[cfg(feature = "tool-support")]
pub(crate) use self::status::table;
use self::{
    pool::Share,
    registry::{Registry, any_types, consumers},
};
#[cfg(feature = "tool-support")]
use crate::resource::ResourceType;
#[cfg(all(feature = "channel", feature = "tls"))]
use crate::tls::{Crypto, Providers};
use crate::{
    config::{ApiType, Bootstrap, Server, Target},
    lrs::LoadReporter,
    name::ResourceName,
    observed::Observed,
    resource::{AnyMessage, Cluster, Resource},
};

/// A client of the management servers of a [`Bootstrap`]. Clones are handles of the same client.
///
/// It opens streams when the first resource is watched. It ends when the last handle, watch and [`ChangeGuard`] is dropped,
/// or by [`shutdown`](Self::shutdown).
///
/// ```no_run
/// use xdskit::{Client, config::Bootstrap, resource::Cluster};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::builder(Bootstrap::from_env()?).build()?;
///     let mut shop = client.watch::<Cluster>("shop");
///     while let Some(state) = shop.next().await {
///         println!("{state:?}");
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Client {
    /// The watches.
    registry: Arc<Registry>,
    /// The runtime of the callbacks.
    runtime: Handle,
    /// The share of this handle, if the client is shared.
    share: Option<Arc<Share>>,
}

impl Client {
    /// A builder of a client for this bootstrap, with the default settings.
    pub fn builder(bootstrap: impl Into<Arc<Bootstrap>>) -> ClientBuilder {
        ClientBuilder::new(bootstrap.into())
    }

    /// The bootstrap of the client. Its certificate providers of [registered](ClientBuilder::extensions) plugins are parsed, so
    /// that the instance names in resources can be looked up in it.
    pub fn bootstrap(&self) -> &Bootstrap {
        self.registry.bootstrap()
    }

    /// Watches the resource of this name, an old-style or an `xdstp://` one, given as text or as a
    /// [`ResourceName`].
    ///
    /// It subscribes to the resource and returns at once. It cannot fail: any error, including a name that cannot be parsed, is
    /// reported by the watch as [`Observed::Absent`]. A further watch of the same name joins the existing subscription: it yields
    /// the current state first, and nothing is sent to the server.
    pub fn watch<T: Resource>(&self, name: impl WatchName) -> Watch<T> {
        Watch::new(self.registry_of::<T>().resources(resource_selector::one(&name)), self.share.clone())
    }

    /// Watches many resources of a type: all of them, or the members of a collection. They are identified by their names.
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

    /// Watches one resource of a type that is known at run time alone, by its type URL. Its values are the messages as they were sent.
    ///
    /// The protocol's own types are refused with `FAILED_PRECONDITION`, and so is a type URL that this client watches as a typed resource,
    /// and more than 256 different ones of a process. As types of an application they need an aggregated stream.
    ///
    /// ```no_run
    /// use xdskit::Client;
    ///
    /// async fn length(client: &Client) -> Option<usize> {
    ///     let mut banner = client.watch_any("type.googleapis.com/shop.Banner", "sale");
    ///     banner.ready().await.ok().map(|message| message.bytes().len())
    /// }
    /// ```
    pub fn watch_any(&self, type_url: &str, name: impl WatchName) -> Watch<AnyMessage> {
        let names = resource_selector::one(&name);
        Watch::new(any_types::watch(&self.registry, type_url, names), self.share.clone())
    }

    /// Watches many resources of a type that is known at run time alone, as [`watch_any`](Self::watch_any) does.
    pub fn watch_all_any(&self, type_url: &str, names: impl Into<ResourceSelector>) -> WatchAll<AnyMessage> {
        let names = names.into().into();
        WatchAll::new(any_types::watch(&self.registry, type_url, names), self.share.clone())
    }

    /// The changes of resources in batches, for a program with a store of its own: the answer to each response waits until the program
    /// has accepted it, or rejected some of its resources; see [`Batches`].
    ///
    /// It subscribes to all resources, to the members of a collection or to one resource by its name, and returns at once. The first batch has what the client holds already. A
    /// response waits for all consumers that it concerns, up to a [limit](ClientBuilder::batch_limits); nothing else waits for it.
    pub fn batches<T: Resource>(&self, names: impl Into<ResourceSelector>) -> Batches<T> {
        self.batches_with(names, BatchOptions::new())
    }

    /// The changes of resources in batches, with options: what the client keeps of the resources, and what the program has already.
    ///
    /// Names can be added and removed later ([`Batches::subscribe`]).
    pub fn batches_with<T: Resource>(
        &self,
        names: impl Into<ResourceSelector>,
        options: BatchOptions,
    ) -> Batches<T> {
        let names = resource_selector::some(names.into());
        Batches::new(consumers::begin(&self.registry_of::<T>(), names, options), self.share.clone())
    }

    /// Watches a resource of a type that is known at run time, as one of `T`.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub fn watch_type<T: Resource>(&self, ty: ResourceType, name: impl WatchName) -> Watch<T> {
        let names = resource_selector::one(&name);
        Watch::new(self.registry_of::<T>().resources_of_type(ty, names), self.share.clone())
    }

    /// Watches many resources of a type that is known at run time, as those of `T`.
    #[cfg(feature = "tool-support")]
    #[doc(hidden)]
    pub fn watch_all_of_type<T: Resource>(
        &self,
        ty: ResourceType,
        names: impl Into<ResourceSelector>,
    ) -> WatchAll<T> {
        let names = names.into();
        WatchAll::new(self.registry_of::<T>().resources_of_type(ty, names.into()), self.share.clone())
    }

    /// Resolves a target, `xds:///service` or `xds://authority/service`, to the tree of listener, routes, clusters and
    /// endpoints that it leads to.
    ///
    /// It subscribes to the resources and returns at once. It cannot fail: any error, including a malformed target and an
    /// authority that is not in the bootstrap, is reported by the resolution. A further resolution of an equal target joins the
    /// existing one. A [`Target`] can set the host that selects the virtual host, by default the name of the service, and the
    /// headers that select the scope of the routes (SRDS).
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

    /// The reporter of the load of a cluster, for applications that balance by themselves. It subscribes to the cluster, whose
    /// configuration decides whether its load is reported, and to which management server; see [`lrs`](crate::lrs). A
    /// `Channel` (feature `channel`) reports its load by itself.
    ///
    /// It cannot fail: it counts nothing as long as the cluster does not ask for reports.
    ///
    /// ```no_run
    /// use xdskit::{Client, config::Locality, lrs::Outcome};
    ///
    /// fn call(client: &Client) {
    ///     let shop = client.load_reporter("shop");
    ///     let zone = shop.locality(&Locality::new("europe-west1", "europe-west1-b", ""));
    ///     let call = zone.call_started();
    ///     call.finish(Outcome::Success, None);
    /// }
    /// ```
    pub fn load_reporter(&self, cluster: &str) -> LoadReporter {
        let name = ResourceName::canonicalize(cluster).unwrap_or(Cow::Borrowed(cluster));
        let reporter = self.registry.loads().reporter(&name);
        reporter.keep(self.watch::<Cluster>(cluster));
        reporter
    }

    /// The reporter of the load of a cluster that is not configured by the management server: it is reported to this server of the
    /// [bootstrap](Self::bootstrap), under the name of the cluster and that of a service, if there is one.
    ///
    /// Nothing is reported to a server that is not in the bootstrap, or that has no streams.
    pub fn load_reporter_to(&self, server: &Server, cluster: &str, service: Option<&str>) -> LoadReporter {
        let is_known = |known: &&Arc<Server>| known.has_connection_of(server);
        let known =
            self.bootstrap().servers().find(is_known).filter(|server| server.api_type != Some(ApiType::Rest));
        let reporter = match known {
            Some(known) => self.registry.loads().reporter_to(known, cluster, service),
            None => {
                warn!(server = %server.uri, "load is not reported: the server is not in the bootstrap, or has no streams");
                self.registry.loads().unreported()
            }
        };
        reporter.keep(self.clone());
        reporter
    }

    /// The counters that load reports are made of.
    #[cfg(test)]
    pub(crate) fn listed_load_cells(&self) -> usize {
        self.registry.loads().listed()
    }

    /// The value of a type that the users of the client share, which is made with the bootstrap of the client if there is none.
    /// The value lives as long as the client. `make` must not use the client.
    #[cfg(feature = "channel")]
    pub(crate) fn extension<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Bootstrap) -> T) -> Arc<T> {
        self.registry.extensions().get_or_insert_with(|| make(self.bootstrap()))
    }

    /// The cryptography of the client. One that was built without any takes the default that the process has by now.
    #[cfg(all(feature = "channel", feature = "tls"))]
    pub(crate) fn crypto(&self) -> Crypto {
        let chosen = self.registry.extensions().get::<Crypto>();
        let chosen = chosen.filter(|crypto| crypto.provider().is_ok());
        chosen.map_or_else(|| Crypto::choose(None), |crypto| (*crypto).clone())
    }

    /// The certificate providers of the bootstrap with a cryptography, which channels and servers share.
    #[cfg(all(feature = "channel", feature = "tls"))]
    pub(crate) fn certificate_providers(&self, crypto: &Crypto) -> Arc<Providers> {
        let make = || certificates::CertificateInstances::new(Arc::default());
        self.registry.extensions().get_or_insert_with(make).of(self.bootstrap(), crypto)
    }

    /// The runtime of the client.
    #[cfg(feature = "channel")]
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Calls back with the current state of a resource, if it is known, and with each later one, until the guard is dropped.
    ///
    /// The calls are sequential, in a separate task on the runtime in which the client was built. A slow callback skips states
    /// and delays nothing else, but must not block its thread for long. If it panics, its watch ends, with an error in the log; the
    /// client and its other watches go on.
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

    /// Calls back with the current members of a wildcard or a collection, if they are known, and after each change of them, until
    /// the guard is dropped. The calls are made as those of [`on_change`](Self::on_change).
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

    /// The part of the client with the streams for the type's validation profile.
    fn registry_of<T: Resource>(&self) -> Arc<Registry> {
        match T::VALIDATION {
            Validation::Grpc => self.registry.clone(),
            Validation::Observe => observer::of(&self.registry, &self.runtime),
        }
    }

    /// Ends the client and waits until its streams are closed. All of its watches end, including those that are started later. They
    /// keep their latest states: `ready` of a watch returns the last known resource, and `CANCELLED` if nothing was known.
    ///
    /// A [shared](ClientBuilder::shared) client ends with the last shutdown of its sharers; any earlier one gives up a share and
    /// returns at once.
    ///
    /// # Cancel safety
    /// Once the future was polled, the client ends even if the future is dropped.
    pub async fn shutdown(&self) {
        if self.share.as_ref().is_none_or(|share| share.leave()) {
            self.registry.shutdown().await;
            observer::ended(&self.registry).await;
        }
    }
}

#[cfg(test)]
mod tests;
