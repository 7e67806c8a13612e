//! Outlier detection (A50): endpoints whose attempts fail more often than those of others are ejected for a while.
//!
//! This is the decision alone. What an ejection means for an endpoint is in `cluster_endpoint`: it is reported as failing, and its
//! connection stays (CH3.23).

mod algorithms;
mod endpoints;
pub(super) mod outcomes;
mod sweep;

use std::{net::SocketAddr, sync::Arc, time::Duration, time::Instant};

pub(super) use self::sweep::Decisions;
use self::{
    endpoints::{Endpoint, Endpoints},
    outcomes::Outcomes,
    sweep::{Context, Sweep},
};
use super::{locality_config::LocalityConfig, policy::LeafConfig};
use crate::resource::OutlierDetection;

/// The outlier detection of a cluster, over the endpoints of all its priorities (CH3.64).
///
/// [`sweep`](Self::sweep) is to be called when [`poll_timeout`](Self::poll_timeout) says so. A sweep of many endpoints takes several
/// calls, and is due until the last one; anything else may happen in between. Without an algorithm, nothing is kept and nothing is
/// due (CH3.66).
#[derive(Debug)]
pub(super) struct Outliers {
    detection: Option<Detection>,
    endpoints: Endpoints,
    sweep: Sweep,
    /// The steps of a call of [`sweep`](Self::sweep).
    slice: usize,
}

/// What endpoints are ejected by.
#[derive(Debug)]
struct Detection {
    config: OutlierDetection,
    /// When the current interval began, as did the sweep of the one before.
    start: Instant,
}

/// What an endpoint needs of the outlier detection of its cluster.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) outcomes: Arc<Outcomes>,
    pub(super) is_ejected: bool,
}

/// What a sweep decided of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Ejected(Method),
    /// The endpoint is an outlier, and is not ejected all the same.
    NotEjected(Method, Unenforced),
    Unejected,
}

/// The algorithm that has found an outlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    SuccessRate,
    FailurePercentage,
}

/// Why an outlier is not ejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unenforced {
    MaxEjectionOverflow,
    EnforcementPercentage,
}

impl Outliers {
    /// The detection of a cluster's first configuration, whose sweeps are in slices of so many steps.
    pub(super) fn new(config: &LeafConfig, slice: usize, now: Instant) -> Self {
        let mut outliers = Self::none(slice);
        outliers.update(&[], config, now);
        outliers
    }

    fn none(slice: usize) -> Self {
        Self { detection: None, endpoints: Endpoints::default(), sweep: Sweep::default(), slice }
    }

    /// Applies another configuration, after that with these priorities. Endpoints that are listed still keep what is known of them, wherever
    /// they are listed (CH3.64). The current interval has the new length (CH3.66). A sweep that is running goes on by the new
    /// configuration, or ends with the detection.
    pub(super) fn update(&mut self, before: &[Vec<LocalityConfig>], config: &LeafConfig, now: Instant) {
        let Some(next) = executed(config) else { return *self = Self::none(self.slice) };
        let is_new = self.detection.is_none();
        let start = self.detection.as_ref().map_or(now, |detection| detection.start);
        self.detection = Some(Detection { config: next.clone(), start });
        // Without detection no endpoint was tracked, so all of them are new.
        for place in self.endpoints.list(if is_new { &[] } else { before }, config.listed()) {
            self.sweep.forget(place);
        }
    }

    /// The earliest end of an endpoint's ejection, by its sorted addresses; `None` if it is not ejected.
    pub(super) fn ejected_until(&self, addresses: &[SocketAddr]) -> Option<Instant> {
        self.endpoints.get(addresses)?.ejected_until(&self.detection.as_ref()?.config)
    }

    /// What an endpoint needs, by its sorted addresses. `None` without an algorithm.
    pub(super) fn tracked(&self, addresses: &[SocketAddr]) -> Option<Tracked> {
        self.endpoints.get(addresses).map(Endpoint::tracked)
    }

    /// When [`sweep`](Self::sweep) is due, which may be in the past.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let Detection { config, start } = self.detection.as_ref()?;
        if self.sweep.is_running() {
            return Some(*start);
        }
        // An interval beyond the range of the clock never ends.
        start.checked_add(config.interval.max(SHORTEST_INTERVAL))
    }

    /// Whether a sweep has begun that is not over.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_running()
    }

    /// Ends an interval (CH3.67), or goes on with that.
    pub(super) fn sweep(&mut self, now: Instant, random: &mut fastrand::Rng) -> Decisions {
        let Some(Detection { config, start }) = &mut self.detection else { return Vec::new() };
        if !self.sweep.is_running() {
            self.sweep.begin();
            // The next interval counts from here, and not from when this sweep was due (CH3.66).
            *start = now;
        }
        let context = Context { config, endpoints: &mut self.endpoints, begin: *start, random };
        self.sweep.slice(self.slice, context)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Outliers {
    /// The endpoints that are ejected, the number that is counted of them, and the number of all endpoints.
    pub(super) fn ejected(&self) -> (Vec<&[SocketAddr]>, usize, usize) {
        let ejected = self
            .endpoints
            .iter()
            .filter(|endpoint| endpoint.is_ejected())
            .map(|endpoint| &**endpoint.addresses());
        (ejected.collect(), self.endpoints.ejected(), self.endpoints.len())
    }
}

impl Decision {
    /// Whether the endpoint is ejected from now on; `None` if it is as before.
    pub(super) fn is_ejected(self) -> Option<bool> {
        match self {
            Self::Ejected(_) => Some(true),
            Self::NotEjected(..) => None,
            Self::Unejected => Some(false),
        }
    }
}

impl Method {
    /// Its name in A91.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::SuccessRate => "success_rate",
            Self::FailurePercentage => "failure_percentage",
        }
    }
}

impl Unenforced {
    /// Its name in A91.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::MaxEjectionOverflow => "max_ejection_overflow",
            Self::EnforcementPercentage => "enforcement_percentage",
        }
    }
}

/// The configured detection, if it has an algorithm. pick_first standing alone has no endpoint to be ejected (CH3.72): it has one
/// connection for all.
fn executed(config: &LeafConfig) -> Option<&OutlierDetection> {
    let is_pick_first = config.policy.policy.shares_connection();
    let has_algorithm = |detection: &&OutlierDetection| {
        detection.success_rate.is_some() || detection.failure_percentage.is_some()
    };
    config.outlier_detection.as_ref().filter(|_| !is_pick_first).filter(has_algorithm)
}

/// A configured interval may be 0, which would let the sweeps take all the time of the channel.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
