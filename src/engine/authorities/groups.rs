//! The sources of each authority in their order.
//!
//! A group is found in two ways. Those of the bootstrap are found by authority, and by type where types have sources or
//! streams of their own. Those of sources that came with resources are found by their sources ([`like`](Groups::like)), so
//! that any number of resources that name the same source share its streams.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    config::{Bootstrap, ConfigSource},
    engine::Settings,
    invariant,
    protocol::{GroupId, ServerId, SourceKey, TypeId},
};

/// The sources of one authority, in the order of their priority, and the depth of the fallback (A71-2).
///
/// ```text
///   servers   S0   S1   S2
///   open      ██   ██          everything watched is requested from these
///                   ▲
///                   active: the lowest open one; only its answers count
/// ```
///
/// `Authorities::fall_back` opens the next one, `Authorities::revert_to_primary` closes those below a higher one.
#[derive(Debug)]
pub(crate) struct AuthorityState {
    /// `None` for the names of the older form.
    pub(super) authority: Option<Arc<str>>,
    /// The sources in the order of their priority. Those behind the open ones were not needed so far.
    pub(in crate::engine) source_keys: Vec<SourceKey>,
    /// Never empty.
    /// The last one is the active one. The others failed when they were active, and are watched for their recovery.
    pub(in crate::engine) open: Vec<ServerId>,
    /// The next server is opened also when everything is cached (A95-1).
    /// Otherwise a failure of the active server is tolerated as long as nothing is missing (A71-3).
    pub(super) on_reachability_only: bool,
    /// The number of watches of its resources.
    /// Without any, the group does not fall back.
    pub(super) watches: usize,
    /// The bootstrap names its sources: it is never removed.
    pub(super) is_configured: bool,
}

/// All groups, made at the first subscription.
#[derive(Debug, Default)]
pub(in crate::engine) struct Groups {
    /// The index is a [`GroupId`]; `None` is vacant.
    groups: Vec<Option<AuthorityState>>,
    /// The ids of removed groups; the least is used next, so that ids stay dense.
    vacant: BTreeSet<GroupId>,
    /// How often the active server of a group has changed.
    switches: u64,
    /// The groups with an open server.
    by_server: BTreeMap<ServerId, BTreeSet<GroupId>>,
    /// Types with sources or streams of their own have groups of their own. Types that share aggregated streams are in
    /// one group, and fall back together.
    are_by_type: bool,
    /// The groups of each type, or of all types under the first.
    by_type: Vec<GroupsOfType>,
}

/// The groups of one type.
#[derive(Debug, Default)]
struct GroupsOfType {
    /// The groups of the authorities of `xdstp:` names.
    by_authority: BTreeMap<Arc<str>, GroupId>,
    /// The group of the names of the older form.
    default: Option<GroupId>,
}

impl AuthorityState {
    /// The active server, whose answers count.
    pub(crate) fn active(&self) -> ServerId {
        *self.open.last().expect("a group has a server open")
    }

    /// The authority of its names; `None` for the names of the older form.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone report it"))]
    pub(crate) fn authority(&self) -> Option<&Arc<str>> {
        self.authority.as_ref()
    }

    /// The position of a server among the open ones, from the top.
    pub(super) fn rank(&self, server: ServerId) -> Option<usize> {
        self.open.iter().position(|open| *open == server)
    }

    /// Whether a server that is not the active one is preferred to it.
    pub(in crate::engine) fn is_higher(&self, server: ServerId) -> bool {
        self.rank(server).is_some_and(|rank| rank + 1 < self.open.len())
    }
}

impl Groups {
    /// No group. Whether groups are by type follows from the bootstrap, and does not change.
    pub(super) fn new(bootstrap: &Bootstrap, settings: &Settings) -> Self {
        let is_aggregated = |source: &ConfigSource| match source {
            ConfigSource::Server(server) => {
                server.api_type.unwrap_or(settings.protocol.api_type).is_aggregated()
            }
            ConfigSource::Path(_) => false,
        };
        // Where all types come on one stream, its failure concerns all of them. Types with streams of their own fail, and fall
        // back, by themselves.
        let are_by_type = bootstrap.has_sources_by_type() || !bootstrap.all_sources().all(is_aggregated);
        Self { are_by_type, ..Self::default() }
    }

