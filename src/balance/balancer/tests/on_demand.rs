//! ring_hash, whose endpoints are connected as calls need them.

use super::*;
use crate::balance::{
    hash::RequestHash,
    policies::ring_hash::{RingHash, ring::RingSizes},
};

fn ring_hash() -> ClusterPolicy {
    let sizes = RingSizes { min: 1_024, max: 4_096 };
    let policy = Policy::RingHash(RingHash { sizes, cluster_entries: u32::MAX, request_hash_header: None });
    ClusterPolicy { policy, by_locality: false }
}

fn by_locality() -> ClusterPolicy {
    ClusterPolicy { by_locality: true, ..ring_hash() }
}

impl Fixture {
    /// A pick for a hash; a connection that it requests is attempted.
    fn pick_hashed(&mut self, hash: u64) -> Pick<SocketAddr> {
        self.drain();
        let (mut attributes, random) = (CallAttributes::new(RequestHash::of(hash)), &mut self.random);
        let request = &RouteQuery::new("/", 0);
        let pick = self.pickers["shop"].pick(&mut PickArgs { attributes: &mut attributes, random, request });
        if let Some(request) = attributes.take_connect_request() {
            self.balancer.connect_endpoint(&request, self.now);
            self.drain();
        }
        pick
    }

    fn waits(&mut self, hash: u64) {
        let pick = self.pick_hashed(hash);
        assert!(matches!(pick, Pick::Queue), "{pick:?}");
    }

    fn reaches(&mut self, hash: u64) -> u16 {
        let pick = self.pick_hashed(hash);
        let Pick::Complete(attempt) = pick else { panic!("{pick:?}") };
        attempt.endpoint.address.port()
    }

    /// The endpoint of a hash, which is connected for it.
    fn connect_for(&mut self, hash: u64) -> u16 {
        self.waits(hash);
        let [port] = self.attempted()[..] else { panic!("{:?}", self.attempted()) };
        self.connect(port);
        assert_eq!(self.reaches(hash), port);
        port
    }

    fn connectivity(&mut self) -> Connectivity {
        self.drain();
        self.pickers["shop"].connectivity
    }
}

/// Hashes of other endpoints than some, by trial.
fn other_than(it: &mut Fixture, ports: &[u16]) -> (u64, u16) {
    for step in 1..1_000 {
        let hash = step << 54;
        if let Pick::Queue = it.pick_hashed(hash)
            && let [port] = it.attempted()[..]
            && !ports.contains(&port)
        {
            return (hash, port);
        }
    }
    panic!("no other endpoint than {ports:?}");
}

#[test]
fn ch3_33_ch3_38_an_endpoint_is_connected_when_a_pick_needs_it_and_no_other() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3]]));
    assert_eq!((it.attempted(), it.connectivity()), (vec![], Connectivity::Idle));
    it.waits(0);
    it.waits(0);
    assert_eq!((it.attempted().len(), it.connectivity()), (1, Connectivity::Connecting));
    let first = it.attempted()[0];
    it.connect(first);
    assert_eq!((it.reaches(0), it.attempted(), it.connectivity()), (first, vec![], Connectivity::Ready));
    let (hash, second) = other_than(&mut it, &[first]);
    assert_eq!(it.reaches(0), first, "others do not wait for it");
    it.connect(second);
    assert_eq!([it.reaches(hash), it.reaches(0)], [second, first]);
}

#[test]
fn ch3_38_a_lost_connection_is_not_replaced_before_the_next_pick() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3]]));
    let first = it.connect_for(0);
    it.lose(first);
    it.wait(600);
    assert_eq!((it.attempted(), it.connectivity()), (vec![], Connectivity::Idle));
    assert_eq!(it.connect_for(0), first);
}

#[test]
fn ch3_37_the_endpoint_to_connect_is_any_of_the_idle_ones() {
    let mut counts: BTreeMap<u16, u32> = BTreeMap::new();
    for seed in 0..400 {
        let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3, 4]]));
        it.balancer.random = fastrand::Rng::with_seed(seed);
        it.waits(0);
        let first = it.attempted()[0];
        it.fail(first);
        it.drain();
        let [next] = it.attempted()[..] else { panic!("{:?}", it.attempted()) };
        assert_ne!(next, first);
        *counts.entry(next).or_default() += 1;
    }
    assert!(counts.len() == 3 && counts.values().all(|count| *count > 80), "{counts:?}");
}

