//! The watches of route configurations.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::Output;
use crate::{observed::Observed, resource::RouteConfiguration};

/// The route configurations that the active and the pending configuration name, each watched once.
#[derive(Debug, Default)]
pub(super) struct RouteWatches {
    states: BTreeMap<Arc<str>, Arc<Observed<RouteConfiguration>>>,
}

impl RouteWatches {
    /// Watches these names and no others; a name that stays keeps its watch and its state.
    pub(super) fn watch(&mut self, names: &BTreeSet<Arc<str>>, outputs: &mut Vec<Output>) {
        self.states.retain(|name, _| {
            let is_kept = names.contains(name);
            if !is_kept {
                outputs.push(Output::EndRoutes(name.clone()));
            }
            is_kept
        });
        for name in names {
            if !self.states.contains_key(name) {
                self.states.insert(name.clone(), Arc::new(Observed::Pending));
                outputs.push(Output::WatchRoutes(name.clone()));
            }
        }
    }

    /// Sets the state of a route configuration; `false` if it is not watched any more.
    pub(super) fn set(&mut self, name: &str, observed: Arc<Observed<RouteConfiguration>>) -> bool {
        let Some(state) = self.states.get_mut(name) else { return false };
        // What is known is never unknown again.
        if !observed.is_pending() {
            *state = observed;
        }
        true
    }

    /// The state of a watched route configuration.
    pub(super) fn get(&self, name: &str) -> Option<&Observed<RouteConfiguration>> {
        self.states.get(name).map(|state| &**state)
    }

    /// The names among these whose state is not known.
    pub(super) fn unsettled<'a>(
        &'a self,
        names: &'a BTreeSet<Arc<str>>,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        // SV7.2: an absence settles as well.
        names.iter().filter(|name| self.get(name).is_none_or(Observed::is_pending))
    }
}
