//! What is seen by way of something else: redirects (X20), alternatives (X21), and entries of lists (X13).
//!
//! Whoever follows has a view of its own on what it follows, as a resolution has. Nothing of what is seen there is stored:
//! [`look`](Engine::look) goes along the views, and when one of them changes, whoever follows it is published anew.
//!
//! ```text
//!   view ─▶ entry A ─▶ redirect ─▶ view ─▶ entry B
//!   view ─▶ alternative ─┬─▶ view ─▶ entry A        as long as A's servers can be reached, or it is cached
//!                        └─▶ view ─▶ entry B        else
//! ```
//!
//! There is no ring in it: what would close one is not followed, and seen as an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use tracing::debug;

use super::{
    Engine, Refusal, Selection, View, Wanted, alternatives::Alternative, lists::Lists, members::Key,
};
use crate::{
    cache::{Entry, Redirect},
    error::{Blame, Code, WatchError, shortened},
    escape::Escaped,
    name::ResourceName,
    observed::ErasedObserved,
    protocol::{EntryId, TypeId, ViewId},
};

/// Everything that follows something.
#[derive(Debug, Default)]
pub(super) struct Indirections {
    /// Who follows what is seen by a view.
    pub(super) edges: BTreeMap<ViewId, Follower>,
    redirects: BTreeMap<EntryId, Followed>,
    pub(super) alternatives: BTreeMap<ViewId, Alternative>,
    pub(super) lists: Lists,
    /// What may lead elsewhere since it was looked at last.
    turned: BTreeSet<EntryId>,
    /// How often something was looked at, for tests of the work.
    #[cfg(test)]
    looks: std::cell::Cell<u64>,
}

/// What was seen in one look, by how many redirects led there: several ways may lead to the same resource, and each is looked at
/// once, since their number would else double with each alternative on the way.
#[derive(Debug, Default)]
pub(super) struct Looked {
    redirects: BTreeMap<(EntryId, usize), Option<ErasedObserved>>,
    alternatives: BTreeMap<(ViewId, usize), Option<ErasedObserved>>,
}

/// Who is to hear of a view.
#[derive(Debug, Clone)]
pub(super) enum Follower {
    /// A resource that redirects.
    Redirect(EntryId),
    /// A name with an alternative.
    Alternative(ViewId),
    /// A list's entry.
    Inline(ViewId),
    /// The members of a list.
    List(Key),
    /// One member of a list, by its name there.
    Member(Key, std::sync::Arc<str>),
}

/// Where a resource leads.
#[derive(Debug)]
struct Followed {
    target: ResourceName,
    view: ViewId,
    /// Why it is not followed.
    broken: Option<&'static str>,
}

impl Engine {
    /// Begins a view of one name, whose directives say how it is to be got.
    pub(super) fn begin_one(
        &mut self,
        view: ViewId,
        ty: TypeId,
        name: &ResourceName,
        now: Instant,
    ) -> Result<View, Refusal> {
        let Some(directives) = name.directives() else {
            return self.subscribe_name(view, ty, &self.additions.add_to(name), now);
        };
        match (directives.alt(), directives.entry()) {
            (Some(alt), _) => {
                self.check_types(ty, alt)?;
                self.begin_alternative(view, ty, name, now);
                Ok(View::Alternative)
            }
            (None, Some(entry)) => self.begin_inline(view, ty, (name, entry), now),
            (None, None) => self.subscribe_name(view, ty, &self.additions.add_to(name), now),
        }
    }

    /// Watches something on behalf of who follows it.
    pub(super) fn follow(
        &mut self,
        follower: Follower,
        ty: TypeId,
        names: Selection,
        now: Instant,
    ) -> ViewId {
        let view = self.walks.next_view();
        self.follows.edges.insert(view, follower);
        self.begin(view, self.types[ty.index()], names, now);
        view
    }

    pub(super) fn unfollow(&mut self, view: ViewId, now: Instant) {
        if self.follows.edges.remove(&view).is_some() {
            self.end(view, now);
        }
    }

    /// An entry was told something, or is forgotten: it may lead elsewhere than before.
    pub(super) fn note_turn(&mut self, id: EntryId) {
        let leads = self.table.get(id).is_some_and(|entry| entry.redirect().is_some());
        if leads || self.follows.redirects.contains_key(&id) {
            self.follows.turned.insert(id);
        }
    }

