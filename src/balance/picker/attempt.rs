//! What is counted of an attempt, from its pick to its end.

use std::{sync::Arc, time::Instant};

use super::ReadyEndpoint;
use crate::{
    balance::{breaker::Breaker, load::Load, outlier::outcomes::Outcomes, weights::LoadReport},
    lrs::{self, EndpointReporter, OrcaLoadReport, ReportedCall},
    resource::load_balancing::AddedMetadata,
};

/// An attempt that is counted from the pick until this is dropped (CH4.6).
#[derive(Debug)]
pub(crate) struct Attempt<H> {
    pub(crate) endpoint: Arc<ReadyEndpoint<H>>,
    /// Whether the policy counts the attempts of each endpoint.
    pub(in crate::balance) has_load: bool,
    pub(super) outcome: Outcome,
    /// The report of the endpoint is read, with this penalty of errors.
    pub(super) penalty: Option<f64>,
    /// Headers that a policy of the application adds to the request.
    pub(crate) metadata: Vec<AddedMetadata>,
    /// Counters of the load reports, if the cluster's load is reported.
    pub(super) reported: Option<Reported>,
}

/// What load reports count of an attempt.
#[derive(Debug)]
pub(super) struct Reported {
    endpoint: EndpointReporter,
    /// Once it has a stream.
    call: Option<ReportedCall>,
    /// The report of the endpoint, if the metrics of the cluster are reported. Boxed, since few attempts have one.
    metrics: Option<Box<OrcaLoadReport>>,
}

/// What an attempt has come to, for outlier detection.
///
/// ```text
///   NoStream ── on_stream ──▶ Failure ── on_ok ──▶ Success
///      ◀───── on_never_sent ─────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The attempt is not counted: it still waits, or its connection was gone before (CH2.22).
    NoStream,
    /// However it ends, unless it is with OK: by another status, a reset, the deadline, or as the call is dropped (CH3.65). So does one
    /// that the server has not processed (`REFUSED_STREAM`): it had a stream, and a server that refuses all of them is one to avoid.
    Failure,
    Success,
}

/// A load report of an endpoint that is none.
#[derive(Debug)]
pub(crate) struct Malformed;

/// Who counts the end of an attempt; outlier detection with whether it has succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) enum End<'a> {
    Policy(&'a Load),
    Breaker(&'a Breaker),
    Outliers(&'a Outcomes, bool),
}

impl End<'_> {
    #[inline]
    pub(super) fn count(self) {
        match self {
            Self::Policy(load) => load.end(),
            Self::Breaker(breaker) => breaker.release(),
            Self::Outliers(outcomes, true) => outcomes.on_success(),
            Self::Outliers(outcomes, false) => outcomes.on_failure(),
        }
    }
}

impl<H> Attempt<H> {
    /// The request was sent.
    pub(crate) fn on_stream(&mut self) {
        // A failure until the status is OK: an attempt that is dropped has failed (CH3.65).
        self.outcome = Outcome::Failure;
        if let Some(reported) = &mut self.reported {
            reported.call = Some(reported.endpoint.call_started());
        }
    }

    /// The stream has ended before anything of the request was written: the attempt counts nowhere (CH6.12).
    pub(crate) fn on_never_sent(&mut self) {
        self.outcome = Outcome::NoStream;
        if let Some(call) = self.reported.as_mut().and_then(|reported| reported.call.take()) {
            call.withdraw();
        }
    }

    /// The response is complete, with the status OK.
    pub(crate) fn on_ok(&mut self) {
        self.outcome = Outcome::Success;
    }

    /// Whether anybody reads the load that the endpoint reports with its response.
    pub(crate) fn reads_reports(&self) -> bool {
        self.penalty.is_some() || self.reports_metrics()
    }

    /// Whether load reports have metrics of the cluster, and the attempt a stream.
    fn reports_metrics(&self) -> bool {
        let call = self.reported.as_ref().and_then(|reported| reported.call.as_ref());
        call.is_some_and(ReportedCall::wants_metrics)
    }

    /// Who counts the end of the attempt, in the order of CH2.23.
    #[inline]
    pub(super) fn ends(&self) -> [Option<End<'_>>; 3] {
        let endpoint = &*self.endpoint;
        let outcome = match self.outcome {
            Outcome::NoStream => None,
            Outcome::Failure => Some(false),
            Outcome::Success => Some(true),
        };
        let outliers = endpoint.outcomes.as_deref().zip(outcome).map(|(it, is_ok)| End::Outliers(it, is_ok));
        let policy = self.has_load.then_some(End::Policy(&endpoint.load));
        [policy, Some(End::Breaker(&endpoint.breaker)), outliers]
    }

    /// The load that the endpoint has reported with its response, encoded: for the policy, and for load reports (CH9.5).
    ///
    /// # Errors
    /// The message is malformed.
    pub(crate) fn on_encoded_report(&mut self, message: &[u8], now: Instant) -> Result<(), Malformed> {
        if self.reports_metrics() {
            let report = OrcaLoadReport::decode(message).ok_or(Malformed)?;
            if let Some(reported) = &mut self.reported {
                reported.metrics = Some(Box::new(report));
            }
        }
        if self.penalty.is_some()
            && let Some(report) = LoadReport::decode(message).map_err(|_| Malformed)?
        {
            self.on_report(&report, now);
        }
        Ok(())
    }

    /// The load that the endpoint has reported with its response.
    pub(crate) fn on_report(&self, report: &LoadReport, now: Instant) {
        if let (Some(weight), Some(penalty)) = (&self.endpoint.weight, self.penalty) {
            weight.report(report, penalty, now);
        }
    }
}

impl<H> Drop for Attempt<H> {
    fn drop(&mut self) {
        let count = |end: Option<End<'_>>| {
            if let Some(end) = end {
                end.count();
            }
        };
        let reported = self.reported.take();
        // The order of CH2.23: policy, load report, circuit breaker, outlier detection.
        let [policy, others @ ..] = self.ends();
        count(policy);
        if let Some(reported) = reported {
            reported.end(self.outcome);
        }
        others.into_iter().for_each(count);
    }
}

impl Reported {
    pub(super) fn new(endpoint: &EndpointReporter) -> Self {
        Self { endpoint: endpoint.clone(), call: None, metrics: None }
    }

    /// The attempt has ended. One without a stream was not issued (CH2.22).
    fn end(self, outcome: Outcome) {
        let Some(call) = self.call else { return };
        let outcome = match outcome {
            Outcome::Success => lrs::Outcome::Success,
            Outcome::Failure | Outcome::NoStream => lrs::Outcome::Error,
        };
        call.finish(outcome, self.metrics.as_deref());
    }
}
