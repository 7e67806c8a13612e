//! List collections: a resource that lists others, whose members are fetched by their names or come inline (X12 to X14).

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;

use super::{
    Engine, Refusal, Selection, View, Wanted,
    indirections::{Follower, Looked},
    members::{Collection, Key, Which},
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    name::ResourceName,
    observed::ErasedObserved,
    protocol::{TypeId, ViewId},
    resource::{Inline, List, ListEntry, Version},
};

/// All lists that somebody watches, or an entry of which.
#[derive(Debug, Default)]
pub(super) struct Lists {
    lists: BTreeMap<Key, Members>,
    entries: BTreeMap<ViewId, OneEntry>,
}

/// The members of a list.
#[derive(Debug)]
struct Members {
    /// The view of the list.
    view: ViewId,
    /// The name of the list as it was asked for.
    name: Arc<str>,
    members: BTreeMap<Arc<str>, Member>,
    /// The members that nothing is known of yet.
    unknown: usize,
}

#[derive(Debug)]
enum Member {
    LocatedResource { target: ResourceName, view: ViewId, known: bool },
    Inline { bytes: Bytes, version: Version, warning: Option<WatchError> },
}

/// One inline entry that is watched by itself.
#[derive(Debug)]
struct OneEntry {
    ty: TypeId,
    list: ViewId,
    about: Subject,
    entry: String,
    told: Option<ErasedObserved>,
}

impl Lists {
    /// The view of the list that an entry is in.
    pub(super) fn way(&self, view: ViewId) -> Option<ViewId> {
        self.entries.get(&view).map(|entry| entry.list)
    }
}

impl Engine {
    /// Begins a view of all members of a list.
    pub(super) fn begin_list(
        &mut self,
        view: ViewId,
        ty: TypeId,
        name: &ResourceName,
        now: Instant,
    ) -> Result<View, Refusal> {
        let list_ty = self.list_type(ty)?;
        let group = self.group_for((list_ty, name), now)?;
        let whole = self.additions.add_to(name);
        let key = (group, ty, Which::List(whole.canonical()));
        let collection = self.collections.begin(key.clone(), Collection::default);
        collection.views.push(view);
        if collection.complete || collection.warning.is_some() || !collection.members.is_empty() {
            self.collections.touch(&key);
        }
        if let btree_map::Entry::Vacant(place) = self.follows.lists.lists.entry(key.clone()) {
            let view = self.walks.next_view();
            place.insert(Members { view, name: name.canonical(), members: BTreeMap::new(), unknown: 0 });
            self.follows.edges.insert(view, Follower::List(key.clone()));
            self.begin(
                view,
                self.types[list_ty.index()],
                Selection::One(Wanted::Name(Box::new(name.clone()))),
                now,
            );
        }
        self.flush();
        Ok(View::List(Box::new(key)))
    }

    pub(super) fn end_list(&mut self, view: ViewId, key: &Key, now: Instant) {
        let Some(collection) = self.collections.get_mut(key) else { return };
        collection.views.retain(|other| *other != view);
        if !collection.views.is_empty() {
            return;
        }
        self.collections.end(key);
        let Some(list) = self.follows.lists.lists.remove(key) else { return };
        self.unfollow(list.view, now);
        for member in list.members.into_values() {
            self.leave(member, now);
        }
    }

    /// The type of lists of a type's resources.
    fn list_type(&mut self, ty: TypeId) -> Result<TypeId, Refusal> {
        let list = self.types[ty.index()].list();
        let list = list.ok_or_else(|| Refusal::invalid("there are no list collections of this type"))?;
        let id = self.type_id(list);
        match self.types[id.index()].is_list() {
            true => Ok(id),
            false => Err(Refusal::invalid("the type of the list is watched as a type of the application")),
        }
    }

