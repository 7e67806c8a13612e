//! What the peers at an address have seen.

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use tokio::time::Instant;

use super::network::lock;

/// Counts of the peers at an address.
#[derive(Debug, Default)]
pub(super) struct Stats(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The attempts to connect.
    attempts: Vec<Instant>,
    /// When responses were complete.
    served: Vec<Instant>,
    connections: usize,
    /// The streams that are open at the peers, by connection and stream, with the deadlines of their requests.
    streams: BTreeMap<(usize, u32), Option<Instant>>,
    /// Why connections were ended by the client.
    go_aways: Vec<String>,
}

impl Stats {
    pub(super) fn on_attempt(&self, now: Instant) {
        lock(&self.0).attempts.push(now);
    }

    /// So many responses are complete.
    pub(super) fn on_served(&self, calls: usize, now: Instant) {
        lock(&self.0).served.extend(std::iter::repeat_n(now, calls));
    }

    /// Returns the number of a new connection.
    pub(super) fn on_connection(&self) -> usize {
        let mut counts = lock(&self.0);
        counts.connections += 1;
        counts.connections
    }

    pub(super) fn on_stream(&self, connection: usize, stream: u32, deadline: Option<Instant>) {
        lock(&self.0).streams.insert((connection, stream), deadline);
    }

    pub(super) fn on_stream_end(&self, connection: usize, stream: u32) {
        lock(&self.0).streams.remove(&(connection, stream));
    }

    /// A connection and all of its streams have ended.
    pub(super) fn on_connection_end(&self, connection: usize) {
        lock(&self.0).streams.retain(|(other, _), _| *other != connection);
    }

    /// The client has ended a connection, as it blames the peer.
    pub(super) fn on_go_away(&self, code: u32, debug: &[u8]) {
        lock(&self.0).go_aways.push(format!("{code} {}", String::from_utf8_lossy(debug)));
    }

    /// The streams that are open at the peers.
    pub(super) fn streams(&self) -> usize {
        lock(&self.0).streams.len()
    }

    /// How many streams are open although their deadlines were over so long ago.
    pub(super) fn streams_after_deadline(&self, slack: Duration, now: Instant) -> usize {
        let counts = lock(&self.0);
        counts.streams.values().filter(|deadline| deadline.is_some_and(|at| at + slack < now)).count()
    }

    /// The largest number of attempts to connect within a second that need another reason than calls that were served: a connection
    /// that has served one is replaced at once when it is lost, and so is the next one, once (CH3.3). Of several connections the
    /// second may be lost while the third is attempted.
    pub(super) fn attempts_in_a_second(&self) -> usize {
        let counts = lock(&self.0);
        let within = |all: &[Instant], from: Instant, to: Instant| {
            all.partition_point(|at| *at < to) - all.partition_point(|at| *at < from)
        };
        let unexplained = |first: &Instant| {
            let end = *first + SECOND;
            let served = within(&counts.served, first.checked_sub(SECOND).unwrap_or(*first), end);
            within(&counts.attempts, *first, end).saturating_sub(3 * served)
        };
        counts.attempts.iter().map(unexplained).max().unwrap_or(0)
    }

    /// The errors that the client has ended connections with.
    pub(super) fn go_aways(&self) -> Vec<String> {
        lock(&self.0).go_aways.clone()
    }
}

const SECOND: Duration = Duration::from_secs(1);
