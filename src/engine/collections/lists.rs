//! List collections: a resource that lists others, whose members are fetched by their names or come inline (X12 to X14).
//!
//! ```text
//!   list ──┬─ locator "xdstp://a/T/x" ──▶ watch ──▶ member, under the locator's name
//!          ├─ locator "xdstp://a/T/*" ──▶ watch of a glob ──▶ its members
//!          └─ inline entry            ──▶ member, in the version of the list unless it has its own
//! ```
//!
//! The members are in a collection of the store. It is complete when the list is known and each entry has a state; until
//! then watches see what is known, without the mark. An entry that stays in a new version of the list keeps its watch and
//! its state.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{
    super::{
        selection::Refusal,
        store::{CollectionKey, Store},
    },
    links::{Follow, Follower, Links, ListedName},
    list_globs::{GlobMembers, MemberChange},
};
use crate::{
    base::WatchId,
    error::{Subject, WatchError},
    invariant,
    name::ResourceName,
    observed::{ErasedMembers, ErasedObserved, ResourceSource},
    protocol::TypeId,
    resource::{Erased, Inline, List, ListEntry, ResourceType, Version},
};

/// All watched lists, and lists with a watched entry.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// The watched lists. Each of them is a collection of the store as well, which has its watches.
    lists: BTreeMap<CollectionKey, ListMembers>,
    /// The inline entries with a watch of their own, by that.
    entries: BTreeMap<WatchId, InlineEntry>,
}

/// The members of a list.
#[derive(Debug)]
struct ListMembers {
    /// The watch of the list.
    watch_id: WatchId,
    /// The name of the list as it was requested.
    name: Arc<str>,
    /// The entries by the names that the members have in the collection.
    members: BTreeMap<Arc<str>, Member>,
    /// The members of globs among the entries.
    globs: GlobMembers,
    /// The number of members, and of globs, without a state yet.
    unknown: usize,
    /// The warning of the list itself.
    warning: Option<WatchError>,
}

/// One entry of a list.
#[derive(Debug)]
enum Member {
    /// A resource that is fetched by a watch of its own.
    Locator { target: ResourceName, watch_id: WatchId, known: bool },
    /// A glob, of which the members are members of the list.
    Glob { watch_id: WatchId, known: bool },
    /// A resource in the list itself. It is compared with the next one of the name by its bytes.
    Inline { bytes: Bytes, version: Version, warning: Option<WatchError> },
}

/// One inline entry with a watch of its own.
#[derive(Debug)]
pub(super) struct InlineEntry {
    /// The type of the entry; the list is of another.
    pub(super) ty: TypeId,
    /// The watch of the list.
    pub(super) list: WatchId,
    /// The name and type in errors.
    pub(super) about: Subject,
    /// The name of the entry within the list (`#entry=`).
    pub(super) entry: String,
    /// The last published state, which is not published again.
    pub(super) published: Option<ErasedObserved>,
}

/// The content of a list, and the state of it that its inline members share.
#[derive(Clone, Copy)]
struct Listing<'a> {
    list: &'a List,
    version: &'a Version,
    warning: Option<&'a WatchError>,
    source: Option<&'a Arc<ResourceSource>>,
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

impl Lists {
    /// Begins to follow a list with its first watch.
    pub(super) fn begin(
        &mut self,
        follow: &mut Follow<'_>,
        key: &CollectionKey,
        list_type: ResourceType,
        name: &ResourceName,
    ) {
        if self.lists.contains_key(key) {
            return;
        }
        let watch_id = follow.follow(Follower::List(key.clone()), list_type, name.clone());
        self.lists.insert(key.clone(), ListMembers::new(watch_id, name.canonical()));
    }

    /// Ends to follow a list, whose last watch has ended.
    pub(super) fn end(&mut self, links: &mut Links, key: &CollectionKey) {
        let Some(list) = self.lists.remove(key) else {
            invariant::broken("a list that is watched has members");
            return;
        };
        links.unfollow(list.watch_id);
        for member in list.members.into_values() {
            member.watch_id().into_iter().for_each(|watch_id| links.unfollow(watch_id));
        }
    }

