//! The ready endpoints of a locality, in the order of the configuration.

use std::{mem, sync::Arc};

use super::{load::Load, ready_endpoint::ReadyEndpoint};

/// The places of a locality's endpoints, from which the sets of the ready ones are made.
///
/// They are in chunks, so that a change of one endpoint copies one chunk and shares the others (CH11.7).
#[derive(Debug)]
pub(super) struct ReadySlots<H> {
    /// Indexed by the places of the endpoints.
    slots: Vec<Option<Listed<H>>>,
    chunks: Vec<ReadyChunk<H>>,
    /// Chunks that are older than their slots.
    changed: Vec<usize>,
    /// Chunks of which other endpoints are left out, and nothing else has changed.
    remasked: Vec<usize>,
}

/// An endpoint with a connection.
#[derive(Debug)]
pub(super) struct Listed<H> {
    pub(super) endpoint: Arc<ReadyEndpoint<H>>,
    /// Set as long as the endpoint is ejected and not picked.
    pub(super) is_left_out: bool,
}

/// The ready endpoints. It is immutable, and cheap to make from [`ReadySlots`].
#[derive(Debug)]
pub(super) struct ReadySet<H> {
    chunks: Box<[ReadyChunk<H>]>,
    /// The number of ready endpoints in each chunk and those before it.
    ends: Box<[usize]>,
}

/// Some endpoints, of which some are left out.
///
/// A chunk lists those that are ejected, since a copy without them would count a reference to each of the others, anew in each chunk of
/// a large cluster at each sweep of outlier detection.
#[derive(Debug)]
struct ReadyChunk<H> {
    slots: Arc<[Slot<H>]>,
    /// A bit for each slot that is not left out.
    mask: u64,
}

/// An endpoint, with its counters beside it: to compare the load of two endpoints, neither of them is looked at.
#[derive(Debug)]
pub(super) struct Slot<H> {
    pub(super) endpoint: Arc<ReadyEndpoint<H>>,
    pub(super) load: Load,
}

impl<H> ReadySlots<H> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), chunks: Vec::new(), changed: Vec::new(), remasked: Vec::new() }
    }

    /// Removes places, and adds empty ones instead.
    pub(super) fn splice(&mut self, at: usize, removed: usize, inserted: usize) {
        let count = self.slots.len() - removed + inserted;
        let nothing = std::iter::repeat_with(|| None).take(inserted);
        drop(self.slots.splice(at..at + removed, nothing));
        self.chunks.resize_with(count.div_ceil(CHUNK), ReadyChunk::empty);
        // Those behind have other places, unless there are as many as before.
        let end = if removed == inserted { at + inserted } else { count };
        self.changed.retain(|chunk| *chunk < self.chunks.len());
        self.remasked.retain(|chunk| *chunk < self.chunks.len());
        self.changed.extend(at / CHUNK..end.div_ceil(CHUNK));
    }

    /// Sets what there is at a place.
    pub(super) fn set(&mut self, place: usize, listed: Option<Listed<H>>) {
        let before = mem::replace(&mut self.slots[place], listed);
        let chunks = match (&before, &self.slots[place]) {
            (None, None) => return,
            (Some(before), Some(now)) if Arc::ptr_eq(&before.endpoint, &now.endpoint) => {
                if before.is_left_out == now.is_left_out {
                    return;
                }
                &mut self.remasked
            }
            (Some(_), Some(_) | None) | (None, Some(_)) => &mut self.changed,
        };
        let chunk = place / CHUNK;
        // A new list sets its places one after the other, and would add each chunk 64 times.
        if chunks.last() != Some(&chunk) {
            chunks.push(chunk);
        }
    }

    /// What there is at each place, apart from endpoints that are left out.
    pub(super) fn slots(&self) -> impl Iterator<Item = Option<&Arc<ReadyEndpoint<H>>>> {
        self.slots
            .iter()
            .map(|slot| slot.as_ref().filter(|listed| !listed.is_left_out).map(|listed| &listed.endpoint))
    }

    /// The ready endpoints, or `None` if there is none.
    pub(super) fn ready(&mut self) -> Option<ReadySet<H>> {
        let Self { slots, chunks, changed, remasked } = self;
        let listed = |chunk: usize| {
            let first = chunk * CHUNK;
            slots[first..slots.len().min(first + CHUNK)].iter().flatten()
        };
        changed.sort_unstable();
        changed.dedup();
        for chunk in changed.drain(..) {
            chunks[chunk] = ReadyChunk::of(listed(chunk).map(|listed| Slot::new(listed.endpoint.clone())));
            // A new chunk has the bits of all its slots: those that are left out are masked below.
            remasked.push(chunk);
        }
        for chunk in remasked.drain(..) {
            let bits = listed(chunk).enumerate().map(|(bit, it)| u64::from(!it.is_left_out) << bit);
            chunks[chunk].mask = bits.sum();
        }
        Some(ReadySet::new(chunks.iter().cloned())).filter(|set| set.len() > 0)
    }
}

