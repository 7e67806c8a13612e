//! The members of collections: of wildcards, and of globs.
//!
//! A collection is what a watch of many resources sees. The three kinds differ in who decides on membership:
//!
//! | kind | a resource is a member | begins and ends with |
//! |---|---|---|
//! | wildcard | when the active server has sent it for the wildcard | the first watch; the notification of the server |
//! | glob | when its name matches, whatever it was sent for | the entry of the glob's name |
//! | list | when the list names it, or a glob in the list matches it | the first watch; the last watch |
//!
//! Collections are published at the end of a response, not with each member: a response may bring ten thousand.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use imbl::OrdMap;

use crate::{
    base::WatchId,
    cache::Entry,
    error::WatchError,
    invariant,
    observed::Member,
    protocol::{EntryId, GroupId, TypeId, TypeInGroup},
    resource::Erased,
};

/// All collections that are watched, or whose end a server was not notified of.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The collections, from their first watch until the end was sent to the server, or for lists to their last watch.
    map: BTreeMap<CollectionKey, Collection>,
    /// The collections to publish. All of them are in the map.
    touched: BTreeSet<CollectionKey>,
    /// The number of globs in the map: without any, no received name has to be matched.
    globs: usize,
}

/// The identity of a collection. Keys are ordered by group, so that the collections of one group are adjacent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CollectionKey {
    /// The servers that the collection is requested from.
    pub(crate) group: GroupId,
    /// The type of the members; a list itself is of another type.
    pub(crate) ty: TypeId,
    /// Which of the resources of the type.
    pub(crate) which: Which,
}

/// The selection of the members of a collection among the resources of a type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Which {
    /// A wildcard: all resources of the group's active server.
    All,
    /// The names that a glob matches, by its canonical name.
    Glob(Arc<str>),
    /// The entries of a list, by its canonical name.
    List(Arc<str>),
}

/// The state of the members of a collection.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    /// The watches of a wildcard or a list. Those of a glob are in the entry of its name.
    pub(crate) watches: Vec<WatchId>,
    /// The watches of what is sent without a request for it, which have the members of the wildcard as long as that is watched.
    pub(crate) pushed: Vec<WatchId>,
    /// The entry of a glob's name.
    pub(crate) entry: Option<EntryId>,
    /// The members by name, as a list or glob has it. The map is persistent: each publication shares it.
    pub(crate) members: OrdMap<Arc<str>, Member>,
    /// The server has sent all members. It stays set when members change.
    pub(crate) complete: bool,
    /// The error of a list, or of a wildcard without an answer. The error of a glob is in its entry.
    pub(crate) warning: Option<WatchError>,
}

impl Collection {
    /// Whether it has watches. Those of a glob are not here.
    pub(crate) fn is_watched(&self) -> bool {
        !self.watches.is_empty() || !self.pushed.is_empty()
    }

    /// Whether something is missing that the watches of a wildcard could have. Nothing shows whether more is going to be pushed.
    pub(crate) fn lacks_members(&self) -> bool {
        !self.complete && (!self.watches.is_empty() || self.members.is_empty())
    }
}

impl Members {
    pub(crate) fn get(&self, key: &CollectionKey) -> Option<&Collection> {
        self.map.get(key)
    }

    /// A collection, to change its watches or its warning; the caller then touches it if watches see the difference.
    pub(crate) fn get_mut(&mut self, key: &CollectionKey) -> Option<&mut Collection> {
        self.map.get_mut(key)
    }

    /// Whether there is any glob, so that received names have to be matched.
    pub(crate) fn has_globs(&self) -> bool {
        self.globs > 0
    }

    /// Whether there is a collection of a group.
    pub(crate) fn has_any_of(&self, id: GroupId) -> bool {
        let first = CollectionKey { group: id, ty: TypeId(0), which: Which::All };
        self.map.range(first..).next().is_some_and(|(key, _)| key.group == id)
    }

    /// Begins a collection, unless it is there already.
    pub(crate) fn begin(
        &mut self,
        key: CollectionKey,
        collection: impl FnOnce() -> Collection,
    ) -> &mut Collection {
        let globs = &mut self.globs;
        self.map.entry(key).or_insert_with_key(|key| {
            *globs += usize::from(key.which.is_glob());
            collection()
        })
    }

    /// Adds a watch of a list. What is known of the list already is published to it.
    pub(crate) fn watch_list(&mut self, key: &CollectionKey, watch_id: WatchId) {
        let collection = self.begin(key.clone(), Collection::default);
        collection.watches.push(watch_id);
        if collection.complete || collection.warning.is_some() || !collection.members.is_empty() {
            self.touch(key);
        }
    }

    /// Removes a watch of a list. True when it was the last one, with which the collection ends.
    pub(crate) fn unwatch_list(&mut self, key: &CollectionKey, watch_id: WatchId) -> bool {
        let Some(collection) = self.map.get_mut(key) else {
            invariant::broken("a list that is watched is a collection");
            return false;
        };
        collection.watches.retain(|other| *other != watch_id);
        let is_last = collection.watches.is_empty();
        if is_last {
            self.end(key);
        }
        is_last
    }

