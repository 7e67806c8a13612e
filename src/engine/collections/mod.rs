//! Indirections: redirects (X20), alternatives (X21), and list collections (X12 to X14).
//!
//! Each indirection has a watch of its own on its target, as a resolution has. The state behind it is not stored: a
//! [`Look`] goes along the watches, and when one of them changes, the watches above it are published anew.
//!
//! ```text
//!   watch ─▶ entry A ─▶ redirect ─▶ watch ─▶ entry B
//!   watch ─▶ alternative ─┬─▶ watch ─▶ entry A        as long as A's servers can be reached, or it is cached
//!                         └─▶ watch ─▶ entry B        else
//! ```
//!
//! There is no ring in it: an indirection that would close one is not followed, and is an error.
//!
//! The watches are begun and ended by the engine, which takes the orders for that ([`WatchOrder`]) and reports each that it has
//! begun ([`on_subscribed`](Indirections::on_subscribed)).
//!
//! | file | type | contents |
//! |---|---|---|
//! | `links` | `Links`, `Follow` | the watches of indirections, and the orders to begin and end them |
//! | `redirects` | `Redirects` | resources whose value is the name of another one |
//! | `alternatives` | `Alternatives` | names that another one replaces while they are unreachable |
//! | `collection_alternatives` | `CollectionAlternatives` | globs and lists that another one replaces meanwhile |
//! | `lists`, `list_globs` | `Lists`, `GlobMembers` | lists, their members, and the globs in them |
//! | `look` | `Look<'_>` | what a watch sees by way of all of these |
//! | `paths` | `Paths<'_>` | rings, depths and limits |
//!
//! `Indirections` routes between them: it passes a change to the one concerned, and orders the watches that follow from it.

mod alternatives;
mod collection_alternatives;
mod links;
mod list_globs;
mod lists;
mod look;
mod paths;
mod redirects;

use tracing::debug;

pub(super) use self::{alternatives::MAX_ALTERNATIVES, links::WatchOrder, lists::list_type};
use self::{
    alternatives::{Alternative, Alternatives, NextUse, Other},
    collection_alternatives::{CollectionAlternatives, CollectionUse},
    links::{Follow, Follower, Links},
    lists::{InlineEntry, Lists},
    look::Look,
    paths::Paths,
    redirects::{Decided, Followed, Redirects},
};
use super::{
    delivery::{Delivery, WatchTarget},
    selection::{Refusal, TypedName, check_types},
    store::{CollectionKey, Store},
};
use crate::{
    base::WatchId, cache::Entry, escape::Escaped, invariant, name::ResourceName, observed::ErasedObserved,
    protocol::EntryId, resource::Erased,
};

/// All watched redirects, alternatives and lists. See the [module's](self) documentation.
#[derive(Debug, Default)]
pub(super) struct Indirections {
    /// The watches, and which indirection each belongs to.
    links: Links,
    /// The resources that redirect.
    redirects: Redirects,
    /// The names with alternatives, of resources.
    alternatives: Alternatives,
    /// The names with alternatives, of globs and lists.
    collections: CollectionAlternatives,
    /// The lists, and single inline entries of lists.
    lists: Lists,
    /// The number of derivations of each entry, for tests of the work.
    #[cfg(test)]
    looks: std::cell::Cell<u64>,
}

impl Indirections {
    /// The watches to begin and to end, in their order.
    pub(super) fn take_orders(&mut self) -> Vec<WatchOrder> {
        self.links.take_orders()
    }

    /// Whether a watch belongs to an indirection.
    pub(super) fn is_followed(&self, watch_id: WatchId) -> bool {
        self.links.follower(watch_id).is_some()
    }

    /// The watch of the whole name, whose directives a watch follows.
    pub(super) fn origin_of(&self, watch_id: WatchId) -> WatchId {
        self.links.origin_of(watch_id)
    }

    /// Begins a watch of one name with directives that define its source; `None` if it has none. An alternative comes first: the name
    /// without it may be an inline entry, which is then watched by the alternative's primary watch.
    pub(super) fn begin_one(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        typed: TypedName<'_>,
    ) -> Result<Option<WatchTarget>, Refusal> {
        let Some(directives) = typed.name.directives() else { return Ok(None) };
        match (directives.alt(), directives.entry()) {
            (Some(alternative), _) => {
                check_types(store.ty(typed.ty), alternative)?;
                self.begin_alternative(store, delivery, watch_id, typed);
                Ok(Some(WatchTarget::Alternative))
            }
            (None, Some(_)) => {
                self.begin_inline(store, delivery, watch_id, typed)?;
                Ok(Some(WatchTarget::Inline))
            }
            (None, None) => Ok(None),
        }
    }

