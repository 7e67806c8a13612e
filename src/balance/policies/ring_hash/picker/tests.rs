mod grpc_go;

use super::*;
use crate::{
    balance::{
        command::ConnectionId,
        load::Loads,
        policies::ring_hash::ring::{RingEndpoint, RingSizes},
        stream_queue::Connections,
    },
    resolve::RouteQuery,
};

/// The states of endpoints: ready, idle, connecting, failing.
#[derive(Clone, Copy, PartialEq)]
enum State {
    R,
    I,
    C,
    F,
}
use State::{C, F, I, R};

fn endpoint(rank: usize) -> Arc<ReadyEndpoint<usize>> {
    Arc::new(ReadyEndpoint {
        connection: ConnectionId::default(),
        connections: Connections::of_one(rank),
        address: ([127, 0, 0, 1], 1).into(),
        identity: crate::balance::identity::Identity::default(),
        hostname: None,
        locality: None,
        load: Loads::default().add(),
        breaker: Arc::default(),
        outcomes: None,
        weight: None,
    })
}

/// A picker of endpoints that are ordered by their first entries after hash 0.
fn picker(states: &[State], header: Option<&str>) -> RingPicker<usize> {
    picker_of(states, header, RingSizes { min: 1_024, max: 4_096 })
}

/// The same with a ring of some size. Endpoints without an entry are the last ones.
fn picker_of(states: &[State], header: Option<&str>, sizes: RingSizes) -> RingPicker<usize> {
    let endpoints = (0..states.len()).map(|it| RingEndpoint { key: format!("{it:03}").into(), weight: 1 });
    let ring = Arc::new(Ring::new(endpoints.collect(), sizes));
    let mut slots: Vec<Option<RingSlot<usize>>> = states.iter().map(|_| None).collect();
    let mut order: Vec<usize> = Vec::new();
    for rank in ring.walk(0).chain(0..states.len()) {
        if !order.contains(&rank) {
            order.push(rank);
        }
    }
    for (rank, state) in order.into_iter().zip(states) {
        slots[rank] = Some(match state {
            R => RingSlot::Ready(endpoint(rank)),
            I => RingSlot::Idle { is_requested: AtomicBool::new(false) },
            C => RingSlot::Connecting,
            F => RingSlot::Failing(format!("error {rank}").into()),
        });
    }
    let slots: Vec<_> = slots.into_iter().flatten().collect();
    let mut slots = slots.into_iter().peekable();
    let mut chunks: Vec<Arc<[_]>> = Vec::new();
    while slots.peek().is_some() {
        chunks.push(slots.by_ref().take(CHUNK).collect());
    }
    let count = |state| states.iter().filter(|it| **it == state).count();
    RingPicker {
        ring,
        header: header.map(Into::into),
        indexes: (0..states.len() as u32).collect(),
        chunks: chunks.into(),
        counts: StateCounts { ready: count(R), connecting: count(C), idle: count(I), failing: count(F) },
        stale_config: None,
    }
}

/// The places of the endpoints in their order after hash 0.
fn place(picker: &RingPicker<usize>, rank: usize) -> usize {
    let mut order: Vec<usize> = Vec::new();
    for rank in picker.ring.walk(0) {
        if !order.contains(&rank) {
            order.push(rank);
        }
    }
    order.iter().position(|it| *it == rank).unwrap()
}

/// What a pick results in, with places instead of ranks.
#[derive(Debug, PartialEq)]
enum Outcome {
    Endpoint(usize),
    Wait,
    Fail(usize),
}

