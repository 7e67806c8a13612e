//! Reports of load beside the calls.

use std::{sync::Arc, time::Instant};

use super::Balancer;
use crate::balance::{
    command::{ConnectionId, Owner},
    picker::ReadyEndpoint,
    weights::LoadReport,
};

impl<H: Clone> Balancer<H> {
    /// An endpoint has reported its load on a connection, beside the calls (CH9.8).
    pub(crate) fn on_load(&mut self, connection: ConnectionId, report: LoadReport, now: Instant) {
        self.with_owner(connection, now, |leaf, holder, scope| {
            if let Some(member) = holder.endpoint() {
                leaf.on_load(member, connection, report, scope);
            }
        });
    }

    /// The endpoint of a connection, while it is ready.
    pub(crate) fn ready(&self, connection: ConnectionId) -> Option<Arc<ReadyEndpoint<H>>> {
        let Owner { leaf, holder } = self.commands.owner_of(connection)?;
        self.leaves.all.get(leaf)?.leaf.ready(holder.endpoint()?)
    }
}