    /// Goes after one resource that leads elsewhere now; false when there is none.
    pub(super) fn follow_turn(&mut self, now: Instant) -> bool {
        let Some(id) = self.follows.turned.pop_first() else { return false };
        let target = self.table.get(id).and_then(Entry::redirect).map(|redirect| redirect.target.clone());
        let known = self.follows.redirects.get(&id);
        let was = known.map(|known| (known.target.clone(), known.broken));
        if known.map(|known| &known.target) == target.as_ref()
            && known.is_none_or(|known| known.broken.is_none())
        {
            return true;
        }
        let old = self.follows.redirects.remove(&id);
        if let Some(target) = target {
            self.redirect(id, target, now);
        }
        if let Some(old) = old {
            self.unfollow(old.view, now);
        }
        if self.follows.redirects.get(&id).map(|known| (known.target.clone(), known.broken)) != was {
            // What would have closed a ring may be open now.
            let broken = self.follows.redirects.iter().filter(|(_, known)| known.broken.is_some());
            let broken: Vec<_> = broken.map(|(id, _)| *id).filter(|other| *other != id).collect();
            self.follows.turned.extend(broken);
            if self.follows.redirects.get(&id).is_some_and(|known| known.broken.is_some()) {
                self.publish(id);
            }
        }
        true
    }

    fn redirect(&mut self, id: EntryId, target: ResourceName, now: Instant) {
        let Some((ty, name)) = self.table.get(id).map(|entry| (entry.ty, entry.name.clone())) else { return };
        debug!(name = %Escaped(&name), target = %Escaped(&target), "resource redirected");
        let is_deep = self.depth_of(id) >= MAX_REDIRECTS;
        let view = self.walks.next_view();
        let broken = is_deep.then_some(TOO_DEEP);
        self.follows.redirects.insert(id, Followed { target: target.clone(), view, broken });
        if is_deep {
            return;
        }
        self.follows.edges.insert(view, Follower::Redirect(id));
        self.begin(view, self.types[ty.index()], Selection::One(Wanted::Name(Box::new(target))), now);
        if self.is_ring(view) {
            self.unfollow(view, now);
            if let Some(followed) = self.follows.redirects.get_mut(&id) {
                followed.broken = Some("leads back to itself");
            }
        }
    }

    /// Something is to be seen by a view that somebody follows. False when it is not such a view.
    pub(super) fn on_followed(&mut self, view: ViewId, now: Instant) -> bool {
        let Some(follower) = self.follows.edges.get(&view).cloned() else { return false };
        match follower {
            Follower::Redirect(id) => {
                // It may lead elsewhere by now, or nowhere.
                let followed = self.follows.redirects.get(&id).filter(|followed| followed.view == view);
                let target = self.table.get(id).and_then(Entry::redirect).map(|redirect| &redirect.target);
                if followed.is_some_and(|followed| Some(&followed.target) == target) {
                    self.publish(id);
                }
            }
            Follower::Alternative(view) => self.settle_alternative(view, now),
            Follower::Inline(view) => self.publish_inline(view),
            Follower::List(key) => self.settle_list(&key, now),
            Follower::Member(key, name) => self.settle_member(&key, &name, view),
        }
        true
    }

    /// What a view of one resource sees at the moment.
    pub(super) fn look(&self, view: ViewId) -> Option<ErasedObserved> {
        self.look_along(view, 0, &mut Looked::default())
    }

    /// The same at some depth of a look.
    pub(super) fn look_along(
        &self,
        view: ViewId,
        depth: usize,
        looked: &mut Looked,
    ) -> Option<ErasedObserved> {
        match self.views.get(&view)? {
            View::One(id) => self.look_at(*id, depth, looked),
            View::Alternative => {
                if let Some(seen) = looked.alternatives.get(&(view, depth)) {
                    return seen.clone();
                }
                let seen = self.look_at_alternative(self.follows.alternatives.get(&view)?, depth, looked);
                looked.alternatives.insert((view, depth), seen.clone());
                seen
            }
            View::Inline => self.look_at_inline(view, depth, looked),
            View::Refused(reason) => Some(ErasedObserved::Absent { reason: reason.clone() }),
            View::All(..) | View::List(_) | View::Walk => None,
        }
    }

    /// What there is to see of an entry, wherever it leads.
    pub(super) fn look_at(&self, id: EntryId, depth: usize, looked: &mut Looked) -> Option<ErasedObserved> {
        self.count_look();
        let entry = self.table.get(id)?;
        let seen = entry.observe(|| self.failure_of(id))?;
        let ErasedObserved::Present { resource, .. } = &seen else { return Some(seen) };
        if !resource.is::<Redirect>() {
            return Some(seen);
        }
        if let Some(seen) = looked.redirects.get(&(id, depth)) {
            return seen.clone();
        }
        let seen = self.look_behind((id, entry), seen, depth, looked);
        looked.redirects.insert((id, depth), seen.clone());
        seen
    }

