//! The number of resources in each state of the cache (A78, A88): each change costs the same whatever the cache holds.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    cache::{Entry, ResourceState},
    protocol::{GroupId, TypeId},
};

/// The state of a resource, and whether a good one is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CacheState {
    state: ResourceState,
    held: bool,
}

/// The numbers, and the ones that have changed since they were read.
#[derive(Debug, Default)]
pub(crate) struct ResourceCounts {
    /// The number of entries for each key; none is 0.
    resources: BTreeMap<ResourceKey, u64>,
    /// The keys whose number has changed since it was read.
    changed: BTreeSet<ResourceKey>,
    /// Set with the first read: without a reader, unread changes keep nothing from being removed.
    is_read: bool,
}

/// What resources are counted by. The group comes first, so that those of one group are adjacent.
pub(crate) type ResourceKey = (GroupId, TypeId, CacheState);

impl CacheState {
    /// The first in their order.
    const FIRST: Self = Self { state: ResourceState::Requested, held: false };

    fn of(entry: &Entry) -> Self {
        Self { state: entry.state(), held: entry.is_held() }
    }

    /// The label of A78 and A88.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone show it"))]
    pub(crate) fn as_str(self) -> &'static str {
        match (self.state, self.held) {
            (ResourceState::Requested, _) => "requested",
            (ResourceState::Acked, _) => "acked",
            (ResourceState::Timeout, _) => "timeout",
            (ResourceState::DoesNotExist, false) => "does_not_exist",
            (ResourceState::DoesNotExist, true) => "does_not_exist_but_cached",
            (ResourceState::Nacked, false) => "nacked",
            (ResourceState::Nacked, true) => "nacked_but_cached",
            (ResourceState::ReceivedError, false) => "received_error",
            (ResourceState::ReceivedError, true) => "received_error_but_cached",
        }
    }
}

impl ResourceCounts {
    /// The counter of an entry.
    pub(crate) fn key(entry: &Entry) -> ResourceKey {
        (entry.group, entry.ty, CacheState::of(entry))
    }

    pub(crate) fn add(&mut self, entry: &Entry) {
        self.increment(Self::key(entry));
    }

    pub(crate) fn remove(&mut self, entry: &Entry) {
        self.decrement(Self::key(entry));
    }

    /// An entry that was counted as `before` has changed.
    pub(crate) fn update(&mut self, before: ResourceKey, entry: &Entry) {
        let after = Self::key(entry);
        if before != after {
            self.decrement(before);
            self.increment(after);
        }
    }

    /// Whether a group has entries: in O(log n), which `sweep` relies on.
    pub(crate) fn has_any_of(&self, group: GroupId) -> bool {
        let next = self.resources.range((group, TypeId(0), CacheState::FIRST)..).next();
        next.is_some_and(|(key, _)| key.0 == group)
    }

    /// Whether the numbers are read, and one of a group has changed since.
    pub(crate) fn has_unread_of(&self, group: GroupId) -> bool {
        let next = self.changed.range((group, TypeId(0), CacheState::FIRST)..).next();
        self.is_read && next.is_some_and(|key| key.0 == group)
    }

    /// The next number that has changed.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone read it"))]
    pub(crate) fn poll(&mut self) -> Option<(ResourceKey, u64)> {
        self.is_read = true;
        let key = self.changed.pop_first()?;
        Some((key, self.resources.get(&key).copied().unwrap_or_default()))
    }

    /// A group was removed: its changes are not read any more.
    pub(crate) fn forget_group(&mut self, group: GroupId) {
        let of_group = self.changed.range((group, TypeId(0), CacheState::FIRST)..);
        for key in of_group.copied().take_while(|key| key.0 == group).collect::<Vec<_>>() {
            self.changed.remove(&key);
        }
    }

    /// Whether the numbers are those of some entries.
    #[cfg(test)]
    pub(crate) fn check<'a>(&self, entries: impl Iterator<Item = &'a Entry>) {
        let mut recount = BTreeMap::<ResourceKey, u64>::new();
        entries.for_each(|entry| *recount.entry(Self::key(entry)).or_default() += 1);
        assert_eq!(self.resources, recount, "the counters are not those of the cache");
    }

    fn increment(&mut self, key: ResourceKey) {
        *self.resources.entry(key).or_default() += 1;
        self.changed.insert(key);
    }

    fn decrement(&mut self, key: ResourceKey) {
        match self.resources.get_mut(&key) {
            Some(count) if *count > 1 => *count -= 1,
            // A count of 0 would make an unused group look used.
            Some(_) => drop(self.resources.remove(&key)),
            None => debug_assert!(false, "what is counted no more was counted"),
        }
        self.changed.insert(key);
    }
}
