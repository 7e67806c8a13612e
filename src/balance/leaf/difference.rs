//! What a configuration changes in the lists of a cluster's endpoints.
//!
//! Endpoints are known by their keys, so that those which are listed elsewhere keep their connections. Of a list that is kept, the part
//! between the endpoints that are the same at both ends is replaced: an update that changes a few of many endpoints costs what it
//! changes. A list that is rebuilt is one whose part is everything.

use std::ops::Range;

use super::endpoints::EndpointTable;
use crate::balance::{
    command::EndpointIndex,
    endpoint_spec::{EndpointSpec, ListPosition},
    lists::config::EndpointList,
    locality_config::EndpointConfig,
    policies::Policy,
};

/// The difference between the lists of two configurations.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// The endpoints that were taken out of lists. Most of them are in a [`Splice`] as well.
    pub(super) taken_out: Vec<EndpointIndex>,
    pub(super) splices: Vec<Splice>,
}

/// The endpoints of a part of a list.
#[derive(Debug)]
pub(super) struct Splice {
    /// Where the part begins.
    pub(super) first: ListPosition,
    /// The number of endpoints that were taken out there.
    pub(super) replaced: usize,
    /// The endpoints that are listed in their place.
    pub(super) inserted: Vec<EndpointSpec>,
}

impl Splice {
    /// All endpoints of a list that has none.
    pub(super) fn all_of(
        list: &EndpointList<'_>,
        index: usize,
        policy: &Policy,
        random: &mut fastrand::Rng,
    ) -> Self {
        let first = ListPosition { priority: list.priority, list: index, index: 0 };
        Self { first, replaced: 0, inserted: policy.members(list, random) }
    }

    /// What of a list's endpoints changes, if anything does. The policy has one connection for each of them.
    pub(super) fn between<H: Clone>(
        members: &[EndpointIndex],
        endpoints: &EndpointTable<H>,
        list: &EndpointList<'_>,
        index: usize,
    ) -> Option<Self> {
        let is_kept = |(member, endpoint): &(&EndpointIndex, &EndpointConfig)| {
            endpoints.listed(**member).is_as(endpoint)
        };
        let count = list.endpoints().count();
        let at = members.iter().zip(list.endpoints()).take_while(is_kept).count();
        // An endpoint that counts for the beginning must not count for the end as well.
        let rest = members.len().min(count) - at;
        let after = members.iter().rev().zip(list.endpoints().rev()).take(rest).take_while(is_kept).count();
        let (replaced, inserted) = (members.len() - at - after, count - at - after);
        if replaced == 0 && inserted == 0 {
            return None;
        }
        let inserted = list.endpoints().skip(at).take(inserted).map(EndpointSpec::of).collect();
        let first = ListPosition { priority: list.priority, list: index, index: at };
        Some(Self { first, replaced, inserted })
    }

    /// The indices of the list that are replaced.
    pub(super) fn range(&self) -> Range<usize> {
        self.first.index..self.first.index + self.replaced
    }
}
