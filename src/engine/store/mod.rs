//! The state of the client: the entry of each resource, the members of collections, and the errors of servers as a whole.
//!
//! Every change of an entry's state goes through [`apply`](Store::apply), which keeps the counters, the TTLs and the
//! redirects in step. The necessary publications are recorded as a [`Change`] and taken by the engine, so that a change
//! costs the same whether or not anything is watched.
//!
//! The life of an entry, whose states are those of [`Entry`]:
//!
//! ```text
//!   a watch, or a sent member          apply                       the last subscription was released
//!   ─────────────────────────▶ Waiting ─────▶ Held, Gone, errors ────────────────────────────────────▶ removed
//!                                ▲                │ expired, or handed over to another entry
//!                                └────────────────┘
//! ```
//!
//! An entry is of one group and one type, and there is one for each name that a server of the group has a subscription for.
//! Subscriptions are in the machines; the entry has their ids, and its watches. Ids of removed entries are used again, so
//! that whoever keeps one across calls has to expect another entry under it.
//!
//! Cost: a change of one entry takes O(log n) at most. Only
//! [`entries_of`](Store::entries_of), [`lacks_resources`](Store::lacks_resources) and
//! [`set_server_error`](Store::set_server_error) iterate over all entries, which fallback and changes of a server's
//! reachability need.

mod effects;
mod initial;
mod members;
mod ttls;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use tracing::{debug, trace};

use self::{effects::Effects, initial::InitialTable, ttls::Ttls};
pub(super) use self::{
    effects::{Change, Effect},
    members::{Collection, CollectionKey, Members, Which},
};
use super::{counts::ResourceCounts, failure::Failure};
use crate::{
    cache::{Changed, Entry, ResourceState, ResponseBuffer, Table},
    error::{Subject, WatchError},
    escape::Escaped,
    invariant,
    name::Additions,
    protocol::{EntryId, GroupId, NamedType, StreamCommand, TypeId},
    resource::ResourceType,
};

/// All entries and collections of a client. See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct Store {
    /// The id of the node, which is in each error: servers answer by it.
    node_id: Arc<str>,
    /// The bytes that are sent to servers with each name.
    additions: Additions,
    /// The index is a [`TypeId`].
    types: Vec<ResourceType>,
    /// The entries, and the buffers of responses that they have parts of.
    table: Table,
    /// The expiries of entries that are held; each of them is in the table.
    ttls: Ttls,
    /// The number of entries in each state, for metrics and for finding unused groups.
    counts: ResourceCounts,
    /// Public to the engine, since its own methods keep its invariants.
    pub(super) members: Members,
    /// The groups whose active server has failed, and that have no other.
    server_errors: BTreeMap<GroupId, Failure>,
    /// What the engine has to publish and to pass on.
    effects: Effects,
    /// Entries that may redirect to another name than before.
    redirected: BTreeSet<EntryId>,
    /// Groups with removed entries, which may be unused now.
    emptied: BTreeSet<GroupId>,
    /// Removed entries, whose ids may be used again.
    removed: Vec<EntryId>,
    /// The initial resources that no server has answered.
    initial: InitialTable,
}

impl Store {
    pub(super) fn new(node_id: Arc<str>, additions: Additions) -> Self {
        Self {
            node_id,
            additions,
            types: Vec::new(),
            table: Table::default(),
            ttls: Ttls::default(),
            counts: ResourceCounts::default(),
            members: Members::default(),
            server_errors: BTreeMap::new(),
            effects: Effects::default(),
            redirected: BTreeSet::new(),
            emptied: BTreeSet::new(),
            removed: Vec::new(),
            initial: InitialTable::default(),
        }
    }

    /// The id of this client's node.
    pub(super) fn node_id(&self) -> &Arc<str> {
        &self.node_id
    }

    /// The context parameters that are added to names (X7).
    pub(super) fn additions(&self) -> &Additions {
        &self.additions
    }

