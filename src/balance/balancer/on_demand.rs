//! Connections that calls and applications request.

use std::{sync::Arc, time::Instant};

use super::{Balancer, Target};
use crate::balance::{
    connectivity::Connectivity,
    leaf::Leaf,
    ring_picker::{ConnectRequest, RequestedEndpoint},
};

impl<H: Clone> Balancer<H> {
    /// The largest size of hash rings.
    pub(crate) fn ring_size_cap(&self) -> u32 {
        self.settings.ring_size_cap
    }

    /// A pick requested a connection of a cluster (CH3.22).
    pub(crate) fn connect(&mut self, target: &str, now: Instant) {
        let Some(leaf) = self.targets.get(target).and_then(Target::chosen) else { return };
        if let Some(place) = self.leaves.by_name.get(leaf).copied() {
            self.with_leaf(place, now, Leaf::connect);
        }
    }

    /// A pick requested the connection of an endpoint (CH3.33, CH8.11).
    pub(crate) fn connect_endpoint(&mut self, request: &ConnectRequest, now: Instant) {
        if let Some(place) = self.leaves.by_name.get(&request.leaf).copied() {
            self.with_leaf(place, now, |leaf, scope| match &request.endpoint {
                RequestedEndpoint::OnRing { ring, rank } => leaf.connect_endpoint((ring, *rank), scope),
                RequestedEndpoint::Host(address) => leaf.connect_host(*address, scope),
            });
        }
    }

    /// The application requested connections: those of the clusters that are idle (CH3.38).
    pub(crate) fn exit_idle(&mut self, now: Instant) {
        let targets = self.targets.iter().filter(|(_, it)| it.picker.connectivity == Connectivity::Idle);
        for target in targets.map(|(name, _)| name.clone()).collect::<Vec<Arc<str>>>() {
            self.connect(&target, now);
        }
    }
}
