//! What metrics count of load balancing, as values (CH9.14, CH9.16, CH9.17). Who listens records them; without a listener none is
//! made (CH9.20).

use std::{collections::BTreeMap, fmt, net::SocketAddr, sync::Arc};

use super::weights::WeightState;
use crate::resource::{Locality, cluster::TelemetryLabels};

/// Something that metrics count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Observation<'a> {
    /// weighted_round_robin has made a scheduler of the weights of its endpoints (CH3.47).
    Scheduler {
        cluster: &'a Arc<str>,
        /// Set if the policy is that of a locality.
        locality: Option<&'a Locality>,
        weights: &'a [WeightState],
    },
    /// Outlier detection has ejected an endpoint, by the algorithm with this name.
    Ejected { cluster: &'a Arc<str>, method: &'static str },
    /// Outlier detection has not ejected an outlier, for the reason with this name.
    NotEjected { cluster: &'a Arc<str>, method: &'static str, reason: &'static str },
}

/// Is called with each observation.
#[derive(Clone, Default)]
pub(crate) struct Observer(Option<Arc<Observe>>);

type Observe = dyn Fn(Observation<'_>) + Send + Sync;

/// The labels of an attempt by its picks, the last of which counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct PickLabels {
    /// The leaf cluster, as soon as a pick has reached one.
    pub(crate) backend_service: Option<Arc<str>>,
    /// The locality of the endpoint, as A78 writes it.
    pub(crate) locality: Option<Arc<str>>,
    /// The service of the leaf cluster, for attempts alone.
    pub(crate) service: Option<Arc<ServiceLabels>>,
}

/// The service of a cluster in the mesh, by the cluster's metadata (C30).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServiceLabels {
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Arc<str>,
}

/// The locality of an endpoint as a label, if somebody listens.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum LocalityLabel {
    #[default]
    None,
    One(Arc<str>),
    /// One connection for the endpoints of several localities.
    ByAddress(Arc<BTreeMap<SocketAddr, Arc<str>>>),
}

impl From<TelemetryLabels<'_>> for ServiceLabels {
    fn from(labels: TelemetryLabels<'_>) -> Self {
        Self { name: labels.service_name.into(), namespace: labels.service_namespace.into() }
    }
}

impl Observer {
    pub(crate) fn new(observe: impl Fn(Observation<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    /// Whether somebody listens.
    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn observe(&self, observation: Observation<'_>) {
        if let Some(observe) = &self.0 {
            observe(observation);
        }
    }
}

impl LocalityLabel {
    /// Label of the endpoint with this address.
    pub(super) fn of(&self, address: SocketAddr) -> Option<Arc<str>> {
        match self {
            Self::None => None,
            Self::One(label) => Some(label.clone()),
            Self::ByAddress(labels) => labels.get(&address).cloned(),
        }
    }
}

impl PartialEq for Observer {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("is_on", &self.is_on()).finish_non_exhaustive()
    }
}