    /// Ends a collection.
    pub(crate) fn end(&mut self, key: &CollectionKey) {
        if self.map.remove(key).is_some() {
            self.globs -= usize::from(key.which.is_glob());
            self.touched.remove(key);
        }
    }

    /// Sets the state of a member, and publishes the collection. Without the collection it has no effect.
    pub(crate) fn insert(&mut self, key: CollectionKey, name: Arc<str>, observed: Erased) {
        if let Some(collection) = self.map.get_mut(&key) {
            collection.members.insert(name, Member(observed));
            self.touched.insert(key);
        }
    }

    /// Removes a member. A collection that did not have it is not published.
    pub(crate) fn remove(&mut self, key: &CollectionKey, name: &str) {
        if self.map.get_mut(key).is_some_and(|all| all.members.remove(name).is_some()) {
            self.touched.insert(key.clone());
        }
    }

    /// The wildcard has ended, and what is pushed is watched still: the server has nothing to remove of what it has sent before.
    pub(crate) fn restart_pushed(&mut self, key: &CollectionKey) {
        if let Some(collection) = self.map.get_mut(key) {
            (collection.complete, collection.warning) = (false, None);
        }
        self.clear(key);
    }

    /// The collection has no members any more.
    pub(crate) fn clear(&mut self, key: &CollectionKey) {
        if let Some(collection) = self.map.get_mut(key) {
            collection.members.clear();
        }
        self.touch(key);
    }

    /// The server has sent all its resources.
    pub(crate) fn complete(&mut self, key: &CollectionKey) {
        // It has no watch.
        let Some(all) = self.map.get_mut(key) else { return };
        let is_news = !mem::replace(&mut all.complete, true);
        // A list may be complete with an error.
        let is_answered = key.which == Which::All && all.warning.take().is_some();
        if is_news || is_answered {
            self.touched.insert(key.clone());
        }
    }

    /// The collections to publish, but for those that are still being filled.
    pub(crate) fn take_touched(&mut self, is_filling: impl Fn(&CollectionKey) -> bool) -> Vec<CollectionKey> {
        let ready: Vec<_> = self.touched.iter().filter(|key| !is_filling(key)).cloned().collect();
        for key in &ready {
            self.touched.remove(key);
        }
        ready
    }

    /// The types whose wildcard is watched in a group.
    pub(crate) fn watched_types(&self, id: GroupId) -> Vec<TypeId> {
        self.watched_wildcards(id).map(|(ty, _)| ty).collect()
    }

    /// The watched wildcards of a group, by their types. Globs are watched as names are.
    pub(crate) fn watched_wildcards(&self, id: GroupId) -> impl Iterator<Item = (TypeId, &Collection)> {
        let all = self
            .map
            .iter()
            .filter(move |(key, all)| key.group == id && key.which == Which::All && all.is_watched());
        all.map(|(key, all)| (key.ty, all))
    }

    /// Whether a response may hold new members of a type's globs.
    pub(crate) fn has_globs_of(&self, ty: TypeId) -> bool {
        let is_glob = |key: &CollectionKey| key.ty == ty && key.which.is_glob();
        self.has_globs() && self.map.keys().any(is_glob)
    }

    /// A glob is to be published: its state has changed, or there is a state for its first watch.
    pub(crate) fn publish_glob(&mut self, key: &CollectionKey, is_known: bool) {
        let has_members = |glob: &Collection| !glob.members.is_empty() || glob.complete;
        if is_known || self.get(key).is_some_and(has_members) {
            self.touch(key);
        }
    }

    /// Publishes a collection anew, if it exists, with something beside its members that has changed.
    pub(crate) fn touch(&mut self, key: &CollectionKey) {
        if self.map.contains_key(key) {
            self.touched.insert(key.clone());
        }
    }

    /// Publishes all collections of a group anew, since an error that they share has changed.
    pub(crate) fn touch_all(&mut self, id: GroupId) {
        self.touched.extend(self.map.keys().filter(|key| key.group == id).cloned());
    }

    /// An entry is removed: it is no member any more, and if it is that of a glob, the collection ends.
    pub(crate) fn forget(&mut self, entry: &Entry) {
        match entry.is_glob {
            true => self.end(&CollectionKey::of_glob(entry)),
            false => self.remove(
                &CollectionKey::of_all(TypeInGroup { group: entry.group, ty: entry.ty }),
                &entry.name,
            ),
        }
    }
}

impl CollectionKey {
    /// The key of the wildcard of a type.
    pub(crate) fn of_all(TypeInGroup { group, ty }: TypeInGroup) -> Self {
        Self { group, ty, which: Which::All }
    }

    /// The key of the glob whose name an entry has.
    pub(crate) fn of_glob(entry: &Entry) -> Self {
        Self { group: entry.group, ty: entry.ty, which: Which::Glob(entry.name.clone()) }
    }

    /// The group and the type.
    pub(crate) fn scope(&self) -> TypeInGroup {
        TypeInGroup { group: self.group, ty: self.ty }
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
