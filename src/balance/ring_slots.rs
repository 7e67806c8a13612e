//! The endpoints of a hash ring with their states, from which pickers are made.

use std::{
    mem,
    sync::{Arc, atomic::AtomicBool},
};

use super::{
    connectivity::Connectivity,
    picker::ReadyEndpoint,
    policy::EndpointConfig,
    ring::{Ring, RingEndpoint, RingSizes},
    ring_picker::{CHUNK, RingCounts, RingPicker, RingSlot},
};

/// A ring with the states of its endpoints.
#[derive(Debug)]
pub(super) struct RingSlots<H> {
    ring: Arc<Ring>,
    header: Option<Arc<str>>,
    /// The rank of each endpoint of the list.
    ranks: Box<[u32]>,
    /// By rank.
    states: Vec<Slot<H>>,
    chunks: Vec<Arc<[RingSlot<H>]>>,
    /// Chunks that are older than their states.
    changed: Vec<usize>,
}

/// An endpoint: its place among those of its cluster, and its state.
#[derive(Debug, Clone)]
struct Slot<H> {
    member: usize,
    state: EndpointState<H>,
}

/// The state of an endpoint, with what a pick needs of it.
#[derive(Debug, Clone)]
pub(super) enum EndpointState<H> {
    Ready(Arc<ReadyEndpoint<H>>),
    Idle,
    Connecting,
    /// With the newest error.
    Failing(Option<Arc<str>>),
}

impl<H> RingSlots<H> {
    /// The ring of some endpoints with their weights, which are to be set then. A ring of the same endpoints is taken over, and the one
    /// that follows a ring in use is built at once, so that no pick has to (CH3.31).
    pub(super) fn new<'a>(
        endpoints: impl Iterator<Item = (&'a EndpointConfig, u64)>,
        sizes: RingSizes,
        header: Option<Arc<str>>,
        before: Option<Self>,
    ) -> Self {
        let mut listed: Vec<_> = endpoints
            .map(|(endpoint, weight)| RingEndpoint { key: key(endpoint), weight })
            .zip(0_usize..)
            .collect();
        listed.sort_unstable();
        let mut ranks = vec![0; listed.len()];
        for (rank, (_, place)) in (0_u32..).zip(&listed) {
            ranks[*place] = rank;
        }
        let endpoints: Box<[_]> = listed.into_iter().map(|(endpoint, _)| endpoint).collect();
        let before = before.map(|slots| slots.ring);
        let ring = match before {
            Some(ring) if ring.is_of(&endpoints, sizes) => ring,
            before => {
                let ring = Ring::new(endpoints, sizes);
                if before.is_some_and(|before| before.is_built()) {
                    ring.build();
                }
                Arc::new(ring)
            }
        };
        let states = vec_of(ranks.len(), || Slot { member: usize::MAX, state: EndpointState::Idle });
        let chunks = vec_of(ranks.len().div_ceil(CHUNK), || [].into());
        let changed = (0..chunks.len()).collect();
        Self { ring, header, ranks: ranks.into(), states, chunks, changed }
    }

    /// Sets the endpoint at a place of the list.
    pub(super) fn fill(&mut self, place: usize, member: usize, state: EndpointState<H>) {
        let rank = self.ranks[place] as usize;
        self.states[rank] = Slot { member, state };
        self.changed.push(rank / CHUNK);
    }

    /// Sets the state of the endpoint at a place of the list; false if it is the same.
    pub(super) fn set(&mut self, place: usize, state: EndpointState<H>) -> bool {
        let rank = self.ranks[place] as usize;
        if self.states[rank].state.is_same(&state) {
            return false;
        }
        self.states[rank].state = state;
        self.changed.push(rank / CHUNK);
        true
    }

    /// The endpoint of a rank on a ring, if it is still that of this ring.
    pub(super) fn member(&self, ring: &Arc<Ring>, rank: usize) -> Option<usize> {
        Arc::ptr_eq(ring, &self.ring).then(|| self.states.get(rank).map(|it| it.member)).flatten()
    }

    /// An idle endpoint, the search for which begins anywhere (CH3.37).
    pub(super) fn any_idle(&self, random: &mut fastrand::Rng) -> Option<usize> {
        let first = random.usize(..self.states.len().max(1));
        let (before, after) = self.states.split_at(first.min(self.states.len()));
        let mut slots = after.iter().chain(before);
        slots.find(|it| matches!(it.state, EndpointState::Idle)).map(|it| it.member)
    }

