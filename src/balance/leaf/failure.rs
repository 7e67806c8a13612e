//! Why a cluster fails the calls that do not wait.

use std::sync::Arc;

use super::Leaf;
use crate::balance::{lists::PriorityLists, stale_config::with_stale_cluster};

impl<H: Clone> Leaf<H> {
    /// The priority whose failure is that of the cluster: the one in use, or, if that is empty, the last one with endpoints.
    pub(super) fn failing(&self) -> Option<&PriorityLists<H>> {
        let has_endpoints = |groups: &&PriorityLists<H>| !groups.is_empty();
        let others = self.priorities.iter().rev().flatten();
        self.chosen().filter(has_endpoints).or_else(|| others.into_iter().find(has_endpoints))
    }

    /// An endpoint has another error, which is the newest one of its priorities.
    pub(super) fn set_error(&mut self, member: usize, error: &Arc<str>) {
        let Some(it) = self.members.get(member) else { return };
        for place in &it.places {
            if let Some(Some(groups)) = self.priorities.get_mut(place.priority) {
                groups.error = Some(error.clone());
            }
        }
    }

    /// What is wrong with the cluster.
    pub(super) fn failure(&self) -> Arc<str> {
        let name = &self.name;
        match self.failing() {
            Some(groups) if groups.is_broken() => {
                format!("cluster {name}: the load balancing policy panicked").into()
            }
            Some(groups) if !groups.is_empty() => match (&groups.error, self.ejected(groups)) {
                (None, None) => self.no_endpoints(),
                (error, ejected) => {
                    let error = error.as_ref().map(|error| format!("the latest error is: {error}"));
                    let reasons: Vec<_> = ejected.into_iter().chain(error).collect();
                    let reason =
                        format!("cluster {name}: no endpoint can be reached, {}", reasons.join(", "));
                    with_stale_cluster(reason, self.config.note.as_deref()).into()
                }
            },
            Some(_) | None => self.no_endpoints(),
        }
    }

    /// How many endpoints of a priority are ejected, if any is.
    fn ejected(&self, groups: &PriorityLists<H>) -> Option<String> {
        let members = groups.list();
        let ejected = members.iter().filter(|member| self.members[**member].is_ejected()).count();
        let total = members.len();
        (ejected > 0).then(|| format!("{ejected} of {total} are ejected by outlier detection"))
    }

    fn no_endpoints(&self) -> Arc<str> {
        let name = &self.name;
        let reasons: Vec<_> = [&self.config.unusable, &self.config.note]
            .into_iter()
            .flatten()
            .map(|reason| &**reason)
            .collect();
        match &reasons[..] {
            [] => format!("cluster {name} has no usable endpoints").into(),
            reasons => format!("cluster {name} has no usable endpoints: {}", reasons.join("; ")).into(),
        }
    }
}
