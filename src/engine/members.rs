//! The members of collections: of wildcards, and of globs.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Instant,
};

use imbl::OrdMap;

use super::{Engine, Refusal, View};
use crate::{
    cache::Entry,
    error::{Subject, WatchError},
    observed::{ErasedMembers, Member},
    protocol::{EntryId, GroupId, ServerId, Subscription, TypeId, ViewId},
    resource::Erased,
};

/// All collections that are watched, or that a server has not been told the end of.
#[derive(Debug, Default)]
pub(super) struct Collections {
    map: BTreeMap<Key, Collection>,
    /// Those that have something to publish.
    touched: BTreeSet<Key>,
    /// A list whose members are being taken over, or a glob that is about to be asked for.
    pub(super) filling: Option<Key>,
    globs: usize,
}

/// A collection: the servers, the type, and which of its resources.
pub(super) type Key = (GroupId, TypeId, Which);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Which {
    /// Everything that the server of the group has: a wildcard.
    All,
    /// What a glob matches, by its canonical name.
    Glob(Arc<str>),
    /// What a list holds, by its canonical name.
    List(Arc<str>),
}

/// What is known of the members of a collection.
#[derive(Debug, Default)]
pub(super) struct Collection {
    /// Who watches a wildcard or a list. Those who watch a glob stand in the entry of its name.
    pub(super) views: Vec<ViewId>,
    /// The entry of a glob's name.
    pub(super) entry: Option<EntryId>,
    pub(super) members: OrdMap<Arc<str>, Member>,
    pub(super) complete: bool,
    /// What is wrong with a list, or that nothing comes for a wildcard. What is wrong with a glob is known of its entry.
    pub(super) warning: Option<WatchError>,
}

/// How a resource came to be a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Wildcard,
    Glob,
}

