//! Connections: those that picks request, their loss, and endpoints that refuse or never answer.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use xdskit::balance::Command;

use super::*;

/// Two priorities of one endpoint each.
fn priorities() -> EndpointsBuilder {
    let preferred = endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]);
    preferred.locality("eu", "b", ["10.0.0.2:80"]).priority(1)
}

#[test]
fn ch3_22_a_request_to_an_idle_cluster_waits_until_a_picker_has_changed() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    let settings = Settings::new(1).with_on_request(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let mesh = shop(cluster("shop"), priorities())
        .cluster("cart", [[address(3)].as_slice()])
        .resource(cluster("mail"));
    let mut world = World::with_peers(settings, [(3, Peer::Silent)], mesh);
    assert_eq!(world.connected(), [address(1)], "no route to the other clusters, and no request");
    let (idle, request) = (world.picker.clone(), PickRequest::to_cluster("cart", 1));
    (0..3).for_each(|_| assert!(matches!(idle.pick(&request), Pick::Wait)));
    assert_eq!(requests.load(Ordering::Relaxed), 1, "one request for all that wait");
    assert!(!world.picker.has_changed(&idle, &request));
    world.drain();
    assert!(world.picker.has_changed(&idle, &request), "it is connecting");
    assert!(!world.picker.has_changed(&idle, &PickRequest::to_cluster("mail", 1)), "another cluster");
    assert!(matches!(world.picker.pick(&request), Pick::Wait));
    let (connecting, (connection, _)) = (world.picker.clone(), world.attempts.pop_first().unwrap());
    world.balancer.handle_connected(connection, address(3), world.now);
    world.drain();
    assert!(world.picker.has_changed(&connecting, &request));
    assert!(matches!(world.picker.pick(&request), Pick::Endpoint(_)));
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[test]
fn ch3_22_a_cluster_is_connected_before_its_first_request_if_the_application_wants_that() {
    let mesh = shop(cluster("shop"), priorities()).cluster("cart", [[address(3)].as_slice()]);
    let mut world = World::new(mesh);
    assert_eq!(world.connected(), [address(1)], "that of the route");
    for cluster in ["cart", "mail"] {
        world.balancer.connect(cluster, world.now);
        world.drain();
    }
    assert_eq!(world.picker.connectivity("cart"), Some(Connectivity::Ready));
    assert_eq!(world.connected(), [address(1), address(3)]);
}

#[test]
fn ch3_6_requests_fail_over_to_the_next_priority_and_back() {
    let mut world = World::new(shop(cluster("shop"), priorities()));
    assert_eq!(world.reached("shop"), [address(1)]);
    world.lose(1, Peer::Refuses);
    assert_eq!(world.reached("shop"), [address(2)]);
    world.set_peer(1, Peer::Accepts);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.reached("shop"), [address(1)], "once the delay of the attempts was over");
}

#[test]
fn ch3_20_requests_fail_with_the_last_error_when_no_endpoint_can_be_reached() {
    let peers = [(1, Peer::Refuses), (2, Peer::Refuses)];
    let mut world = World::with_peers(Settings::new(1), peers, shop(cluster("shop"), priorities()));
    let Pick::Fail(error) = world.pick("shop") else { panic!() };
    assert!(matches!(error, PickError::Unavailable(_)) && error.is_transient(), "{error}");
    assert!(error.to_string().contains("10.0.0.2:80: connection refused"), "{error}");
    let failing = world.picker.clone();
    world.set_peer(1, Peer::Accepts);
    world.pass(Duration::from_secs(5));
    assert!(world.picker.has_changed(&failing, &PickRequest::to_cluster("shop", 1)));
    assert_eq!(world.reached("shop"), [address(1)]);
}

#[test]
fn ch11_8_a_silent_endpoint_delays_neither_its_neighbor_nor_other_clusters() {
    let pair = endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]);
    let mesh = shop(cluster("shop"), pair).resource(cluster("cart"));
    let mesh = mesh.resource(endpoints("cart").locality("eu", "a", ["10.0.0.3:80"]));
    let settings =
        Settings::new(1).with_max_concurrent_connects(1).with_connect_timeout(Duration::from_secs(3));
    let mut world = World::with_peers(settings, [(1, Peer::Silent)], mesh);
    // The only slot may be taken by the silent endpoint, for half a second.
    let _ = (world.pick("shop"), world.pick("cart"));
    world.pass(Duration::from_secs(1));
    assert_eq!((world.reached("shop"), world.reached("cart")), (vec![address(2)], vec![address(3)]));
    assert_eq!(world.attempts.len(), 1, "the attempt goes on");
    world.pass(Duration::from_secs(60));
    assert_eq!((world.reached("shop"), world.reached("cart")), (vec![address(2)], vec![address(3)]));
    // It answers at last.
    world.set_peer(1, Peer::Accepts);
    world.pass(Duration::from_secs(200));
    assert_eq!(world.reached("shop"), [address(1), address(2)]);
}

#[test]
fn ch3_22_an_endpoint_that_closes_each_connection_is_attempted_with_backoff_beside_its_neighbor() {
    let pair = endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]);
    let peers = [(1, Peer::Closes)];
    let mut world = World::with_peers(Settings::new(1), peers, shop(cluster("shop"), pair));
    for _ in 0..100 {
        assert_eq!(world.attempt("shop").address(), address(2));
        world.pass(Duration::from_secs(1));
    }
    assert!((3..=15).contains(&world.closed), "{} connections", world.closed);
    world.set_peer(1, Peer::Accepts);
    world.pass(Duration::from_secs(200));
    assert_eq!(world.reached("shop"), [address(1), address(2)]);
}

