use std::{
    collections::hash_map::RandomState,
    future::Future,
    hash::{BuildHasher, Hasher},
    path::Path,
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};

use super::{
    Client,
    dns::{Dns, Lookups, SystemDns},
    driver::Driver,
    observer::Observer,
    pool::{self, Key},
    registry::{Registry, Role},
    status::Identity,
};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
use crate::{
    config::{ApiType, Bootstrap, ConfigError, Polling},
    engine::Engine,
    escape::debug_as_message,
    protocol::{OnDeletion, Settings},
    resource::{self, Validation},
    transport::{GrpcTransport, Transport, Transports, credentials::CredentialsRegistry},
};

/// Settings of a [`Client`] to be. Made by [`Client::builder`].
///
/// Durations of more than 30 years count as 30 years: `Duration::MAX` means never.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    bootstrap: Arc<Bootstrap>,
    settings: Settings,
    grpc: GrpcTransport,
    transport: Option<Arc<dyn Transport>>,
    dns: Option<Arc<dyn Dns>>,
    scope: String,
    validation: Validation,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
}

/// Why a client could not be built.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// It was built outside of a tokio runtime.
    #[error("a client needs a tokio runtime: build it in a task, or within `Runtime::enter`")]
    NoRuntime,
    /// The bootstrap does not fit the application's [extensions](ClientBuilder::extensions): a certificate provider whose
    /// plugin is registered has a configuration that the plugin cannot use.
    #[error("bootstrap: {0}")]
    Bootstrap(ConfigError),
}

impl ClientBuilder {
    pub(super) fn new(bootstrap: Arc<Bootstrap>) -> Self {
        Self {
            bootstrap,
            settings: Settings::default(),
            grpc: GrpcTransport::default(),
            transport: None,
            dns: None,
            scope: String::new(),
            validation: Validation::default(),
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// Names the client for its operators, who see several of one process: in what [`Client::status`] and the client status
    /// service show (`client_scope`, A71-7), and in metrics (`grpc.target`). gRPC uses the channel's target, or `#server`.
    /// Empty by default. [Shared](Self::shared) clients have a scope in common.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Counts for gRPC's metrics of xDS clients (A78), under the [scope](Self::scope) as `grpc.target`.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = Some(metrics.clone());
        self
    }

    /// Sets which resources the client accepts: by default those that a gRPC client could use.
    ///
    /// With [`Validation::Observe`] it accepts all well-formed ones, and shows each as an
    /// [`Inspected`](crate::resource::Inspected) resource, with the reason why a gRPC client could not use it if there is
    /// one. Such a client disturbs no server with the rejections of what was written for proxies. It has no other watches,
    /// and [resolves](Client::resolve) nothing: these are absent with `FAILED_PRECONDITION`.
    ///
    /// Where both profiles are needed, watch [`Inspected`](crate::resource::Inspected) resources in a client with gRPC's
    /// rules. These watches have streams of their own while there are any, since what is ACKed on the one stream may be NACKed
    /// on the other. [`Client::status`] and metrics leave them out.
    ///
    /// ```no_run
    /// use xdskit::{
    ///     Client, ResourceSelector,
    ///     client::Validation,
    ///     config::Bootstrap,
    ///     resource::{Inspected, Listener},
    /// };
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::builder(Bootstrap::from_env()?).validation(Validation::Observe).build()?;
    ///     let listeners = client.watch_all::<Inspected<Listener>>(ResourceSelector::All).ready().await?;
    ///     println!("{listeners:#?}");
    ///     Ok(())
    /// }
    /// ```
    pub fn validation(mut self, validation: Validation) -> Self {
        self.validation = validation;
        self
    }

    /// Makes it that of the watches that observe, which are not counted.
    pub(super) fn observe(&mut self) {
        self.validation = Validation::Observe;
        #[cfg(feature = "metrics")]
        {
            self.metrics = None;
        }
    }

    /// Sets the variant of the protocol that is spoken with servers whose entry in the bootstrap names none
    /// ([`Server::api_type`](crate::config::Server)): [`ApiType::AggregatedGrpc`] by default. What an application sees is the
    /// same on all, as far as they have the types: an application's own types come over aggregated streams alone, and virtual
    /// hosts in the incremental variants alone; what a variant does not have is absent with `UNIMPLEMENTED`.
    ///
    /// Only aggregated streams keep the order of what a server sends across types, so that it can make before it breaks.
    /// With a stream for each type, or with polling, types come in any order and agree in the end (eventual consistency): for
    /// a moment routes may lead to a cluster that is not there yet. A [resolution](Client::resolve) waits for it.
    pub fn api_type(mut self, api_type: ApiType) -> Self {
        self.settings.api_type = api_type;
        self
    }

    /// Follows the config sources that come with resources: where a listener's routes and a cluster's endpoints are to be had.
    /// Without it, the default and what gRPC does, only `ads` and `self` are accepted, and a resource with another source is
    /// rejected.
    ///
    /// It lets management servers make the client read files, and ask other servers. These are only such as the bootstrap
    /// knows: its [`named_servers`](Bootstrap::named_servers), and its
    /// [`allowed_grpc_services`](Bootstrap::allowed_grpc_services), which say how they are reached. [Resolutions](Client::resolve)
    /// follow sources; a watch asks where its name comes from. Set a [directory](Self::config_source_root) for the files, unless the
    /// servers may choose any that the process can read.
    pub fn follow_config_sources(mut self, follow: bool) -> Self {
        self.settings.follow_config_sources = follow;
        self
    }

    /// Sets the directory in which the files have to be that come with resources as their sources; relative paths begin there. A
    /// resource with a path that leads out of it, be it by `..`, is rejected, and a file that leads out of it by a link is not read. By
    /// default all paths are followed, if [sources are](Self::follow_config_sources) at all. Files of the bootstrap may be anywhere.
    pub fn config_source_root(mut self, directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        self.settings.config_source_root = Some(whole.into());
        self
    }

    /// Sets how often servers are polled that are asked over REST and whose entry in the bootstrap does not say: every 30 s by
    /// default, and up to as much again at random.
    pub fn polling(mut self, polling: Polling) -> Self {
        self.settings.polling = polling;
        self
    }

    /// Sets the size in bytes that no request of the incremental variant exceeds, as far as single names allow: 3 MiB by
    /// default, since servers accept 4 MiB. Longer lists of names are split over several requests; versions of an earlier
    /// stream that do not fit are left out, so that the server sends again what is held.
    pub fn max_request_size(mut self, bytes: usize) -> Self {
        self.settings.max_request_size = bytes;
        self
    }

    /// Sets how long a server may take to send a resource before it counts as non-existent: 15 s by default; doubled for
    /// a server with the feature `resource_timer_is_transient_error` (A57, A88). Lookups of hosts may take as long.
    pub fn resource_timeout(mut self, timeout: Duration) -> Self {
        self.settings.resource_timeout = timeout;
        self
    }

    /// Sets what happens to a resource that its server deletes. By default the server's features decide: it is dropped,
    /// unless they say `ignore_resource_deletion`.
    pub fn on_deletion(mut self, policy: OnDeletion) -> Self {
        self.settings.on_deletion = Some(policy);
        self
    }

    /// Sets for how long a stream without subscriptions is kept open: 30 s by default.
    pub fn idle_stream_timeout(mut self, time: Duration) -> Self {
        self.settings.idle_stream_timeout = time;
        self
    }

    /// Sets the largest message that is accepted from a server, in bytes: 256 MiB by default. A larger one ends the
    /// stream; everything received before stays. Larger files are not read. Has no effect on a [`transport`](Self::transport) of one's own.
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.grpc = self.grpc.with_max_message_size(bytes);
        self
    }

