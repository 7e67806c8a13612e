//! A resource of one name in the cache: what is known of it, and who wants to know.
//!
//! An entry changes by methods named after events on the wire, and each returns [`Changed`]. `Changed::No` is a promise to the
//! watches: nothing that they could observe differs. The time of the last update, which only the status shows, may differ
//! nevertheless.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    AmbientError, Changed, InitialResource, OneOrMany, Policy, Raw, Redirect, ResourceState,
    ServerSubscriptions, Update,
};
use crate::{
    base::WatchId,
    error::WatchError,
    observed::{ErasedObserved, ResourceSource},
    protocol::{GroupId, TypeId},
    resource::{Erased, Version},
};

/// One resource of one authority: its state, and its watches.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The canonical name. It has the context parameters that the client adds to requests.
    pub(crate) name: Arc<str>,
    /// The name in requests, if it differs (X2). Of several spellings it is that of the first watch, and for a member of a
    /// collection that of the server.
    pub(crate) spelling: Option<Arc<str>>,
    /// The resource type. One name may be that of several types, each with an entry of its own.
    pub(crate) ty: TypeId,
    /// The servers that may know it. A name that is requested from the servers of two groups has an entry in each.
    pub(crate) group: GroupId,
    /// The subscriptions at the servers that it is requested from, or sent by. An entry without any is removed, since nothing
    /// would keep its state up to date.
    pub(crate) subscriptions: ServerSubscriptions,
    /// The watches of the name. Empty for a member that nobody watches by name. Watches of collections are not here.
    pub(crate) watches: OneOrMany<WatchId>,
    /// The watches that nothing was published to. A watch that joins a known resource is published to alone, while the others
    /// have its state already. Emptied by each publication.
    pub(crate) unnotified: OneOrMany<WatchId>,
    /// The name is a glob: the state is that of the collection as a whole. Held, it has no resource: the value is `()` with
    /// empty bytes, which mean that the server has sent a member.
    pub(crate) is_glob: bool,
    /// Set when the time to live of a held resource expires, and cleared by the next change of the entry. Such an entry is
    /// unknown to the choice of a server, unlike a deleted one: the next server of the authority is opened if its own is
    /// unreachable.
    is_expired: bool,
    /// What watches see until a server has answered, and then no more.
    initial: Option<Box<InitialResource>>,
    /// What is known.
    state: State,
}

/// The state of a resource.
///
/// ```text
///            on_accepted             on_rejected, on_deleted (kept), on_server_error
///  Waiting ───────────────▶ Held ─────────────────────────────────────┐
///     │  ▲                   │ ▲ └──▶ Held { warning } ◀──────────────┘
///     │  │      on_deleted,  │ │ on_accepted, on_unchanged (clears the warning)
///     │  │ on_rejected, …    ▼ │
///     └──┼────────────────▶ Gone { reason }
///        │ on_timeout, on_rejected, on_server_error: an error without a good resource
/// ```
#[derive(Debug)]
enum State {
    /// The state before the first response about the name. `notified` is the server error that the watches have, so that it is
    /// not published twice. A server error is shown in this state without leaving it, so that the end of the error does not
    /// have to restore anything.
    Waiting { notified: Option<WatchError> },
    /// A resource, possibly with an error of a later response, which [`Policy`] has not allowed to end its use.
    Held(Held),
    /// No resource, with the reason. The error is boxed, since it is larger than a resource's pointer, and most entries never
    /// have one.
    Gone(Box<AmbientError>),
}

/// A good resource, and what later responses have meant for it.
#[derive(Debug)]
struct Held {
    /// The typed resource.
    resource: Erased,
    /// The bytes that it was parsed from, for detecting changes. A response is compared with them before anything in it is
    /// parsed.
    raw: Raw,
    /// The version of the response that brought it. In the state of the world this follows each response that repeats the
    /// resource, since its ACK is for that version.
    version: Version,
    /// The time of the last response with it, changed or not. The status shows it.
    updated: Instant,
    /// The server that has sent it.
    source: Option<Arc<ResourceSource>>,
    /// Why it may be stale, if a later response was no good.
    warning: Option<Box<AmbientError>>,
}