fn outcome(
    picker: &RingPicker<usize>,
    pick: (RingPick<'_, usize>, Option<usize>),
) -> (Outcome, Option<usize>) {
    let outcome = match pick.0 {
        RingPick::Endpoint(it) => Outcome::Endpoint(place(picker, it.handle())),
        RingPick::Wait => Outcome::Wait,
        RingPick::Fail(error) => {
            Outcome::Fail(place(picker, error.strip_prefix("error ").unwrap().parse().unwrap()))
        }
    };
    (outcome, pick.1.map(|rank| place(picker, rank)))
}

fn hashed(picker: &RingPicker<usize>) -> (Outcome, Option<usize>) {
    outcome(picker, picker.pick_hashed(0))
}

fn random(picker: &RingPicker<usize>) -> (Outcome, Option<usize>) {
    outcome(picker, picker.pick_random(0))
}

#[test]
fn ch3_33_the_error_is_that_of_the_first_entry_although_another_endpoint_without_entries_is_idle() {
    let picker = picker_of(&[F, F, I], None, RingSizes { min: 2, max: 2 });
    assert_eq!(picker.ring.walk(0).count(), 2);
    assert_eq!(hashed(&picker), (Outcome::Fail(0), None));
}

#[test]
fn ch3_33_the_first_endpoint_that_does_not_fail_is_picked_or_waited_for() {
    for (states, expected) in [
        (&[R, R][..], (Outcome::Endpoint(0), None)),
        (&[F, F, R], (Outcome::Endpoint(2), None)),
        (&[F, I, R], (Outcome::Wait, Some(1))),
        (&[F, C, R, I], (Outcome::Wait, None)),
        (&[C, I], (Outcome::Wait, None)),
        (&[F, F, F], (Outcome::Fail(0), None)),
    ] {
        assert_eq!(hashed(&picker(states, None)), expected);
    }
}

#[test]
fn ch3_33_an_endpoint_is_requested_once_from_a_picker() {
    let picker = picker(&[I, I], None);
    assert_eq!(hashed(&picker), (Outcome::Wait, Some(0)));
    assert_eq!(hashed(&picker), (Outcome::Wait, None));
    let other = picker.ring.walk(0).find(|rank| place(&picker, *rank) == 1).unwrap();
    let hash = (0..).map(|it| it << 50).find(|hash| picker.ring.walk(*hash).next() == Some(other)).unwrap();
    assert_eq!(outcome(&picker, picker.pick_hashed(hash)), (Outcome::Wait, Some(1)), "another one is");
}

#[test]
fn ch3_34_without_the_header_the_next_ready_endpoint_is_picked_and_an_idle_one_requested() {
    for (states, expected) in [
        (&[R, I][..], (Outcome::Endpoint(0), None)),
        (&[I, F, R], (Outcome::Endpoint(2), Some(0))),
        (&[F, I, I, R], (Outcome::Endpoint(3), Some(1))),
        (&[I, R, C], (Outcome::Endpoint(1), None)),
        (&[F, I, I], (Outcome::Wait, Some(1))),
        (&[F, I, C], (Outcome::Wait, None)),
        (&[F, F], (Outcome::Fail(0), None)),
    ] {
        assert_eq!(random(&picker(states, Some("x-user"))), expected);
    }
    let picker = picker(&[F, I, I], Some("x-user"));
    random(&picker);
    assert_eq!(random(&picker), (Outcome::Wait, None), "it was requested before");
}

fn pick(picker: &RingPicker<usize>, request: &RouteQuery<'_>, seed: u64) -> usize {
    let (attributes, random) = (&mut CallAttributes::default(), &mut fastrand::Rng::with_seed(seed));
    match picker.pick_of(&mut PickArgs { attributes, random, request }).0 {
        RingPick::Endpoint(endpoint) => endpoint.handle(),
        other @ (RingPick::Wait | RingPick::Fail(_)) => panic!("{other:?}"),
    }
}

#[test]
fn ch3_34_the_values_of_the_header_are_hashed_and_an_empty_one_is_none() {
    let picker = picker(&[R; 100], Some("x-user"));
    let owner = |hash| picker.ring.walk(hash).next().unwrap();
    let request = || RouteQuery::new("/", 0);
    let both = request().with_header("x-user", "ada").with_header("X-User", "bob");
    for seed in 0..10 {
        assert_eq!(pick(&picker, &both, seed), owner(hash(b"ada,bob")));
        let drawn = owner(fastrand::Rng::with_seed(seed).u64(..));
        assert_eq!(pick(&picker, &request(), seed), drawn);
        assert_eq!(pick(&picker, &request().with_header("x-user", ""), seed), drawn);
    }
}

#[test]
fn ch3_35_a_request_without_hash_policies_has_a_hash() {
    let picker = picker(&[R; 100], None);
    let owner = |hash| picker.ring.walk(hash).next().unwrap();
    for seed in 0..10 {
        let drawn = owner(fastrand::Rng::with_seed(seed).u64(..));
        assert_eq!(pick(&picker, &RouteQuery::new("/", 0), seed), drawn);
    }
}

#[test]
fn ch2_19_a_pick_needs_the_request_until_the_hash_is_known() {
    let (mut known, unknown) = (CallAttributes::default(), CallAttributes::default());
    known.hash(&RouteQuery::new("/", 0), &mut fastrand::Rng::with_seed(1));
    let of_policies = Arc::new(picker(&[R], None));
    assert!(of_policies.needs_request(&unknown) && !of_policies.needs_request(&known));
    assert!(Arc::new(picker(&[R], Some("x-user"))).needs_request(&known));
}

#[test]
fn ch3_13_a_ring_of_the_policy_before_has_only_endpoints_that_are_connected() {
    let before = Arc::new(picker(&[R, I, C, R, F], None));
    let first = before.ring.walk(0).next().unwrap();
    let after = before.without(&ReadySet::empty(), &|endpoint| endpoint.handle() == first);
    assert_eq!(hashed(&after), (Outcome::Endpoint(3), None));
    assert_eq!(after.counts, StateCounts { ready: 1, connecting: 0, idle: 0, failing: 4 });
}
