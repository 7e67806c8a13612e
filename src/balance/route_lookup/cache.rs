//! The responses of a lookup service, and its failures, by key.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use super::key::LookupKey;
use crate::backoff::Backoff;

/// A response of the lookup service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The clusters for calls, the preferred one first. Not empty.
    pub(crate) targets: Box<[Arc<str>]>,
    /// The value of the header `x-google-rls-data` of the calls; empty for none.
    pub(crate) header_data: Arc<str>,
}

/// Entries by key, of a limited size: the least recently used one is evicted first.
#[derive(Debug)]
pub(super) struct Cache {
    entries: BTreeMap<LookupKey, Entry>,
    /// The keys by the number of their last use.
    by_use: BTreeMap<u64, LookupKey>,
    /// The number of the last use.
    last_use: u64,
    /// The sum of the sizes of all entries, in bytes.
    size: usize,
    max_size: usize,
    /// How many bytes there may be above the size because entries are young.
    young_size: usize,
    /// The number of entries that name each target.
    targets: BTreeMap<Arc<str>, usize>,
    /// There are other targets than at the last call of [`take_change`](Self::take_change).
    has_changed: bool,
}

/// What is known of a key.
#[derive(Debug)]
pub(super) struct Entry {
    /// The last response.
    pub(super) held: Option<Held>,
    /// The last failure since that response.
    pub(super) failure: Option<Failure>,
    last_use: u64,
    /// The size in bytes.
    size: usize,
    /// From when on the entry may be evicted for others.
    evictable_at: Instant,
}

/// A response with its ages.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) answer: Arc<Answer>,
    /// When a use requests another response; `None` for never.
    pub(super) stale_at: Option<Instant>,
    /// When the response is not used any more.
    pub(super) expires_at: Instant,
}

/// A failed lookup.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Arc<str>,
    /// The delays after the failures since the last response.
    pub(super) backoff: Backoff,
    /// When the next lookup may follow.
    pub(super) retry_at: Instant,
    /// When the failure is forgotten, with its backoff, unless a lookup followed.
    pub(super) expires_at: Instant,
}