/// The state of a resource while it moves from one entry to another.
///
/// Watches and subscriptions are no part of it: these belong to the entry, and with it to the group.
#[derive(Debug)]
pub(crate) struct Known {
    /// Whether its time to live has expired.
    is_expired: bool,
    /// The state.
    state: State,
}

impl Entry {
    /// An entry of which nothing is known.
    ///
    /// The entry is in no table yet: the store inserts it, and authorities then subscribe at the servers of the group.
    pub(crate) fn new(name: Arc<str>, (group, ty): (GroupId, TypeId)) -> Self {
        let subscriptions = ServerSubscriptions::default();
        Self {
            name,
            spelling: None,
            ty,
            group,
            subscriptions,
            watches: OneOrMany::default(),
            unnotified: OneOrMany::default(),
            is_glob: false,
            is_expired: false,
            initial: None,
            state: State::Waiting { notified: None },
        }
    }

    /// Sets the name in requests, if it differs.
    pub(crate) fn with_spelling(self, spelling: Option<Arc<str>>) -> Self {
        Self { spelling, ..self }
    }

    /// The bytes of the last successful parse, while the resource is held.
    ///
    /// `None` for a rejected resource, even if the server repeats it: its bytes are not kept, and it is parsed again.
    pub(crate) fn raw(&self) -> Option<&Raw> {
        self.as_held().map(|held| &held.raw)
    }

    /// The held resource, if there is one.
    fn as_held(&self) -> Option<&Held> {
        match &self.state {
            State::Held(held) => Some(held),
            State::Waiting { .. } | State::Gone(_) => None,
        }
    }

    /// The good resource, while it is held.
    pub(crate) fn resource(&self) -> Option<&Erased> {
        self.as_held().map(|held| &held.resource)
    }

    /// Copies the bytes out of a response that is mostly not held any more.
    pub(super) fn copy_if_sparse(&mut self) {
        if let State::Held(held) = &mut self.state {
            held.raw.copy_if_sparse();
        }
    }

    /// Returns the bytes of the resource, if a message of these bytes without a wrapper can be no other resource.
    ///
    /// A wrapper names its resource; without one, the name is in the bytes. So equal bytes mean an equal name, and a repeated
    /// resource needs neither to be parsed for its name nor to be looked up.
    pub(crate) fn bare_bytes(&self) -> Option<&[u8]> {
        self.raw().filter(|raw| raw.is_bare()).map(|raw| &**raw)
    }

    /// The target of the server's redirect, while that is held (X20). A redirect is held in the place of the resource, with its
    /// bytes and version, so that it is compared, kept and expires as a resource does.
    pub(crate) fn redirect(&self) -> Option<&Redirect> {
        self.resource()?.downcast_ref()
    }

    /// Whether there is a good resource.
    pub(crate) fn is_held(&self) -> bool {
        self.raw().is_some()
    }

    /// Whether nothing is known of it: neither a resource nor a reason for its absence.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// Whether it was held until its TTL expired, and nothing was received for it since.
    pub(crate) fn is_expired(&self) -> bool {
        self.is_expired
    }

    /// Whether the state comes from no server.
    ///
    /// This is the question of fallback (A71-3): a resource that is known not to exist is known, and no other server is opened
    /// for it.
    pub(crate) fn is_unknown(&self) -> bool {
        self.is_waiting() || self.is_expired
    }

    /// The state in the terms of the client status service (A88-8).
    pub(crate) fn state(&self) -> ResourceState {
        match (&self.state, self.ambient_error()) {
            (_, Some(ambient_error)) => ambient_error.state,
            (State::Held(_), None) => ResourceState::Acked,
            (State::Waiting { .. } | State::Gone(_), None) => ResourceState::Requested,
        }
    }

