//! The priorities of a cluster, one of which is in use.

use std::{mem, sync::Arc, time::Instant};

use super::{
    cluster::{Cluster, ConfigChange},
    difference::{Difference, Splice},
    endpoints::EndpointTable,
};
use crate::balance::{
    cluster_endpoint::{ClusterEndpoint, EndpointChange},
    command::EndpointIndex,
    connect_request::ListId,
    connectivity::Connectivity,
    endpoint_spec::ListPosition,
    failover::Failover,
    lists::{PriorityLists, config::EndpointList},
};

/// The lists of the priorities that were created, and the choice among them.
#[derive(Debug)]
pub(super) struct Priorities<H> {
    /// The lists by priority. `None` for a priority that was not created, or was destroyed.
    lists: Vec<Option<PriorityLists<H>>>,
    /// The choice among the priorities, which is taken out while it is made.
    failover: Failover,
}

impl<H: Clone> Priorities<H> {
    /// Before the first choice.
    pub(super) fn new() -> Self {
        Self { lists: Vec::new(), failover: Failover::default() }
    }

    /// The lists of a priority, if it was created.
    pub(super) fn get(&self, priority: usize) -> Option<&PriorityLists<H>> {
        self.lists.get(priority)?.as_ref()
    }

    /// The lists of a priority, if it was created.
    pub(super) fn get_mut(&mut self, priority: usize) -> Option<&mut PriorityLists<H>> {
        self.lists.get_mut(priority)?.as_mut()
    }

    /// The number of priorities, some of which may not have been created.
    pub(super) fn len(&self) -> usize {
        self.lists.len()
    }

    /// The index of the priority in use.
    pub(super) fn chosen_index(&self) -> Option<usize> {
        self.failover.chosen()
    }

    /// The priority in use.
    pub(super) fn chosen(&self) -> Option<&PriorityLists<H>> {
        self.get(self.failover.chosen()?)
    }

    /// The priority in use.
    pub(super) fn chosen_mut(&mut self) -> Option<&mut PriorityLists<H>> {
        self.get_mut(self.failover.chosen()?)
    }

    /// The priority whose failure is that of the cluster: the one in use, or, if that is empty, the last one with endpoints.
    pub(super) fn failing(&self) -> Option<&PriorityLists<H>> {
        let has_endpoints = |lists: &&PriorityLists<H>| !lists.is_empty();
        self.chosen().filter(has_endpoints).or_else(|| self.lists.iter().rev().flatten().find(has_endpoints))
    }

    /// The connectivity of the priority in use.
    pub(super) fn connectivity(&self) -> Connectivity {
        self.chosen().map_or(Connectivity::TransientFailure, PriorityLists::connectivity)
    }

    /// The endpoint at an index of a list, if the list is still in use.
    pub(super) fn endpoint(&self, list: &ListId, index: usize) -> Option<EndpointIndex> {
        self.lists.iter().flatten().find_map(|lists| lists.endpoint(list, index))
    }

