use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn endpoints<K: Into<Arc<str>>>(endpoints: impl IntoIterator<Item = (K, u64)>) -> Box<[RingEndpoint]> {
    let mut all: Vec<_> =
        endpoints.into_iter().map(|(key, weight)| RingEndpoint { key: key.into(), weight }).collect();
    all.sort();
    all.into()
}

fn ring(of: Box<[RingEndpoint]>, min: u32, max: u32) -> Ring {
    Ring::new(of, RingSizes { min, max })
}

fn backends(count: usize) -> impl Iterator<Item = (String, u64)> {
    (0..count).map(|number| (format!("10.0.{}.{}:80", number / 250, number % 250), 1))
}

/// The number of entries of each endpoint.
fn sizes(ring: &Ring) -> BTreeMap<&str, usize> {
    let mut sizes = BTreeMap::new();
    for rank in &ring.entries().ranks {
        *sizes.entry(&*ring.endpoints[*rank as usize].key).or_default() += 1;
    }
    sizes
}

/// The key of the endpoint of a hash.
fn owner(ring: &Ring, hash: u64) -> &str {
    &ring.endpoints[ring.walk(hash).next().unwrap()].key
}

#[test]
fn ch3_30_the_entries_of_endpoints_are_proportional_to_their_weights() {
    // The least weight is a tenth: ceil(0.1 × 24) / 0.1 = 30.
    let of = || endpoints([("a", 3), ("b", 3), ("c", 4)]);
    // 0.3 is 3 × the least, in binary fractions: ceil(0.3 × 20) / 0.3 = 20.
    assert_eq!(sizes(&ring(of(), 20, 100)), [("a", 6), ("b", 6), ("c", 8)].into());
    assert_eq!(sizes(&ring(endpoints([("a", 1), ("b", 9)]), 24, 100)), [("a", 3), ("b", 27)].into());
    assert_eq!(sizes(&ring(endpoints([("a", 1), ("b", 9)]), 24, 25)), [("a", 3), ("b", 22)].into());
    assert_eq!(sizes(&ring(endpoints([("a", 7)]), 1, 100)), [("a", 1)].into());
    // Weights of CH3.50, of up to 2³¹.
    let one = 1_u64 << 31;
    assert_eq!(
        sizes(&ring(endpoints([("a", one / 4), ("b", 3 * one / 4)]), 8, 100)),
        [("a", 2), ("b", 6)].into()
    );
    assert!(ring(endpoints::<&str>([]), 1, 100).entries().hashes.is_empty());
}

#[test]
fn ch3_30_a_ring_without_room_for_all_has_entries_of_some() {
    let ring = ring(endpoints(backends(100)), 10, 10);
    assert_eq!((ring.entries().hashes.len(), sizes(&ring).len()), (10, 10));
}

#[test]
fn ch3_33_the_entry_of_a_hash_is_the_first_that_is_not_below_it() {
    let mut random = fastrand::Rng::with_seed(1);
    for count in [1, 2, 3, 4, 5, 7, 8, 9, 100, 1_000] {
        let ring = ring(endpoints(backends(count)), count as u32, 4_096);
        let near =
            ring.entries().hashes.iter().flat_map(|hash| [hash.wrapping_sub(1), *hash, hash.wrapping_add(1)]);
        let far = [0, 1, u64::MAX >> 1, u64::MAX - 1, u64::MAX];
        let any: Vec<_> = (0..1_000).map(|_| random.u64(..)).collect();
        for hash in near.chain(far).chain(any) {
            let first = ring.entries().hashes.iter().position(|it| *it >= hash).unwrap_or(0);
            let walk: Vec<_> = ring.walk(hash).collect();
            let expected = ring.entries().ranks[first..].iter().chain(&ring.entries().ranks[..first]);
            assert!(walk.iter().copied().eq(expected.map(|rank| *rank as usize)), "{hash} among {count}");
        }
    }
    assert_eq!(ring(endpoints::<&str>([]), 1, 100).walk(5).next(), None);
}

