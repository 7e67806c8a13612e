//! Which endpoints are outliers, by the attempts of an interval. The results are their places.

use super::outcomes::Counts;
use crate::resource::outlier::{FailurePercentage, SuccessRate};

/// Endpoints with a success rate far below the mean (CH3.68). A bound below 0 has no outliers (CH3.73).
pub(super) fn success_rate(config: &SuccessRate, counts: &[Counts]) -> Vec<usize> {
    let rate = |counts: Counts| counts.successes as f64 / counts.total() as f64;
    let rates: Vec<_> =
        candidates(counts, config.request_volume).map(|(place, it)| (place, rate(it))).collect();
    if rates.len() < minimum(config.minimum_hosts) {
        return Vec::new();
    }
    let count = rates.len() as f64;
    let mean = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    // That of the whole population, as in A50, not that of a sample.
    let variance = rates.iter().map(|(_, rate)| (rate - mean).powi(2)).sum::<f64>() / count;
    let bound = mean - variance.sqrt() * (f64::from(config.stdev_factor) / 1_000.0);
    rates.into_iter().filter(|(_, rate)| *rate < bound).map(|(place, _)| place).collect()
}

/// Endpoints with more failures than a fixed percentage, and not as many as that (CH3.69).
pub(super) fn failure_percentage(config: &FailurePercentage, counts: &[Counts]) -> Vec<usize> {
    let candidates: Vec<_> = candidates(counts, config.request_volume).collect();
    if candidates.len() < minimum(config.minimum_hosts) {
        return Vec::new();
    }
    let is_outlier = |counts: &Counts| {
        // Exact integers, so that a percentage at the threshold is not above it; the factor of 100 needs more than 64 bits.
        100 * u128::from(counts.failures) > u128::from(config.threshold) * u128::from(counts.total())
    };
    candidates.into_iter().filter(|(_, it)| is_outlier(it)).map(|(place, _)| place).collect()
}

/// The endpoints with enough attempts, ejected ones too. One without any has no rate, even if none is required.
fn candidates(counts: &[Counts], request_volume: u32) -> impl Iterator<Item = (usize, Counts)> {
    let volume = u64::from(request_volume.max(1));
    counts.iter().copied().enumerate().filter(move |(_, it)| it.total() >= volume)
}

fn minimum(hosts: u32) -> usize {
    usize::try_from(hosts).unwrap_or(usize::MAX)
}
