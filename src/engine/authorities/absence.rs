//! Resources that a server was due to send and did not.
//!
//! | sign | proves absence |
//! |---|---|
//! | a complete response of listeners or clusters lacks the name (B1.10) | yes, unless the response may have crossed the request (B1.13) |
//! | the server was quiet for a while, in the incremental variant (B2.34) | yes, of what it did not confirm on the stream |
//! | the does-not-exist time has passed (A57) | yes, as long as the server was reachable |
//! | a removal, or an error of the name | yes: these are applied by `ingest`, without a timer |
//! | the server is not the active one | no; it is recorded, and decides when the group returns to the server |

use std::time::Instant;

use super::{
    super::{
        failure::{cannot_be_read, no_such, not_found_hint},
        store::{CollectionKey, Store},
    },
    CollectionMembers, Groups, Placement, Servers,
};
use crate::{
    cache::{Changed, Entry, ResourceState, Update},
    error::{Blame, Code, WatchError},
    invariant,
    protocol::{Channel, EntryId, ServerId, Subscription, TypeAtServer, TypeId, TypeInGroup},
    resource::Version,
    wire::Malformed,
};

/// A response that is being applied. Subscriptions are marked with its number when it mentions their names, so that absence from
/// it can be told without a set of names.
#[derive(Debug, Clone, Copy)]
pub(in crate::engine) struct ResponseId {
    /// The server that has sent the response.
    pub(in crate::engine) server: ServerId,
    /// Assigned in the order of application, over all servers.
    pub(in crate::engine) number: u64,
}

/// The reason for taking resources to be gone.
#[derive(Debug)]
pub(in crate::engine) struct Missed {
    /// What the server did, for the message of the error: a predicate, such as "has deleted it".
    pub(in crate::engine) why: &'static str,
    /// The update that the absence is for entries: the response that lacks them, or no version.
    pub(in crate::engine) update: Update,
    /// The present, which is later than `update` if the response had to wait.
    pub(in crate::engine) now: Instant,
}

/// A resource that a server has not sent in time.
#[derive(Debug)]
struct NotSent {
    server: ServerId,
    /// What watches see.
    error: WatchError,
    now: Instant,
}

/// The absence of resources, as missing responses and does-not-exist timers prove it.
#[derive(Debug)]
pub(in crate::engine) struct Absence<'a> {
    servers: &'a mut Servers,
    groups: &'a Groups,
}

impl<'a> Absence<'a> {
    pub(super) fn new(servers: &'a mut Servers, groups: &'a Groups) -> Self {
        Self { servers, groups }
    }

    /// A resource that a server was due to send and did not is gone, if its answers count.
    ///
    /// The machine decides first: absence proves nothing of a name whose request the response may have crossed (B1.13).
    pub(in crate::engine) fn on_missed(
        &mut self,
        store: &mut Store,
        at: TypeAtServer,
        Missed { why, update, now }: Missed,
    ) {
        let TypeAtServer { server, ty } = at;
        let state = &mut self.servers[server];
        let policy = state.policy;
        let Some(subscriptions) = state.machine.subscriptions_mut(ty) else {
            invariant::broken("a type that is answered was requested");
            return;
        };
        let missed = subscriptions.iter().filter(|(_, sub)| sub.is_missing() && sub.was_there());
        let missed: Vec<_> = missed.map(|(id, sub)| (id, sub.entry())).collect();
        for (sub, id) in missed {
            // The absence of the members of a glob implies that the glob is empty.
            let is_glob = store.get(id).is_some_and(|entry| entry.is_glob);
            if is_glob
                || !self.placement().counts(store, id, server)
                || !self.servers[server].machine.is_gone(ty, sub, now)
            {
                continue;
            }
            let Some(entry) = store.existing(id) else { continue };
            let machine = &self.servers[server].machine;
            let source = machine.source();
            let message = match machine.source_key().capabilities().remote {
                true => format!("xDS server {source} {why}{}", not_found_hint(machine)),
                false => format!("{source} does not hold it any more"),
            };
            let error = WatchError::new(Code::NotFound, Blame::Peer, store.subject(entry), message);
            self.placement().update(store, id, |entry| entry.on_deleted(error, policy, update.clone()));
            self.members().leave_collections(store, id);
        }
    }

    /// A server was quiet for a while. A resource that is held since an earlier stream, in a version that was not sent
    /// to the server, and that was not sent again, is gone; and the responses to a wildcard request are complete.
    pub(super) fn on_quiet(&mut self, store: &mut Store, server: ServerId, ty: TypeId, now: Instant) {
        // What is missing may be in the response that was rejected.
        let is_rejected = self.servers[server].machine.channel(ty).is_some_and(Channel::is_last_rejected);
        if let Some(subscriptions) = self.servers[server]
            .machine
            .subscriptions_mut(ty)
            .filter(|subscriptions| !subscriptions.received_all)
        {
            subscriptions.received_all = subscriptions.wildcard && subscriptions.sends_all && !is_rejected;
            if subscriptions.received_all {
                self.complete_all(store, server, ty);
            }
        }
        let update = Update { version: Version::default(), at: now };
        self.on_missed(
            store,
            TypeAtServer { server, ty },
            Missed { why: "did not send it again", update, now },
        );
    }

