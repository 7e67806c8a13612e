use std::{sync::Arc, time::Instant};

use super::{AmbientError, OneOrMany, Policy, Raw, Redirect, ResourceState, ServerSubscriptions, Update};
use crate::{
    base::WatchId,
    error::WatchError,
    observed::ErasedObserved,
    protocol::{GroupId, TypeId},
    resource::{Erased, Version},
};

/// One resource of one authority: its state, and its watches.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: Arc<str>,
    /// The name in requests, if it differs (X2).
    pub(crate) spelling: Option<Arc<str>>,
    pub(crate) ty: TypeId,
    pub(crate) group: GroupId,
    /// The subscriptions at the servers that it is requested from, or sent by.
    pub(crate) subscriptions: ServerSubscriptions,
    pub(crate) watches: OneOrMany<WatchId>,
    /// The watches that nothing was published to.
    pub(crate) unnotified: OneOrMany<WatchId>,
    /// The name is a glob: the state is that of the collection as a whole.
    pub(crate) is_glob: bool,
    /// Set when the time to live of a held resource expires, and cleared by the next change of the entry.
    is_expired: bool,
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
    /// not published twice.
    Waiting {
        notified: Option<WatchError>,
    },
    Held(Held),
    Gone(Box<AmbientError>),
}

#[derive(Debug)]
struct Held {
    resource: Erased,
    /// The bytes that it was parsed from, for detecting changes.
    raw: Raw,
    version: Version,
    /// The time of the last response with it, changed or not.
    updated: Instant,
    warning: Option<Box<AmbientError>>,
}

/// The state of a resource while it moves from one entry to another.
#[derive(Debug)]
pub(crate) struct Known {
    is_expired: bool,
    state: State,
}

/// Whether there is a change to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Changed {
    Yes,
    No,
}

impl Entry {
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
            state: State::Waiting { notified: None },
        }
    }

    /// Sets the name in requests, if it differs.
    pub(crate) fn with_spelling(self, spelling: Option<Arc<str>>) -> Self {
        Self { spelling, ..self }
    }

    /// The bytes of the last successful parse, while the resource is held.
    pub(crate) fn raw(&self) -> Option<&Raw> {
        self.as_held().map(|held| &held.raw)
    }

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
    pub(crate) fn bare_bytes(&self) -> Option<&[u8]> {
        self.raw().filter(|raw| raw.is_bare()).map(|raw| &**raw)
    }

    /// The target of the server's redirect, while that is held (X20).
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
    pub(crate) fn rejected_version(&self) -> Option<&Version> {
        let ambient_error =
            self.ambient_error().filter(|ambient_error| ambient_error.state == ResourceState::Nacked);
        ambient_error.map(|ambient_error| &ambient_error.update.version).filter(|version| !version.is_empty())
    }

    /// The state as watches see it; `failure` is the server error, if there is one.
    pub(crate) fn observe(&self, failure: impl FnOnce() -> Option<WatchError>) -> Option<ErasedObserved> {
        match &self.state {
            State::Waiting { .. } => failure().map(|reason| ErasedObserved::Absent { reason }),
            State::Gone(ambient_error) => {
                Some(ErasedObserved::Absent { reason: ambient_error.error.clone() })
            }
            State::Held(Held { resource, version, warning, .. }) => Some(ErasedObserved::Present {
                resource: resource.clone(),
                version: version.clone(),
                // An error of the resource itself is more specific than one of its server.
                warning: warning.as_ref().map(|ambient_error| ambient_error.error.clone()).or_else(failure),
            }),
        }
    }

    /// Whether a server error is visible to watches: neither a resource nor an error of its own is known.
    pub(crate) fn shows_failure(&self) -> bool {
        self.is_waiting() || self.as_held().is_some_and(|held| held.warning.is_none())
    }

    /// A server error began: whether it is to be published. Its end is visible on a held resource; the state of a
    /// resource that was never received does not change.
    pub(crate) fn on_failure(&mut self, error: Option<WatchError>) -> Changed {
        match &mut self.state {
            State::Waiting { notified } if error.is_none() || *notified == error => Changed::No,
            State::Waiting { notified } => {
                *notified = error;
                Changed::Yes
            }
            State::Held(_) | State::Gone(_) => Changed::Yes,
        }
    }

    /// Moves the state out, to another entry of the same name.
    pub(crate) fn hand_over(&mut self) -> Known {
        self.copy_if_sparse();
        Known {
            is_expired: self.is_expired,
            state: std::mem::replace(&mut self.state, State::Waiting { notified: None }),
        }
    }

    /// Adopts the state of another entry of the same name.
    pub(crate) fn adopt(&mut self, known: Known) -> Changed {
        (self.is_expired, self.state) = (known.is_expired, known.state);
        match self.state {
            State::Waiting { .. } => Changed::No,
            State::Held(_) | State::Gone(_) => Changed::Yes,
        }
    }

    /// A good resource was received.
    pub(crate) fn on_accepted(&mut self, resource: Erased, raw: Raw, update: Update) -> Changed {
        let Update { version, at: updated } = update;
        self.state = State::Held(Held { resource, raw, version, updated, warning: None });
        self.is_expired = false;
        Changed::Yes
    }

    /// The held resource was received again, unchanged. False if it is not held, or has an error.
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
        self.apply_ambient_error(ambient_error, !policy.fail_on_data_errors)
    }

    /// The server has deleted it (B1.10). For a resource that never existed, that is no change; for one that existed
    /// and was rejected it is.
    pub(crate) fn on_deleted(&mut self, error: WatchError, policy: Policy, update: Update) -> Changed {
        let keep = match &self.state {
            State::Held(_) => policy.keep_deleted && !policy.fail_on_data_errors,
            State::Gone(ambient_error) if ambient_error.error.is_rejected() => false,
            State::Waiting { .. } | State::Gone(_) => return Changed::No,
        };
        self.apply_ambient_error(AmbientError { state: ResourceState::DoesNotExist, error, update }, keep)
    }

    /// The server reported that it does not exist (B2.14), whatever the state. If that was known already, it is no change.
    pub(crate) fn on_removed(&mut self, error: WatchError, policy: Policy, update: Update) -> Changed {
        if let State::Gone(known) = &mut self.state
            && known.state == ResourceState::DoesNotExist
        {
            known.update = update;
            return Changed::No;
        }
        let keep = policy.keep_deleted && !policy.fail_on_data_errors;
        self.apply_ambient_error(AmbientError { state: ResourceState::DoesNotExist, error, update }, keep)
    }

    /// The server has not confirmed it within its TTL.
    pub(crate) fn on_expired(&mut self, error: WatchError, update: Update) -> Changed {
        let changed = self
            .apply_ambient_error(AmbientError { state: ResourceState::DoesNotExist, error, update }, false);
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
        self.apply_ambient_error(AmbientError { state: ResourceState::ReceivedError, error, update }, !drop)
    }

    /// Handles the does-not-exist timer: the resource does not exist, unless the timeout counts as a server error (A88-5).
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
    fn apply_ambient_error(&mut self, ambient_error: AmbientError, keep: bool) -> Changed {
        self.is_expired = false;
        let known = self.ambient_error().is_some_and(|known| known.error == ambient_error.error);
        let ambient_error = Box::new(ambient_error);
        match &mut self.state {
            State::Held(held) if keep => held.warning = Some(ambient_error),
            State::Held(_) => {
                self.state = State::Gone(ambient_error);
                return Changed::Yes;
            }
            State::Waiting { .. } | State::Gone(_) => self.state = State::Gone(ambient_error),
        }
        if known { Changed::No } else { Changed::Yes }
    }
}

