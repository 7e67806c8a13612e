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
    memory::Memory,
    pulse::{Confirm, Pulse},
    retry::Retry,
    wrap,
};
use crate::{
    name::ResourceName,
    pb::{
        envoy::service::discovery::v3::{DiscoveryResponse, Resource},
        google::protobuf::Any,
    },
};

/// The subscription of one type on one stream. All names are canonical.
#[derive(Debug, Clone, Default)]
pub(super) struct Subscription {
    /// The subscribed names, without `*`: sorted, each once.
    names: Vec<String>,
    wildcard: bool,
    /// Whether a name was ever sent; before that, an empty list of names means `*` (B1.2).
    ever_named: bool,
    /// Those names of the first request whose state is still unknown.
    first: Option<Vec<String>>,
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
    pub(super) memory: Memory,
    /// The version of the newest response of the session itself.
    version: String,
    /// The names whose resources were sent, if they are kept.
    known: BTreeSet<String>,
    pulse: Pulse,
    retry: Retry,
}

/// The names that were added since the last response.
#[derive(Debug, Clone, Default)]
struct Added {
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
    pub(in super::super) fn of(type_url: &str, names: &[String], store: &Store, settings: &Settings) -> Self {
        let mut subscription = Subscription::default();
        subscription.subscribe(names.to_vec(), &settings.behavior);
        let now = store.get(type_url);
        let (resources, errors) = match subscription.complete(&now) {
            Contents::Whole { resources, errors } => (resources, errors),
            Contents::Heartbeats(resources) => (resources, Vec::new()),
        };
        let version = |stored: &&Stored| (stored.name().to_owned(), store.version(stored.version()));
        let versions = resources.iter().map(version).collect();
        let response = DiscoveryResponse {
            version_info: store.version_of_type(&now),
            type_url: type_url.to_owned(),
            resources: resources.into_iter().map(|stored| settings.any(type_url, stored, store)).collect(),
            resource_errors: errors.into_iter().map(wrap::error).collect(),
            control_plane: settings.control_plane(),
            ..DiscoveryResponse::default()
        };
        Self { response, names: (!subscription.wildcard).then_some(subscription.names), versions }
    }
}

/// The contents of a response.
#[derive(Debug)]
enum Contents<'a> {
    Whole { resources: Vec<&'a Stored>, errors: Vec<&'a StoredError> },
    Heartbeats(Vec<&'a Stored>),
}

impl Subscription {
    /// The subscription of a client that may have resources already, with the version of its first request.
    pub(super) fn new(mut memory: Memory, version: &str) -> Self {
        memory.on_first_request(version);
        Self { memory, ..Self::default() }
    }

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
    pub(super) fn handle_time(&mut self, now: Instant, of_type: &Type) -> Option<Instant> {
        let (retry, is_due) = self.retry.handle_time(now);
        self.again |= is_due;
        self.pulse.handle_time(now, of_type).into_iter().chain(retry).min()
    }

    /// Replaces the subscribed names (B1.1); returns the changes.
    pub(super) fn subscribe(&mut self, mut names: Vec<String>, behavior: &Behavior) -> NameChanges {
        for name in names.iter_mut().filter(|_| !behavior.compares_text) {
            if let Cow::Owned(canonical) = canonical(name) {
                *name = canonical;
            }
        }
        names.sort_unstable();
        names.dedup();
        self.ever_named |= !names.is_empty();
        let star = names.binary_search_by(|name| name.as_str().cmp(WILDCARD));
        let star = star.ok().filter(|_| !behavior.legacy_wildcard_only).map(|at| names.remove(at));
        let is_kept = behavior.keeps_wildcard && self.wildcard;
        let is_empty = behavior.empty_list_is_wildcard && names.is_empty();
        let wildcard = star.is_some() || !self.ever_named || is_kept || is_empty;
        let is_first = self.first.is_none();
        self.first.get_or_insert_with(|| names.clone());
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
        let new = new.filter(|name| !self.known.contains(*name)).cloned();
        let added = self.added.names.len();
        self.added.names.extend(new);
        changes.subscribed.extend_from_slice(&self.added.names[added..]);
        if !is_first && !changes.subscribed.is_empty() {
            self.memory.forget_claim();
        }
        changes.unsubscribed.extend(before.into_iter().filter(|name| !self.has(name)));
        let Self { names, wildcard, memory, .. } = self;
        memory.on_names(|name| *wildcard || has(names, name));
        changes
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.wildcard.then_some(WILDCARD).into_iter().chain(self.names.iter().map(String::as_str))
    }

