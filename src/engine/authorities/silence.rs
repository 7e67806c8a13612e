//! Servers that do not answer a type: for a while, or with the end of the stream.
//!
//! The does-not-exist timer of a name decides on a resource. For a wildcard there is none to decide on, so that its watches
//! get a warning beside an empty collection (MS5). Where streams end with an error before a type is answered, that error is
//! better than "does not exist", and goes to the names that wait for the type as well.

use std::time::Instant;

use super::{
    super::{
        failure::{Failure, cannot_be_read},
        store::{CollectionKey, Store},
    },
    Groups, Memberships, Placement, Servers,
};
use crate::{
    cache::{Entry, Update},
    error::{Blame, Code, Subject, WatchError},
    protocol::{Channel, EntryId, GroupId, ServerId, TypeAtServer, TypeId},
    resource::{Invalid, Version},
};

/// The errors of watches whose type a server does not answer.
#[derive(Debug)]
pub(in crate::engine) struct Unanswered<'a> {
    servers: &'a mut Servers,
    groups: &'a Groups,
}

impl<'a> Unanswered<'a> {
    pub(super) fn new(servers: &'a mut Servers, groups: &'a Groups) -> Self {
        Self { servers, groups }
    }

    /// The does-not-exist time of a wildcard has passed without a resource of the type. That proves nothing of its
    /// members: the server may have none, or none for this client.
    /// So watches get a warning beside an empty collection, and not the error of an absent resource.
    pub(super) fn on_all_timed_out(&mut self, store: &mut Store, at: TypeAtServer) {
        let state = &self.servers[at.server];
        if let Some(malformed) = state.machine.unreadable() {
            let message = cannot_be_read(&state.machine.source(), malformed);
            return self.warn_wildcards(store, at, Code::InvalidArgument, &message);
        }
        let hint = match state.machine.stream().has_answered() {
            true => "; does it have resources of the type that are visible to this node?",
            false => "; the server accepted the stream but has sent no response (is this node known to it?)",
        };
        let message =
            format!("xDS server {} did not answer the wildcard in time{hint}", state.machine.source());
        self.warn_wildcards(store, at, Code::Unavailable, &message);
    }

    /// Streams to a server end with an error, and nothing of a type was ever received on them.
    pub(super) fn on_unanswered(&mut self, store: &mut Store, at: TypeAtServer, now: Instant) {
        let TypeAtServer { server, ty } = at;
        // It may have answered meanwhile.
        let Some(failure) = self.why_unanswered(server, ty) else { return };
        let is_waiting = |entry: &Entry| entry.ty == ty && entry.is_waiting() && !entry.watches.is_empty();
        // An iteration over the cache, for a type that was never answered over several streams.
        let waiting =
            store.iter().filter(|(_, entry)| is_waiting(entry) && self.groups.active(entry.group) == server);
        let waiting: Vec<_> = waiting.map(|(id, _)| id).collect();
        for id in waiting {
            self.on_type_unanswered(store, id, &failure, now);
        }
        self.warn_wildcards(store, at, failure.code(), failure.message());
    }

    /// A server has become the active one of a group: it may have ended streams for the types of wildcards before, or
    /// have sent nothing of them in time.
    pub(super) fn warn_unanswered(&mut self, store: &mut Store, group: GroupId, now: Instant) {
        let server = self.groups.get(group).active();
        for ty in store.members.watched_types(group) {
            self.on_unanswered(store, TypeAtServer { server, ty }, now);
            self.warn_timed_out(store, TypeAtServer { server, ty });
        }
    }

    /// Warns the watches of a wildcard that the server did not answer in time, while a group did not depend on it yet.
    pub(super) fn warn_timed_out(&mut self, store: &mut Store, at: TypeAtServer) {
        let channel = self.servers[at.server].machine.channel(at.ty);
        if channel.is_some_and(Channel::has_timed_out_all) {
            self.on_all_timed_out(store, at);
        }
    }

    /// A resource is watched whose type is held back at a server.
    pub(super) fn on_held_back(&mut self, store: &mut Store, server: ServerId, id: EntryId, now: Instant) {
        // It may have a state already.
        let Some(entry) = store.get(id).filter(|entry| entry.is_waiting()) else { return };
        let (ty, active) = (entry.ty, self.groups.active(entry.group));
        if let Some(failure) = self.why_unanswered(server, ty).filter(|_| active == server) {
            self.on_type_unanswered(store, id, &failure, now);
        }
    }

    /// Publishes the error of a type to the watches of one of its resources.
    fn on_type_unanswered(&mut self, store: &mut Store, id: EntryId, failure: &Failure, now: Instant) {
        let Some(entry) = store.existing(id) else { return };
        let error = WatchError::new(failure.code(), Blame::Peer, store.subject(entry), failure.message());
        let update = Update { version: Version::default(), at: now };
        Placement::new(self.servers, self.groups)
            // A transient error, without a policy: the server has reported nothing of the resource (A88-3).
            .update(store, id, |entry| entry.on_server_error(error, None, update));
    }

    /// The failure of a type that was never answered at a server; `None` once it was.
    fn why_unanswered(&self, server: ServerId, ty: TypeId) -> Option<Failure> {
        let machine = &self.servers[server].machine;
        let (reason, is_held_back) = machine.unanswered(ty)?;
        Some(Failure::new(machine.source_key(), reason).of_type(is_held_back))
    }

    /// A server has sent something of a type: its wildcard is answered.
    pub(in crate::engine) fn on_wildcard_answered(&mut self, store: &mut Store, at: TypeAtServer) {
        // No wildcard of the type depends on the server.
        let Some(key) = self.wildcard_at(store, at) else {
            return;
        };
        if store.members.get_mut(&key).is_some_and(|all| all.warning.take().is_some()) {
            store.members.touch(&key);
        }
    }

    /// A response of a type was rejected, and it is not known which resources are concerned: members may be missing.
    pub(in crate::engine) fn on_wildcard_rejected(
        &mut self,
        store: &mut Store,
        at: TypeAtServer,
        reason: &Invalid,
    ) {
        // No wildcard of the type depends on the server.
        let Some(key) = self.wildcard_at(store, at) else {
            return;
        };
        let warning = WatchError::rejected(wildcard_subject(store, at.ty), reason.clone());
        if let Some(all) = store.members.get_mut(&key) {
            all.warning = Some(warning);
            store.members.touch(&key);
        }
    }

    /// Publishes a warning with the wildcard of a type, unless it was answered before.
    fn warn_wildcards(&mut self, store: &mut Store, at: TypeAtServer, code: Code, message: &str) {
        // No wildcard of the type depends on the server.
        let Some(key) = self.wildcard_at(store, at) else {
            return;
        };
        let warning = WatchError::new(code, Blame::Peer, wildcard_subject(store, at.ty), message);
        // A complete collection was answered before.
        let Some(all) = store.members.get_mut(&key).filter(|all| !all.complete) else { return };
        all.warning = Some(warning);
        store.members.touch(&key);
    }

    /// The wildcard of a type that depends on a server: those of groups with a lower active server do not.
    fn wildcard_at(&self, store: &Store, at: TypeAtServer) -> Option<CollectionKey> {
        Memberships::new(self.servers, self.groups).wildcard_at(store, at.server, at.ty)
    }
}

/// The subject of errors of a wildcard.
fn wildcard_subject(store: &Store, ty: TypeId) -> Subject {
    store.subject_of(ty, "*".into())
}