    /// The version that is held, and the time of its arrival.
    pub(crate) fn held(&self) -> Option<(&Version, Instant)> {
        self.as_held().map(|held| (&held.version, held.updated))
    }

    /// The error that no good update has followed.
    pub(crate) fn ambient_error(&self) -> Option<&AmbientError> {
        match &self.state {
            State::Waiting { .. } => None,
            State::Held(held) => held.warning.as_deref(),
            State::Gone(ambient_error) => Some(ambient_error),
        }
    }

    /// The version of the last update, if it was rejected and had one.
    ///
    /// A heartbeat of this version neither confirms the good resource, which has another version, nor removes it.
    pub(crate) fn rejected_version(&self) -> Option<&Version> {
        let ambient_error =
            self.ambient_error().filter(|ambient_error| ambient_error.state == ResourceState::Nacked);
        ambient_error.map(|ambient_error| &ambient_error.update.version).filter(|version| !version.is_empty())
    }

    /// The state as watches see it; `failure` is the server error, if there is one.
    ///
    /// `failure` is a closure since its error is made for the resource, and most observations do not need it.
    pub(crate) fn observe(&self, failure: impl FnOnce() -> Option<WatchError>) -> Option<ErasedObserved> {
        let without = || match &self.state {
            State::Gone(ambient_error) => Some(ambient_error.error.clone()),
            State::Waiting { .. } | State::Held(_) => failure(),
        };
        match (&self.state, &self.initial) {
            (State::Held(Held { resource, version, warning, source, .. }), _) => {
                Some(ErasedObserved::Present {
                    resource: resource.clone(),
                    version: version.clone(),
                    // An error of the resource itself is more specific than one of its server.
                    warning: warning
                        .as_ref()
                        .map(|ambient_error| ambient_error.error.clone())
                        .or_else(without),
                    source: source.clone(),
                })
            }
            (_, Some(initial)) => Some(initial.observe(without())),
            (State::Waiting { .. } | State::Gone(_), None) => {
                without().map(|reason| ErasedObserved::Absent { reason })
            }
        }
    }

    /// Whether a server error is visible to watches: neither a resource nor an error of its own is known.
    pub(crate) fn shows_failure(&self) -> bool {
        self.is_waiting() || self.as_held().is_some_and(|held| held.warning.is_none())
    }

    /// A server error began: whether it is to be published. Its end is visible on a held resource; the state of a
    /// resource that was never received does not change.
    ///
    /// Also called when an entry is published during a failure, so that the end of the publication does not cause a second one.
    pub(crate) fn on_failure(&mut self, error: Option<WatchError>) -> Changed {
        match &mut self.state {
            // The end of an error shows beside an initial resource, as it does beside a held one.
            State::Waiting { notified }
                if *notified == error || (error.is_none() && self.initial.is_none()) =>
            {
                Changed::No
            }
            State::Waiting { notified } => {
                *notified = error;
                Changed::Yes
            }
            // `Gone` shows its own error: callers have asked `shows_failure` before, or do not use the result.
            State::Held(_) | State::Gone(_) => Changed::Yes,
        }
    }

    /// Moves the state out, to another entry of the same name.
    pub(crate) fn hand_over(&mut self) -> Known {
        // The buffer of the response knows its parts by the entries that received them, and would not find this one at the
        // other entry.
        self.copy_if_sparse();
        Known {
            is_expired: self.is_expired,
            state: std::mem::replace(&mut self.state, State::Waiting { notified: None }),
        }
    }

    /// Adopts the state of another entry of the same name.
    ///
    /// The state of the server error is not moved: another group may have another one, or none.
    pub(crate) fn adopt(&mut self, known: Known) -> Changed {
        (self.is_expired, self.state) = (known.is_expired, known.state);
        if self.is_held() {
            self.initial = None;
        }
        match self.state {
            State::Waiting { .. } => Changed::No,
            State::Held(_) | State::Gone(_) => Changed::Yes,
        }
    }

