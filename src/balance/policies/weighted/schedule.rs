//! Schedules of weighted_round_robin: picks in proportion to the weights of endpoints (A58).

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::balance::weights::WeightState;

/// The order in which ready endpoints are picked: a static stride over their weights (CH3.45).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Weights by the places of the endpoints, scaled so that the greatest is [`FULL`]. None is 0.
    weights: Box<[u16]>,
}

impl Schedule {
    /// As [`new`](Self::new), for the states of the weights.
    pub(super) fn of(weights: &[WeightState]) -> Option<Self> {
        if WeightState::are_too_few(weights) {
            return None;
        }
        Self::new(&weights.iter().map(|weight| weight.usable()).collect::<Vec<_>>())
    }

    /// The schedule for the weights of ready endpoints, in their order. `None` if it would be that of round_robin: fewer than two
    /// have a weight, or all weights are equal (CH3.44).
    pub(super) fn new(weights: &[Option<f64>]) -> Option<Self> {
        let usable = || weights.iter().flatten().copied();
        let count = usable().count();
        if count < 2 {
            return None;
        }
        // Divided before they are added, since a sum of extreme weights may be infinite.
        let mean = usable().map(|weight| weight / count as f64).sum::<f64>();
        // Bounds the mean number of tries of a pick.
        let max = usable().fold(0.0, f64::max).min(mean * MAX_RATIO);
        let scale = f64::from(FULL) / max;
        // What rounds to 0 would never be picked, and never report again.
        let min = (scale * mean * MIN_RATIO).round().max(1.0);
        let scaled = weights.iter().map(|weight| match weight {
            // Endpoints without a weight get the mean of the others (A58).
            None => (scale * mean).round().max(1.0) as u16,
            Some(weight) => (scale * weight.min(max)).round().max(min) as u16,
        });
        let weights: Box<[u16]> = scaled.collect();
        let is_equal = weights.iter().all(|weight| *weight == weights[0]);
        (!is_equal).then_some(Self { weights })
    }

    /// The place of the next endpoint. `turn` is that of the next pick; each turn is of one endpoint.
    ///
    /// The turns of endpoints that are skipped are taken together with that of the pick: it changes the counter once.
    pub(super) fn pick(&self, turn: &AtomicUsize) -> usize {
        let mut first = turn.load(Ordering::Relaxed);
        loop {
            let (skipped, place) = self.next_after(first as u64);
            let next = first.wrapping_add(skipped).wrapping_add(1);
            match turn.compare_exchange_weak(first, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return place,
                Err(now) => first = now,
            }
        }
    }

    /// How many turns are skipped from one on, and the endpoint of the next one. The mean number of turns is at most [`MAX_RATIO`].
    fn next_after(&self, turn: u64) -> (usize, usize) {
        let (count, full) = (self.weights.len(), u64::from(FULL));
        let (round, mut place) = (turn / count as u64, (turn % count as u64) as usize);
        let (mut round, mut skipped) = (round % full, 0);
        loop {
            let weight = u64::from(self.weights[place]);
            // The endpoint is skipped in the share of the rounds that its weight lacks. The offset distributes the skips of
            // endpoints of equal weight over the rounds.
            let phase = weight * round + place as u64 * OFFSET;
            if phase % full >= full - weight {
                return (skipped, place);
            }
            (skipped, place) = (skipped + 1, place + 1);
            if place == count {
                (round, place) = ((round + 1) % full, 0);
            }
        }
    }

    /// The schedule without some of its endpoints.
    pub(super) fn without(&self, is_left_out: impl Fn(usize) -> bool) -> Self {
        let kept = self.weights.iter().enumerate().filter(|(place, _)| !is_left_out(*place));
        Self { weights: kept.map(|(_, weight)| *weight).collect() }
    }
}

/// The greatest weight of a schedule.
const FULL: u16 = u16::MAX;
/// Weights above so many times their mean are reduced to that.
const MAX_RATIO: f64 = 10.0;
/// Weights below this share of their mean are raised to that.
const MIN_RATIO: f64 = 0.01;
/// About half of [`FULL`].
const OFFSET: u64 = 32_767;

#[cfg(test)]
mod tests;
