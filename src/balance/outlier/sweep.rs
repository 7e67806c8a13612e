//! The end of an interval: all endpoints are looked at, in slices, so that no step takes long (CH3.67).

use std::{net::SocketAddr, sync::Arc, time::Instant};

use super::{Decision, Method, Unenforced, algorithms, endpoints::Endpoints, outcomes::Counts};
use crate::resource::OutlierDetection;

/// What a slice decided, in its order, each with the sorted addresses of the endpoint.
pub(in crate::balance) type Decisions = Vec<(Arc<[SocketAddr]>, Decision)>;

/// A sweep, or the buffers of the last one.
///
/// ```text
///   (none) ──▶ Count ──▶ Judge, Eject by success rate ──▶ Judge, Eject by failure percentage ──▶ EndInterval ──▶ (none)
/// ```
///
/// Endpoints may come and leave between two slices. What is known of them is by their places: one that leaves has to be
/// [forgotten](Self::forget), and another one at its place has no counts then, so that nothing is decided on it before the next sweep.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    phase: Option<Phase>,
    /// What each endpoint has counted in the interval, by its place.
    counts: Vec<Counts>,
    /// The places of outliers of an algorithm, in a random order from the last one. Each of them has counts.
    outliers: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The counts are taken, from the first place without any.
    Count,
    /// The outliers of an algorithm are sought.
    Judge(Method),
    /// The endpoints are ejected.
    Eject(Method),
    /// Ejections end whose time is over, from this place on.
    EndInterval(usize),
}

/// What the slices of a sweep need. The configuration is the current one, which may be another one than that of the slice before.
pub(super) struct Context<'a> {
    pub(super) config: &'a OutlierDetection,
    pub(super) endpoints: &'a mut Endpoints,
    /// When the sweep began, which is the time of all its decisions.
    pub(super) begin: Instant,
    pub(super) random: &'a mut fastrand::Rng,
}

/// A slice under way.
struct Slice<'a> {
    context: Context<'a>,
    /// What is left of its steps.
    steps: usize,
    decisions: Decisions,
}

impl Sweep {
    /// Whether slices are left.
    pub(super) fn is_running(&self) -> bool {
        self.phase.is_some()
    }

    /// Begins, unless it is running.
    pub(super) fn begin(&mut self) {
        self.phase.get_or_insert(Phase::Count);
    }

    /// The endpoint of a place has left.
    pub(super) fn forget(&mut self, place: usize) {
        if let Some(counts) = self.counts.get_mut(place) {
            *counts = Counts::default();
        }
    }

    /// The next slice, of at least one step.
    pub(super) fn slice(&mut self, steps: usize, context: Context<'_>) -> Decisions {
        let mut slice = Slice { context, steps: steps.max(1), decisions: Vec::new() };
        while let Some(phase) = self.phase.filter(|_| slice.steps > 0) {
            self.phase = match phase {
                Phase::Count => self.count(&mut slice),
                Phase::Judge(method) => self.judge(method, &mut slice),
                Phase::Eject(method) => self.eject(method, &mut slice),
                Phase::EndInterval(place) => self.end_interval(place, &mut slice),
            };
        }
        slice.decisions
    }

    fn count(&mut self, slice: &mut Slice<'_>) -> Option<Phase> {
        let rest = slice.context.endpoints.from(self.counts.len());
        let count = rest.len().min(slice.steps);
        let is_last = count == rest.len();
        self.counts.extend(
            rest[..count]
                .iter_mut()
                .map(|slot| slot.as_mut().map_or_else(Counts::default, |outcomes| outcomes.take())),
        );
        slice.spend(count);
        Some(if is_last { Phase::Judge(Method::SuccessRate) } else { Phase::Count })
    }

