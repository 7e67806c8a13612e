//! The ready endpoints of a locality, in the order of the configuration.

use std::{mem, sync::Arc};

use super::{load::Load, picker::ReadyEndpoint};

/// The places of a locality's endpoints, from which the sets of the ready ones are made.
///
/// They are in chunks, so that a change of one endpoint copies one chunk and shares the others (CH11.7).
#[derive(Debug)]
pub(super) struct ReadySlots<H> {
    /// By the places of the endpoints.
    slots: Vec<Option<Arc<ReadyEndpoint<H>>>>,
    chunks: Vec<Arc<Chunk<H>>>,
    /// Chunks that are older than their slots.
    changed: Vec<usize>,
}

/// The ready endpoints. It is immutable, and cheap to make from [`ReadySlots`].
#[derive(Debug)]
pub(super) struct ReadySet<H> {
    chunks: Box<[Arc<Chunk<H>>]>,
    /// The number of ready endpoints in each chunk and those before it.
    ends: Box<[usize]>,
}

type Chunk<H> = [Slot<H>];

/// An endpoint, with its counters beside it: to compare the load of two endpoints, neither of them is looked at.
#[derive(Debug)]
pub(super) struct Slot<H> {
    pub(super) endpoint: Arc<ReadyEndpoint<H>>,
    pub(super) load: Load,
}

impl<H> ReadySlots<H> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), chunks: Vec::new(), changed: Vec::new() }
    }

    /// Adds a place at the end.
    pub(super) fn push(&mut self, ready: Option<Arc<ReadyEndpoint<H>>>) {
        let place = self.slots.len();
        self.slots.push(None);
        if place / CHUNK == self.chunks.len() {
            self.chunks.push(Arc::new([]));
        }
        self.set(place, ready);
    }

    /// Removes places, and adds empty ones instead.
    pub(super) fn splice(&mut self, at: usize, removed: usize, inserted: usize) {
        let count = self.slots.len() - removed + inserted;
        let nothing = std::iter::repeat_with(|| None).take(inserted);
        drop(self.slots.splice(at..at + removed, nothing));
        self.chunks.resize_with(count.div_ceil(CHUNK), || Arc::new([]));
        // Those behind have other places, unless there are as many as before.
        let end = if removed == inserted { at + inserted } else { count };
        self.changed.retain(|chunk| *chunk < self.chunks.len());
        self.changed.extend(at / CHUNK..end.div_ceil(CHUNK));
    }

    /// Sets what there is at a place.
    pub(super) fn set(&mut self, place: usize, ready: Option<Arc<ReadyEndpoint<H>>>) {
        if mem::replace(&mut self.slots[place], ready).is_some() || self.slots[place].is_some() {
            let chunk = place / CHUNK;
            if self.changed.last() != Some(&chunk) {
                self.changed.push(chunk);
            }
        }
    }

    /// What there is at each place.
    pub(super) fn slots(&self) -> &[Option<Arc<ReadyEndpoint<H>>>] {
        &self.slots
    }

    /// The ready endpoints, or `None` if there is none.
    pub(super) fn ready(&mut self) -> Option<ReadySet<H>> {
        self.changed.sort_unstable();
        self.changed.dedup();
        for chunk in self.changed.drain(..) {
            let first = chunk * CHUNK;
            let slots = &self.slots[first..self.slots.len().min(first + CHUNK)];
            self.chunks[chunk] = slots.iter().flatten().cloned().map(Slot::new).collect();
        }
        Some(ReadySet::new(self.chunks.iter().cloned())).filter(|set| set.len() > 0)
    }
}

impl<H> ReadySet<H> {
    /// Without endpoints.
    pub(super) fn empty() -> Self {
        Self::new(std::iter::empty())
    }