    /// The number of a type, which is assigned at its first use.
    pub(super) fn type_id(&mut self, ty: ResourceType) -> TypeId {
        let known = self.types.iter().position(|known| known.type_url() == ty.type_url());
        TypeId(known.unwrap_or_else(|| {
            self.types.push(ty);
            self.types.len() - 1
        }) as u16)
    }

    /// The type of an id that [`type_id`](Self::type_id) has assigned.
    pub(super) fn ty(&self, id: TypeId) -> ResourceType {
        self.types[id.index()]
    }

    pub(super) fn type_url(&self, id: TypeId) -> &'static str {
        self.types[id.index()].type_url()
    }

    /// A type as machines take it.
    pub(super) fn named_type(&self, id: TypeId) -> NamedType {
        NamedType { id, url: self.type_url(id) }
    }

    /// All types, in the order of first use.
    pub(super) fn type_ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (0..self.types.len()).map(|index| TypeId(index as u16))
    }

    /// An entry. Ids are reused, so that an id that was kept beyond a removal may be that of another entry.
    pub(super) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.table.get(id)
    }

    /// An entry that its caller knows to be there; that it is not is reported as a broken invariant.
    #[track_caller]
    pub(super) fn existing(&self, id: EntryId) -> Option<&Entry> {
        let entry = self.table.get(id);
        if entry.is_none() {
            invariant::broken("a resource that is acted on has an entry");
        }
        entry
    }

    /// An entry, to change its subscriptions and watches; its state changes by [`apply`](Self::apply).
    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.table.get_mut(id)
    }

    /// All entries, in a fixed order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.table.iter()
    }

    /// The entries of a group, found by iterating over the table.
    pub(super) fn entries_of(&self, group: GroupId) -> Vec<EntryId> {
        self.table.iter().filter(|(_, entry)| entry.group == group).map(|(id, _)| id).collect()
    }

    /// Checks the counters against the entries.
    #[cfg(test)]
    pub(super) fn check_counts(&self) {
        self.counts.check(self.table.iter().map(|(_, entry)| entry));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds an entry, which has no subscription yet.
    pub(super) fn insert(&mut self, entry: Entry) -> EntryId {
        self.counts.add(&entry);
        self.table.insert(entry)
    }

    /// Removes an entry without subscriptions, with its expiry; its redirect is no longer followed.
    pub(super) fn remove(&mut self, id: EntryId) -> Option<Entry> {
        self.note_redirect(id);
        let entry = self.table.remove(id)?;
        self.counts.remove(&entry);
        self.emptied.insert(entry.group);
        self.removed.push(id);
        self.ttls.set(id, None);
        Some(entry)
    }

    /// Whether a group has entries.
    pub(super) fn has_entries_of(&self, group: GroupId) -> bool {
        self.counts.has_any_of(group)
    }

    /// Whether a watched resource of a group is not cached.
    pub(super) fn lacks_resources(&self, id: GroupId) -> bool {
        self.members.watched_wildcards(id).any(|(_, all)| !all.complete)
            || self
                .iter()
                .any(|(_, entry)| entry.group == id && !entry.watches.is_empty() && entry.is_unknown())
    }

    /// The groups with removed entries since the last time.
    pub(super) fn take_emptied(&mut self) -> BTreeSet<GroupId> {
        mem::take(&mut self.emptied)
    }

    /// An entry that was removed. Another one may have taken its id.
    pub(super) fn pop_removed(&mut self) -> Option<EntryId> {
        self.removed.pop()
    }

    /// Changes the state of an entry. True when the state that watches see has changed.
    ///
    /// This is the only way to change a state: counters, expiries and redirects depend on it. The caller publishes the change,
    /// and keeps the machines in step (`Placement::sync_held`).
    pub(super) fn apply(&mut self, id: EntryId, change: impl FnOnce(&mut Entry) -> Changed) -> bool {
        let Some(entry) = self.table.get_mut(id) else {
            invariant::broken("a resource that is acted on has an entry");
            return false;
        };
        let before = ResourceCounts::key(entry);
        let did_redirect = entry.redirect().is_some();
        let changed = change(entry);
        self.counts.update(before, entry);
        if !self.initial.is_empty() && entry.is_answered() {
            self.initial.forget(self.types[entry.ty.index()].type_url(), &entry.name);
        }
        // Whatever has ended the resource, it cannot expire any more.
        if !entry.is_held() {
            self.ttls.set(id, None);
        }
        if did_redirect || entry.redirect().is_some() {
            self.redirected.insert(id);
        }
        log(entry, self.types[entry.ty.index()].type_url(), changed);
        changed.into()
    }

    /// Moves the state of one entry to another one of the same name. True when its watches see a change.
    pub(super) fn hand_over(&mut self, from: EntryId, to: EntryId) -> bool {
        // Before the state is moved, which drops the expiry of an entry that holds nothing any more.
        let expires = self.ttls.get(from);
        let mut known = None;
        self.apply(from, |entry| {
            known = Some(entry.hand_over());
            Changed::No
        });
        // An entry that does not exist has no state to move.
        let Some(known) = known else { return false };
        let changed = self.apply(to, |entry| entry.adopt(known));
        self.ttls.set(to, expires);
        changed
    }

    /// The entry may redirect to another name than before, or a redirect may be followed that was not.
    pub(super) fn note_redirect(&mut self, id: EntryId) {
        if self.table.get(id).is_some_and(|entry| entry.redirect().is_some()) {
            self.redirected.insert(id);
        }
    }

    /// Records entries that are known to redirect, and whose redirects may be followed now.
    pub(super) fn note_redirects(&mut self, ids: impl IntoIterator<Item = EntryId>) {
        self.redirected.extend(ids);
    }

    /// The next entry that may redirect to another name than before.
    pub(super) fn pop_redirect(&mut self) -> Option<EntryId> {
        self.redirected.pop_first()
    }

    /// Records that a resource has changed, or that it `joins` the members of a collection.
    pub(super) fn note_change(&mut self, id: EntryId, changed: bool, joins: bool) {
        if changed || joins {
            self.effects.push_change(id, Change { changed, joins, unnotified: false });
        }
    }

    /// Records that there are watches of a resource that nothing was published to.
    pub(super) fn note_unnotified(&mut self, id: EntryId) {
        self.effects.push_change(id, Change { changed: false, joins: false, unnotified: true });
    }

    /// Appends a command of a server's machine to the effects.
    pub(super) fn push_command(&mut self, command: StreamCommand) {
        self.effects.push_command(command);
    }

    /// The next effect of a step.
    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop()
    }

    /// Sets the time at which a resource that was received at `since` expires, if it does.
    pub(super) fn set_ttl(&mut self, id: EntryId, since: Instant, ttl: Option<Duration>) {
        // A TTL beyond the range of the clock does not expire.
        self.ttls.set(id, ttl.and_then(|ttl| since.checked_add(ttl)));
    }

    /// Whether any resource expires.
    pub(super) fn has_ttls(&self) -> bool {
        !self.ttls.is_empty()
    }

    /// The earliest expiry of a resource.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ttls.next()
    }

    /// The next resource that has expired.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<EntryId> {
        self.ttls.pop(now)
    }

    /// The name of a resource in its errors.
    pub(super) fn subject(&self, entry: &Entry) -> Subject {
        self.subject_of(entry.ty, entry.name.clone())
    }

    /// The subject of errors about a name that may have no entry.
    pub(super) fn subject_of(&self, ty: TypeId, name: Arc<str>) -> Subject {
        Subject { type_url: self.type_url(ty), name, node: self.node_id.clone() }
    }

    /// The server error of a group at the moment.
    pub(super) fn server_error(&self, group: GroupId) -> Option<&Failure> {
        self.server_errors.get(&group)
    }

    /// Sets the server error of a group, and records the necessary publications. The errors of the servers above the active one are not shown (A71-4).
    ///
    /// Entries with an error of their own do not show it. Where nothing changes for those that do, watches that nothing was
    /// published to still get it: a new watch of an unreachable server has to see why.
    pub(super) fn set_server_error(&mut self, group: GroupId, error: Option<Failure>) {
        if self.server_errors.get(&group) == error.as_ref() {
            return;
        }
        match error {
            Some(error) => drop(self.server_errors.insert(group, error)),
            None => drop(self.server_errors.remove(&group)),
        }
        for id in self.entries_of(group) {
            let error = self.server_error_of(id);
            // Others have an error of their own.
            let Some(entry) = self.table.get_mut(id).filter(|entry| entry.shows_failure()) else { continue };
            match entry.on_failure(error) {
                Changed::Yes => self.note_change(id, true, false),
                Changed::No => self.note_unnotified(id),
            }
        }
        self.members.touch_all(group);
    }

    /// A group was removed.
    pub(super) fn forget_group(&mut self, group: GroupId) {
        self.server_errors.remove(&group);
        self.counts.forget_group(group);
    }

    /// The error of the servers of a resource.
    pub(super) fn server_error_of(&self, id: EntryId) -> Option<WatchError> {
        let entry = self.table.get(id)?;
        Some(self.server_errors.get(&entry.group)?.about(self.subject(entry)))
    }

    /// Makes a response one that resources may be parts of; `None` when it is too small for that.
    pub(super) fn new_buffer(&self, message: &Bytes) -> Option<Arc<ResponseBuffer>> {
        self.table.new_buffer(message)
    }

    /// Keeps a response that entries may have parts of, and copies the held parts of responses that are mostly not held any more.
    pub(super) fn keep_buffer(&mut self, buffer: Option<(Arc<ResponseBuffer>, Vec<EntryId>)>) {
        if let Some((buffer, parts)) = buffer {
            self.table.keep_buffer(buffer, parts);
        }
        self.table.copy_sparse();
    }

    /// The initial resources that no server has answered.
    pub(super) fn initial(&self) -> &InitialTable {
        &self.initial
    }

    /// The initial resources, to change them by what a server has sent.
    pub(super) fn initial_mut(&mut self) -> &mut InitialTable {
        &mut self.initial
    }

    /// The counters, to poll their changes.
    pub(super) fn counts_mut(&mut self) -> &mut ResourceCounts {
        &mut self.counts
    }

    /// The counters.
    pub(super) fn counts(&self) -> &ResourceCounts {
        &self.counts
    }
}

