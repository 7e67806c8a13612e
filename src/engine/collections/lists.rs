//! List collections: a resource that lists others, whose members are fetched by their names or come inline (X12 to X14).

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    super::{
        Refusal,
        delivery::Delivery,
        store::{Collection, CollectionKey, Store},
    },
    Follower, Indirections, publish_seen,
};
use crate::{
    base::WatchId,
    error::{Subject, WatchError},
    invariant,
    name::ResourceName,
    observed::ErasedObserved,
    protocol::TypeId,
    resource::{Inline, List, ListEntry, Version},
};

/// All watched lists, and lists with a watched entry.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: BTreeMap<CollectionKey, Members>,
    entries: BTreeMap<WatchId, InlineEntry>,
}

/// The members of a list.
#[derive(Debug)]
struct Members {
    /// The watch of the list.
    watch_id: WatchId,
    /// The name of the list as it was requested.
    name: Arc<str>,
    members: BTreeMap<Arc<str>, Member>,
    /// The number of members without a state yet.
    unknown: usize,
}

#[derive(Debug)]
enum Member {
    Locator { target: ResourceName, watch_id: WatchId, known: bool },
    Inline { bytes: Bytes, version: Version, warning: Option<WatchError> },
}

/// One inline entry with a watch of its own.
#[derive(Debug)]
pub(super) struct InlineEntry {
    ty: TypeId,
    pub(super) list: WatchId,
    pub(super) about: Subject,
    pub(super) entry: String,
    published: Option<ErasedObserved>,
}

/// The state of a list that its inline members share.
type ListState<'a> = (&'a Version, &'a Option<WatchError>);

impl Lists {
    /// A watched inline entry.
    pub(super) fn inline_entry(&self, watch_id: WatchId) -> Option<&InlineEntry> {
        self.entries.get(&watch_id)
    }
}

/// The type of lists of a type's resources.
pub(in crate::engine) fn list_type(store: &mut Store, ty: TypeId) -> Result<TypeId, Refusal> {
    let list = store.ty(ty).list();
    let list = list.ok_or_else(|| Refusal::invalid("there are no list collections of this type"))?;
    let id = store.type_id(list);
    match store.ty(id).is_list() {
        true => Ok(id),
        false => Err(Refusal::invalid("the type of the list is watched as a type of the application")),
    }
}

impl Indirections {
    /// Begins a watch of all members of a list, which is of the type `list_ty`.
    pub(in crate::engine) fn begin_list(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        (key, list_ty, name): (&CollectionKey, TypeId, &ResourceName),
    ) {
        let collection = store.members.begin(key.clone(), Collection::default);
        collection.watches.push(watch_id);
        if collection.complete || collection.warning.is_some() || !collection.members.is_empty() {
            store.members.touch(key);
        }
        if let btree_map::Entry::Vacant(place) = self.lists.lists.entry(key.clone()) {
            let watch_id = delivery.next_watch_id();
            place.insert(Members { watch_id, name: name.canonical(), members: BTreeMap::new(), unknown: 0 });
            self.edges.insert(watch_id, Follower::List(key.clone()));
            self.subscribe(watch_id, store.ty(list_ty), name.clone());
        }
    }

    pub(in crate::engine) fn end_list(&mut self, store: &mut Store, watch_id: WatchId, key: &CollectionKey) {
        let Some(collection) = store.members.get_mut(key) else {
            invariant::broken("a list that is watched is a collection");
            return;
        };
        collection.watches.retain(|other| *other != watch_id);
        if !collection.watches.is_empty() {
            return;
        }
        store.members.end(key);
        let Some(list) = self.lists.lists.remove(key) else {
            invariant::broken("a list that is watched has members");
            return;
        };
        self.unfollow(list.watch_id);
        for member in list.members.into_values() {
            self.unfollow_member(member);
        }
    }

    /// The list, or its error, is known.
    pub(super) fn update_list(&mut self, store: &mut Store, delivery: &mut Delivery, key: &CollectionKey) {
        // It may have ended meanwhile.
        let Some(watch_id) = self.lists.lists.get(key).map(|list| list.watch_id) else { return };
        match self.look(store, delivery, watch_id) {
            None => {}
            Some(ErasedObserved::Present { resource, version, warning }) => {
                if let Ok(list) = resource.downcast::<List>() {
                    set_warning(store, key, warning.clone());
                    self.update_members(store, delivery, key, (&list, (&version, &warning)));
                }
            }
            Some(ErasedObserved::Absent { reason }) => {
                let is_known = !reason.is_of_server();
                set_warning(store, key, Some(reason));
                if is_known {
                    let nothing = List { entries: Vec::new() };
                    self.update_members(store, delivery, key, (&nothing, (&Version::default(), &None)));
                }
            }
        }
    }

