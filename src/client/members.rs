//! The members of a collection, and watches of them.

use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::Stream;
use imbl::{ordmap, shared_ptr::DefaultSharedPtr};

mod changes;

pub use self::changes::{Changes, MemberChange};

use super::{
    pool::Share,
    registry::{ResourceValue, SharedWatch, WatchValue},
    watcher::Watcher,
};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    observed::{ErasedMembers, Member, Observed},
    resource::{Erased, Resource},
};

/// A watch of all resources of a type, or of the members of a collection.
///
/// Created by [`Client::watch_all`](super::Client::watch_all). As a [`Stream`] it yields the latest state of all
/// [`Members`] whenever this watch has not yielded it; [`changes`](Self::changes) yields single members instead. The
/// stream ends when the client is shut down. A clone is a new watch that has yielded no state yet.
///
/// ```no_run
/// use xdskit::{Client, ResourceSelector, resource::Cluster};
///
/// async fn print_all(client: &Client) {
///     let mut clusters = client.watch_all::<Cluster>(ResourceSelector::All);
///     while let Some(members) = clusters.next().await {
///         for (name, seen) in &*members {
///             println!("{name}: {seen:?}");
///         }
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping a watch ends it"]
pub struct WatchAll<T: Resource> {
    /// The position of this watch.
    watcher: Watcher<Members<T>>,
}

/// The members of a wildcard or a collection at one time, in the order of their names.
///
/// Successive states share their common members, so that keeping a state is cheap.
pub struct Members<T> {
    /// The members as the engine has published them, without their Rust type.
    inner: Arc<ErasedMembers>,
    /// Their Rust type, in a function type, which is `Send`, `Sync` and `Unpin` whatever `T` is.
    resource: PhantomData<fn() -> T>,
}

/// An iterator over [`Members`] with their names, in the order of the names.
pub struct MembersIter<'a, T> {
    /// The members without their Rust type.
    inner: ordmap::Iter<'a, Arc<str>, Member, DefaultSharedPtr>,
    /// Their Rust type.
    resource: PhantomData<fn() -> T>,
}

impl<T: Resource> WatchAll<T> {
    pub(super) fn new(watch: Arc<SharedWatch<Members<T>>>, share: Option<Arc<Share>>) -> Self {
        Self { watcher: Watcher::new(watch, share) }
    }

    /// Waits for a state that this watch has not yielded yet; `None` when the client is shut down.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Arc<Members<T>>> {
        self.watcher.next().await
    }

    /// The latest state, without waiting: `None` if nothing is known yet. [`next`](Self::next) still yields it.
    pub fn latest(&self) -> Option<Arc<Members<T>>> {
        self.watcher.latest()
    }

    /// Waits until all members are known, and returns them, or the reason why there are none. The state counts as seen.
    ///
    /// # Errors
    /// No members were received because of an error, which may be temporary ([`WatchError::is_transient`]), or the client was shut
    /// down before all members were known (`CANCELLED`). After a later [`shutdown`](super::Client::shutdown), this returns the last
    /// members at once.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn ready(&mut self) -> Result<Arc<Members<T>>, WatchError> {
        // A server that cannot be reached yields a warning and never a complete set: `ready` ends with that.
        let known = |members: &Members<T>| members.is_complete() || members.warning().is_some();
        let members = self.watcher.wait_for(known).await.ok_or_else(|| self.watcher.watch().shut_down())?;
        match members.warning() {
            Some(why) if members.is_empty() => Err(why.clone()),
            Some(_) | None => Ok(members),
        }
    }

    /// Waits for a state that fulfils a condition, beginning with the latest one even if it was seen; `None` when the
    /// client is shut down.
    ///
    /// # Cancel safety
    /// The latest state is not lost if the future is dropped: the next call begins with it.
    pub async fn wait_for(&mut self, condition: impl FnMut(&Members<T>) -> bool) -> Option<Arc<Members<T>>> {
        self.watcher.wait_for(condition).await
    }

    /// The members as a stream of single changes: first all current members, then each changed one. Without members, it
    /// yields the reason under the name of the collection.
    pub fn changes(self) -> Changes<T> {
        Changes::new(self)
    }
}

impl<T: Resource> Stream for WatchAll<T> {
    type Item = Arc<Members<T>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.watcher.poll_next(cx)
    }
}

impl<T: Resource> Clone for WatchAll<T> {
    fn clone(&self) -> Self {
        Self { watcher: self.watcher.clone() }
    }
}

impl<T: Resource> Members<T> {
    /// Iterates over the members with their names, in the order of the names.
    pub fn iter(&self) -> MembersIter<'_, T> {
        MembersIter { inner: self.inner.map.iter(), resource: PhantomData }
    }

    /// The state of the member of this name; `None` if it does not exist or was not received yet.
    pub fn get(&self, name: &str) -> Option<&Observed<T>> {
        self.inner.map.get(name).map(|member| member.typed())
    }

    /// The number of members, including absent ones, such as rejected ones.
    pub fn len(&self) -> usize {
        self.inner.map.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.inner.map.is_empty()
    }

    /// Whether all members were received, as far as the protocol indicates. A wildcard or a glob is complete after
    /// the first response for it, since the protocol does not mark the end of a set; a list is complete when the state of
    /// each entry is known. A collection that does not exist is complete, with a [`warning`](Self::warning).
    pub fn is_complete(&self) -> bool {
        self.inner.complete
    }

    /// The reason why all members may be stale. Single members have warnings of their own.
    pub fn warning(&self) -> Option<&WatchError> {
        self.inner.warning.as_ref()
    }

    /// The reason why there are no members: the [`warning`](Self::warning), or `NOT_FOUND` if the server responded
    /// without any. `None` if there are members, and while nothing is known.
    pub fn absence(&self) -> Option<WatchError> {
        let ErasedMembers { map, complete, warning, type_url, name, node } = &*self.inner;
        if !map.is_empty() {
            return None;
        }
        let about = || Subject { type_url, name: name.clone(), node: node.clone() };
        // Not an error on the wire: the server has responded, without members.
        let none = || WatchError::new(Code::NotFound, Blame::Peer, about(), "the management server has none");
        warning.clone().or_else(|| complete.then(none))
    }

    /// The state without its Rust type, for comparisons.
    fn erased(&self) -> &ErasedMembers {
        &self.inner
    }
}

impl<'a, T: Resource> IntoIterator for &'a Members<T> {
    type Item = (&'a Arc<str>, &'a Observed<T>);
    type IntoIter = MembersIter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T: Resource> Iterator for MembersIter<'a, T> {
    type Item = (&'a Arc<str>, &'a Observed<T>);

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next().map(|(name, member)| (name, member.typed()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inner.size_hint()
    }
}

impl<T: Resource> ExactSizeIterator for MembersIter<'_, T> {}

impl<T> Clone for MembersIter<'_, T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), resource: PhantomData }
    }
}

impl<T> fmt::Debug for MembersIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MembersIter").field("left", &self.inner.len()).finish()
    }
}

impl<T: Resource> fmt::Debug for Members<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T: Resource> WatchValue for Members<T> {
    type Shared = ();

    fn from_erased(erased: Erased) -> Arc<Self> {
        let inner = erased.downcast().expect("what is published for a wildcard are members");
        Arc::new(Self { inner, resource: PhantomData })
    }
}

impl<T: Resource> ResourceValue for Members<T> {
    type Resource = T;

    fn refused(reason: WatchError) -> Self {
        Self { inner: Arc::new(ErasedMembers::refused(reason)), resource: PhantomData }
    }
}