    /// The picker of the current states, of which there are so many.
    pub(super) fn picker(&mut self, counts: RingCounts, note: Option<Arc<str>>) -> RingPicker<H> {
        self.changed.sort_unstable();
        self.changed.dedup();
        for chunk in mem::take(&mut self.changed) {
            let first = chunk * CHUNK;
            let slots = &self.states[first..self.states.len().min(first + CHUNK)];
            self.chunks[chunk] = slots.iter().map(|it| it.state.slot()).collect();
        }
        let (ring, header) = (self.ring.clone(), self.header.clone());
        RingPicker { ring, header, chunks: self.chunks.iter().cloned().collect(), counts, note }
    }
}

impl<H> EndpointState<H> {
    pub(super) fn of(
        connectivity: Connectivity,
        ready: Option<&Arc<ReadyEndpoint<H>>>,
        error: Option<&Arc<str>>,
    ) -> Self {
        match (connectivity, ready) {
            (Connectivity::Ready, Some(ready)) => Self::Ready(ready.clone()),
            (Connectivity::Idle, _) => Self::Idle,
            (Connectivity::TransientFailure, _) => Self::Failing(error.cloned()),
            (Connectivity::Connecting | Connectivity::Ready, _) => Self::Connecting,
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(one), Self::Ready(other)) => Arc::ptr_eq(one, other),
            (Self::Failing(one), Self::Failing(other)) => one == other,
            (Self::Idle, Self::Idle) | (Self::Connecting, Self::Connecting) => true,
            (Self::Ready(_) | Self::Idle | Self::Connecting | Self::Failing(_), _) => false,
        }
    }

    fn slot(&self) -> RingSlot<H> {
        match self {
            Self::Ready(ready) => RingSlot::Ready(ready.clone()),
            Self::Idle => RingSlot::Idle { is_requested: AtomicBool::new(false) },
            Self::Connecting => RingSlot::Connecting,
            Self::Failing(error) => {
                RingSlot::Failing(error.clone().unwrap_or_else(|| "the endpoint is not used".into()))
            }
        }
    }
}

/// The state of a ring's endpoints together, by how many are in each (CH3.36).
pub(super) fn connectivity(counts: RingCounts, failing: usize) -> Connectivity {
    let RingCounts { ready, connecting, idle } = counts;
    match failing {
        _ if ready > 0 => Connectivity::Ready,
        2.. => Connectivity::TransientFailure,
        _ if connecting > 0 => Connectivity::Connecting,
        1 if idle > 0 => Connectivity::Connecting,
        _ if idle > 0 => Connectivity::Idle,
        _ => Connectivity::TransientFailure,
    }
}

/// What places an endpoint on the ring (CH3.29).
fn key(endpoint: &EndpointConfig) -> Arc<str> {
    match (&endpoint.hash_key, endpoint.addresses.first()) {
        (Some(key), _) => key.clone(),
        (None, Some(address)) => address.to_string().into(),
        (None, None) => "".into(),
    }
}

