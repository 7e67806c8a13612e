//! Reports of load beside the calls.

use std::time::Instant;

use super::Balancer;
use crate::balance::{
    command::{ConnectionId, Owner},
    weights::LoadReport,
};

impl<H: Clone> Balancer<H> {
    /// An endpoint has reported its load on a connection, beside the calls (CH9.8).
    pub(crate) fn on_load(&mut self, connection: ConnectionId, report: LoadReport, now: Instant) {
        self.with_owner(connection, now, |leaf, member, scope| {
            leaf.on_load(member, (connection, report), scope)
        });
    }

    /// What requests are sent with on a connection.
    pub(crate) fn handle(&self, connection: ConnectionId) -> Option<H> {
        let Owner { leaf, member } = self.commands.owner_of(connection)?;
        self.leaves.all.get(leaf)?.leaf.handle(member)
    }
}
