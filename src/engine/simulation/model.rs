//! What must hold whatever happens: a reference model beside the engine, which sees every event.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use tracing::debug;

use super::{
    history::History,
    keys::ResourceId,
    network::Network,
    parts::{INITIAL, Seen},
    script::Ty,
    server::{Open, SimServer},
    session::Response,
    stream_rules::{Answered, Due},
};
use crate::{
    base::WatchId,
    config::ServerFeatures,
    error::{Code, WatchError},
    observed::ErasedMembers,
    protocol::StreamId,
    resource::Erased,
};

/// What was watched, changed and seen.
#[derive(Default)]
pub(super) struct Model {
    pub(super) ones: BTreeMap<WatchId, One>,
    pub(super) alls: BTreeMap<WatchId, All>,
    /// Everything of a type has names of authorities.
    pub(super) shared: bool,
    history: History,
    /// The resources that a server has answered, which never have their initial contents again.
    replaced: BTreeSet<ResourceId>,
    /// The nonces of the last response, and of those before it on its stream.
    nonces: BTreeSet<(usize, u64, String)>,
    repeated: bool,
    /// What came in a repeated response before the server had read a request for it: a response to an earlier request may be
    /// without it again.
    early: BTreeSet<ResourceId>,
    /// Servers that have sent a subscribed resource of an authority since the last step.
    senders: BTreeSet<(usize, usize)>,
    /// How many servers of each authority were open.
    depths: BTreeMap<usize, usize>,
    /// Since when a server has subscriptions and no stream, or the other way round.
    mismatched_since: BTreeMap<usize, Instant>,
    /// How often what happened.
    pub(super) counts: BTreeMap<&'static str, u64>,
}

/// A watch of one resource.
#[derive(Debug)]
pub(super) struct One {
    pub(super) key: ResourceId,
    /// When the step ended in which it began.
    since: Option<Instant>,
    pub(super) seen: Option<Seen>,
}

/// A watch of everything of the type that is complete.
#[derive(Debug, Default)]
pub(super) struct All {
    pub(super) members: BTreeMap<String, Seen>,
    pub(super) complete: bool,
    pub(super) warning: Option<WatchError>,
    /// On which stream, and since when, nothing was known of it.
    unknown: Option<(StreamId, Instant)>,
}

impl Model {
    pub(super) fn on_watch(&mut self, watch_id: WatchId, key: ResourceId) {
        self.ones.insert(watch_id, One { key, since: None, seen: None });
    }

    pub(super) fn on_watch_all(&mut self, watch_id: WatchId) {
        self.alls.insert(watch_id, All::default());
    }

    /// One of the watches ends.
    pub(super) fn end_watch(&mut self, number: u8) -> Option<WatchId> {
        let watches: Vec<_> = self.ones.keys().chain(self.alls.keys()).copied().collect();
        let watch_id = *watches.get(usize::from(number) % watches.len().max(1))?;
        self.ones.remove(&watch_id);
        self.alls.remove(&watch_id);
        Some(watch_id)
    }

    pub(super) fn on_change(&mut self, server: usize, key: &ResourceId, text: Option<String>) {
        self.history.on_change(server, (key.ty, &key.name), text);
    }

    pub(super) fn on_restart(&mut self, id: usize, server: &SimServer) {
        self.history.on_restart(id, server);
    }

    pub(super) fn on_answered(&mut self, answered: Answered) {
        self.count(match answered {
            Answered::Accepted => "accepted",
            Answered::Rejected => "rejected",
        });
    }

    pub(super) fn on_delivered(&mut self, server: usize, response: &Response, due: Due, network: &Network) {
        let attempt = network.servers[server].open.as_ref().map_or(0, |open| open.stream.attempt);
        let number = (server, attempt, format!("{} {}", response.type_url(), response.nonce()));
        self.repeated = !self.nonces.insert(number);
        if due == Due::Nack {
            let ty = Ty::ALL.into_iter().find(|ty| ty.url() == response.type_url());
            for it in response.resources() {
                let is_other = it.resource.is_some_and(|any| any.type_url != response.type_url());
                if let Some(ty) = ty.filter(|_| is_other) {
                    self.history.on_mistyped(server, (ty, &it.name));
                }
            }
            return;
        }
        for name in response.names() {
            let watched = self.ones.values().map(|one| &one.key);
            let watched = watched.filter(|key| key.ty.url() == response.type_url() && key.name == name);
            let whole = (response.type_url() == Ty::Full.url() && !self.alls.is_empty()).then_some(0);
            let authorities: Vec<_> = watched.map(|key| key.authority).chain(whole).collect();
            self.senders.extend(authorities.into_iter().map(|authority| (server, authority)));
        }
    }

