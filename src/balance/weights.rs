//! Weights of endpoints by the load that they report, and picks in proportion to them (A58).

mod utilization;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use prost::{DecodeError, Message};

pub(crate) use self::utilization::UtilizationMetrics;
use self::utilization::{ReportedMetrics, is_usable};
use crate::{
    pb::xds::data::orca::v3::OrcaLoadReport, resource::load_balancing::ClientSideWeightedRoundRobin,
};

/// Settings of weighted_round_robin (CH3.41).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WeightSettings {
    /// How long an endpoint must have reported before its weight counts; zero for at once.
    pub(super) blackout: Duration,
    /// How long a report counts.
    pub(super) expiration: Duration,
    /// How often schedules are made anew.
    pub(super) update: Duration,
    /// How much errors lower a weight.
    pub(super) penalty: f64,
    /// How often endpoints report beside the calls; with that, the reports of calls are not read (CH3.46).
    pub(super) out_of_band: Option<Duration>,
    /// What the utilization is computed from.
    pub(super) metrics: UtilizationMetrics,
}

/// The load of an endpoint, from which the policy `client_side_weighted_round_robin` computes its weight (A58).
#[derive(Debug, Clone, PartialEq)]
pub struct LoadReport {
    /// Shares of what the endpoint can do: above 1 if it is overloaded.
    metrics: ReportedMetrics,
    /// Requests per second.
    rate: f64,
    /// Errors per second.
    errors: f64,
}

/// The weight of an endpoint, as long as it is listed. Calls write it and schedules read it, without a lock.
///
/// The fields are written one after the other. A reader between two reports may see the weight of one with the time of the other,
/// which are both recent.
#[derive(Debug)]
pub(crate) struct EndpointWeight {
    epoch: Instant,
    /// The bits of an `f64`.
    weight: AtomicU64,
    /// When the last report was, in ns since the epoch; [`NEVER`] before the first.
    updated: AtomicU64,
    /// Since when there have been reports without an interruption, in ns since the epoch; [`NEVER`] if there is none.
    reporting_since: AtomicU64,
    /// What the utilization is computed from.
    metrics: UtilizationMetrics,
}

/// What a weight is good for at a time (CH3.43).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum WeightState {
    /// The endpoint has not reported, or not for long enough.
    NotYetUsable,
    /// The last report is too old.
    Stale,
    Usable(f64),
}

impl From<&ClientSideWeightedRoundRobin> for WeightSettings {
    fn from(from: &ClientSideWeightedRoundRobin) -> Self {
        Self {
            blackout: from.blackout_period,
            expiration: from.weight_expiration_period,
            update: from.weight_update_period,
            penalty: f64::from(from.error_utilization_penalty),
            out_of_band: from.enable_oob_load_report.then_some(from.oob_reporting_period),
            metrics: UtilizationMetrics::new(&from.metric_names_for_computing_utilization),
        }
    }
}

impl LoadReport {
    /// The load of an endpoint with a utilization, a share of what it can do that exceeds 1 if it is overloaded, and the requests per
    /// second that it serves. `None` unless both are positive and finite: no weight can be computed then.
    pub fn new(utilization: f64, requests_per_second: f64) -> Option<Self> {
        let is_useful = is_usable(utilization) && is_usable(requests_per_second);
        let metrics = ReportedMetrics { application: utilization, ..ReportedMetrics::default() };
        is_useful.then_some(Self { metrics, rate: requests_per_second, errors: 0.0 })
    }

    /// Sets the errors per second, which lower the weight by the penalty of the policy: 0 by default, which also stands for a number
    /// that is negative or not finite.
    #[must_use]
    pub fn with_errors_per_second(self, errors: f64) -> Self {
        Self { errors: if is_usable(errors) { errors } else { 0.0 }, ..self }
    }

    /// The report in a message `xds.data.orca.v3.OrcaLoadReport`; `None` if it has nothing of which a weight can be made (CH3.42).
    ///
    /// # Errors
    /// The message is malformed.
    pub(crate) fn decode(message: &[u8]) -> Result<Option<Self>, DecodeError> {
        let decoded = OrcaLoadReport::decode(message)?;
        let metrics = ReportedMetrics {
            application: decoded.application_utilization,
            processor: decoded.cpu_utilization,
            memory: decoded.mem_utilization,
            named: decoded.named_metrics,
        };
        let (rate, eps) = (decoded.rps_fractional, decoded.eps);
        let is_useful = metrics.is_any_usable() && is_usable(rate);
        Ok(is_useful.then_some(Self { metrics, rate, errors: 0.0 }.with_errors_per_second(eps)))
    }