/// Logs the change of an entry; nothing of it is read unless the level is enabled.
fn log(entry: &Entry, type_url: &'static str, change: Changed) {
    let (name, kept) = (Escaped(&entry.name), entry.is_held());
    let Some(ambient) = entry.ambient_error() else {
        return match (change, entry.held()) {
            (Changed::Yes, Some((version, _))) => {
                debug!(type_url, %name, version = %Escaped(version), "resource accepted");
            }
            (Changed::No, Some((version, _))) => {
                trace!(type_url, %name, version = %Escaped(version), "resource unchanged");
            }
            // Nothing is held and there is no error: there is no event to log.
            (Changed::Yes | Changed::No, None) => {}
        };
    };
    let (version, error) = (Escaped(&ambient.update.version), &ambient.error);
    match (change, ambient.state) {
        (Changed::No, state) => trace!(type_url, %name, %version, %state, "error unchanged"),
        (Changed::Yes, ResourceState::Nacked) => {
            debug!(type_url, %name, %version, kept, %error, "resource rejected");
        }
        (Changed::Yes, ResourceState::DoesNotExist) => {
            debug!(type_url, %name, %version, kept, %error, "resource does not exist");
        }
        (Changed::Yes, ResourceState::Timeout) => debug!(type_url, %name, %error, "resource timed out"),
        (Changed::Yes, ResourceState::ReceivedError) => {
            debug!(type_url, %name, %version, kept, %error, "resource error from the server");
        }
        (Changed::Yes, ResourceState::Requested | ResourceState::Acked) => {
            invariant::broken("an ambient error has the state of an error");
        }
    }
}
