use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::command::{Command, ConnectionId};

/// The attempts to connect, of which a limited number runs at a time (CH11.8).
///
/// Those that replace a connection in use have turns when no other attempt waits, and a quarter of the limit: certificates may be
/// replaced for all endpoints at once, and calls wait for none of these (CH7.7).
#[derive(Debug, Default)]
pub(super) struct Connects {
    outgoing: VecDeque<Command>,
    running: BTreeSet<ConnectionId>,
    /// Those of them that replace a connection in use.
    replacing: BTreeSet<ConnectionId>,
    /// Attempts that wait for others to end, in the order of their requests, which is that of the ids.
    waiting: BTreeMap<ConnectionId, Command>,
    /// Those that wait and replace a connection in use, with its id.
    waiting_replacements: BTreeMap<ConnectionId, (ConnectionId, Command)>,
    /// The same by the connections that they replace.
    replaced: BTreeMap<ConnectionId, ConnectionId>,
}

impl Connects {
    /// Takes a command of an endpoint. Only logical DNS clusters resolve their names again.
    pub(super) fn take(&mut self, command: Command, is_dns: bool) {
        match command {
            Command::Connect { connection, replaces, .. } => match replaces {
                None => drop(self.waiting.insert(connection, command)),
                Some(replaced) => {
                    self.waiting_replacements.insert(connection, (replaced, command));
                    self.replaced.insert(replaced, connection);
                }
            },
            Command::Cancel { connection } => {
                self.replacing.remove(&connection);
                if self.running.remove(&connection) {
                    self.outgoing.push_back(command);
                } else if let Some((replaced, _)) = self.waiting_replacements.remove(&connection) {
                    self.replaced.remove(&replaced);
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
        if let Some((connection, command)) = self.waiting.pop_first() {
            self.running.insert(connection);
            return Some(command);
        }
        if self.replacing.len() >= (max_running / 4).max(1) {
            return None;
        }
        let (connection, (replaced, command)) = self.waiting_replacements.pop_first()?;
        self.replaced.remove(&replaced);
        self.running.insert(connection);
        self.replacing.insert(connection);
        Some(command)
    }

    /// An attempt ended.
    pub(super) fn end(&mut self, connection: ConnectionId) {
        self.running.remove(&connection);
        self.replacing.remove(&connection);
    }

    /// A connection was lost: calls may wait for the attempt to replace it.
    pub(super) fn on_lost(&mut self, lost: ConnectionId) {
        let attempt = self.replaced.remove(&lost);
        if let Some((connection, (_, command))) =
            attempt.and_then(|it| self.waiting_replacements.remove_entry(&it))
        {
            self.waiting.insert(connection, command);
        }
    }

    /// The attempts that have begun.
    pub(super) fn running(&self) -> &BTreeSet<ConnectionId> {
        &self.running
    }
}
