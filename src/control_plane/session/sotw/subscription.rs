//! The subscription of one type in the state-of-the-world variant: what is due, and why.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use bytes::Bytes;
use prost::Message;

use super::super::{
    super::{
        store::{Store, Stored, StoredError, Type, canonical},
        type_url,
    },
    AfterNack, Behavior, NameChanges, Settings, WILDCARD,
    features::Features,
    memory::Memory,
    pulse::{Confirm, Pulse},
    retry::Retry,
    wrap,
};
use super::{known::KnownNames, wait::Wait};
use crate::{
    name::ResourceName,
    pb::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse, Resource, ResourceError},
        google::protobuf::Any,
    },
};

/// The subscription of one type on one stream. All names are canonical.
#[derive(Debug, Clone, Default)]
pub(super) struct Subscription {
    /// What the client announces.
    features: Features,
    /// The subscribed names, without `*`: sorted, each once.
    names: Vec<String>,
    /// Whether all resources are subscribed to.
    wildcard: bool,
    /// Whether a name was ever sent; before that, an empty list of names means `*` (B1.2).
    ever_named: bool,
    /// The wait of a response that would imply absences.
    wait: Wait,
    added: Added,
    /// The resources at the time of the last response.
    seen: Option<Type>,
    /// The nonce of the newest response.
    pub(super) nonce: String,
    /// The version of the unacknowledged response.
    pub(super) awaiting: Option<String>,
    /// Whether the last answer was a rejection.
    rejected: bool,
    /// Whether rejected resources, or those accepted once, must be sent again.
    again: bool,
    /// Whether the newest response is a repetition of an accepted one.
    is_second: bool,
    /// The resources of earlier streams.
    pub(super) memory: Memory,
    /// The version of the newest response of the session itself.
    version: String,
    /// The names whose resources were sent, if they are kept.
    known: KnownNames,
    /// The times of heartbeats.
    pulse: Pulse,
    /// The time at which rejected resources are sent again.
    retry: Retry,
}

/// The names that were added since the last response.
#[derive(Debug, Clone, Default)]
struct Added {
    /// Names other than the wildcard.
    names: Vec<String>,
    wildcard: bool,
}

/// All resources of some names, for a client without previous responses.
#[cfg(feature = "json")]
#[derive(Debug)]
pub(in super::super) struct Whole {
    /// The response, without a nonce, and with the version of the type.
    pub(in super::super) response: DiscoveryResponse,
    /// The names, in order; `None` is the wildcard.
    pub(in super::super) names: Option<Vec<String>>,
    /// The names and versions of the resources in it.
    pub(in super::super) versions: Vec<(String, String)>,
}

#[cfg(feature = "json")]
impl Whole {
    /// Collects the resources that a request names.
    pub(in super::super) fn of(request: &DiscoveryRequest, store: &Store, settings: &Settings) -> Self {
        let type_url = &request.type_url;
        let features = Features::of(request.node.as_ref());
        let mut subscription = Subscription { features, ..Subscription::default() };
        subscription.subscribe(request, &settings.behavior);
        let now = store.get(type_url);
        let contents = subscription.complete(&now);
        let resources = match &contents {
            Contents::Whole { resources, .. } | Contents::Heartbeats(resources) => resources,
        };
        let version = |stored: &&Stored| (stored.name().to_owned(), store.version(stored.version()));
        let versions = resources.iter().map(version).collect();
        let (resources, resource_errors) = subscription.write(contents, type_url, store, settings);
        let response = DiscoveryResponse {
            version_info: store.version_of_type(&now),
            type_url: type_url.to_owned(),
            resources,
            resource_errors,
            control_plane: settings.control_plane(),
            ..DiscoveryResponse::default()
        };
        Self { response, names: (!subscription.wildcard).then_some(subscription.names), versions }
    }
}

/// The contents of a response.
#[derive(Debug)]
enum Contents<'a> {
    /// Resources with their contents, and errors.
    Whole { resources: Vec<&'a Stored>, errors: Vec<&'a StoredError> },
    /// Resources whose times to live are renewed, without contents.
    Heartbeats(Vec<&'a Stored>),
}