fn vec_of<T>(count: usize, make: impl FnMut() -> T) -> Vec<T> {
    std::iter::repeat_with(make).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16, hash_key: Option<&str>) -> EndpointConfig {
        let addresses = vec![([127, 0, 0, 1], port).into(), ([127, 0, 0, 2], port).into()];
        let identity = crate::balance::identity::Identity::default();
        EndpointConfig { addresses, identity, weight: 1, hostname: None, hash_key: hash_key.map(Into::into) }
    }

    fn slots(endpoints: &[EndpointConfig], max: u32, before: Option<RingSlots<u16>>) -> RingSlots<u16> {
        let sizes = RingSizes { min: 8, max };
        let mut slots = RingSlots::new(endpoints.iter().map(|it| (it, 1)), sizes, None, before);
        (0..endpoints.len()).for_each(|place| slots.fill(place, 100 + place, EndpointState::Idle));
        slots
    }

    #[test]
    fn ch3_29_the_key_is_that_of_the_metadata_or_the_first_address() {
        assert_eq!(&*key(&endpoint(1, None)), "127.0.0.1:1");
        assert_eq!(&*key(&endpoint(1, Some("a"))), "a");
        let v6 =
            EndpointConfig { addresses: vec!["[2001:DB8:0:0::1]:80".parse().unwrap()], ..endpoint(1, None) };
        assert_eq!(&*key(&v6), "[2001:db8::1]:80");
    }

    #[test]
    fn ch3_31_a_ring_is_rebuilt_for_other_keys_weights_or_sizes_alone() {
        let list = [endpoint(1, None), endpoint(2, Some("a")), endpoint(3, None)];
        let first = slots(&list, 9, None);
        let ring = first.ring.clone();
        let mut turned = list.clone();
        turned.reverse();
        let mut second = slots(&turned, 9, Some(first));
        assert!(Arc::ptr_eq(&second.ring, &ring), "the order of the list does not matter");
        assert_eq!([0, 1, 2].map(|rank| second.member(&ring, rank)), [Some(102), Some(100), Some(101)]);
        assert!(second.set(0, EndpointState::Connecting));
        assert!(Arc::ptr_eq(&second.picker(RingCounts::default(), None).ring, &ring));
        let third = slots(&list, 10, Some(second));
        assert_eq!(third.member(&ring, 0), None, "a request that is of an older ring");
        let fourth = slots(&[endpoint(1, None), endpoint(2, Some("b")), endpoint(3, None)], 10, Some(third));
        let before = fourth.ring.clone();
        assert!(!Arc::ptr_eq(&slots(&list, 10, Some(fourth)).ring, &before));
    }

    #[test]
    fn ch3_31_a_ring_is_built_by_the_first_pick_and_the_one_that_follows_it_before_any_pick() {
        let list = [endpoint(1, None), endpoint(2, None)];
        let mut first = slots(&list, 9, None);
        let picker = first.picker(RingCounts::default(), None);
        assert!(!first.ring.is_built(), "neither the list nor a picker needs it");
        let second = slots(&list[..1], 9, Some(first));
        assert!(!second.ring.is_built());
        assert!(picker.ring.walk(0).next().is_some() && picker.ring.is_built());
        let mut third = slots(&list, 9, Some(second));
        assert!(third.picker(RingCounts::default(), None).ring.walk(0).next().is_some());
        assert!(slots(&list[1..], 9, Some(third)).ring.is_built());
    }

    #[test]
    fn ch11_7_a_change_of_one_endpoint_of_a_ring_copies_one_chunk() {
        let list: Vec<_> = (1..=10_000).map(|port| endpoint(port, None)).collect();
        let mut slots = slots(&list, 4_096, None);
        let before = slots.picker(RingCounts::default(), None);
        assert!(!slots.set(5_000, EndpointState::Idle), "it was idle before");
        assert!(slots.set(5_000, EndpointState::Connecting));
        let after = slots.picker(RingCounts::default(), None);
        let copied = before.chunks.iter().zip(&after.chunks).filter(|(one, other)| !Arc::ptr_eq(one, other));
        assert_eq!(copied.count(), 1);
    }

    #[test]
    fn ch3_37_the_endpoint_to_connect_is_any_of_the_idle_ones() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut slots = slots(&[1, 2, 3, 4].map(|port| endpoint(port, None)), 9, None);
        slots.set(2, EndpointState::Connecting);
        let mut counts = [0; 4];
        for _ in 0..400 {
            counts[slots.any_idle(&mut random).unwrap() - 100] += 1;
        }
        assert!(counts[2] == 0 && [0, 1, 3].iter().all(|it| counts[*it] > 50), "{counts:?}");
        assert!((0..4).all(|place| slots.set(place, EndpointState::Failing(None))));
        assert_eq!(slots.any_idle(&mut random), None);
    }

    #[test]
    fn ch3_36_a_ring_fails_with_two_endpoints_unless_one_is_ready() {
        let of =
            |ready, connecting, idle, failing| connectivity(RingCounts { ready, connecting, idle }, failing);
        assert_eq!(of(1, 1, 1, 2), Connectivity::Ready);
        assert_eq!(of(0, 1, 1, 2), Connectivity::TransientFailure);
        assert_eq!(of(0, 1, 1, 1), Connectivity::Connecting);
        assert_eq!(of(0, 0, 1, 1), Connectivity::Connecting, "one failed, and another is to be tried");
        assert_eq!(of(0, 1, 1, 0), Connectivity::Connecting);
        assert_eq!(of(0, 0, 2, 0), Connectivity::Idle);
        assert_eq!(of(0, 0, 0, 1), Connectivity::TransientFailure, "it is the only one");
        assert_eq!(of(0, 0, 0, 0), Connectivity::TransientFailure);
    }
}