#[test]
fn ch3_38_the_application_connects_one_endpoint_at_random_of_an_idle_ring() {
    let mut ports = BTreeSet::new();
    for seed in 0..40 {
        let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3]]));
        it.balancer.random = fastrand::Rng::with_seed(seed);
        it.balancer.exit_idle(it.now);
        it.drain();
        ports.extend(it.attempted());
        assert_eq!(it.attempted().len(), 1);
        it.balancer.exit_idle(it.now);
        it.drain();
        assert_eq!(it.attempted().len(), 1, "it is not idle any more");
    }
    assert_eq!(ports, [1, 2, 3].into());
}

#[test]
fn ch3_36_ch3_37_a_ring_that_fails_tries_one_endpoint_after_the_other() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3, 4], &[5]]));
    it.waits(0);
    let first = it.attempted()[0];
    it.fail(first);
    // Nobody has requested the next one.
    assert_eq!((it.attempted().len(), it.connectivity()), (1, Connectivity::Connecting));
    let second = it.attempted()[0];
    assert_ne!(second, first);
    it.fail(second);
    let third: Vec<_> = it.attempted().into_iter().filter(|it| *it != 5).collect();
    assert_eq!(third.len(), 1, "one at a time: {third:?}");
    it.fail(third[0]);
    let fourth: Vec<_> = it.attempted().into_iter().filter(|it| *it != 5).collect();
    assert_eq!(fourth.len(), 1);
    it.connect(fourth[0]);
    assert_eq!((it.reaches(0), it.connectivity()), (fourth[0], Connectivity::Ready));
}

#[test]
fn ch3_36_ch3_55_two_failed_endpoints_make_the_next_priority_be_used() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3], &[5]]));
    it.waits(0);
    for _ in 0..2 {
        let [port] = it.attempted()[..] else { panic!("{:?}", it.attempted()) };
        it.fail(port);
    }
    // The third one of the first priority is tried, and the ring of the second is used as it is idle.
    it.waits(0);
    assert!(it.attempted().contains(&5));
    it.connect(5);
    assert_eq!(it.reaches(0), 5);
}

#[test]
fn ch3_33_a_call_fails_with_the_error_of_the_endpoint_of_its_hash() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2]]));
    it.waits(0);
    let first = it.attempted()[0];
    it.fail(first);
    let second = it.attempted()[0];
    it.fail(second);
    let pick = it.pick_hashed(0);
    let Pick::Fail(reason) = pick else { panic!("{pick:?}") };
    let expected = "cluster shop: no endpoint can be reached, the error of the first is";
    assert_eq!(&*reason, format!("{expected}: 127.0.0.1:{first}: refused"));
    assert_eq!(it.connectivity(), Connectivity::TransientFailure);
    // Failed endpoints are tried again by themselves.
    it.wait(2);
    assert_eq!(it.attempted().len(), 2);
    it.connect(first);
    assert_eq!(it.reaches(0), first);
}

#[test]
fn ch3_29_another_key_moves_an_endpoint_and_keeps_its_connection() {
    let keyed = |keys: [Option<&str>; 2]| {
        let mut locality = locality("a", 1, &[1, 2]);
        for (endpoint, key) in locality.endpoints.iter_mut().zip(keys) {
            endpoint.hash_key = key.map(Into::into);
        }
        configs(&[("shop", leaf(ring_hash(), vec![vec![locality]]))], &[("shop", &["shop"])])
    };
    let mut it = Fixture::new(keyed([Some("x"), Some("y")]));
    let first = it.connect_for(0);
    other_than(&mut it, &[first]);
    it.connect_all();
    let hashes = || (0..200_u64).map(|it| it << 56);
    let reached: Vec<_> = hashes().map(|hash| it.reaches(hash)).collect();
    it.update(keyed([Some("y"), Some("x")]));
    let swapped: Vec<_> = hashes().map(|hash| it.reaches(hash)).collect();
    assert!(
        reached.iter().zip(&swapped).all(|(one, other)| one != other),
        "each has the places of the other"
    );
    it.update(keyed([None, None]));
    assert!(hashes().any(|hash| it.reaches(hash) == 1) && hashes().any(|hash| it.reaches(hash) == 2));
    assert!(it.drained.is_empty() && it.attempted().is_empty());
}

