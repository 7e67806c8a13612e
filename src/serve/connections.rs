//! The connections of a listening socket: their handshakes, their ages, and how they drain.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{ChainId, CloseReason, ConnectionCounts, ConnectionId, Output, Settings};

/// The connections that were accepted and have not ended.
#[derive(Debug)]
pub(super) struct Connections {
    settings: Settings,
    connections: BTreeMap<ConnectionId, Connection>,
    /// The next deadline of each connection that has one.
    deadlines: BTreeSet<(Instant, ConnectionId)>,
    /// The connections of replaced configurations, by the number of the swap.
    batches: BTreeMap<u64, Batch>,
    last_batch: u64,
    /// When the last connection is closed, once the server is shut down with a limit.
    limit: Option<Instant>,
    /// Varies the ages at which connections are drained.
    random: fastrand::Rng,
    last: u64,
    counts: ConnectionCounts,
}

/// A connection.
///
/// ```text
///  Handshaking ──▶ Open ──▶ Scheduled ──▶ Draining ──▶ Closing
///   │      └───────────────────────────────▲              ▲
///   └─────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
struct Connection {
    chain: ChainId,
    /// The number of the configuration by which it was accepted.
    generation: u64,
    phase: Phase,
    /// The swap because of which it drains.
    batch: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// TLS or the preface of HTTP/2 are not complete. It drains at once when they are, if its configuration was replaced.
    Handshaking { deadline: Option<Instant>, drains: bool },
    /// The connection takes requests, up to an age.
    Open { until: Option<Instant> },
    /// The connection begins to drain at a time.
    Scheduled { at: Instant },
    /// The connection takes no more requests, and is closed at a time.
    Draining { deadline: Option<Instant> },
    /// The owner closes it.
    Closing,
}

/// The connections that drain because of one swap.
#[derive(Debug, Default)]
struct Batch {
    connections: u64,
    left: u64,
}

