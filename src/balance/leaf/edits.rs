//! Updates that change some of many endpoints.

use std::{collections::BTreeSet, sync::Arc};

use super::{Leaf, Scope};
use crate::balance::{
    breaker::Breaker,
    cluster_endpoint::{EndpointKey, EndpointSpec},
    lists::PriorityLists,
    policy::{EndpointConfig, LeafConfig, LocalityConfig},
    released_connections::ReleasedConnections,
};

/// The part of a group's endpoints that is replaced.
#[derive(Debug)]
pub(super) struct Edit {
    priority: usize,
    group: usize,
    at: usize,
    removed: usize,
    inserted: Vec<EndpointSpec>,
}

impl<H: Clone> Leaf<H> {
    /// What the next configuration changes, if that is not most of the endpoints, and nothing else. The result of
    /// [`apply`](Self::apply) is then that of a complete update, in less time.
    ///
    /// Endpoints that are listed twice or have several addresses, and policies that look at all endpoints, are left to complete
    /// updates.
    pub(super) fn edits(&self, config: &LeafConfig, breaker: &Arc<Breaker>) -> Option<Vec<Edit>> {
        let is_same = Arc::ptr_eq(&self.breaker, breaker)
            && self.config.policy == config.policy
            && self.config.outlier_detection == config.outlier_detection
            && self.config.max_connections == config.max_connections
            && config.policy.policy.is_incremental()
            && are_alike(&self.config.priorities, &config.priorities)
            && self.are_labels_same(&config.priorities);
        if !is_same {
            return None;
        }
        let mut edits = Vec::new();
        for (priority, localities) in config.priorities.iter().enumerate() {
            let Some(Some(groups)) = self.priorities.get(priority) else { continue };
            if !config.policy.by_locality {
                edits.extend(self.edit((priority, 0), groups, localities)?);
                continue;
            }
            for (group, locality) in localities.chunks(1).enumerate() {
                edits.extend(self.edit((priority, group), groups, locality)?);
            }
        }
        self.are_independent(&edits).then_some(edits)
    }

    /// Replaces endpoints. Removed ones give their connections to inserted ones with their addresses (CH3.7).
    pub(super) fn apply(&mut self, edits: Vec<Edit>, scope: &mut Scope<'_>) {
        self.published = None;
        let mut removed = Vec::new();
        for edit in &edits {
            removed.extend(self.remove(edit));
        }
        let mut released = self.surrender_removed(&removed, &edits);
        let inserted = edits.iter().flat_map(|edit| &edit.inserted);
        self.surrender_hosts(inserted.flat_map(|config| &config.destinations), &mut released);
        for edit in edits {
            self.insert(edit, &mut released, scope);
        }
        if !released.is_empty() {
            self.keep_moved(&mut released, scope);
        }
        self.choose(scope);
        self.keep_hosts(&mut released, scope);
        released.release(scope.commands);
    }

    /// The edit of a group, or `None` within if there is none. `None` if most endpoints change, or one of them is not simple.
    fn edit(
        &self,
        (priority, group): (usize, usize),
        groups: &PriorityLists<H>,
        localities: &[LocalityConfig],
    ) -> Option<Option<Edit>> {
        let members = groups.members(group)?;
        let next = || localities.iter().flat_map(|locality| &locality.endpoints);
        let count: usize = localities.iter().map(|locality| locality.endpoints.len()).sum();
        let is_kept = |(member, endpoint): &(&usize, &EndpointConfig)| self.members[**member].is_as(endpoint);
        let at = members.iter().zip(next()).take_while(is_kept).count();
        let rest = members.len().min(count) - at;
        let after = members.iter().rev().zip(next().rev()).take(rest).take_while(is_kept).count();
        let (removed, inserted) = (members.len() - at - after, count - at - after);
        if removed == 0 && inserted == 0 {
            return Some(None);
        }
        if removed + inserted > members.len() {
            return None;
        }
        let inserted = next().skip(at).take(inserted).map(EndpointSpec::of).collect();
        Some(Some(Edit { priority, group, at, removed, inserted }))
    }