    /// The watch of a list itself; `None` if it has ended.
    pub(super) fn watch_of(&self, key: &CollectionKey) -> Option<WatchId> {
        self.lists.get(key).map(|list| list.watch_id)
    }

    /// The list, or its error, is known.
    pub(super) fn update(
        &mut self,
        store: &mut Store,
        follow: &mut Follow<'_>,
        key: &CollectionKey,
        seen: ErasedObserved,
    ) {
        match seen {
            ErasedObserved::Present { resource, version, warning, source } => {
                if let Ok(list) = resource.downcast::<List>() {
                    self.set_warning(store, key, warning.clone());
                    let listing = Listing {
                        list: &list,
                        version: &version,
                        warning: warning.as_ref(),
                        source: source.as_ref(),
                    };
                    self.update_members(store, follow, key, listing);
                }
            }
            ErasedObserved::Absent { reason } => {
                // While its server is unreachable, the list may still be as it was.
                let is_known = !reason.is_of_server();
                self.set_warning(store, key, Some(reason));
                if is_known {
                    let nothing = List { entries: Vec::new() };
                    let listing =
                        Listing { list: &nothing, version: &Version::default(), warning: None, source: None };
                    self.update_members(store, follow, key, listing);
                }
            }
        }
    }

    /// Sets the members of a list: ends the watches of removed ones, and begins those of new ones.
    fn update_members(
        &mut self,
        store: &mut Store,
        follow: &mut Follow<'_>,
        key: &CollectionKey,
        listing: Listing<'_>,
    ) {
        // It may have ended meanwhile.
        let Some(known) = self.lists.get_mut(key) else { return };
        let mut before = std::mem::take(&mut known.members);
        let name = known.name.clone();
        let mut listed = BTreeMap::new();
        for (index, entry) in listing.list.entries.iter().enumerate() {
            listed.entry(entry_name(&name, index, entry)).or_insert(entry);
        }
        let mut members = BTreeMap::new();
        for (name, entry) in listed {
            let old = before.remove(&name);
            let listed = ListedName { list: key.clone(), name };
            let member = match entry {
                ListEntry::Locator(locator) if locator.is_glob() => {
                    locate_glob(store, follow, &listed, old, locator)
                }
                ListEntry::Locator(locator) => locate_member(store, follow, &listed, old, locator),
                ListEntry::Inline(inline) => {
                    let member = set_inline(store, &listed, old.as_ref(), inline, listing);
                    end_member(follow, old);
                    member
                }
            };
            members.insert(listed.name, member);
        }
        // It cannot have ended meanwhile.
        let Some(known) = self.lists.get_mut(key) else { return };
        // Counted anew: entries that stay keep their state, and those that left may have been the ones without.
        known.unknown = members.values().filter(|member| member.is_unknown()).count();
        known.members = members;
        let is_complete = known.unknown == 0;
        for (name, member) in &before {
            known.remove(store, key, name, member);
        }
        for member in before.into_values() {
            end_member(follow, Some(member));
        }
        self.publish_warning(store, key);
        if is_complete {
            store.members.complete(key);
        }
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
        let Some(list) = self.lists.get_mut(key) else { return };
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
        if let Some(list) = self.lists.get_mut(key) {
            list.warning = warning;
        }
        self.publish_warning(store, key);
    }

    /// Publishes the warning of the list, or else that of the first glob that has one.
    fn publish_warning(&self, store: &mut Store, key: &CollectionKey) {
        let Some(list) = self.lists.get(key) else { return };
        let warning = list.warning.as_ref().or_else(|| list.globs.warning()).cloned();
        if let Some(collection) = store.members.get_mut(key)
            && collection.warning != warning
        {
            collection.warning = warning;
            store.members.touch(key);
        }
    }

