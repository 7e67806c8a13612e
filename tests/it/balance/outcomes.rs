//! Outcomes of attempts, and what follows from them.

use super::*;

/// Three endpoints, of which those with more than half of their requests failed are ejected.
fn detecting() -> World {
    World::new(mesh(1..4))
}

fn mesh(numbers: std::ops::Range<u16>) -> SnapshotBuilder {
    let detection = outlier_detection()
        .interval(Duration::from_secs(1))
        .base_ejection_time(Duration::from_secs(30))
        .max_ejection_percent(50)
        .failure_percentage(50, 2, 5);
    let all = endpoints("shop").locality("eu", "a", World::addresses(numbers).iter().map(String::as_str));
    shop(cluster("shop").outlier_detection(detection), all)
}

/// Ends attempts on an endpoint in some way, and those on others with success.
fn play(world: &mut World, number: u16, end: impl Fn(xdskit::balance::Attempt<SocketAddr>)) {
    for _ in 0..60 {
        let attempt = world.attempt("shop");
        if attempt.address() == address(number) { end(attempt) } else { attempt.finish(Outcome::Success) }
    }
    world.pass(Duration::from_secs(2));
}

#[test]
fn ch3_65_an_endpoint_whose_attempts_fail_is_ejected_for_a_while() {
    let mut world = detecting();
    play(&mut world, 2, |attempt| attempt.finish(Outcome::Error));
    assert_eq!(world.reached("shop"), [address(1), address(3)]);
    assert_eq!(world.connected().len(), 3, "its connection stays");
    world.pass(Duration::from_secs(31));
    assert_eq!(world.reached("shop"), [address(1), address(2), address(3)]);
}

#[test]
fn ch3_65_an_attempt_that_was_sent_and_is_dropped_without_an_outcome_has_failed() {
    let mut world = detecting();
    play(&mut world, 2, |mut attempt| attempt.on_sent());
    assert_eq!(world.reached("shop"), [address(1), address(3)]);
}

#[test]
fn ch2_22_attempts_that_were_not_sent_or_are_withdrawn_count_nowhere() {
    let mut world = detecting();
    play(&mut world, 2, drop);
    play(&mut world, 2, |mut attempt| {
        attempt.on_sent();
        attempt.withdraw();
    });
    play(&mut world, 2, xdskit::balance::Attempt::withdraw);
    assert_eq!(world.reached("shop").len(), 3);
}

#[test]
fn ch3_65_a_success_counts_once_however_it_is_reported() {
    let mut world = detecting();
    play(&mut world, 2, |mut attempt| {
        attempt.on_sent();
        attempt.on_sent();
        attempt.finish(Outcome::Success);
    });
    assert_eq!(world.reached("shop").len(), 3);
}

#[test]
fn ch3_65_attempts_of_an_earlier_picker_count_as_well() {
    let mut world = detecting();
    let (old, mut failed) = (world.picker.clone(), 0);
    world.update(mesh(1..5));
    assert_eq!(world.reached("shop").len(), 4);
    for random in world.randoms().take(100).collect::<Vec<_>>() {
        let Pick::Endpoint(attempt) = old.pick(&PickRequest::to_cluster("shop", random)) else { panic!() };
        let fails = attempt.address() == address(1);
        failed += usize::from(fails);
        attempt.finish(if fails { Outcome::Error } else { Outcome::Success });
    }
    assert!(failed > 5);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.reached("shop"), [address(2), address(3), address(4)]);
}

#[test]
fn ch3_65_an_endpoint_that_is_connected_and_never_answers_is_ejected_and_its_neighbors_serve() {
    let mut world = detecting();
    let mut unanswered = Vec::new();
    for _ in 0..300 {
        let mut attempt = world.attempt("shop");
        attempt.on_sent();
        if attempt.address() == address(1) {
            unanswered.push((world.now + Duration::from_secs(1), attempt));
        } else {
            attempt.finish(Outcome::Success);
        }
        world.pass(Duration::from_millis(20));
        // The time limit of each request.
        let late = unanswered.extract_if(.., |(until, _)| *until <= world.now);
        late.for_each(|(_, attempt)| attempt.finish(Outcome::Error));
    }
    assert!(unanswered.is_empty(), "no request for the last second");
    assert_eq!(world.reached("shop"), [address(2), address(3)]);
}

#[test]
fn ch3_39_least_request_avoids_an_endpoint_that_never_answers_even_before_it_is_ejected() {
    let pair = endpoints("shop").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]);
    let mut world = World::new(shop(cluster("shop").lb_policy(lb_policy::least_request(2)), pair));
    let (mut unanswered, mut answered) = (Vec::new(), 0);
    for _ in 0..400 {
        let attempt = world.attempt("shop");
        if attempt.address() == address(1) {
            unanswered.push(attempt);
        } else {
            attempt.finish(Outcome::Success);
            answered += 1;
        }
    }
    // One pick in four has drawn it twice.
    assert!(answered >= 260, "{answered}");
}