#[test]
fn a_lost_connection_is_picked_by_no_picker() {
    let pair = endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]);
    let mut world = World::new(shop(cluster("shop"), pair));
    let running = world.attempt("shop");
    let old = world.picker.clone();
    world.lose(1, Peer::Refuses);
    world.lose(2, Peer::Refuses);
    let randoms: Vec<u64> = world.randoms().take(20).collect();
    for random in randoms {
        assert!(matches!(old.pick(&PickRequest::to_cluster("shop", random)), Pick::Wait));
    }
    assert!(world.picker.has_changed(&old, &PickRequest::to_cluster("shop", 1)));
    // What runs ends as it does, and a second report of the loss changes nothing.
    running.finish(Outcome::Success);
    world.lose(1, Peer::Accepts);
}

#[test]
fn ch3_9_an_endpoint_that_is_removed_has_its_connection_closed_and_others_keep_theirs() {
    let of = |numbers: &[u16]| {
        endpoints("shop").locality(
            "eu",
            "a",
            World::addresses(numbers.iter().copied()).iter().map(String::as_str),
        )
    };
    let mut world = World::new(shop(cluster("shop"), of(&[1, 2])));
    let _ = world.attempt("shop");
    let (before, old) = (world.connections.clone(), world.picker.clone());
    world.update(shop(cluster("shop"), of(&[2, 3])));
    assert_eq!(world.connected(), [address(2), address(3)]);
    assert!(before.iter().any(|(id, target)| world.connections.get(id) == Some(target)), "that of 2 is kept");
    for random in world.randoms().take(20).collect::<Vec<_>>() {
        if let Pick::Endpoint(attempt) = old.pick(&PickRequest::to_cluster("shop", random)) {
            assert_eq!(attempt.address(), address(2));
        }
    }
}

#[test]
fn a_success_that_crosses_its_cancellation_is_closed() {
    let one =
        |number| endpoints("shop").locality("eu", "a", World::addresses([number]).iter().map(String::as_str));
    let mesh = shop(cluster("shop"), one(1));
    let mut world = World::with_peers(Settings::new(1), [(1, Peer::Silent)], mesh);
    let (&connection, _) = world.attempts.first_key_value().unwrap();
    world.update(shop(cluster("shop"), one(2)));
    assert!(world.attempts.is_empty(), "cancelled");
    world.balancer.handle_connected(connection, address(1), world.now);
    assert_eq!(world.balancer.poll_command(world.now).map(is_close(connection)), Some(true));
    assert!(world.balancer.poll_command(world.now).is_none());
    // Neither a failure nor a loss of it is anything.
    world.balancer.handle_connect_failed(connection, &std::io::Error::other("late"), world.now);
    world.balancer.handle_closed(connection, world.now);
    world.drain();
    assert_eq!(world.reached("shop"), [address(2)]);
}

fn is_close(of: xdskit::balance::ConnectionId) -> impl Fn(Command) -> bool {
    move |command| matches!(command, Command::Close { connection, .. } if connection == of)
}

#[test]
fn ch3_33_the_endpoints_of_a_ring_are_connected_on_demand_each_once() {
    let ring = cluster("shop").lb_policy(lb_policy::ring_hash(1024, 4096));
    let many = endpoints("shop").locality("eu", "a", World::addresses(0..100).iter().map(String::as_str));
    let mut world = World::new(shop(ring, many));
    let flow = |flow: u64| PickRequest::to_cluster("shop", flow).with_hash(0x5eed);
    assert!(matches!(world.pick_for(&flow(1)), Pick::Endpoint(_)));
    let one = world.connected();
    (0..100).for_each(|random| assert!(matches!(world.pick_for(&flow(random)), Pick::Endpoint(_))));
    assert_eq!((one.len(), world.connected()), (1, one), "all are of one endpoint");
    // Many requests that wait, for few endpoints.
    let waiting = world.picker.clone();
    for request in 0..10_000 {
        let hash = (request % 10) * (u64::MAX / 10);
        let _ = waiting.pick(&PickRequest::to_cluster("shop", request).with_hash(hash));
    }
    world.drain();
    assert!((2..=11).contains(&world.connected().len()), "{:?}", world.connected());
}

#[test]
fn ch11_8_10_000_endpoints_are_connected_in_turn_and_have_a_request_each() {
    let many = endpoints("shop").locality("eu", "a", World::addresses(0..10_000).iter().map(String::as_str));
    let settings = Settings::new(1).with_max_concurrent_connects(100);
    let silent = (0..10_000).map(|number| (number, Peer::Silent));
    let mut world = World::with_peers(settings, silent, shop(cluster("shop").max_requests(100_000), many));
    assert!(matches!(world.pick("shop"), Pick::Wait));
    let mut most = 0;
    while let Some((&connection, (target, _))) = world.attempts.first_key_value() {
        most = most.max(world.attempts.len());
        let target = target.clone();
        world.attempts.remove(&connection);
        world.balancer.handle_connected(connection, target.address(), world.now);
        world.connections.insert(connection, target);
        // Publish the picker as seldom as a busy task does.
        if world.attempts.is_empty() {
            world.drain();
        }
    }
    assert!((50..=100).contains(&most), "{most} attempts at a time");
    assert_eq!(world.connections.len(), 10_000);
    let shares = world.shares("shop", 10_000);
    assert_eq!((shares.len(), shares.values().max()), (10_000, Some(&1)));
}