    /// The list, or what is wrong with it, has come.
    pub(super) fn settle_list(&mut self, key: &Key, now: Instant) {
        let Some(view) = self.follows.lists.lists.get(key).map(|list| list.view) else { return };
        match self.look(view) {
            None => {}
            Some(ErasedObserved::Present { resource, version, warning }) => {
                if let Ok(list) = resource.downcast::<List>() {
                    self.set_warning(key, warning.clone());
                    self.settle_whole(key, &list, (&version, &warning), now);
                }
            }
            Some(ErasedObserved::Absent { reason }) => {
                let is_known = !reason.is_of_server();
                self.set_warning(key, Some(reason));
                if is_known {
                    let nothing = List { entries: Vec::new() };
                    self.settle_whole(key, &nothing, (&Version::default(), &None), now);
                }
            }
        }
        self.flush();
    }

    /// Takes over a list. It is published when all of it is.
    fn settle_whole(&mut self, key: &Key, list: &List, state: (&Version, &Option<WatchError>), now: Instant) {
        self.collections.filling = Some(key.clone());
        self.settle_members(key, list, state, now);
        self.collections.filling = None;
    }

    /// Takes over which members there are: those that left are let go, the new ones are asked for.
    fn settle_members(
        &mut self,
        key: &Key,
        list: &List,
        (version, warning): (&Version, &Option<WatchError>),
        now: Instant,
    ) {
        let Some(known) = self.follows.lists.lists.get_mut(key) else { return };
        let mut before = std::mem::take(&mut known.members);
        let name = known.name.clone();
        let mut wanted = BTreeMap::new();
        for (index, entry) in list.entries.iter().enumerate() {
            wanted.entry(entry_name(&name, index, entry)).or_insert(entry);
        }
        for (name, entry) in wanted {
            let old = before.remove(&name);
            let member = match entry {
                ListEntry::Locator(locator) => self.locate_member((key, &name), old, locator, now),
                ListEntry::Inline(inline) => {
                    let version = if inline.version.is_empty() { version } else { &inline.version };
                    let member = self.set_inline((key, &name), old.as_ref(), inline, (version, warning));
                    old.into_iter().for_each(|old| self.leave(old, now));
                    member
                }
            };
            if let Some(known) = self.follows.lists.lists.get_mut(key) {
                known.members.insert(name, member);
            }
        }
        for (name, member) in before {
            self.collections.remove(key, &name);
            self.leave(member, now);
        }
        let Some(known) = self.follows.lists.lists.get_mut(key) else { return };
        let is_unknown = |member: &&Member| matches!(member, Member::LocatedResource { known: false, .. });
        known.unknown = known.members.values().filter(is_unknown).count();
        if known.unknown == 0 {
            self.collections.complete(key);
        }
    }

    fn locate_member(
        &mut self,
        (key, name): (&Key, &Arc<str>),
        old: Option<Member>,
        locator: &ResourceName,
        now: Instant,
    ) -> Member {
        // A member is requested as it is located: it need not have the context parameters of its list (X12).
        let target = locator.clone();
        match old {
            Some(Member::LocatedResource { target: held, view, known }) if held == target => {
                Member::LocatedResource { target, view, known }
            }
            old => {
                let follower = Follower::Member(key.clone(), name.clone());
                let wanted = Selection::One(Wanted::Name(Box::new(target.clone())));
                let view = self.follow(follower, key.1, wanted, now);
                if let Some(old) = old {
                    self.leave(old, now);
                }
                Member::LocatedResource { target, view, known: false }
            }
        }
    }

    fn set_inline(
        &mut self,
        (key, name): (&Key, &Arc<str>),
        old: Option<&Member>,
        inline: &Inline,
        (version, warning): (&Version, &Option<WatchError>),
    ) -> Member {
        let new = Member::Inline {
            bytes: inline.bytes.clone(),
            version: version.clone(),
            warning: warning.clone(),
        };
        if !old.is_some_and(|old| old.is_same(&new)) {
            let seen = ErasedObserved::Present {
                resource: inline.resource.clone(),
                version: version.clone(),
                warning: warning.clone(),
            };
            let observed = self.types[key.1.index()].observe(seen);
            self.collections.insert(key.clone(), name.clone(), observed);
        }
        new
    }

