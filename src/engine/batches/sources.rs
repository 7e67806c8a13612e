//! What a consumer has subscribed to: names that come and go, and selections; each has a watch of the engine's own.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};

use crate::{
    base::WatchId,
    engine::Selection,
    error::WatchError,
    observed::{Erase, ErasedMembers, ErasedObserved, Member},
    resource::{Erased, Version},
};

/// The subscriptions of a consumer, and what the cache holds of them.
///
/// A resource may be in several, such as one that is subscribed by name and pushed as well: the consumer has it as long as one of them
/// has it.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The single names, in their canonical form.
    names: BTreeMap<Arc<str>, Name>,
    /// The selections of many resources: few.
    selections: Vec<Members>,
    /// The name that a watch is of.
    by_watch: BTreeMap<WatchId, Arc<str>>,
    /// The number of names whose state is not known yet.
    unknown: usize,
    /// The warnings of names, whether or not the resources are there.
    warnings: BTreeMap<Arc<str>, WatchError>,
    /// The names that are absent since the last batch, or for another reason than before.
    absent: BTreeSet<Arc<str>>,
}

/// A single name.
#[derive(Debug)]
struct Name {
    watch_id: WatchId,
    /// The latest state; `None` before the first one.
    latest: Option<Erased>,
}

/// A selection of many resources.
#[derive(Debug)]
struct Members {
    names: Selection,
    watch_id: WatchId,
    /// The latest value of the watch; `None` before the first one.
    latest: Option<Arc<ErasedMembers>>,
}

impl Sources {
    /// Adds a subscription. False if it is there already, or is none.
    pub(super) fn insert(&mut self, names: &Selection, watch_id: WatchId) -> bool {
        match names.single() {
            None if *names == Selection::Nothing => false,
            Some(name) if self.names.contains_key(&name) => false,
            Some(name) => {
                self.by_watch.insert(watch_id, name.clone());
                self.names.insert(name, Name { watch_id, latest: None });
                self.unknown += 1;
                true
            }
            None if self.selections.iter().any(|members| members.names == *names) => false,
            None => {
                self.selections.push(Members { names: names.clone(), watch_id, latest: None });
                true
            }
        }
    }

    /// Removes a subscription; returns its watch, and the names that it had.
    pub(super) fn remove(&mut self, names: &Selection) -> Option<(WatchId, Vec<Arc<str>>)> {
        let Some(name) = names.single() else {
            let index = self.selections.iter().position(|members| members.names == *names)?;
            let ended = self.selections.remove(index);
            let left = ended.latest.iter().flat_map(|latest| latest.map.keys().cloned());
            return Some((ended.watch_id, left.collect()));
        };
        let ended = self.names.remove(&name)?;
        self.by_watch.remove(&ended.watch_id);
        self.unknown -= usize::from(ended.latest.is_none());
        self.warnings.remove(&name);
        self.absent.remove(&name);
        Some((ended.watch_id, vec![name]))
    }

    /// The watches of all subscriptions.
    pub(super) fn watches(&self) -> impl Iterator<Item = WatchId> {
        self.names
            .values()
            .map(|name| name.watch_id)
            .chain(self.selections.iter().map(|members| members.watch_id))
    }

    /// The watches that a resource may belong to.
    pub(super) fn watches_of(&self, name: &str) -> impl Iterator<Item = WatchId> {
        let named = self.names.get(name).map(|name| name.watch_id);
        named.into_iter().chain(self.selections.iter().map(|members| members.watch_id))
    }

    /// The value of a watch. Returns the names that may have changed.
    pub(super) fn on_observed(
        &mut self,
        watch_id: WatchId,
        observed: &Erased,
        erase: Erase,
    ) -> Vec<Arc<str>> {
        if let Some(name) = self.by_watch.get(&watch_id).cloned() {
            self.on_name(&name, observed, erase);
            return vec![name];
        }
        let found = self.selections.iter_mut().find(|members| members.watch_id == watch_id);
        let (Some(members), Ok(latest)) = (found, observed.clone().downcast::<ErasedMembers>()) else {
            return Vec::new();
        };
        let before = members.latest.replace(latest.clone());
        let before = before.map(|before| before.map.clone()).unwrap_or_default();
        changed_names(&before, &latest.map)
    }

    fn on_name(&mut self, name: &Arc<str>, observed: &Erased, erase: Erase) {
        let Some(known) = self.names.get_mut(name) else { return };
        self.unknown -= usize::from(known.latest.is_none());
        known.latest = Some(observed.clone());
        let (warning, is_absent) = match erase(observed) {
            Some(ErasedObserved::Present { warning, .. }) => (warning, false),
            Some(ErasedObserved::Absent { reason }) => (Some(reason), true),
            None => (None, false),
        };
        let before = match &warning {
            Some(warning) => self.warnings.insert(name.clone(), warning.clone()),
            None => self.warnings.remove(name),
        };
        match is_absent {
            true if before != warning => drop(self.absent.insert(name.clone())),
            true => {}
            false => drop(self.absent.remove(name)),
        }
    }

    /// Whether the state of some subscription is known.
    pub(super) fn is_any_known(&self) -> bool {
        self.unknown < self.names.len() || self.selections.iter().any(|members| members.latest.is_some())
    }

    /// The resource of a name, and its version, if some subscription has it.
    pub(super) fn get(&self, name: &str, erase: Erase) -> Option<(Erased, Version)> {
        let named = self.names.get(name).and_then(|name| name.latest.as_ref());
        let members = self.selections.iter().filter_map(|members| members.latest.as_ref()?.map.get(name));
        named.into_iter().chain(members.map(|member| &member.0)).find_map(|observed| match erase(observed)? {
            ErasedObserved::Present { resource, version, .. } => Some((resource, version)),
            ErasedObserved::Absent { .. } => None,
        })
    }

    /// Whether the server has sent all that is subscribed.
    pub(super) fn is_complete(&self) -> bool {
        let is_complete = |members: &Members| members.latest.as_ref().is_some_and(|latest| latest.complete);
        self.unknown == 0 && self.selections.iter().all(is_complete)
    }

    /// The first warning: of the selections, and then of the names.
    pub(super) fn warning(&self) -> Option<WatchError> {
        let mut of_selections =
            self.selections.iter().filter_map(|members| members.latest.as_ref()?.warning.as_ref());
        of_selections.next().or_else(|| self.warnings.values().next()).cloned()
    }

    /// The names that are absent since the last time, with the reasons.
    pub(super) fn take_absent(&mut self) -> Vec<(Arc<str>, WatchError)> {
        let absent = mem::take(&mut self.absent).into_iter();
        absent.filter_map(|name| self.warnings.get(&name).cloned().map(|reason| (name, reason))).collect()
    }
}

/// The names whose values differ.
fn changed_names(before: &OrdMap<Arc<str>, Member>, after: &OrdMap<Arc<str>, Member>) -> Vec<Arc<str>> {
    let names = before.diff(after).map(|item| match item {
        DiffItem::Add(name, _) | DiffItem::Remove(name, _) => name.clone(),
        DiffItem::Update { new: (name, _), .. } => name.clone(),
    });
    names.collect()
}
