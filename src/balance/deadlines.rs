use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// When each of several state machines is due.
#[derive(Debug)]
pub(super) struct Deadlines<K> {
    by_time: BTreeSet<(Instant, K)>,
    /// The deadline of each state machine, to find it in `by_time`.
    by_key: BTreeMap<K, Instant>,
}

impl<K: Ord + Clone> Deadlines<K> {
    /// Sets when one is due.
    pub(super) fn set(&mut self, key: K, at: Option<Instant>) {
        if self.by_key.get(&key).copied() == at {
            return;
        }
        let before = match at {
            Some(at) => self.by_key.insert(key.clone(), at),
            None => self.by_key.remove(&key),
        };
        if let Some(before) = before {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, key));
        }
    }

    /// The earliest deadline.
    pub(super) fn first(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Returns what is due, the earliest first. Deadlines stay until they are set again.
    pub(super) fn due(&self, now: Instant) -> Vec<K> {
        self.by_time.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| key.clone()).collect()
    }
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}
