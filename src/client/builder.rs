//! The builder of clients.

use std::{future::Future, path::Path, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};
#[cfg(feature = "tls")]
use tokio_rustls::rustls::crypto::CryptoProvider;

use super::{
    BatchLimits, BuildError, Client,
    clock::random_seed,
    dns::{Dns, Lookups, SystemDns},
    driver::Driver,
    identity::Identity,
    load_driver::LoadDriver,
    observer::{self, Observer},
    pool::{self, PoolKey},
    recorder::Recorder,
    recording::Recorders,
    registry::{Registry, Role},
};
#[cfg(feature = "tls")]
use super::{certificates::CertificateInstances, crypto};
#[cfg(feature = "metrics")]
use crate::metrics::Metrics;
#[cfg(feature = "tls")]
use crate::transport::credentials::RevocationLists;
use crate::{
    background::supervise,
    config::{ApiType, Bootstrap, Polling, bounded},
    engine::{Engine, InitialResources, OnDeletion, Settings, check_initial_resources},
    lrs::Reporting,
    protocol::encode_node,
    resource::{self, Validation, matcher::RegexLimits},
    transport::{GrpcTransport, MetadataSource, Transport, Transports, credentials::CredentialsRegistry},
};

/// The settings for building a [`Client`]. Created by [`Client::builder`].
///
/// Durations of more than 30 years are shortened to 30 years, so `Duration::MAX` means never.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct ClientBuilder {
    /// The servers, and the node that the client sends to them. A client parses the certificate providers in a copy of its own.
    bootstrap: Arc<Bootstrap>,
    /// Times and limits. The engine limits durations when it takes them.
    settings: Settings,
    /// Settings of the transport of this crate.
    grpc: GrpcTransport,
    /// The transport of the application, if it has one. It replaces `grpc`, whose settings have no effect then.
    transport: Option<Arc<dyn Transport>>,
    /// The resolver of hosts of the application, if it has one.
    dns: Option<Arc<dyn Dns>>,
    /// The name of the client for the status service.
    scope: String,
    /// Which resources are valid.
    validation: Validation,
    /// Where the client records metrics.
    recorders: Recorders,
}

impl ClientBuilder {
    /// A builder with defaults.
    pub(super) fn new(bootstrap: Arc<Bootstrap>) -> Self {
        Self {
            bootstrap,
            settings: Settings::default(),
            grpc: GrpcTransport::default(),
            transport: None,
            dns: None,
            scope: String::new(),
            validation: Validation::default(),
            recorders: Recorders::default(),
        }
    }