    /// The servers of an authority that all types share, if it ever had a subscription.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(in crate::engine) fn of(&self, authority: Option<&str>) -> Option<&AuthorityState> {
        self.find(authority, TypeId(0)).map(|id| self.get(id))
    }

    /// How often the active server of a group has changed.
    pub(in crate::engine) fn switches(&self) -> u64 {
        self.switches
    }

    /// The group of an authority, or of the names of the older form, if it is there already.
    pub(super) fn find(&self, authority: Option<&str>, ty: TypeId) -> Option<GroupId> {
        let of_type = self.by_type.get(self.index(ty))?;
        match authority {
            None => of_type.default,
            Some(name) => of_type.by_authority.get(name).copied(),
        }
    }

    /// The group of an authority with these sources, of which the first is open.
    pub(super) fn like(
        &self,
        authority: Option<&str>,
        source_keys: &[SourceKey],
        first: ServerId,
    ) -> Option<GroupId> {
        let is_like = |group: &AuthorityState| {
            group.authority.as_deref() == authority && group.source_keys == source_keys
        };
        self.with_server(first).find(|id| is_like(self.get(*id)))
    }

    /// Adds a group of a source that came with a resource. It is found by [`like`](Self::like), not by its authority.
    pub(super) fn push(&mut self, group: AuthorityState) -> GroupId {
        let id = self.vacant.pop_first().unwrap_or_else(|| {
            self.groups.push(None);
            GroupId(self.groups.len() as u32 - 1)
        });
        for server in &group.open {
            self.by_server.entry(*server).or_default().insert(id);
        }
        self.groups[id.0 as usize] = Some(group);
        id
    }

    /// Removes an unused group; returns the servers that it had open.
    pub(super) fn remove(&mut self, id: GroupId) -> Vec<ServerId> {
        let Some(group) = self.groups[id.0 as usize].take() else {
            invariant::broken("a group is removed once");
            return Vec::new();
        };
        self.vacant.insert(id);
        for server in &group.open {
            self.unlink(id, *server);
        }
        group.open
    }

    /// Whether it came with resources and has no watch any more.
    pub(super) fn is_unwatched(&self, id: GroupId) -> bool {
        let group = self.groups[id.0 as usize].as_ref();
        group.is_some_and(|group| !group.is_configured && group.watches == 0)
    }

    /// Opens the next server.
    pub(super) fn open_next(&mut self, id: GroupId, server: ServerId) {
        self.get_mut(id).open.push(server);
        // Load reports go to the active server: they are examined again only if this number has changed.
        self.switches += 1;
        self.by_server.entry(server).or_default().insert(id);
    }

    /// Closes all servers but the first ones; returns the closed ones.
    pub(super) fn close_from(&mut self, id: GroupId, rank: usize) -> Vec<ServerId> {
        let closed = self.get_mut(id).open.split_off(rank);
        self.switches += u64::from(!closed.is_empty());
        for server in &closed {
            self.unlink(id, *server);
        }
        closed
    }

    /// A server is not open in a group any more.
    fn unlink(&mut self, id: GroupId, server: ServerId) {
        if let Some(groups) = self.by_server.get_mut(&server) {
            groups.remove(&id);
            if groups.is_empty() {
                self.by_server.remove(&server);
            }
        }
    }

    /// Adds the group of an authority, which the bootstrap configures.
    pub(super) fn add(&mut self, group: AuthorityState, ty: TypeId) -> GroupId {
        let index = self.index(ty);
        if self.by_type.len() <= index {
            self.by_type.resize_with(index + 1, GroupsOfType::default);
        }
        let authority = group.authority.clone();
        let id = self.push(group);
        match authority {
            None => self.by_type[index].default = Some(id),
            Some(name) => drop(self.by_type[index].by_authority.insert(name, id)),
        }
        id
    }

    /// The index in `by_type`.
    fn index(&self, ty: TypeId) -> usize {
        if self.are_by_type { ty.index() } else { 0 }
    }

    /// A group. Entries, collections and watches keep the groups that they name (`Authorities::sweep`), so that it is there.
    pub(in crate::engine) fn get(&self, id: GroupId) -> &AuthorityState {
        self.groups[id.0 as usize].as_ref().expect("what names a group keeps it")
    }

    /// A group, to change its servers by the methods above or to count its watches.
    pub(super) fn get_mut(&mut self, id: GroupId) -> &mut AuthorityState {
        self.groups[id.0 as usize].as_mut().expect("what names a group keeps it")
    }

    /// The active server of a group, whose answers count.
    pub(in crate::engine) fn active(&self, id: GroupId) -> ServerId {
        self.get(id).active()
    }

    /// Whether a server is preferred to the active one by some group.
    pub(in crate::engine) fn is_higher(&self, server: ServerId) -> bool {
        self.with_server(server).any(|id| self.get(id).is_higher(server))
    }

    /// The groups with an open server.
    pub(in crate::engine) fn with(&self, server: ServerId) -> Vec<GroupId> {
        self.with_server(server).collect()
    }

    /// The groups that have a server open.
    fn with_server(&self, server: ServerId) -> impl Iterator<Item = GroupId> {
        self.by_server.get(&server).into_iter().flatten().copied()
    }

    #[cfg(test)]
    pub(in crate::engine) fn len(&self) -> usize {
        self.groups.iter().flatten().count()
    }
}