impl Subscription {
    /// The subscription of a client that may have resources already, with the version of its first request.
    pub(super) fn new(mut memory: Memory, version: &str, features: Features) -> Self {
        memory.on_first_request(version);
        Self { memory, features, wait: Wait::new(version), ..Self::default() }
    }

    /// Handles the ACK or NACK of the newest response.
    pub(super) fn on_answer(&mut self, accepted: bool, behavior: &Behavior) {
        self.memory.on_answer(accepted);
        self.rejected = !accepted;
        self.retry.on_answer(accepted, behavior.after_nack);
        self.is_second = accepted && behavior.send_twice && !self.is_second;
        self.again |= self.is_second || (!accepted && behavior.after_nack == AfterNack::SameResources);
    }

    /// Handles a request without a version. A server that may have sent unsubscribed resources sends all subscribed
    /// ones again, as go-control-plane does by comparing versions.
    pub(super) fn on_forgotten_version(&mut self, behavior: &Behavior) {
        self.again |= !self.version.is_empty()
            && (behavior.empty_list_is_wildcard || behavior.keeps_wildcard || behavior.keeps_known_names);
    }

    /// Updates the time; returns the next deadline.
    pub(super) fn handle_time(&mut self, now: Instant, of_type: &Type, full_state: bool) -> Option<Instant> {
        let (retry, is_due) = self.retry.handle_time(now);
        self.again |= is_due;
        self.compare(full_state, of_type);
        let wait = self.wait.handle_time(now);
        let has_heartbeats = self.features.wrapper && self.features.ttl;
        let pulse = if has_heartbeats { self.pulse.handle_time(now, of_type) } else { None };
        pulse.into_iter().chain(retry).chain(wait).min()
    }

    /// Replaces the subscribed names (B1.1); returns the changes.
    pub(super) fn subscribe(&mut self, request: &DiscoveryRequest, behavior: &Behavior) -> NameChanges {
        let mut names = request.resource_names.clone();
        for name in names.iter_mut().filter(|_| !behavior.compares_text) {
            if let Cow::Owned(canonical) = canonical(name) {
                *name = canonical;
            }
        }
        names.sort_unstable();
        names.dedup();
        // B1.4: from the first name on, an empty list is no wildcard any more.
        self.ever_named |= !names.is_empty();
        let star = names.binary_search_by(|name| name.as_str().cmp(WILDCARD));
        let star = star.ok().filter(|_| !behavior.legacy_wildcard_only).map(|at| names.remove(at));
        let is_kept = behavior.keeps_wildcard && self.wildcard;
        let is_empty = behavior.empty_list_is_wildcard && names.is_empty();
        let wildcard = star.is_some() || !self.ever_named || is_kept || is_empty;
        let is_first = self.wait.on_request(&names);
        let mut changes = NameChanges::default();
        if wildcard == self.wildcard && names == self.names {
            return changes;
        }
        match (self.wildcard, wildcard) {
            (false, true) => changes.subscribed.push(WILDCARD.to_owned()),
            (true, false) => changes.unsubscribed.push(WILDCARD.to_owned()),
            (true, true) | (false, false) => {}
        }
        self.added.wildcard |= wildcard && !self.wildcard;
        self.wildcard = wildcard;
        let before = std::mem::replace(&mut self.names, names);
        let new = self.names.iter().filter(|name| before.binary_search(name).is_err());
        let new = new.filter(|name| !self.known.on_added(name, &request.version_info)).cloned();
        let added = self.added.names.len();
        self.added.names.extend(new);
        changes.subscribed.extend_from_slice(&self.added.names[added..]);
        if !is_first && !changes.subscribed.is_empty() {
            self.memory.forget_claim();
        }
        changes.unsubscribed.extend(before.into_iter().filter(|name| !self.has(name)));
        self.wait.on_names_changed(&changes.unsubscribed);
        let Self { names, wildcard, memory, .. } = self;
        memory.on_names(|name| *wildcard || has(names, name));
        changes
    }