    /// Begins a watch of a name that has an alternative.
    fn begin_alternative(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        typed: TypedName<'_>,
    ) {
        let follower = Follower::Alternative(watch_id);
        let name = typed.name.without_alt();
        let primary = self.follow(delivery).follow(follower, store.ty(typed.ty), name);
        self.alternatives.begin(watch_id, typed, primary);
    }

    /// Begins a watch of a collection that has an alternative.
    pub(super) fn begin_collection_alternative(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        typed: TypedName<'_>,
    ) {
        let follower = Follower::CollectionAlternative(watch_id);
        let name = typed.name.without_alt();
        let primary = self.follow(delivery).follow_collection(follower, store.ty(typed.ty), name);
        self.collections.begin(watch_id, typed, primary);
    }

    /// Begins a watch of one inline entry of a list, which the directives of the name have.
    fn begin_inline(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        TypedName { ty, name }: TypedName<'_>,
    ) -> Result<(), Refusal> {
        let list_ty = list_type(store, ty)?;
        let follower = Follower::Inline(watch_id);
        let list = self.follow(delivery).follow(follower, store.ty(list_ty), name.without_directives());
        let about = store.subject_of(ty, name.to_string().into());
        let entry = name.directives().and_then(|directives| directives.entry()).unwrap_or_default();
        let entry = InlineEntry { ty, list, about, entry: entry.to_owned(), published: None };
        self.lists.begin_inline(watch_id, entry);
        Ok(())
    }

    /// Begins to follow a list, whose own name and type are `list`, for a watch of its members.
    pub(super) fn begin_list(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        key: &CollectionKey,
        list: TypedName<'_>,
    ) {
        let Self { links, lists, .. } = self;
        lists.begin(&mut Follow { links, delivery }, key, store.ty(list.ty), list.name);
    }

    /// Ends to follow a list that has no watch any more.
    pub(super) fn end_list(&mut self, key: &CollectionKey) {
        self.lists.end(&mut self.links, key);
    }

    /// Ends a watch of a name with directives.
    pub(super) fn end(&mut self, watch_id: WatchId) {
        let Self { links, alternatives, collections, lists, .. } = self;
        let ended = alternatives.end(watch_id).chain(collections.end(watch_id));
        ended.chain(lists.end_inline(watch_id)).for_each(|watch_id| links.unfollow(watch_id));
    }

    /// An ordered watch has begun: a ring is detected now.
    pub(super) fn on_subscribed(&mut self, store: &mut Store, delivery: &mut Delivery, watch_id: WatchId) {
        match self.links.follower(watch_id) {
            Some(&Follower::Redirect(id)) => {
                if self.paths(store, delivery).is_ring(watch_id) {
                    self.links.unfollow(watch_id);
                    self.redirects.set_broken(id, "leads back to itself");
                }
                self.on_redirect_decided(store, id);
            }
            Some(&Follower::Alternative(above)) => {
                self.on_alternative_subscribed(store, delivery, above, watch_id);
            }
            // Lists do not lead back: they are of another type than their members. Nor do the alternatives of collections, which
            // are those in one name. A watch that ended meanwhile leads nowhere.
            Some(
                Follower::Inline(_)
                | Follower::List(_)
                | Follower::Member(_)
                | Follower::Glob(_)
                | Follower::CollectionAlternative(_),
            )
            | None => {}
        }
    }

    /// Handles a change of a watch. False when it belongs to no indirection.
    pub(super) fn on_observed(
        &mut self,
        store: &mut Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        observed: &Erased,
    ) -> bool {
        let Some(follower) = self.links.follower(watch_id).cloned() else { return false };
        match follower {
            Follower::Redirect(id) => {
                // Its target may have changed or ended.
                let followed = self.redirects.get(id).filter(|followed| followed.watch_id == watch_id);
                let target = store.get(id).and_then(Entry::redirect).map(|redirect| &redirect.target);
                if followed.is_some_and(|followed| Some(&followed.target) == target) {
                    store.note_change(id, true, false);
                }
            }
            Follower::Alternative(above) => self.update_alternative(store, delivery, above),
            Follower::CollectionAlternative(above) => {
                let Ok(members) = observed.clone().downcast() else {
                    invariant::broken("the state of a collection is that of its members");
                    return true;
                };
                let change = self.collections.update(above, watch_id, members);
                self.update_collection_alternative(store, delivery, above, change);
            }
            Follower::Inline(above) => self.publish_inline(store, delivery, above),
            Follower::List(key) => {
                // It may have ended meanwhile, or nothing is known of it yet.
                let list = self.lists.watch_of(&key);
                let seen = list.and_then(|list| self.look(store, delivery, list));
                let Self { links, lists, .. } = self;
                if let Some(seen) = seen {
                    lists.update(store, &mut Follow { links, delivery }, &key, seen);
                }
            }
            Follower::Member(listed) => {
                if let Some(seen) = self.look(store, delivery, watch_id) {
                    self.lists.update_member(store, &listed, watch_id, seen);
                }
            }
            Follower::Glob(listed) => self.lists.update_glob(store, &listed, watch_id, observed),
        }
        true
    }

