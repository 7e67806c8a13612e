//! The guard of a request on its way.

use std::{fmt, net::SocketAddr, sync::Arc, time::Instant};

use crate::{
    balance::{picker, weights::LoadReport},
    escape::debug_as_message,
    lrs::Outcome,
};

/// A request to the picked endpoint. It counts for the circuit breaker of the cluster, and for `least_request`, until it is dropped.
///
/// ```text
///   picked ── on_sent ──▶ sent ── finish ──▶ counted by outlier detection and load reports
///     │                     ├──── drop ────▶ counted as an error
///     │                     └── withdraw ─▶ counted nowhere
///     └────── drop ──▶ counted nowhere: nothing was sent
/// ```
///
/// [`finish`](Self::finish) implies `on_sent`.
#[must_use = "the request counts until this is dropped"]
pub struct Attempt<C> {
    /// The cluster that the request goes to.
    target: Arc<str>,
    core: picker::Attempt<C>,
    is_sent: bool,
}

/// A load report of an endpoint is malformed. The attempt goes on without it.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the load report of the endpoint is not a message xds.data.orca.v3.OrcaLoadReport")]
#[non_exhaustive]
pub struct InvalidLoadReport;

debug_as_message!(InvalidLoadReport);

impl<C> Attempt<C> {
    /// `None` if the connection was lost, or is to be closed, since the picker was made.
    #[inline]
    pub(super) fn new(target: &Arc<str>, core: picker::Attempt<C>) -> Option<Self> {
        let is_closed = core.endpoint.connections.oldest().is_closed();
        (!is_closed).then(|| Self { target: target.clone(), core, is_sent: false })
    }

    /// What the request is sent with: the connection that was passed to
    /// [`Balancer::handle_connected`](super::Balancer::handle_connected).
    pub fn connection(&self) -> &C {
        self.core.endpoint.connections.oldest().handle()
    }

    /// The address of the endpoint.
    pub fn address(&self) -> SocketAddr {
        self.core.endpoint.address
    }

    /// The hostname of the endpoint, if the configuration has one (A81).
    pub fn hostname(&self) -> Option<&str> {
        self.core.endpoint.hostname.as_deref()
    }

    /// The name of the cluster that the request goes to, which may be an aggregate of that with the endpoint.
    pub fn cluster(&self) -> &str {
        &self.target
    }

    /// Notes that the request was sent. From now on it is an error for outlier detection and load reports unless it
    /// [finishes](Self::finish) otherwise.
    pub fn on_sent(&mut self) {
        if !self.is_sent {
            self.is_sent = true;
            self.core.on_stream();
        }
    }

    /// Notes the load that the endpoint has reported with its response, if the policy of the cluster reads it there.
    pub fn on_load(&mut self, report: &LoadReport, now: Instant) {
        self.core.on_report(report, now);
    }

    /// Notes the load that the endpoint has reported with its response as an encoded `xds.data.orca.v3.OrcaLoadReport`: for the
    /// policy, and for the metrics of load reports. It is decoded only where one of them reads it.
    ///
    /// # Errors
    /// The message is malformed.
    pub fn on_encoded_load(&mut self, message: &[u8], now: Instant) -> Result<(), InvalidLoadReport> {
        if !self.core.reads_reports() {
            return Ok(());
        }
        self.core.on_encoded_report(message, now).map_err(|_| InvalidLoadReport)
    }

    /// Ends the attempt with its outcome.
    pub fn finish(mut self, outcome: Outcome) {
        self.on_sent();
        if outcome == Outcome::Success {
            self.core.on_ok();
            // The connection has proved itself, so that its loss is followed by no delay. An error may be the lack of an answer.
            self.core.endpoint.connections.oldest().on_complete();
        }
    }

    /// Ends the attempt without an outcome: the request was cancelled by its sender, so that nothing is known of the endpoint.
    pub fn withdraw(mut self) {
        self.core.on_never_sent();
    }
}

impl<C> fmt::Debug for Attempt<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("cluster", &self.target)
            .field("address", &self.address())
            .field("is_sent", &self.is_sent)
            .finish_non_exhaustive()
    }
}
