use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::{
    Engine, Refusal,
    failure::Failure,
    members::{Key, Which},
};
use crate::{
    cache::{Entry, News},
    config::{Authority, Bootstrap, ConfigSource},
    error::Code,
    name::ResourceName,
    protocol::{EntryId, GroupId, Machine, ServerId, Settings, SourceKey, SubId, TypeId},
    resource::config_source::ResourceConfigSource,
};

/// The sources of one authority, in the order in which they are tried, and how far down it had to go (A71-2).
///
/// ```text
///   servers   S0   S1   S2
///   open      ██   ██          these are asked for everything that is watched
///                   ▲
///                   active: the lowest open one; only its answers count
/// ```
///
/// [`fall_back`](Engine::fall_back) opens the next one, [`take_over`](Engine::take_over) closes those below a higher one.
#[derive(Debug)]
pub(crate) struct AuthorityState {
    /// `None` for the names of the older form.
    authority: Option<Arc<str>>,
    pub(super) contacts: Vec<SourceKey>,
    /// Never empty.
    pub(super) open: Vec<ServerId>,
    /// The next server is opened also when everything is cached (A95-1).
    pub(super) on_reachability_only: bool,
    /// How many views watch something of it.
    pub(super) views: usize,
    /// Why nothing can be had of it at the moment: the active server, and there is no other.
    pub(super) trouble: Option<Failure>,
    /// How many resources of it are in the cache.
    pub(super) entries: usize,
    /// The bootstrap names its sources: it stays.
    is_configured: bool,
}

/// All groups, made when they are first asked for.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Option<AuthorityState>>,
    vacant: BTreeSet<GroupId>,
    /// Those that have a server open.
    by_server: BTreeMap<ServerId, BTreeSet<GroupId>>,
    /// Types differ in where they come from, or have streams of their own: then each has groups of its own. Where all come
    /// over aggregated streams, they are in one group, and fall back together.
    are_by_type: bool,
    /// Those of each type, or of all types under the first.
    places: Vec<Places>,
}

/// The groups by what they are for.
#[derive(Debug, Default)]
struct Places {
    by_authority: BTreeMap<Arc<str>, GroupId>,
    /// That of the names of the older form.
    default: Option<GroupId>,
}

impl AuthorityState {
    /// The server whose answers count.
    pub(crate) fn active(&self) -> ServerId {
        *self.open.last().expect("a group has a server open")
    }

    /// The authority of its names; `None` for the names of the older form.
    #[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "metrics alone tell it"))]
    pub(crate) fn authority(&self) -> Option<&Arc<str>> {
        self.authority.as_ref()
    }

    /// How far down a server stands among those that are open.
    pub(super) fn rank(&self, server: ServerId) -> Option<usize> {
        self.open.iter().position(|open| *open == server)
    }

    /// Whether a server that is not the active one is to be preferred to it.
    pub(super) fn is_higher(&self, server: ServerId) -> bool {
        self.rank(server).is_some_and(|rank| rank + 1 < self.open.len())
    }
}

impl Groups {
    pub(super) fn new(bootstrap: &Bootstrap, settings: &Settings) -> Self {
        let is_aggregated = |source: &ConfigSource| match source {
            ConfigSource::Server(server) => server.api_type.unwrap_or(settings.api_type).is_aggregated(),
            ConfigSource::Path(_) => false,
        };
        let are_by_type = bootstrap.has_sources_by_type() || !bootstrap.all_sources().all(is_aggregated);
        Self { are_by_type, ..Self::default() }
    }