    /// The state of a fetched member has changed.
    pub(super) fn update_member(
        &mut self,
        store: &mut Store,
        ListedName { list: key, name }: &ListedName,
        watch_id: WatchId,
        seen: ErasedObserved,
    ) {
        // The list may have ended meanwhile, or may have another member of the name.
        let Some(list) = self.lists.get_mut(key) else { return };
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

    /// Begins a watch of one inline entry of a list.
    pub(super) fn begin_inline(&mut self, watch_id: WatchId, entry: InlineEntry) {
        self.entries.insert(watch_id, entry);
    }

    /// Ends a watch of an inline entry; returns the watch of its list.
    pub(super) fn end_inline(&mut self, watch_id: WatchId) -> Option<WatchId> {
        self.entries.remove(&watch_id).map(|entry| entry.list)
    }

    /// A watched inline entry.
    pub(super) fn inline_entry(&self, watch_id: WatchId) -> Option<&InlineEntry> {
        self.entries.get(&watch_id)
    }

    /// Records the state that a watch of an inline entry sees; returns its type when there is something to publish.
    pub(super) fn publish_inline(&mut self, watch_id: WatchId, seen: &ErasedObserved) -> Option<TypeId> {
        // It may have ended meanwhile.
        let entry = self.entries.get_mut(&watch_id)?;
        if entry.published.as_ref().is_some_and(|published| published.is_same(seen)) {
            return None;
        }
        entry.published = Some(seen.clone());
        Some(entry.ty)
    }
}

/// A glob among the entries of a list. It keeps its watch from version to version.
fn locate_glob(
    store: &Store,
    follow: &mut Follow<'_>,
    listed: &ListedName,
    old: Option<Member>,
    locator: &ResourceName,
) -> Member {
    // The name is that of the locator, with its alternatives.
    if let Some(old @ Member::Glob { .. }) = old {
        return old;
    }
    let ty = store.ty(listed.list.ty);
    let watch_id = follow.follow_collection(Follower::Glob(listed.clone()), ty, locator.clone());
    Member::Glob { watch_id, known: false }
}

/// A named entry of a list. While its locator stays the same it keeps its watch, and its state.
fn locate_member(
    store: &Store,
    follow: &mut Follow<'_>,
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
            let ty = store.ty(listed.list.ty);
            let watch_id = follow.follow(Follower::Member(listed.clone()), ty, target.clone());
            // Behind the new watch, so that a resource of both keeps its subscription.
            end_member(follow, old);
            Member::Locator { target, watch_id, known: false }
        }
    }
}

/// Ends the watch of a member, if it has one.
fn end_member(follow: &mut Follow<'_>, member: Option<Member>) {
    if let Some(watch_id) = member.and_then(|member| member.watch_id()) {
        follow.unfollow(watch_id);
    }
}

/// An inline entry of a list. Its state is published when it differs from that of the entry of the same name before.
fn set_inline(
    store: &mut Store,
    ListedName { list: key, name }: &ListedName,
    old: Option<&Member>,
    inline: &Inline,
    listing: Listing<'_>,
) -> Member {
    let version = if inline.version.is_empty() { listing.version } else { &inline.version };
    let warning = listing.warning.cloned();
    let new =
        Member::Inline { bytes: inline.bytes.clone(), version: version.clone(), warning: warning.clone() };
    if !old.is_some_and(|old| old.is_same(&new)) {
        let seen = ErasedObserved::Present {
            resource: inline.resource.clone(),
            version: version.clone(),
            warning,
            source: listing.source.cloned(),
        };
        let observed = store.ty(key.ty).observe(seen);
        store.members.insert(key.clone(), name.clone(), observed);
    }
    new
}

impl ListMembers {
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
    /// The watch of the member; `None` for one that is in the list itself.
    fn watch_id(&self) -> Option<WatchId> {
        match self {
            Self::Locator { watch_id, .. } | Self::Glob { watch_id, .. } => Some(*watch_id),
            Self::Inline { .. } => None,
        }
    }

    /// Whether nothing is known of the member yet: the collection is complete only without such members.
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
