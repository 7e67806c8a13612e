//! The publication of changes to watches.
//!
//! ```text
//!                        ┌─ an application's watch ─▶ outputs ─▶ the shell, which keeps the latest value
//!   deliver(watch, value)┤
//!                        └─ the engine's own watch ─▶ inbox ───▶ collections or resolutions, one value at a time
//! ```
//!
//! The engine's own watches are published to like those of applications, so that redirects, lists and resolutions combine
//! without knowing of each other. Their numbers never collide: those of the engine are marked ([`WatchId::internal`]).

use std::{collections::VecDeque, sync::Arc};

use tracing::{debug, trace};

use super::store::{Change, CollectionKey, Store, Which};
use crate::{
    base::{ByWatch, WatchId},
    cache::Entry,
    capacity::Shrink,
    engine::Output,
    error::WatchError,
    escape::Escaped,
    invariant,
    observed::ErasedMembers,
    protocol::{EntryId, TypeInGroup},
    resource::Erased,
};

/// The watches, and the pending publications.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// The subject of each watch, from its beginning to its end. A watch is published to whether or not it is here: one
    /// that is refused is published to before it is inserted.
    targets: ByWatch<WatchTarget>,
    /// The publications to the engine's own watches that are not handled yet.
    inbox: VecDeque<(WatchId, Erased)>,
    /// The outputs for the shell, in their order.
    outputs: VecDeque<Output>,
    /// The number of the last watch of the engine's own; 0 before the first one.
    last_id: u64,
}

/// The target of a watch.
#[derive(Debug)]
pub(super) enum WatchTarget {
    /// A resource, or the members of a glob.
    Entry(EntryId),
    /// All resources of a type that the group's servers have.
    Wildcard(TypeInGroup),
    /// The resources of a type that the group's servers send without a request for them.
    Pushed(TypeInGroup),
    /// The configuration that a target resolves to.
    Resolution,
    /// The members of a list.
    List(Box<CollectionKey>),
    /// One entry of a list.
    Inline,
    /// A name with an alternative.
    Alternative,
    /// A collection with an alternative.
    CollectionAlternative,
    /// The batches of a consumer.
    Batches,
    /// A name without a configured source, and the reason, which was published.
    Refused(WatchError),
}

impl WatchTarget {
    /// All resources of a type, or those that are sent without a request for them.
    pub(super) fn all(scope: TypeInGroup, is_pushed: bool) -> Self {
        if is_pushed { Self::Pushed(scope) } else { Self::Wildcard(scope) }
    }
}

impl Delivery {
    /// Begins a watch.
    pub(super) fn insert(&mut self, watch_id: WatchId, target: WatchTarget) {
        let before = self.targets.insert(watch_id, target);
        debug_assert!(before.is_none(), "the number of a watch is used once");
    }

    /// Ends a watch; `None` if it ended before.
    pub(super) fn remove(&mut self, watch_id: WatchId) -> Option<WatchTarget> {
        let target = self.targets.remove(&watch_id);
        self.targets.shrink_if_sparse();
        target
    }

    /// The subject of a watch, if it has not ended.
    pub(super) fn target(&self, watch_id: WatchId) -> Option<&WatchTarget> {
        self.targets.get(&watch_id)
    }

    #[cfg(test)]
    pub(super) fn has_watches(&self) -> bool {
        !self.targets.is_empty()
    }

    /// The number of a new watch of the engine's own.
    pub(super) fn next_watch_id(&mut self) -> WatchId {
        self.last_id += 1;
        WatchId::internal(self.last_id)
    }

    /// Publishes to a watch: to the application, or to an indirection or resolution.
    pub(super) fn deliver(&mut self, watch_id: WatchId, observed: Erased) {
        if watch_id.is_internal() {
            self.inbox.push_back((watch_id, observed));
        } else {
            self.outputs.push_back(Output::Notify { watch_id, observed });
        }
    }

    /// Publishes an entry to those of its watches that a change concerns.
    /// Its server error is part of that state: watches that begin while a server is unreachable see what is cached, and the
    /// error beside it.
    pub(super) fn publish(&mut self, store: &mut Store, id: EntryId, change: Change, observed: &Erased) {
        if !change.changed && !change.unnotified {
            return;
        }
        let error = store.server_error_of(id);
        let Some(entry) = store.get_mut(id) else {
            invariant::broken("what is published has an entry");
            return;
        };
        let unnotified = std::mem::take(&mut entry.unnotified);
        if error.is_some() {
            // The error is part of the published state, so that it is not published again by itself.
            let _ = entry.on_failure(error);
        }
        let Some(entry) = store.get(id) else { return };
        let type_url = store.type_url(entry.ty);
        // A watch that joins changes nothing for those that have the state.
        for watch_id in if change.changed { &*entry.watches } else { &*unnotified } {
            trace!(%watch_id, type_url, name = %Escaped(&entry.name), "watcher notified");
            self.deliver(*watch_id, observed.clone());
        }
    }

    /// Publishes the members of a collection, if it still exists.
    /// The warning is the first of: the error of a glob's own name, or of a list or unanswered wildcard; the error of the
    /// servers of the group. Lists have no server error of their own, since the watch of the list itself shows it.
    pub(super) fn publish_collection(&mut self, store: &Store, key: &CollectionKey) {
        // It may have ended meanwhile.
        let Some(collection) = store.members.get(key) else { return };
        let CollectionKey { group, ty, which } = key;
        let glob = collection.entry.and_then(|entry| store.get(entry));
        let name = match which {
            Which::All => "*".into(),
            Which::Glob(name) | Which::List(name) => name.clone(),
        };
        let about = store.subject_of(*ty, name.clone());
        let own = glob.and_then(Entry::ambient_error).map(|ambient_error| ambient_error.error.clone());
        // A list may be watched through others, whose error is published with it.
        let server_error = store.server_error(*group).filter(|_| !matches!(which, Which::List(_)));
        // A server that has failed does not count as silent.
        let is_superseded = *which == Which::All && server_error.is_some();
        let own = own.or_else(|| collection.warning.clone().filter(|_| !is_superseded));
        let members: Erased = Arc::new(ErasedMembers {
            map: collection.members.clone(),
            complete: collection.complete,
            warning: own.or_else(|| server_error.map(|error| error.about(about))),
            type_url: store.type_url(*ty),
            name,
            node: store.node_id().clone(),
        });
        for watch_id in
            glob.map_or(&*collection.watches, |glob| &glob.watches).iter().chain(&collection.pushed)
        {
            self.deliver(*watch_id, members.clone());
        }
    }

    /// Publishes the reason for refusing a watch; `refused` is what it sees.
    pub(super) fn refuse(&mut self, watch_id: WatchId, refused: Erased, reason: WatchError) -> WatchTarget {
        debug!(%watch_id, error = %Escaped(&reason), "watch refused");
        self.deliver(watch_id, refused);
        WatchTarget::Refused(reason)
    }

    /// The next of the engine's own watches with a change, and its state.
    pub(super) fn pop_inbox(&mut self) -> Option<(WatchId, Erased)> {
        let next = self.inbox.pop_front();
        self.inbox.shrink_if_sparse();
        next
    }

    /// Appends an output that is no publication.
    pub(super) fn push_output(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    /// The next output; to be called until there is none.
    pub(super) fn poll_output(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        self.outputs.shrink_if_sparse();
        output
    }

    /// Whether all outputs were polled.
    pub(super) fn is_drained(&self) -> bool {
        self.outputs.is_empty()
    }
}
