//! The endpoints of localities that are resources of their own (LEDS, A95): members of collections, by which an assignment is
//! completed before the clusters see it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    endpoints::{Endpoints, Source},
    orders::{Order, WatchKey},
    reference::Reference,
};
use crate::{
    observed::{ErasedMembers, Observed},
    resource::{ClusterLoadAssignment, Endpoint, endpoints::LedsLocality},
};

/// The assignments with such localities, and their collections. Other assignments pass through.
#[derive(Debug, Default)]
pub(super) struct Leds {
    /// The assignments that name collections, by their source. Each is completed anew when one of its collections changes.
    assignments: BTreeMap<Source, Assignment>,
    /// The collections.
    collections: BTreeMap<Reference, Collection>,
}

#[derive(Debug)]
struct Assignment {
    /// As it was sent.
    seen: Arc<Observed<ClusterLoadAssignment>>,
    /// The collections that it names.
    collections: BTreeSet<Reference>,
}

#[derive(Debug, Default)]
struct Collection {
    /// The sources of the assignments that name it. Never empty: the watch of a collection ends with its last user.
    users: BTreeSet<Source>,
    /// The members; `None` before the first state.
    seen: Option<Arc<ErasedMembers>>,
}

impl Leds {
    /// Handles an update of the endpoints at a source. Returns what the clusters see of it; `None` until its collections are known.
    ///
    /// Collections that the assignment named before and names still keep their watches.
    pub(super) fn on_endpoints(
        &mut self,
        source: &Source,
        seen: Endpoints,
        orders: &mut VecDeque<Order>,
    ) -> Option<Endpoints> {
        let Endpoints::Eds(observed) = &seen else { return Some(seen) };
        let localities = observed.resource().map_or(&[][..], |assignment| &assignment.leds_localities);
        if localities.is_empty() {
            self.release(source, orders);
            return Some(seen);
        }
        let collections: BTreeSet<_> = localities.iter().map(reference).collect();
        for collection in &collections {
            let known = self.collections.entry(collection.clone()).or_insert_with(|| {
                orders.push_back(Order::Watch(WatchKey::LbEndpoints(collection.clone())));
                Collection::default()
            });
            known.users.insert(source.clone());
        }
        let assignment = Assignment { seen: observed.clone(), collections: collections.clone() };
        let before = self.assignments.insert(source.clone(), assignment);
        for old in
            before.into_iter().flat_map(|before| before.collections).filter(|old| !collections.contains(old))
        {
            self.leave(source, &old, orders);
        }
        self.complete(source)
    }

    /// Handles an update of a collection. Returns what clusters see of the assignments that name it.
    pub(super) fn on_members(
        &mut self,
        collection: &Reference,
        seen: Arc<ErasedMembers>,
    ) -> Vec<(Source, Endpoints)> {
        // An update may be under way while its watch ends.
        let Some(known) = self.collections.get_mut(collection) else { return Vec::new() };
        known.seen = Some(seen);
        let users: Vec<_> = known.users.iter().cloned().collect();
        users.into_iter().filter_map(|source| self.complete(&source).map(|seen| (source, seen))).collect()
    }

    /// An assignment is not watched any more, or has no such localities.
    pub(super) fn release(&mut self, source: &Source, orders: &mut VecDeque<Order>) {
        let old = self.assignments.remove(source);
        for collection in old.into_iter().flat_map(|old| old.collections) {
            self.leave(source, &collection, orders);
        }
    }

    /// Ends the use of a collection by an assignment.
    fn leave(&mut self, source: &Source, collection: &Reference, orders: &mut VecDeque<Order>) {
        let Some(known) = self.collections.get_mut(collection) else { return };
        known.users.remove(source);
        if known.users.is_empty() {
            self.collections.remove(collection);
            orders.push_back(Order::Unwatch(WatchKey::LbEndpoints(collection.clone())));
        }
    }

    /// The assignment with the members of its collections; `None` while one of them is not known.
    ///
    /// What clusters saw before serves until then. A collection that is known to be absent counts as known: its locality has no
    /// endpoints, and the reason is the warning.
    fn complete(&self, source: &Source) -> Option<Endpoints> {
        let Assignment { seen, .. } = self.assignments.get(source)?;
        let Observed::Present { resource, version, warning, source } = &**seen else { return None };
        let mut endpoints = BTreeMap::new();
        let mut stale = warning.clone();
        for locality in &resource.leds_localities {
            let members = self.collections.get(&reference(locality))?.seen.as_ref()?;
            // Without a warning it is merely not received yet.
            if !members.complete && members.warning.is_none() {
                return None;
            }
            stale = stale.or_else(|| members.warning.clone());
            let present = members.map.values().filter_map(|member| member.typed::<Endpoint>().resource());
            let present: Vec<_> = present.map(|endpoint| Endpoint::clone(endpoint)).collect();
            endpoints.insert((locality.priority, &locality.locality), present);
        }
        let resource = Arc::new(resource.with_leds(endpoints));
        Some(Endpoints::Eds(Arc::new(Observed::Present {
            resource,
            version: version.clone(),
            warning: stale,
            source: source.clone(),
        })))
    }
}

/// The collection of a locality.
fn reference(locality: &LedsLocality) -> Reference {
    Reference { name: locality.collection.clone(), source: locality.source.clone() }
}
