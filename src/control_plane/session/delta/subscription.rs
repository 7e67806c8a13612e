//! The subscription of one type in the incremental variant: what is due, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::super::{
    super::{
        store::{Store, Stored, Type, canonical},
        type_url,
    },
    AfterNack, Answer, Behavior, Settings, WILDCARD,
    features::Features,
    patience::{HOLDING, Patience},
    pulse::{Confirm, Pulse},
    retry::Retry,
    wrap,
};
use super::draft::{Draft, StateSource, names_of, to_canonical};
use crate::{
    name::ResourceName,
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource},
        google::rpc::Status,
    },
};

/// The subscription of one type on one stream. All names are canonical.
#[derive(Debug, Clone, Default)]
pub(super) struct Subscription {
    /// What the client announces.
    features: Features,
    /// The subscribed names, without `*`.
    names: BTreeSet<String>,
    /// Whether all resources are subscribed to.
    wildcard: bool,
    /// Whether the first request was received (B2.4).
    begun: bool,
    /// The client's initial versions, by name. Empty once they were compared with the resources.
    initial: BTreeMap<String, String>,
    /// New names of resources, globs or aliases, as subscribed to, whose state must be sent.
    fresh: BTreeSet<String>,
    /// Due names that are subscribed to, unknown to the client, and absent from the store.
    unknown: BTreeSet<String>,
    /// Whether all resources of the wildcard must be sent.
    everything: bool,
    /// The wait for a complete wildcard.
    patience: Patience,
    /// Names of resources, and of empty globs, whose state must be sent.
    due: BTreeSet<String>,
    /// Resources that need a heartbeat.
    beating: BTreeSet<String>,
    /// The times of heartbeats.
    pulse: Pulse,
    /// The time at which rejected resources are sent again.
    retry: Retry,
    /// Rejected resources that are sent again later.
    rejected: BTreeSet<String>,
    /// Resources with a time to live in rejected responses. The client may have them or not, so they are sent again
    /// in place of a heartbeat.
    doubtful: BTreeSet<String>,
    /// The resources at the time of the last response.
    seen: Option<Type>,
    /// Whether the unacknowledged response is a repetition of an accepted one.
    is_second: bool,
    /// The unacknowledged responses, by nonce.
    awaiting: BTreeMap<String, Awaited>,
}

/// An unacknowledged response.
#[derive(Debug, Clone)]
struct Awaited {
    /// Its version, for the ACK or NACK.
    version: String,
    /// The resources in it with a time to live.
    perishable: Vec<String>,
    /// All resources in it, if they may be sent again.
    resources: Vec<String>,
}

impl Subscription {
    pub(super) fn new(features: Features) -> Self {
        Self { features, ..Self::default() }
    }

    /// Takes the ACK or NACK of an unacknowledged response from a request. Other nonces are ignored (B2.11).
    pub(super) fn take_answer(
        &mut self,
        nonce: &str,
        error_detail: Option<Status>,
        behavior: &Behavior,
    ) -> Option<Answer> {
        let Awaited { version, perishable, resources } = self.awaiting.remove(nonce)?;
        // While resources are rejected, an ACK of another response does not stop the timer of their retry.
        if error_detail.is_some() || self.rejected.is_empty() {
            self.retry.on_answer(error_detail.is_none(), behavior.after_nack);
        }
        Some(match error_detail {
            None => {
                let is_due = behavior.send_twice && !self.is_second;
                self.is_second = is_due;
                self.due.extend(resources.into_iter().filter(|_| is_due));
                Answer::Accepted { version }
            }
            Some(status) => {
                if !behavior.heartbeats_after_nack {
                    self.doubtful.extend(perishable);
                }
                match behavior.after_nack {
                    AfterNack::SameResources => self.due.extend(resources),
                    AfterNack::SameResourcesLater => self.rejected.extend(resources),
                    AfterNack::Nothing | AfterNack::Silence => {}
                }
                Answer::Rejected { version, code: status.code, message: status.message }
            }
        })
    }

    /// Records a response that was sent outside of the session.
    pub(super) fn note_sent(&mut self, nonce: &str, version: &str) {
        let awaited = Awaited { version: version.to_owned(), perishable: Vec::new(), resources: Vec::new() };
        self.awaiting.insert(nonce.to_owned(), awaited);
    }

