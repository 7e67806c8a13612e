//! The weight of an endpoint, and the reports of its load beside the calls (CH3.46).

use std::{sync::Arc, time::Duration};

use super::{
    command::ConnectionId,
    scope::Scope,
    weights::{EndpointWeight, LoadReport, WeightSettings},
};

/// The weight of an endpoint under a policy that has weights by load.
#[derive(Debug)]
pub(super) struct Weighing {
    weight: Arc<EndpointWeight>,
    /// The connection for which the blackout was begun.
    connection: Option<ConnectionId>,
    /// How often the endpoint reports on that connection, if it was requested.
    period: Option<Duration>,
}

impl Weighing {
    /// Takes note of the policy of the cluster, if that has weights, and of the connection of the endpoint.
    pub(super) fn update(
        this: &mut Option<Self>,
        settings: Option<&WeightSettings>,
        connection: Option<ConnectionId>,
        scope: &mut Scope<'_>,
    ) {
        if let Some(settings) = settings {
            let new = || Self {
                weight: EndpointWeight::new(&settings.metrics, scope.now),
                connection: None,
                period: None,
            };
            let it = this.get_or_insert_with(new);
            if !it.weight.is_by(&settings.metrics) {
                it.weight = it.weight.with_metrics(&settings.metrics);
            }
            it.set_connection(connection);
            it.set_period(settings.out_of_band, scope);
        } else if let Some(mut it) = this.take() {
            it.set_connection(connection);
            it.set_period(None, scope);
        }
    }

    /// The weight, which outlives connections.
    pub(super) fn weight(&self) -> &Arc<EndpointWeight> {
        &self.weight
    }

    /// The endpoint has reported its load beside the calls.
    pub(super) fn on_report(&self, report: &LoadReport, settings: &WeightSettings, scope: &mut Scope<'_>) {
        // A report may arrive after its stream was ended.
        if self.period.is_some() {
            self.weight.report(report, settings.penalty, scope.now);
        }
    }

    /// Records the oldest connection of the endpoint; `None` without one.
    fn set_connection(&mut self, connection: Option<ConnectionId>) {
        if self.connection != connection {
            // The loss of one of several connections changes nothing for the endpoint (CH4.15).
            if self.connection.is_none() {
                self.weight.on_ready();
            }
            // Reports are a stream of a connection, and end with it.
            (self.connection, self.period) = (connection, None);
        }
    }

    /// Reports are requested once for each connection, and anew with another period.
    fn set_period(&mut self, period: Option<Duration>, scope: &mut Scope<'_>) {
        let Some(connection) = self.connection.filter(|_| self.period != period) else { return };
        self.period = period;
        scope.commands.watch_load(connection, period);
    }
}