    /// A good resource was received.
    pub(crate) fn on_accepted(&mut self, resource: Erased, raw: Raw, update: Update) -> Changed {
        let Update { version, at: updated } = update;
        self.state = State::Held(Held { resource, raw, version, updated, source: None, warning: None });
        (self.is_expired, self.initial) = (false, None);
        Changed::Yes
    }

    /// Sets the server that has sent the held resource.
    pub(crate) fn set_source(&mut self, from: &Arc<ResourceSource>) {
        if let State::Held(held) = &mut self.state {
            held.source = Some(from.clone());
        }
    }

    /// Watches see this resource until a server has answered, unless something is known already.
    pub(crate) fn on_initial(&mut self, initial: InitialResource) -> Changed {
        if !self.is_waiting() || self.initial.is_some() {
            return Changed::No;
        }
        self.initial = Some(Box::new(initial));
        Changed::Yes
    }

    /// The initial resource is not used any more: a server has answered in another way than by the resource.
    pub(crate) fn end_initial(&mut self) -> Changed {
        if self.initial.take().is_some() { Changed::Yes } else { Changed::No }
    }

    /// The bytes of the initial resource, while that is in use.
    pub(crate) fn initial_bytes(&self) -> Option<&Bytes> {
        self.initial.as_ref().map(|initial| initial.bytes())
    }

    /// Whether a server has answered, so that there can be no initial resource.
    pub(crate) fn is_answered(&self) -> bool {
        !self.is_waiting() && self.initial.is_none()
    }

    /// The held resource was received again, unchanged. False if it is not held, or has an error.
    ///
    /// The path of unchanged resources, beside the store: neither counters nor expiries nor watches change. A held resource
    /// with an error is left to [`on_unchanged`](Self::on_unchanged), since the end of its error does change them.
    pub(crate) fn confirm(&mut self, new: &Version, at: Instant) -> bool {
        match &mut self.state {
            State::Held(Held { version, updated, warning: None, .. }) => {
                if *version != *new {
                    *version = new.clone();
                }
                *updated = at;
                true
            }
            State::Held(_) | State::Waiting { .. } | State::Gone(_) => false,
        }
    }

    /// The held resource was received again, which clears its error.
    ///
    /// The typed resource stays the same allocation, which is what watches compare.
    pub(crate) fn on_unchanged(&mut self, new: &Version, at: Instant) -> Changed {
        match &mut self.state {
            State::Held(Held { version, updated, warning, .. }) => {
                if *version != *new {
                    *version = new.clone();
                }
                *updated = at;
                if warning.take().is_some() { Changed::Yes } else { Changed::No }
            }
            State::Waiting { .. } | State::Gone(_) => Changed::No,
        }
    }

    /// An invalid resource was received: the last known good one is kept (A46, A88-4).
    pub(crate) fn on_rejected(&mut self, error: WatchError, policy: Policy, update: Update) -> Changed {
        let ambient_error = AmbientError { state: ResourceState::Nacked, error, update };
        let ended = if policy.fail_on_data_errors { self.end_initial() } else { Changed::No };
        self.apply_ambient_error(ambient_error, !policy.fail_on_data_errors).or(ended)
    }

    /// The server has deleted it (B1.10). For a resource that never existed, that is no change; for one that existed
    /// and was rejected it is.
    ///
    /// Called for names that are missing from a response of all resources, for which [`on_removed`](Self::on_removed) would be
    /// wrong: absence from such a response says nothing of a name that was never there (B1.13), and the does-not-exist timer
    /// decides on it.
    pub(crate) fn on_deleted(&mut self, error: WatchError, policy: Policy, update: Update) -> Changed {
        let keep = match &self.state {
            State::Held(_) => policy.keep_deleted && !policy.fail_on_data_errors,
            // Otherwise a resource that was rejected and then deleted would keep its rejection for ever: nothing else follows
            // on the wire.
            State::Gone(ambient_error) if ambient_error.error.is_rejected() => false,
            State::Waiting { .. } | State::Gone(_) => return Changed::No,
        };
        let ended = self.end_initial();
        self.apply_ambient_error(AmbientError { state: ResourceState::DoesNotExist, error, update }, keep)
            .or(ended)
    }

