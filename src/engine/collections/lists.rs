//! List collections: a resource that lists others, whose members are fetched by their names or come inline (X12 to X14).

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use bytes::Bytes;

use super::{
    super::{
        delivery::Delivery,
        selection::{Refusal, TypedName},
        store::{Collection, CollectionKey, Store},
    },
    Follower, Indirections,
    list_globs::{GlobMembers, MemberChange},
    publish_seen,
};
use crate::{
    base::WatchId,
    error::{Subject, WatchError},
    invariant,
    name::ResourceName,
    observed::{ErasedMembers, ErasedObserved},
    protocol::TypeId,
    resource::{Erased, Inline, List, ListEntry, Version},
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
    globs: GlobMembers,
    /// The number of members, and of globs, without a state yet.
    unknown: usize,
    /// The warning of the list itself.
    warning: Option<WatchError>,
}

#[derive(Debug)]
enum Member {
    Locator {
        target: ResourceName,
        watch_id: WatchId,
        known: bool,
    },
    /// A glob, of which the members are members of the list.
    Glob {
        watch_id: WatchId,
        known: bool,
    },
    Inline {
        bytes: Bytes,
        version: Version,
        warning: Option<WatchError>,
    },
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

/// The name of a member, or of a glob, in a list.
#[derive(Debug, Clone)]
pub(super) struct ListedName {
    list: CollectionKey,
    /// The text of a locator; of an inline entry the name of the list with its own name, or its index, as fragment.
    name: Arc<str>,
}

/// The state of a list that its inline members share.
#[derive(Clone, Copy)]
struct ListState<'a> {
    version: &'a Version,
    warning: Option<&'a WatchError>,
}

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
    /// Begins a watch of all members of a list, whose own name and type are `list`.
    pub(in crate::engine) fn begin_list(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        key: &CollectionKey,
        list: TypedName<'_>,
    ) {
        let collection = store.members.begin(key.clone(), Collection::default);
        collection.watches.push(watch_id);
        if collection.complete || collection.warning.is_some() || !collection.members.is_empty() {
            store.members.touch(key);
        }
        if let btree_map::Entry::Vacant(place) = self.lists.lists.entry(key.clone()) {
            let watch_id = delivery.next_watch_id();
            place.insert(Members::new(watch_id, list.name.canonical()));
            self.edges.insert(watch_id, Follower::List(key.clone()));
            self.subscribe(watch_id, store.ty(list.ty), list.name.clone());
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
                    self.set_warning(store, key, warning.clone());
                    let state = ListState { version: &version, warning: warning.as_ref() };
                    self.update_members(store, delivery, key, &list, state);
                }
            }
            Some(ErasedObserved::Absent { reason }) => {
                let is_known = !reason.is_of_server();
                self.set_warning(store, key, Some(reason));
                if is_known {
                    let nothing = List { entries: Vec::new() };
                    let state = ListState { version: &Version::default(), warning: None };
                    self.update_members(store, delivery, key, &nothing, state);
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
        list: &List,
        state: ListState<'_>,
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
            let listed = ListedName { list: key.clone(), name };
            let member = match entry {
                ListEntry::Locator(locator) if locator.is_glob() => {
                    self.locate_glob(store, delivery, &listed, old, locator)
                }
                ListEntry::Locator(locator) => self.locate_member(store, delivery, &listed, old, locator),
                ListEntry::Inline(inline) => {
                    let member = set_inline(store, &listed, old.as_ref(), inline, state);
                    old.into_iter().for_each(|old| self.unfollow_member(old));
                    member
                }
            };
            members.insert(listed.name, member);
        }
        // It cannot have ended meanwhile.
        let Some(known) = self.lists.lists.get_mut(key) else { return };
        known.unknown = members.values().filter(|member| member.is_unknown()).count();
        known.members = members;
        let is_complete = known.unknown == 0;
        for (name, member) in &before {
            known.remove(store, key, name, member);
        }
        for member in before.into_values() {
            self.unfollow_member(member);
        }
        self.publish_warning(store, key);
        if is_complete {
            store.members.complete(key);
        }
    }

    fn locate_glob(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        listed: &ListedName,
        old: Option<Member>,
        locator: &ResourceName,
    ) -> Member {
        // The name is that of the locator, with its alternatives.
        if let Some(old @ Member::Glob { .. }) = old {
            return old;
        }
        let watch_id = delivery.next_watch_id();
        self.edges.insert(watch_id, Follower::Glob(listed.clone()));
        self.subscribe_collection(watch_id, store.ty(listed.list.ty), locator.clone());
        Member::Glob { watch_id, known: false }
    }

    /// The members of a glob in a list have changed.
    pub(super) fn update_glob(
        &mut self,
        store: &mut Store,
        ListedName { list: key, name }: &ListedName,
        watch_id: WatchId,
        observed: &Erased,
    ) {
        let Some(seen) = observed.downcast_ref::<ErasedMembers>() else {
            invariant::broken("the state of a glob is that of its members");
            return;
        };
        // The list may have ended meanwhile, or may have lost the glob.
        let Some(list) = self.lists.lists.get_mut(key) else { return };
        let Some(Member::Glob { known, watch_id: own }) = list.members.get_mut(name) else { return };
        if *own != watch_id {
            return;
        }
        if (seen.complete || seen.warning.is_some()) && !std::mem::replace(known, true) {
            list.unknown -= 1;
        }
        let is_complete = list.unknown == 0;
        let changes = list.globs.update(name, seen);
        list.apply(store, key, changes);
        self.publish_warning(store, key);
        if is_complete {
            store.members.complete(key);
        }
    }

    /// Sets the warning of the list itself.
    fn set_warning(&mut self, store: &mut Store, key: &CollectionKey, warning: Option<WatchError>) {
        if let Some(list) = self.lists.lists.get_mut(key) {
            list.warning = warning;
        }
        self.publish_warning(store, key);
    }

    /// Publishes the warning of the list, or else that of the first glob that has one.
    fn publish_warning(&self, store: &mut Store, key: &CollectionKey) {
        let Some(list) = self.lists.lists.get(key) else { return };
        let warning = list.warning.as_ref().or_else(|| list.globs.warning()).cloned();
        if let Some(collection) = store.members.get_mut(key)
            && collection.warning != warning
        {
            collection.warning = warning;
            store.members.touch(key);
        }
    }

    fn locate_member(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        listed: &ListedName,
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
                self.edges.insert(watch_id, Follower::Member(listed.clone()));
                self.subscribe(watch_id, store.ty(listed.list.ty), target.clone());
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
        ListedName { list: key, name }: &ListedName,
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
        let observed = store.ty(key.ty).observe(seen);
        store.members.insert(key.clone(), name.clone(), observed);
        if is_complete {
            store.members.complete(key);
        }
    }

    fn unfollow_member(&mut self, member: Member) {
        match member {
            Member::Locator { watch_id, .. } | Member::Glob { watch_id, .. } => self.unfollow(watch_id),
            Member::Inline { .. } => {}
        }
    }

    /// Begins a watch of one inline entry of a list.
    pub(in crate::engine) fn begin_inline(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        TypedName { ty, name }: TypedName<'_>,
        entry: &str,
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
        publish_seen(store, delivery, watch_id, entry.ty, seen);
    }
}

