//! Rotations of the certificates of a provider (CH7.7).

use super::{
    super::configs::{LEAVES, ROOTS},
    World,
};
use crate::balance::identity::{Destination, Rotation, Security};

impl World<'_> {
    /// The roots that some clusters use are others from now on. Nothing is drained for that, and no call loses its endpoint.
    pub(super) fn rotate(&mut self) {
        self.drain();
        let before = self.connections.clone();
        let rotation = Rotation { roots: [ROOTS.into()].into(), ..Rotation::default() };
        self.balancer.on_rotation(&rotation, self.now);
        self.quiet_since = self.now;
        self.drain();
        assert_eq!(self.connections, before, "connections are in use until there are others");
        let secured = before.into_iter().filter(|(_, to)| is_rotated(to));
        self.outdated = secured.map(|(connection, _)| connection).collect();
    }

    /// With all backends up and time enough, there is no connection from the time before the last rotation. Those for cookies alone
    /// are tried once, and those of a policy before are given up soon.
    pub(super) fn check_outdated(&self) {
        for name in LEAVES {
            for (connection, to) in self.connected(&name.into()) {
                let is_kept = self.outdated.contains(&connection) && !self.retires(&name.into(), to.address);
                assert!(!is_kept, "{name}: {connection:?} to {to:?} is outdated");
            }
        }
    }
}

fn is_rotated(destination: &Destination) -> bool {
    matches!(destination.identity.security(), Security::Cluster { .. })
}
