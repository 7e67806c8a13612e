use std::time::Instant;

use super::{
    command::ConnectionId,
    picker::{Localities, ready_without},
    released_connections::ReleasedConnections,
    scope::Scope,
    subchannel::Subchannel,
};

/// The endpoints of a policy that was replaced by one of another type, while the new one connects (CH3.13).
#[derive(Debug)]
pub(super) struct DrainingPolicy<H> {
    /// The pickers of the replaced policy, without the endpoints whose connections are gone or taken over.
    endpoints: Localities<H>,
    /// What these endpoints have that the new policy has not taken over, by the connections that they are known by.
    subchannels: Vec<(ConnectionId, Subchannel<H>)>,
}

impl<H> DrainingPolicy<H> {
    /// Takes the connections of these endpoints that nobody has taken over, if there are any. They are of the scope's owner from
    /// now on.
    pub(super) fn new(
        endpoints: Localities<H>,
        released: &mut ReleasedConnections<H>,
        scope: &mut Scope<'_>,
    ) -> Option<Self> {
        let ready = endpoints.iter().flat_map(|(_, picker)| picker.ready.iter());
        let mut subchannels: Vec<_> = ready
            .filter_map(|endpoint| {
                Some((
                    endpoint.connection,
                    // By connection: several subchannels may have the same destination.
                    released.take_connection(&endpoint.destination(), endpoint.connection)?,
                ))
            })
            .collect();
        for (_, it) in &mut subchannels {
            // What they have is enough for the time.
            it.stop_growing(scope.commands);
            it.ids().for_each(|connection| scope.adopt(connection));
        }
        let mut retiring = Self { endpoints, subchannels };
        retiring.keep_connected();
        Some(retiring).filter(|retiring| !retiring.is_over())
    }

    /// The pickers that calls use until the new policy has connected or failed.
    pub(super) fn endpoints(&self) -> &Localities<H> {
        &self.endpoints
    }

    /// No connection is left.
    pub(super) fn is_over(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Handles that a connection takes no new streams any more.
    pub(super) fn on_lost(&mut self, lost: ConnectionId, now: Instant) {
        self.subchannels.iter_mut().filter(|(_, it)| it.has(lost)).for_each(|(_, it)| it.on_lost(lost, now));
        // Endpoints of a replaced policy do not connect again, so they end with their last connection.
        self.subchannels.retain(|(_, it)| it.ready().is_some());
        self.keep_connected();
    }

    /// Gives away the connections.
    pub(super) fn release_connections(self, released: &mut ReleasedConnections<H>) {
        self.subchannels.into_iter().for_each(|(_, it)| released.offer(it));
    }

    /// Only endpoints whose connections are here are picked.
    fn keep_connected(&mut self) {
        let subchannels = &self.subchannels;
        let is_connected = |connection| subchannels.iter().any(|(known, _)| *known == connection);
        self.endpoints = ready_without(&self.endpoints, |connection| !is_connected(connection));
    }
}
