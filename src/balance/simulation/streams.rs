//! The streams of connections, and the calls that wait for one (A105).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use super::{
    configs::{LEAVES, PORTS, address, endpoints, is_petiole},
    model::listed,
    world::World,
};
use crate::balance::{
    command::ConnectionId,
    identity::Destination,
    picker::Attempt,
    policy::LeafConfig,
    stream_queue::streams::Streams,
    stream_queue::{OnFull, StreamQueue, StreamWaiter},
};

/// A call that was picked an endpoint. Its stream ends before it.
pub(super) struct Call {
    pub(super) stream: Stream,
    pub(super) attempt: Attempt<ConnectionId>,
}

/// The stream of a call; dropping it is its end.
pub(super) enum Stream {
    Waiting(StreamWaiter<ConnectionId>),
    Running { streams: Arc<Streams<ConnectionId>>, has_response: bool },
}

/// What the peers permit, and the connections to them.
#[derive(Default)]
pub(super) struct Peers {
    limits: BTreeMap<SocketAddr, usize>,
    streams: BTreeMap<ConnectionId, Arc<Streams<ConnectionId>>>,
    /// The requests for further connections.
    full: Arc<Mutex<Vec<ConnectionId>>>,
    /// The connections and attempts of each leaf and destination, of the policy's endpoints and for cookies alone, when they were checked
    /// last.
    counts: BTreeMap<(&'static str, Destination, bool), usize>,
    /// The greatest limit of connections that each leaf has had, and that of the attempts that may still wait for others to end.
    scaled: BTreeMap<Arc<str>, usize>,
    recent: BTreeMap<&'static str, usize>,
}

impl Peers {
    pub(super) fn on_full(&self) -> OnFull {
        let full = self.full.clone();
        OnFull::new(move |connection| full.lock().unwrap_or_else(|it| it.into_inner()).push(connection))
    }

    pub(super) fn take_full(&self) -> Vec<ConnectionId> {
        mem::take(&mut self.full.lock().unwrap_or_else(|it| it.into_inner()))
    }

    /// A connection is established.
    pub(super) fn accept(
        &mut self,
        connection: ConnectionId,
        address: SocketAddr,
    ) -> Arc<Streams<ConnectionId>> {
        let streams = Streams::new(connection, self.limit(address));
        self.streams.insert(connection, streams.clone());
        streams
    }

    /// A connection takes no new streams.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        if let Some(streams) = self.streams.remove(&connection) {
            streams.close();
        }
    }

    pub(super) fn most_scaled(&self, leaf: &Arc<str>) -> usize {
        self.scaled.get(leaf).copied().unwrap_or(1)
    }

    fn limit(&self, address: SocketAddr) -> usize {
        // Most peers permit more streams than there are calls.
        let usual = if address.port().is_multiple_of(3) { 2 } else { 100 };
        self.limits.get(&address).copied().unwrap_or(usual)
    }
}

impl Stream {
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        match self {
            Self::Waiting(_) => {}
            Self::Running { streams, has_response } => streams.release(*has_response),
        }
    }
}

