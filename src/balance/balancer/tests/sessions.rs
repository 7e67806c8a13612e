//! Calls whose cookies name an endpoint (A55, A75).

use super::*;
use crate::balance::session_endpoints::HostOverride;

/// The hosts of a cluster of which cookies may lead to endpoints that drain.
fn hosts(draining: &[u16], idle_seconds: u64) -> HostsConfig {
    HostsConfig {
        draining: locality("a", 1, draining).endpoints,
        allows_draining: true,
        idle_timeout: Duration::from_secs(idle_seconds),
        ..HostsConfig::default()
    }
}

/// One cluster, with one locality for each priority.
fn with_hosts(policy: ClusterPolicy, priorities: &[&[u16]], hosts: HostsConfig) -> ClusterConfigs {
    let priorities = priorities.iter().map(|ports| vec![locality("a", 1, ports)]).collect();
    let config = LeafConfig { hosts, ..(*leaf(policy, priorities)).clone() };
    configs(&[("shop", Arc::new(config))], &[("shop", &["shop"])])
}

/// A round robin with endpoints that drain, an hour before connections without an owner end.
fn draining(ports: &[u16], draining: &[u16]) -> ClusterConfigs {
    with_hosts(ROUND_ROBIN, &[ports], hosts(draining, 3_600))
}

impl Fixture {
    fn with_sessions(configs: ClusterConfigs) -> Self {
        let mut fixture = Self::new(ClusterConfigs::default());
        fixture.balancer.set_sessions(true, fixture.now);
        fixture.update(configs);
        fixture
    }

    /// A pick of a call whose cookie has these ports, with the addresses of the endpoint that it found. What the pick requests is
    /// connected.
    pub(super) fn pick_session(&mut self, ports: &[u16]) -> (Pick<SocketAddr>, Option<String>) {
        self.drain();
        let mut session = Box::new(HostOverride::new(ports.iter().map(|port| address(*port)).collect()));
        session.begin_pick(self.now);
        let mut attributes = CallAttributes::default();
        attributes.session = Some(session);
        let request = RouteQuery::new("/", 0);
        let args = &mut PickArgs { attributes: &mut attributes, random: &mut self.random, request: &request };
        let pick = self.pickers["shop"].pick(args);
        if let Some(request) = attributes.take_connect_request() {
            self.balancer.connect_endpoint(&request, self.now);
            self.drain();
        }
        (pick, attributes.session.and_then(|it| it.picked().map(ToString::to_string)))
    }

    /// The port of a call that is sent at once.
    fn sent(&mut self, ports: &[u16]) -> u16 {
        match self.pick_session(ports) {
            (Pick::Complete(attempt), Some(list)) => {
                let address = attempt.endpoint.address;
                assert!(list.split(',').any(|it| it == address.to_string()), "{list}");
                address.port()
            }
            other => panic!("{ports:?}: {other:?}"),
        }
    }

    fn is_queued(&mut self, ports: &[u16]) -> bool {
        matches!(self.pick_session(ports), (Pick::Queue, None))
    }

    fn connected(&self) -> Vec<u16> {
        self.connections.keys().map(SocketAddr::port).collect()
    }
}

#[test]
fn ch8_11_calls_stay_on_the_endpoint_of_their_cookie() {
    let mut it = Fixture::with_sessions(draining(&[1, 2, 3], &[]));
    assert!(it.is_queued(&[2]));
    it.connect_all();
    for _ in 0..10 {
        assert_eq!((it.sent(&[2]), it.sent(&[3, 1])), (2, 3));
    }
    let spread: BTreeSet<_> = (0..30).map(|_| it.sent(&[])).collect();
    assert_eq!(spread.len(), 3, "without a cookie the policy picks");
    let spread: BTreeSet<_> = (0..30).map(|_| it.sent(&[7])).collect();
    assert_eq!(spread.len(), 3, "of an unknown address, too");
    assert_eq!(it.ports().len(), 3, "and for calls without a session");
}

