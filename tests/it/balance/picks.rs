//! What picks depend on: policies, weights, hashes, drops, circuit breakers.

use super::*;

fn pair() -> EndpointsBuilder {
    endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"])
}

#[test]
fn requests_go_to_all_endpoints_of_a_cluster_in_turn() {
    let mut world = World::new(shop(cluster("shop"), pair()));
    assert_eq!(world.shares("shop", 10), BTreeMap::from([(address(1), 5), (address(2), 5)]));
    let attempt = world.attempt("shop");
    assert_eq!((attempt.cluster(), *attempt.connection()), ("shop", attempt.address()));
}

#[test]
fn ch3_49_localities_have_requests_in_proportion_to_their_weights() {
    let localities = endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]).weight(3);
    let localities = localities.locality("eu", "b", ["10.0.0.2:80"]).weight(1);
    let policy = lb_policy::wrr_locality(lb_policy::round_robin());
    let mut world = World::new(shop(cluster("shop").lb_policy(policy), localities));
    let share = world.shares("shop", 4000)[&address(1)];
    assert!((2900..3100).contains(&share), "{share}");
}

#[test]
fn ch3_44_requests_follow_the_load_that_endpoints_report() {
    let policy = lb_policy::client_side_weighted_round_robin(Duration::ZERO);
    let mut world = World::new(shop(cluster("shop").lb_policy(policy), pair()));
    for _ in 0..2 {
        let mut attempt = world.attempt("shop");
        let rate = if attempt.address() == address(1) { 300.0 } else { 100.0 };
        attempt.on_load(&LoadReport::new(0.5, rate).unwrap(), world.now);
        attempt.finish(Outcome::Success);
    }
    world.pass(Duration::from_secs(2));
    assert_eq!(world.shares("shop", 40), BTreeMap::from([(address(1), 30), (address(2), 10)]));
}

#[test]
fn a_load_report_without_a_weight_is_none_and_a_malformed_one_is_an_error() {
    for (utilization, rate) in [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
        assert_eq!(LoadReport::new(utilization, rate), None);
    }
    let report = || LoadReport::new(0.5, 10.0).unwrap();
    assert_eq!(report().with_errors_per_second(f64::NAN), report());
    assert_ne!(report().with_errors_per_second(1.0), report());
    let policy = lb_policy::client_side_weighted_round_robin(Duration::ZERO);
    let mut world = World::new(shop(cluster("shop").lb_policy(policy), pair()));
    let mut attempt = world.attempt("shop");
    assert!(attempt.on_encoded_load(b"\xff", world.now).is_err());
    assert!(attempt.on_encoded_load(b"", world.now).is_ok(), "a report of nothing");
}

#[test]
fn ch3_39_least_request_counts_attempts_until_they_are_dropped() {
    let mut world = World::new(shop(cluster("shop").lb_policy(lb_policy::least_request(10)), pair()));
    let held: Vec<_> = (0..100).map(|_| world.attempt("shop")).collect();
    let to_first = |attempts: &[xdskit::balance::Attempt<SocketAddr>]| {
        attempts.iter().filter(|attempt| attempt.address() == address(1)).count()
    };
    assert!((45..=55).contains(&to_first(&held)), "{}", to_first(&held));
    let (ended, _held): (Vec<_>, Vec<_>) =
        held.into_iter().partition(|attempt| attempt.address() == address(1));
    drop(ended);
    // The two draws of a pick may be of one endpoint.
    let next: Vec<_> = (0..40).map(|_| world.attempt("shop")).collect();
    assert!((24..=40).contains(&to_first(&next)), "{}", to_first(&next));
}

#[test]
fn ch2_18_requests_with_a_hash_stay_at_an_endpoint_as_long_as_it_is_connected() {
    let ring = cluster("shop").lb_policy(lb_policy::ring_hash(1024, 4096));
    let ten = endpoints("shop").locality("eu", "a", World::addresses(0..10).iter().map(String::as_str));
    let mut world = World::new(shop(ring, ten));
    let place = |world: &mut World, flow: &str, attempt| {
        let random = world.randoms().next().unwrap();
        let request =
            PickRequest::to_cluster("shop", random).with_hashed(flow.as_bytes()).with_attempt(attempt);
        match world.pick_for(&request) {
            Pick::Endpoint(attempt) => attempt.address(),
            other @ (Pick::Wait | Pick::Fail(_)) => panic!("{other:?}"),
        }
    };
    let flows: Vec<String> = (0..100).map(|flow| format!("192.0.2.1:{flow}")).collect();
    let before: Vec<_> = flows.iter().map(|flow| place(&mut world, flow, 0)).collect();
    let again: Vec<_> = flows.iter().map(|flow| place(&mut world, flow, 1)).collect();
    assert_eq!(before, again);
    let moved = before[0];
    let [.., number] = match moved.ip() {
        std::net::IpAddr::V4(ip) => ip.octets(),
        std::net::IpAddr::V6(ip) => panic!("{ip}"),
    };
    world.lose(number.into(), Peer::Refuses);
    // The first flow of it has the endpoint attempted again, which fails.
    let after: Vec<_> = flows.iter().map(|flow| place(&mut world, flow, 0)).collect();
    for (before, after) in before.iter().zip(after) {
        assert_eq!(*before == after, *before != moved, "the flows of other endpoints stay");
    }
}

