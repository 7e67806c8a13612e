//! The choice of routes by the headers of the target.

use std::{sync::Arc, time::Instant};

use super::{
    dependency::End,
    orders::{Order, Times, WatchKey},
    reference::ResourceId,
};
use crate::{
    error::{Blame, Code, WatchError},
    observed::{ErasedMembers, Observed},
    resource::ScopedRouteConfiguration,
};

/// The scopes of a listener, of which one has the key of the target's requests.
///
/// All scopes of a collection are watched, since only the server knows the key of each. The search takes time for each
/// of them whenever one changes.
#[derive(Debug)]
pub(super) struct Scopes {
    /// The scopes that are watched, if the listener has such. `None` for listeners without scopes, and for those with the
    /// scopes in them.
    watched: Option<Watched>,
    /// The listener names them.
    required: bool,
    /// How long deleted scopes stay in use.
    times: Times,
    /// The id of the node, for errors.
    node_id: Arc<str>,
}

#[derive(Debug)]
struct Watched {
    /// The name of the collection, or `*`.
    collection: Arc<str>,
    /// The scopes; `None` before the first state.
    seen: Option<Arc<ErasedMembers>>,
    /// The time until which the scope in use outlives its deletion.
    grace: Option<Instant>,
    /// The deadline of the server for sending its scopes. A wildcard that the server does not answer has no does-not-exist
    /// timer in the protocol.
    deadline: Instant,
    /// The deadline has passed, and was handled. Kept, so that the deadline wakes the resolution once.
    is_late: bool,
}

/// The scope that has a key.
#[derive(Debug)]
pub(super) struct Chosen {
    /// The scope.
    pub(super) scope: Arc<ScopedRouteConfiguration>,
    /// The reason why it may be stale, and the others with the same key.
    pub(super) warnings: Vec<WatchError>,
}

/// The fragments of a scope's key.
type Fragments = [Box<str>];

impl Scopes {
    /// No scopes.
    pub(super) fn new(node_id: Arc<str>, times: Times) -> Self {
        Self { watched: None, required: false, times, node_id }
    }

    /// Handles the state of the scopes.
    pub(super) fn on_seen(&mut self, seen: Arc<ErasedMembers>) {
        if let Some(watched) = &mut self.watched {
            watched.seen = Some(seen);
        }
    }

    /// The route configuration is about to be resolved again.
    pub(super) fn start_pass(&mut self) {
        self.required = false;
    }

    /// The listener names the scopes of a collection, or all scopes of the server: they are watched, and no others.
    pub(super) fn require(&mut self, collection: Option<&Arc<str>>, orders: &mut Vec<Order>, now: Instant) {
        self.required = true;
        let collection = collection.cloned().unwrap_or_else(|| WatchKey::ALL.into());
        if self.watched.as_ref().is_none_or(|watched| watched.collection != collection) {
            orders.push(Order::Watch(WatchKey::Scopes(collection.clone())));
            let deadline = now + self.times.timeout;
            let watched = Watched { collection, seen: None, grace: None, deadline, is_late: false };
            let old = self.watched.replace(watched);
            orders.extend(old.map(|old| Order::Unwatch(WatchKey::Scopes(old.collection))));
        }
    }

    /// The route configuration was resolved: scopes that the listener does not name are not watched any more.
    pub(super) fn release_unrequired(&mut self, orders: &mut Vec<Order>) {
        let old = self.watched.take_if(|_| !self.required);
        orders.extend(old.map(|old| Order::Unwatch(WatchKey::Scopes(old.collection))));
    }

