//! The pick of an endpoint on a hash ring (A42, A61, A76).

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    hash::hash,
    picker::{PickArgs, ReadyEndpoint},
    ring::Ring,
    stale_config::with_stale_cluster,
};

/// A ring and what is known of its endpoints. It is immutable, but for the endpoints that picks have requested.
#[derive(Debug)]
pub(super) struct RingPicker<H> {
    pub(super) ring: Arc<Ring>,
    /// The header whose value is hashed instead of what the route's policies compute (A76).
    pub(super) header: Option<Arc<str>>,
    /// The endpoints by their ranks, in chunks, which pickers share (CH11.7).
    pub(super) chunks: Box<[Arc<[RingSlot<H>]>]>,
    pub(super) counts: RingCounts,
    /// Why the configuration may be stale (CH1.9).
    pub(super) note: Option<Arc<str>>,
}

/// What a picker knows of an endpoint.
#[derive(Debug)]
pub(super) enum RingSlot<H> {
    Ready(Arc<ReadyEndpoint<H>>),
    Idle {
        /// A pick has requested its connection. What follows is another state, and so another slot.
        is_requested: AtomicBool,
    },
    Connecting,
    /// With its newest error.
    Failing(Arc<str>),
}

/// How many endpoints are in some of the states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RingCounts {
    pub(super) ready: usize,
    pub(super) connecting: usize,
    pub(super) idle: usize,
}

