//! Connections are replaced when the certificates are that they were made with (CH7.7).

use super::*;
use crate::{
    balance::{
        identity::Rotation,
        policies::ring_hash::{RingHash, ring::RingSizes},
    },
    resource::tls::{ProviderInstance, Roots, UpstreamTls},
};

fn instance(name: &str) -> ProviderInstance {
    ProviderInstance { instance_name: name.into(), certificate_name: "".into() }
}

/// TLS by the roots of one certificate provider, and the client certificate of another one.
fn tls(roots: &str, identity: Option<&str>) -> Security {
    Security::of_cluster(&UpstreamTls {
        identity: identity.map(instance),
        roots: Roots::Provider(instance(roots)),
        san_matchers: [].into(),
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    })
}

/// The same clusters with TLS.
fn secured(mut configs: ClusterConfigs, tls: &Security) -> ClusterConfigs {
    for leaf in configs.leaves.values_mut() {
        let mut next = (**leaf).clone();
        let usable = next.priorities.iter_mut().flatten().flat_map(|locality| &mut locality.endpoints);
        for endpoint in usable.chain(&mut next.hosts.draining) {
            endpoint.identity = Identity::new(None, tls.clone());
        }
        next.security = tls.clone();
        *leaf = Arc::new(next);
    }
    configs
}

fn mutual(configs: ClusterConfigs) -> ClusterConfigs {
    secured(configs, &tls("roots", Some("identity")))
}

fn set(names: &[&str]) -> BTreeSet<Box<str>> {
    names.iter().map(|name| (*name).into()).collect()
}

impl Fixture {
    fn rotate(&mut self, roots: &[&str], identities: &[&str]) {
        let rotation = Rotation { roots: set(roots), identities: set(identities) };
        self.balancer.on_rotation(&rotation, self.now);
        self.drain();
    }

    /// The connection that a call is sent on.
    fn connection(&mut self) -> ConnectionId {
        let pick = self.pick("shop");
        let Pick::Complete(attempt) = pick else { panic!("{pick:?}") };
        attempt.endpoint.connection
    }
}

#[test]
fn ch7_7_a_connection_is_in_use_until_the_one_that_replaces_it_is_ready() {
    let sizes = RingSizes { min: 8, max: 8 };
    let ring = Policy::RingHash(RingHash { sizes, cluster_entries: u32::MAX, request_hash_header: None });
    let ring = ClusterPolicy { policy: ring, by_locality: false };
    for policy in [ROUND_ROBIN, LEAST_REQUEST, PICK_FIRST, ring] {
        let mut it = Fixture::new(mutual(shop(policy, &[&[1]])));
        // A ring connects on demand.
        while !matches!(it.pick("shop"), Pick::Complete(_)) {
            it.balancer.exit_idle(it.now);
            it.drain();
            it.connect_all();
        }
        for rotation in [(&["roots"][..], &[][..]), (&[], &["identity"]), (&["roots"], &["identity"])] {
            let before = it.connection();
            it.rotate(rotation.0, rotation.1);
            assert_eq!(it.attempted(), [1]);
            assert_eq!((it.connection(), it.drained.len()), (before, 0), "it is in use");
            it.connect(1);
            assert_ne!(it.connection(), before);
            assert_eq!((mem::take(&mut it.drained), it.attempted()), (vec![address(1)], vec![]));
        }
    }
}

#[test]
fn ch7_7_a_replacement_that_fails_leaves_the_connection_in_use_and_is_repeated() {
    let mut it = Fixture::new(mutual(shop(ROUND_ROBIN, &[&[1]])));
    it.connect(1);
    let before = it.connection();
    it.rotate(&["roots"], &[]);
    for seconds in [2, 3, 5] {
        it.fail(1);
        assert_eq!((it.connection(), it.drained.len(), it.attempted()), (before, 0, vec![]), "a delay");
        it.wait(seconds);
        assert_eq!((it.connection(), it.attempted()), (before, vec![1]), "the usual backoff");
    }
    it.fail(1);
    it.rotate(&[], &["identity"]);
    assert_eq!((it.connection(), it.attempted()), (before, vec![1]), "other certificates are tried at once");
    it.connect(1);
    assert_ne!(it.connection(), before);
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[address(1)][..], vec![]));
    it.wait(1_000);
    assert!(it.attempted().is_empty(), "it is up to date");
}