    pub(super) fn on_notify(&mut self, watch_id: WatchId, observed: &Erased, network: &Network) {
        if self.alls.contains_key(&watch_id) {
            return self.on_members(watch_id, observed, network);
        }
        let seen = Seen::of(observed);
        debug!(?watch_id, ?seen, "seen");
        let Some(one) = self.ones.get_mut(&watch_id) else { panic!("{watch_id:?} is not watched") };
        assert_ne!(one.seen.as_ref(), Some(&seen), "an equal state is not published twice");
        let (key, before) = (one.key.clone(), one.seen.replace(seen.clone()));
        let was_initial = matches!(&before, Some(Seen::Present { text, .. }) if text == INITIAL);
        match &seen {
            Seen::Present { text, .. } if text == INITIAL => {
                assert!(!self.replaced.contains(&key), "{key:?} was answered before");
                assert!(seen.error().is_some(), "{key:?}: the initial contents are marked");
                return self.count("initial");
            }
            Seen::Absent(reason) if was_initial => {
                assert!(!reason.is_of_server(), "the initial {key:?} is lost with its server: {reason}");
                self.replaced.insert(key.clone());
                self.count("initial absent");
            }
            Seen::Present { text, .. } => {
                self.replaced.insert(key.clone());
                let active = network.active(key.authority);
                let is_unsolicited = active.is_some_and(|active| network.was_unsolicited(active, &key));
                let new = self.history.on_good(&key, text, self.repeated || is_unsolicited);
                assert!(new.is_none() || new == active, "{text:?} of {key:?} while {active:?} is active");
                let is_requested = active.is_some_and(|active| network.requests(active, &key));
                match self.repeated && !is_requested {
                    true => drop(self.early.insert(key.clone())),
                    false => drop(self.early.remove(&key)),
                }
                self.count("present");
            }
            Seen::Absent(_) if self.early.contains(&key) => self.count("absent"),
            Seen::Absent(reason) => {
                if let Some(Seen::Present { .. }) = before {
                    self.check_loss(&key, reason, network);
                }
                self.count("absent");
            }
        }
        let others = self.ones.iter().filter(|(other, one)| **other != watch_id && one.key == key);
        let joins = others.map(|(_, one)| &one.seen).any(|other| other.as_ref() == Some(&seen));
        if let Some(error) = seen.error().filter(|_| !joins) {
            self.check_error(&key, error, network);
        }
    }

    /// The last known good resource is never lost to an error, unless its server is configured for that, or has deleted it.
    fn check_loss(&mut self, key: &ResourceId, reason: &WatchError, network: &Network) {
        let text = reason.reason();
        assert!(!reason.is_of_server(), "{key:?} is lost with its server: {reason}");
        let list = &network.lists[key.authority];
        let features = |server: usize| network.servers[server].config.features;
        if reason.is_rejected() {
            let allowed =
                |server: &usize| features(*server).fail_on_data_errors && self.history.was_bad(*server, key);
            assert!(list.iter().any(allowed), "{key:?}: {reason}");
            return self.count("lost to a rejection");
        }
        // An error does not refer to its server otherwise than by the URI in its reason.
        let whose = |server: &usize| text.contains(&network.servers[*server].uri());
        let server = list.iter().copied().find(whose).unwrap_or_else(|| panic!("{key:?}: whose is {reason}"));
        let ServerFeatures { ignore_resource_deletion: keeps, fail_on_data_errors: fails, .. } =
            features(server);
        if text.starts_with("denied") {
            let is_data = matches!(reason.code(), Code::NotFound | Code::PermissionDenied);
            assert!(fails && is_data, "{key:?}: {reason}");
            return self.count("lost to an error");
        }
        let deletes = key.ty == Ty::Full || network.servers[server].is_delta();
        assert!(deletes && (fails || !keeps), "{key:?}: {reason}");
        let silence = text.contains("did not send it");
        let transient = silence && features(server).resource_timer_is_transient_error;
        assert!(transient || reason.code() == Code::NotFound, "{key:?}: {reason}");
        assert!(silence || self.history.was_gone(server, key), "{key:?} was there all the time: {reason}");
        self.count("deleted");
    }

