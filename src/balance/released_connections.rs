use std::collections::BTreeMap;

use super::{
    command::{Commands, ConnectionId},
    connectivity::Connectivity,
    identity::Destination,
    subchannel::Subchannel,
};

/// The subchannels of endpoints that left a configuration, for the endpoints that have their destinations in the next one:
/// a connection belongs to the cluster and its destination, not to a place in the list (CH3.7, CH7.20).
#[derive(Debug)]
pub(super) struct ReleasedConnections<H> {
    /// The best one of each destination is the last.
    by_destination: BTreeMap<Destination, Vec<Subchannel<H>>>,
}

impl<H> ReleasedConnections<H> {
    pub(super) fn new() -> Self {
        Self { by_destination: BTreeMap::new() }
    }

    /// Takes a subchannel that its endpoint needs no more.
    pub(super) fn offer(&mut self, subchannel: Subchannel<H>) {
        let all = self.by_destination.entry(subchannel.destination().clone()).or_default();
        // Behind those of the same value, so that the one that was offered last is taken first.
        let place = all.partition_point(|known| value(known) <= value(&subchannel));
        all.insert(place, subchannel);
    }

    /// Whether nothing was offered, or all of it was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.by_destination.values().all(Vec::is_empty)
    }

    /// The destinations of those that were offered.
    pub(super) fn destinations(&self) -> Vec<Destination> {
        self.by_destination.keys().cloned().collect()
    }

    /// The best subchannel of a destination.
    pub(super) fn take(&mut self, destination: &Destination) -> Option<Subchannel<H>> {
        self.by_destination.get_mut(destination)?.pop()
    }

    /// Whether there is an established connection to a destination.
    pub(super) fn has_ready(&self, destination: &Destination) -> bool {
        let best = self.by_destination.get(destination).and_then(|all| all.last());
        best.is_some_and(|subchannel| subchannel.connectivity() == Connectivity::Ready)
    }

    /// The subchannel of an established connection to a destination.
    pub(super) fn take_connection(
        &mut self,
        destination: &Destination,
        connection: ConnectionId,
    ) -> Option<Subchannel<H>> {
        let all = self.by_destination.get_mut(destination)?;
        let place = all.iter().position(|subchannel| subchannel.has(connection))?;
        Some(all.remove(place))
    }

    /// Ends those that nobody has taken.
    pub(super) fn release(self, commands: &mut Commands) {
        self.by_destination.into_values().flatten().for_each(|mut it| it.release(commands));
    }
}

/// What a subchannel is worth to another endpoint. A delay after a failure is kept as well: a change of the list is no reason to
/// try a failing address sooner.
fn value<H>(subchannel: &Subchannel<H>) -> u8 {
    match subchannel.connectivity() {
        Connectivity::Idle => 0,
        Connectivity::TransientFailure => 1,
        Connectivity::Connecting => 2,
        Connectivity::Ready => 3,
    }
}
