//! The watches of indirections: which of them each belongs to, and the orders to begin and end them.
//!
//! An indirection does not begin a watch itself, since that changes other rooms: it orders the watch, and the engine begins
//! it when the call has returned. The new watch is begun before the old one ends, so that a name that both have keeps its
//! subscription.

use std::{collections::BTreeMap, mem, sync::Arc};

use super::super::{
    delivery::Delivery,
    selection::{SelectedName, Selection},
    store::CollectionKey,
};
use crate::{base::WatchId, name::ResourceName, protocol::EntryId, resource::ResourceType};

/// All watches of indirections. A watch is in the map from its order on, until its end is ordered.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The indirection of each watch.
    followers: BTreeMap<WatchId, Follower>,
    /// The orders that the engine has not taken yet.
    orders: Vec<WatchOrder>,
}

/// A watch to begin or to end.
#[derive(Debug)]
pub(in crate::engine) enum WatchOrder {
    /// Begin a watch; the engine then reports that it has begun.
    Subscribe { watch_id: WatchId, ty: ResourceType, names: Selection },
    /// End a watch.
    Unsubscribe(WatchId),
}

/// The indirection that a watch belongs to: what is published anew when the watch sees a change.
#[derive(Debug, Clone)]
pub(super) enum Follower {
    /// A resource that redirects.
    Redirect(EntryId),
    /// A name with an alternative, by the watch of the whole name.
    Alternative(WatchId),
    /// A collection with an alternative, by the watch of the whole name.
    CollectionAlternative(WatchId),
    /// An inline entry of a list, by the watch of the entry.
    Inline(WatchId),
    /// The members of a list.
    List(CollectionKey),
    /// One member of a list.
    Member(ListedName),
    /// The members of a glob in a list.
    Glob(ListedName),
}

/// The name of a member, or of a glob, in a list.
#[derive(Debug, Clone)]
pub(super) struct ListedName {
    /// The list, as a collection.
    pub(super) list: CollectionKey,
    /// The text of a locator; of an inline entry the name of the list with its own name, or its index, as fragment.
    pub(super) name: Arc<str>,
}

/// What a watch was begun for, past alternatives and inline entries.
pub(super) enum Above {
    /// A resource with a redirect to it.
    Redirect(EntryId),
    /// An application, a resolution or a list.
    Watch(WatchId),
}

/// Begins watches. Their numbers come from the delivery, which has those of resolutions as well.
pub(super) struct Follow<'a> {
    pub(super) links: &'a mut Links,
    pub(super) delivery: &'a mut Delivery,
}

impl Links {
    /// The orders since the last call, in their order. Executing one may cause others.
    pub(super) fn take_orders(&mut self) -> Vec<WatchOrder> {
        mem::take(&mut self.orders)
    }

    /// The indirection that a watch belongs to; `None` for those of applications and resolutions, and for ended ones.
    pub(super) fn follower(&self, watch_id: WatchId) -> Option<&Follower> {
        self.followers.get(&watch_id)
    }

    /// The watch of the whole name, whose directives a watch follows; the watch itself if it follows none. The source that came
    /// with the name is that of its parts, too (X11).
    pub(super) fn origin_of(&self, mut watch_id: WatchId) -> WatchId {
        // A watch follows an earlier one, so that this ends.
        while let Some(
            Follower::Alternative(above) | Follower::CollectionAlternative(above) | Follower::Inline(above),
        ) = self.follower(watch_id)
        {
            watch_id = *above;
        }
        watch_id
    }

    /// The redirect through which a watch was begun, past alternatives and inline entries: these add nothing to the depth.
    pub(super) fn redirect_above(&self, mut watch_id: WatchId) -> Above {
        loop {
            match self.follower(watch_id) {
                Some(Follower::Redirect(id)) => return Above::Redirect(*id),
                Some(Follower::Alternative(above) | Follower::Inline(above)) => watch_id = *above,
                Some(
                    Follower::List(_)
                    | Follower::Member(_)
                    | Follower::Glob(_)
                    | Follower::CollectionAlternative(_),
                )
                | None => return Above::Watch(watch_id),
            }
        }
    }

    /// Orders the end of a watch, unless that was ordered before.
    pub(super) fn unfollow(&mut self, watch_id: WatchId) {
        if self.followers.remove(&watch_id).is_some() {
            self.orders.push(WatchOrder::Unsubscribe(watch_id));
        }
    }
}

impl Follow<'_> {
    /// Orders a watch of a name.
    pub(super) fn follow(&mut self, follower: Follower, ty: ResourceType, name: ResourceName) -> WatchId {
        self.order(follower, ty, Selection::One(SelectedName::Name(Box::new(name))))
    }

    /// Orders a watch of the members of a collection.
    pub(super) fn follow_collection(
        &mut self,
        follower: Follower,
        ty: ResourceType,
        name: ResourceName,
    ) -> WatchId {
        self.order(follower, ty, Selection::Collection(SelectedName::Name(Box::new(name))))
    }

    /// Orders the end of a watch.
    pub(super) fn unfollow(&mut self, watch_id: WatchId) {
        self.links.unfollow(watch_id);
    }

    /// Records the watch before the engine begins it: beginning it may already publish to it.
    fn order(&mut self, follower: Follower, ty: ResourceType, names: Selection) -> WatchId {
        let watch_id = self.delivery.next_watch_id();
        self.links.followers.insert(watch_id, follower);
        self.links.orders.push(WatchOrder::Subscribe { watch_id, ty, names });
        watch_id
    }
}