/// The result of [`RingPicker::pick`].
#[derive(Debug)]
pub(super) enum RingPick<'a, H> {
    Endpoint(&'a Arc<ReadyEndpoint<H>>),
    Wait,
    Fail(&'a Arc<str>),
}

/// An endpoint whose connection a pick requests.
#[derive(Debug, Clone)]
pub(crate) struct ConnectRequest {
    /// The name of the cluster with the endpoint.
    pub(super) leaf: Arc<str>,
    pub(super) endpoint: RequestedEndpoint,
}

/// An endpoint of a cluster.
#[derive(Debug, Clone)]
pub(super) enum RequestedEndpoint {
    OnRing {
        ring: Arc<Ring>,
        rank: usize,
    },
    /// One that a cookie names (CH8.11).
    Host(SocketAddr),
}

impl ConnectRequest {
    /// For an endpoint of a cluster that a cookie names.
    pub(super) fn of_host(leaf: &Arc<str>, address: SocketAddr) -> Self {
        Self { leaf: leaf.clone(), endpoint: RequestedEndpoint::Host(address) }
    }
}

/// What the pick of an attempt on a ring starts with.
enum Start {
    Hash(u64),
    /// The request has no header to hash: any ready endpoint will do.
    Random(u64),
}

impl<H> RingPicker<H> {
    /// Chooses an endpoint, and says whose connection is to be requested.
    pub(super) fn pick(&self, args: &mut PickArgs<'_, '_>) -> (RingPick<'_, H>, Option<usize>) {
        match self.start(args) {
            Start::Hash(hash) => self.pick_hashed(hash),
            Start::Random(hash) => self.pick_random(hash),
        }
    }

    /// Whether a pick looks at the request of a call whose hash may be known already.
    pub(super) fn needs_request(&self, is_hash_known: bool) -> bool {
        self.header.is_some() || !is_hash_known
    }

    /// A request for the connection of an endpoint, by its rank.
    pub(super) fn connect_request(&self, rank: usize, leaf: &Arc<str>) -> ConnectRequest {
        let endpoint = RequestedEndpoint::OnRing { ring: self.ring.clone(), rank };
        ConnectRequest { leaf: leaf.clone(), endpoint }
    }

    /// The reason of a pick that fails.
    pub(super) fn failure(&self, leaf: &str, error: &str) -> Arc<str> {
        let reason =
            format!("cluster {leaf}: no endpoint can be reached, the error of the first is: {error}");
        with_stale_cluster(reason, self.note.as_deref()).into()
    }

    fn start(&self, args: &mut PickArgs<'_, '_>) -> Start {
        let Some(header) = &self.header else {
            return Start::Hash(args.draws.hash(args.request, args.random));
        };
        match args.request.header_value(header).filter(|value| !value.is_empty()) {
            Some(value) => Start::Hash(hash(&value)),
            None => Start::Random(args.random.u64(..)),
        }
    }

    /// The endpoint that the hash belongs to, or the next one on the ring that does not fail (CH3.33).
    fn pick_hashed(&self, hash: u64) -> (RingPick<'_, H>, Option<usize>) {
        let mut error = None;
        for rank in self.ring.walk(hash) {
            match self.slot(rank) {
                Some(RingSlot::Ready(endpoint)) => return (RingPick::Endpoint(endpoint), None),
                Some(RingSlot::Idle { is_requested }) => {
                    let is_first = !is_requested.swap(true, Ordering::Relaxed);
                    return (RingPick::Wait, is_first.then_some(rank));
                }
                Some(RingSlot::Connecting) | None => return (RingPick::Wait, None),
                Some(RingSlot::Failing(reason)) => {
                    error.get_or_insert(reason);
                    if self.counts == RingCounts::default() {
                        break;
                    }
                }
            }
        }
        // A ring without endpoints has no picker.
        (error.map_or(RingPick::Wait, RingPick::Fail), None)
    }

    /// The next endpoint on the ring that is ready. The next idle one is connected for later picks, unless another one connects
    /// (CH3.34).
    fn pick_random(&self, hash: u64) -> (RingPick<'_, H>, Option<usize>) {
        let (mut error, mut request) = (None, None);
        let mut has_attempt = self.counts.connecting > 0;
        for rank in self.ring.walk(hash) {
            match self.slot(rank) {
                Some(RingSlot::Ready(endpoint)) => return (RingPick::Endpoint(endpoint), request),
                Some(RingSlot::Idle { is_requested }) if !has_attempt => {
                    has_attempt = true;
                    request = (!is_requested.swap(true, Ordering::Relaxed)).then_some(rank);
                }
                Some(RingSlot::Failing(reason)) => {
                    error.get_or_insert(reason);
                }
                Some(RingSlot::Idle { .. } | RingSlot::Connecting) | None => {}
            }
            let is_decided = self.counts.ready == 0 && (has_attempt || self.counts.idle == 0);
            if is_decided {
                break;
            }
        }
        match error {
            Some(error) if !has_attempt => (RingPick::Fail(error), None),
            Some(_) | None => (RingPick::Wait, request),
        }
    }

    #[inline]
    fn slot(&self, rank: usize) -> Option<&RingSlot<H>> {
        self.chunks.get(rank / CHUNK)?.get(rank % CHUNK)
    }

    /// The same ring without some of its endpoints, which are as if they failed; and those that are not ready are, too.
    pub(super) fn without(&self, is_left_out: impl Fn(&ReadyEndpoint<H>) -> bool) -> Self {
        let slot = |slot: &RingSlot<H>| match slot {
            RingSlot::Ready(endpoint) if !is_left_out(endpoint) => RingSlot::Ready(endpoint.clone()),
            RingSlot::Failing(reason) => RingSlot::Failing(reason.clone()),
            RingSlot::Ready(_) | RingSlot::Idle { .. } | RingSlot::Connecting => {
                RingSlot::Failing("the connection was closed".into())
            }
        };
        let chunks: Box<[Arc<[_]>]> =
            self.chunks.iter().map(|chunk| chunk.iter().map(slot).collect()).collect();
        let slots = chunks.iter().flat_map(|chunk| chunk.iter());
        let ready = slots.filter(|slot| matches!(slot, RingSlot::Ready(_))).count();
        let counts = RingCounts { ready, ..RingCounts::default() };
        let (ring, header, note) = (self.ring.clone(), self.header.clone(), self.note.clone());
        Self { ring, header, chunks, counts, note }
    }
}

/// The endpoints of a chunk.
pub(super) const CHUNK: usize = 64;

#[cfg(test)]
mod tests;