    /// What there is to see where an entry leads, of which this is seen.
    fn look_behind(
        &self,
        (id, entry): (EntryId, &Entry),
        seen: ErasedObserved,
        depth: usize,
        looked: &mut Looked,
    ) -> Option<ErasedObserved> {
        let ErasedObserved::Present { resource, warning, .. } = &seen else { return Some(seen) };
        let Some(Redirect { target }) = resource.downcast_ref() else { return Some(seen) };
        let followed = self.follows.redirects.get(&id).filter(|followed| followed.target == *target)?;
        let broken = followed.broken.or((depth >= MAX_REDIRECTS).then_some(TOO_DEEP));
        if let Some(why) = broken {
            let message = format!("the redirect to {} {why}", shortened(&target.to_string(), LONGEST_NAME));
            let reason = WatchError::new(Code::InvalidArgument, Blame::Peer, self.subject(entry), message);
            return Some(ErasedObserved::Absent { reason });
        }
        Some(match self.look_along(followed.view, depth + 1, looked)? {
            ErasedObserved::Present { resource, version, warning: theirs } => {
                ErasedObserved::Present { resource, version, warning: theirs.or(warning.clone()) }
            }
            ErasedObserved::Absent { reason } => {
                let way = format!("redirected to {}", shortened(&target.to_string(), LONGEST_NAME));
                ErasedObserved::Absent { reason: reason.via(self.subject(entry), &way) }
            }
        })
    }

    fn count_look(&self) {
        #[cfg(test)]
        self.follows.looks.set(self.follows.looks.get() + 1);
    }

    /// How often an entry was looked at.
    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.follows.looks.get()
    }

    /// The views that the view of one resource depends on.
    fn ways(&self, view: ViewId) -> Vec<ViewId> {
        match self.views.get(&view) {
            Some(View::One(id)) => {
                let followed = self.follows.redirects.get(id).filter(|followed| followed.broken.is_none());
                followed.map(|followed| followed.view).into_iter().collect()
            }
            Some(View::Alternative) => {
                let alternative = self.follows.alternatives.get(&view);
                alternative.into_iter().flat_map(Alternative::views).collect()
            }
            Some(View::Inline) => self.follows.lists.way(view).into_iter().collect(),
            Some(View::All(..) | View::List(_) | View::Walk | View::Refused(_)) | None => Vec::new(),
        }
    }

    /// Whether a view leads back to itself.
    pub(super) fn is_ring(&self, view: ViewId) -> bool {
        self.below(view).contains(&view)
    }

    /// All the views that the view of one resource depends on, directly or by way of others.
    pub(super) fn below(&self, view: ViewId) -> BTreeSet<ViewId> {
        let (mut open, mut seen) = (self.ways(view), BTreeSet::new());
        while let Some(next) = open.pop() {
            if seen.insert(next) {
                open.extend(self.ways(next));
            }
        }
        seen
    }

    /// How many redirects lead to an entry, one after the other, on the shortest way from somebody who watches; counted up
    /// to the limit.
    fn depth_of(&self, id: EntryId) -> usize {
        let views = self.table.get(id).map(|entry| entry.views.to_vec()).unwrap_or_default();
        if views.is_empty() {
            return 0;
        }
        self.nearest_watch(views).map_or(MAX_REDIRECTS, |(depth, _)| depth)
    }

    /// Who watches by way of the nearest of these views, and how many redirects are between them, if these are fewer than the
    /// limit. Each entry on the way is looked at once.
    pub(super) fn nearest_watch(&self, mut views: Vec<ViewId>) -> Option<(usize, ViewId)> {
        let mut seen = BTreeSet::new();
        for depth in 0..MAX_REDIRECTS {
            let mut above = Vec::new();
            for view in views {
                let id = match self.redirect_above(view) {
                    Ok(id) => id,
                    Err(watch) => return Some((depth, watch)),
                };
                let Some(entry) = self.table.get(id).filter(|_| seen.insert(id)) else { continue };
                if entry.views.is_empty() {
                    // It is a member of what is watched.
                    return Some((depth + 1, view));
                }
                above.extend(entry.views.iter().copied());
            }
            views = above;
        }
        None
    }

    /// The resource that redirects to what a view is of, be it as an alternative or a list; or who watches.
    fn redirect_above(&self, mut view: ViewId) -> Result<EntryId, ViewId> {
        loop {
            match self.follows.edges.get(&view) {
                Some(Follower::Redirect(id)) => return Ok(*id),
                Some(Follower::Alternative(above) | Follower::Inline(above)) => view = *above,
                Some(Follower::List(_) | Follower::Member(..)) | None => return Err(view),
            }
        }
    }

    pub(super) fn publish_seen(&mut self, view: ViewId, ty: TypeId, seen: ErasedObserved) {
        let observed = self.types[ty.index()].observe(seen);
        self.walks.deliver(&mut self.outputs, view, observed);
    }
}

/// How many redirects are followed one after the other.
const MAX_REDIRECTS: usize = 16;

const TOO_DEEP: &str = "is the last of more than 16, one after the other";

/// How much of a target's name an error repeats, in bytes.
const LONGEST_NAME: usize = 256;