    /// The servers of an authority that all types share, if something of it was ever wanted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn of(&self, authority: Option<&str>) -> Option<&AuthorityState> {
        self.find(authority, TypeId(0)).map(|id| self.get(id))
    }

    fn find(&self, authority: Option<&str>, ty: TypeId) -> Option<GroupId> {
        let places = self.places.get(self.index(ty))?;
        match authority {
            None => places.default,
            Some(name) => places.by_authority.get(name).copied(),
        }
    }

    /// The group of an authority whose sources are asked in these ways, of which the first is open.
    fn like(&self, authority: Option<&str>, contacts: &[SourceKey], first: ServerId) -> Option<GroupId> {
        let is_like =
            |group: &AuthorityState| group.authority.as_deref() == authority && group.contacts == contacts;
        self.with_server(first).find(|id| is_like(self.get(*id)))
    }

    fn push(&mut self, group: AuthorityState) -> GroupId {
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

    /// Removes one that is not used; gives the servers that it had open.
    pub(super) fn remove(&mut self, id: GroupId) -> Vec<ServerId> {
        let Some(group) = self.groups[id.0 as usize].take() else { return Vec::new() };
        self.vacant.insert(id);
        for server in &group.open {
            self.unlink(id, *server);
        }
        group.open
    }

    /// Whether it came with resources, none of which needs it any more.
    pub(super) fn is_unused(&self, id: GroupId) -> bool {
        let group = self.groups[id.0 as usize].as_ref();
        group.is_some_and(|group| !group.is_configured && group.views == 0 && group.entries == 0)
    }

    /// Opens the next server.
    pub(super) fn open_next(&mut self, id: GroupId, server: ServerId) {
        self.get_mut(id).open.push(server);
        self.by_server.entry(server).or_default().insert(id);
    }

    /// Closes all servers but the first ones; gives those that were closed.
    pub(super) fn close_from(&mut self, id: GroupId, rank: usize) -> Vec<ServerId> {
        let closed = self.get_mut(id).open.split_off(rank);
        for server in &closed {
            self.unlink(id, *server);
        }
        closed
    }

    fn unlink(&mut self, id: GroupId, server: ServerId) {
        if let Some(groups) = self.by_server.get_mut(&server) {
            groups.remove(&id);
            if groups.is_empty() {
                self.by_server.remove(&server);
            }
        }
    }

    fn add(&mut self, group: AuthorityState, ty: TypeId) -> GroupId {
        let index = self.index(ty);
        if self.places.len() <= index {
            self.places.resize_with(index + 1, Places::default);
        }
        let authority = group.authority.clone();
        let id = self.push(group);
        match authority {
            None => self.places[index].default = Some(id),
            Some(name) => drop(self.places[index].by_authority.insert(name, id)),
        }
        id
    }

    fn index(&self, ty: TypeId) -> usize {
        if self.are_by_type { ty.index() } else { 0 }
    }

    pub(super) fn get(&self, id: GroupId) -> &AuthorityState {
        self.groups[id.0 as usize].as_ref().expect("what names a group keeps it")
    }

    pub(super) fn get_mut(&mut self, id: GroupId) -> &mut AuthorityState {
        self.groups[id.0 as usize].as_mut().expect("what names a group keeps it")
    }

    /// Whether a server is preferred to the active one by some group.
    pub(super) fn is_higher(&self, server: ServerId) -> bool {
        self.with_server(server).any(|id| self.get(id).is_higher(server))
    }

    /// Those that have a server open.
    pub(super) fn with(&self, server: ServerId) -> Vec<GroupId> {
        self.with_server(server).collect()
    }

    fn with_server(&self, server: ServerId) -> impl Iterator<Item = GroupId> {
        self.by_server.get(&server).into_iter().flatten().copied()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.groups.iter().flatten().count()
    }
}

impl Engine {
    /// The servers to ask for a name. They are made known when they were not yet.
    pub(super) fn group_for(
        &mut self,
        (ty, name): (TypeId, &ResourceName),
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        if let Some(known) = self.groups.find(name.authority(), ty) {
            return Ok(known);
        }
        let bootstrap = self.bootstrap.clone();
        let sources = bootstrap.sources_for(name, self.types[ty.index()].type_url());
        let sources = sources.map_err(|unknown| refuse(unknown.to_string()))?;
        self.add_group((name.authority(), ty), sources, now)
    }

    /// Where a resource is to be had whose name came with a source. What is asked in the same way elsewhere is shared.
    pub(super) fn peer_group(
        &mut self,
        (ty, name): (TypeId, &ResourceName),
        source: &ResourceConfigSource,
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        let contacts = self.contacts(ty, source.sources())?;
        let first = contacts.first().and_then(|first| self.servers.find(first));
        if let Some(known) = first.and_then(|first| self.groups.like(name.authority(), &contacts, first)) {
            return Ok(known);
        }
        let group = self.new_group(name.authority(), contacts, now)?;
        let id = self.groups.push(group);
        // It may be that the name is another group's already.
        self.unused.note_group(id);
        Ok(id)
    }

    /// The servers of names of the older form.
    pub(super) fn default_group(&mut self, ty: TypeId, now: Instant) -> Result<GroupId, Refusal> {
        if let Some(known) = self.groups.find(None, ty) {
            return Ok(known);
        }
        let bootstrap = self.bootstrap.clone();
        self.add_group((None, ty), bootstrap.sources_of(self.types[ty.index()].type_url()), now)
    }

    fn add_group(
        &mut self,
        (authority, ty): (Option<&str>, TypeId),
        sources: &[ConfigSource],
        now: Instant,
    ) -> Result<GroupId, Refusal> {
        let contacts = self.contacts(ty, sources)?;
        let group = self.new_group(authority, contacts, now)?;
        self.servers.keep(group.active());
        Ok(self.groups.add(AuthorityState { is_configured: true, ..group }, ty))
    }