    /// The requests per second that the endpoint could serve; `None` without a usable utilization, and if extreme numbers have a quotient
    /// that is too great, or too small.
    fn weight(&self, metrics: &UtilizationMetrics, penalty: f64) -> Option<f64> {
        let utilization = self.metrics.utilization(metrics)?;
        let weight = self.rate / (utilization + self.errors / self.rate * penalty);
        is_usable(weight).then_some(weight)
    }
}

impl EndpointWeight {
    /// Before the first report.
    pub(super) fn new(metrics: &UtilizationMetrics, now: Instant) -> Arc<Self> {
        Arc::new(Self {
            metrics: metrics.clone(),
            epoch: now,
            weight: AtomicU64::new(0),
            updated: AtomicU64::new(NEVER),
            reporting_since: AtomicU64::new(NEVER),
        })
    }

    /// Whether the utilization is computed from these metrics.
    pub(super) fn is_by(&self, metrics: &UtilizationMetrics) -> bool {
        self.metrics == *metrics
    }

    /// A copy of the weight, which later reports change by other metrics.
    pub(super) fn with_metrics(&self, metrics: &UtilizationMetrics) -> Arc<Self> {
        let copied = |value: &AtomicU64| AtomicU64::new(value.load(Ordering::Acquire));
        Arc::new(Self {
            epoch: self.epoch,
            // Before the weight, as a reader of both reads them.
            updated: copied(&self.updated),
            weight: copied(&self.weight),
            reporting_since: copied(&self.reporting_since),
            metrics: metrics.clone(),
        })
    }

    /// The endpoint has reported its load.
    pub(super) fn report(&self, report: &LoadReport, penalty: f64, now: Instant) {
        let Some(weight) = report.weight(&self.metrics, penalty) else { return };
        let now = self.since_epoch(now);
        self.weight.store(weight.to_bits(), Ordering::Relaxed);
        // After the weight, so that a reader of this time sees a weight.
        self.updated.store(now, Ordering::Release);
        // Fails if it has reported before.
        let _ = self.reporting_since.compare_exchange(NEVER, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The endpoint has a new connection: its blackout begins with its next report, and its last weight stays (CH3.43).
    pub(super) fn on_ready(&self) {
        self.reporting_since.store(NEVER, Ordering::Relaxed);
    }

    /// The weight at a time, and whether it counts (CH3.43).
    pub(super) fn state(&self, settings: &WeightSettings, now: Instant) -> WeightState {
        let now = self.since_epoch(now);
        let updated = self.updated.load(Ordering::Acquire);
        if updated == NEVER || now.saturating_sub(updated) >= nanoseconds(settings.expiration) {
            // The next report begins the blackout again (CH3.43).
            self.reporting_since.store(NEVER, Ordering::Relaxed);
            return if updated == NEVER { WeightState::NotYetUsable } else { WeightState::Stale };
        }
        let since = self.reporting_since.load(Ordering::Relaxed);
        let is_blacked_out = !settings.blackout.is_zero()
            && (since == NEVER || now.saturating_sub(since) < nanoseconds(settings.blackout));
        if is_blacked_out {
            return WeightState::NotYetUsable;
        }
        WeightState::Usable(f64::from_bits(self.weight.load(Ordering::Relaxed)))
    }

    fn since_epoch(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.epoch))
    }
}

impl WeightState {
    /// The weight, if it counts.
    pub(crate) fn usable(self) -> Option<f64> {
        match self {
            Self::NotYetUsable | Self::Stale => None,
            Self::Usable(weight) => Some(weight),
        }
    }

    /// Whether endpoints with these weights are picked in turns, as too few of them count: fewer than two (CH3.44).
    pub(crate) fn are_too_few(weights: &[Self]) -> bool {
        weights.iter().filter(|weight| weight.usable().is_some()).count() < 2
    }
}

/// A duration in ns. Durations of more than 584 years are as long as fits below [`NEVER`].
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER - 1)
}

/// The value of a time that is not set.
const NEVER: u64 = u64::MAX;

#[cfg(test)]
mod tests;