    /// Errors of servers are true.
    fn check_error(&mut self, key: &ResourceId, error: &WatchError, network: &Network) {
        if error.is_of_server() {
            let active = network.active(key.authority).expect("it is watched");
            assert!(network.servers[active].failing, "{active} is fine: {error}");
            return self.count("server error");
        }
        if !error.reason().contains("did not send it in time") || self.early.contains(key) {
            return;
        }
        let list = &network.lists[key.authority];
        let server =
            list.iter().copied().find(|server| error.reason().contains(&network.servers[*server].uri()));
        let server = server.expect("it is about one of its servers");
        // A resource without watches may stay cached for some time.
        if self.ones.values().all(|one| one.key != *key || one.since.is_none()) {
            return;
        }
        self.count("timed out");
        let active = network.active(key.authority);
        assert!(
            active == Some(server) || network.has_server_error(key.authority),
            "{server} does not count: {error}"
        );
        let transient = network.servers[server].config.features.resource_timer_is_transient_error;
        // A88-5, and A57-5 without the feature.
        let least = Duration::from_secs(if transient { 30 } else { 15 });
        let open = network.servers[server].open.as_ref();
        let is_read = open.is_none_or(|open| open.unread_since.is_none());
        assert!(is_read, "nothing was ever read from {server}: {error}");
        if open.is_some_and(|open| open.is_inconsistent) {
            // It may have sent that itself while it was not active.
            return;
        }
        let requested = network.requested(server, key);
        assert!(
            requested.is_some_and(|requested| requested + least <= network.now),
            "requested {:?} before: {error}",
            requested.map(|requested| network.now - requested)
        );
    }

    fn on_members(&mut self, watch_id: WatchId, observed: &Erased, network: &Network) {
        let members = observed.downcast_ref::<ErasedMembers>().expect("a wildcard sees members");
        let seen = members.map.iter().map(|(name, observed)| (name.to_string(), Seen::of(&observed.0)));
        let seen: BTreeMap<_, _> = seen.collect();
        for (name, seen) in &seen {
            match seen {
                // A member that is watched by its name was sent, and rejected.
                Seen::Present { text, .. } if text == INITIAL => {}
                Seen::Present { text, .. } => {
                    self.history.on_good(&ResourceId::member(name), text, self.repeated);
                }
                Seen::Absent(reason) => {
                    let contradicts_store =
                        self.shared || network.servers.iter().any(|server| server.contradicts_store);
                    let is_known = contradicts_store || self.history.is_known(&ResourceId::member(name));
                    assert!(is_known, "the member {name} never was: {reason}");
                }
            }
        }
        debug!(?watch_id, ?seen, members.complete, "members");
        let Some(all) = self.alls.get_mut(&watch_id) else { return };
        assert!(members.complete || !all.complete, "what is complete stays so");
        *all = All {
            members: seen,
            complete: members.complete,
            warning: members.warning.clone(),
            unknown: all.unknown,
        };
        // A member that is shared with an authority may be seen to be well before the wildcard is.
        let of_server = members.warning.as_ref().filter(|warning| !is_silence(warning) && !self.shared);
        if let Some(warning) = of_server {
            let active = network.active(0).expect("it is watched");
            assert!(network.servers[active].failing, "{active} is fine: {warning}");
        }
        self.count("members");
    }

    /// What must hold whenever everything that was due is done.
    pub(super) fn check_step(&mut self, network: &Network) {
        network.check_answers();
        for one in self.ones.values_mut() {
            one.since.get_or_insert(network.now);
        }
        for authority in 0..network.lists.len() {
            if self.is_watched(authority) {
                self.check_authority(authority, network);
            }
        }
        self.check_watchers_agree();
        self.check_unknown_wildcards(network);
        self.check_active_servers(network);
        self.check_streams(network);
        for (authority, list) in network.lists.iter().enumerate() {
            let now = network.open(authority).len();
            let before = self.depths.insert(authority, now).unwrap_or(1);
            assert!(now <= list.len());
            if now > before && before > 0 {
                self.count("fallback");
            } else if now < before && self.is_watched(authority) {
                self.count("return");
            }
        }
    }

    pub(super) fn is_watched(&self, authority: usize) -> bool {
        (authority == 0 && !self.alls.is_empty())
            || self.ones.values().any(|one| one.key.authority == authority)
    }