    fn new(chunks: impl Iterator<Item = Arc<Chunk<H>>>) -> Self {
        let chunks: Box<[_]> = chunks.filter(|chunk| !chunk.is_empty()).collect();
        let mut end = 0;
        let ends = chunks.iter().map(|chunk| {
            end += chunk.len();
            end
        });
        Self { ends: ends.collect(), chunks }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The endpoint at a place among the ready ones, which are at least one. Places above their number begin again.
    #[inline]
    pub(super) fn at(&self, place: usize) -> &Arc<ReadyEndpoint<H>> {
        &self.slot(place).endpoint
    }

    /// The slot of [`at`](Self::at).
    #[inline]
    pub(super) fn slot(&self, place: usize) -> &Slot<H> {
        let place = place % self.len();
        if let [only] = &*self.chunks {
            return &only[place];
        }
        // Most chunks are full, so that the place is found at once. A chunk has at most as many as that, so it is not further left.
        let mut chunk = place / CHUNK;
        if self.ends[chunk] <= place {
            chunk += self.ends[chunk..].partition_point(|end| *end <= place);
        }
        let first = if chunk == 0 { 0 } else { self.ends[chunk - 1] };
        &self.chunks[chunk][place - first]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ReadyEndpoint<H>>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).map(|slot| &slot.endpoint)
    }
}

impl<H> Slot<H> {
    fn new(endpoint: Arc<ReadyEndpoint<H>>) -> Self {
        Self { load: endpoint.load.clone(), endpoint }
    }
}

impl<H> Clone for ReadySet<H> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), ends: self.ends.clone() }
    }
}

impl<H> FromIterator<Arc<ReadyEndpoint<H>>> for ReadySet<H> {
    fn from_iter<I: IntoIterator<Item = Arc<ReadyEndpoint<H>>>>(endpoints: I) -> Self {
        let mut endpoints = endpoints.into_iter().map(Slot::new).peekable();
        let mut chunks = Vec::new();
        while endpoints.peek().is_some() {
            chunks.push(endpoints.by_ref().take(CHUNK).collect());
        }
        Self::new(chunks.into_iter())
    }
}

/// The places of a chunk.
const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::balance::{command::ConnectionId, load::Loads, stream_queue::Connections};

    fn endpoint(number: usize) -> Arc<ReadyEndpoint<usize>> {
        let address = ([127, 0, 0, 1], 1).into();
        let (load, breaker) = (Loads::default().add(), Arc::default());
        Arc::new(ReadyEndpoint {
            connection: ConnectionId::default(),
            connections: Connections::of_one(number),
            address,
            hostname: None,
            locality: None,
            load,
            breaker,
            outcomes: None,
            weight: None,
        })
    }

    fn handles(slots: &mut ReadySlots<usize>) -> Vec<usize> {
        let Some(set) = slots.ready() else { return Vec::new() };
        let listed: Vec<_> = set.iter().map(|it| it.handle()).collect();
        let found: Vec<_> = (0..set.len()).map(|place| set.at(place).handle()).collect();
        assert_eq!(listed, found);
        assert_eq!(set.at(set.len()).handle(), listed[0], "places begin again");
        listed
    }

    #[test]
    fn ch3_26_ready_endpoints_are_in_the_order_of_the_list_whatever_changes() {
        let mut random = fastrand::Rng::with_seed(1);
        for count in [1, 5, 63, 64, 65, 1_000] {
            let (mut slots, mut model) = (ReadySlots::new(), vec![None; count]);
            for it in &mut model {
                *it = random.bool().then(|| random.usize(..));
                slots.push(it.map(endpoint));
            }
            for _ in 0..100 {
                assert_eq!(handles(&mut slots), model.iter().flatten().copied().collect::<Vec<_>>());
                for _ in 0..random.usize(..4) {
                    let place = random.usize(..count);
                    model[place] = random.bool().then(|| random.usize(..));
                    slots.set(place, model[place].map(endpoint));
                }
            }
        }
    }

    #[test]
    fn ch11_7_a_change_of_one_endpoint_copies_one_chunk() {
        let mut slots = ReadySlots::new();
        (0..10_000).for_each(|number| slots.push(Some(endpoint(number))));
        let before = slots.ready().unwrap();
        slots.set(5_000, None);
        let after = slots.ready().unwrap();
        let copied = before.chunks.iter().zip(&after.chunks).filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!((after.len(), copied.count()), (9_999, 1));
    }
}
