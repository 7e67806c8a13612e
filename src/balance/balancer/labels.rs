//! The labels of connections for metrics.

use super::Balancer;
use crate::balance::{command::ConnectionId, observer::PickLabels};

impl<H: Clone> Balancer<H> {
    /// The labels of the endpoint that a connection is of, or an attempt at one, if somebody listens (CH9.18).
    pub(crate) fn labels(&self, connection: ConnectionId) -> PickLabels {
        let owner = self.commands.owner_of(connection);
        let leaf = owner.and_then(|owner| Some((self.leaves.all.get(owner.leaf)?, owner.holder)));
        leaf.map_or_else(PickLabels::default, |(in_use, holder)| in_use.leaf.labels(holder))
    }
}
