use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::identity::Destination;

/// One attempt to connect, and the connection that it leads to. Events of an id that is no longer in use are ignored, so an
/// event may cross the command that ends the connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

/// What load balancing requests of the connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// Connect; the attempt fails after the timeout at the latest (CH3.2).
    Connect { connection: ConnectionId, destination: Destination, timeout: Duration, purpose: Purpose },
    /// Cancel an attempt.
    Cancel { connection: ConnectionId },
    /// Close a connection as soon as its streams have ended (CH3.9).
    Drain { connection: ConnectionId },
    /// Have the endpoint report its load on a connection, at least so often, instead of what was requested before (CH9.8).
    WatchLoad { connection: ConnectionId, period: Duration },
    /// End the reports of a connection. Those of a connection that is drained or lost end by themselves.
    UnwatchLoad { connection: ConnectionId },
    /// Resolve the name of a logical DNS cluster again (CH1.27).
    RequestReresolution,
}

/// What an attempt to connect is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The endpoint has no connection.
    First {
        /// Whether the endpoint left the last attempt without an answer.
        was_silent: bool,
    },
    /// Calls wait for a further connection of the endpoint (CH4.10).
    Further,
    /// Replace this connection, which calls use as long (CH7.7).
    Replace(ConnectionId),
}

impl Purpose {
    /// The connection that is to be replaced.
    pub(crate) fn replaces(self) -> Option<ConnectionId> {
        match self {
            Self::Replace(connection) => Some(connection),
            Self::First { .. } | Self::Further => None,
        }
    }
}

/// The commands that are not taken yet, and the connections with the endpoints that they are of.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    queue: VecDeque<OwnedCommand>,
    owner: Owner,
    /// The commands that follow are requested by a call, or by the application.
    is_requested: bool,
    owners: HashMap<ConnectionId, Owner>,
    last: u64,
}

/// What a command, or the connection that follows from it, belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    /// The place of the cluster.
    pub(super) leaf: usize,
    /// What has the connection in the cluster.
    pub(super) holder: Holder,
}

/// What has a connection in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// The endpoint of the policy at this place.
    Endpoint(usize),
    /// The endpoints that cookies of sessions lead to, beside those of the policy.
    SessionEndpoints,
    /// The endpoints of a policy that was replaced, until those of the next one can be used.
    ReplacedPolicy,
}

impl Holder {
    /// The place of the endpoint, if the policy has it.
    pub(super) fn endpoint(self) -> Option<usize> {
        match self {
            Self::Endpoint(place) => Some(place),
            Self::SessionEndpoints | Self::ReplacedPolicy => None,
        }
    }
}

impl Default for Holder {
    fn default() -> Self {
        Self::Endpoint(0)
    }
}

/// A command, and on whose account it was given.
#[derive(Debug)]
pub(super) struct OwnedCommand {
    pub(super) command: Command,
    pub(super) owner: Owner,
    /// A call, or the application, has requested it.
    pub(super) is_requested: bool,
}

impl Commands {
    pub(super) fn push(&mut self, command: Command) {
        match command {
            Command::Connect { connection, .. } => {
                self.owners.insert(connection, self.owner);
            }
            Command::Cancel { connection } | Command::Drain { connection } => {
                self.owners.remove(&connection);
            }
            Command::WatchLoad { .. } | Command::UnwatchLoad { .. } | Command::RequestReresolution => {}
        }
        let (owner, is_requested) = (self.owner, self.is_requested);
        self.queue.push_back(OwnedCommand { command, owner, is_requested });
    }

    /// Whether the commands that follow are requested by a call, or by the application.
    pub(super) fn set_requested(&mut self, is_requested: bool) {
        self.is_requested = is_requested;
    }

    /// The commands that follow are of this endpoint.
    pub(super) fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    /// The endpoint that commands are of.
    pub(super) fn owner(&self) -> Owner {
        self.owner
    }

    /// The endpoint whose commands follow has the connection from now on (CH3.7).
    pub(super) fn adopt(&mut self, connection: ConnectionId) {
        self.owners.insert(connection, self.owner);
    }

    /// The endpoint that an attempt or a connection is of.
    pub(super) fn owner_of(&self, connection: ConnectionId) -> Option<Owner> {
        self.owners.get(&connection).copied()
    }

    /// An attempt failed, or a connection was lost.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.owners.remove(&connection);
    }

    pub(super) fn next_id(&mut self) -> ConnectionId {
        self.last += 1;
        ConnectionId(self.last)
    }

    /// The next command with its endpoint, the oldest one first.
    pub(super) fn poll_owned(&mut self) -> Option<OwnedCommand> {
        self.queue.pop_front()
    }

    /// The next command, the oldest one first.
    #[cfg(test)]
    pub(super) fn poll(&mut self) -> Option<Command> {
        self.poll_owned().map(|owned| owned.command)
    }

    /// Whether no connection is attempted or established.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn owns_nothing(&self) -> bool {
        self.owners.is_empty()
    }
}
