//! gRPC's metrics of channels by the API of OpenTelemetry.

mod instruments;
mod labels;
mod lookup_caches;
mod method_recorder;
mod methods;
mod recorder;

use std::{collections::BTreeSet, fmt, sync::Arc};

use opentelemetry::metrics::Meter;
use tracing::warn;

use self::{instruments::Instruments, methods::MethodLabels, recorder::ChannelRecorder};
use crate::channel::telemetry::ChannelObserver;

/// The instruments of a meter for any number of channels; see the [module](super) for the list of them.
///
/// Clones are handles of the same instruments.
///
/// ```no_run
/// use opentelemetry::global;
/// use xdskit::{Bootstrap, Channel, metrics::ChannelMetrics};
///
/// fn channel() -> Result<Channel, Box<dyn std::error::Error>> {
///     let metrics = ChannelMetrics::builder()
///         .enable(["grpc.client.call.retries", "grpc.subchannel.open_connections"])
///         .optional_labels(["grpc.lb.locality", "grpc.lb.backend_service"])
///         .methods(["shop.Cart/Add", "shop.Cart/Get"])
///         .build(&global::meter("xdskit")); // once, for all channels
///     Ok(Channel::builder("xds:///shop").bootstrap(Bootstrap::from_env()?).metrics(&metrics).build()?)
/// }
/// ```
#[derive(Clone)]
pub struct ChannelMetrics {
    /// Shared by clones.
    inner: Arc<Inner>,
}

/// The instruments and labels of a provider.
struct Inner {
    /// The enabled instruments.
    instruments: Instruments,
    /// The enabled labels.
    labels: OptionalLabels,
    /// The names of methods.
    methods: MethodLabels,
}

/// Builds [`ChannelMetrics`], made by [`ChannelMetrics::builder`].
#[derive(Debug)]
#[must_use = "a builder does nothing until the metrics are built"]
pub struct ChannelMetricsBuilder {
    /// The names of the enabled instruments.
    enabled: BTreeSet<String>,
    /// The names of the enabled labels.
    labels: BTreeSet<String>,
    /// Which methods have names.
    methods: MethodLabels,
}

/// The optional labels that are enabled.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct OptionalLabels {
    /// The locality of the backend.
    locality: bool,
    /// The cluster.
    backend_service: bool,
    /// The service of the cluster.
    service_name: bool,
    /// The namespace of that.
    service_namespace: bool,
    /// A label that the application sets for each call.
    custom: bool,
    /// The reason for the end of a connection.
    disconnect_error: bool,
    /// The security of a connection.
    security_level: bool,
}

impl ChannelMetrics {
    /// The instruments that are on by default, without optional labels.
    pub fn new(meter: &Meter) -> Self {
        Self::builder().build(meter)
    }

    /// To choose instruments, labels, and the methods that have names.
    pub fn builder() -> ChannelMetricsBuilder {
        let enabled = instruments::ALL
            .iter()
            .filter(|instrument| instrument.is_default)
            .map(|instrument| instrument.name.to_owned());
        ChannelMetricsBuilder {
            enabled: enabled.collect(),
            labels: BTreeSet::new(),
            methods: MethodLabels::default(),
        }
    }

    /// The recorder of a channel to this target.
    pub(crate) fn recorder(&self, target: &str) -> Arc<dyn ChannelObserver> {
        Arc::new(ChannelRecorder::new(self.clone(), target))
    }
}

impl ChannelMetricsBuilder {
    /// Enables instruments by their names. Unknown names are logged and ignored, as in gRPC: they may be those of another version.
    pub fn enable<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.enabled.extend(names.into_iter().map(Into::into));
        self
    }

    /// Enables all instruments of channels.
    pub fn enable_all(self) -> Self {
        self.enable(instruments::ALL.iter().map(|instrument| instrument.name))
    }

    /// Disables instruments by their names.
    pub fn disable<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        for name in names {
            self.enabled.remove(name.as_ref());
        }
        self
    }

    /// Enables optional labels by their names: `grpc.lb.locality`, `grpc.lb.backend_service`, `csm.service_name`,
    /// `csm.service_namespace_name`, `grpc.client.call.custom`, `grpc.disconnect_error`, `grpc.security_level`. Each applies to the instruments that have it.
    pub fn optional_labels<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.labels.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the methods that have their names as the label `grpc.method`, such as `shop.Cart/Add`. Methods that
    /// tonic's generated clients call have theirs in any case, a thousand of them. All others are `other`: a client that calls what its
    /// users ask for would make series without end.
    pub fn methods<N: Into<Arc<str>>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.methods = MethodLabels::of(names.into_iter().map(Into::into));
        self
    }

    /// Has the methods for which a function returns true have their names; see [`methods`](Self::methods). The function is called
    /// once for each of the first thousand methods, and at each call of further ones.
    pub fn methods_if(mut self, is_named: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.methods = MethodLabels::when(is_named);
        self
    }

    /// Has all methods have their names, for clients whose code has all of them.
    pub fn all_methods(self) -> Self {
        self.methods_if(|_| true)
    }

    /// Creates the instruments that are enabled.
    pub fn build(self, meter: &Meter) -> ChannelMetrics {
        let Self { enabled, labels, methods } = self;
        let is_known = |name: &str| instruments::ALL.iter().any(|instrument| instrument.name == name);
        for name in enabled.iter().filter(|name| !is_known(name)) {
            warn!(name, "unknown instrument enabled, which is ignored");
        }
        for name in labels.iter().filter(|name| !LABELS.contains(&name.as_str())) {
            warn!(name, "unknown optional label enabled, which is ignored");
        }
        let instruments = Instruments::new(meter, &|name| enabled.contains(name));
        let labels = OptionalLabels::of(|name| labels.contains(name));
        ChannelMetrics { inner: Arc::new(Inner { instruments, labels, methods }) }
    }
}

impl OptionalLabels {
    /// The labels that are enabled.
    fn of(is_enabled: impl Fn(&str) -> bool) -> Self {
        Self {
            locality: is_enabled(LOCALITY),
            backend_service: is_enabled(BACKEND_SERVICE),
            service_name: is_enabled(SERVICE_NAME),
            service_namespace: is_enabled(SERVICE_NAMESPACE),
            custom: is_enabled(CUSTOM),
            disconnect_error: is_enabled(DISCONNECT_ERROR),
            security_level: is_enabled(SECURITY_LEVEL),
        }
    }

    /// Whether there are labels of picks.
    fn are_of_picks(self) -> bool {
        self.locality || self.backend_service || self.service_name || self.service_namespace
    }
}

impl fmt::Debug for ChannelMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelMetrics").field("labels", &self.inner.labels).finish_non_exhaustive()
    }
}

/// The optional labels.
const LABELS: [&str; 7] =
    [LOCALITY, BACKEND_SERVICE, SERVICE_NAME, SERVICE_NAMESPACE, CUSTOM, DISCONNECT_ERROR, SECURITY_LEVEL];
const LOCALITY: &str = "grpc.lb.locality";
const BACKEND_SERVICE: &str = "grpc.lb.backend_service";
/// That of gRPC's CSM observability, as the next one.
const SERVICE_NAME: &str = "csm.service_name";
const SERVICE_NAMESPACE: &str = "csm.service_namespace_name";
/// The label of the lookup service.
const LOOKUP_SERVICE: &str = "grpc.lb.rls.server_target";
const CUSTOM: &str = "grpc.client.call.custom";
const DISCONNECT_ERROR: &str = "grpc.disconnect_error";
const SECURITY_LEVEL: &str = "grpc.security_level";

#[cfg(test)]
mod tests;
