use std::{collections::BTreeMap, net::SocketAddr};

use super::{
    command::{Commands, ConnectionId},
    connectivity::Connectivity,
    subchannel::Subchannel,
};

/// The subchannels of endpoints that left a configuration, for the endpoints that have their addresses in the next one: a
/// connection belongs to the cluster and its address, not to a place in the list (CH3.7).
#[derive(Debug)]
pub(super) struct Handover<H> {
    /// The best one of each address is the last.
    by_address: BTreeMap<SocketAddr, Vec<Subchannel<H>>>,
}

impl<H> Handover<H> {
    pub(super) fn new() -> Self {
        Self { by_address: BTreeMap::new() }
    }

    /// Takes a subchannel that its endpoint needs no more.
    pub(super) fn offer(&mut self, subchannel: Subchannel<H>) {
        let all = self.by_address.entry(subchannel.address()).or_default();
        let place = all.partition_point(|it| value(it) <= value(&subchannel));
        all.insert(place, subchannel);
    }

    /// Whether nothing was offered, or all of it was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.by_address.values().all(Vec::is_empty)
    }

    /// The addresses of those that were offered.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.by_address.keys().copied().collect()
    }

    /// The best subchannel of an address.
    pub(super) fn take(&mut self, address: SocketAddr) -> Option<Subchannel<H>> {
        self.by_address.get_mut(&address)?.pop()
    }

    /// Whether there is an established connection to an address.
    pub(super) fn has_ready(&self, address: SocketAddr) -> bool {
        let best = self.by_address.get(&address).and_then(|all| all.last());
        best.is_some_and(|it| it.connectivity() == Connectivity::Ready)
    }

    /// The subchannel of an established connection to an address.
    pub(super) fn take_connection(
        &mut self,
        address: SocketAddr,
        connection: ConnectionId,
    ) -> Option<Subchannel<H>> {
        let all = self.by_address.get_mut(&address)?;
        let place = all.iter().position(|it| it.has(connection))?;
        Some(all.remove(place))
    }

    /// Ends those that nobody has taken.
    pub(super) fn release(self, commands: &mut Commands) {
        self.by_address.into_values().flatten().for_each(|mut it| it.release(commands));
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
