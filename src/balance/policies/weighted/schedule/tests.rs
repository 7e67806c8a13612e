use std::thread;

use super::*;

/// How often each endpoint is picked.
fn counts(schedule: &Schedule, first: u64, picks: usize) -> Vec<usize> {
    let mut counts = vec![0; schedule.weights.len()];
    let turn = AtomicUsize::new(first as usize);
    (0..picks).for_each(|_| counts[schedule.pick(&turn)] += 1);
    counts
}

/// Whether the endpoint of a turn is skipped, as CH3.45 has it.
fn is_skipped(schedule: &Schedule, turn: u64) -> bool {
    let count = schedule.weights.len() as u64;
    let (round, place) = (u128::from(turn / count), turn % count);
    let weight = u128::from(schedule.weights[place as usize]);
    (weight * round + u128::from(place) * 32_767) % 65_535 < 65_535 - weight
}

fn schedule(weights: &[f64]) -> Option<Schedule> {
    Schedule::new(&weights.iter().map(|weight| Some(*weight)).collect::<Vec<_>>())
}

#[test]
fn ch3_44_fewer_than_two_weights_or_equal_ones_are_round_robin() {
    assert_eq!(Schedule::new(&[]), None);
    assert_eq!(Schedule::new(&[Some(1.0)]), None);
    assert_eq!(Schedule::new(&[Some(1.0), None, None]), None);
    assert_eq!(schedule(&[3.0, 3.0, 3.0]), None);
    assert_eq!(Schedule::new(&[Some(2.0), Some(2.0), None]), None, "the one without has the mean");
    assert!(schedule(&[3.0, 3.1, 3.0]).is_some());
}

#[test]
fn ch3_44_weights_are_scaled_and_those_without_one_have_the_mean() {
    let weights = |weights: &[Option<f64>]| Vec::from(Schedule::new(weights).unwrap().weights);
    assert_eq!(weights(&[Some(1.0), Some(3.0), None]), [21_845, 65_535, 43_690]);
    // The greatest is 10 times the mean at most: 20 weights of 1 and one of 1,000 have the mean 48.57.
    let mut many = vec![Some(1.0); 20];
    many.push(Some(1_000.0));
    let scaled = weights(&many);
    assert_eq!((scaled[0], scaled[20]), (135, 65_535));
    // The least is a hundredth of the mean at least.
    assert_eq!(weights(&[Some(1e-9), Some(1.0), Some(1.0)])[0], 437);
    assert_eq!(weights(&[Some(f64::MAX), Some(f64::MAX), Some(1.0)])[2], 437, "the sum does not overflow");
}

#[test]
fn ch3_45_picks_are_within_1_percent_of_the_weights_after_1_000() {
    let schedule = schedule(&[1.0, 2.0, 7.0]).unwrap();
    for first in [0, 12_345, u64::from(u32::MAX) - 1_000, u64::MAX / 2] {
        let counts = counts(&schedule, first, 1_000);
        for (count, expected) in counts.iter().zip([100, 200, 700]) {
            assert!(count.abs_diff(expected) <= 10, "{counts:?} from {first}");
        }
    }
}

#[test]
fn ch3_45_random_weights_are_all_picked_in_proportion_with_few_tries() {
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20 {
        let weights: Vec<f64> = (0..2 + random.usize(..40)).map(|_| 1.0 + random.f64() * 20.0).collect();
        let schedule = schedule(&weights).unwrap();
        let (sum, picks) = (weights.iter().sum::<f64>(), 100_000);
        let first = random.usize(..1 << 48);
        let turn = AtomicUsize::new(first);
        let mut counts = vec![0_usize; weights.len()];
        (0..picks).for_each(|_| counts[schedule.pick(&turn)] += 1);
        for (count, weight) in counts.iter().zip(&weights) {
            let expected = weight / sum * picks as f64;
            assert!((*count as f64 - expected).abs() <= 3.0 + expected * 0.01, "{count} for {expected}");
        }
        let tries = turn.into_inner() - first;
        assert!(tries <= 10 * picks, "{tries} tries");
    }
}

#[test]
fn ch3_45_turns_are_skipped_by_the_weight_and_the_round() {
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..50 {
        let weights: Vec<f64> = (0..2 + random.usize(..9)).map(|_| 1.0 + random.f64() * 20.0).collect();
        let schedule = schedule(&weights).unwrap();
        let mut expected = random.u64(..) >> random.u32(16..64);
        let turn = AtomicUsize::new(expected as usize);
        for _ in 0..1_000 {
            while is_skipped(&schedule, expected) {
                expected += 1;
            }
            assert_eq!(schedule.pick(&turn) as u64, expected % weights.len() as u64, "turn {expected}");
            expected += 1;
            assert_eq!(turn.load(Ordering::Relaxed) as u64, expected);
        }
    }
}

#[test]
fn ch3_45_picks_of_several_threads_take_each_turn_once() {
    let (schedule, turn) = (schedule(&[1.0, 2.0, 7.0, 4.0]).unwrap(), AtomicUsize::new(0));
    let counts = thread::scope(|scope| {
        let threads = [(); 4].map(|()| {
            scope.spawn(|| {
                let mut counts = [0; 4];
                (0..20_000).for_each(|_| counts[schedule.pick(&turn)] += 1);
                counts
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    let mut expected = [0; 4];
    for turn in (0..turn.load(Ordering::Relaxed) as u64).filter(|turn| !is_skipped(&schedule, *turn)) {
        expected[turn as usize % 4] += 1;
    }
    let sum = [0, 1, 2, 3].map(|place| counts.iter().map(|it| it[place]).sum::<usize>());
    assert_eq!(sum, expected);
}

/// gRPC-Go never picks an endpoint whose weight is below 1/131,070 of the greatest (CH13.5).
#[test]
fn ch13_5_an_endpoint_of_little_weight_is_picked_at_times() {
    let schedule = schedule(&[1e-12, 1.0, 1.0]).unwrap();
    let counts = counts(&schedule, 7, 100_000);
    assert!((200..600).contains(&counts[0]), "{counts:?}");
}

#[test]
fn ch3_45_a_schedule_without_some_endpoints_keeps_the_order_of_the_others() {
    let all = schedule(&[1.0, 2.0, 7.0]).unwrap();
    let rest = all.without(|place| place == 1);
    assert_eq!(*rest.weights, [all.weights[0], all.weights[2]]);
    assert_eq!(counts(&rest, 0, 8)[0], 1);
}