impl Collections {
    pub(super) fn get(&self, key: &Key) -> Option<&Collection> {
        self.map.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Collection> {
        self.map.get_mut(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Collection)> {
        self.map.iter()
    }

    /// Whether there is any glob, so that the names that come have to be looked at for it.
    pub(super) fn has_globs(&self) -> bool {
        self.globs > 0
    }

    /// Whether there is a collection of a group.
    pub(super) fn has_any_of(&self, id: GroupId) -> bool {
        let first = self.map.range((id, TypeId(0), Which::All)..).next();
        first.is_some_and(|((group, ..), _)| *group == id)
    }

    /// Begins a collection, unless it is there already.
    pub(super) fn begin(&mut self, key: Key, collection: impl FnOnce() -> Collection) -> &mut Collection {
        let globs = &mut self.globs;
        self.map.entry(key).or_insert_with_key(|key| {
            *globs += usize::from(key.2.is_glob());
            collection()
        })
    }

    /// Ends a collection.
    pub(super) fn end(&mut self, key: &Key) {
        if self.map.remove(key).is_some() {
            self.globs -= usize::from(key.2.is_glob());
            self.touched.remove(key);
        }
    }

    pub(super) fn insert(&mut self, key: Key, name: Arc<str>, observed: Erased) {
        if let Some(collection) = self.map.get_mut(&key) {
            collection.members.insert(name, Member(observed));
            self.touched.insert(key);
        }
    }

    pub(super) fn remove(&mut self, key: &Key, name: &str) {
        if self.map.get_mut(key).is_some_and(|all| all.members.remove(name).is_some()) {
            self.touched.insert(key.clone());
        }
    }

    /// It has no members any more.
    pub(super) fn clear(&mut self, key: &Key) {
        if let Some(collection) = self.map.get_mut(key) {
            collection.members.clear();
        }
        self.touch(key);
    }

    /// The server has told all it has.
    pub(super) fn complete(&mut self, key: &Key) {
        let Some(all) = self.map.get_mut(key) else { return };
        let is_news = !mem::replace(&mut all.complete, true);
        // A list may be complete with something wrong.
        let is_answered = key.2 == Which::All && all.warning.take().is_some();
        if is_news || is_answered {
            self.touched.insert(key.clone());
        }
    }

    /// Something else is to be published with it.
    pub(super) fn touch(&mut self, key: &Key) {
        if self.map.contains_key(key) {
            self.touched.insert(key.clone());
        }
    }

    /// The same of all collections of a group.
    pub(super) fn touch_all(&mut self, id: GroupId) {
        self.touched.extend(self.map.keys().filter(|(group, ..)| *group == id).cloned());
    }

    /// An entry is forgotten: it is no member any more, and if it is that of a glob, that is over.
    pub(super) fn forget(&mut self, entry: &Entry) {
        match entry.is_glob {
            true => self.end(&(entry.group, entry.ty, Which::Glob(entry.name.clone()))),
            false => self.remove(&(entry.group, entry.ty, Which::All), &entry.name),
        }
    }
}

impl Which {
    fn is_glob(&self) -> bool {
        match self {
            Self::All | Self::List(_) => false,
            Self::Glob(_) => true,
        }
    }
}

impl Engine {
    pub(super) fn subscribe_all(&mut self, view: ViewId, ty: TypeId, now: Instant) -> Result<View, Refusal> {
        let group = self.default_group(ty, now)?;
        let key = (group, ty, Which::All);
        if self.collections.get(&key).is_none() {
            for server in self.groups.get(group).open.clone() {
                self.join_held(ty, server, now);
            }
            let members = self.members_of(group, ty);
            self.collections.begin(key.clone(), || Collection { members, ..Collection::default() });
        }
        self.groups.get_mut(group).views += 1;
        self.collections.begin(key.clone(), Collection::default).views.push(view);
        for server in self.groups.get(group).open.clone() {
            self.ask_all_at((group, ty), server, now);
            self.settle(server, now);
        }
        self.fall_back(group, now);
        self.judge(group);
        let failed = self.groups.get(group).trouble.is_some();
        let known = |all: &Collection| !all.members.is_empty() || all.complete || all.warning.is_some();
        if failed || self.collections.get(&key).is_some_and(known) {
            self.collections.touch(&key);
        }
        self.on_unanswered((self.groups.get(group).active(), ty), now);
        self.flush();
        Ok(View::All(group, ty))
    }

    pub(super) fn unsubscribe_all(&mut self, view: ViewId, (group, ty): (GroupId, TypeId), now: Instant) {
        let key = (group, ty, Which::All);
        let Some(all) = self.collections.map.get_mut(&key) else { return };
        all.views.retain(|other| *other != view);
        let last = all.views.is_empty();
        for server in self.groups.get(group).open.clone().into_iter().filter(|_| last) {
            self.peer(server).machine.unsubscribe_all(ty, now);
            self.settle(server, now);
        }
        self.groups.get_mut(group).views -= 1;
    }

    /// Asks one server for everything of a type. What others sent has a place there, too, so that its absence is seen.
    pub(super) fn ask_all_at(&mut self, (group, ty): (GroupId, TypeId), server: ServerId, now: Instant) {
        let type_url = self.types[ty.index()].type_url();
        let all = self.collections.get(&(group, ty, Which::All));
        let names: Vec<_> = all.map(|all| all.members.keys().cloned().collect()).unwrap_or_default();
        for name in names {
            if let Some(id) = self.find_entry((group, ty), &name) {
                self.join(id, server, By::Wildcard, now);
            }
        }
        self.peer(server).machine.subscribe_all((ty, type_url), now);
    }

    /// What a server has sent by name in the incremental variant it need not send again when it is asked for everything: it
    /// counts as a member until the server says otherwise (B2.20).
    fn join_held(&mut self, ty: TypeId, server: ServerId, now: Instant) {
        let Some(interest) = self.peer(server).machine.interest(ty).filter(|interest| !interest.takes_all())
        else {
            return;
        };
        let held = interest.iter().filter(|(_, sub)| sub.has_version());
        let held: Vec<_> = held.map(|(_, sub)| sub.entry).collect();
        for id in held {
            self.join(id, server, By::Wildcard, now);
        }
    }

    /// A member that the active server has sent is one at those above it, too.
    pub(super) fn join_higher(&mut self, id: EntryId, by: By, now: Instant) {
        let Some(entry) = self.table.get(id) else { return };
        let group = match by {
            By::Wildcard => self.wildcard_key(entry.ty).map_or(entry.group, |(group, ..)| group),
            By::Glob => entry.group,
        };
        let ty = entry.ty;
        for rank in 0..self.groups.get(group).open.len() - 1 {
            let server = self.groups.get(group).open[rank];
            let interest = self.peer(server).machine.interest(ty);
            // One that knows of the end of a wildcard before the active server has no members.
            if by == By::Glob || interest.is_some_and(|interest| interest.takes_all()) {
                self.join(id, server, by, now);
            }
        }
    }

    /// A resource is a member of a collection at a server also if another one has sent it.
    pub(super) fn join(&mut self, id: EntryId, server: ServerId, by: By, now: Instant) {
        let (Some(sub), Some(entry)) = (self.place(id, server), self.table.get(id)) else { return };
        let ty = entry.ty;
        let interest = self.peer(server).machine.interest(ty);
        if let Some(sub) = interest.and_then(|interest| interest.get_mut(sub)) {
            match by {
                By::Wildcard => sub.member = true,
                By::Glob => sub.of_glob = true,
            }
        }
        let full_state = self.types[ty.index()].full_state();
        self.peer(server).machine.on_joined((ty, full_state), sub, now);
    }

    /// Nobody takes everything of a type from a server any more, and it knows.
    pub(super) fn on_released_all(&mut self, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            self.end_unwatched((group, ty));
        }
    }

    /// Ends a wildcard that nobody watches, unless a server of the group does not know that yet: if it is watched again before,
    /// nothing has happened for that server, and its members are those of before.
    pub(super) fn end_unwatched(&mut self, (group, ty): (GroupId, TypeId)) {
        let key = (group, ty, Which::All);
        if !self.collections.get(&key).is_some_and(|all| all.views.is_empty()) {
            return;
        }
        let Self { groups, servers, collections, .. } = self;
        let mut open = groups.get(group).open.iter();
        let takes_all = |server: &ServerId| {
            servers[*server].machine.interest(ty).is_some_and(|interest| interest.takes_all())
        };
        if !open.any(takes_all) {
            collections.end(&key);
        }
    }

    /// A resource was deleted: what is not held is no member any more, and forgotten when nobody asks for it by name.
    pub(super) fn dismiss(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id).filter(|entry| !entry.is_held()) else { return };
        let (ty, name) = (entry.ty, entry.name.clone());
        let of_all =
            self.wildcard_key(ty).filter(|key| key.0 == entry.group || self.wildcard_of(entry).is_some());
        if let Some(key) = of_all {
            self.collections.remove(&key, &name);
        }
        let places: Vec<_> = entry.places.iter().collect();
        if let Some(key) = self.glob_key(id) {
            self.collections.remove(&key, &self.additions.take_from(&name));
        }
        for (server, sub) in places {
            let machine = &mut self.peer(server).machine;
            if let Some(sub) = machine.interest(ty).and_then(|interest| interest.get_mut(sub)) {
                (sub.member, sub.of_glob) = (false, false);
            }
            machine.release(ty, &[sub]);
        }
    }