    /// Follows one resource that redirects to another name than before; false when there is none.
    pub(super) fn follow_redirect(&mut self, store: &mut Store, delivery: &mut Delivery) -> bool {
        // None has changed.
        let Some(id) = store.pop_redirect() else { return false };
        let target = store.get(id).and_then(Entry::redirect).map(|redirect| redirect.target.clone());
        if self.redirects.is_settled(id, target.as_ref()) {
            return true;
        }
        let old = self.redirects.remove(id);
        match target {
            Some(target) => {
                if let Some(followed) = self.redirect(store, delivery, id, target) {
                    let is_decided = followed.broken.is_some();
                    self.redirects.insert(id, followed.instead_of(old.as_ref()));
                    if is_decided {
                        self.on_redirect_decided(store, id);
                    }
                }
            }
            // It has no target any more, so that rings through it are open.
            None => self.retry_broken(store, id),
        }
        // Behind the new watch, so that a resource of both keeps its subscription.
        if let Some(old) = old {
            self.links.unfollow(old.watch_id);
        }
        true
    }

    /// Follows a redirect, unless too many are followed in a row. Whether it leads back is known when its watch has begun.
    fn redirect(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        id: EntryId,
        target: ResourceName,
    ) -> Option<Followed> {
        let (ty, name) = store.existing(id).map(|entry| (entry.ty, entry.name.clone()))?;
        debug!(name = %Escaped(&name), target = %Escaped(&target), "resource redirected");
        if self.paths(store, delivery).depth_of(id) >= MAX_REDIRECTS {
            return Some(Followed::too_deep(target, delivery.next_watch_id()));
        }
        let follower = Follower::Redirect(id);
        let watch_id = self.follow(delivery).follow(follower, store.ty(ty), target.clone());
        Some(Followed::new(target, watch_id))
    }

    /// The decision on following a redirect is made.
    fn on_redirect_decided(&mut self, store: &mut Store, id: EntryId) {
        match self.redirects.on_decided(id) {
            Decided::Same => {}
            Decided::Followed => self.retry_broken(store, id),
            Decided::Broken => {
                self.retry_broken(store, id);
                store.note_change(id, true, false);
            }
        }
    }

    /// A redirect has changed: a ring through it may be open now.
    fn retry_broken(&self, store: &mut Store, id: EntryId) {
        store.note_redirects(self.redirects.broken_but(id));
    }

