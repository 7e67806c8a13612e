use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::command::{Command, ConnectionId};

/// The attempts to connect, of which a limited number runs at a time (CH11.8).
#[derive(Debug, Default)]
pub(super) struct Connects {
    outgoing: VecDeque<Command>,
    running: BTreeSet<ConnectionId>,
    /// Attempts that wait for others to end, in the order of their requests, which is that of the ids.
    waiting: BTreeMap<ConnectionId, Command>,
}

impl Connects {
    /// Takes a command of an endpoint. Only logical DNS clusters resolve their names again.
    pub(super) fn take(&mut self, command: Command, is_dns: bool) {
        match command {
            Command::Connect { connection, .. } => {
                self.waiting.insert(connection, command);
            }
            Command::Cancel { connection } => {
                if self.running.remove(&connection) {
                    self.outgoing.push_back(command);
                } else {
                    self.waiting.remove(&connection);
                }
            }
            Command::Drain { .. } | Command::WatchLoad { .. } | Command::UnwatchLoad { .. } => {
                self.outgoing.push_back(command);
            }
            Command::RequestReresolution if is_dns => {
                if !self.outgoing.contains(&command) {
                    self.outgoing.push_back(command);
                }
            }
            Command::RequestReresolution => {}
        }
    }

    /// The next command for the connector.
    pub(super) fn poll(&mut self, max_running: usize) -> Option<Command> {
        if let Some(command) = self.outgoing.pop_front() {
            return Some(command);
        }
        if self.running.len() >= max_running {
            return None;
        }
        let (connection, command) = self.waiting.pop_first()?;
        self.running.insert(connection);
        Some(command)
    }

    /// An attempt ended.
    pub(super) fn end(&mut self, connection: ConnectionId) {
        self.running.remove(&connection);
    }
}
