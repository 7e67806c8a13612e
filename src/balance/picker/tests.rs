use std::collections::BTreeMap;

use super::{attempt::End, *};
use crate::{
    balance::{
        command::ConnectionId,
        identity::Identity,
        load::Loads,
        policies::{least_request::LeastRequest, round_robin::Position},
        stream_queue::Connections,
    },
    resolve::RouteQuery,
};

std::thread_local! {
    /// The circuit breaker of the cluster of a test, which has a thread of its own.
    static BREAKER: Arc<Breaker> = Arc::default();
}

impl<H> ReadyEndpoint<H> {
    /// The successes and failures that outlier detection has counted, if its cluster has it.
    pub(crate) fn outcomes(&self) -> Option<(u64, u64)> {
        self.outcomes.as_ref().map(|it| it.current())
    }
}

impl<H> ClusterPicker<H> {
    /// The endpoints with a connection, in the priority in use.
    pub(crate) fn ready_endpoints(&self) -> usize {
        match &self.choice {
            Choice::Leaf(leaf) => match &leaf.endpoints {
                Endpoints::Ready(localities) => localities.iter().map(|(_, it)| it.ready.len()).sum(),
                Endpoints::Queue | Endpoints::Idle(_) | Endpoints::Fail(_) => 0,
            },
            Choice::Gone(_) | Choice::Unusable(_) | Choice::Unknown(_) => 0,
        }
    }
}

fn endpoint(port: u16) -> Arc<ReadyEndpoint<u16>> {
    let address = ([127, 0, 0, 1], port).into();
    let (load, breaker) = (Loads::default().add(), BREAKER.with(Arc::clone));
    Arc::new(ReadyEndpoint {
        connection: ConnectionId::default(),
        connections: Connections::of_one(port),
        address,
        identity: Identity::default(),
        hostname: None,
        locality: None,
        load,
        breaker,
        outcomes: None,
        weight: None,
    })
}

fn round_robin() -> AnyPicker<u16> {
    AnyPicker::RoundRobin(Position::default())
}

fn least_request(choice_count: u8) -> AnyPicker<u16> {
    AnyPicker::LeastRequest(LeastRequest { choice_count })
}

fn locality_of(policy: AnyPicker<u16>, ports: &[u16]) -> EndpointPicker<u16> {
    let ready = ports.iter().map(|port| endpoint(*port)).collect();
    EndpointPicker { policy, ready, list: ListId::default() }
}

fn leaf(endpoints: Endpoints<u16>) -> LeafPicker<u16> {
    LeafPicker {
        name: "shop".into(),
        drops: [].into(),
        breaker: BREAKER.with(Arc::clone),
        limit: 1_024,
        connectivity: Connectivity::Ready,
        priority: Some(0),
        endpoints,
        hosts: None,
        load: None,
        service: None,
    }
}

fn one_locality(rule: AnyPicker<u16>, ports: &[u16]) -> LeafPicker<u16> {
    leaf(Endpoints::Ready([(1, locality_of(rule, ports))].into()))
}

fn pick(leaf: &LeafPicker<u16>, attributes: &mut CallAttributes, random: &mut fastrand::Rng) -> Pick<u16> {
    leaf.pick(&mut PickArgs { attributes, random, request: &RouteQuery::new("/", 0) })
}

fn picked(leaf: &LeafPicker<u16>, random: &mut fastrand::Rng) -> Attempt<u16> {
    let pick = pick(leaf, &mut CallAttributes::default(), random);
    let Pick::Complete(attempt) = pick else { panic!("{pick:?}") };
    attempt
}

fn counts(leaf: &LeafPicker<u16>, picks: usize) -> BTreeMap<u16, usize> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut counts = BTreeMap::new();
    for _ in 0..picks {
        *counts.entry(picked(leaf, &mut random).endpoint.handle()).or_default() += 1;
    }
    counts
}

#[test]
fn ch3_27_round_robin_gives_25_of_100_picks_to_each_of_4_endpoints() {
    let leaf = one_locality(round_robin(), &[1, 2, 3, 4]);
    for _ in 0..3 {
        assert_eq!(counts(&leaf, 100).into_values().collect::<Vec<_>>(), [25; 4]);
    }
}

#[test]
fn ch3_39_least_request_prefers_endpoints_with_fewer_attempts_under_way() {
    let leaf = one_locality(least_request(10), &[1, 2]);
    let mut random = fastrand::Rng::with_seed(1);
    let mut running = Vec::new();
    for _ in 0..1_000 {
        running.push(picked(&leaf, &mut random));
    }
    let first = running.iter().filter(|attempt| attempt.endpoint.handle() == 1).count();
    assert!((480..=520).contains(&first), "{first} of 1,000");
    let loads: Vec<_> = [1, 2]
        .map(|port| running.iter().find(|it| it.endpoint.handle() == port).unwrap())
        .map(|it| it.endpoint.load.clone())
        .into();
    running.clear();
    assert_eq!([loads[0].running(), loads[1].running(), leaf.breaker.running()], [0; 3], "each ends once");
}

