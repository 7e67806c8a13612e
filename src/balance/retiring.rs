use super::{
    command::{Commands, ConnectionId},
    handover::Handover,
    picker::{Localities, ready_without},
    subchannel::Subchannel,
};

/// The endpoints of a policy that was replaced by one of another type, while the new one connects (CH3.13).
#[derive(Debug)]
pub(super) struct Retiring<H> {
    endpoints: Localities<H>,
    /// The connections of these endpoints that the new policy has not taken over.
    connections: Vec<Subchannel<H>>,
}

impl<H> Retiring<H> {
    /// Takes the connections of these endpoints that nobody has taken over, if there are any. They are of the current owner from
    /// now on.
    pub(super) fn new(
        endpoints: Localities<H>,
        handover: &mut Handover<H>,
        commands: &mut Commands,
    ) -> Option<Self> {
        let ready = endpoints.iter().flat_map(|(_, picker)| picker.ready.iter());
        let connections: Vec<_> =
            ready.filter_map(|it| handover.take_connection(it.address, it.connection)).collect();
        connections.iter().filter_map(Subchannel::connection).for_each(|it| commands.adopt(it));
        let mut retiring = Self { endpoints, connections };
        retiring.keep_connected();
        Some(retiring).filter(|it| !it.is_over())
    }

    pub(super) fn endpoints(&self) -> &Localities<H> {
        &self.endpoints
    }

    /// No connection is left.
    pub(super) fn is_over(&self) -> bool {
        self.endpoints.is_empty()
    }

    pub(super) fn on_lost(&mut self, connection: ConnectionId) {
        self.connections.retain(|it| it.connection() != Some(connection));
        self.keep_connected();
    }

    /// Gives away the connections.
    pub(super) fn surrender(self, handover: &mut Handover<H>) {
        self.connections.into_iter().for_each(|it| handover.offer(it));
    }

    /// Only endpoints whose connection is here are picked.
    fn keep_connected(&mut self) {
        let connections = &self.connections;
        let is_connected = |connection| connections.iter().any(|it| it.connection() == Some(connection));
        self.endpoints = ready_without(&self.endpoints, |connection| !is_connected(connection));
    }
}

/// The place of these endpoints among those of their cluster.
pub(super) const RETIRING: usize = usize::MAX;