impl<H> ReadySet<H> {
    /// Without endpoints.
    pub(super) fn empty() -> Self {
        Self::new(std::iter::empty())
    }

    /// The set of the endpoints of some chunks, of which those without endpoints are left out.
    fn new(chunks: impl Iterator<Item = ReadyChunk<H>>) -> Self {
        let chunks: Box<[_]> = chunks.filter(|chunk| chunk.mask != 0).collect();
        let mut end = 0;
        let ends = chunks.iter().map(|chunk| {
            end += chunk.len();
            end
        });
        Self { ends: ends.collect(), chunks }
    }

    /// The number of ready endpoints.
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
        let len = self.len();
        // The places that follow from weights are those of ready endpoints: a division for each of their picks is spared.
        let place = if place < len { place } else { place % len };
        if let [only] = &*self.chunks {
            return only.slot(place, len);
        }
        // Most chunks are full, so that the place is found at once. A chunk has at most as many as that, so it is not further left.
        let mut chunk = place / CHUNK;
        if self.ends[chunk] <= place {
            chunk += self.ends[chunk..].partition_point(|end| *end <= place);
        }
        let first = if chunk == 0 { 0 } else { self.ends[chunk - 1] };
        self.chunks[chunk].slot(place - first, self.ends[chunk] - first)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ReadyEndpoint<H>>> {
        self.chunks.iter().flat_map(ReadyChunk::iter)
    }
}

impl<H> ReadyChunk<H> {
    fn empty() -> Self {
        Self { slots: Arc::new([]), mask: 0 }
    }

    /// At most [`CHUNK`] slots, none of which is left out.
    fn of(slots: impl Iterator<Item = Slot<H>>) -> Self {
        let slots: Arc<[_]> = slots.collect();
        let mask = (0..slots.len()).map(|bit| 1 << bit).sum();
        Self { slots, mask }
    }

    /// The number of endpoints that are not left out.
    fn len(&self) -> usize {
        self.mask.count_ones() as usize
    }

    /// The slot at a place among those that are not left out, of which there are so many.
    #[inline]
    fn slot(&self, place: usize, len: usize) -> &Slot<H> {
        if len == self.slots.len() {
            return &self.slots[place];
        }
        &self.slots[nth_one(self.mask, place)]
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<ReadyEndpoint<H>>> {
        let slots = self.slots.iter().enumerate().filter(|(bit, _)| self.mask >> bit & 1 == 1);
        slots.map(|(_, slot)| &slot.endpoint)
    }
}

/// The place of a bit that is 1, by its number among these.
fn nth_one(mask: u64, number: usize) -> usize {
    let mut left = number as u32;
    for (at, byte) in mask.to_le_bytes().into_iter().enumerate() {
        let ones = byte.count_ones();
        if left < ones {
            let lowest = |byte: u8| byte & byte.wrapping_sub(1);
            let rest = (0..left).fold(byte, |byte, _| lowest(byte));
            return at * 8 + rest.trailing_zeros() as usize;
        }
        left -= ones;
    }
    // There are fewer: a chunk has as many as it is asked for.
    0
}

impl<H> Slot<H> {
    fn new(endpoint: Arc<ReadyEndpoint<H>>) -> Self {
        Self { load: endpoint.load.clone(), endpoint }
    }
}

impl<H> Listed<H> {
    pub(super) fn new(endpoint: &Arc<ReadyEndpoint<H>>, is_left_out: bool) -> Self {
        Self { endpoint: endpoint.clone(), is_left_out }
    }
}

impl<H> Clone for ReadyChunk<H> {
    fn clone(&self) -> Self {
        Self { slots: self.slots.clone(), mask: self.mask }
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
            chunks.push(ReadyChunk::of(endpoints.by_ref().take(CHUNK)));
        }
        Self::new(chunks.into_iter())
    }
}