    /// Sets a name that distinguishes the clients of a process: in [`Client::status`], in the client status service
    /// (`client_scope`) and in metrics (`grpc.target`). gRPC uses the target of the channel, or `#server`. Empty by
    /// default. [Shared](Self::shared) clients have a common scope.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = scope.into();
        self
    }

    /// Records gRPC's metrics of xDS clients (A78), with the [scope](Self::scope) as `grpc.target`.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.recorders.metrics = Some(metrics.clone());
        self
    }

    /// Adds a recorder of the metrics of the client, for a metrics library other than OpenTelemetry. Their label `grpc.target` is
    /// the [scope](Self::scope). Builders with the same recorder, not an equal one, may [share](Self::shared) a client.
    pub fn recorder(mut self, recorder: Arc<dyn Recorder>) -> Self {
        self.recorders.others.push(recorder);
        self
    }

    /// Sets the profile of validation: by default, resources that a gRPC client could not use are rejected.
    ///
    /// With [`Validation::Observe`] the client accepts all well-formed resources and provides each as an
    /// [`Inspected`](crate::resource::Inspected) one, with the reason why a gRPC client could not use it, if there is one.
    /// Such a client never sends a NACK for a resource that was written for proxies. Other watches and
    /// [resolutions](Client::resolve) of it are absent with `FAILED_PRECONDITION`.
    ///
    /// For both profiles in one client, watch [`Inspected`](crate::resource::Inspected) resources in a client with gRPC's
    /// rules. Such watches use separate streams, since a resource may be ACKed in one profile and NACKed in the other.
    /// [`Client::status`] and metrics do not include them.
    ///
    /// ```no_run
    /// use xdskit::{Bootstrap, Client, ResourceSelector, client::Validation};
    /// use xdskit::resource::{Inspected, Listener};
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

    /// Sets the variant of the protocol for servers without one in the bootstrap
    /// ([`Server::api_type`](crate::config::Server)): [`ApiType::AggregatedGrpc`] by default. The variants provide
    /// the same states to an application, but differ in the types that they support: types of the application need an
    /// aggregated stream, and virtual hosts an incremental variant. Resources of unsupported types are absent with
    /// `UNIMPLEMENTED`.
    ///
    /// Only an aggregated stream preserves the order of updates across types, which allows make-before-break. With a stream
    /// for each type, or with polling, types are eventually consistent: routes may briefly refer to a cluster that was not
    /// received yet. A [resolution](Client::resolve) waits for such a cluster.
    pub fn api_type(mut self, api_type: ApiType) -> Self {
        self.settings.protocol.api_type = api_type;
        self
    }

    /// Sets whether the config sources in resources are followed: those of the routes of a listener and of the endpoints of a cluster. By
    /// default, as in gRPC, only `ads` and `self` are accepted, and a resource with another source is rejected.
    ///
    /// Followed sources allow management servers to direct the client to files and to other servers. The latter are limited to the
    /// [`named_servers`](Bootstrap::named_servers) and [`allowed_grpc_services`](Bootstrap::allowed_grpc_services) of the bootstrap, which
    /// contain their addresses and credentials. Only [resolutions](Client::resolve) follow sources; a watch uses the servers of its name.
    /// Set a [directory](Self::config_source_root) for the files, unless the servers are trusted with any file that the process can read.
    pub fn follow_config_sources(mut self, follow: bool) -> Self {
        self.settings.follow_config_sources = follow;
        self
    }

    /// Sets the directory for the files in config sources of resources; relative paths start there. A resource with a path
    /// outside of it, also by `..`, is rejected, and a file outside of it is not read through a link. By default all paths
    /// are permitted, if sources are [followed](Self::follow_config_sources). Files of the bootstrap may be anywhere.
    pub fn config_source_root(mut self, directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref();
        let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        self.settings.config_source_root = Some(whole.into());
        self
    }

    /// Sets the interval of polling for REST servers without one in the bootstrap: by default 30 s, plus a random delay of up to 30 s.
    pub fn polling(mut self, polling: Polling) -> Self {
        self.settings.protocol.polling = polling;
        self
    }

    /// Sets the maximum size of a request of the incremental variant in bytes: 3 MiB by default, since servers accept 4 MiB. Longer lists
    /// of names are split over several requests; a single longer name exceeds it. Initial versions that do not fit are omitted, so that the
    /// server sends these resources again. Load reports are split in the same way, between clusters.
    pub fn max_request_size(mut self, bytes: usize) -> Self {
        self.settings.load_reports.max_request_size = bytes;
        self.settings.protocol.max_request_size = bytes;
        self
    }

    /// Sets the does-not-exist timer: the time after which a requested resource that the server did not send is considered non-existent. 15
    /// s by default; doubled for a server with the feature `resource_timer_is_transient_error` (A57, A88). It also limits DNS lookups.
    pub fn resource_timeout(mut self, timeout: Duration) -> Self {
        self.settings.protocol.resource_timeout = timeout;
        self
    }

    /// Sets the handling of resources that the server deletes. By default a deleted resource is dropped, unless the server
    /// has the feature `ignore_resource_deletion`.
    pub fn on_deletion(mut self, policy: OnDeletion) -> Self {
        self.settings.on_deletion = Some(policy);
        self
    }

    /// Sets the time for which a stream without subscriptions is kept open: 30 s by default.
    pub fn idle_stream_timeout(mut self, time: Duration) -> Self {
        self.settings.protocol.idle_stream_timeout = time;
        self
    }

    /// Sets the maximum size of a message from a server in bytes: 64 MiB by default. A larger message ends the stream; resources received
    /// before are kept. Larger files are not read. Without effect on a custom [`transport`](Self::transport).
    pub fn max_message_size(mut self, bytes: usize) -> Self {
        self.grpc = self.grpc.with_max_message_size(bytes);
        self
    }

    /// Sets the limits of responses that wait for the consumers of [`Client::batches`], and of what is pushed.
    pub fn batch_limits(mut self, limits: BatchLimits) -> Self {
        self.settings.batch_timeout = limits.timeout;
        self.settings.protocol.max_waiting_bytes = limits.waiting_bytes;
        self.settings.max_pushed_resources = limits.pushed_resources;
        self
    }

    /// Sets the limits of regular expressions in resources: 4 KiB for a pattern, 1 MiB for one when compiled, and 16 MiB for all of
    /// a resource by default. Resources beyond are rejected.
    pub fn regex_limits(mut self, limits: RegexLimits) -> Self {
        self.settings.regex_limits = limits;
        self
    }

    /// Sets the interval of HTTP/2 keepalive pings, 30 s by default. It is doubled for a server that reports too many pings.
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.settings.protocol.keepalive = interval;
        self
    }

    /// Sets the timeout of the acknowledgements of keepalive pings, 10 s by default. Without effect on a custom
    /// [`transport`](Self::transport).
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.grpc = self.grpc.with_keep_alive_timeout(timeout);
        self
    }

    /// Sets the timeout of connecting, including TLS: 20 s by default. Without effect on a custom [`transport`](Self::transport).
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.grpc = self.grpc.with_connect_timeout(timeout);
        self
    }

    /// Sets the implementations of further types of credentials in the bootstrap: none by default, only the built-in ones.
    /// Without effect on a custom [`transport`](Self::transport).
    pub fn credentials(mut self, credentials: CredentialsRegistry) -> Self {
        self.grpc = self.grpc.with_credentials(credentials);
        self
    }

    /// Refuses management servers whose certificate, or one of its authorities, is revoked by a list (CRL, gRFC A69). Without this
    /// setting, revocation is not checked.
    ///
    /// Certificates whose status is undetermined are refused, unless the lists [fail open](RevocationLists::fail_open). Lists that change
    /// are for new connections; connections stay. Servers without TLS are not concerned, nor are those with a
    /// [handshake](crate::transport::credentials::Handshake) of the application. Without effect on a custom [`transport`](Self::transport).
    #[cfg(feature = "tls")]
    pub fn certificate_revocation(mut self, lists: RevocationLists) -> Self {
        self.grpc = self.grpc.with_certificate_revocation(lists);
        self
    }

    /// Sets the cryptography of all TLS of the client: that to management servers, over REST too, and that of channels without one of
    /// their own (`ChannelBuilder::crypto_provider`). Without effect on a custom [`transport`](Self::transport).
    ///
    /// The default is the provider of the process, if that has one ([`CryptoProvider::install_default`]) when the client is built, or else
    /// that of the features: `tls-aws-lc`, or `tls-ring`, or nothing. If both are enabled, it is aws-lc, since ring may be enabled as a
    /// default feature alone. The crate does not install a default.
    ///
    /// For FIPS, set `rustls::crypto::default_fips_provider()` of a rustls with the feature `fips`; [`xdskit::rustls`](crate::rustls) is that
    /// crate. [Shared](Self::shared) clients have the same provider, a clone of one `Arc`.
    #[cfg(feature = "tls")]
    pub fn crypto_provider(mut self, provider: impl Into<Arc<CryptoProvider>>) -> Self {
        self.grpc = self.grpc.with_crypto_provider(provider);
        self
    }

    /// Adds a source of the metadata of calls to management servers, such as a token: a [`Metadata`](crate::config::Metadata), or a
    /// function that is called with the server for each new stream, of load reports too, and for each REST request. It is sent beside the
    /// metadata of the bootstrap ([`Server::initial_metadata`](crate::config::Server::initial_metadata)) and of sources that were added
    /// before, on connections in plain text as well. The values are in no log, error or status. Without effect on a custom
    /// [`transport`](Self::transport).
    ///
    /// ```no_run
    /// use xdskit::{
    ///     Client,
    ///     config::{Bootstrap, Metadata},
    /// };
    ///
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let token = Metadata::default().with_entry("x-consul-token", std::env::var("CONSUL_HTTP_TOKEN")?)?;
    ///     let client = Client::builder(Bootstrap::from_env()?).initial_metadata(token).build()?;
    ///     let shop = client.resolve("xds:///shop");
    ///     Ok(())
    /// }
    /// ```
    pub fn initial_metadata(mut self, source: impl MetadataSource) -> Self {
        self.grpc = self.grpc.with_initial_metadata(source);
        self
    }

    /// Sets a custom transport, in place of gRPC over HTTP/2.
    pub fn transport(mut self, transport: impl Transport) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }

    /// Sets a custom resolver for the hosts of `LOGICAL_DNS` clusters, in place of the resolver of the system.
    pub fn dns(mut self, dns: impl Dns) -> Self {
        self.dns = Some(Arc::new(dns));
        self
    }

    /// Sets the interval of DNS lookups for addresses without a TTL, which is also the minimum time between two lookups of
    /// a host: 30 s by default.
    pub fn dns_refresh(mut self, interval: Duration) -> Self {
        self.settings.dns_refresh = interval;
        self
    }

    /// Sets the grace period of deletions in resolutions: 1 s by default. A deleted cluster remains in the snapshots for this time while
    /// routes still refer to it, since routes and clusters are sent in separate messages and the routes without the cluster may arrive
    /// later. The same applies to deleted endpoints and route configurations, and to clusters that were deleted before new routes referred
    /// to them. With polling over REST, set it to more than twice the `refresh_delay`, since types may be received that far apart.
    pub fn deletion_grace(mut self, time: Duration) -> Self {
        self.settings.deletion_grace = time;
        self
    }

    /// Sets the minimum interval of load reports: up to 30 years, 1 s by default. Servers that ask for shorter ones get this one.
    pub fn min_load_report_interval(mut self, interval: Duration) -> Self {
        self.settings.load_reports.min_interval = bounded(interval);
        self
    }

    /// Sets resources that serve until a management server has answered: a start without a server. See [`InitialResources`].
    pub fn initial_resources(mut self, initial: InitialResources) -> Self {
        self.settings.initial_resources = initial;
        self
    }

    /// Sets the extensions that the application implements, in addition to the built-in ones. Resources with other
    /// extensions are rejected, or accepted without the extension, by the rules of the extension point.
    pub fn extensions(mut self, registry: resource::Registry) -> Self {
        self.settings.registry = Arc::new(registry);
        self
    }

    /// Builds the client and spawns its driver on the current tokio runtime.
    ///
    /// # Errors
    /// There is no current tokio runtime, the bootstrap does not match the extensions, or a server needs TLS, for which there is no
    /// [cryptography](Self::crypto_provider).
    pub fn build(self) -> Result<Client, BuildError> {
        let (client, driver) = self.build_with_driver()?;
        // Its end closes the watches; a panic is logged.
        client.runtime.spawn(supervise("client", driver, |_| {}));
        Ok(client)
    }

    /// Returns the shared client of the current tokio runtime with an equal bootstrap and equal settings, or builds it.
    /// Identically configured clients thus share their streams and resources.
    ///
    /// Clients are not shared between runtimes, so that the end of one runtime does not end the client of another; this includes tests with
    /// `#[tokio::test]`, each of which has its own runtime. To share a client between runtimes, pass clones of it. A shared client ends
    /// with its runtime, when the last handle and watch of it is dropped, or when its last sharer [shuts it down](Client::shutdown).
    ///
    /// With a custom [`transport`](Self::transport) or [`dns`](Self::dns) this is the same as [`build`](Self::build), since
    /// these cannot be compared. Sources of [metadata](Self::initial_metadata) cannot either: clients with such sources are shared
    /// if their builders are clones. Metadata in the bootstrap is compared.
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
    /// The errors are those of [`build`](Self::build).
    pub fn shared(self) -> Result<Client, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let Self { bootstrap, settings, grpc, transport: None, dns: None, scope, validation, .. } = &self
        else {
            return self.build();
        };
        // Each setting has to be a part of the key: a caller must never get a client with other settings than its own.
        let key = PoolKey {
            runtime: runtime.id(),
            bootstrap: bootstrap.clone(),
            settings: settings.clone(),
            grpc: grpc.clone(),
            scope: scope.clone(),
            validation: *validation,
            recorders: self.recorders.clone(),
        };
        let (registry, share) = pool::PROCESS.share(key, || self.build().map(|client| client.registry))?;
        Ok(Client { registry, runtime, share: Some(share) })
    }

    /// Builds the client and returns its driver: the future that executes the protocol. It must be polled on a tokio
    /// runtime with I/O and time enabled, and completes when the client has ended. If it is dropped, the client ends.
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
    /// The errors are those of [`build`](Self::build). The runtime is that of the callbacks of [`Client::on_change`].
    #[cfg_attr(not(feature = "tls"), allow(unused_mut, reason = "the cryptography of TLS is chosen here"))]
    pub fn build_with_driver(
        mut self,
    ) -> Result<(Client, impl Future<Output = ()> + Send + 'static), BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        #[cfg(feature = "tls")]
        let crypto = crypto::choose(&mut self.grpc);
        #[cfg(feature = "tls")]
        if self.transport.is_none() {
            crypto::check(&crypto, &self.bootstrap)?;
        }
        // The sender is dropped with the driver's future, however that ends, and the observing part ends with it.
        let (ending, ended) = watch::channel(());
        let (role, observer) = match self.validation {
            Validation::Grpc => (Role::Client, Some(Observer::new(self.clone().into_observing(), ended))),
            Validation::Observe => (Role::Observer { client: None }, None),
        };
        #[cfg(feature = "tls")]
        let certificates = CertificateInstances::new(self.settings.registry.clone());
        let (registry, driver) = self.build_part(role)?;
        if let Some(observer) = observer {
            registry.extensions().insert(observer);
        }
        #[cfg(feature = "tls")]
        registry.extensions().insert(crypto);
        #[cfg(feature = "tls")]
        registry.extensions().insert(certificates);
        let driver = async move {
            let _ending = ending;
            driver.await;
        };
        Ok((Client { registry, runtime, share: None }, driver))
    }

    /// Returns what builds the observing part of the client.
    pub(super) fn into_observing(mut self) -> Box<observer::Start> {
        // It is not counted.
        (self.validation, self.recorders) = (Validation::Observe, Recorders::default());
        Box::new(move |role| {
            let built = self.clone().build_part(role);
            let (registry, driver) =
                built.expect("the client was built with the same settings, and has a runtime");
            (registry, Box::pin(driver))
        })
    }

    /// Builds a client, or the observing part of one.
    fn build_part(
        self,
        role: Role,
    ) -> Result<(Arc<Registry>, impl Future<Output = ()> + Send + 'static), BuildError> {
        let (commands, received) = mpsc::unbounded_channel();
        let identity = Identity::new(self.bootstrap.node(), &self.scope);
        let transports = Transports::new(self.grpc, self.transport);
        let dns = self.dns.unwrap_or_else(|| Arc::new(SystemDns));
        let lookups = Lookups::new(dns, self.settings.protocol.resource_timeout);
        let registry = &self.settings.registry;
        // A bootstrap is read before extensions are known, so that its plugins are parsed when the client is built.
        let parse = |name: &str, config| registry.parse_certificate_provider(name, config);
        let bootstrap = self.bootstrap.plug(&parse).map_err(BuildError::Bootstrap)?;
        let settings = self.settings;
        check_initial_resources(&bootstrap, &settings).map_err(BuildError::InitialResources)?;
        let keepalive = settings.protocol.keepalive;
        let engine = Engine::new(bootstrap.clone(), settings, random_seed());
        let loads = engine.loads().clone();
        let reporting = Reporting::new(loads.clone(), &encode_node(bootstrap.node()), random_seed());
        let load_driver = LoadDriver::new(reporting, keepalive, &commands);
        let driver = Driver::new(engine, transports, lookups, received, load_driver);
        let driver = driver.with_recording(self.recorders.begin(&self.scope));
        Ok((Registry::new(commands, identity, bootstrap, role, loads), driver.run()))
    }
}