    /// The time of the next resolution, if the server has not sent the scopes until then.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waiting = |watched: &&Watched| {
            let is_sent = |seen: &ErasedMembers| seen.complete || seen.warning.is_some();
            !watched.is_late && !watched.seen.as_deref().is_some_and(is_sent)
        };
        self.watched.as_ref().filter(waiting).map(|watched| watched.deadline)
    }

    /// The time until which the scope in use serves on though it is deleted.
    pub(super) fn grace(&self) -> Option<Instant> {
        self.watched.as_ref().and_then(|watched| watched.grace)
    }

    /// The scope in a listener that has a key; the first of several.
    ///
    /// In a list, the order of the server decides.
    pub(super) fn choose(
        &self,
        list: &[Arc<ScopedRouteConfiguration>],
        key: &Fragments,
        about: ResourceId,
    ) -> Result<Chosen, End> {
        let mut with_key = list.iter().filter(|scope| *scope.key == *key);
        let Some(scope) = with_key.next().cloned() else {
            return Err(End::Nowhere(self.no_scope(about, key, list.iter().map(|scope| &**scope))));
        };
        let warnings = with_key.map(|other| self.same_key(&scope, other)).collect();
        Ok(Chosen { scope, warnings })
    }

    /// The scope with a key, among those that are watched. Of several it is the one in use, or else the first by name.
    /// One in use serves on for a while after its deletion.
    pub(super) fn resolve(
        &mut self,
        key: &Fragments,
        in_use: Option<&ScopedRouteConfiguration>,
        now: Instant,
    ) -> Result<Chosen, End> {
        let Some(watched) = &mut self.watched else {
            debug_assert!(false, "scopes are required before one is resolved");
            return Err(End::Unknown);
        };
        watched.is_late |= watched.deadline <= now;
        let (collection, is_late) = (watched.collection.clone(), watched.is_late);
        let about = ResourceId::of::<ScopedRouteConfiguration>(collection);
        let Some(seen) = watched.seen.clone() else {
            return Err(if is_late { End::Blocked(self.not_sent(about)) } else { End::Unknown });
        };
        let scopes = || {
            seen.map.values().filter_map(|member| match member.typed::<ScopedRouteConfiguration>() {
                Observed::Present { resource, warning, .. } => Some((resource, warning)),
                Observed::Absent { .. } | Observed::Pending => None,
            })
        };
        let with_key: Vec<_> = scopes().filter(|(scope, _)| *scope.key == *key).collect();
        // The one in use, so that the routes do not change when another scope with the key appears: a set has no order that
        // would make one of them right.
        let used = with_key.iter().position(|(scope, _)| in_use.is_some_and(|used| used.name == scope.name));
        if let Some((scope, warning)) = with_key.get(used.unwrap_or_default()) {
            self.set_grace(None);
            let others = with_key.iter().filter(|(other, _)| !Arc::ptr_eq(scope, other));
            let others = others.map(|(other, _)| self.same_key(scope, other));
            let warnings = seen.warning.clone().into_iter().chain((*warning).clone()).chain(others);
            return Ok(Chosen { scope: (*scope).clone(), warnings: warnings.collect() });
        }
        // The scope may still arrive, unless the server cannot be reached.
        if !seen.complete {
            return Err(match &seen.warning {
                None if is_late => End::Blocked(self.not_sent(about)),
                None => End::Unknown,
                Some(why) if why.is_transient() || why.is_rejected() => End::Blocked(why.clone()),
                Some(why) => End::Nowhere(why.clone()),
            });
        }
        let missing = self.no_scope(about, key, scopes().map(|(scope, _)| &**scope));
        let until =
            // A scope of another key does not serve this target, whatever its state.
            in_use.filter(|used| *used.key == *key).map(|_| self.grace().unwrap_or(now + self.times.grace));
        self.set_grace(until);
        Err(match until.is_some_and(|until| now < until) {
            true => End::Blocked(missing),
            false => End::Nowhere(missing),
        })
    }

    /// Sets the time until which the scope in use outlives its deletion.
    fn set_grace(&mut self, until: Option<Instant>) {
        if let Some(watched) = &mut self.watched {
            watched.grace = until;
        }
    }

    /// The error of scopes without the key of the target.
    fn no_scope<'s>(
        &self,
        about: ResourceId,
        key: &Fragments,
        scopes: impl Iterator<Item = &'s ScopedRouteConfiguration>,
    ) -> WatchError {
        let keys = some_of(scopes.map(|scope| format!("{:?}", scope.key)));
        let text = format!("could not find a scope with the key {key:?}; the keys are: {keys}");
        WatchError::new(Code::NotFound, Blame::Peer, about.subject(&self.node_id), text)
    }

    /// A wildcard has no does-not-exist timer, and a server without scopes may send nothing.
    fn not_sent(&self, about: ResourceId) -> WatchError {
        let text = format!("the server has not sent its scopes within {:?}", self.times.timeout);
        WatchError::new(Code::Unavailable, Blame::Peer, about.subject(&self.node_id), text)
    }

    /// Only one of several scopes with the same key is used.
    fn same_key(&self, used: &ScopedRouteConfiguration, other: &ScopedRouteConfiguration) -> WatchError {
        let text = format!("is not used: scope {:?} has the same key {:?}", used.name, used.key);
        let about = ResourceId::of::<ScopedRouteConfiguration>(other.name.clone()).subject(&self.node_id);
        WatchError::new(Code::InvalidArgument, Blame::Peer, about, text)
    }
}

/// The first few texts, for an error.
///
/// At most `SHOWN` and an ellipsis: the texts are from the server, and there may be thousands.
pub(super) fn some_of(texts: impl Iterator<Item = String>) -> String {
    let mut texts = texts.take(SHOWN + 1).collect::<Vec<_>>();
    if texts.len() > SHOWN {
        texts[SHOWN] = "…".to_owned();
    }
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

/// The maximum number of domains or keys in an error.
const SHOWN: usize = 8;