    /// An error of the active server is shown; and it stays active only if no subscribed resource is missing that another server may have.
    fn check_authority(&self, authority: usize, network: &Network) {
        let active = network.active(authority).expect("it is watched");
        let has_error = network.has_server_error(authority);
        assert!(!has_error || network.servers[active].failing, "{active} is fine");
        let mut needs = false;
        for one in self.ones.values().filter(|one| one.key.authority == authority) {
            needs |= !one.seen.as_ref().is_some_and(Seen::is_cached);
            let error = one.seen.as_ref().and_then(Seen::error);
            match &one.seen {
                Some(Seen::Present { warning, .. }) => {
                    let is_shown = warning.as_ref().is_some_and(WatchError::is_of_server);
                    assert!(!is_shown || network.servers[active].failing, "{active} is fine again: {one:?}");
                    assert!(!has_error || warning.is_some(), "{active} has an error: {one:?}");
                }
                Some(Seen::Absent(_)) | None => {
                    assert!(!has_error || error.is_some(), "{active} has an error: {one:?}");
                }
            }
        }
        for all in self.alls.values().filter(|_| authority == 0) {
            needs |= !all.complete;
            let is_shown = all.warning.as_ref().is_some_and(|warning| !is_silence(warning));
            assert_eq!(has_error, is_shown, "of {active}: {all:?}");
        }
        let last = network.lists[authority].last() == Some(&active);
        assert!(!(has_error && needs) || last, "there are others than {active}");
    }

    /// A wildcard without a response has a warning.
    fn check_unknown_wildcards(&mut self, network: &Network) {
        let active = network.active(0).map(|active| &network.servers[active]);
        let open = active.and_then(|server| server.open.as_ref());
        for all in self.alls.values_mut() {
            let is_unknown = !all.complete && all.warning.is_none();
            // After a response its resources carry the error.
            let is_unanswered =
                |open: &&Open| !open.is_unresponsive && !open.rules.is_answered(Ty::Full.url());
            let Some(open) = open.filter(is_unanswered).filter(|_| is_unknown) else {
                all.unknown = None;
                continue;
            };
            match all.unknown.filter(|(stream, _)| *stream == open.stream) {
                Some((_, since)) => {
                    assert!(network.now < since + SILENCE, "nothing is known of a wildcard: {all:?}");
                }
                None => all.unknown = Some((open.stream, network.now)),
            }
        }
    }

    /// All watches of a resource show the same.
    fn check_watchers_agree(&self) {
        let mut seen: BTreeMap<&ResourceId, Option<&Seen>> = BTreeMap::new();
        for one in self.ones.values() {
            let known = one.seen.as_ref().filter(|seen| seen.is_cached());
            let other = *seen.entry(&one.key).or_insert(known);
            assert_eq!(other, known, "of {:?}", one.key);
        }
    }

    /// A server that has sent a subscribed resource of an authority is active, if it was open, and those below it are released.
    fn check_active_servers(&mut self, network: &Network) {
        for (server, authority) in std::mem::take(&mut self.senders) {
            let open = network.open(authority);
            if !self.is_watched(authority) || !open.contains(&server) {
                continue;
            }
            assert_eq!(open.last(), Some(&server), "it has sent something for {authority}");
            for lower in &network.lists[authority][open.len()..] {
                let SimServer { open, attempt, .. } = &network.servers[*lower];
                let kept = open.is_some() || attempt.is_some();
                assert!(
                    !kept || self.is_needed(*lower, network) || !self.served(*lower),
                    "{lower} is released"
                );
            }
        }
    }

    /// A server has a stream if it has subscriptions, or had some a short time ago, or is being connected.
    fn check_streams(&mut self, network: &Network) {
        for (id, server) in network.servers.iter().enumerate() {
            let there = server.open.is_some() || server.attempt.is_some();
            if there == self.is_needed(id, network) {
                self.mismatched_since.remove(&id);
                continue;
            }
            let since = *self.mismatched_since.entry(id).or_insert(network.now);
            // A needed stream waits for the backoff; another is kept for a while, or was being connected.
            let longest = Duration::from_secs(if there { 30 + 45 } else { 145 });
            assert!(network.now <= since + longest, "{id} has a stream: {there}, for too long");
        }
    }

    /// Whether a server has subscriptions.
    pub(super) fn is_needed(&self, server: usize, network: &Network) -> bool {
        let has_subscriptions =
            |authority: &usize| self.is_watched(*authority) && network.open(*authority).contains(&server);
        (0..network.lists.len()).any(|authority| has_subscriptions(&authority))
    }

    /// Whether a server had something to do until this step.
    fn served(&self, server: usize) -> bool {
        !self.mismatched_since.contains_key(&server)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

/// Whether a warning of a wildcard reports that it was not answered, or by something that cannot be used, on a stream that is a
/// good one otherwise.
fn is_silence(warning: &WatchError) -> bool {
    warning.is_rejected()
        || warning.reason().contains("cannot be read")
        || warning.reason().contains("did not answer the wildcard")
        || warning.reason().contains("does the server support it")
}

/// When it is reported at the latest that a wildcard is not answered: the does-not-exist time of a server that has twice as long as
/// others, after a request that may be late.
const SILENCE: Duration = Duration::from_secs(45);