    /// Publishes the sets of members that have changed, but none that a response is still filling.
    pub(crate) fn flush(&mut self) {
        let Self { collections: Collections { map, touched, filling, .. }, groups, jobs, .. } = self;
        let is_filling = |key: &Key| {
            let (group, ty, _) = key;
            let active = groups.get(*group).active();
            filling.as_ref() == Some(key) || jobs.iter().any(|job| job.server() == active && job.ty() == *ty)
        };
        let ready: Vec<_> = touched.iter().filter(|key| !is_filling(key)).cloned().collect();
        for key in ready {
            touched.remove(&key);
            let Some(collection) = map.get(&key) else { continue };
            let (group, ty, which) = &key;
            let trouble = groups.get(*group).trouble.as_ref();
            let glob = collection.entry.and_then(|entry| self.table.get(entry));
            let type_url = self.types[ty.index()].type_url();
            let name = match which {
                Which::All => "*".into(),
                Which::Glob(name) | Which::List(name) => name.clone(),
            };
            let about = Subject { type_url, name: name.clone(), node: self.node_id.clone() };
            let own = glob.and_then(Entry::setback).map(|setback| setback.error.clone());
            // A list may be watched through others, whose trouble is told with it. A server that is in trouble cannot be silent.
            let trouble = trouble.filter(|_| !matches!(which, Which::List(_)));
            let is_superseded = *which == Which::All && trouble.is_some();
            let own = own.or_else(|| collection.warning.clone().filter(|_| !is_superseded));
            let members: Erased = Arc::new(ErasedMembers {
                map: collection.members.clone(),
                complete: collection.complete,
                warning: own.or_else(|| trouble.map(|trouble| trouble.about(about))),
                type_url,
                name,
                node: self.node_id.clone(),
            });
            for view in glob.map_or(&*collection.views, |glob| &glob.views) {
                self.walks.deliver(&mut self.outputs, *view, members.clone());
            }
        }
    }

    /// What the active server has sent under a wildcard that nobody watched for a while.
    fn members_of(&mut self, group: GroupId, ty: TypeId) -> OrdMap<Arc<str>, Member> {
        let active = self.groups.get(group).active();
        let Some(interest) = self.peer(active).machine.interest(ty) else { return OrdMap::new() };
        let is_member = |(_, sub): &(_, &Subscription)| sub.member;
        let members: Vec<_> = interest.iter().filter(is_member).map(|(_, sub)| sub.entry).collect();
        let seen = members
            .into_iter()
            .filter_map(|id| Some((self.table.get(id)?.name.clone(), Member(self.observed(id)?))));
        seen.collect()
    }
}
