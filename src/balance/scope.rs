//! What the handling of an event needs.

use std::time::{Duration, Instant};

use super::{
    command::{Commands, ConnectCommand, ConnectionId, Holder, LeafIndex, Owner, Purpose},
    identity::Destination,
};

/// The time and the random numbers of an event of a channel, and the queue of the commands that follow from it.
pub(super) struct EventScope<'a> {
    pub(super) now: Instant,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) commands: &'a mut Commands,
    /// A call, or the application, has requested what the event connects.
    pub(super) is_requested: bool,
}

/// The time and the random numbers of an event of a cluster, and the queue of the commands that follow from it.
pub(super) struct LeafScope<'a> {
    pub(super) now: Instant,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) commands: &'a mut Commands,
    pub(super) leaf: LeafIndex,
    /// A call, or the application, has requested what the event connects.
    pub(super) is_requested: bool,
}

/// The scope of an event of what has connections in a cluster, and which owns those that follow from it.
pub(super) struct Scope<'a> {
    pub(super) now: Instant,
    pub(super) random: &'a mut fastrand::Rng,
    pub(super) commands: &'a mut Commands,
    pub(super) owner: Owner,
    /// A call, or the application, has requested what the event connects.
    pub(super) is_requested: bool,
}

impl EventScope<'_> {
    /// The scope of an event of a cluster.
    pub(super) fn of(&mut self, leaf: LeafIndex) -> LeafScope<'_> {
        LeafScope {
            now: self.now,
            random: self.random,
            commands: self.commands,
            leaf,
            is_requested: self.is_requested,
        }
    }
}

impl LeafScope<'_> {
    /// The scope of an event of one of the cluster's holders of connections.
    pub(super) fn of(&mut self, holder: Holder) -> Scope<'_> {
        Scope {
            now: self.now,
            random: self.random,
            commands: self.commands,
            owner: Owner { leaf: self.leaf, holder },
            is_requested: self.is_requested,
        }
    }
}

impl Scope<'_> {
    /// Begins an attempt to connect, with an id that was taken before.
    pub(super) fn connect(
        &mut self,
        connection: ConnectionId,
        destination: Destination,
        timeout: Duration,
        purpose: Purpose,
    ) {
        let (owner, is_requested) = (self.owner, self.is_requested);
        let command = ConnectCommand { connection, destination, timeout, purpose, owner, is_requested };
        self.commands.connect(command);
    }

    /// The owner of the scope has a connection from now on that another one had (CH3.7).
    pub(super) fn adopt(&mut self, connection: ConnectionId) {
        self.commands.adopt(connection, self.owner);
    }

    /// Requests another resolution of the cluster's name.
    pub(super) fn request_reresolution(&mut self) {
        self.commands.request_reresolution(self.owner.leaf);
    }
}

#[cfg(test)]
impl<'a> Scope<'a> {
    /// The scope of the sole endpoint of a test.
    pub(super) fn of_test(now: Instant, random: &'a mut fastrand::Rng, commands: &'a mut Commands) -> Self {
        Self { now, random, commands, owner: Owner::default(), is_requested: false }
    }
}
