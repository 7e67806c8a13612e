//! CH7.5 and CH7.6: when files are read, and what a reading changes.

use super::*;

/// A reading: what is read, whether it is usable, and the expected change and seconds until the next reading.
struct Step {
    at: u64,
    reading: Result<&'static str, &'static str>,
    change: Change,
    next: u64,
    material: Option<&'static str>,
}

/// Material of this machine: text, of which some is unusable.
fn parse(text: &&'static str) -> Result<&'static str, Unusable> {
    match *text {
        "half" | "other half" => Err(Unusable::incomplete(format!("{text} of it"))),
        "bad" => Err(Unusable::new("bad".to_owned())),
        good => Ok(good),
    }
}

fn run(interval: u64, steps: &[Step]) -> Refresh<&'static str, &'static str> {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut refresh = Refresh::new(Duration::from_secs(interval));
    assert_eq!(refresh.poll_timeout(), None, "the first reading is at once");
    for step in steps {
        let change = refresh.handle_reading(at(step.at), step.reading.map_err(str::to_owned), parse);
        assert_eq!(change, step.change, "at {}", step.at);
        assert_eq!(refresh.poll_timeout(), Some(at(step.next)), "at {}", step.at);
        assert_eq!(refresh.material().map(|material| **material), step.material, "at {}", step.at);
    }
    refresh
}

fn step(
    at: u64,
    reading: Result<&'static str, &'static str>,
    change: Change,
    next: u64,
    material: Option<&'static str>,
) -> Step {
    Step { at, reading, change, next, material }
}

#[test]
fn ch7_5_files_are_read_at_the_interval_whatever_they_contain() {
    run(
        600,
        &[
            step(0, Ok("a"), Change::Material, 600, Some("a")),
            step(600, Ok("a"), Change::None, 1200, Some("a")),
            step(1200, Ok("b"), Change::Material, 1800, Some("b")),
            step(1800, Err("gone"), Change::Failed, 2400, Some("b")),
            step(2400, Ok("b"), Change::Mended, 3000, Some("b")),
        ],
    );
}

#[test]
fn ch7_5_the_interval_is_at_least_one_second() {
    run(0, &[step(0, Ok("a"), Change::Material, 1, Some("a"))]);
}

#[test]
fn ch7_6_half_a_rotation_keeps_the_old_pair_and_is_looked_at_again_after_a_second() {
    run(
        600,
        &[
            step(0, Ok("a"), Change::Material, 600, Some("a")),
            step(600, Ok("half"), Change::Failed, 601, Some("a")),
            step(601, Ok("b"), Change::Material, 1201, Some("b")),
        ],
    );
}

#[test]
fn ch7_6_half_a_rotation_that_stays_is_looked_at_once_more_and_then_at_the_interval() {
    let refresh = run(
        600,
        &[
            step(0, Ok("a"), Change::Material, 600, Some("a")),
            step(600, Ok("half"), Change::Failed, 601, Some("a")),
            step(601, Ok("half"), Change::StillFailed, 1201, Some("a")),
            step(1201, Ok("other half"), Change::StillFailed, 1801, Some("a")),
            step(1801, Ok("b"), Change::Material, 2401, Some("b")),
            // The next rotation has a second reading of its own.
            step(2401, Ok("half"), Change::Failed, 2402, Some("b")),
        ],
    );
    assert_eq!(refresh.failure().map(|reason| &**reason), Some("half of it"));
}

#[test]
fn ch7_6_a_failure_is_new_once_until_it_is_over() {
    let refresh = run(
        600,
        &[
            step(0, Err("gone"), Change::Failed, 600, None),
            step(600, Ok("bad"), Change::StillFailed, 1200, None),
            step(1200, Ok("half"), Change::StillFailed, 1201, None),
            step(1201, Ok("a"), Change::Material, 1801, Some("a")),
            step(1801, Ok("bad"), Change::Failed, 2401, Some("a")),
            step(2401, Ok("a"), Change::Mended, 3001, Some("a")),
            step(3001, Err("gone"), Change::Failed, 3601, Some("a")),
        ],
    );
    assert_eq!(refresh.failure().map(|reason| &**reason), Some("gone"));
}

#[test]
fn ch7_6_unchanged_bytes_do_nothing() {
    let now = Instant::now();
    let mut refresh = Refresh::new(Duration::from_secs(600));
    refresh.handle_reading(now, Ok("a"), parse);
    let before = refresh.material().cloned().unwrap();
    let change = refresh.handle_reading(now, Ok("a"), |_| panic!("parsed again"));
    assert_eq!(change, Change::None);
    assert!(Arc::ptr_eq(&before, refresh.material().unwrap()));
}

#[test]
fn ch7_5_a_handshake_without_material_waits_for_a_reading_a_second_after_the_last() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut refresh = Refresh::new(Duration::from_secs(600));
    refresh.handle_need();
    assert_eq!(refresh.poll_timeout(), None);
    refresh.handle_reading(start, Err("not mounted yet".to_owned()), parse);
    assert_eq!(refresh.poll_timeout(), Some(at(600)));
    refresh.handle_need();
    assert_eq!(refresh.poll_timeout(), Some(at(1)));
    refresh.handle_reading(at(5), Ok("a"), parse);
    refresh.handle_need();
    assert_eq!(refresh.poll_timeout(), Some(at(605)), "it has material");
}

#[test]
fn a65_a_handshake_that_needs_the_files_as_they_are_has_them_read_once() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut refresh = Refresh::new(Duration::from_secs(600));
    assert!(refresh.begin_reading(Trigger::Handshake(at(0)), at(0)));
    refresh.handle_reading(at(2), Ok("a"), parse);
    assert!(!refresh.begin_reading(Trigger::Interval, at(2)));
    assert!(!refresh.begin_reading(Trigger::Missing, at(2)), "there is material");
    assert!(refresh.begin_reading(Trigger::Handshake(at(1)), at(3)), "it has waited for an earlier reading");
    refresh.handle_reading(at(4), Err("gone".to_owned()), parse);
    assert!(!refresh.begin_reading(Trigger::Handshake(at(2)), at(5)), "that reading began after it");
    assert!(refresh.begin_reading(Trigger::Handshake(at(5)), at(5)));
    assert_eq!(refresh.material().map(|material| **material), Some("a"));
}