    /// A server has sent all its resources of a type.
    pub(in crate::engine) fn complete_all(&mut self, store: &mut Store, server: ServerId, ty: TypeId) {
        for group in self.groups.with(server) {
            if self.groups.get(group).active() == server {
                store.members.complete(&CollectionKey::of_all(TypeInGroup { group, ty }));
            }
        }
    }

    /// A does-not-exist timer of a server ended (A57-5, A88-5). It does not matter as long as a lower server is active.
    ///
    /// What the watches see depends on what is known: a server that does not answer at all, or not this type, has another
    /// message than one that answers other names; a held resource is kept or dropped by the policy for deletions.
    pub(in crate::engine) fn on_timed_out(
        &mut self,
        store: &mut Store,
        server: ServerId,
        id: EntryId,
        now: Instant,
    ) {
        // It may have been removed since the timer ended.
        let Some(entry) = store.get(id) else { return };
        let active = self.groups.active(entry.group);
        // An active server that has failed cannot decide on the name, so that the time at a server above it counts.
        if server != active && self.servers[active].failure.is_none() {
            return;
        }
        if self.members().is_glob_known(store, id, now) {
            return;
        }
        let Some(entry) = store.existing(id) else { return };
        let channel = self.servers[server].machine.channel(entry.ty);
        if entry.state() == ResourceState::Nacked && channel.is_some_and(Channel::is_last_rejected) {
            // A rejection is an answer (B0.23): a complete response without the resource has to follow.
            let (ty, sub) = (entry.ty, entry.subscriptions.at(server));
            let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
            if let Some(sub) = subscriptions.zip(sub).and_then(|(all, sub)| all.get_mut(sub)) {
                sub.on_answered();
            }
            return;
        }
        let state = &self.servers[server];
        let uri = state.machine.source();
        let sub = entry.subscriptions.at(server).and_then(|sub| state.machine.sub(entry.ty, sub));
        let (code, message) = if !state.machine.source_key().capabilities().remote {
            (Code::NotFound, format!("does not exist: {uri} does not hold it"))
        } else if state.machine.is_delta() && sub.is_some_and(Subscription::is_known_missing) {
            // The server reported its absence while its answers did not count.
            (Code::NotFound, no_such(&uri))
        } else if let Some(malformed) = self.unreadable(server, entry) {
            (Code::InvalidArgument, cannot_be_read(&uri, malformed))
        } else {
            self.not_sent(store, server, entry)
        };
        let error = WatchError::new(code, Blame::Peer, store.subject(entry), message);
        self.set_absent(store, id, NotSent { server, error, now });
    }

    /// The error of a resource that a server has not sent in time, and could have sent.
    fn not_sent(&self, store: &Store, server: ServerId, entry: &Entry) -> (Code, String) {
        let machine = &self.servers[server].machine;
        let source = machine.source();
        // What is held was missing from a response, so that it is a deletion, which the timer has confirmed.
        let is_transient = source.features().resource_timer_is_transient_error && !entry.is_held();
        let (code, prefix) = match is_transient {
            true => (Code::Unavailable, ""),
            false => (Code::NotFound, "does not exist: "),
        };
        let (hint, at) = (self.timeout_hint(store, server, entry), not_found_hint(machine));
        (code, format!("{prefix}xDS server {source} did not send it in time{hint}{at}"))
    }

    fn set_absent(&mut self, store: &mut Store, id: EntryId, NotSent { server, error, now }: NotSent) {
        let policy = self.servers[server].policy;
        let channel = store.get(id).and_then(|entry| self.servers[server].machine.channel(entry.ty));
        let is_answered = channel.is_some_and(Channel::is_answered);
        // The held resource was missing from a response, but may have been in flight still.
        let changed = self.placement().apply(store, id, |entry| match entry.is_held() {
            true => entry.on_deleted(error, policy, Update { version: Version::default(), at: now }),
            false => {
                // A server that answers the type, and not the name, has answered it.
                let ended = if is_answered { entry.end_initial() } else { Changed::No };
                entry.on_timeout(error, now).or(ended)
            }
        });
        if changed {
            self.placement().note_changed(store, id);
            self.members().leave_collections(store, id);
        }
    }

    /// A complete response lacks resources whose time had passed behind a response that could not be read, which may have been the one
    /// with them: they do not exist (B0.23).
    pub(in crate::engine) fn on_missing_after_unreadable(
        &mut self,
        store: &mut Store,
        at: TypeAtServer,
        now: Instant,
    ) {
        let TypeAtServer { server, ty } = at;
        let Some(subscriptions) = self.servers[server].machine.subscriptions(ty) else { return };
        let overdue = subscriptions.iter().filter(|(_, sub)| sub.is_missing() && sub.has_timed_out());
        let is_unexplained = |entry: &Entry| {
            let error = entry.ambient_error();
            error.is_some_and(|known| {
                known.state == ResourceState::Timeout && known.error.code() == Code::InvalidArgument
            })
        };
        let overdue = overdue.map(|(_, sub)| sub.entry());
        let unexplained: Vec<_> = overdue.filter(|id| store.get(*id).is_some_and(is_unexplained)).collect();
        for id in unexplained {
            let Some(entry) = store.get(id).filter(|entry| self.groups.active(entry.group) == server) else {
                continue;
            };
            let (code, message) = self.not_sent(store, server, entry);
            let error = WatchError::new(code, Blame::Peer, store.subject(entry), message);
            self.set_absent(store, id, NotSent { server, error, now });
        }
    }