    /// Uses the alternative while the source of the name is unreachable and nothing of it is cached; until then, and
    /// once it delivers anything, the name itself.
    fn update_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        // It may have ended meanwhile.
        let Some(primary) = self.alternatives.get(watch_id).map(|known| known.primary) else { return };
        let seen = self.look(store, delivery, primary);
        let next = self.alternatives.get(watch_id).map(|known| known.next_use(seen.as_ref()));
        match next {
            Some(NextUse::Begin) => {
                let other = self.use_alternative(store, delivery, watch_id);
                self.alternatives.set_other(watch_id, other);
            }
            Some(NextUse::End(watch)) => {
                debug!(%watch_id, "reverted from the alternative name");
                self.links.unfollow(watch);
                self.alternatives.set_other(watch_id, Other::Unused);
            }
            Some(NextUse::Retry) => self.alternatives.set_other(watch_id, Other::Unused),
            Some(NextUse::Same) | None => {}
        }
        self.publish_alternative(store, delivery, watch_id);
    }

    /// Begins to use the alternative of a name, unless there are too many in use around the watch.
    fn use_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) -> Other {
        let Some(TypedName { ty, name }) = self.alternatives.get(watch_id).and_then(Alternative::alternative)
        else {
            invariant::broken("what has an alternative names it");
            return Other::Unused;
        };
        let name = name.clone();
        if self.paths(store, delivery).alternatives_around(watch_id) >= MAX_ALTERNATIVES {
            debug!(%watch_id, name = %Escaped(&name), limit = MAX_ALTERNATIVES, "alternative name not used: too many in use");
            return Other::TooMany;
        }
        debug!(%watch_id, name = %Escaped(&name), "using the alternative name");
        let follower = Follower::Alternative(watch_id);
        Other::Watched(self.follow(delivery).follow(follower, store.ty(ty), name))
    }

    /// The watch of an alternative has begun.
    fn on_alternative_subscribed(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        watch_id: WatchId,
        watch: WatchId,
    ) {
        let alternative = self.alternatives.get(watch_id);
        if !alternative.is_some_and(|known| known.other == Other::Watched(watch)) {
            return;
        }
        if self.paths(store, delivery).is_ring(watch_id) {
            self.links.unfollow(watch);
            self.alternatives.set_other(watch_id, Other::Ring);
        }
        self.publish_alternative(store, delivery, watch_id);
    }

    /// Publishes what a name with an alternative sees, if that has changed.
    fn publish_alternative(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        // Nothing is known yet, or the watch has ended.
        let Some(seen) = self.look(store, delivery, watch_id) else { return };
        if let Some(ty) = self.alternatives.publish(watch_id, &seen) {
            delivery.deliver(watch_id, store.ty(ty).observe(seen));
        }
    }

    /// Publishes what a watch of an inline entry sees, if that has changed.
    fn publish_inline(&mut self, store: &Store, delivery: &mut Delivery, watch_id: WatchId) {
        // Nothing is known yet, or the watch has ended.
        let Some(seen) = self.look(store, delivery, watch_id) else { return };
        if let Some(ty) = self.lists.publish_inline(watch_id, &seen) {
            delivery.deliver(watch_id, store.ty(ty).observe(seen));
        }
    }

    /// The members of a collection, or of its alternative, have changed. `above` is the watch of the whole name.
    fn update_collection_alternative(
        &mut self,
        store: &Store,
        delivery: &mut Delivery,
        above: WatchId,
        change: CollectionUse,
    ) {
        match change {
            CollectionUse::Same => {}
            CollectionUse::Begin { ty, name } => {
                debug!(watch_id = %above, name = %Escaped(&name), "using the alternative collection");
                let follower = Follower::CollectionAlternative(above);
                let other = self.follow(delivery).follow_collection(follower, store.ty(ty), name);
                self.collections.set_other(above, other);
            }
            CollectionUse::End(other) => {
                debug!(watch_id = %above, "reverted from the alternative collection");
                self.links.unfollow(other);
            }
        }
        if let Some(members) = self.collections.publish(store, above) {
            delivery.deliver(above, members);
        }
    }

    /// The ways between watches as they are now.
    fn paths<'a>(&'a self, store: &'a Store, delivery: &'a Delivery) -> Paths<'a> {
        Paths { indirections: self, store, delivery }
    }

    /// Begins watches of the engine's own.
    fn follow<'a>(&'a mut self, delivery: &'a mut Delivery) -> Follow<'a> {
        Follow { links: &mut self.links, delivery }
    }

    /// The number of alternatives in use.
    #[cfg(test)]
    pub(super) fn alternatives_in_use(&self) -> usize {
        self.alternatives.in_use()
    }

    /// The state that a watch of one resource sees at the moment.
    pub(super) fn look(
        &self,
        store: &Store,
        delivery: &Delivery,
        watch_id: WatchId,
    ) -> Option<ErasedObserved> {
        Look::new(self, store, delivery).at_watch(watch_id, 0)
    }

    /// The state that watches of an entry see at the moment, as a value of its type.
    pub(super) fn observe(&self, store: &Store, delivery: &Delivery, id: EntryId) -> Option<Erased> {
        let entry = store.get(id)?;
        let observed = Look::new(self, store, delivery).at_entry(id, 0)?;
        Some(store.ty(entry.ty).observe(observed))
    }

    /// Counts one derivation, in tests.
    fn count_look(&self) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
    }

    /// The number of derivations of an entry.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.looks.get()
    }
}

/// The maximum number of redirects in a row.
const MAX_REDIRECTS: usize = 16;

/// Why a redirect is not followed behind [`MAX_REDIRECTS`] others.
const TOO_DEEP: &str = "is the last of more than 16, one after the other";
