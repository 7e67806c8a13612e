//! Outlier detection (A50): endpoints whose attempts fail more often than those of others are ejected for a while.
//!
//! This is the decision alone. What an ejection means for an endpoint is in `member`: it is reported as failing, and its connection
//! stays (CH3.23).

mod algorithms;
pub(super) mod outcomes;

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration, time::Instant};

use self::outcomes::{Counts, Outcomes};
use super::policy::{EndpointConfig, LeafConfig, LocalityConfig, Policy};
use crate::resource::OutlierDetection;

/// The outlier detection of a cluster, over the endpoints of all its priorities (CH3.64).
///
/// [`sweep`](Self::sweep) is to be called when [`poll_timeout`](Self::poll_timeout) says so. Without an algorithm, nothing is kept
/// and nothing is due (CH3.66).
#[derive(Debug, Default)]
pub(super) struct Outliers {
    detection: Option<Detection>,
    /// By the sorted addresses of each.
    endpoints: BTreeMap<Vec<SocketAddr>, Endpoint>,
    /// How many of the endpoints are ejected.
    ejected: usize,
}

/// What endpoints are ejected by.
#[derive(Debug)]
struct Detection {
    config: OutlierDetection,
    /// When the current interval began.
    start: Instant,
}

/// An endpoint, as long as it is listed.
#[derive(Debug, Default)]
struct Endpoint {
    /// In how many places.
    listed: usize,
    outcomes: Arc<Outcomes>,
    ejected_at: Option<Instant>,
    /// What the time of an ejection is multiplied by: more with each ejection, and less with each interval without one.
    multiplier: u32,
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
    /// It is an outlier, and is not ejected all the same.
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

/// The decisions of a sweep, in their order, each with the sorted addresses of its endpoint.
pub(super) type Decisions = Vec<(Vec<SocketAddr>, Decision)>;

/// A sweep under way.
struct Sweep<'a> {
    endpoints: Vec<(&'a Vec<SocketAddr>, &'a mut Endpoint)>,
    ejected: &'a mut usize,
    max_ejection_percent: u8,
    now: Instant,
    decisions: Decisions,
}

impl Outliers {
    /// The detection of a cluster's first configuration.
    pub(super) fn new(config: &LeafConfig, now: Instant) -> Self {
        let mut outliers = Self::default();
        outliers.update(&[], config, now);
        outliers
    }

    /// Another configuration, after that with these priorities. Endpoints that are listed still keep what is known of them, wherever
    /// they are listed (CH3.64). The current interval has the new length (CH3.66).
    pub(super) fn update(&mut self, before: &[Vec<LocalityConfig>], config: &LeafConfig, now: Instant) {
        let Some(next) = executed(config) else { return *self = Self::default() };
        let is_new = self.detection.is_none();
        let start = self.detection.as_ref().map_or(now, |it| it.start);
        self.detection = Some(Detection { config: next.clone(), start });
        self.list(if is_new { &[] } else { before }, config.listed());
    }

    /// The earliest end of an endpoint's ejection, by its sorted addresses; `None` if it is not ejected.
    pub(super) fn ejected_until(&self, addresses: &[SocketAddr]) -> Option<Instant> {
        self.endpoints.get(addresses)?.ejected_until(&self.detection.as_ref()?.config)
    }

    /// What an endpoint needs, by its sorted addresses. `None` without an algorithm.
    pub(super) fn tracked(&self, addresses: &[SocketAddr]) -> Option<Tracked> {
        let it = self.endpoints.get(addresses)?;
        Some(Tracked { outcomes: it.outcomes.clone(), is_ejected: it.ejected_at.is_some() })
    }