#[test]
fn ch3_62_ch8_10_a_cookie_leads_to_an_endpoint_outside_of_the_subset() {
    let subset = |used: &[u16], listed: &[u16]| {
        let of = |ports| vec![vec![locality("a", 1, ports)]];
        let leaf = (*leaf(ROUND_ROBIN, of(used))).clone();
        let config = LeafConfig { listed: Some(of(listed)), hosts: hosts(&[], 3_600), ..leaf };
        configs(&[("shop", Arc::new(config))], &[("shop", &["shop"])])
    };
    let mut it = Fixture::with_sessions(subset(&[1], &[1, 2]));
    it.connect_all();
    assert_eq!(it.connected(), [1]);
    assert!(it.is_queued(&[2]), "it is connected for the cookie");
    it.connect_all();
    assert_eq!((it.sent(&[2]), it.sent(&[])), (2, 1));
    it.update(subset(&[1], &[1, 2, 3]));
    assert!(it.is_queued(&[3]), "one that came outside of the subset");
    it.update(subset(&[1], &[1]));
    assert_eq!(it.sent(&[2]), 1, "it is gone");
}

#[test]
fn ch8_11_a_call_waits_for_its_endpoint_to_connect_and_not_for_one_that_fails() {
    let mut it = Fixture::with_sessions(draining(&[1, 2], &[]));
    it.connect(1);
    assert!(it.is_queued(&[2]), "it connects");
    assert_eq!(it.sent(&[2, 1]), 1, "another address of the cookie is there");
    it.fail(2);
    assert_eq!(it.sent(&[2]), 1, "it is in backoff");
    it.wait(2);
    assert!(it.is_queued(&[2]), "it connects again");
    it.connect(2);
    assert_eq!(it.sent(&[2]), 2);
}

#[test]
fn ch8_11_an_idle_endpoint_of_a_ring_is_connected() {
    let ring = crate::balance::policies::ring_hash::RingHash {
        sizes: crate::balance::policies::ring_hash::ring::RingSizes { min: 64, max: 64 },
        cluster_entries: u32::MAX,
        request_hash_header: None,
    };
    let policy = ClusterPolicy { policy: Policy::RingHash(ring), by_locality: false };
    let mut it = Fixture::with_sessions(with_hosts(policy, &[&[1, 2, 3]], hosts(&[], 60)));
    assert!(it.attempted().is_empty());
    assert!(it.is_queued(&[3, 2]));
    assert_eq!(it.attempted(), [3]);
    assert!(it.is_queued(&[3]));
    it.connect(3);
    assert_eq!(it.sent(&[2, 3]), 3);
    it.wait(100);
    assert_eq!(it.connected(), [3], "it is the endpoint's, which no sweep ends");
}

#[test]
fn ch8_11_an_address_of_pick_first_that_is_not_connected_gets_a_subchannel() {
    let mut it = Fixture::with_sessions(with_hosts(PICK_FIRST, &[&[1, 2, 3]], hosts(&[], 60)));
    it.balancer.connect("shop", it.now);
    it.drain();
    it.connect_all();
    assert_eq!(it.sent(&[]), 1);
    assert!(it.is_queued(&[2]));
    it.connect(2);
    assert_eq!((it.sent(&[2]), it.sent(&[]), it.connected()), (2, 1, vec![1, 2]));
    it.lose(2);
    assert!(it.is_queued(&[2]), "an idle one is connected again");
    it.fail(2);
    assert_eq!(it.sent(&[2]), 1, "it is in backoff");
    it.wait(2);
    assert!(it.attempted().is_empty(), "only a call connects it again");
    assert!(it.is_queued(&[2]));
    it.connect(2);
    assert_eq!(it.sent(&[2]), 2);
}

#[test]
fn ch8_11_an_ejected_endpoint_counts_as_failing() {
    let configs = draining(&[1, 2, 3, 4, 5], &[]);
    let shop = outliers::detected(&configs.leaves["shop"]);
    let mut it = Fixture::with_sessions(super::configs(&[("shop", shop)], &[("shop", &["shop"])]));
    it.connect_all();
    assert_eq!(it.sent(&[1]), 1);
    for call in 0..100 {
        let (Pick::Complete(mut attempt), _) = it.pick_session(&[1 + call % 5]) else {
            panic!("all are ready")
        };
        attempt.on_stream();
        if attempt.endpoint.address.port() != 1 {
            attempt.on_ok();
        }
    }
    it.wait(11);
    let spread: BTreeSet<_> = (0..40).map(|_| it.sent(&[1])).collect();
    assert_eq!(spread, [2, 3, 4, 5].into());
}