#[test]
fn ch7_7_an_endpoint_that_fails_is_tried_at_once_with_other_certificates() {
    let mut it = Fixture::new(mutual(shop(ROUND_ROBIN, &[&[1]])));
    it.fail(1);
    it.wait(2);
    it.fail(1);
    assert!(it.attempted().is_empty(), "a delay");
    it.rotate(&["roots"], &[]);
    assert_eq!(it.attempted(), [1]);
    it.connect(1);
    assert!(it.attempted().is_empty(), "they were used");
}

#[test]
fn ch7_7_connections_that_do_not_use_what_was_rotated_stay() {
    let plain = shop(ROUND_ROBIN, &[&[1]]);
    let fallback = secured(plain.clone(), &Security::Fallback);
    let others = [plain.clone(), fallback, secured(plain.clone(), &tls("identity", Some("roots")))];
    for other in others.into_iter().chain([secured(plain, &tls("other", None))]) {
        let mut it = Fixture::new(other);
        it.connect(1);
        it.rotate(&["roots"], &["identity"]);
        assert_eq!((it.attempted(), it.drained.len()), (vec![], 0));
    }
    // One of two clusters.
    let one = mutual(configs(&[("one", leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[1])]]))], &[]));
    let two = leaf(ROUND_ROBIN, vec![vec![locality("a", 1, &[2])]]);
    let targets: &[(&str, &[&str])] = &[("shop", &["one"]), ("cart", &["two"])];
    let mut it = Fixture::new(configs(&[("one", one.leaves["one"].clone()), ("two", two)], targets));
    it.connect_all();
    it.rotate(&["roots"], &[]);
    assert_eq!(it.attempted(), [1]);
    it.connect_all();
    assert_eq!(it.drained, [address(1)]);
}

#[test]
fn ch7_7_an_attempt_during_a_rotation_is_followed_by_another_one() {
    let mut it = Fixture::new(mutual(shop(ROUND_ROBIN, &[&[1]])));
    it.rotate(&["roots"], &[]);
    it.connect(1);
    assert_eq!(it.attempted(), [1], "it may have used the roots before");
    it.rotate(&["roots"], &[]);
    it.rotate(&["roots"], &[]);
    it.connect(1);
    assert_eq!((it.drained.as_slice(), it.attempted()), (&[address(1)][..], vec![1]));
    it.connect(1);
    assert_eq!((it.drained.len(), it.attempted()), (2, vec![]), "there is one again");
}

#[test]
fn ch7_7_an_endpoint_that_moves_during_a_rotation_is_connected_again_all_the_same() {
    let all = |priorities| mutual(shop(ROUND_ROBIN, priorities));
    let mut it = Fixture::new(all(&[&[1, 2]]));
    it.connect_all();
    it.rotate(&["roots"], &[]);
    assert_eq!(it.attempted().len(), 1, "a quarter of the limit, which is one at least");
    it.update(all(&[&[2], &[1]]));
    it.update(mutual(shop(LEAST_REQUEST, &[&[2, 1]])));
    assert_eq!((it.drained.len(), it.ports().len()), (0, 2));
    it.connect_all();
    it.drained.sort_unstable();
    assert_eq!((it.drained.clone(), it.ports().len()), (vec![address(1), address(2)], 2));
    it.rotate(&["roots"], &[]);
    it.update(all(&[]));
    assert_eq!((it.drained.len(), it.attempted()), (4, vec![]), "removed endpoints need no replacement");
}