    fn contacts(&self, ty: TypeId, sources: &[ConfigSource]) -> Result<Vec<SourceKey>, Refusal> {
        let type_url = self.types[ty.index()].type_url();
        let mut contacts = Vec::with_capacity(sources.len());
        for source in sources {
            let contact = SourceKey::new(source, type_url, &self.settings);
            let contact = contact.map_err(|message| Refusal { code: Code::Unimplemented, message })?;
            if !contacts.contains(&contact) {
                contacts.push(contact);
            }
        }
        Ok(contacts)
    }

    fn new_group(
        &mut self,
        authority: Option<&str>,
        contacts: Vec<SourceKey>,
        now: Instant,
    ) -> Result<AuthorityState, Refusal> {
        let nobody = || refuse("no source of the type is configured".into());
        let open = vec![self.server_id(contacts.first().ok_or_else(nobody)?, now)];
        let entry = authority.and_then(|name| self.bootstrap.authority(name).ok());
        let on_reachability_only = entry.is_some_and(Authority::fallback_on_reachability_only);
        let authority = authority.map(Into::into);
        let (views, trouble, entries, is_configured) = (0, None, 0, false);
        Ok(AuthorityState {
            authority,
            contacts,
            open,
            on_reachability_only,
            views,
            trouble,
            entries,
            is_configured,
        })
    }

    /// The place of a source, which gets one if it was not known; nothing is asked of it yet.
    pub(super) fn server_id(&mut self, contact: &SourceKey, now: Instant) -> ServerId {
        if let Some(known) = self.servers.find(contact) {
            return known;
        }
        let seed = (self.random.u64(..), now);
        let Self { servers, node, settings, .. } = self;
        servers.insert(settings, |id| Machine::new(id, contact.clone(), node.clone(), settings.clone(), seed))
    }

    /// Opens the next server of a group.
    pub(super) fn open_next(&mut self, id: GroupId, server: ServerId) {
        self.groups.open_next(id, server);
        if self.groups.get(id).is_configured {
            self.servers.keep(server);
        }
    }

    /// The entry of a name in a group, which is made if there is none.
    pub(super) fn entry_for(&mut self, (group, ty): (GroupId, TypeId), name: Arc<str>) -> EntryId {
        self.find_entry((group, ty), &name).unwrap_or_else(|| self.add_entry(Entry::new(name, (group, ty))))
    }

    /// The entry of a name that is watched. What came only under the wildcard of another group falls back with that, so that a
    /// watch has an entry of its own group.
    pub(super) fn watched_entry(&mut self, (group, ty): (GroupId, TypeId), name: Arc<str>) -> EntryId {
        let found = self.find_entry((group, ty), &name);
        let is_usable = |id: &EntryId| {
            self.table.get(*id).is_some_and(|entry| entry.group == group || !entry.views.is_empty())
        };
        found.filter(is_usable).unwrap_or_else(|| self.add_entry(Entry::new(name, (group, ty))))
    }

    /// The entry of a name, if a server of the group knows it.
    pub(super) fn find_entry(&mut self, (group, ty): (GroupId, TypeId), name: &str) -> Option<EntryId> {
        let Self { groups, servers, .. } = self;
        let mut open = groups.get(group).open.iter();
        open.find_map(|server| {
            let interest = servers[*server].machine.interest(ty)?;
            interest.get(interest.find(name)?).map(|sub| sub.entry)
        })
    }

    /// The group that takes everything of a type from a server.
    pub(super) fn wildcard_group(&self, server: ServerId, ty: TypeId) -> Option<GroupId> {
        let mut groups = self.groups.with(server).into_iter();
        groups.find(|group| self.collections.get(&(*group, ty, Which::All)).is_some())
    }

    /// Whether what a server sends of an entry counts.
    pub(super) fn counts(&self, id: EntryId, server: ServerId) -> bool {
        self.table.get(id).is_some_and(|entry| self.active_for(entry) == server)
    }

    /// Asks all open servers of its group for an entry.
    pub(super) fn ask(&mut self, id: EntryId, now: Instant) {
        let Some(entry) = self.table.get(id) else { return };
        for server in self.groups.get(entry.group).open.clone() {
            self.ask_at(id, server, now);
            self.settle(server, now);
        }
    }

