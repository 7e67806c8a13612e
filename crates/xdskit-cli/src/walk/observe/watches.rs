//! The watches of the client, as streams of changes of the state.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
    ptr,
    sync::Arc,
};

use futures_util::{
    Stream, StreamExt,
    stream::{AbortHandle, Abortable, BoxStream, SelectAll},
};
use xdskit::{Client, Observed, Resource, client::Members, resource::Inspected};

use super::state::{ObservedMesh, Selection, Status};
use crate::{
    proxy_tree::{Assignment, Cluster, Content, Demand, Entry, Listener, RouteTable},
    watch::Target,
};

/// A change of what is known.
pub(super) type Update = Box<dyn FnOnce(&mut ObservedMesh) + Send>;

/// Changes of a watched resource, or of several.
type Updates = BoxStream<'static, Update>;

/// The watches of listeners, and of all that these lead to.
pub(super) struct Watches {
    /// The client of all watches.
    client: Client,
    /// The changes of all watched resources.
    pub(super) updates: SelectAll<Abortable<Updates>>,
    /// The watches of single resources that listeners lead to.
    followed: BTreeMap<(Followed, Arc<str>), AbortHandle>,
    /// Whether all clusters are watched, and none by its name.
    has_all_clusters: bool,
}

/// A type of resources that listeners lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Followed {
    /// Route configurations (RDS).
    Routes,
    /// Clusters (CDS).
    Cluster,
    /// Cluster load assignments (EDS).
    Endpoints,
}

impl Watches {
    /// The watches of the listeners of all targets.
    pub(super) fn new(client: Client, selections: &[Selection]) -> Self {
        // Like a proxy, which requests all clusters with all listeners. Some servers know no other requests of proxies.
        let has_all_clusters = selections.iter().any(|selection| selection.target().is_many());
        let mut updates = SelectAll::new();
        for (index, selection) in selections.iter().enumerate() {
            updates.push(never_aborted(listeners(&client, index, selection.target())));
        }
        if has_all_clusters {
            updates.push(never_aborted(all_clusters(&client)));
        }
        Self { client, updates, followed: BTreeMap::new(), has_all_clusters }
    }

    /// Watches what the listeners lead to, and nothing else.
    pub(super) fn follow(&mut self, state: &mut ObservedMesh) {
        let Demand { routes, clusters, endpoints } = state.demand();
        self.follow_type::<RouteTable>(Followed::Routes, routes, state);
        if !self.has_all_clusters {
            self.follow_type::<Cluster>(Followed::Cluster, clusters, state);
        }
        self.follow_type::<Assignment>(Followed::Endpoints, endpoints, state);
    }

    /// Watches the resources of a type that are needed now, and no longer those that are not.
    fn follow_type<C: Content>(&mut self, of: Followed, names: BTreeSet<Arc<str>>, state: &mut ObservedMesh) {
        self.followed.retain(|(kind, name), handle| {
            let is_needed = *kind != of || names.contains(name);
            if !is_needed {
                handle.abort();
                // Forgotten, since a state that is no longer watched is outdated when it is needed again.
                C::of(&mut state.mesh).set(name, None);
            }
            is_needed
        });
        for name in names {
            let Self { client, updates, followed, .. } = self;
            followed.entry((of, name)).or_insert_with_key(|(_, name)| {
                let (handle, registration) = AbortHandle::new_pair();
                updates.push(Abortable::new(single::<C>(client, name), registration));
                handle
            });
        }
    }
}

/// Updates that do not end.
fn never_aborted(updates: Updates) -> Abortable<Updates> {
    let (_, registration) = AbortHandle::new_pair();
    Abortable::new(updates, registration)
}

/// A resource by its name.
fn single<C: Content>(client: &Client, name: &Arc<str>) -> Updates {
    let name = name.clone();
    let changes = client.watch::<Inspected<C::Resource>>(&*name);
    let changes = changes.map(move |seen| {
        let (name, entry) = (name.clone(), Entry::<C>::of(&seen));
        Box::new(move |state: &mut ObservedMesh| C::of(&mut state.mesh).set(&name, entry)) as Update
    });
    changes.boxed()
}

/// The updates of all clusters.
fn all_clusters(client: &Client) -> Updates {
    let states = states::<<Cluster as Content>::Resource>(client, "*");
    let changes = states.map(|(before, now)| {
        Box::new(move |state: &mut ObservedMesh| {
            for Change { name, seen } in changes(before.as_deref(), &now) {
                // Those that were rejected are absent members.
                state.mesh.clusters.set(&name, seen.and_then(Entry::of));
            }
            if let Some(reason) = now.absence() {
                state.mesh.clusters.complete(Some(reason));
            } else if now.is_complete() {
                state.mesh.clusters.complete(None);
            }
        }) as Update
    });
    changes.boxed()
}

/// The listeners of the target of this index.
fn listeners(client: &Client, index: usize, target: &Target) -> Updates {
    if !target.is_many() {
        let name: Arc<str> = target.subscribed().into();
        let changes = client.watch::<Inspected<<Listener as Content>::Resource>>(&*name).map(move |seen| {
            let (name, entry) = (name.clone(), Entry::of(&seen));
            Box::new(move |state: &mut ObservedMesh| {
                if let Some(entry) = entry {
                    state.set_listener(index, &name, entry);
                    state.set_status(index, Status::Complete);
                }
            }) as Update
        });
        return changes.boxed();
    }
    let states = states::<<Listener as Content>::Resource>(client, target.subscribed());
    let changes = states.map(move |(before, now)| {
        Box::new(move |state: &mut ObservedMesh| {
            for Change { name, seen } in changes(before.as_deref(), &now) {
                match seen.and_then(Entry::of) {
                    Some(entry) => state.set_listener(index, &name, entry),
                    None => state.remove_listener(index, &name),
                }
            }
            if let Some(reason) = now.absence() {
                state.set_status(index, Status::Absent(reason));
            } else if now.is_complete() {
                state.set_status(index, Status::Complete);
            }
        }) as Update
    });
    changes.boxed()
}

/// The members of a collection, and those of its state before.
type Successive<R> = (Option<Arc<Members<Inspected<R>>>>, Arc<Members<Inspected<R>>>);

/// The states of a collection, each with the one before it.
fn states<R: Resource>(
    client: &Client,
    name: &str,
) -> impl Stream<Item = Successive<R>> + Send + 'static + use<R> {
    client.watch_all::<Inspected<R>>(name).scan(None, |before: &mut Option<Arc<_>>, now| {
        let before = before.replace(now.clone());
        ready(Some((before, now)))
    })
}

/// A member that differs from that of an earlier state.
struct Change<'a, R> {
    /// The name of the member.
    name: Arc<str>,
    /// `None` if it was removed.
    seen: Option<&'a Observed<Inspected<R>>>,
}

/// The members that differ.
fn changes<'a, R: Resource>(
    before: Option<&'a Members<Inspected<R>>>,
    now: &'a Members<Inspected<R>>,
) -> Vec<Change<'a, R>> {
    let earlier = |name: &str| before.and_then(|members| members.get(name));
    // States share their common members.
    let is_same = |name: &str, seen| earlier(name).is_some_and(|earlier| ptr::eq(earlier, seen));
    let changed = now.iter().filter(|(name, seen)| !is_same(name, *seen));
    let changed = changed.map(|(name, seen)| Change { name: name.clone(), seen: Some(seen) });
    let removed = before.into_iter().flat_map(Members::iter).filter(|(name, _)| now.get(name).is_none());
    changed.chain(removed.map(|(name, _)| Change { name: name.clone(), seen: None })).collect()
}
