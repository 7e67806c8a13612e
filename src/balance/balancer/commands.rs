//! The commands of all clusters for the connector.

use std::time::Instant;

use super::{Balancer, Due};
use crate::balance::{
    command::{Command, OwnedCommand},
    leaf::Leaf,
};

impl<H: Clone> Balancer<H> {
    /// What the connector is to do next. To be called until `None` after each event; it may change
    /// [`poll_timeout`](Self::poll_timeout).
    pub(crate) fn poll_command(&mut self, now: Instant) -> Option<Command> {
        while let Some(owned) = self.commands.poll_owned() {
            self.queue_command(owned);
        }
        let command = self.connects.poll(self.settings.max_concurrent_connects, now);
        self.deadlines.set(Due::Connect, self.connects.poll_timeout());
        command
    }

    /// Attempts to connect wait for their turn. Only logical DNS clusters resolve their names again.
    fn queue_command(&mut self, OwnedCommand { command, owner, is_requested }: OwnedCommand) {
        let leaf = self.leaves.all.get(owner.leaf).map(|leaf| &leaf.leaf);
        match command {
            Command::Connect { connection, purpose, .. } => {
                // Without the cluster, what follows cancels it.
                if let Some(leaf) = leaf {
                    let turn = leaf.turn(owner.holder, purpose, is_requested);
                    self.connects.add(connection, command, turn);
                }
            }
            Command::Cancel { connection } => self.connects.cancel(connection),
            Command::Drain { .. } | Command::WatchLoad { .. } | Command::UnwatchLoad { .. } => {
                self.connects.pass(command);
            }
            Command::RequestReresolution => {
                if leaf.is_some_and(Leaf::is_dns) {
                    self.connects.pass(command);
                }
            }
        }
    }
}
