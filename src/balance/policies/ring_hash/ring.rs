//! Hash rings (A42): which endpoint is next to a hash.

use std::{
    fmt::Write,
    ops::Range,
    sync::{Arc, OnceLock},
};

use crate::balance::hash::hash;

/// The smallest and the largest number of entries of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingSizes {
    /// The number of entries that a ring has at least, unless `max` is less.
    pub(crate) min: u32,
    /// The number of entries that a ring has at most, whatever its weights are.
    pub(crate) max: u32,
}

/// A hash ring. Each endpoint has entries on it in proportion to its weight, and a request belongs to the entry that follows its
/// hash.
///
/// Endpoints are known by their rank, which is their place in the order of their keys, so that a ring does not depend on the order
/// of a list (CH3.30).
///
/// The entries are built when a pick needs them: a cluster may have a ring for each of its localities, most of which are never used.
#[derive(Debug)]
pub(super) struct Ring {
    /// Endpoints by rank.
    endpoints: Box<[RingEndpoint]>,
    sizes: RingSizes,
    entries: OnceLock<Entries>,
}

/// The entries of a ring.
#[derive(Debug)]
struct Entries {
    /// The hashes of the entries in ascending order, apart from their endpoints: to find one, only hashes are read.
    hashes: Box<[u64]>,
    /// The ranks of the entries' endpoints.
    ranks: Box<[u32]>,
    index: HashIndex,
}

/// Where the entries begin whose hashes have the same leading bits. There are about as many of these ranges as entries, so that a range
/// has one entry mostly.
#[derive(Debug)]
struct HashIndex {
    /// One for each value of the leading bits, and the number of entries at the end.
    starts: Box<[u32]>,
    /// The bits that follow the leading ones: at most 63.
    rest: u32,
}

/// An endpoint on a ring.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RingEndpoint {
    /// Two endpoints with one key have entries in the same places, of which the one of the lower rank is found (CH3.32).
    pub(super) key: Arc<str>,
    /// Not 0.
    pub(super) weight: u64,
}

impl Ring {
    /// The ring of some endpoints, sorted by their keys.
    pub(super) fn new(endpoints: Box<[RingEndpoint]>, sizes: RingSizes) -> Self {
        Self { endpoints, sizes, entries: OnceLock::new() }
    }

    /// Whether a pick has needed the entries.
    pub(super) fn is_built(&self) -> bool {
        self.entries.get().is_some()
    }

    /// Builds the entries before a pick needs them.
    pub(super) fn build(&self) {
        self.entries();
    }

    /// Whether it is the ring of these endpoints (CH3.31).
    pub(super) fn is_of(&self, endpoints: &[RingEndpoint], sizes: RingSizes) -> bool {
        self.sizes == sizes && *self.endpoints == *endpoints
    }

    /// The ranks of the endpoints from that of a hash on, each as often as it has entries (CH3.33).
    #[inline]
    pub(super) fn walk(&self, hash: u64) -> impl Iterator<Item = usize> {
        let entries = self.entries();
        let near = entries.index.range(hash);
        let first = near.start + entries.hashes[near].partition_point(|known| *known < hash);
        // Behind the greatest hash follows the least one.
        let (before, after) = entries.ranks.split_at(first);
        after.iter().chain(before).map(|rank| *rank as usize)
    }

    #[inline]
    fn entries(&self) -> &Entries {
        self.entries.get_or_init(|| Entries::new(&self.endpoints, self.sizes))
    }
}

impl Entries {
    /// Builds the entries of a ring, whose endpoints are in the order of their ranks.
    fn new(endpoints: &[RingEndpoint], sizes: RingSizes) -> Self {
        let mut entries = entries(endpoints, sizes);
        // Entries of one endpoint with the same hash are equal, so that the rank is all that decides.
        entries.sort_unstable();
        let (hashes, ranks): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        let index = HashIndex::new(&hashes);
        Self { hashes: hashes.into(), ranks: ranks.into(), index }
    }
}

impl HashIndex {
    /// The index of hashes in ascending order.
    fn new(hashes: &[u64]) -> Self {
        // At least one bit, since a shift by all 64 bits overflows.
        let bits = hashes.len().next_power_of_two().ilog2().max(1);
        let rest = u64::BITS - bits;
        let mut starts = vec![0; (1 << bits) + 1];
        for hash in hashes {
            // Counted one place ahead, so that the sums below are the starts.
            starts[(hash >> rest) as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        Self { starts: starts.into(), rest }
    }

    /// The entries with the leading bits of a hash.
    #[inline]
    fn range(&self, hash: u64) -> Range<usize> {
        let bits = (hash >> self.rest) as usize;
        self.starts[bits] as usize..self.starts[bits + 1] as usize
    }
}

impl RingSizes {
    /// The number of entries of a ring of endpoints with these weights, before it is rounded.
    pub(super) fn scale(self, weights: impl Iterator<Item = u64> + Clone) -> f64 {
        let sum: u64 = weights.clone().sum();
        let Some(least) = weights.map(|weight| weight as f64 / sum as f64).reduce(f64::min) else {
            return 0.0;
        };
        // So that the endpoint of the least weight has a whole number of entries, unless there are too many.
        ((least * f64::from(self.min)).ceil() / least).min(f64::from(self.max))
    }
}

/// The entries of all endpoints: their hashes, and the ranks of their endpoints.
fn entries(endpoints: &[RingEndpoint], sizes: RingSizes) -> Vec<(u64, u32)> {
    let sum: u64 = endpoints.iter().map(|endpoint| endpoint.weight).sum();
    let share = |endpoint: &RingEndpoint| endpoint.weight as f64 / sum as f64;
    let scale = sizes.scale(endpoints.iter().map(|endpoint| endpoint.weight));
    let mut entries = Vec::with_capacity(scale.ceil() as usize);
    // Sums over all endpoints, as in A42: to round the share of each would change the size of the ring.
    let (mut count, mut target) = (0.0, 0.0);
    let mut text = String::new();
    for (rank, endpoint) in (0_u32..).zip(endpoints) {
        target += scale * share(endpoint);
        text.clear();
        text.push_str(&endpoint.key);
        text.push('_');
        let prefix = text.len();
        let mut index = 0_u32;
        while count < target {
            text.truncate(prefix);
            // Writing to a text does not fail.
            let _ = write!(text, "{index}");
            entries.push((hash(text.as_bytes()), rank));
            index += 1;
            count += 1.0;
        }
    }
    entries
}

/// Builds a ring of 4,096 entries for endpoints with these keys, in ascending order, and returns the number of its entries. For the
/// bench `balance`.
#[cfg(feature = "fuzzing")]
pub(crate) fn build(keys: &[Arc<str>]) -> usize {
    let endpoints = keys.iter().map(|key| RingEndpoint { key: key.clone(), weight: 1 });
    let ring = Ring::new(endpoints.collect(), RingSizes { min: 4_096, max: 4_096 });
    ring.entries().hashes.len()
}

#[cfg(test)]
mod tests;