    /// The number of names, the wildcard included.
    pub(super) fn len(&self) -> usize {
        self.names.len() + usize::from(self.wildcard)
    }

    /// Iterates over the names, `*` first.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.wildcard.then_some(WILDCARD).into_iter().chain(self.names.iter().map(String::as_str))
    }

    /// Returns the response that is due, without its nonce. Its contents count as sent.
    pub(super) fn poll(
        &mut self,
        type_url: &str,
        full_state: bool,
        store: &Store,
        settings: &Settings,
    ) -> Option<DiscoveryResponse> {
        let now = store.get(type_url);
        self.compare(full_state, &now);
        let mut wait = std::mem::take(&mut self.wait);
        let holds = wait.holds(|| self.knows_any(&now));
        self.wait = wait;
        if holds {
            return None;
        }
        let lacks_names = || !self.wildcard && now.entries().any(|(name, _)| !self.has(name));
        if settings.behavior.all_names_only && lacks_names() {
            return None;
        }
        if self.seen.is_none() && settings.behavior.skip_known_versions {
            self.skip(&now, store.version_of_type(&now));
        }
        self.again |= self.known.take_outdated(|| store.version_of_type(&now));
        let contents = match self.changes(full_state, &settings.behavior, &now) {
            Some(contents) => contents,
            None => self.beat(full_state, &settings.behavior, &now)?,
        };
        match &contents {
            Contents::Whole { resources, .. } if settings.behavior.skip_known_versions => {
                self.memory.on_sent(resources.iter().copied());
            }
            Contents::Whole { .. } | Contents::Heartbeats(_) => {}
        }
        let contents = match contents {
            Contents::Whole { mut resources, errors } => {
                if settings.behavior.keeps_known_names {
                    self.known.on_sent(resources.iter().map(|stored| stored.name()));
                }
                if settings.behavior.unsolicited_resources {
                    let mut others = now.entries().filter(|(name, stored)| !self.covers(name, stored));
                    resources.extend(others.next().map(|(_, stored)| stored));
                }
                self.version = store.version_of_type(&now);
                Contents::Whole { resources, errors }
            }
            // With the version that the client has (B1.18).
            Contents::Heartbeats(resources) => Contents::Heartbeats(resources),
        };
        let (resources, resource_errors) = self.write(contents, type_url, store, settings);
        Some(DiscoveryResponse {
            version_info: self.version.clone(),
            type_url: type_url.to_owned(),
            resources,
            resource_errors,
            ..DiscoveryResponse::default()
        })
    }

    /// Writes resources and errors in the form that the client supports.
    fn write(
        &mut self,
        contents: Contents<'_>,
        type_url: &str,
        store: &Store,
        settings: &Settings,
    ) -> (Vec<Any>, Vec<ResourceError>) {
        match contents {
            Contents::Whole { resources, errors } => {
                let mut errors: Vec<_> = errors.into_iter().map(wrap::error).collect();
                let features = self.features;
                let any = |stored: &Stored| {
                    let written = any(stored, type_url, store, settings.wrap_resources, features);
                    errors.extend(written.is_none().then(|| wrap::needs_wrapper(stored)));
                    written
                };
                let mut written: Vec<_> = resources.into_iter().filter_map(any).collect();
                if settings.behavior.unset_wildcard && self.has(WILDCARD) {
                    written.push(wrapped(&Resource { name: WILDCARD.to_owned(), ..Resource::default() }));
                }
                (written, errors)
            }
            Contents::Heartbeats(resources) => {
                let factor = self.pulse.factor(settings);
                let any = |stored| wrapped(&wrap::heartbeat(stored, store, factor));
                (resources.into_iter().map(any).collect(), Vec::new())
            }
        }
    }

    /// Compares the unknown names with the resources.
    fn compare(&mut self, full_state: bool, now: &Type) {
        let mut wait = std::mem::take(&mut self.wait);
        let is_for_all = self.wildcard && !now.knows(WILDCARD);
        wait.compare(now, is_for_all, full_state, |name| self.has(name) || self.has_glob_of(name));
        self.wait = wait;
    }

    /// Whether a subscribed name has a resource or an error.
    fn knows_any(&self, now: &Type) -> bool {
        self.names.iter().any(|name| {
            let has_members = || now.members(name).next().is_some();
            now.entry(name).is_some() || now.error_entry(name).is_some() || has_members()
        })
    }

    /// Skips the response to a client that has all resources.
    fn skip(&mut self, now: &Type, version: String) {
        if self.memory.take_skip(&version, self.wildcard, &self.names) {
            self.added = Added::default();
            (self.seen, self.version) = (Some(now.clone()), version);
        }
    }

    /// Returns the contents of the next response, which then count as sent; `None` if nothing has changed.
    fn changes<'a>(&mut self, full_state: bool, behavior: &Behavior, now: &'a Type) -> Option<Contents<'a>> {
        let is_same_version = self.seen.as_ref().is_some_and(|seen| seen.version() == now.version());
        let mut added = match behavior.new_names_with_next_version && is_same_version {
            true => Added::default(),
            false => std::mem::take(&mut self.added),
        };
        if std::mem::take(&mut self.again) {
            added = Added { names: self.names.clone(), wildcard: self.wildcard };
        }
        let everything = added.wildcard && self.wildcard;
        if everything && !full_state && !now.knows(WILDCARD) {
            // All of it is sent when it is complete. Names do not wait for that any longer.
            self.added.wildcard = true;
            added.wildcard = false;
        }
        let everything = everything && added.wildcard;
        let added = added.names.into_iter().filter(|name| self.has(name)).collect::<Vec<_>>();
        let seen = self.seen.replace(now.clone());
        // Before the first response, all subscribed names count as added.
        let changed = seen.as_ref().map_or_else(Vec::new, |seen| self.changed(now, seen));
        if full_state {
            // It may be empty, which reports that there are no resources (B1.10).
            return (everything || !added.is_empty() || !changed.is_empty()).then(|| self.complete(now));
        }
        let mut due = Due::new(now);
        if everything {
            due.add_listed();
        }
        added.iter().for_each(|name| due.add_all(name));
        let is_covered = |name: &&str| now.entry(name).is_none_or(|(_, stored)| self.covers(name, stored));
        changed.into_iter().filter(is_covered).for_each(|name| due.add(name));
        // An empty response would have no meaning (B1.11). Resources that appear later are changes since now.
        due.into_contents()
    }

    /// Returns the resources that must be confirmed, if nothing else is due.
    fn beat<'a>(&mut self, full_state: bool, behavior: &Behavior, now: &'a Type) -> Option<Contents<'a>> {
        let mut again = (self.rejected && !behavior.heartbeats_after_nack) || self.version.is_empty();
        let mut names = BTreeSet::new();
        for (ttl, confirm) in self.pulse.take_due(behavior.heartbeats_after_expiry) {
            let is_covered =
                |name: &&str| now.entry(name).is_some_and(|(_, stored)| self.covers(name, stored));
            names.extend(now.of_ttl(ttl).filter(is_covered));
            again |= confirm == Confirm::Again;
        }
        let resources: Vec<_> =
            names.into_iter().filter_map(|name| now.entry(name)).map(|(_, stored)| stored).collect();
        match () {
            () if resources.is_empty() => None,
            () if !again => Some(Contents::Heartbeats(resources)),
            () if full_state => Some(self.complete(now)),
            () => Some(Contents::Whole { resources, errors: Vec::new() }),
        }
    }

    /// The subscribed names of resources and errors that changed.
    fn changed<'a>(&self, now: &'a Type, seen: &'a Type) -> Vec<&'a str> {
        let resources = now.differences(seen).filter(|difference| {
            let any = [difference.now, difference.before];
            any.into_iter().flatten().any(|stored| self.covers(difference.name, stored))
        });
        let errors = now.errors_changed_since(seen).filter(|name| self.has(name) || self.has_glob_of(name));
        resources.map(|difference| difference.name).chain(errors).collect()
    }

    /// All subscribed resources.
    fn complete<'a>(&mut self, now: &'a Type) -> Contents<'a> {
        // It confirms all resources, too.
        self.pulse.take_due(false);
        let mut due = Due::new(now);
        if self.wildcard {
            due.add_listed();
        }
        self.names.iter().for_each(|name| due.add_all(name));
        let globs = now.errors().filter(|(name, _)| self.has_glob_of(name));
        globs.for_each(|(name, _)| due.add(name));
        Contents::Whole {
            resources: due.resources.into_values().collect(),
            errors: due.errors.into_values().collect(),
        }
    }

    /// Whether a resource is subscribed to, by its name, a glob or the wildcard.
    fn covers(&self, name: &str, stored: &Stored) -> bool {
        (self.wildcard && stored.is_listed())
            || self.has(name)
            || stored.glob().is_some_and(|glob| self.has(glob))
    }

    /// Whether a name is subscribed to.
    fn has(&self, name: &str) -> bool {
        has(&self.names, name)
    }

    /// Whether a glob covers a name.
    fn has_glob_of(&self, name: &str) -> bool {
        let glob = ResourceName::parse_received(name).ok().and_then(|name| name.enclosing_glob());
        glob.is_some_and(|glob| self.has(glob.as_str()))
    }
}

