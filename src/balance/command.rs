use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::identity::Destination;

/// One attempt to connect, and the connection that it leads to. Events of an id that is no longer in use are ignored, so an
/// event may cross the command that ends the connection. Later attempts have greater ids.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The number, for operators.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

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
    queue: VecDeque<QueuedCommand>,
    /// The owners of attempts and connections, until these fail, are lost or are given up.
    owners: HashMap<ConnectionId, Owner>,
    last: u64,
}

/// A command that is not taken yet.
#[derive(Debug)]
pub(super) enum QueuedCommand {
    /// [`Command::Connect`], whose turn depends on its endpoint.
    Connect(ConnectCommand),
    /// [`Command::RequestReresolution`], which only some clusters execute.
    RequestReresolution(LeafIndex),
    /// Any other command, which is of the connection that it names.
    Other(Command),
}

/// A command to connect, with what its turn depends on.
#[derive(Debug)]
pub(super) struct ConnectCommand {
    pub(super) connection: ConnectionId,
    pub(super) destination: Destination,
    pub(super) timeout: Duration,
    pub(super) purpose: Purpose,
    pub(super) owner: Owner,
    /// A call, or the application, has requested it.
    pub(super) is_requested: bool,
}

/// The owner of a connection, or of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    /// The cluster.
    pub(super) leaf: LeafIndex,
    /// What has the connection in the cluster.
    pub(super) holder: Holder,
}

/// What has a connection in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// An endpoint of the policy.
    Endpoint(EndpointIndex),
    /// The endpoints that cookies of sessions lead to, beside those of the policy.
    SessionEndpoints,
    /// The endpoints of a policy that was replaced, until those of the next one can be used.
    ReplacedPolicy,
}

/// The index of a cluster with endpoints among those in use. It is reused once the cluster is not in use any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LeafIndex(pub(super) usize);

/// The index of an endpoint in its cluster. It is reused once the endpoint is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EndpointIndex(pub(super) usize);

impl Holder {
    /// The endpoint, if the policy has it.
    pub(super) fn endpoint(self) -> Option<EndpointIndex> {
        match self {
            Self::Endpoint(endpoint) => Some(endpoint),
            Self::SessionEndpoints | Self::ReplacedPolicy => None,
        }
    }
}

impl Commands {
    /// Begins an attempt to connect; the id that it carries was made by [`next_id`](Self::next_id).
    pub(super) fn connect(&mut self, command: ConnectCommand) {
        // At once, and not when the command is polled: another endpoint may adopt the attempt before that (CH3.7).
        self.owners.insert(command.connection, command.owner);
        self.queue.push_back(QueuedCommand::Connect(command));
    }

    /// Cancels an attempt.
    pub(super) fn cancel(&mut self, connection: ConnectionId) {
        // Later events of the attempt find no owner and are ignored.
        self.owners.remove(&connection);
        self.queue.push_back(QueuedCommand::Other(Command::Cancel { connection }));
    }

    /// Closes a connection as soon as its streams have ended (CH3.9).
    pub(super) fn drain(&mut self, connection: ConnectionId) {
        // The loss of a draining connection concerns no endpoint any more.
        self.owners.remove(&connection);
        self.queue.push_back(QueuedCommand::Other(Command::Drain { connection }));
    }

    /// Has the endpoint of a connection report its load in this period, or no more.
    pub(super) fn watch_load(&mut self, connection: ConnectionId, period: Option<Duration>) {
        self.queue.push_back(QueuedCommand::Other(match period {
            Some(period) => Command::WatchLoad { connection, period },
            None => Command::UnwatchLoad { connection },
        }));
    }

    /// Requests another resolution of a cluster's name, if that is a logical DNS cluster.
    pub(super) fn request_reresolution(&mut self, leaf: LeafIndex) {
        self.queue.push_back(QueuedCommand::RequestReresolution(leaf));
    }

    /// The connection is of another owner from now on (CH3.7).
    pub(super) fn adopt(&mut self, connection: ConnectionId, owner: Owner) {
        self.owners.insert(connection, owner);
    }

    /// The owner of an attempt or a connection.
    pub(super) fn owner_of(&self, connection: ConnectionId) -> Option<Owner> {
        self.owners.get(&connection).copied()
    }

    /// An attempt failed, or a connection was lost.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.owners.remove(&connection);
    }

    /// A new id. Ids grow, so that their order is that of the attempts.
    pub(super) fn next_id(&mut self) -> ConnectionId {
        self.last += 1;
        ConnectionId(self.last)
    }

    /// The next command, the oldest one first.
    pub(super) fn poll_queued(&mut self) -> Option<QueuedCommand> {
        self.queue.pop_front()
    }

    /// The next command, the oldest one first.
    #[cfg(test)]
    pub(super) fn poll(&mut self) -> Option<Command> {
        self.poll_queued().map(|queued| match queued {
            QueuedCommand::Connect(connect) => connect.into_command(),
            QueuedCommand::RequestReresolution(_) => Command::RequestReresolution,
            QueuedCommand::Other(command) => command,
        })
    }

    /// Whether no connection is attempted or established.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn owns_nothing(&self) -> bool {
        self.owners.is_empty()
    }
}

impl ConnectCommand {
    /// The command for the connector.
    pub(super) fn into_command(self) -> Command {
        let Self { connection, destination, timeout, purpose, owner: _, is_requested: _ } = self;
        Command::Connect { connection, destination, timeout, purpose }
    }
}

#[cfg(test)]
impl Default for Owner {
    fn default() -> Self {
        Self { leaf: LeafIndex(0), holder: Holder::Endpoint(EndpointIndex(0)) }
    }
}