#[test]
fn ch8_11_an_endpoint_that_cookies_alone_lead_to_is_ejected_like_others() {
    let configs = with_hosts(ROUND_ROBIN, &[&[1], &[2]], hosts(&[], 3_600));
    let shop = outliers::detected(&configs.leaves["shop"]);
    let mut it = Fixture::with_sessions(super::configs(&[("shop", shop)], &[("shop", &["shop"])]));
    it.connect(1);
    assert!(it.is_queued(&[2]));
    it.connect(2);
    for port in [1, 2].repeat(20) {
        let (Pick::Complete(mut attempt), _) = it.pick_session(&[port]) else { panic!("both are ready") };
        attempt.on_stream();
        if port == 1 {
            attempt.on_ok();
        }
    }
    it.wait(11);
    assert_eq!((it.sent(&[2]), it.connected()), (1, vec![1, 2]));
    it.wait(40);
    assert_eq!(it.sent(&[2]), 2, "the ejection is over");
}

#[test]
fn ch8_10_ch8_12_the_map_has_all_priorities_and_ignores_their_order() {
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1], &[2]], hosts(&[], 60)));
    it.connect(1);
    assert!(it.attempted().is_empty(), "the second priority is not in use");
    assert!(it.is_queued(&[2]));
    it.connect(2);
    assert_eq!((it.sent(&[2]), it.sent(&[]), it.sent(&[2, 1])), (2, 1, 2));
    // When the second priority is needed, it has the connection.
    it.lose(1);
    it.fail(1);
    it.wait(11);
    assert_eq!((it.sent(&[]), it.connected()), (2, vec![2]));
    assert!(it.drained.is_empty());
}

#[test]
fn ch8_10_cookies_lead_to_endpoints_of_the_permitted_health_alone() {
    let mut hosts = hosts(&[3], 60);
    hosts.allows_draining = false;
    hosts.forbidden.insert(address(1));
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1, 2]], hosts));
    it.connect_all();
    for ports in [&[1][..], &[3], &[3, 1]] {
        let spread: BTreeSet<_> = (0..20).map(|_| it.sent(ports)).collect();
        assert_eq!(spread, [1, 2].into(), "{ports:?}");
    }
    assert_eq!(it.sent(&[3, 1, 2]), 2);
}

#[test]
fn ch8_12_drops_and_the_circuit_breaker_come_before() {
    let mut it = Fixture::with_sessions(draining(&[1, 2], &[]));
    it.connect_all();
    let configs = draining(&[1, 2], &[]);
    let config = |per_million, max_requests| {
        let drops = [crate::balance::policy::Drop { category: "all".into(), per_million }].into();
        let leaf = LeafConfig { drops, max_requests, ..(*configs.leaves["shop"]).clone() };
        super::configs(&[("shop", Arc::new(leaf))], &[("shop", &["shop"])])
    };
    it.update(config(1_000_000, 10));
    assert!(matches!(it.pick_session(&[2]), (Pick::Drop(..), None)));
    it.update(config(0, 1));
    let (running, _) = it.pick_session(&[2]);
    assert!(matches!(running, Pick::Complete(_)));
    assert!(matches!(it.pick_session(&[2]), (Pick::Drop(..), None)));
    drop(running);
    assert_eq!(it.sent(&[2]), 2);
}

#[test]
fn ch8_13_the_addresses_of_an_endpoint_are_those_of_the_configuration_in_their_order() {
    let mut endpoint = locality("a", 1, &[2]).endpoints.remove(0);
    endpoint.addresses = vec![address(9), "[::1]:2".parse().unwrap(), address(1)];
    let priorities = vec![vec![LocalityConfig::new(Locality::new("a", "", ""), 1, vec![endpoint])]];
    let shop = configs(&[("shop", leaf(ROUND_ROBIN, priorities))], &[("shop", &["shop"])]);
    let mut it = Fixture::with_sessions(shop);
    it.connect(9);
    for cookie in [&[][..], &[9], &[7]] {
        let (pick, list) = it.pick_session(cookie);
        assert!(matches!(pick, Pick::Complete(_)), "{cookie:?}");
        assert_eq!(list.as_deref(), Some("127.0.0.1:9,[::1]:2,127.0.0.1:1"), "{cookie:?}");
    }
}

