//! The pick of an endpoint on a hash ring (A42, A61, A76).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::ring::Ring;
use crate::balance::{
    hash::hash,
    pick_args::{CallAttributes, PickArgs},
    policies::{PolicyPick, PolicyPicker, StateCounts, Tracking, unreachable},
    ready_endpoint::ReadyEndpoint,
    ready_set::ReadySet,
};

/// A ring and what is known of its endpoints. It is immutable, but for the endpoints that picks have requested.
#[derive(Debug)]
pub(in crate::balance) struct RingPicker<H> {
    pub(super) ring: Arc<Ring>,
    /// The header whose value is hashed instead of what the route's policies compute (A76).
    pub(super) header: Option<Arc<str>>,
    /// The index in the list of the endpoint of each rank.
    pub(super) indexes: Arc<[u32]>,
    /// The endpoints by their ranks, in chunks, which pickers share (CH11.7).
    pub(super) chunks: Box<[Arc<[RingSlot<H>]>]>,
    pub(super) counts: StateCounts,
    /// Why the configuration may be stale (CH1.9).
    pub(super) stale_config: Option<Arc<str>>,
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
    /// The last attempt to connect failed, with this error.
    Failing(Arc<str>),
}

/// The result of [`RingPicker::pick`].
#[derive(Debug)]
pub(super) enum RingPick<'a, H> {
    Endpoint(&'a Arc<ReadyEndpoint<H>>),
    Wait,
    Fail(&'a Arc<str>),
}

/// What the pick of an attempt on a ring starts with.
enum Start {
    Hash(u64),
    /// The request has no header to hash: any ready endpoint will do.
    Random(u64),
}

impl<H> RingPicker<H> {
    /// The endpoint of an attempt, and the rank of the endpoint whose connection is requested.
    fn pick_of(&self, args: &mut PickArgs<'_, '_>) -> (RingPick<'_, H>, Option<usize>) {
        match self.start(args) {
            Start::Hash(hash) => self.pick_hashed(hash),
            Start::Random(hash) => self.pick_random(hash),
        }
    }

    fn start(&self, args: &mut PickArgs<'_, '_>) -> Start {
        let Some(header) = &self.header else {
            return Start::Hash(args.attributes.hash(args.request, args.random));
        };
        // An empty value counts as absent (A76).
        match args.request.header_value(header).filter(|value| !value.is_empty()) {
            Some(value) => Start::Hash(hash(&value)),
            // Drawn for each pick, unlike the random hash of a call (A76).
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
                    // The error is that of the first endpoint, so the rest of the ring need not be walked (CH3.33).
                    if self.counts.have_all_failed() {
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
            // No endpoint on the rest of the ring can change the result.
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
}

impl<H> PolicyPicker<H> for Arc<RingPicker<H>> {
    fn pick<'a>(&'a self, _: &'a ReadySet<H>, args: &mut PickArgs<'_, '_>) -> PolicyPick<'a, H> {
        let (pick, requested) = self.pick_of(args);
        if let Some(rank) = requested {
            // Rings know endpoints by rank, and lists by index.
            args.attributes.request_connection(self.indexes[rank] as usize);
        }
        match pick {
            RingPick::Endpoint(endpoint) => PolicyPick::Endpoint(endpoint, Tracking::default()),
            RingPick::Wait => PolicyPick::Wait,
            RingPick::Fail(error) => PolicyPick::Fail(unreachable(Some(error), self.stale_config.as_deref())),
        }
    }

    fn needs_request(&self, attributes: &CallAttributes) -> bool {
        self.header.is_some() || !attributes.is_hash_known()
    }

    /// Endpoints that are left out are as if they had failed, and so are those that are not ready.
    fn without(&self, _: &ReadySet<H>, is_left_out: &dyn Fn(&ReadyEndpoint<H>) -> bool) -> Self {
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
        let failing = self.indexes.len() - ready;
        Self::new(RingPicker {
            ring: self.ring.clone(),
            header: self.header.clone(),
            indexes: self.indexes.clone(),
            chunks,
            counts: StateCounts { ready, failing, ..StateCounts::default() },
            stale_config: self.stale_config.clone(),
        })
    }
}

/// The endpoints of a chunk.
pub(super) const CHUNK: usize = 64;

#[cfg(test)]
mod tests;