    /// Whether there is an unacknowledged response.
    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaiting.is_empty()
    }

    /// Subscribes to a name. Returns the canonical name if it is new.
    pub(super) fn subscribe(&mut self, name: String, behavior: &Behavior) -> Option<String> {
        if name == WILDCARD && !behavior.legacy_wildcard_only {
            self.invalidate_initial(WILDCARD);
            self.everything = true;
            return (!std::mem::replace(&mut self.wildcard, true)).then_some(name);
        }
        let name = if behavior.compares_text { name } else { to_canonical(name) };
        self.invalidate_initial(&name);
        // B2.8: due even if it was subscribed to before, since the client may have dropped its resource meanwhile.
        self.fresh.insert(name.clone());
        self.names.insert(name.clone()).then_some(name)
    }

    /// Handles the parts that only the first request has, after the names to subscribe to; they are ignored in others
    /// (B2.2). Returns whether it is a wildcard request.
    pub(super) fn on_first_request(&mut self, named: bool, versions: BTreeMap<String, String>) -> bool {
        if std::mem::replace(&mut self.begun, true) {
            return false;
        }
        self.initial = versions.into_iter().map(|(name, version)| (to_canonical(name), version)).collect();
        self.wildcard |= !named;
        self.everything |= !named;
        !named
    }

    /// Unsubscribes from a name. Returns the canonical name if it was subscribed to.
    pub(super) fn unsubscribe(&mut self, name: String, behavior: &Behavior) -> Option<String> {
        if name == WILDCARD && behavior.keeps_wildcard {
            return None;
        }
        if name == WILDCARD && !behavior.legacy_wildcard_only {
            self.invalidate_initial(WILDCARD);
            self.everything = false;
            return std::mem::replace(&mut self.wildcard, false).then_some(name);
        }
        let name = if behavior.compares_text { name } else { to_canonical(name) };
        self.invalidate_initial(&name);
        let was_subscribed = self.names.remove(&name);
        self.fresh.remove(&name);
        if was_subscribed && self.is_covered(&name) {
            // The client cannot determine whether the wildcard or the glob covers it (B2.20).
            self.fresh.insert(name.clone());
        } else if was_subscribed {
            self.due.remove(&name);
        }
        was_subscribed.then_some(name)
    }

    /// Whether a name is subscribed to, however it is written.
    pub(super) fn has(&self, name: &str) -> bool {
        if name == WILDCARD { self.wildcard } else { self.names.contains(&*canonical(name)) }
    }

    /// The number of names, the wildcard included.
    pub(super) fn len(&self) -> usize {
        self.names.len() + usize::from(self.wildcard)
    }

    /// Iterates over the names, `*` first.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.wildcard.then_some(WILDCARD).into_iter().chain(self.names.iter().map(String::as_str))
    }

    /// Updates the time. Returns the next deadline.
    pub(super) fn handle_time(&mut self, now: Instant, of_type: &Type) -> Option<Instant> {
        let (retry, is_due) = self.retry.handle_time(now);
        if is_due {
            self.due.append(&mut self.rejected);
        }
        let wait = if self.waits_for_all(of_type) {
            self.patience.handle_time(now, HOLDING)
        } else {
            self.patience.reset();
            None
        };
        let pulse = if self.features.ttl { self.pulse.handle_time(now, of_type) } else { None };
        pulse.into_iter().chain(retry).chain(wait).min()
    }

    /// Whether the first response to a wildcard waits until it is complete.
    fn waits_for_all(&self, now: &Type) -> bool {
        self.wildcard && !now.knows(WILDCARD)
    }

    /// Whether a subscribed name has a state to report.
    fn knows_any(&self, now: &Type) -> bool {
        self.names.iter().any(|name| now.knows(name))
    }

    /// Returns the response that is due, with its nonce. Its contents count as sent.
    pub(super) fn poll(
        &mut self,
        type_url: &str,
        nonce: String,
        store: &Store,
        settings: &Settings,
    ) -> Option<DeltaDiscoveryResponse> {
        let now = store.get(type_url);
        let is_incomplete = self.waits_for_all(&now);
        if is_incomplete {
            // The response to a wildcard is complete, unless names would wait too long for it.
            let mut patience = self.patience;
            if !patience.gives_up(|| self.knows_any(&now)) {
                return None;
            }
            self.patience = patience;
        }
        // The response to a wildcard may be empty, which reports that there are no resources (B2.28).
        let owed = self.everything && !is_incomplete;
        self.collect_due(&now, |stored| store.version_of(stored), settings);
        let mut draft = Draft::default();
        let source = StateSource { type_url, now: &now, store };
        let limit = settings.max_per_response.map_or(usize::MAX, |limit| limit.max(1));
        // The rest stays due, and follows after the ACK or NACK.
        while draft.len() < limit {
            if let Some(name) = self.due.pop_first() {
                self.write_state(name, &mut draft, source);
            } else if let Some(name) = self.beating.pop_first() {
                self.write_heartbeat(&name, &mut draft, source, settings);
            } else {
                break;
            }
        }
        if draft.len() == 0 && !owed {
            return None;
        }
        let Draft { mut response, perishable } = draft;
        if settings.behavior.unsolicited_resources {
            let others = now.entries().filter(|(name, stored)| !self.covers(name, stored));
            let mut unmentioned =
                others.filter(|(name, _)| !response.removed_resources.iter().any(|removed| removed == *name));
            let whole = unmentioned.next().map(|(_, stored)| wrap::whole(type_url, stored, store));
            response.resources.extend(whole.map(|resource| self.supported(resource)));
        }
        let star = response.removed_resources.iter().position(|name| name == WILDCARD);
        if let Some(star) = star.filter(|_| settings.behavior.unset_wildcard) {
            let name = response.removed_resources.swap_remove(star);
            response.resources.push(Resource { name, ..Resource::default() });
        }
        let version = store.version_of_type(&now);
        let resources = match settings.behavior.after_nack {
            AfterNack::SameResources | AfterNack::SameResourcesLater => names_of(&response),
            AfterNack::Nothing | AfterNack::Silence if settings.behavior.send_twice => names_of(&response),
            AfterNack::Nothing | AfterNack::Silence => Vec::new(),
        };
        self.awaiting.insert(nonce.clone(), Awaited { version: version.clone(), perishable, resources });
        let (type_url, system_version_info) = (type_url.to_owned(), version);
        Some(DeltaDiscoveryResponse { type_url, system_version_info, nonce, ..response })
    }

    /// Determines the names whose state must be sent, from changes, new names and initial versions.
    fn collect_due(&mut self, now: &Type, version: impl Fn(&Stored) -> String, settings: &Settings) {
        if let Some(seen) = self.seen.replace(now.clone()) {
            self.compare(now, &seen, &settings.behavior);
        }
        for name in std::mem::take(&mut self.fresh) {
            let mut found = now.members(&name).chain(now.aliased(&name)).map(str::to_owned).peekable();
            // Absence is reported once it is known.
            let is_missing = found.peek().is_none() && self.is_known(&name, now);
            self.due.extend(found);
            if is_missing && self.names.contains(&name) && !self.initial.contains_key(&name) {
                self.unknown.insert(name.clone());
            }
            if is_missing || now.entry(&name).is_some() || now.error_entry(&name).is_some() {
                self.due.insert(name);
            }
        }
        if !self.waits_for_all(now) && std::mem::take(&mut self.everything) {
            let listed = now.entries().filter(|(_, stored)| stored.is_listed());
            self.due.extend(listed.map(|(name, _)| name.to_owned()));
        }
        for (name, held) in std::mem::take(&mut self.initial) {
            match now.entry(&name) {
                // The client has it by a wildcard that no longer includes it.
                Some((_, stored)) if !self.covers(&name, stored) => drop(self.due.insert(name)),
                // The client's copy may have expired in the meantime.
                Some((_, stored)) if stored.ttl().is_some() && !self.pulse.is_fresh() => {}
                Some((_, stored)) if !settings.ignore_initial_versions && version(stored) == held => {
                    self.due.remove(&name);
                    if stored.ttl().is_some() && self.features.ttl {
                        self.beating.insert(name);
                    }
                }
                // It is already due by its subscription.
                Some(_) => {}
                None if self.is_known(&name, now) => drop(self.due.insert(name)),
                // Its version is compared once its state is known.
                None => drop(self.initial.insert(name, held)),
            }
        }
        self.beat(now, &settings.behavior);
    }

    /// Finds the changes of subscribed resources. Takes time linear in the changes, whatever the number of names and
    /// globs.
    fn compare(&mut self, now: &Type, seen: &Type, behavior: &Behavior) {
        for difference in now.differences(seen) {
            if behavior.unsolicited_removals && difference.now.is_none() {
                self.due.insert(difference.name.to_owned());
                continue;
            }
            let is_covered = |stored: &Stored| self.covers(difference.name, stored);
            if !difference.before.is_some_and(is_covered) && !difference.now.is_some_and(is_covered) {
                continue;
            }
            if difference.now.is_none() && !self.is_known(difference.name, now) {
                // Its version is compared once its state is known; an empty version equals none.
                self.initial.insert(difference.name.to_owned(), String::new());
            } else {
                self.due.insert(difference.name.to_owned());
            }
            // The last member of a glob was removed.
            let glob = difference.before.and_then(Stored::glob).filter(|glob| self.names.contains(*glob));
            if let Some(glob) = glob.filter(|glob| now.knows(glob) && now.members(glob).next().is_none()) {
                self.due.insert(glob.to_owned());
            }
        }
        for name in now.known_since(seen) {
            if self.names.contains(name) && now.members(name).next().is_none() {
                self.due.insert(name.to_owned());
            }
        }
        for name in now.errors_changed_since(seen) {
            if self.names.contains(name) || self.is_covered_by_glob(name) {
                self.due.insert(name.to_owned());
            }
        }
    }

    /// Determines the resources that need a heartbeat.
    fn beat(&mut self, now: &Type, behavior: &Behavior) {
        for (ttl, confirm) in self.pulse.take_due(behavior.heartbeats_after_expiry) {
            for name in now.of_ttl(ttl) {
                if !now.entry(name).is_some_and(|(_, stored)| self.covers(name, stored)) {
                    continue;
                }
                match confirm {
                    Confirm::Heartbeat if !self.doubtful.contains(name) => {
                        self.beating.insert(name.to_owned())
                    }
                    Confirm::Heartbeat | Confirm::Again => self.due.insert(name.to_owned()),
                };
            }
        }
    }

    /// Writes the state of a name: its resource, an error, or its absence.
    fn write_state(&mut self, name: String, draft: &mut Draft, source: StateSource<'_>) {
        let StateSource { type_url, now, store } = source;
        let Draft { response, perishable } = draft;
        let is_unknown = self.unknown.remove(&name);
        match now.entry(&name) {
            Some((_, stored)) if self.covers(&name, stored) => {
                self.beating.remove(&name);
                self.doubtful.remove(&name);
                response.resources.push(self.supported(wrap::whole(type_url, stored, store)));
                if stored.ttl().is_some() {
                    perishable.push(name);
                }
            }
            Some((_, stored)) if self.wildcard && !stored.is_listed() => {
                response.removed_resources.push(name);
            }
            // It was unsubscribed from in the meantime.
            Some(_) => {}
            None => match now.error_entry(&name).map(|(_, error)| error) {
                Some(error) if self.names.contains(&name) || self.is_covered_by_glob(&name) => {
                    response.resource_errors.push(wrap::error(error));
                }
                Some(_) => response.removed_resources.push(name),
                // A glob that was empty has members again.
                None if now.members(&name).next().is_some() => {}
                // The name of a host may be an alias (B2.18).
                None if is_unknown && type_url == type_url::VIRTUAL_HOST => {
                    response.resources.push(wrap::unknown_alias(name));
                }
                None => response.removed_resources.push(name),
            },
        }
    }

    /// Writes a heartbeat, unless the resource is gone.
    fn write_heartbeat(
        &mut self,
        name: &str,
        draft: &mut Draft,
        source: StateSource<'_>,
        settings: &Settings,
    ) {
        let StateSource { now, store, .. } = source;
        let Some((_, stored)) = now.entry(name).filter(|(_, stored)| self.covers(name, stored)) else {
            return;
        };
        let factor = self.pulse.factor(settings);
        draft.response.resources.push(wrap::heartbeat(stored, store, factor));
    }

    /// Removes the time to live for a client that does not support it.
    fn supported(&self, mut resource: Resource) -> Resource {
        resource.ttl = resource.ttl.filter(|_| self.features.ttl);
        resource
    }

    /// Invalidates the initial version of a name, so that its resource is sent even if unchanged: the client has
    /// subscribed to it again, or has dropped it in the meantime.
    fn invalidate_initial(&mut self, name: &str) {
        if self.initial.is_empty() {
            return;
        }
        // No resource has an empty version.
        if name == WILDCARD || is_glob(name) {
            self.initial.values_mut().for_each(String::clear);
        } else {
            self.initial.get_mut(name).into_iter().for_each(String::clear);
        }
    }

    /// Whether the state of a name is known, including absence, through the subscription that covers it.
    fn is_known(&self, name: &str, now: &Type) -> bool {
        if now.knows(name) || self.names.contains(name) {
            return now.knows(name);
        }
        let glob = ResourceName::parse_received(name).ok().and_then(|name| name.enclosing_glob());
        let glob = glob.filter(|glob| self.names.contains(glob.as_str()));
        glob.map_or_else(|| !self.wildcard || now.knows(WILDCARD), |glob| now.knows(glob.as_str()))
    }

    /// Whether a resource is subscribed to, by its name, an alias, a glob or the wildcard.
    fn covers(&self, name: &str, stored: &Stored) -> bool {
        (self.wildcard && stored.is_listed())
            || self.names.contains(name)
            || stored.glob().into_iter().chain(stored.aliases()).any(|name| self.names.contains(name))
    }

    /// Whether the wildcard or a glob covers a name.
    fn is_covered(&self, name: &str) -> bool {
        self.wildcard || self.is_covered_by_glob(name)
    }

    /// Whether a glob covers a name.
    fn is_covered_by_glob(&self, name: &str) -> bool {
        let glob = ResourceName::parse_received(name).ok().and_then(|name| name.enclosing_glob());
        glob.is_some_and(|glob| self.names.contains(glob.as_str()))
    }
}

/// Whether a name is a glob.
fn is_glob(name: &str) -> bool {
    ResourceName::parse_received(name).is_ok_and(|name| name.is_glob())
}