impl From<Changed> for bool {
    fn from(changed: Changed) -> Self {
        changed == Changed::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Blame, Code, Subject};

    const KEEP: Policy = Policy { keep_deleted: true, fail_on_data_errors: false };
    const DROP: Policy = Policy { keep_deleted: false, fail_on_data_errors: false };
    const FAIL: Policy = Policy { keep_deleted: true, fail_on_data_errors: true };

    fn about() -> Subject {
        Subject { type_url: "t", name: "a".into(), node: "n".into() }
    }

    fn error(code: Code) -> WatchError {
        WatchError::new(code, Blame::Peer, about(), "why")
    }

    fn update(version: &str) -> Update {
        Update { version: version.into(), at: Instant::now() }
    }

    fn entry() -> Entry {
        Entry::new("a".into(), (GroupId(0), TypeId(0)))
    }

    fn held() -> Entry {
        let mut entry = entry();
        assert_eq!(entry.on_accepted(Arc::new(1u8), b"1"[..].into(), update("1")), Changed::Yes);
        entry
    }

    /// What a watch sees: the version if present, and the code of the error.
    fn seen(entry: &Entry) -> (Option<String>, Option<Code>) {
        match entry.observe(|| None) {
            None => (None, None),
            Some(ErasedObserved::Absent { reason }) => (None, Some(reason.code())),
            Some(ErasedObserved::Present { version, warning, .. }) => {
                (Some(version.to_string()), warning.map(|warning| warning.code()))
            }
        }
    }

    #[test]
    fn last_good_wins_over_a_rejection() {
        let mut entry = held();
        let rejected = || WatchError::rejected(about(), crate::resource::Invalid::new("bad"));
        assert_eq!(entry.on_rejected(rejected(), KEEP, update("2")), Changed::Yes);
        assert_eq!(seen(&entry), (Some("1".into()), Some(Code::InvalidArgument)));
        assert_eq!(
            entry.on_rejected(rejected(), KEEP, update("2")),
            Changed::No,
            "the same error is published once"
        );
        assert_eq!(
            entry.on_unchanged(&"2".into(), Instant::now()),
            Changed::Yes,
            "and cleared by the resource"
        );
        assert_eq!(seen(&entry), (Some("2".into()), None));
        assert_eq!(entry.on_unchanged(&"3".into(), Instant::now()), Changed::No);
    }