impl Cache {
    /// Without entries. The sizes are in bytes: the largest one, and that of young entries above it.
    pub(super) fn new(max_size: usize, young_size: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_use: BTreeMap::new(),
            last_use: 0,
            size: 0,
            max_size,
            young_size,
            targets: BTreeMap::new(),
            has_changed: false,
        }
    }

    /// The entry of a key, which becomes the most recently used one.
    pub(super) fn use_entry(&mut self, key: &LookupKey) -> Option<&Entry> {
        let entry = self.entries.get_mut(key)?;
        self.last_use += 1;
        // The key in the cache stays, so that equal ones of calls are not kept.
        if let Some(key) = self.by_use.remove(&mem::replace(&mut entry.last_use, self.last_use)) {
            self.by_use.insert(self.last_use, key);
        }
        Some(entry)
    }

    /// The number of targets, those of a further response included.
    pub(super) fn targets_with(&self, answer: &Answer) -> usize {
        let new: BTreeSet<_> =
            answer.targets.iter().filter(|target| !self.targets.contains_key(*target)).collect();
        self.targets.len() + new.len()
    }

    /// Stores a response.
    pub(super) fn store(&mut self, key: LookupKey, held: Held, now: Instant) {
        self.remove(&key);
        self.insert(key, Some(held), None, now);
    }

    /// Stores a failure, beside the last response if there is one. `failure` has the backoff of the failure before.
    pub(super) fn store_failure(
        &mut self,
        key: LookupKey,
        failure: impl FnOnce(Option<Backoff>) -> Failure,
        now: Instant,
    ) {
        let before = self.remove(&key);
        let (held, backoff) =
            before.map_or((None, None), |entry| (entry.held, entry.failure.map(|failure| failure.backoff)));
        self.insert(key, held, Some(failure(backoff)), now);
    }

    /// Ends all backoffs.
    pub(super) fn reset_backoff(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.failure = None);
        self.retain(|entry| entry.held.is_some());
    }

    /// Removes the entries whose responses and failures are no longer used.
    pub(super) fn remove_expired(&mut self, now: Instant) {
        self.retain(|entry| {
            entry.held.as_ref().is_some_and(|held| held.expires_at > now)
                || entry.failure.as_ref().is_some_and(|failure| failure.expires_at > now)
        });
    }

    /// Sets the largest size in bytes.
    pub(super) fn resize(&mut self, max_size: usize, now: Instant) {
        self.max_size = max_size;
        self.evict(now);
    }

    /// Removes all entries, and sets the largest size in bytes.
    pub(super) fn clear(&mut self, max_size: usize) {
        self.has_changed |= !self.targets.is_empty();
        *self = Self { has_changed: self.has_changed, ..Self::new(max_size, self.young_size) };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The targets of all responses, if there are others than the last time.
    pub(super) fn take_change(&mut self) -> Option<BTreeSet<Arc<str>>> {
        mem::take(&mut self.has_changed).then(|| self.targets.keys().cloned().collect())
    }

    /// The number of entries, and the sum of their sizes in bytes.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.entries.len(), self.size)
    }

    /// Checks the sums.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert_eq!(self.entries.values().map(|entry| entry.size).sum::<usize>(), self.size);
        assert_eq!(self.entries.len(), self.by_use.len());
    }

    /// Adds an entry as the most recently used one. There is none with its key.
    fn insert(&mut self, key: LookupKey, held: Option<Held>, failure: Option<Failure>, now: Instant) {
        let mut size = ENTRY_SIZE + key.size();
        for target in held.iter().flat_map(|held| &held.answer.targets) {
            size += target.len();
            let entries = self.targets.entry(target.clone()).or_default();
            *entries += 1;
            self.has_changed |= *entries == 1;
        }
        size += held.as_ref().map_or(0, |held| held.answer.header_data.len());
        size += failure.as_ref().map_or(0, |failure| failure.reason.len());
        self.last_use += 1;
        self.size += size;
        self.by_use.insert(self.last_use, key.clone());
        let (last_use, evictable_at) = (self.last_use, now + MIN_EVICTION_AGE);
        self.entries.insert(key, Entry { held, failure, last_use, size, evictable_at });
        self.evict(now);
    }

    /// Evicts the least recently used entries above the size. A young entry ends that, as in gRPC: the calls that have waited for it are
    /// yet to use it. Young ones have a limit of their own.
    fn evict(&mut self, now: Instant) {
        while self.size > self.max_size && self.entries.len() > 1 {
            let Some((_, key)) = self.by_use.first_key_value() else { return };
            let is_young = self.entries.get(key).is_some_and(|entry| entry.evictable_at > now);
            if is_young && self.size <= self.max_size.saturating_add(self.young_size) {
                return;
            }
            let key = key.clone();
            self.remove(&key);
        }
    }

    /// Removes the entries that a condition does not hold for.
    fn retain(&mut self, stays: impl Fn(&Entry) -> bool) {
        let removed: Vec<_> =
            self.entries.iter().filter(|(_, entry)| !stays(entry)).map(|(key, _)| key.clone()).collect();
        for key in removed {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &LookupKey) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.last_use);
        self.size -= entry.size;
        for target in entry.held.iter().flat_map(|held| &held.answer.targets) {
            if let Some(entries) = self.targets.get_mut(target) {
                *entries -= 1;
                if *entries == 0 {
                    self.targets.remove(target);
                    self.has_changed = true;
                }
            }
        }
        Some(entry)
    }
}

/// The size of an entry beside its texts, in bytes: about what the maps and the texts have in bookkeeping.
const ENTRY_SIZE: usize = 512;
/// How long an entry is not evicted for others (as in gRPC).
const MIN_EVICTION_AGE: Duration = Duration::from_secs(5);