    /// The arithmetic is in one piece: it takes a fraction of what it takes to read the counters.
    fn judge(&mut self, method: Method, slice: &mut Slice<'_>) -> Option<Phase> {
        let OutlierDetection { success_rate, failure_percentage, .. } = slice.context.config;
        let outliers = match method {
            Method::SuccessRate => {
                success_rate.as_ref().map(|config| algorithms::success_rate(config, &self.counts))
            }
            Method::FailurePercentage => {
                failure_percentage.as_ref().map(|config| algorithms::failure_percentage(config, &self.counts))
            }
        };
        if let Some(outliers) = outliers {
            self.outliers = outliers;
            // The first ones of the list would be ejected first otherwise, and the last ones never (CH3.70).
            slice.context.random.shuffle(&mut self.outliers);
            slice.spend(self.counts.len() / JUDGED_IN_A_STEP);
        }
        Some(Phase::Eject(method))
    }

    /// Ejects the outliers of an algorithm, as far as the steps last.
    fn eject(&mut self, method: Method, slice: &mut Slice<'_>) -> Option<Phase> {
        let OutlierDetection { success_rate, failure_percentage, .. } = slice.context.config;
        let enforced = match method {
            Method::SuccessRate => success_rate.as_ref().map(|config| config.enforcement_percent),
            Method::FailurePercentage => failure_percentage.as_ref().map(|config| config.enforcement_percent),
        };
        let Some(enforced) = enforced else {
            // The algorithm is not configured, maybe not any more.
            self.outliers.clear();
            return Some(method.next());
        };
        while let Some(place) = self.outliers.pop() {
            // One that has left has no counts.
            slice.spend(1);
            if self.counts[place].total() > 0 {
                slice.eject(place, method, enforced);
            }
            if slice.steps == 0 {
                return Some(Phase::Eject(method));
            }
        }
        Some(method.next())
    }

    /// Ends the interval of each endpoint from a place on, and the sweep with the last of them.
    fn end_interval(&mut self, first: usize, slice: &mut Slice<'_>) -> Option<Phase> {
        // An endpoint that came since the counts were taken has no ejection that could end.
        for place in first..self.counts.len() {
            if slice.steps == 0 {
                return Some(Phase::EndInterval(place));
            }
            slice.end_interval(place);
        }
        self.counts.clear();
        None
    }
}

impl Slice<'_> {
    fn spend(&mut self, steps: usize) {
        self.steps = self.steps.saturating_sub(steps);
    }

    /// Ejects an outlier, unless as many endpoints as may be are ejected, or the draw is against it.
    fn eject(&mut self, place: usize, method: Method, enforced: u8) {
        let Context { config, endpoints, begin, random } = &mut self.context;
        // Both algorithms may have found the endpoint, and it is ejected once (CH13.1).
        let Some(it) = endpoints.at(place).filter(|endpoint| !endpoint.is_ejected()) else { return };
        let addresses = it.addresses().clone();
        let most = usize::from(config.max_ejection_percent) * endpoints.len();
        // Tested before the ejection, as in A50: any percentage above 0 permits at least one.
        let decision = if endpoints.ejected() * 100 >= most {
            Decision::NotEjected(method, Unenforced::MaxEjectionOverflow)
        } else if random.u8(..100) < enforced {
            endpoints.eject(place, *begin);
            Decision::Ejected(method)
        } else {
            Decision::NotEjected(method, Unenforced::EnforcementPercentage)
        };
        self.decisions.push((addresses, decision));
        self.spend(STEPS_OF_A_DECISION);
    }

    /// Ends the interval of the endpoint at a place, and its ejection if the time of that is over.
    fn end_interval(&mut self, place: usize) {
        let Context { config, endpoints, begin, .. } = &mut self.context;
        let ended = endpoints.end_interval(place, config, *begin);
        self.spend(1);
        if let Some(addresses) = ended {
            self.decisions.push((addresses, Decision::Unejected));
            self.spend(STEPS_OF_A_DECISION);
        }
    }
}

impl Method {
    /// What follows it (CH3.67).
    fn next(self) -> Phase {
        match self {
            Self::SuccessRate => Phase::Judge(Self::FailurePercentage),
            Self::FailurePercentage => Phase::EndInterval(0),
        }
    }
}

/// What a step of the arithmetic amounts to: counts that are looked at.
const JUDGED_IN_A_STEP: usize = 2;
/// What it takes to log a decision, and to let the endpoint and its groups follow it.
const STEPS_OF_A_DECISION: usize = 50;