    /// Sets the members of a list: ends the watches of removed ones, and begins those of new ones.
    fn update_members(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        key: &CollectionKey,
        (list, state): (&List, ListState<'_>),
    ) {
        // It may have ended meanwhile.
        let Some(known) = self.lists.lists.get_mut(key) else { return };
        let mut before = std::mem::take(&mut known.members);
        let name = known.name.clone();
        let mut listed = BTreeMap::new();
        for (index, entry) in list.entries.iter().enumerate() {
            listed.entry(entry_name(&name, index, entry)).or_insert(entry);
        }
        let mut members = BTreeMap::new();
        for (name, entry) in listed {
            let old = before.remove(&name);
            let member = match entry {
                ListEntry::Locator(locator) => {
                    self.locate_member((store, delivery), (key, &name), old, locator)
                }
                ListEntry::Inline(inline) => {
                    let member = set_inline(store, (key, &name), old.as_ref(), (inline, state));
                    old.into_iter().for_each(|old| self.unfollow_member(old));
                    member
                }
            };
            members.insert(name, member);
        }
        for (name, member) in before {
            store.members.remove(key, &name);
            self.unfollow_member(member);
        }
        let is_unknown = |member: &&Member| matches!(member, Member::Locator { known: false, .. });
        let unknown = members.values().filter(is_unknown).count();
        if let Some(known) = self.lists.lists.get_mut(key) {
            (known.members, known.unknown) = (members, unknown);
        }
        if unknown == 0 {
            store.members.complete(key);
        }
    }

    fn locate_member(
        &mut self,
        (store, delivery): (&Store, &mut Delivery),
        (key, name): (&CollectionKey, &Arc<str>),
        old: Option<Member>,
        locator: &ResourceName,
    ) -> Member {
        // A member is requested by its locator: it need not have the context parameters of its list (X12).
        let target = locator.clone();
        match old {
            Some(Member::Locator { target: held, watch_id, known }) if held == target => {
                Member::Locator { target, watch_id, known }
            }
            old => {
                let watch_id = delivery.next_watch_id();
                self.edges.insert(watch_id, Follower::Member(key.clone(), name.clone()));
                self.subscribe(watch_id, store.ty(key.1), target.clone());
                old.into_iter().for_each(|old| self.unfollow_member(old));
                Member::Locator { target, watch_id, known: false }
            }
        }
    }

    /// The state of a fetched member has changed.
    pub(super) fn update_member(
        &mut self,
        store: &mut Store,
        delivery: &Delivery,
        (key, name): (&CollectionKey, &Arc<str>),
        watch_id: WatchId,
    ) {
        // Nothing is known yet.
        let Some(seen) = self.look(store, delivery, watch_id) else { return };
        // The list may have ended meanwhile, or may have another member of the name.
        let Some(list) = self.lists.lists.get_mut(key) else { return };
        let Some(Member::Locator { known, watch_id: own, .. }) = list.members.get_mut(name) else { return };
        if *own != watch_id {
            return;
        }
        if !std::mem::replace(known, true) {
            list.unknown -= 1;
        }
        let is_complete = list.unknown == 0;
        let observed = store.ty(key.1).observe(seen);
        store.members.insert(key.clone(), name.clone(), observed);
        if is_complete {
            store.members.complete(key);
        }
    }

    fn unfollow_member(&mut self, member: Member) {
        match member {
            Member::Locator { watch_id, .. } => self.unfollow(watch_id),
            Member::Inline { .. } => {}
        }
    }

    /// Begins a watch of one inline entry of a list.
    pub(in crate::engine) fn begin_inline(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        (ty, name, entry): (TypeId, &ResourceName, &str),
    ) -> Result<(), Refusal> {
        let list_ty = list_type(store, ty)?;
        let list = delivery.next_watch_id();
        let about = store.subject_of(ty, name.to_string().into());
        let one = InlineEntry { ty, list, about, entry: entry.to_owned(), published: None };
        self.lists.entries.insert(watch_id, one);
        self.edges.insert(list, Follower::Inline(watch_id));
        self.subscribe(list, store.ty(list_ty), name.without_directives());
        Ok(())
    }

    pub(super) fn end_inline(&mut self, watch_id: WatchId) {
        if let Some(entry) = self.lists.entries.remove(&watch_id) {
            self.unfollow(entry.list);
        }
    }

    pub(super) fn publish_inline(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        // Nothing is known yet.
        let Some(seen) = self.look(store, delivery, watch_id) else { return };
        // It may have ended meanwhile.
        let Some(entry) = self.lists.entries.get_mut(&watch_id) else { return };
        if entry.published.as_ref().is_some_and(|published| published.is_same(&seen)) {
            return;
        }
        entry.published = Some(seen.clone());
        publish_seen(store, delivery, (watch_id, entry.ty), seen);
    }
}

fn set_inline(
    store: &mut Store,
    (key, name): (&CollectionKey, &Arc<str>),
    old: Option<&Member>,
    (inline, (version, warning)): (&Inline, ListState<'_>),
) -> Member {
    let version = if inline.version.is_empty() { version } else { &inline.version };
    let new =
        Member::Inline { bytes: inline.bytes.clone(), version: version.clone(), warning: warning.clone() };
    if !old.is_some_and(|old| old.is_same(&new)) {
        let seen = ErasedObserved::Present {
            resource: inline.resource.clone(),
            version: version.clone(),
            warning: warning.clone(),
        };
        let observed = store.ty(key.1).observe(seen);
        store.members.insert(key.clone(), name.clone(), observed);
    }
    new
}

fn set_warning(store: &mut Store, key: &CollectionKey, warning: Option<WatchError>) {
    if let Some(collection) = store.members.get_mut(key)
        && collection.warning != warning
    {
        collection.warning = warning;
        store.members.touch(key);
    }
}

impl Member {
    /// Whether it is the same resource in the same state.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Inline { bytes, version, warning },
                Self::Inline { bytes: others, version: other, warning: theirs },
            ) => bytes == others && version == other && warning == theirs,
            (Self::Locator { .. }, _) | (_, Self::Locator { .. }) => false,
        }
    }
}

/// The name under which an entry is a member.
fn entry_name(list: &str, index: usize, entry: &ListEntry) -> Arc<str> {
    match entry {
        ListEntry::Locator(locator) => locator.to_string().into(),
        ListEntry::Inline(inline) if inline.name.is_empty() => format!("{list}#{index}").into(),
        ListEntry::Inline(inline) => format!("{list}#entry={}", inline.name).into(),
    }
}