#[test]
fn ch2_18_routes_choose_the_cluster_and_the_hash_of_a_request() {
    let routes = [
        route::prefix("/cart/").cluster("cart").hash_header("x-user"),
        route::prefix("/shop/").weighted([("shop", 1), ("cart", 1)]),
        route::prefix("/old/").non_forwarding(),
    ];
    let ring = |name: &str| cluster(name).lb_policy(lb_policy::ring_hash(1024, 4096));
    let mesh = shop(ring("shop"), endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]))
        .resource(listener("shop").inline_routes(route_config("routes").virtual_host(["*"], routes)))
        .resource(ring("cart"))
        .resource(endpoints("cart").locality("eu", "a", World::addresses(2..9).iter().map(String::as_str)));
    let mut world = World::new(mesh);
    let mut reach = |path: &str, user: &str, random| {
        let query = RouteQuery::new(path, random).with_header("x-user", user);
        match world.pick_for(&PickRequest::by_route(&query)) {
            Pick::Endpoint(attempt) => Ok((attempt.cluster().to_owned(), attempt.address())),
            Pick::Fail(error) => Err(error),
            Pick::Wait => panic!("no endpoint is connected"),
        }
    };
    let (cart, ada) = reach("/cart/add", "ada", 1).unwrap();
    assert_eq!(cart, "cart");
    assert!((2..50).all(|random| reach("/cart/add", "ada", random).unwrap().1 == ada));
    assert!((0..50).any(|user| reach("/cart/add", &user.to_string(), 1).unwrap().1 != ada));
    let mut random = fastrand::Rng::with_seed(1);
    let to_shop = (0..100).filter(|_| reach("/shop/", "ada", random.u64(..)).unwrap().0 == "shop").count();
    assert!((30..70).contains(&to_shop), "{to_shop}");
    for path in ["/old/", "/new/"] {
        let error = reach(path, "ada", 1).unwrap_err();
        assert!(matches!(error, PickError::NoRoute { .. }) && !error.is_transient(), "{error}");
        assert_eq!(error.to_string(), "no route of xds:///shop leads the request to a cluster");
    }
}

#[test]
fn ch4_2_a_share_is_dropped_and_a_request_that_is_picked_again_is_not_drawn_again() {
    let mut world = World::new(shop(cluster("shop"), pair().drop_percent("test", 30)));
    let randoms: Vec<u64> = world.randoms().take(1000).collect();
    let mut dropped = 0;
    for random in randoms {
        let request = PickRequest::to_cluster("shop", random);
        let mut is_dropped = |attempt| match world.pick_for(&request.clone().with_attempt(attempt)) {
            Pick::Fail(error @ PickError::Dropped(_)) => {
                assert_eq!(error.to_string(), "cluster shop: dropped by the overload category test");
                assert!(!error.is_transient());
                true
            }
            Pick::Endpoint(_) => false,
            other @ (Pick::Wait | Pick::Fail(_)) => panic!("{other:?}"),
        };
        let first = is_dropped(0);
        assert!((0..5).all(|_| is_dropped(0) == first));
        dropped += usize::from(first);
        // A later attempt has a draw of its own.
        let _ = is_dropped(1);
    }
    assert!((250..350).contains(&dropped), "{dropped}");
}

#[test]
fn ch4_5_requests_above_the_circuit_breaker_fail_until_an_attempt_ends() {
    let mut world = World::new(shop(cluster("shop").max_requests(3), pair()));
    let mut held: Vec<_> = (0..3).map(|_| world.attempt("shop")).collect();
    let Pick::Fail(error) = world.pick("shop") else { panic!() };
    assert!(matches!(error, PickError::CircuitBreaker(_)) && !error.is_transient(), "{error}");
    assert_eq!(error.to_string(), "cluster shop: 3 requests are running, the maximum of its circuit breaker");
    held.pop().unwrap().finish(Outcome::Error);
    drop(held.pop());
    held.pop().unwrap().withdraw();
    let _held: Vec<_> = (0..3).map(|_| world.attempt("shop")).collect();
    assert!(matches!(world.pick("shop"), Pick::Fail(PickError::CircuitBreaker(_))));
}

#[test]
fn pickers_are_for_any_thread() {
    fn is_for_threads<T: Send + Sync + Clone + 'static>(_: &T) {}
    let world = World::new(shop(cluster("shop"), pair()).resource(cluster("cart")));
    is_for_threads(&world.picker);
    let states = ["shop", "cart", "mail"].map(|cluster| world.picker.connectivity(cluster));
    assert_eq!(states, [Some(Connectivity::Ready), Some(Connectivity::Idle), None]);
}