impl Connections {
    pub(super) fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            connections: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            batches: BTreeMap::new(),
            last_batch: 0,
            limit: None,
            random: fastrand::Rng::with_seed(seed),
            last: 0,
            counts: ConnectionCounts::default(),
        }
    }

    /// Adds an accepted connection.
    pub(super) fn add(&mut self, chain: ChainId, generation: u64, now: Instant) -> ConnectionId {
        self.last += 1;
        let id = ConnectionId(self.last);
        let deadline = now.checked_add(self.settings.handshake_timeout);
        let phase = Phase::Handshaking { deadline, drains: false };
        self.connections.insert(id, Connection { chain, generation, phase, batch: None });
        self.deadlines.extend(deadline.map(|at| (at, id)));
        self.counts.handshaking += 1;
        id
    }

    /// Handles the end of the handshake of a connection.
    pub(super) fn handle_established(&mut self, id: ConnectionId, now: Instant, outputs: &mut Vec<Output>) {
        match self.connections.get(&id).map(|connection| connection.phase) {
            Some(Phase::Handshaking { drains: true, .. }) => {
                self.set_phase(id, Phase::Open { until: None });
                self.drain(id, now, outputs);
            }
            Some(Phase::Handshaking { drains: false, .. }) => {
                let until = self.max_age().and_then(|age| now.checked_add(age));
                self.set_phase(id, Phase::Open { until });
            }
            // It was closed meanwhile.
            Some(Phase::Open { .. } | Phase::Scheduled { .. } | Phase::Draining { .. } | Phase::Closing)
            | None => {}
        }
    }

    /// Removes a connection that has ended; returns its chain.
    pub(super) fn remove(&mut self, id: ConnectionId, outputs: &mut Vec<Output>) -> Option<ChainId> {
        // The deadline and the count of its phase end with it.
        self.set_phase(id, Phase::Closing);
        let Connection { chain, batch, .. } = self.connections.remove(&id)?;
        self.counts.closing -= 1;
        if let Some(number) = batch
            && let Some(batch) = self.batches.get_mut(&number)
        {
            batch.left -= 1;
            if batch.left == 0 {
                outputs.push(Output::Drained { connections: batch.connections });
                self.batches.remove(&number);
            }
        }
        Some(chain)
    }

    /// Drains the connections of configurations before a number, except those whose chain is kept. They begin to drain evenly over a
    /// time.
    pub(super) fn drain_older(
        &mut self,
        generation: u64,
        is_kept: impl Fn(ChainId) -> bool,
        now: Instant,
        outputs: &mut Vec<Output>,
    ) {
        let older = self.connections.iter().filter(|(_, connection)| {
            connection.generation < generation && connection.is_served() && !is_kept(connection.chain)
        });
        let older: Vec<_> = older.map(|(id, _)| *id).collect();
        let count = u32::try_from(older.len()).unwrap_or(u32::MAX);
        let connections = u64::from(count);
        if connections > 0 {
            self.last_batch += 1;
            self.batches.insert(self.last_batch, Batch { connections, left: connections });
        }
        for (number, id) in (0..).zip(older) {
            // Divided first: the product may be too long.
            let after = (self.settings.drain_spread / count).saturating_mul(number);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.batch = Some(self.last_batch);
            }
            match now.checked_add(after).filter(|at| *at > now) {
                Some(at) => self.schedule(id, at),
                None => self.drain(id, now, outputs),
            }
        }
    }

    /// Drains all connections now, for a shutdown with a limit of the time until the last one is closed.
    pub(super) fn shut_down(&mut self, limit: Option<Instant>, now: Instant, outputs: &mut Vec<Output>) {
        self.limit = self.limit.into_iter().chain(limit).min();
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.drain(id, now, outputs);
        }
        self.handle_timeout(now, outputs);
    }

    /// Handles the time.
    pub(super) fn handle_timeout(&mut self, now: Instant, outputs: &mut Vec<Output>) {
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            match self.connections.get(&id).map(|connection| connection.phase) {
                Some(Phase::Handshaking { .. }) => self.close(id, CloseReason::Handshake, outputs),
                Some(Phase::Open { .. } | Phase::Scheduled { .. }) => self.drain(id, now, outputs),
                Some(Phase::Draining { .. }) => self.close(id, CloseReason::Grace, outputs),
                // Neither has a deadline.
                Some(Phase::Closing) | None => drop(self.deadlines.pop_first()),
            }
        }
    }

    /// Closes all connections.
    pub(super) fn close_all(&mut self, outputs: &mut Vec<Output>) {
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.close(id, CloseReason::ShutDown, outputs);
        }
    }

    /// The next deadline.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn counts(&self) -> ConnectionCounts {
        self.counts
    }

    /// When the last draining connection is closed at the latest; `None` without any, or without a limit.
    pub(super) fn drained_by(&self) -> Option<Instant> {
        let deadlines = self.connections.values().filter_map(|connection| match connection.phase {
            Phase::Draining { deadline } => deadline,
            Phase::Handshaking { .. } | Phase::Open { .. } | Phase::Scheduled { .. } | Phase::Closing => None,
        });
        deadlines.max()
    }

    /// Drains a connection. One in its handshake drains after it.
    fn drain(&mut self, id: ConnectionId, now: Instant, outputs: &mut Vec<Output>) {
        let Some(connection) = self.connections.get(&id) else { return };
        let limit = self.limit;
        let limited = |deadline: Option<Instant>| deadline.into_iter().chain(limit).min();
        let grace = now.checked_add(self.settings.drain_grace);
        match connection.phase {
            // SV6.8
            Phase::Handshaking { deadline, .. } => {
                self.set_phase(id, Phase::Handshaking { deadline: limited(deadline), drains: true });
            }
            Phase::Open { .. } | Phase::Scheduled { .. } => {
                self.set_phase(id, Phase::Draining { deadline: limited(grace) });
                outputs.push(Output::Drain(id));
            }
            // SV6.10: a later update does not extend the time.
            Phase::Draining { deadline } => {
                self.set_phase(id, Phase::Draining { deadline: limited(deadline) });
            }
            Phase::Closing => {}
        }
    }

    /// Has a connection drain at a time.
    fn schedule(&mut self, id: ConnectionId, at: Instant) {
        let Some(connection) = self.connections.get(&id) else { return };
        let phase = match connection.phase {
            Phase::Handshaking { deadline, .. } => Phase::Handshaking { deadline, drains: true },
            // Its age may end earlier.
            Phase::Open { until } => Phase::Scheduled { at: until.into_iter().fold(at, Instant::min) },
            same @ (Phase::Scheduled { .. } | Phase::Draining { .. } | Phase::Closing) => same,
        };
        self.set_phase(id, phase);
    }

    fn close(&mut self, id: ConnectionId, reason: CloseReason, outputs: &mut Vec<Output>) {
        let is_closing = |connection: &Connection| connection.phase == Phase::Closing;
        if self.connections.get(&id).is_some_and(is_closing) {
            return;
        }
        self.set_phase(id, Phase::Closing);
        outputs.push(Output::CloseConnection(id, reason));
    }

    /// Changes the phase of a connection, with its deadline and its count.
    fn set_phase(&mut self, id: ConnectionId, phase: Phase) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let before = std::mem::replace(&mut connection.phase, phase);
        if let Some(at) = before.deadline() {
            self.deadlines.remove(&(at, id));
        }
        self.deadlines.extend(phase.deadline().map(|at| (at, id)));
        *before.count(&mut self.counts) -= 1;
        *phase.count(&mut self.counts) += 1;
    }

    /// The age at which a connection is drained, varied so that those of one moment do not come back in one moment.
    fn max_age(&mut self) -> Option<Duration> {
        let age = self.settings.max_connection_age;
        if age == Duration::MAX {
            return None;
        }
        let factor = AGE_VARIATION.mul_add(self.random.f64().mul_add(2.0, -1.0), 1.0);
        Duration::try_from_secs_f64(age.as_secs_f64() * factor).ok()
    }
}

impl Connection {
    /// Whether it takes requests, now or after its handshake.
    fn is_served(&self) -> bool {
        match self.phase {
            Phase::Handshaking { drains, .. } => !drains,
            Phase::Open { .. } => true,
            Phase::Scheduled { .. } | Phase::Draining { .. } | Phase::Closing => false,
        }
    }
}

impl Phase {
    fn deadline(self) -> Option<Instant> {
        match self {
            Self::Handshaking { deadline, .. } | Self::Draining { deadline } => deadline,
            Self::Open { until } => until,
            Self::Scheduled { at } => Some(at),
            Self::Closing => None,
        }
    }

    /// The count of the connections in this phase.
    fn count(self, counts: &mut ConnectionCounts) -> &mut usize {
        match self {
            Self::Handshaking { .. } => &mut counts.handshaking,
            Self::Open { .. } => &mut counts.serving,
            Self::Scheduled { .. } | Self::Draining { .. } => &mut counts.draining,
            Self::Closing => &mut counts.closing,
        }
    }
}

/// The part of its age by which that of a connection is varied.
const AGE_VARIATION: f64 = 0.1;