    /// When [`sweep`](Self::sweep) is due, which may be in the past.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let Detection { config, start } = self.detection.as_ref()?;
        start.checked_add(config.interval.max(SHORTEST_INTERVAL))
    }

    /// Ends an interval (CH3.67).
    pub(super) fn sweep(&mut self, now: Instant, random: &mut fastrand::Rng) -> Decisions {
        let Some(Detection { config, start }) = &mut self.detection else { return Vec::new() };
        *start = now;
        let endpoints: Vec<_> = self.endpoints.iter_mut().collect();
        let counts: Vec<Counts> = endpoints.iter().map(|(_, it)| it.outcomes.take()).collect();
        let max_ejection_percent = config.max_ejection_percent;
        let mut sweep =
            Sweep { endpoints, ejected: &mut self.ejected, max_ejection_percent, now, decisions: Vec::new() };
        if let Some(rate) = &config.success_rate {
            let outliers = algorithms::success_rate(rate, &counts);
            sweep.eject(outliers, (Method::SuccessRate, rate.enforcement_percent), random);
        }
        if let Some(percentage) = &config.failure_percentage {
            let outliers = algorithms::failure_percentage(percentage, &counts);
            sweep.eject(outliers, (Method::FailurePercentage, percentage.enforcement_percent), random);
        }
        sweep.uneject(config);
        sweep.decisions
    }

    /// Takes note of the endpoints of the next configuration. Those at the beginning and the end of a priority that are as before are
    /// not looked at.
    fn list(&mut self, before: &[Vec<LocalityConfig>], next: &[Vec<LocalityConfig>]) {
        let mut removed = Vec::new();
        for priority in 0..before.len().max(next.len()) {
            let (old, new) = (endpoints(before, priority), endpoints(next, priority));
            let is_same =
                |(one, other): &(&EndpointConfig, &EndpointConfig)| one.addresses == other.addresses;
            let first = old.clone().zip(new.clone()).take_while(is_same).count();
            let (old, new): (Vec<_>, Vec<_>) = (old.skip(first).collect(), new.skip(first).collect());
            let last = old.iter().rev().copied().zip(new.iter().rev().copied()).take_while(is_same).count();
            for endpoint in &new[..new.len() - last] {
                self.endpoints.entry(sorted(&endpoint.addresses).into_owned()).or_default().listed += 1;
            }
            removed.extend_from_slice(&old[..old.len() - last]);
        }
        // Only now, so that an endpoint with another place is never without one.
        removed.into_iter().for_each(|endpoint| self.unlist(&sorted(&endpoint.addresses)));
    }

    /// An ejected endpoint that leaves does not count as ejected any more (CH3.71, CH13.1).
    fn unlist(&mut self, addresses: &[SocketAddr]) {
        let Some(it) = self.endpoints.get_mut(addresses) else { return };
        it.listed -= 1;
        if it.listed == 0 {
            self.ejected -= usize::from(it.ejected_at.is_some());
            self.endpoints.remove(addresses);
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
impl Outliers {
    /// The endpoints that are ejected, the number that is counted of them, and the number of all endpoints.
    pub(super) fn ejected(&self) -> (Vec<&[SocketAddr]>, usize, usize) {
        let ejected = self.endpoints.iter().filter(|(_, it)| it.ejected_at.is_some());
        (ejected.map(|(addresses, _)| addresses.as_slice()).collect(), self.ejected, self.endpoints.len())
    }
}

impl Sweep<'_> {
    /// Ejects outliers, in a random order: the first ones of the list would go first otherwise, and the last ones never (CH3.70).
    fn eject(
        &mut self,
        mut outliers: Vec<usize>,
        (method, enforced): (Method, u8),
        random: &mut fastrand::Rng,
    ) {
        random.shuffle(&mut outliers);
        let total = self.endpoints.len();
        for place in outliers {
            let (addresses, it) = &mut self.endpoints[place];
            if it.ejected_at.is_some() {
                continue;
            }
            let decision = if *self.ejected * 100 >= usize::from(self.max_ejection_percent) * total {
                Decision::NotEjected(method, Unenforced::MaxEjectionOverflow)
            } else if random.u8(..100) < enforced {
                it.ejected_at = Some(self.now);
                it.multiplier = it.multiplier.saturating_add(1);
                *self.ejected += 1;
                Decision::Ejected(method)
            } else {
                Decision::NotEjected(method, Unenforced::EnforcementPercentage)
            };
            self.decisions.push((addresses.to_vec(), decision));
        }
    }

    /// Ends the ejections whose time is over.
    fn uneject(&mut self, config: &OutlierDetection) {
        for (addresses, it) in &mut self.endpoints {
            if it.ejected_at.is_none() {
                it.multiplier = it.multiplier.saturating_sub(1);
            } else if it.ejected_until(config).is_some_and(|until| self.now > until) {
                it.ejected_at = None;
                *self.ejected -= 1;
                self.decisions.push((addresses.to_vec(), Decision::Unejected));
            }
        }
    }
}

impl Endpoint {
    /// The end of its ejection, if it has one.
    fn ejected_until(&self, config: &OutlierDetection) -> Option<Instant> {
        let longest = config.base_ejection_time.max(config.max_ejection_time);
        let time = config.base_ejection_time.saturating_mul(self.multiplier).min(longest);
        self.ejected_at?.checked_add(time)
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
    let is_pick_first = matches!(config.policy.policy, Policy::PickFirst { .. });
    let has_algorithm = |it: &&OutlierDetection| it.success_rate.is_some() || it.failure_percentage.is_some();
    config.outlier_detection.as_ref().filter(|_| !is_pick_first).filter(has_algorithm)
}

/// The endpoints of a priority.
fn endpoints(
    priorities: &[Vec<LocalityConfig>],
    priority: usize,
) -> impl Iterator<Item = &EndpointConfig> + Clone {
    let localities = priorities.get(priority).map(Vec::as_slice).unwrap_or_default();
    localities.iter().flat_map(|locality| &locality.endpoints)
}

fn sorted(addresses: &[SocketAddr]) -> Cow<'_, [SocketAddr]> {
    if addresses.is_sorted() {
        return addresses.into();
    }
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.into()
}

/// A configured interval may be 0, which would let the sweeps take all the time of the channel.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