#[test]
fn ch8_14_an_endpoint_that_begins_to_drain_keeps_its_connection_for_cookies_alone() {
    let mut it = Fixture::with_sessions(draining(&[1, 2], &[]));
    it.connect_all();
    it.update(draining(&[1], &[2]));
    assert!(it.drained.is_empty());
    assert_eq!(it.sent(&[2]), 2);
    assert_eq!(it.ports(), BTreeMap::from([(1, 40)]), "no policy has it");
    it.wait(10_000);
    assert_eq!((it.connected(), it.sent(&[2])), (vec![1, 2], 2), "no sweep ends it");
    // It is the policy's again when it is healthy again.
    it.update(draining(&[1, 2], &[]));
    assert_eq!((it.ports().len(), it.connected(), it.attempted()), (2, vec![1, 2], vec![]));
    it.update(draining(&[1], &[2]));
    it.update(draining(&[1], &[]));
    assert_eq!(it.drained, [address(2)], "it is dropped");
    assert_eq!(it.sent(&[2]), 1);
}

#[test]
fn ch8_14_a_draining_endpoint_is_connected_when_a_cookie_needs_it() {
    let mut it = Fixture::with_sessions(draining(&[1], &[2]));
    assert_eq!(it.attempted(), [1]);
    it.connect_all();
    assert!(it.is_queued(&[2]));
    it.connect(2);
    assert_eq!((it.sent(&[2]), it.ports()), (2, BTreeMap::from([(1, 40)])));
    // Without a usable endpoint, those without a cookie fail at once.
    it.update(draining(&[], &[2]));
    assert_eq!(it.sent(&[2]), 2);
    assert!(matches!(it.pick("shop"), Pick::Fail(_)));
}

#[test]
fn ch8_14_draining_endpoints_that_cookies_may_not_lead_to_are_removed() {
    let mut it = Fixture::with_sessions(draining(&[1, 2, 3], &[]));
    it.connect_all();
    assert_eq!((it.sent(&[2]), it.sent(&[3])), (2, 3));
    it.update(draining(&[1, 2], &[3]));
    let not_allowed = HostsConfig { allows_draining: false, ..hosts(&[2, 3], 3_600) };
    it.update(with_hosts(ROUND_ROBIN, &[&[1]], not_allowed));
    assert_eq!(it.drained.iter().copied().collect::<BTreeSet<_>>(), [address(2), address(3)].into());
    assert_eq!((it.sent(&[2]), it.sent(&[3])), (1, 1));
}

#[test]
fn ch8_15_a_connection_that_no_call_uses_ends_after_the_idle_timeout() {
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1], &[2, 3]], hosts(&[], 60)));
    it.connect(1);
    assert!(it.is_queued(&[2]) && it.is_queued(&[3]));
    it.connect_all();
    it.wait(30);
    assert_eq!(it.sent(&[3]), 3);
    it.wait(29);
    assert_eq!(it.connected(), [1, 2, 3]);
    it.wait(1);
    assert_eq!(it.connected(), [1, 3]);
    it.wait(29);
    assert_eq!(it.connected(), [1, 3]);
    it.wait(1);
    assert_eq!((it.connected(), it.balancer.poll_timeout()), (vec![1], None));
    assert!(it.is_queued(&[2]), "another one is made when a call needs it");
}

#[test]
fn ch8_14_ch8_15_a_sweep_leaves_the_connection_of_an_endpoint_alone_that_began_to_drain() {
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1, 2], &[3]], hosts(&[], 60)));
    it.connect_all();
    it.update(with_hosts(ROUND_ROBIN, &[&[1], &[3]], hosts(&[2], 60)));
    assert!(it.is_queued(&[3]));
    it.connect(3);
    it.wait(61);
    assert_eq!(it.connected(), [1, 2]);
    // Another connection, which a call has made, is one like others.
    it.lose(2);
    assert!(it.is_queued(&[2]));
    it.connect(2);
    it.wait(61);
    assert_eq!(it.connected(), [1]);
}