/// Tests fill slots one by one.
#[cfg(test)]
impl<H> ReadySlots<H> {
    /// Adds a place at the end.
    pub(super) fn push(&mut self, listed: Option<Listed<H>>) {
        let place = self.slots.len();
        self.slots.push(None);
        if place / CHUNK == self.chunks.len() {
            self.chunks.push(ReadyChunk::empty());
        }
        self.set(place, listed);
    }
}

/// The places of a chunk: a bit for each.
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
            identity: crate::balance::identity::Identity::default(),
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
        let listed: Vec<_> = set.iter().map(|endpoint| endpoint.handle()).collect();
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
                slots.push(it.map(|number| Listed { endpoint: endpoint(number), is_left_out: false }));
            }
            for _ in 0..100 {
                assert_eq!(handles(&mut slots), model.iter().flatten().copied().collect::<Vec<_>>());
                for _ in 0..random.usize(..4) {
                    let place = random.usize(..count);
                    model[place] = random.bool().then(|| random.usize(..));
                    let listed = |number| Listed { endpoint: endpoint(number), is_left_out: false };
                    slots.set(place, model[place].map(listed));
                }
            }
        }
    }

    #[test]
    fn ch11_7_a_change_of_one_endpoint_copies_one_chunk() {
        let mut slots = ReadySlots::new();
        let listed = |number| Listed { endpoint: endpoint(number), is_left_out: false };
        (0..10_000).for_each(|number| slots.push(Some(listed(number))));
        let before = slots.ready().unwrap();
        slots.set(5_000, None);
        let after = slots.ready().unwrap();
        assert_eq!((after.len(), copied(&before, &after)), (9_999, 1));
    }

    #[test]
    fn ch3_23_ejected_endpoints_are_left_out_without_a_copy_of_the_others() {
        let mut random = fastrand::Rng::with_seed(2);
        for count in [1, 2, 63, 64, 65, 1_000] {
            let (mut slots, all) = (ReadySlots::new(), (0..count).map(endpoint).collect::<Vec<_>>());
            all.iter().for_each(|endpoint| slots.push(Some(Listed::new(endpoint, false))));
            let (before, mut model) = (slots.ready().unwrap(), vec![true; count]);
            for share in [2, 3, 20, usize::MAX] {
                for (place, it) in all.iter().enumerate() {
                    model[place] = share == usize::MAX || random.usize(..share) > 0;
                    slots.set(place, Some(Listed::new(it, !model[place])));
                }
                let expected: Vec<_> = (0..count).filter(|place| model[*place]).collect();
                assert_eq!(handles(&mut slots), expected);
                assert_eq!(slots.slots().flatten().count(), expected.len());
                if let Some(after) = slots.ready().filter(|set| set.chunks.len() == before.chunks.len()) {
                    assert_eq!(copied(&before, &after), 0);
                }
            }
            // One that is ejected loses its connection.
            slots.set(0, Some(Listed::new(&all[0], true)));
            slots.set(0, None);
            drop(slots.ready());
            drop((before, slots));
            assert!(all.iter().all(|it| Arc::strong_count(it) == 1));
        }
    }

    #[test]
    fn an_ejected_endpoint_that_is_lost_is_not_kept_by_the_next_set() {
        let (mut slots, lost) = (ReadySlots::new(), endpoint(0));
        slots.push(Some(Listed::new(&lost, true)));
        slots.push(Some(Listed { endpoint: endpoint(1), is_left_out: false }));
        drop(slots.ready());
        slots.set(0, None);
        let set = slots.ready().unwrap();
        assert_eq!((set.len(), Arc::strong_count(&lost)), (1, 1));
    }

    fn copied(before: &ReadySet<usize>, after: &ReadySet<usize>) -> usize {
        let chunks = before.chunks.iter().zip(&after.chunks);
        chunks.filter(|(one, other)| !Arc::ptr_eq(&one.slots, &other.slots)).count()
    }
}