    /// What is wrong with a response that may have been the one that a resource waits for: nothing else of its type was received.
    /// What is held was missing from another response.
    fn unreadable(&self, server: ServerId, entry: &Entry) -> Option<Malformed> {
        let machine = &self.servers[server].machine;
        let sub = entry.subscriptions.at(server).filter(|_| !entry.is_held())?;
        let channel = machine.channel(entry.ty)?;
        // A removal that may be older than the request starts a timer of its own, behind the last response.
        let is_missing = channel.subscriptions.get(sub).is_some_and(Subscription::is_missing);
        machine.unreadable().filter(|_| !is_missing && channel.is_unanswered(sub))
    }

    /// The hint for an operator when a server has not sent a resource in time.
    fn timeout_hint(&self, store: &Store, server: ServerId, entry: &Entry) -> &'static str {
        let machine = &self.servers[server].machine;
        if !machine.stream().has_answered() {
            return "; the server accepted the stream but has sent no response (is this node known to it?)";
        }
        let capabilities = machine.source_key().capabilities();
        let is_sotw = capabilities.streaming && !capabilities.incremental;
        let is_full_state = store.ty(entry.ty).full_state();
        let is_unanswered = || {
            let found = entry.subscriptions.at(server).zip(machine.channel(entry.ty));
            found.is_some_and(|(sub, channel)| channel.is_unanswered(sub))
        };
        if is_sotw && !is_full_state && machine.may_want_all_names() && is_unanswered() {
            return ALL_NAMES_HINT;
        }
        "; is the name correct and visible to this node?"
    }

    /// Whether the does-not-exist time of a server has passed while its answers did not count, without the resource.
    ///
    /// It decides what reversion to the server does to a resource that nothing is held of.
    pub(super) fn has_timed_out(
        &mut self,
        store: &mut Store,
        id: EntryId,
        ResponseId { server, number }: ResponseId,
    ) -> bool {
        // What is held stays until the server sends an update, and what does not exist below does not here.
        let is_open = |entry: &&Entry| !entry.is_held() && entry.state() != ResourceState::DoesNotExist;
        let Some(entry) = store.get(id).filter(is_open) else { return false };
        let (ty, sub, is_waiting) = (entry.ty, entry.subscriptions.at(server), entry.is_waiting());
        let subscriptions = self.servers[server].machine.subscriptions_mut(ty);
        subscriptions.zip(sub).and_then(|(subscriptions, sub)| subscriptions.get(sub)).is_some_and(|sub| {
            // An answer with an error stays as well. The error of a server below does not.
            let is_due = if is_waiting { sub.is_decided() } else { sub.has_timed_out() };
            is_due && !sub.is_mentioned_in(number)
        })
    }

    /// Whether a known resource is missing from the responses of a server while its answers did not count, although
    /// they would have included it. If it can be requested by name, its does-not-exist timer begins now.
    ///
    /// It decides what reversion to the server does to a resource that is held from a server below.
    pub(super) fn is_missed(
        &mut self,
        store: &mut Store,
        id: EntryId,
        ResponseId { server, number }: ResponseId,
        now: Instant,
    ) -> bool {
        // Members of a glob may be missing, not the glob itself.
        let known = store.get(id).filter(|entry| !entry.is_waiting() && !entry.is_glob);
        // The state of others is unknown, so that nothing is missing.
        let Some(entry) = known else { return false };
        // It was never requested from the server.
        let (ty, Some(sub)) = (entry.ty, entry.subscriptions.at(server)) else { return false };
        let machine = &mut self.servers[server].machine;
        let subscriptions = machine.subscriptions_mut(ty);
        let is_missed = |sub: &Subscription| sub.is_missing() && !sub.is_mentioned_in(number);
        if !subscriptions.and_then(|subscriptions| subscriptions.get(sub)).is_some_and(is_missed) {
            return false;
        }
        if let Some(channel) = machine.channel_mut(ty) {
            channel.doubt(sub, now);
        }
        machine.is_gone(ty, sub, now)
    }

    fn members(&mut self) -> CollectionMembers<'_> {
        CollectionMembers::new(self.servers, self.groups)
    }

    fn placement(&mut self) -> Placement<'_> {
        Placement::new(self.servers, self.groups)
    }
}

/// go-control-plane in ADS mode leaves a request unanswered until it names all resources of the type in its snapshot, except
/// in the incremental variant.
const ALL_NAMES_HINT: &str = ", nor any other resource of the type; is the name correct and visible to this node? Some servers \
    respond only to requests that name all resources of a type, as go-control-plane does in ADS mode (watch all of them, or use \
    the incremental variant, api_type AGGREGATED_DELTA_GRPC)";