    /// Whether each endpoint is in one place, has one address, and comes from nowhere but the places that are edited.
    fn are_independent(&self, edits: &[Edit]) -> bool {
        let removed: BTreeSet<_> = edits.iter().flat_map(|edit| self.removed(edit).iter().copied()).collect();
        let mut keys = BTreeSet::new();
        edits.iter().flat_map(|edit| &edit.inserted).all(|config| {
            let known = self.by_key.get(&config.key);
            config.destinations.len() == 1
                && keys.insert(&config.key)
                && known.is_none_or(|member| removed.contains(member))
        }) && self.members.iter().all(|(_, member)| member.is_simple())
    }

    fn removed(&self, edit: &Edit) -> &[usize] {
        let groups = self.priorities.get(edit.priority).and_then(Option::as_ref);
        let members = groups.and_then(|groups| groups.members(edit.group)).unwrap_or_default();
        members.get(edit.at..edit.at + edit.removed).unwrap_or_default()
    }

    /// Takes the removed endpoints out of their places, and makes room for the inserted ones.
    fn remove(&mut self, edit: &Edit) -> Vec<usize> {
        let Edit { priority, group, at, removed, ref inserted } = *edit;
        let Some(Some(groups)) = self.priorities.get_mut(priority) else { return Vec::new() };
        let members = &mut self.members;
        let state = |member: usize| members[member].connectivity;
        let taken = groups.splice(group, (at, removed, inserted.len()), state);
        taken.iter().for_each(|member| members[*member].places.clear());
        for (index, member) in
            groups.members(group).unwrap_or_default().iter().enumerate().skip(at + inserted.len())
        {
            if let [place] = members[*member].places.as_mut_slice() {
                place.index = index;
            }
        }
        taken
    }

    /// Takes from removed endpoints what they have, unless they are inserted elsewhere.
    fn surrender_removed(&mut self, removed: &[usize], edits: &[Edit]) -> ReleasedConnections<H> {
        let mut released = ReleasedConnections::new();
        let inserted: BTreeSet<&EndpointKey> =
            edits.iter().flat_map(|edit| &edit.inserted).map(|config| &config.key).collect();
        for member in removed {
            let key = self.members[*member].key();
            if inserted.contains(&key) {
                continue;
            }
            self.by_key.remove(&key);
            let it = self.members.remove(*member);
            it.timeout.map(|at| self.timeouts.remove(&(at, *member)));
            it.release_connections(&mut released);
        }
        released
    }

    fn insert(&mut self, edit: Edit, released: &mut ReleasedConnections<H>, scope: &mut Scope<'_>) {
        let Edit { priority, group, at, inserted, .. } = edit;
        for (index, config) in inserted.into_iter().enumerate() {
            let member = self.member(config, released, scope);
            self.label(member, (priority, group, at + index));
            self.settle(member, scope);
            let Some(Some(groups)) = self.priorities.get_mut(priority) else { return };
            let place = groups.fill((priority, group, at + index), (member, &self.members[member]));
            let is_started = groups.is_started;
            self.members[member].add_place(place);
            if is_started {
                self.members[member].start(scope);
                self.settle(member, scope);
            }
        }
    }
}

/// Whether two configurations differ in their endpoints alone.
fn are_alike(before: &[Vec<LocalityConfig>], next: &[Vec<LocalityConfig>]) -> bool {
    let is_alike = |(one, other): (&LocalityConfig, &LocalityConfig)| {
        one.locality == other.locality && one.weight == other.weight
    };
    before.len() == next.len()
        && before
            .iter()
            .zip(next)
            .all(|(before, next)| before.len() == next.len() && before.iter().zip(next).all(is_alike))
}