    /// Asks one server for an entry.
    pub(super) fn ask_at(&mut self, id: EntryId, server: ServerId, now: Instant) {
        let Some(sub) = self.place(id, server) else { return };
        let Some(entry) = self.table.get(id) else { return };
        let named = (entry.ty, self.types[entry.ty.index()].type_url());
        let is_glob = entry.is_glob;
        self.peer(server).machine.subscribe(named, sub, now);
        if is_glob {
            self.join_members(id, server, now);
        }
    }

    /// The place of an entry at a server, which it gets if it has none.
    pub(super) fn place(&mut self, id: EntryId, server: ServerId) -> Option<SubId> {
        let entry = self.table.get_mut(id)?;
        let machine = &mut self.servers[server].machine;
        if let Some(sub) = entry.places.at(server) {
            let interest = machine.interest(entry.ty);
            if interest.and_then(|interest| interest.get(sub)).is_some_and(|sub| sub.entry == id) {
                return Some(sub);
            }
            // The machine has forgotten the name, which is not heard of yet.
            entry.places.remove(server);
        }
        if let Some(taken) = machine.interest(entry.ty).and_then(|interest| interest.find(&entry.name)) {
            return self.share_place(id, server, taken);
        }
        let named = (entry.ty, self.types[entry.ty.index()].type_url());
        let sub = machine.insert(named, entry.name.clone(), id);
        if let Some(sub) = machine.interest(entry.ty).and_then(|interest| interest.get_mut(sub)) {
            sub.held = entry.is_held();
        }
        entry.places.add(server, sub);
        Some(sub)
    }

    /// The place of a name that a server has sent under the wildcard of another group. What nobody watches by name there has no
    /// other use for an entry of its own.
    fn share_place(&mut self, id: EntryId, server: ServerId, taken: SubId) -> Option<SubId> {
        let Self { servers, table, .. } = self;
        let ty = table.get(id)?.ty;
        let sub = servers[server].machine.interest(ty)?.get_mut(taken)?;
        let other = table.get_mut(sub.entry).filter(|other| other.views.is_empty())?;
        let before = std::mem::replace(&mut sub.entry, id);
        other.places.remove(server);
        let is_last = other.places.is_empty();
        if let Some(entry) = table.get_mut(id) {
            entry.places.add(server, taken);
        }
        let is_waiting = self.table.get(id).is_some_and(Entry::is_waiting);
        let is_taken_over = is_waiting && self.counts(id, server);
        if is_taken_over && let Some(entry) = self.table.get(id) {
            // The server may be the one that was just fallen back to: the failure of those above it is not shown any more.
            self.judge(entry.group);
        }
        let changed = is_taken_over && self.hand_over(before, id);
        if is_last {
            self.remove_entry(before);
        }
        self.note_held(id);
        self.publish_if(id, changed, true);
        Some(taken)
    }

    /// One entry knows what another one of the same name knew. True when there is something new to see.
    fn hand_over(&mut self, from: EntryId, to: EntryId) -> bool {
        let expires = self.ttls.get(from);
        let mut known = None;
        self.give_news(from, |entry| {
            known = Some(entry.hand_over());
            News::Same
        });
        let Some(known) = known else { return false };
        let changed = self.give_news(to, |entry| entry.adopt(known));
        self.ttls.set(to, expires);
        changed
    }

    /// The wildcard of a type, if it is watched, or was and its server has not been told yet that it is not.
    pub(super) fn wildcard_key(&self, ty: TypeId) -> Option<Key> {
        let key = (self.groups.find(None, ty)?, ty, Which::All);
        self.collections.get(&key).is_some().then_some(key)
    }

    /// The wildcard that a resource is a member of at the server whose answers count for that, whatever server counts for the
    /// resource itself.
    pub(super) fn wildcard_of(&self, entry: &Entry) -> Option<Key> {
        let key = self.wildcard_key(entry.ty)?;
        let active = self.groups.get(key.0).active();
        let sub = self.servers[active].machine.sub(entry.ty, entry.places.at(active)?)?;
        sub.member.then_some(key)
    }

    /// The server whose answers count for an entry.
    pub(super) fn active_for(&self, entry: &Entry) -> ServerId {
        self.groups.get(entry.group).active()
    }

    /// Tells all servers' machines whether the cache holds a good resource.
    pub(super) fn note_held(&mut self, id: EntryId) {
        let Some(entry) = self.table.get(id) else { return };
        let held = entry.is_held();
        for (server, sub) in entry.places.iter() {
            let interest = self.servers[server].machine.interest(entry.ty);
            if let Some(sub) = interest.and_then(|interest| interest.get_mut(sub)) {
                sub.held = held;
            }
        }
    }
}

fn refuse(message: String) -> Refusal {
    Refusal { code: Code::FailedPrecondition, message }
}
