//! The changes of the members of a collection, one by one.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use imbl::ordmap::DiffItem;

use super::{Members, WatchAll};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    observed::{ErasedMembers, Observed},
    resource::Resource,
};

/// The members of a wildcard or a collection as a stream of changes: first all current members, then each changed one.
///
/// Created by [`WatchAll::changes`]. It compares the latest state with the one that was yielded last, so a slow
/// watcher skips intermediate states: a member that was added and removed in between is not yielded. Without members,
/// the reason is yielded as a change [of the collection](MemberChange::of_collection): the server is unreachable,
/// does not respond, or has none.
///
/// ```no_run
/// use xdskit::{Client, ResourceSelector, Observed, resource::Cluster};
///
/// async fn print_changes(client: &Client) {
///     let mut changes = client.watch_all::<Cluster>(ResourceSelector::All).changes();
///     while let Some(change) = changes.next().await {
///         match &*change.observed {
///             Observed::Present { resource, .. } => println!("{}: {resource:?}", change.name),
///             Observed::Absent { reason, .. } => println!("{} is gone: {reason}", change.name),
///             _ => {}
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Changes<T: Resource> {
    /// The watched collection.
    watch: WatchAll<T>,
    /// The state that the yielded and pending changes lead to. It shares its members with later states, so that keeping it is
    /// cheap.
    members: Option<Arc<Members<T>>>,
    /// Changes to yield: at most one for each member that differs between two states, since states are not queued.
    pending: VecDeque<MemberChange<T>>,
}

/// A changed member of a wildcard or a collection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberChange<T> {
    /// The name of the member, or of the collection for a change of the collection; `*` for a wildcard.
    pub name: Arc<str>,
    /// The new state: absent with `NOT_FOUND` if the member was removed.
    pub observed: Arc<Observed<T>>,
    /// Whether this is a change of the collection as a whole, with the reason why it has no members: see
    /// [`Members::absence`].
    pub of_collection: bool,
    /// Whether this is the last change of a [complete](Members::is_complete) state.
    pub complete: bool,
}

impl<T: Resource> Changes<T> {
    /// The changes from nothing to the current members, and all later ones.
    pub(super) fn new(watch: WatchAll<T>) -> Self {
        Self { watch, members: None, pending: VecDeque::new() }
    }

    /// Waits for a change; `None` when the client is shut down.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<MemberChange<T>> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }

    /// The state of the latest changes; `None` before the first.
    pub fn members(&self) -> Option<&Arc<Members<T>>> {
        self.members.as_ref()
    }
}

impl<T: Resource> Stream for Changes<T> {
    type Item = MemberChange<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return Poll::Ready(Some(change));
            }
            let Some(newer) = ready!(Pin::new(&mut self.watch).poll_next(cx)) else {
                return Poll::Ready(None);
            };
            let older = self.members.replace(newer.clone());
            self.pending = differences(older.as_deref(), &newer);
            let had_members = older.as_deref().is_some_and(|members| !members.is_empty());
            // Members that were removed are changes of their own: that there are none left adds nothing to these.
            let reason = newer.absence().filter(|reason| !had_members || !reason.is_not_found());
            if reason.is_some() && reason != older.and_then(|members| members.absence()) {
                self.pending.extend(reason.map(|reason| of_collection(&newer, reason)));
            }
        }
    }
}

/// The changes from one state to another one.
///
/// The time is linear in the changes, as states share the nodes of their maps.
fn differences<T: Resource>(older: Option<&Members<T>>, newer: &Members<T>) -> VecDeque<MemberChange<T>> {
    let nothing = imbl::OrdMap::new();
    let older = older.map_or(&nothing, |members| &members.erased().map);
    let newer = newer.erased();
    let mut changes: VecDeque<_> = older
        .diff(&newer.map)
        .map(|item| {
            let (name, observed) = match item {
                DiffItem::Add(name, member) | DiffItem::Update { new: (name, member), .. } => {
                    (name, member.to_typed())
                }
                DiffItem::Remove(name, _) => (name, Arc::new(removed(name, newer))),
            };
            MemberChange { name: name.clone(), observed, of_collection: false, complete: false }
        })
        .collect();
    // On the last change alone: a reader that acts on `complete` has then seen all members of the state.
    if let Some(last) = changes.back_mut() {
        last.complete = newer.complete;
    }
    changes
}

/// The absence of the collection as a whole.
fn of_collection<T: Resource>(members: &Members<T>, reason: WatchError) -> MemberChange<T> {
    let observed = Arc::new(Observed::Absent { reason });
    let ErasedMembers { name, complete, .. } = members.erased();
    MemberChange { name: name.clone(), observed, of_collection: true, complete: *complete }
}

/// The state of a member that was removed.
///
/// The engine publishes states without removed members, so that this error is made here.
fn removed<T>(name: &Arc<str>, members: &ErasedMembers) -> Observed<T> {
    let about = Subject { type_url: members.type_url, name: name.clone(), node: members.node.clone() };
    let reason = "the management server has it no longer";
    Observed::Absent { reason: WatchError::new(Code::NotFound, Blame::Peer, about, reason) }
}
