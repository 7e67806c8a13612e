//! Connections that calls and applications request.

use std::{sync::Arc, time::Instant};

use super::{Balancer, Target};
use crate::balance::{
    command::ConnectionId,
    configs::Translation,
    connectivity::Connectivity,
    leaf::Leaf,
    picker::{ConnectRequest, RequestedEndpoint},
};

impl<H: Clone> Balancer<H> {
    /// How the clusters of snapshots are translated for it.
    pub(in crate::balance) fn translation(&self) -> Translation {
        Translation::new(&self.settings)
    }

    /// A pick requested a connection of a cluster (CH3.22).
    pub(crate) fn connect(&mut self, target: &str, now: Instant) {
        let Some(leaf) = self.targets.get(target).and_then(Target::chosen) else { return };
        if let Some(place) = self.leaves.by_name.get(leaf).copied() {
            self.commands.set_requested(true);
            self.with_leaf(place, now, Leaf::connect);
            self.commands.set_requested(false);
        }
    }

    /// A pick requested the connection of an endpoint (CH3.33, CH8.11).
    pub(crate) fn connect_endpoint(&mut self, request: &ConnectRequest, now: Instant) {
        if let Some(place) = self.leaves.by_name.get(&request.leaf).copied() {
            self.commands.set_requested(true);
            self.with_leaf(place, now, |leaf, scope| match &request.endpoint {
                RequestedEndpoint::Listed { list, index } => leaf.connect_endpoint(list, *index, scope),
                RequestedEndpoint::Host(address) => leaf.connect_host(*address, scope),
            });
            self.commands.set_requested(false);
        }
    }

    /// Attempts wait for a further connection to the endpoint of this one (CH4.10). If the connection is lost by now, that was reason
    /// enough to look at what waits.
    pub(crate) fn on_full(&mut self, connection: ConnectionId, now: Instant) {
        self.with_owner(connection, now, |leaf, holder, scope| leaf.on_full(holder, connection, scope));
    }

    /// The application requested connections: those of the clusters that are idle (CH3.38).
    pub(crate) fn exit_idle(&mut self, now: Instant) {
        let targets = self.targets.iter().filter(|(_, it)| it.picker.connectivity == Connectivity::Idle);
        for target in targets.map(|(name, _)| name.clone()).collect::<Vec<Arc<str>>>() {
            self.connect(&target, now);
        }
    }
}