#[test]
fn ch3_52_the_endpoints_of_all_localities_are_on_one_ring() {
    let localities = vec![locality("a", 3, &[1]), locality("b", 1, &[2])];
    let leaf = leaf(ring_hash(), vec![localities]);
    let mut it = Fixture::new(configs(&[("shop", leaf)], &[("shop", &["shop"])]));
    let first = it.connect_for(0);
    other_than(&mut it, &[first]);
    it.connect_all();
    let of_a = (0..4_000_u64).filter(|number| it.reaches(number * (u64::MAX / 4_000)) == 1).count();
    assert!((2_800..3_200).contains(&of_a), "{of_a} of 4,000, where the locality weighs 3 of 4");
}

#[test]
fn ch3_49_under_wrr_locality_each_locality_has_a_ring_that_connects_by_itself() {
    let localities = vec![locality("a", 1, &[1, 2]), locality("b", 1, &[3, 4])];
    let leaf = leaf(by_locality(), vec![localities]);
    let mut it = Fixture::new(configs(&[("shop", leaf)], &[("shop", &["shop"])]));
    let attempted = it.attempted();
    assert_eq!(attempted.len(), 2, "one of each");
    assert!(attempted[0] < 3 && attempted[1] > 2);
    it.waits(0);
    it.connect_all();
    // Each pick draws a locality; what is idle in it is connected.
    for _ in 0..40 {
        drop(it.pick_hashed(0));
        it.connect_all();
    }
    let reached: BTreeSet<_> = (0..40).map(|_| it.reaches(0)).collect();
    assert_eq!(reached.len(), 2, "one endpoint of each locality: {reached:?}");
}

#[test]
fn ch3_13_a_policy_of_another_type_is_used_until_it_has_connected_or_failed_after_ring_hash() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3]]));
    let first = it.connect_for(0);
    it.update(shop(ROUND_ROBIN, &[&[4, 5]]));
    assert_eq!(it.reaches(0), first, "the ring before");
    assert_eq!(it.attempted(), [4, 5]);
    it.connect(4);
    assert_eq!((it.reaches(0), it.drained.as_slice()), (4, &[address(first)][..]));
    // An idle ring is one that can be used.
    it.update(shop(ring_hash(), &[&[4, 5, 6]]));
    assert_eq!(it.connectivity(), Connectivity::Ready, "the connection is kept");
    it.fail(5);
    it.update(shop(ring_hash(), &[&[7, 8]]));
    assert_eq!((it.connectivity(), it.attempted()), (Connectivity::Idle, vec![]));
}

#[test]
fn ch3_40_round_robin_after_ring_hash_connects_all_endpoints() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3]]));
    let first = it.connect_for(0);
    it.update(shop(ROUND_ROBIN, &[&[1, 2, 3]]));
    assert_eq!(it.attempted().len(), 2);
    it.connect_all();
    it.lose(first);
    assert_eq!(it.attempted(), [first]);
}

#[test]
fn ch3_33_a_request_for_an_endpoint_that_is_gone_connects_nothing() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2]]));
    let mut attributes = CallAttributes::new(RequestHash::of(0));
    let (random, request) = (&mut it.random, &RouteQuery::new("/", 0));
    let pick = it.pickers["shop"].pick(&mut PickArgs { attributes: &mut attributes, random, request });
    assert!(matches!(pick, Pick::Queue));
    let request = attributes.take_connect_request().expect("an idle endpoint");
    it.update(shop(ring_hash(), &[&[3, 4]]));
    it.balancer.connect_endpoint(&request, it.now);
    it.drain();
    assert!(it.attempted().is_empty());
    assert!(attributes.take_connect_request().is_none(), "it is requested once");
}

#[test]
fn ch2_18_the_next_attempt_of_a_call_has_the_same_hash() {
    let mut it = Fixture::new(shop(ring_hash(), &[&[1, 2, 3, 4, 5, 6]]));
    let request = &RouteQuery::new("/", 0);
    for _ in 0..10 {
        let mut attributes = CallAttributes::default();
        let mut ports = BTreeSet::new();
        for _ in 0..2 {
            loop {
                it.drain();
                let random = &mut it.random;
                let pick =
                    it.pickers["shop"].pick(&mut PickArgs { attributes: &mut attributes, random, request });
                if let Pick::Complete(attempt) = pick {
                    ports.insert(attempt.endpoint.address.port());
                    break;
                }
                let request = attributes.take_connect_request().expect("its endpoint is idle");
                it.balancer.connect_endpoint(&request, it.now);
                it.drain();
                it.connect_all();
            }
            attributes = attributes.for_next_attempt();
        }
        assert_eq!(ports.len(), 1, "{ports:?}");
    }
}