#[test]
fn ch7_7_replacements_wait_for_the_attempts_that_calls_wait_for() {
    let ports: Vec<u16> = (1..=20).collect();
    let next: Vec<u16> = (1..=24).collect();
    let limit = |settings: &mut BalancerSettings| settings.max_concurrent_connects = 8;
    let mut it = Fixture::with(mutual(shop(ROUND_ROBIN, &[&ports])), limit);
    it.connect_all();
    it.rotate(&["roots"], &[]);
    assert_eq!(it.attempted().len(), 2, "a quarter of the limit");
    assert_eq!(it.ports().len(), 20);
    it.update(mutual(shop(ROUND_ROBIN, &[&next])));
    assert_eq!(it.attempted().iter().filter(|port| **port > 20).count(), 4, "new endpoints go first");
    let replacing: Vec<_> = it.attempted().into_iter().filter(|port| *port <= 20).collect();
    assert_eq!(replacing.len(), 2);
    // A second rotation finds the other attempts before their beginning: they use its certificates.
    it.rotate(&["roots"], &[]);
    it.connect_all();
    assert_eq!((it.drained.len(), it.ports().len()), (20 + 2 + 4, 24), "each that had begun once more");
    assert!(replacing.iter().all(|port| it.drained.iter().filter(|it| it.port() == *port).count() == 2));
}

#[test]
fn ch7_7_a_replacement_has_its_turn_when_the_connection_is_lost() {
    let ports: Vec<u16> = (1..=8).collect();
    let mut it = Fixture::new(mutual(shop(ROUND_ROBIN, &[&ports])));
    it.connect_all();
    it.rotate(&["roots"], &[]);
    let [running] = it.attempted()[..] else { panic!() };
    let lost = ports.iter().copied().filter(|port| *port != running).max().unwrap();
    it.lose(lost);
    assert_eq!(it.attempted().len(), 2);
    assert!(it.attempted().contains(&lost), "calls may wait for it");
    it.connect_all();
    assert_eq!((it.drained.len(), it.ports().len()), (7, 8));
}

#[test]
fn ch7_7_several_connections_to_an_endpoint_are_replaced_one_by_one() {
    let mut configs = mutual(shop(ROUND_ROBIN, &[&[1]]));
    let mut scaled = (*configs.leaves["shop"]).clone();
    scaled.max_connections = 2;
    configs.leaves.insert("shop".into(), Arc::new(scaled));
    let mut it = Fixture::new(configs);
    let connection = it.attempts.remove(&address(1)).unwrap();
    it.connections.insert(address(1), connection);
    it.balancer.on_connected(connection, Streams::new(address(1), 1), it.now);
    let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
    assert!(attempt.endpoint.connections.try_reserve().is_some());
    let waiting = attempt.endpoint.connections.queue().wait().unwrap();
    it.balancer.on_full(connection, it.now);
    it.drain();
    it.connect(1);
    assert!(it.attempted().is_empty());
    drop(waiting);
    it.rotate(&["roots"], &[]);
    for drained in [1, 2] {
        assert_eq!(it.attempted(), [1]);
        it.connect(1);
        assert_eq!(it.drained.len(), drained);
        let Pick::Complete(attempt) = it.pick("shop") else { panic!() };
        assert_eq!(attempt.endpoint.connections.all().count(), 2);
    }
    assert!(it.attempted().is_empty());
}

#[test]
fn ch7_7_connections_that_cookies_alone_lead_to_are_replaced_as_well() {
    let hosts = HostsConfig {
        draining: locality("a", 1, &[2]).endpoints,
        allows_draining: true,
        ..HostsConfig::default()
    };
    let leaf = LeafConfig { hosts, ..(*shop(ROUND_ROBIN, &[&[1]]).leaves["shop"]).clone() };
    let mut it = Fixture::new(ClusterConfigs::default());
    it.balancer.set_sessions(true, it.now);
    it.update(mutual(configs(&[("shop", Arc::new(leaf))], &[("shop", &["shop"])])));
    it.connect_all();
    let led = |it: &mut Fixture| {
        let (Pick::Complete(attempt), _) = it.pick_session(&[2]) else { return None };
        Some(attempt.endpoint.connection)
    };
    assert_eq!(led(&mut it), None);
    it.connect(2);
    let before = led(&mut it).unwrap();
    it.rotate(&[], &["identity"]);
    it.connect(1);
    it.fail(2);
    assert_eq!(led(&mut it), Some(before));
    it.rotate(&[], &["identity"]);
    it.connect(1);
    it.connect(2);
    assert!(led(&mut it).is_some_and(|it| it != before));
    assert_eq!((it.drained.len(), it.attempted()), (3, vec![]));
    it.balancer.close(it.now);
    it.drain();
    assert_eq!(it.drained.len(), 5);
    assert!(it.balancer.is_unconnected());
}