    /// When the choice may be another one.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.failover.poll_timeout()
    }

    /// The choice, to be made among so many priorities. [`set_choice`](Self::set_choice) follows.
    pub(super) fn take_choice(&mut self, count: usize) -> Failover {
        // Lists beyond the configuration stay until the choice has destroyed them.
        self.lists.resize_with(self.lists.len().max(count), || None);
        mem::take(&mut self.failover)
    }

    /// The choice was made among so many priorities.
    pub(super) fn set_choice(&mut self, failover: Failover, count: usize) {
        self.lists.truncate(count);
        self.failover = failover;
    }

    /// An endpoint has changed. Returns whether the picker is outdated by that.
    pub(super) fn on_changed(&mut self, change: &EndpointChange, endpoint: &ClusterEndpoint<H>) -> bool {
        let mut is_outdated = false;
        for position in endpoint.positions() {
            let lists = self.get_mut(position.priority);
            is_outdated |= lists.is_some_and(|lists| lists.on_changed(*position, change, endpoint));
        }
        is_outdated
    }

    /// An endpoint has another error, which is the newest one of its priorities.
    pub(super) fn set_error(&mut self, positions: &[ListPosition], error: &Arc<str>) {
        for position in positions {
            if let Some(lists) = self.get_mut(position.priority) {
                lists.error = Some(error.clone());
            }
        }
    }

    /// Compares the lists of the priorities that were created with those of the cluster's new configuration. Endpoints are taken out of
    /// the lists where others are to be; [`splice`](Self::splice) follows.
    pub(super) fn update(
        &mut self,
        cluster: &Cluster,
        change: ConfigChange,
        endpoints: &mut EndpointTable<H>,
        random: &mut fastrand::Rng,
    ) -> Difference {
        let mut difference = Difference::default();
        let policy = &cluster.config.policy;
        for (priority, created) in self.lists.iter_mut().enumerate() {
            let Some(lists) = created else { continue };
            let Some(localities) = cluster.config.priorities.get(priority) else {
                difference.taken_out.extend(take_out_all(lists, priority, endpoints));
                *created = None;
                continue;
            };
            let next = EndpointList::all(priority, localities, policy.by_locality);
            if change == ConfigChange::Endpoints {
                for (index, list) in next.iter().enumerate() {
                    let members = lists.members(index).unwrap_or_default();
                    let Some(splice) = Splice::between(members, endpoints, list, index) else { continue };
                    let range = splice.range();
                    difference.taken_out.extend(&members[range.clone()]);
                    // Now, while the counts have these states: an endpoint may take over a connection before it is listed again.
                    lists.take_out(index, range.clone(), |member| endpoints.connectivity(member));
                    let members = &lists.members(index).unwrap_or_default()[range.clone()];
                    endpoints.take_out_of_list(members, splice.first, &range);
                    difference.splices.push(splice);
                }
            } else {
                difference.taken_out.extend(take_out_all(lists, priority, endpoints));
                lists.rebuild(&next, &cluster.config, random);
                let all = next.iter().enumerate();
                let all = all.map(|(index, list)| Splice::all_of(list, index, &policy.policy, random));
                difference.splices.extend(all);
            }
        }
        difference
    }

    /// Creates a priority, whose lists have no endpoints before these are [listed](Self::splice). `None` if it is not configured.
    pub(super) fn create(
        &mut self,
        priority: usize,
        cluster: &Cluster,
        random: &mut fastrand::Rng,
    ) -> Option<Vec<Splice>> {
        let policy = &cluster.config.policy;
        let localities = cluster.config.priorities.get(priority)?;
        let next = EndpointList::all(priority, localities, policy.by_locality);
        let mut lists = PriorityLists::none();
        lists.rebuild(&next, &cluster.config, random);
        self.lists.resize_with(self.lists.len().max(priority + 1), || None);
        self.lists[priority] = Some(lists);
        let all = next.iter().enumerate();
        Some(all.map(|(index, list)| Splice::all_of(list, index, &policy.policy, random)).collect())
    }

    /// Lists endpoints from a position on, in place of those that were taken out there.
    pub(super) fn splice(
        &mut self,
        first: ListPosition,
        replaced: usize,
        inserted: &[EndpointIndex],
        endpoints: &mut EndpointTable<H>,
    ) {
        let Some(lists) = self.get_mut(first.priority) else { return };
        let range = first.index..first.index + replaced;
        lists.splice(first.list, range, inserted, |member| endpoints.listed(member));
        let members = lists.members(first.list).unwrap_or_default();
        endpoints.list(members, first, replaced, inserted.len());
    }

    /// Keeps a priority that was created although it is not needed.
    pub(super) fn retain(&mut self, priority: usize, now: Instant) {
        self.failover.retain(priority, now);
    }

    /// Ends a priority; returns the endpoints that it had.
    pub(super) fn destroy(
        &mut self,
        priority: usize,
        endpoints: &mut EndpointTable<H>,
    ) -> Vec<EndpointIndex> {
        let lists = self.lists.get_mut(priority).and_then(Option::take);
        lists.map(|lists| take_out_all(&lists, priority, endpoints)).unwrap_or_default()
    }

    /// Ends all priorities.
    pub(super) fn clear(&mut self) {
        self.lists.clear();
    }
}

/// Takes all endpoints out of a priority, and returns them.
fn take_out_all<H: Clone>(
    lists: &PriorityLists<H>,
    priority: usize,
    endpoints: &mut EndpointTable<H>,
) -> Vec<EndpointIndex> {
    let members = lists.list();
    endpoints.take_out_of_priority(&members, priority);
    members
}