    /// Sets the interval of HTTP/2 keepalive pings, 30 s by default, and how long the answer may take, 10 s by default.
    /// A server that finds them too many gets them at longer intervals.
    pub fn keepalive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.settings.keepalive = interval;
        self.grpc = self.grpc.with_keepalive_timeout(timeout);
        self
    }

    /// Sets how long it may take to connect, TLS included: 20 s by default. Has no effect on a
    /// [`transport`](Self::transport) of one's own.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.grpc = self.grpc.with_connect_timeout(timeout);
        self
    }

    /// Sets the implementations of credentials that the bootstrap names besides the built-in ones: none by default. Has no
    /// effect on a [`transport`](Self::transport) of one's own.
    pub fn credentials(mut self, credentials: CredentialsRegistry) -> Self {
        self.grpc = self.grpc.with_credentials(credentials);
        self
    }

    /// Connects by other means than gRPC over HTTP/2.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Looks up the hosts of `LOGICAL_DNS` clusters by other means than the system's resolver.
    pub fn dns(mut self, dns: impl Dns) -> Self {
        self.dns = Some(Arc::new(dns));
        self
    }

    /// Sets after how long a host is looked up again whose addresses do not say for how long they hold, which is also the
    /// least time between two lookups of one host: 30 s by default.
    pub fn dns_refresh(mut self, interval: Duration) -> Self {
        self.settings.dns_refresh = interval;
        self
    }

    /// Sets for how long a cluster that its server has deleted stays in what a target resolves to while the routes still
    /// lead to it: 1 s by default. Routes and clusters come in messages of their own, and the routes that no longer need
    /// the cluster may be a little late. It holds for deleted endpoints and route configurations, too, and for as long new
    /// routes wait for what is missing by news that may be older than they are.
    /// Where types are polled over REST, choose more than twice the `refresh_delay`, or they may be later than that.
    pub fn deletion_grace(mut self, time: Duration) -> Self {
        self.settings.deletion_grace = time;
        self
    }

    /// Says which extensions the application handles beside those that the crate knows. Resources that hold others are
    /// rejected, or accepted without them where the rules say so.
    pub fn extensions(mut self, registry: resource::Registry) -> Self {
        self.settings.registry = Arc::new(registry);
        self
    }

    /// Builds the client and spawns its driver on the current tokio runtime.
    ///
    /// # Errors
    /// There is no current tokio runtime, or the bootstrap does not fit the extensions.
    pub fn build(self) -> Result<Client, BuildError> {
        let (client, driver) = self.build_with_driver()?;
        client.runtime.spawn(driver);
        Ok(client)
    }

    /// Joins the client of the current tokio runtime that was built from an equal bootstrap with equal settings, or builds one
    /// that others can join. All who do so share its streams, and what it holds.
    ///
    /// Each runtime has a client of its own, which ends with it: two runtimes of a process share nothing, so that none can end
    /// or hold up the client of another. This goes for tests with `#[tokio::test]`, each of which has a runtime. To share one
    /// client among runtimes, pass clones of it. Apart from that, a shared client ends when the last handle or watch of all who
    /// share it is dropped, or when the last of them [shuts it down](Client::shutdown).
    ///
    /// With a [`transport`](Self::transport) or [`dns`](Self::dns) of one's own it is [`build`](Self::build), since nobody can
    /// tell whether another is equal.
    ///
    /// ```no_run
    /// use xdskit::{Client, config::Bootstrap};
    ///
    /// fn resolve() -> Result<(), Box<dyn std::error::Error>> {
    ///     // In one part of an application, and in a library that it uses:
    ///     let shop = Client::builder(Bootstrap::from_env()?).shared()?.resolve("xds:///shop");
    ///     let cart = Client::builder(Bootstrap::from_env()?).shared()?.resolve("xds:///cart"); // on the same stream
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// There is no current tokio runtime, or the bootstrap does not fit the extensions.
    pub fn shared(self) -> Result<Client, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let Self { bootstrap, settings, grpc, transport: None, dns: None, scope, validation, .. } = &self
        else {
            return self.build();
        };
        let key = Key {
            runtime: runtime.id(),
            bootstrap: bootstrap.clone(),
            settings: settings.clone(),
            grpc: grpc.clone(),
            scope: scope.clone(),
            validation: *validation,
            #[cfg(feature = "metrics")]
            metrics: self.metrics.clone(),
        };
        let (registry, share) = pool::PROCESS.share(key, || self.build().map(|client| client.registry))?;
        Ok(Client { registry, runtime, share: Some(share) })
    }

    /// Builds the client and hands over its driver: the future that does all the work. It must be polled, on a tokio
    /// runtime with I/O and time enabled, and is ready when the client has ended. If it is dropped, the client ends.
    ///
    /// ```no_run
    /// use xdskit::{Client, config::Bootstrap};
    ///
    /// async fn run(bootstrap: Bootstrap) -> Result<(), Box<dyn std::error::Error>> {
    ///     let (client, driver) = Client::builder(bootstrap).build_with_driver()?;
    ///     let driver = tokio::spawn(driver);
    ///     drop(client);
    ///     driver.await?; // Ends with the last handle.
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// There is no current tokio runtime: the callbacks of [`Client::on_change`] run on it. Or the bootstrap does not fit the
    /// extensions.
    pub fn build_with_driver(
        self,
    ) -> Result<(Client, impl Future<Output = ()> + Send + 'static), BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let (ending, ended) = watch::channel(());
        let role = match self.validation {
            Validation::Grpc => Role::Client(Box::new(Observer::new(self.clone(), ended))),
            Validation::Observe => Role::Observer { client: None },
        };
        let (registry, driver) = self.build_part(role)?;
        let driver = async move {
            let _ending = ending;
            driver.await;
        };
        Ok((Client { registry, runtime, share: None }, driver))
    }

    /// Builds a client, or the part of one with watches that observe.
    pub(super) fn build_part(
        self,
        role: Role,
    ) -> Result<(Arc<Registry>, impl Future<Output = ()> + Send + 'static), BuildError> {
        let (commands, received) = mpsc::unbounded_channel();
        let identity = Identity::new(self.bootstrap.node(), &self.scope);
        let transports = Transports::new(self.grpc, self.transport);
        let dns = self.dns.unwrap_or_else(|| Arc::new(SystemDns));
        let lookups = Lookups::new(dns, self.settings.resource_timeout);
        let bootstrap = self.bootstrap.plug(&self.settings.registry).map_err(BuildError::Bootstrap)?;
        let engine = Engine::new(bootstrap.clone(), self.settings, random_seed());
        let driver = Driver::new(engine, (transports, lookups), received);
        #[cfg(feature = "metrics")]
        let driver = driver.with_recorder(self.metrics.map(|metrics| metrics.recorder(&self.scope)));
        Ok((Registry::new(commands, identity, (bootstrap, role)), driver.run()))
    }
}

debug_as_message!(BuildError);

/// The standard library seeds its hash maps from the system's random source.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}