#[test]
fn ch3_39_of_equal_endpoints_the_first_drawn_wins() {
    let leaf = one_locality(least_request(2), &[1, 2, 3]);
    for count in counts(&leaf, 30_000).into_values() {
        assert!(count.abs_diff(10_000) < 400, "{count} of 10,000");
    }
}

#[test]
fn ch3_49_localities_are_picked_by_weight() {
    let localities = [(80, locality_of(round_robin(), &[1])), (100, locality_of(round_robin(), &[2]))];
    let counts = counts(&leaf(Endpoints::Ready(localities.into())), 100_000);
    assert!(counts[&1].abs_diff(80_000) < 600 && counts[&2].abs_diff(20_000) < 600, "{counts:?}");
}

#[test]
fn ch4_1_drops_are_drawn_for_each_category_before_anything_else() {
    let share = |category: &str, per_million| DropShare { category: category.into(), per_million };
    let mut leaf = leaf(Endpoints::Fail("no connection".into()));
    leaf.drops = [share("a", 500_000), share("b", 500_000)].into();
    leaf.limit = 0;
    let mut random = fastrand::Rng::with_seed(1);
    let mut counts = BTreeMap::<String, usize>::new();
    for _ in 0..100_000 {
        let Pick::Drop(_, reason) = pick(&leaf, &mut CallAttributes::default(), &mut random) else {
            panic!()
        };
        *counts.entry(reason.to_string()).or_default() += 1;
    }
    let expected = [
        ("cluster shop: 0 requests are running, the maximum of its circuit breaker", 25_000),
        ("cluster shop: dropped by the overload category a", 50_000),
        ("cluster shop: dropped by the overload category b", 25_000),
    ];
    for ((reason, count), (expected, share)) in counts.iter().zip(expected) {
        assert_eq!(reason, expected);
        assert!(count.abs_diff(share) < 600, "{reason}: {count}");
    }
}

#[test]
fn ch4_2_ch13_10_drops_are_drawn_once_for_an_attempt() {
    let mut leaf = leaf(Endpoints::Queue);
    leaf.drops = [DropShare { category: "half".into(), per_million: 500_000 }].into();
    let mut random = fastrand::Rng::with_seed(1);
    let mut dropped = 0;
    for _ in 0..10_000 {
        let mut attributes = CallAttributes::default();
        dropped +=
            usize::from((0..10).any(|_| matches!(pick(&leaf, &mut attributes, &mut random), Pick::Drop(..))));
    }
    assert!(dropped.abs_diff(5_000) < 300, "{dropped} of 10,000");
}

#[test]
fn ch4_4_at_the_limit_requests_are_dropped_whatever_the_state_of_the_endpoints() {
    let mut leaf = one_locality(round_robin(), &[1]);
    leaf.limit = 2;
    let mut random = fastrand::Rng::with_seed(1);
    let running = [picked(&leaf, &mut random), picked(&leaf, &mut random)];
    assert!(matches!(pick(&leaf, &mut CallAttributes::default(), &mut random), Pick::Drop(..)));
    drop(running);
    picked(&leaf, &mut random);
    leaf.endpoints = Endpoints::Queue;
    leaf.limit = 0;
    assert!(
        matches!(pick(&leaf, &mut CallAttributes::default(), &mut random), Pick::Drop(..)),
        "the limit is first"
    );
}

#[test]
fn ch3_22_an_idle_cluster_is_connected_by_the_first_pick() {
    let leaf = leaf(Endpoints::Idle(AtomicBool::default()));
    let mut random = fastrand::Rng::with_seed(1);
    assert!(matches!(pick(&leaf, &mut CallAttributes::default(), &mut random), Pick::QueueAndConnect));
    assert!(matches!(pick(&leaf, &mut CallAttributes::default(), &mut random), Pick::Queue));
}

#[test]
fn ch1_13_a_cluster_that_is_gone_drops_and_one_that_is_unusable_fails() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut pick = |choice: Choice<u16>| {
        let picker = ClusterPicker { connectivity: Connectivity::TransientFailure, choice, aggregate: None };
        let (attributes, random) = (&mut CallAttributes::default(), &mut random);
        picker.pick(&mut PickArgs { attributes, random, request: &RouteQuery::new("/", 0) })
    };
    assert!(matches!(pick(Choice::Gone("gone".into())), Pick::Drop(_, reason) if &*reason == "gone"));
    assert!(matches!(pick(Choice::Unusable("bad".into())), Pick::Fail(reason) if &*reason == "bad"));
}

#[test]
fn ch2_23_the_policy_counts_the_end_of_an_attempt_before_the_circuit_breaker_does() {
    let rule = least_request(2);
    let leaf = LeafPicker { limit: 1, ..one_locality(rule, &[1]) };
    let load = picked(&leaf, &mut fastrand::Rng::new()).endpoint.load.clone();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Who takes the only place of the breaker finds that the attempt before is counted no more.
            while !is_over.load(Ordering::Relaxed) {
                if leaf.breaker.try_acquire(1) {
                    let running = load.running();
                    leaf.breaker.release();
                    assert_eq!(running, 0);
                }
            }
        });
        let mut random = fastrand::Rng::with_seed(1);
        let mut completed = 0;
        while completed < 100_000 {
            completed += u32::from(matches!(
                pick(&leaf, &mut CallAttributes::default(), &mut random),
                Pick::Complete(_)
            ));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!((load.running(), leaf.breaker.running()), (0, 0), "each was released once");
}