#[test]
fn ch8_15_an_endpoint_that_drains_no_more_keeps_its_connection_as_others_do() {
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1, 2], &[]], hosts(&[], 60)));
    it.connect_all();
    it.update(with_hosts(ROUND_ROBIN, &[&[1], &[]], hosts(&[2], 60)));
    it.wait(100);
    assert_eq!(it.connected(), [1, 2]);
    assert_eq!(it.sent(&[2]), 2);
    it.update(with_hosts(ROUND_ROBIN, &[&[1], &[2]], hosts(&[], 60)));
    it.wait(59);
    assert_eq!(it.connected(), [1, 2]);
    it.wait(1);
    assert_eq!(it.connected(), [1], "its priority is not in use");
}

#[test]
fn ch8_15_sweeps_are_5_s_from_each_other() {
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1], &[2, 3, 4]], hosts(&[], 60)));
    it.connect(1);
    for port in [2, 3, 4] {
        assert!(it.is_queued(&[port]));
        it.connect(port);
        it.wait(if port == 3 { 7 } else { 2 });
    }
    // Used at 0, 2 and 9 s, and it is 11 s now.
    it.wait(49);
    assert_eq!(it.connected(), [1, 3, 4]);
    it.wait(4);
    assert_eq!(it.connected(), [1, 3, 4], "the sweep waits");
    it.wait(1);
    assert_eq!(it.connected(), [1, 4]);
    it.wait(4);
    assert_eq!(it.connected(), [1, 4], "the sweep waits again");
    it.wait(1);
    assert_eq!(it.connected(), [1]);
}

#[test]
fn ch8_15_the_policy_hands_over_what_calls_have_used_lately() {
    let mut it = Fixture::with_sessions(with_hosts(ROUND_ROBIN, &[&[1, 2, 3], &[]], hosts(&[], 3_600)));
    it.connect_all();
    assert_eq!(it.sent(&[2]), 2);
    // They move to a priority that is not in use. A connection without a session is kept with it as before.
    let moved = with_hosts(PICK_FIRST, &[&[1, 2, 3]], hosts(&[], 3_600));
    it.update(moved);
    assert_eq!(it.connected().len(), 2, "one of pick_first, and one of the session");
    assert_eq!(it.sent(&[2]), 2);
    assert!(!it.drained.contains(&address(2)));
    it.wait(3_700);
    assert_eq!(it.connected().len(), 1);
}

#[test]
fn ch8_15_a_priority_that_ends_hands_over_what_calls_have_used_lately() {
    let configs = with_hosts(ROUND_ROBIN, &[&[1], &[2, 3]], hosts(&[], 3_600));
    let mut it = Fixture::with_sessions(configs);
    it.fail(1);
    it.connect_all();
    it.wait(2);
    assert_eq!((it.sent(&[2]), it.attempted()), (2, vec![1]));
    it.connect(1);
    assert_eq!(it.sent(&[]), 1);
    it.wait(901);
    assert_eq!((it.connected(), it.drained.clone()), (vec![1, 2], vec![address(3)]));
    assert_eq!(it.sent(&[2]), 2);
}

#[test]
fn ch8_16_without_sessions_nothing_is_kept_for_them() {
    let mut it = Fixture::new(draining(&[1, 2], &[]));
    it.connect_all();
    let (pick, list) = it.pick_session(&[2]);
    assert!(matches!(pick, Pick::Complete(_)) && list.is_none());
    it.balancer.set_sessions(true, it.now);
    assert_eq!(it.sent(&[2]), 2);
    it.update(draining(&[1], &[2]));
    assert!(it.drained.is_empty());
    it.balancer.set_sessions(false, it.now);
    let (pick, list) = it.pick_session(&[2]);
    assert!(matches!(pick, Pick::Complete(_)) && list.is_none());
    assert_eq!(it.drained, [address(2)]);
    it.update(draining(&[1, 3], &[]));
    it.connect_all();
    it.update(draining(&[1], &[3]));
    assert_eq!(it.drained, [2, 3].map(address));
}