    /// Returns the response that is due, without its nonce. Its contents count as sent.
    pub(super) fn poll(
        &mut self,
        (type_url, full_state): (&str, bool),
        store: &Store,
        settings: &Settings,
    ) -> Option<DiscoveryResponse> {
        let now = store.get(type_url);
        if self.must_wait(full_state, &now) {
            return None;
        }
        let lacks_names = !self.wildcard && now.entries().any(|(name, _)| !self.has(name));
        if settings.behavior.all_names_only && lacks_names {
            return None;
        }
        if self.seen.is_none() && settings.behavior.skip_known_versions {
            self.skip(&now, store.version_of_type(&now));
        }
        let contents = match self.changes((full_state, &settings.behavior), &now) {
            Some(contents) => contents,
            None => self.beat((full_state, &settings.behavior), &now)?,
        };
        match &contents {
            Contents::Whole { resources, .. } if settings.behavior.skip_known_versions => {
                self.memory.on_sent(resources.iter().copied());
            }
            Contents::Whole { .. } | Contents::Heartbeats(_) => {}
        }
        let (resources, errors) = match contents {
            Contents::Whole { mut resources, errors } => {
                if settings.behavior.keeps_known_names {
                    self.known.extend(resources.iter().map(|stored| stored.name().to_owned()));
                }
                if settings.behavior.unsolicited_resources {
                    let mut others = now.entries().filter(|(name, stored)| !self.covers(name, stored));
                    resources.extend(others.next().map(|(_, stored)| stored));
                }
                self.version = store.version_of_type(&now);
                let any = |stored| settings.any(type_url, stored, store);
                let star = (settings.behavior.unset_wildcard && self.has(WILDCARD))
                    .then(|| wrapped(&Resource { name: WILDCARD.to_owned(), ..Resource::default() }));
                let resources = resources.into_iter().map(any).chain(star);
                (resources.collect(), errors.into_iter().map(wrap::error).collect())
            }
            // With the version that the client has (B1.18).
            Contents::Heartbeats(resources) => {
                let factor = self.pulse.factor(settings);
                let any = |stored| wrapped(&wrap::heartbeat(stored, store, factor));
                (resources.into_iter().map(any).collect(), Vec::new())
            }
        };
        Some(DiscoveryResponse {
            version_info: self.version.clone(),
            type_url: type_url.to_owned(),
            resources,
            resource_errors: errors,
            ..DiscoveryResponse::default()
        })
    }

    /// Whether a response would imply the absence of resources whose state is unknown. Only the names of the first
    /// request count: the absence of names that are added later on a stream has no effect on the client at first.
    fn must_wait(&mut self, full_state: bool, now: &Type) -> bool {
        let mut first = self.first.take().unwrap_or_default();
        first.retain(|name| full_state && self.has(name) && !now.knows(name));
        let waits = !first.is_empty() || (self.wildcard && !now.knows(WILDCARD));
        self.first = Some(first);
        waits
    }

    /// Skips the response to a client that has all resources.
    fn skip(&mut self, now: &Type, version: String) {
        if self.memory.take_skip(&version, (self.wildcard, &self.names)) {
            self.added = Added::default();
            (self.seen, self.version) = (Some(now.clone()), version);
        }
    }

    /// Returns the contents of the next response, which then count as sent; `None` if nothing has changed.
    fn changes<'a>(
        &mut self,
        (full_state, behavior): (bool, &Behavior),
        now: &'a Type,
    ) -> Option<Contents<'a>> {
        let is_same_version = self.seen.as_ref().is_some_and(|seen| seen.version() == now.version());
        let mut added = match behavior.new_names_with_next_version && is_same_version {
            true => Added::default(),
            false => std::mem::take(&mut self.added),
        };
        if std::mem::take(&mut self.again) {
            added = Added { names: self.names.clone(), wildcard: self.wildcard };
        }
        let everything = added.wildcard && self.wildcard;
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
    fn beat<'a>(&mut self, (full_state, behavior): (bool, &Behavior), now: &'a Type) -> Option<Contents<'a>> {
        let mut again = (self.rejected && !behavior.heartbeats_after_nack) || self.version.is_empty();
        let mut names = BTreeSet::new();
        for (ttl, confirm) in self.pulse.take_due(behavior.heartbeats_after_expiry) {
            let is_covered =
                |name: &&str| now.entry(name).is_some_and(|(_, stored)| self.covers(name, stored));
            names.extend(now.of_ttl(ttl).filter(is_covered));
            again |= confirm == Confirm::Again;
        }
        let resources: Vec<_> =
            names.into_iter().filter_map(|name| now.entry(name)).map(|(_, it)| it).collect();
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

    fn covers(&self, name: &str, stored: &Stored) -> bool {
        (self.wildcard && stored.is_listed())
            || self.has(name)
            || stored.glob().is_some_and(|glob| self.has(glob))
    }

    fn has(&self, name: &str) -> bool {
        has(&self.names, name)
    }

    fn has_glob_of(&self, name: &str) -> bool {
        let glob = ResourceName::parse_received(name).ok().and_then(|name| name.enclosing_glob());
        glob.is_some_and(|glob| self.has(glob.as_str()))
    }
}

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

    fn into_contents(self) -> Option<Contents<'a>> {
        let Self { resources, errors, .. } = self;
        (!resources.is_empty() || !errors.is_empty()).then(|| Contents::Whole {
            resources: resources.into_values().collect(),
            errors: errors.into_values().collect(),
        })
    }
}

impl Settings {
    fn any(&self, type_url: &str, stored: &Stored, store: &Store) -> Any {
        if self.wrap_resources || stored.must_be_wrapped() {
            wrapped(&wrap::whole(type_url, stored, store))
        } else {
            Any { type_url: type_url.to_owned(), value: stored.bytes().clone() }
        }
    }
}

fn wrapped(resource: &Resource) -> Any {
    Any { type_url: type_url::WRAPPER.to_owned(), value: Bytes::from(resource.encode_to_vec()) }
}