#[test]
fn ch3_65_an_attempt_counts_when_it_had_a_stream_and_succeeds_with_ok_alone() {
    let mut it = Arc::into_inner(endpoint(1)).expect("it is the only one");
    it.outcomes = Some(Arc::default());
    let it = Arc::new(it);
    let ready = [it.clone()].into_iter().collect();
    let picker = EndpointPicker { policy: round_robin(), ready, list: ListId::default() };
    let leaf = leaf(Endpoints::Ready([(1, picker)].into()));
    let mut random = fastrand::Rng::with_seed(1);
    drop(picked(&leaf, &mut random));
    assert_eq!(it.outcomes(), Some((0, 0)), "it never had a stream (CH2.22)");
    let (mut failure, mut success) = (picked(&leaf, &mut random), picked(&leaf, &mut random));
    failure.on_stream();
    success.on_stream();
    success.on_ok();
    assert_eq!(it.outcomes(), Some((0, 0)), "they have not ended");
    drop(failure);
    assert_eq!(it.outcomes(), Some((0, 1)));
    drop(success);
    assert_eq!(it.outcomes(), Some((1, 1)));
}

/// An endpoint for which outlier detection counts, under least_request.
fn tracked() -> (Arc<ReadyEndpoint<u16>>, LeafPicker<u16>) {
    let mut it = Arc::into_inner(endpoint(1)).expect("it is the only one");
    it.outcomes = Some(Arc::default());
    let (it, policy) = (Arc::new(it), least_request(2));
    let ready = [it.clone()].into_iter().collect();
    let picker = EndpointPicker { policy, ready, list: ListId::default() };
    (it, leaf(Endpoints::Ready([(1, picker)].into())))
}

#[test]
fn ch2_23_the_end_of_an_attempt_is_counted_by_policy_circuit_breaker_and_outlier_detection() {
    let (it, leaf) = tracked();
    let mut attempt = picked(&leaf, &mut fastrand::Rng::new());
    assert!(matches!(attempt.ends(), [Some(End::Policy(_)), Some(End::Breaker(_)), None]), "no stream");
    attempt.on_stream();
    let all = |attempt: &Attempt<u16>, succeeds: bool| {
        let [policy, breaker, outliers] = attempt.ends();
        matches!(
            (policy, breaker, outliers),
            (Some(End::Policy(_)), Some(End::Breaker(_)), Some(End::Outliers(_, is_ok))) if is_ok == succeeds
        )
    };
    assert!(all(&attempt, false));
    attempt.on_ok();
    assert!(all(&attempt, true));
    assert_eq!((it.load.running(), leaf.breaker.running(), it.outcomes()), (1, 1, Some((0, 0))));
    drop(attempt);
    assert_eq!((it.load.running(), leaf.breaker.running(), it.outcomes()), (0, 0, Some((1, 0))));
}

#[test]
fn ch4_3_drops_by_a_share_or_the_circuit_breaker_are_no_attempts() {
    let (it, all) = tracked();
    let random = &mut fastrand::Rng::with_seed(1);
    let drops = [DropShare { category: "all".into(), per_million: 1_000_000 }].into();
    let dropping = LeafPicker { drops, ..all };
    let (none, full) = tracked();
    let full = LeafPicker { limit: 0, ..full };
    for leaf in [&dropping, &full] {
        let dropped = pick(leaf, &mut CallAttributes::default(), random);
        assert!(matches!(dropped, Pick::Drop(..)), "{dropped:?}");
    }
    // The place was taken between the test and the pick, too.
    let (other, leaf) = tracked();
    let _running = picked(&leaf, random);
    let late = LeafPicker { limit: 1, ..leaf };
    let dropped = late.complete(&other, Tracking { counts_request: true, ..Tracking::default() });
    assert!(matches!(dropped, Pick::Drop(..)), "{dropped:?}");
    for it in [it, none] {
        assert_eq!((it.outcomes(), it.load.running()), (Some((0, 0)), 0));
    }
    assert_eq!((other.outcomes(), other.load.running()), (Some((0, 0)), 1), "that of the one that runs");
}

#[test]
fn ch1_19_ch13_11_a_cluster_that_the_configuration_lacks_fails_all_calls() {
    let unknown = ClusterPicker::<u16> {
        connectivity: Connectivity::TransientFailure,
        choice: Choice::Unknown("no such cluster".into()),
        aggregate: None,
    };
    let (attributes, random) = (&mut CallAttributes::default(), &mut fastrand::Rng::new());
    let pick = unknown.pick(&mut PickArgs { attributes, random, request: &RouteQuery::new("/", 0) });
    assert!(matches!(pick, Pick::Unknown(reason) if &*reason == "no such cluster"));
}