fn set_inline(
    store: &mut Store,
    ListedName { list: key, name }: &ListedName,
    old: Option<&Member>,
    inline: &Inline,
    state: ListState<'_>,
) -> Member {
    let version = if inline.version.is_empty() { state.version } else { &inline.version };
    let warning = state.warning.cloned();
    let new =
        Member::Inline { bytes: inline.bytes.clone(), version: version.clone(), warning: warning.clone() };
    if !old.is_some_and(|old| old.is_same(&new)) {
        let seen =
            ErasedObserved::Present { resource: inline.resource.clone(), version: version.clone(), warning };
        let observed = store.ty(key.ty).observe(seen);
        store.members.insert(key.clone(), name.clone(), observed);
    }
    new
}

impl Members {
    fn new(watch_id: WatchId, name: Arc<str>) -> Self {
        let (members, globs) = (BTreeMap::new(), GlobMembers::default());
        Self { watch_id, name, members, globs, unknown: 0, warning: None }
    }

    /// An entry was removed from the list.
    fn remove(&mut self, store: &mut Store, key: &CollectionKey, name: &Arc<str>, member: &Member) {
        let changes = match member {
            Member::Glob { .. } => self.globs.remove(name),
            // A glob may have it as well.
            Member::Locator { .. } | Member::Inline { .. } => {
                vec![(name.clone(), self.globs.get(name).cloned())]
            }
        };
        self.apply(store, key, changes);
    }

    /// Publishes changed members of globs, unless the list names them itself: then they have a watch of their own.
    fn apply(&self, store: &mut Store, key: &CollectionKey, changes: Vec<MemberChange>) {
        for (name, member) in changes {
            match member {
                _ if self.members.contains_key(&name) => {}
                Some(member) => store.members.insert(key.clone(), name, member.0),
                None => store.members.remove(key, &name),
            }
        }
    }
}

impl Member {
    fn is_unknown(&self) -> bool {
        match self {
            Self::Locator { known, .. } | Self::Glob { known, .. } => !known,
            Self::Inline { .. } => false,
        }
    }

    /// Whether it is the same resource in the same state.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Inline { bytes, version, warning },
                Self::Inline { bytes: others, version: other, warning: theirs },
            ) => bytes == others && version == other && warning == theirs,
            (Self::Locator { .. } | Self::Glob { .. }, _) | (_, Self::Locator { .. } | Self::Glob { .. }) => {
                false
            }
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
