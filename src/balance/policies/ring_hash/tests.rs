use std::time::Instant;

use super::*;
use crate::balance::{
    identity::Identity,
    policies::{StateCounts, ring_hash::ring::RingSizes},
    ready_set::{ReadySet, ReadySlots},
};

fn endpoint(port: u16, hash_key: Option<&str>) -> EndpointConfig {
    let addresses = vec![([127, 0, 0, 1], port).into(), ([127, 0, 0, 2], port).into()];
    let (identity, hash_key) = (Identity::default(), hash_key.map(Into::into));
    EndpointConfig { addresses, identity, weight: 1, hostname: None, hash_key }
}

fn policy(max: u32) -> RingHash {
    RingHash { sizes: RingSizes { min: 8, max }, cluster_entries: u32::MAX, request_hash_header: None }
}

fn state(endpoints: &[EndpointConfig], max: u32, before: Option<RingState<usize>>) -> RingState<usize> {
    let weighted = endpoints.iter().map(|endpoint| (endpoint, 1)).collect();
    policy(max).state_of(weighted, policy(max).sizes, before)
}

/// The picker of a state.
pub(super) fn picker(state: &mut RingState<usize>) -> Arc<RingPicker<usize>> {
    let (slots, ready) = (&ReadySlots::new(), &ReadySet::empty());
    let (counts, now) = (StateCounts::default(), Instant::now());
    state.picker(&PickerEndpoints { slots, ready, counts, stale_config: None, now, on_weights: &|_| {} })
}

#[test]
fn ch3_28_sizes_are_limited() {
    let config = RingHash {
        sizes: RingSizes { min: 1_024, max: 8_388_608 },
        cluster_entries: u32::MAX,
        request_hash_header: None,
    };
    let limited = |table_entries, cluster_table_entries| {
        config.clone().limited(&PolicyLimits { table_entries, cluster_table_entries })
    };
    assert_eq!(limited(4_096, 65_536).sizes, RingSizes { min: 1_024, max: 4_096 });
    assert_eq!(limited(100, 1).sizes, RingSizes { min: 100, max: 100 });
    assert_eq!(limited(4_096, 10_000).cluster_entries, 10_000);
    assert_eq!(limited(4_096, 100).cluster_entries, 4_096, "one ring always has its size");
    assert_eq!(limited(u32::MAX, u32::MAX), config);
}

#[test]
fn ch3_31_a_ring_is_rebuilt_for_other_keys_weights_or_sizes_alone() {
    let list = [endpoint(1, None), endpoint(2, Some("a")), endpoint(3, None)];
    let first = state(&list, 9, None);
    let ring = first.ring.clone();
    let mut turned = list.clone();
    turned.reverse();
    let mut second = state(&turned, 9, Some(first));
    assert!(Arc::ptr_eq(&second.ring, &ring), "the order of the list does not matter");
    assert_eq!(*picker(&mut second).indexes, [2, 0, 1], "requests are for the indexes of the list of now");
    assert!(second.set_endpoint(0, || EndpointState::Connecting));
    assert!(Arc::ptr_eq(&picker(&mut second).ring, &ring));
    let third = state(&list, 10, Some(second));
    assert!(!Arc::ptr_eq(&third.ring, &ring));
    let fourth = state(&[endpoint(1, None), endpoint(2, Some("b")), endpoint(3, None)], 10, Some(third));
    let before = fourth.ring.clone();
    assert!(!Arc::ptr_eq(&state(&list, 10, Some(fourth)).ring, &before));
}

#[test]
fn ch3_31_a_ring_is_built_by_the_first_pick_and_the_one_that_follows_it_before_any_pick() {
    let list = [endpoint(1, None), endpoint(2, None)];
    let mut first = state(&list, 9, None);
    let of_first = picker(&mut first);
    assert!(!first.ring.is_built(), "neither the list nor a picker needs it");
    let second = state(&list[..1], 9, Some(first));
    assert!(!second.ring.is_built());
    assert!(of_first.ring.walk(0).next().is_some() && of_first.ring.is_built());
    let mut third = state(&list, 9, Some(second));
    assert!(picker(&mut third).ring.walk(0).next().is_some());
    assert!(state(&list[1..], 9, Some(third)).ring.is_built());
}

#[test]
fn ch11_7_a_change_of_one_endpoint_of_a_ring_copies_one_chunk() {
    let list: Vec<_> = (1..=10_000).map(|port| endpoint(port, None)).collect();
    let mut state = state(&list, 4_096, None);
    let before = picker(&mut state);
    assert!(!state.set_endpoint(5_000, || EndpointState::Idle), "it was idle before");
    assert!(state.set_endpoint(5_000, || EndpointState::Connecting));
    let after = picker(&mut state);
    let copied = before.chunks.iter().zip(&after.chunks).filter(|(one, other)| !Arc::ptr_eq(one, other));
    assert_eq!(copied.count(), 1);
}