    #[test]
    fn a_rejection_without_a_good_resource_is_its_absence() {
        let mut entry = entry();
        assert_eq!(seen(&entry), (None, None));
        assert_eq!(entry.on_rejected(error(Code::InvalidArgument), DROP, update("1")), Changed::Yes);
        assert_eq!(seen(&entry), (None, Some(Code::InvalidArgument)));
    }

    #[test]
    fn a88_4_fail_on_data_errors_drops() {
        for bad in [Entry::on_rejected, Entry::on_deleted] {
            let mut entry = held();
            assert_eq!(bad(&mut entry, error(Code::NotFound), FAIL, update("2")), Changed::Yes);
            assert_eq!(seen(&entry), (None, Some(Code::NotFound)));
        }
        let mut entry = held();
        assert_eq!(entry.on_server_error(error(Code::Unavailable), None, update("2")), Changed::Yes);
        assert_eq!(seen(&entry), (Some("1".into()), Some(Code::Unavailable)));
        assert_eq!(entry.on_server_error(error(Code::NotFound), Some(FAIL), update("3")), Changed::Yes);
        assert_eq!(seen(&entry), (None, Some(Code::NotFound)));
    }

    #[test]
    fn deletion_is_honoured_or_kept_by_policy() {
        let mut entry = held();
        assert_eq!(entry.on_deleted(error(Code::NotFound), KEEP, update("2")), Changed::Yes);
        assert_eq!(seen(&entry), (Some("1".into()), Some(Code::NotFound)));
        assert_eq!(entry.on_deleted(error(Code::NotFound), DROP, update("2")), Changed::Yes);
        assert_eq!(seen(&entry), (None, Some(Code::NotFound)));
        assert_eq!(entry.on_deleted(error(Code::NotFound), DROP, update("2")), Changed::No);
        let mut entry = self::entry();
        assert_eq!(
            entry.on_deleted(error(Code::NotFound), DROP, update("2")),
            Changed::No,
            "never seen: the timer decides"
        );
    }

    #[test]
    fn the_does_not_exist_timer_changes_no_held_resource() {
        let mut entry = held();
        assert_eq!(entry.on_timeout(error(Code::NotFound), Instant::now()), Changed::No);
        let mut entry = self::entry();
        assert_eq!(entry.on_timeout(error(Code::NotFound), Instant::now()), Changed::Yes);
        assert!(!entry.is_held() && !entry.shows_failure());
    }

    #[test]
    fn a_server_error_is_shown_unless_something_else_is_known() {
        let failure = || Some(error(Code::Unavailable));
        let code = |entry: &Entry| match entry.observe(failure) {
            Some(ErasedObserved::Absent { reason }) => Some(reason.code()),
            Some(ErasedObserved::Present { warning, .. }) => warning.map(|warning| warning.code()),
            None => None,
        };
        assert_eq!(code(&entry()), Some(Code::Unavailable));
        assert_eq!(code(&held()), Some(Code::Unavailable));
        let mut gone = entry();
        assert!(bool::from(gone.on_timeout(error(Code::NotFound), Instant::now())));
        assert_eq!(code(&gone), Some(Code::NotFound));
    }

    #[test]
    fn a40_2_a_setback_lasts_until_a_good_update_and_notes_the_last_attempt() {
        let mut entry = held();
        let rejected = || WatchError::rejected(about(), crate::resource::Invalid::new("bad"));
        assert_eq!((entry.state(), entry.ambient_error().is_some()), (ResourceState::Acked, false));
        let first = update("2");
        assert_eq!(entry.on_rejected(rejected(), KEEP, first.clone()), Changed::Yes);
        let again = Update { version: "3".into(), at: first.at + std::time::Duration::from_secs(1) };
        assert_eq!(entry.on_rejected(rejected(), KEEP, again.clone()), Changed::No);
        let ambient_error = entry.ambient_error().unwrap();
        assert_eq!((entry.state(), entry.is_held()), (ResourceState::Nacked, true));
        assert_eq!((ambient_error.update.version.as_str(), ambient_error.update.at), ("3", again.at));
        assert_eq!(entry.held().unwrap().0.as_str(), "1");
        assert_eq!(entry.on_unchanged(&"4".into(), again.at), Changed::Yes);
        assert_eq!((entry.state(), entry.ambient_error().is_some()), (ResourceState::Acked, false));
        assert_eq!(entry.held().map(|(version, at)| (version.as_str(), at)), Some(("4", again.at)));
    }
}
