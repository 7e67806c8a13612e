//! Globs: on the wire one more requested name; the resources whose names match it are its members (X15 to X19).
//!
//! A glob has an entry of its own with the state of the collection as a whole: nothing is known (`Waiting`), the server
//! has sent a member (`Held`, of nothing), or there is no such collection (`Gone`). A name has at most one glob that
//! encloses it, so whether a resource is a member is one bit of its subscription at a server.

use std::{sync::Arc, time::Instant};

use super::{
    super::store::{Collection, CollectionKey, Store, Which},
    Authorities, By,
};
use crate::{
    cache::Update,
    invariant,
    name::glob_of,
    protocol::{EntryId, ServerId, Subscription, TypeId},
    resource::Version,
};

/// The names that a glob matches.
#[derive(Debug)]
pub(in crate::engine) struct GlobPattern {
    prefix: String,
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
        member.is_some_and(|member| !matches!(member, "" | "*") && !member.contains(['/', '?']))
    }
}

impl Authorities {
    /// Marks an entry as that of a watched glob. Its state is not published before it is requested from its servers.
    pub(super) fn begin_glob(&mut self, store: &mut Store, id: EntryId) {
        let Some(entry) = store.get_mut(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        entry.is_glob = true;
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        store.members.begin(key, || Collection { entry: Some(id), ..Collection::default() });
    }

    /// The does-not-exist time of a glob has passed. If members are known already, the server had nothing to send. True
    /// when nothing else follows.
    pub(super) fn is_glob_known(&mut self, store: &mut Store, id: EntryId, now: Instant) -> bool {
        // Others have no members, or are known.
        let Some(entry) = store.get(id).filter(|entry| entry.is_glob && entry.is_waiting()) else {
            return false;
        };
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        if store.members.get(&key).is_none_or(|collection| collection.members.is_empty()) {
            return false;
        }
        let update = Update { version: Version::default(), at: now };
        self.update(store, id, |entry| entry.on_accepted(Arc::new(()), [][..].into(), update));
        true
    }

    /// The state of a glob as a whole has changed.
    pub(super) fn on_glob_changed(&mut self, store: &mut Store, id: EntryId) {
        // A glob that changes has an entry.
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        let key = (entry.group, entry.ty, Which::Glob(entry.name.clone()));
        let (is_held, is_waiting) = (entry.is_held(), entry.is_waiting());
        let servers: Vec<_> = entry.places.iter().map(|(server, _)| server).collect();
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
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
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

    /// A glob is requested from one more server: its members from other servers get a subscription there, too, so that
    /// their absence is detected.
    pub(super) fn join_members(&mut self, store: &mut Store, id: EntryId, server: ServerId, now: Instant) {
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return;
        };
        let (group, ty, glob) = (entry.group, entry.ty, GlobPattern::of(&entry.name));
        let Some(glob) = glob else {
            invariant::broken("the entry of a glob has the name of one");
            return;
        };
        let active = self.groups.get(group).active();
        // The lowest server may have been opened just now, and then the one above it knows the members.
        let above = self.groups.get(group).open.iter().rev().nth(1).copied();
        if let Some(other) = if server == active { above } else { Some(active) } {
            for member in self.members_at(other, ty, &glob, |sub| sub.is_glob_member()) {
                self.join(store, (member, By::Glob), server, now);
            }
        }
        // A server need not resend for a glob a resource that it has sent by name (B2.20): it counts as a member until
        // the server removes it.
        if server == active && self.servers[server].machine.is_delta() {
            for member in self.members_at(active, ty, &glob, |sub| sub.has_version() && !sub.is_glob_member())
            {
                self.join(store, (member, By::Glob), server, now);
                self.join_higher(store, member, By::Glob, now);
                store.note_change(member, false, true);
            }
        }
    }

    fn members_at(
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

    /// The collection of the glob that encloses a resource's name, if there is one.
    pub(in crate::engine) fn glob_key(&self, store: &Store, id: EntryId) -> Option<CollectionKey> {
        let entry = store.get(id).filter(|_| store.members.has_globs())?;
        let (ty, active, glob) = (entry.ty, self.active_for(entry), glob_of(&entry.name)?);
        let subscriptions = self.servers[active].machine.subscriptions(ty)?;
        let glob = subscriptions.get(subscriptions.find(&glob)?)?.entry();
        let glob = store.get(glob).filter(|entry| entry.is_glob)?;
        Some((glob.group, ty, Which::Glob(glob.name.clone())))
    }

    /// The collections that an entry is a member of at the active server, and its names there: a glob, and the wildcard.
    pub(in crate::engine) fn collections_of(
        &self,
        store: &Store,
        id: EntryId,
    ) -> [Option<(CollectionKey, Arc<str>)>; 2] {
        let Some(entry) = store.get(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return [None, None];
        };
        let active = self.active_for(entry);
        let sub = entry.places.at(active).and_then(|sub| self.servers[active].machine.sub(entry.ty, sub));
        let glob = sub.filter(|sub| sub.is_glob_member()).and_then(|_| self.glob_key(store, id));
        [
            glob.map(|key| (key, store.additions().take_from(&entry.name))),
            self.wildcard_of(store, entry).map(|key| (key, entry.name.clone())),
        ]
    }
}