#[test]
fn ch3_30_an_entry_is_the_hash_of_key_and_number() {
    let ring = ring(endpoints([("10.0.0.1:80", 1), ("[::1]:80", 1)]), 4, 100);
    let mut expected = Vec::new();
    for (rank, key) in [(0, "10.0.0.1:80"), (1, "[::1]:80")] {
        expected.extend((0..2).map(|index| (hash(format!("{key}_{index}").as_bytes()), rank)));
    }
    expected.sort_unstable();
    let entries: Vec<_> =
        ring.entries().hashes.iter().copied().zip(ring.entries().ranks.iter().copied()).collect();
    assert_eq!(entries, expected);
}

#[test]
fn ch3_33_a_hash_belongs_to_the_entry_at_or_after_it_and_the_ring_has_no_end() {
    let ring = ring(endpoints(backends(3)), 30, 100);
    let last = ring.entries().hashes.len() - 1;
    for (place, hash) in ring.entries().hashes.iter().enumerate() {
        let ranks = |place: usize| {
            ring.entries().ranks[place..].iter().chain(&ring.entries().ranks[..place]).map(|it| *it as usize)
        };
        assert!(ring.walk(*hash).eq(ranks(place)), "the entry at the hash itself");
        assert!(ring.walk(hash - 1).eq(ranks(place)));
        assert!(ring.walk(hash + 1).eq(ranks(if place == last { 0 } else { place + 1 })));
    }
    assert!(ring.walk(u64::MAX).eq(ring.walk(0)));
}

#[test]
fn ch3_32_ch13_6_of_two_endpoints_with_one_key_both_have_entries() {
    let ring = ring(endpoints([("a", 1), ("a", 1), ("b", 1)]), 30, 100);
    let ranks: BTreeSet<_> = ring.walk(0).collect();
    assert_eq!(ranks, [0, 1, 2].into());
    let first = ring.entries().ranks.iter().position(|rank| *rank < 2).unwrap();
    assert_eq!(
        (ring.entries().ranks[first], ring.entries().ranks[first + 1]),
        (0, 1),
        "the first one is found"
    );
    assert_eq!(ring.entries().hashes[first], ring.entries().hashes[first + 1]);
}

#[test]
fn ch3_30_a_changed_endpoint_moves_what_it_has_to_and_nothing_else() {
    let mut random = fastrand::Rng::with_seed(1);
    let hashes: Vec<_> = (0..20_000).map(|_| random.u64(..)).collect();
    // Rings whose scale is that of the number of endpoints: 400 entries of each.
    let ring_of = |count| ring(endpoints(backends(count)), 400 * count as u32, 100_000);
    let (fewer, more) = (ring_of(20), ring_of(21));
    let added = backends(21).last().unwrap().0;
    let moved: Vec<_> = hashes.iter().filter(|hash| owner(&fewer, **hash) != owner(&more, **hash)).collect();
    assert!(moved.iter().all(|hash| owner(&more, **hash) == added), "only to the endpoint that was added");
    let of_added =
        more.entries().ranks.iter().filter(|rank| *more.endpoints[**rank as usize].key == *added).count();
    assert_eq!((of_added, more.entries().hashes.len()), (400, 8_400));
    // One in 21, as far as 400 random entries are even.
    let share = moved.len() as f64 / hashes.len() as f64;
    assert!((0.8..1.2).contains(&(share * 21.0)), "{share}");
}

#[test]
fn ch3_30_with_the_sizes_of_a_server_one_endpoint_of_many_moves_few_requests() {
    let mut random = fastrand::Rng::with_seed(2);
    let hashes: Vec<_> = (0..20_000).map(|_| random.u64(..)).collect();
    let ring_of = |count| ring(endpoints(backends(count)), 1_024, 4_096);
    // 1,024 / 100 is not whole, so that each of 100 endpoints has 11 entries, and each of 99 too.
    let (before, after) = (ring_of(100), ring_of(99));
    let removed = backends(100).last().unwrap().0;
    let moved: Vec<_> =
        hashes.iter().filter(|hash| owner(&before, **hash) != owner(&after, **hash)).collect();
    assert!(moved.iter().all(|hash| owner(&before, **hash) == removed));
    assert!((100..350).contains(&moved.len()), "{} of 20,000, about 1 in 100", moved.len());
}