/// Whether sorted names contain a name.
fn has(names: &[String], name: &str) -> bool {
    names.binary_search_by(|other| other.as_str().cmp(name)).is_ok()
}

/// The contents of a response under construction, by canonical name.
struct Due<'a> {
    now: &'a Type,
    resources: BTreeMap<&'a str, &'a Stored>,
    errors: BTreeMap<&'a str, &'a StoredError>,
}

impl<'a> Due<'a> {
    fn new(now: &'a Type) -> Self {
        Self { now, resources: BTreeMap::new(), errors: BTreeMap::new() }
    }

    /// Adds the resource of a name, or the error in its place.
    fn add(&mut self, name: &str) {
        self.resources.extend(self.now.entry(name));
        self.errors.extend(self.now.error_entry(name));
    }

    /// Adds the resources of a wildcard.
    fn add_listed(&mut self) {
        self.resources.extend(self.now.entries().filter(|(_, stored)| stored.is_listed()));
    }

    /// Adds the resources of a name, which may be a glob.
    fn add_all(&mut self, name: &str) {
        self.add(name);
        let now = self.now;
        self.resources.extend(now.members(name).filter_map(|member| now.entry(member)));
    }

    /// Returns the contents, if there are any.
    fn into_contents(self) -> Option<Contents<'a>> {
        let Self { resources, errors, .. } = self;
        (!resources.is_empty() || !errors.is_empty()).then(|| Contents::Whole {
            resources: resources.into_values().collect(),
            errors: errors.into_values().collect(),
        })
    }
}

/// A resource in the form that a client supports; `None` if it needs a wrapper that the client does not support.
fn any(stored: &Stored, type_url: &str, store: &Store, wraps_all: bool, features: Features) -> Option<Any> {
    match features.wrapper {
        true if wraps_all || stored.prefers_wrapper() => {
            let mut resource = wrap::whole(type_url, stored, store);
            resource.ttl = resource.ttl.filter(|_| features.ttl);
            Some(wrapped(&resource))
        }
        false if stored.needs_wrapper() => None,
        true | false => Some(Any { type_url: type_url.to_owned(), value: stored.bytes().clone() }),
    }
}

/// Puts a wrapper into an `Any`.
fn wrapped(resource: &Resource) -> Any {
    Any { type_url: type_url::WRAPPER.to_owned(), value: Bytes::from(resource.encode_to_vec()) }
}
