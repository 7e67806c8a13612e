//! Globs: on the wire one more requested name; the resources whose names match it are its members (X15 to X19).
//!
//! A glob has an entry of its own with the state of the collection as a whole: nothing is known (`Waiting`), the server
//! has sent a member (`Held`, of nothing), or there is no such collection (`Gone`). A name has at most one glob that
//! encloses it, so whether a resource is a member is one bit of its subscription at a server.
//!
//! Whether a resource is a member is derived from its canonical name alone, for which no list of globs is searched: the
//! enclosing glob of a name is known by its text ([`glob_of`](crate::name::glob_of)), and is looked up among the
//! subscriptions.

use super::{
    super::store::{Collection, CollectionKey, Store},
    Servers,
};
use crate::{
    invariant,
    protocol::{EntryId, ServerId, Subscription, TypeId},
};

/// The names that a glob matches.
#[derive(Debug)]
pub(in crate::engine) struct GlobPattern {
    /// The canonical name up to the `*`.
    prefix: String,
    /// The context parameters behind the `*`, with the question mark; empty without any.
    params: String,
}

impl GlobPattern {
    /// The pattern of a canonical name; `None` if it is not that of a glob.
    pub(in crate::engine) fn of(name: &str) -> Option<Self> {
        let (path, params) = name.split_at(name.find('?').unwrap_or(name.len()));
        let prefix = path.strip_suffix('*')?.to_owned();
        Some(Self { prefix, params: params.to_owned() })
    }

    /// Whether a canonical name is a member: one segment in place of `*`, all else equal (X16).
    pub(in crate::engine) fn matches(&self, name: &str) -> bool {
        let member = name.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_suffix(&*self.params));
        // One segment alone: a name further below has another enclosing glob.
        member.is_some_and(|member| !matches!(member, "" | "*") && !member.contains(['/', '?']))
    }
}

/// The members of globs as each server has sent them.
#[derive(Debug)]
pub(in crate::engine) struct Globs<'a> {
    servers: &'a mut Servers,
}

impl<'a> Globs<'a> {
    pub(super) fn new(servers: &'a mut Servers) -> Self {
        Self { servers }
    }

    /// Marks an entry as that of a watched glob. Its state is not published before it is requested from its servers.
    /// It may be watched by name as well, since a glob is a name like others on the wire.
    pub(super) fn begin(store: &mut Store, id: EntryId) {
        let Some(entry) = store.get_mut(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        entry.is_glob = true;
        let key = CollectionKey::of_glob(entry);
        store.members.begin(key, || Collection { entry: Some(id), ..Collection::default() });
    }

    /// The state of a glob as a whole has changed.
    ///
    /// A glob that is held has members, or may have; one that is gone has none, whatever was sent before.
    pub(super) fn on_changed(&mut self, store: &mut Store, id: EntryId) {
        // A glob that changes has an entry.
        let Some(entry) = store.existing(id) else { return };
        let key = CollectionKey::of_glob(entry);
        let (is_held, is_waiting) = (entry.is_held(), entry.is_waiting());
        let servers: Vec<_> = entry.subscriptions.iter().map(|(server, _)| server).collect();
        if !is_waiting {
            store.members.complete(&key);
            if !is_held {
                // There is no such collection any more, and so it has no members.
                servers.into_iter().for_each(|server| self.release_members(store, id, server));
                store.members.clear(&key);
            }
        }
        store.members.touch(&key);
    }

    /// The members that a server has sent are members no longer, and forgotten unless they have another subscription.
    pub(super) fn release_members(&mut self, store: &mut Store, id: EntryId, server: ServerId) {
        let Some(entry) = store.existing(id) else { return };
        let (ty, glob) = (entry.ty, GlobPattern::of(&entry.name));
        // A type that was never requested there has no members.
        let (Some(glob), Some(subscriptions)) = (glob, self.servers[server].machine.subscriptions_mut(ty))
        else {
            return;
        };
        let mut members = Vec::new();
        for (id, sub) in
            subscriptions.iter_mut().filter(|(_, sub)| sub.is_glob_member() && glob.matches(sub.name()))
        {
            sub.leave_glob();
            members.push(id);
        }
        self.servers[server].machine.release(ty, &members);
    }

    /// The entries of the subscriptions at a server that match a glob, and of which `is_meant` holds. It costs an iteration over
    /// the subscriptions of the type, so that it is called when globs begin, not for each response.
    pub(super) fn members_at(
        &mut self,
        server: ServerId,
        ty: TypeId,
        glob: &GlobPattern,
        is_meant: impl Fn(&Subscription) -> bool,
    ) -> Vec<EntryId> {
        // A type that was never requested there has no members.
        let Some(subscriptions) = self.servers[server].machine.subscriptions_mut(ty) else {
            return Vec::new();
        };
        let members = subscriptions.iter().filter(|(_, sub)| is_meant(sub) && glob.matches(sub.name()));
        members.map(|(_, sub)| sub.entry()).collect()
    }

    /// The server sent an error for a glob. The recovery is detected by its members being sent again, so the next
    /// stream requests them all.
    pub(in crate::engine) fn forget_member_versions(
        &mut self,
        store: &mut Store,
        id: EntryId,
        server: ServerId,
    ) {
        // Others have no members.
        let Some(entry) = store.get(id).filter(|entry| entry.is_glob) else { return };
        let (ty, glob) = (entry.ty, GlobPattern::of(&entry.name));
        // A type that was never requested there has no members.
        let (Some(glob), Some(subscriptions)) = (glob, self.servers[server].machine.subscriptions_mut(ty))
        else {
            return;
        };
        for (_, sub) in
            subscriptions.iter_mut().filter(|(_, sub)| sub.is_glob_member() && glob.matches(sub.name()))
        {
            sub.forget_version();
        }
    }
}
