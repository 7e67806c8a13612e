//! The sources of endpoints, each of which several clusters may use.
//!
//! Clusters share a source by its name, so that an update of endpoints is one event however many clusters use it. The nodes
//! know their sources, and the sources their users; tests compare both after each step.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use super::endpoints::{Endpoints, Source};

/// The watched sources of endpoints, each with the clusters that use it.
#[derive(Debug, Default)]
pub(super) struct EndpointSources {
    /// The sources in use.
    states: HashMap<Source, SourceState>,
}

#[derive(Debug, Default)]
struct SourceState {
    /// The clusters that use it. Never empty.
    users: BTreeSet<Arc<str>>,
    /// The endpoints; `None` before the first state.
    seen: Option<Endpoints>,
}

/// The effect of a new user of a source. The graph orders a watch for the first user alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joined {
    /// The cluster uses the source already.
    Before,
    /// The source has other clusters already.
    Second,
    /// No cluster used it: the source must be watched.
    First,
}

/// The effect of the end of a use. The graph ends the watch after the last user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// The source still has other clusters.
    InUse,
    /// No cluster uses it any more.
    Unused,
    /// The cluster did not use it. The graph takes this for a broken invariant.
    NotAUser,
}

impl EndpointSources {
    /// Stores the state of a source, and returns the clusters that it concerns.
    pub(super) fn on_endpoints(
        &mut self,
        source: &Source,
        seen: Endpoints,
    ) -> impl Iterator<Item = &Arc<str>> {
        // An update may be under way while its watch ends.
        let state = self.states.get_mut(source).map(|state| {
            state.seen = Some(seen);
            &*state
        });
        state.into_iter().flat_map(|state| &state.users)
    }

    /// The endpoints of a source, if they are known.
    pub(super) fn seen(&self, source: &Source) -> Option<&Endpoints> {
        self.states.get(source)?.seen.as_ref()
    }

    /// Adds a user of a source.
    pub(super) fn join(&mut self, source: &Source, name: &Arc<str>) -> Joined {
        let Some(state) = self.states.get_mut(source) else {
            // The first user adds the source.
            let users = BTreeSet::from([name.clone()]);
            self.states.insert(source.clone(), SourceState { users, seen: None });
            return Joined::First;
        };
        if state.users.insert(name.clone()) { Joined::Second } else { Joined::Before }
    }

    /// Removes a user of a source.
    pub(super) fn leave(&mut self, source: &Source, name: &Arc<str>) -> Left {
        let Some(state) = self.states.get_mut(source) else { return Left::NotAUser };
        if !state.users.remove(name) {
            return Left::NotAUser;
        }
        if !state.users.is_empty() {
            return Left::InUse;
        }
        self.states.remove(source);
        Left::Unused
    }

    /// The sources with their users, to be compared with the nodes.
    #[cfg(test)]
    pub(super) fn uses(&self) -> BTreeSet<(&Arc<str>, &Source)> {
        let uses =
            self.states.iter().flat_map(|(source, state)| state.users.iter().map(move |user| (user, source)));
        uses.collect()
    }
}