    /// The server reported that it does not exist (B2.14), whatever the state. If that was known already, it is no change.
    pub(crate) fn on_removed(&mut self, error: WatchError, policy: Policy, update: Update) -> Changed {
        let ended = self.end_initial();
        // Beside an initial resource, the error was one of a server without an answer.
        if ended == Changed::No
            && let State::Gone(known) = &mut self.state
            // Not the errors are compared: the does-not-exist timer and a removal state the same fact in different words.
            && known.state == ResourceState::DoesNotExist
        {
            known.update = update;
            return Changed::No;
        }
        let keep = policy.keep_deleted && !policy.fail_on_data_errors;
        self.apply_ambient_error(AmbientError { state: ResourceState::DoesNotExist, error, update }, keep)
            .or(ended)
    }

    /// The server has not confirmed it within its TTL.
    ///
    /// No policy applies, unlike after a deletion: the server has requested the expiry with the resource.
    pub(crate) fn on_expired(&mut self, error: WatchError, update: Update) -> Changed {
        let changed = self
            .apply_ambient_error(AmbientError { state: ResourceState::DoesNotExist, error, update }, false);
        // After the error was applied, which clears it as each change does.
        self.is_expired = true;
        changed
    }

    /// The server sent an error in place of the resource (TP3): a data error if the policy is given, else a transient
    /// error (A88-3, A88-4).
    pub(crate) fn on_server_error(
        &mut self,
        error: WatchError,
        data: Option<Policy>,
        update: Update,
    ) -> Changed {
        let drop = data.is_some_and(|policy| policy.fail_on_data_errors);
        // What no server has ever sent is no last known good resource of one that reports that there is none.
        let ended = if drop || error.is_not_found() { self.end_initial() } else { Changed::No };
        self.apply_ambient_error(AmbientError { state: ResourceState::ReceivedError, error, update }, !drop)
            .or(ended)
    }

    /// Handles the does-not-exist timer: the resource does not exist, unless the timeout counts as a server error (A88-5).
    ///
    /// A held resource that is missing is deleted by [`on_deleted`](Self::on_deleted) instead, whose policy may keep it. A
    /// timer that ends for one is older than the resource.
    pub(crate) fn on_timeout(&mut self, error: WatchError, at: Instant) -> Changed {
        let state = if error.is_not_found() { ResourceState::DoesNotExist } else { ResourceState::Timeout };
        let update = Update { version: Version::default(), at };
        match self.state {
            State::Held(_) => Changed::No,
            State::Waiting { .. } | State::Gone(_) => {
                self.apply_ambient_error(AmbientError { state, error, update }, true)
            }
        }
    }

    /// Records an error beside the state. An error equal to the current one is not published again; its time is updated.
    ///
    /// `keep` is about a held resource alone. Without one, there is nothing to keep, and the error is its absence.
    fn apply_ambient_error(&mut self, ambient_error: AmbientError, keep: bool) -> Changed {
        self.is_expired = false;
        let known = self.ambient_error().is_some_and(|known| known.error == ambient_error.error);
        let ambient_error = Box::new(ambient_error);
        match &mut self.state {
            State::Held(held) if keep => held.warning = Some(ambient_error),
            State::Held(_) => {
                self.state = State::Gone(ambient_error);
                // Even if the error is the one that was its warning: the resource is lost.
                return Changed::Yes;
            }
            State::Waiting { .. } | State::Gone(_) => self.state = State::Gone(ambient_error),
        }
        if known { Changed::No } else { Changed::Yes }
    }
}

#[cfg(test)]
mod tests;