    /// Something is known of a member that is fetched.
    pub(super) fn settle_member(&mut self, key: &Key, name: &Arc<str>, view: ViewId) {
        let Some(seen) = self.look(view) else { return };
        let Some(list) = self.follows.lists.lists.get_mut(key) else { return };
        let Some(Member::LocatedResource { known, view: own, .. }) = list.members.get_mut(name) else {
            return;
        };
        if *own != view {
            return;
        }
        if !std::mem::replace(known, true) {
            list.unknown -= 1;
        }
        let is_complete = list.unknown == 0;
        let observed = self.types[key.1.index()].observe(seen);
        self.collections.insert(key.clone(), name.clone(), observed);
        if is_complete {
            self.collections.complete(key);
        }
        self.flush();
    }

    fn set_warning(&mut self, key: &Key, warning: Option<WatchError>) {
        if let Some(collection) = self.collections.get_mut(key)
            && collection.warning != warning
        {
            collection.warning = warning;
            self.collections.touch(key);
        }
    }

    fn leave(&mut self, member: Member, now: Instant) {
        match member {
            Member::LocatedResource { view, .. } => self.unfollow(view, now),
            Member::Inline { .. } => {}
        }
    }

    /// Begins a view of one inline entry of a list.
    pub(super) fn begin_inline(
        &mut self,
        view: ViewId,
        ty: TypeId,
        (name, entry): (&ResourceName, &str),
        now: Instant,
    ) -> Result<View, Refusal> {
        let list_ty = self.list_type(ty)?;
        let list = self.walks.next_view();
        let type_url = self.types[ty.index()].type_url();
        let about = Subject { type_url, name: name.to_string().into(), node: self.node_id.clone() };
        let one = OneEntry { ty, list, about, entry: entry.to_owned(), told: None };
        self.follows.lists.entries.insert(view, one);
        self.follows.edges.insert(list, Follower::Inline(view));
        let wanted = Selection::One(Wanted::Name(Box::new(name.without_directives())));
        self.begin(list, self.types[list_ty.index()], wanted, now);
        Ok(View::Inline)
    }

    pub(super) fn end_inline(&mut self, view: ViewId, now: Instant) {
        if let Some(entry) = self.follows.lists.entries.remove(&view) {
            self.unfollow(entry.list, now);
        }
    }

    pub(super) fn look_at_inline(
        &self,
        view: ViewId,
        depth: usize,
        looked: &mut Looked,
    ) -> Option<ErasedObserved> {
        let entry = self.follows.lists.entries.get(&view)?;
        let (resource, version, warning) = match self.look_along(entry.list, depth, looked)? {
            ErasedObserved::Present { resource, version, warning } => (resource, version, warning),
            ErasedObserved::Absent { reason } => {
                let reason = reason.via(entry.about.clone(), "of the list");
                return Some(ErasedObserved::Absent { reason });
            }
        };
        let found = resource.downcast_ref::<List>().and_then(|list| list.inline(&entry.entry));
        Some(match found {
            Some(inline) => ErasedObserved::Present {
                resource: inline.resource.clone(),
                version: if inline.version.is_empty() { version } else { inline.version.clone() },
                warning,
            },
            None => ErasedObserved::Absent {
                reason: WatchError::new(
                    Code::NotFound,
                    Blame::Peer,
                    entry.about.clone(),
                    "the list has no such inline entry",
                ),
            },
        })
    }

    pub(super) fn publish_inline(&mut self, view: ViewId) {
        let Some(seen) = self.look(view) else { return };
        let Some(entry) = self.follows.lists.entries.get_mut(&view) else { return };
        if entry.told.as_ref().is_some_and(|told| told.is_same(&seen)) {
            return;
        }
        entry.told = Some(seen.clone());
        let ty = entry.ty;
        self.publish_seen(view, ty, seen);
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
            (Self::LocatedResource { .. }, _) | (_, Self::LocatedResource { .. }) => false,
        }
    }
}

/// By which name an entry is a member.
fn entry_name(list: &str, index: usize, entry: &ListEntry) -> Arc<str> {
    match entry {
        ListEntry::Locator(locator) => locator.to_string().into(),
        ListEntry::Inline(inline) if inline.name.is_empty() => format!("{list}#{index}").into(),
        ListEntry::Inline(inline) => format!("{list}#entry={}", inline.name).into(),
    }
}