impl World<'_> {
    /// A call that was picked an endpoint begins its stream, or waits for one.
    pub(super) fn begin(&mut self, attempt: Attempt<ConnectionId>) {
        let connections = &attempt.endpoint.connections;
        let streams = match connections.try_reserve() {
            Some(None) => connections.oldest().clone(),
            Some(Some(other)) => other,
            None => {
                let Ok(waiter) = connections.queue().wait() else { return self.count("gone") };
                self.calls.push(Call { attempt, stream: Stream::Waiting(waiter) });
                self.count("waits");
                return self.drain();
            }
        };
        assert_eq!(connections.queue().waiting(), 0, "it passes calls that wait");
        let older = connections.all().take_while(|it| !Arc::ptr_eq(it, &streams));
        older.for_each(|it| assert!(it.is_closed() || it.running() >= it.limit(), "an older one is free"));
        let stream = Stream::Running { streams: streams.clone(), has_response: false };
        self.calls.push(Call { attempt, stream });
        self.check_limit(&streams);
    }

    /// Gives streams to the calls that wait; those whose connections are all gone end.
    pub(super) fn poll_waiting(&mut self) {
        let mut blocked: BTreeSet<*const StreamQueue<ConnectionId>> = BTreeSet::new();
        let mut place = 0;
        while let Some(call) = self.calls.get_mut(place) {
            place += 1;
            let Stream::Waiting(waiter) = &mut call.stream else { continue };
            let queue = Arc::as_ptr(call.attempt.endpoint.connections.queue());
            match Pin::new(waiter).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => drop(blocked.insert(queue)),
                Poll::Ready(Ok(streams)) => {
                    assert!(!blocked.contains(&queue), "a call passes one that came before");
                    call.stream = Stream::Running { streams: streams.clone(), has_response: false };
                    self.check_limit(&streams);
                    self.count("granted");
                }
                Poll::Ready(Err(_)) => {
                    place -= 1;
                    self.calls.remove(place);
                    self.count("gone");
                }
            }
        }
    }

    /// A peer permits another number of streams.
    pub(super) fn set_limit(&mut self) {
        let address = address(1 + self.choices.below(usize::from(PORTS)) as u16);
        let limit = [0, 1, 2, 100, 100, 100][self.choices.below(6)];
        self.permit(address, limit);
    }

    fn permit(&mut self, address: SocketAddr, limit: usize) {
        self.peers.limits.insert(address, limit);
        for (connection, streams) in &self.peers.streams {
            if self.connections.get(connection).is_some_and(|it| it.address == address) {
                streams.set_limit(limit);
            }
        }
        self.poll_waiting();
    }

    /// A connection takes no new streams, which the balancer does not know yet.
    pub(super) fn close(&mut self) {
        if let Some(connection) = self.choices.one_of(self.peers.streams.keys().copied()) {
            self.peers.close(connection);
        }
    }

    /// The oldest calls end, and the responses of the others begin.
    pub(super) fn respond(&mut self) {
        let place = self.choices.below(self.calls.len().min(8) + 1);
        let others = self.calls.split_off(place);
        let oldest = mem::replace(&mut self.calls, others);
        self.end_each(oldest);
        let running = self.calls.iter_mut().filter_map(|call| match &mut call.stream {
            Stream::Running { streams, has_response: has @ false } => Some((streams, has)),
            Stream::Running { .. } | Stream::Waiting(_) => None,
        });
        for (streams, has_response) in running {
            *has_response = true;
            streams.on_response();
        }
    }

    /// When the peers permit enough streams, no call waits for one.
    pub(super) fn serve_waiting(&mut self) {
        (1..=PORTS).for_each(|port| self.permit(address(port), 1_000));
        let waiting = self.calls.iter().filter(|it| !it.stream.is_running()).count();
        assert_eq!(waiting, 0, "calls wait although there are free streams");
    }

    /// Connections are added up to the limit alone, calls wait while no stream is free alone, and when a connection may be added, one
    /// is attempted or waited for.
    pub(super) fn check_streams(&mut self) {
        let mut counts = BTreeMap::new();
        for name in LEAVES {
            let Some(leaf) = self.configs.leaves.get(name) else { continue };
            let most = self.peers.scaled.entry(name.into()).or_insert(1);
            *most = (*most).max(leaf.max_connections);
            // One that replaces a connection is in addition to the limit until that is drained.
            let replaces =
                |attempt| self.replaced.get(attempt).is_some_and(|it| self.connections.contains_key(it));
            let attempts = self.attempts.iter().filter(|(attempt, _)| !replaces(attempt));
            let attempts = attempts.chain(&self.connections);
            for (connection, destination) in attempts {
                if self.balancer.leaf_of(*connection).as_deref() == Some(name) {
                    let is_of_host = self.balancer.is_of_host(*connection);
                    *counts.entry((name, destination.clone(), is_of_host)).or_insert(0) += 1;
                }
            }
            let recent = self.peers.recent.get(name).copied().unwrap_or_default().max(leaf.max_connections);
            // Otherwise there are attempts from the time before a limit was lowered, maybe.
            let has_waiting = self.held_slots() >= self.max_connects - self.max_connects / 4;
            self.peers.recent.insert(name, if has_waiting { recent } else { leaf.max_connections });
            for (key @ (of, to, is_of_host), count) in &counts {
                let before = self.peers.counts.get(key).copied().unwrap_or_default();
                let is_sole = *is_of_host || is_sole(leaf, to);
                let is_checked = *of == name && is_sole && !self.retires(&name.into(), to.address);
                let is_legal = !is_checked || *count <= before.max(recent);
                assert!(is_legal, "{name}: {count} connections to {to:?} after {before}");
            }
        }
        let scaled = counts.values().filter(|it| **it > 1).count();
        *self.outcomes.entry("scaled").or_default() += scaled as u64;
        self.peers.counts = counts;
        for call in self.calls.iter().filter(|it| !it.stream.is_running()) {
            self.check_waiting(&call.attempt);
        }
    }

    fn check_waiting(&self, attempt: &Attempt<ConnectionId>) {
        let (to, connection) = (attempt.endpoint.destination(), attempt.endpoint.handle());
        let address = to.address;
        let connections = attempt.endpoint.connections.all();
        for streams in connections.filter(|it| !it.is_closed()) {
            assert!(
                streams.running() >= streams.limit(),
                "{address}: a call waits for a stream that is free"
            );
        }
        // That of another connection may be known to a newer picker alone.
        let Some(name) = self.balancer.leaf_of(connection) else { return };
        let leaf = &self.configs.leaves[&name];
        let is_of_host = self.balancer.is_of_host(connection);
        let is_key = |(of, it, of_host): &(&str, Destination, bool)| {
            **of == *name && *it == to && *of_host == is_of_host
        };
        let count = self.peers.counts.iter().find(|(key, _)| is_key(key));
        let can_grow = count.is_some_and(|(_, count)| *count < leaf.max_connections);
        let is_sole = is_of_host || is_sole(leaf, &to);
        if can_grow && is_sole && !self.retires(&name, address) {
            assert!(self.is_busy(), "{address}: a call waits for a connection that nobody attempts");
        }
    }

    /// No connection has more streams than its peer permits, when one begins. One call may be passed on whose turn comes when
    /// the response of another one has been read.
    fn check_limit(&self, streams: &Arc<Streams<ConnectionId>>) {
        let is_of = |call: &&Call| match &call.stream {
            Stream::Running { streams: it, has_response: false } => Arc::ptr_eq(it, streams),
            Stream::Running { .. } | Stream::Waiting(_) => false,
        };
        let waiting = self.calls.iter().filter(is_of).count();
        let (running, limit) = (streams.running(), streams.limit());
        assert!(running <= limit || waiting <= 1, "{running} streams, {limit} are permitted");
    }

    fn count(&mut self, outcome: &'static str) {
        *self.outcomes.entry(outcome).or_default() += 1;
    }
}

/// Whether one endpoint alone can have connections to a destination; under pick_first, one priority or locality.
fn is_sole(leaf: &LeafConfig, destination: &Destination) -> bool {
    let count = match is_petiole(leaf) {
        true => listed(leaf).iter().filter(|it| it.contains(destination)).count(),
        false => {
            let all = leaf.priorities.iter().flat_map(|it| endpoints(it));
            all.filter(|it| it.contains(destination)).count()
        }
    };
    count == 1
}
