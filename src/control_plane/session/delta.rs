//! The session of a stream of the incremental variant.

use std::{collections::BTreeMap, time::Instant};

use super::{
    super::store::Store, AfterNack, Handled, Held, Misuse, NameChanges, Settings, WILDCARD,
    features::Features, key::TypeKey, silence::Silence,
};
use crate::pb::envoy::{
    config::core::v3::{ControlPlane, Node},
    service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
};

use self::subscription::Subscription;

mod draft;
mod subscription;

/// The server side of one stream of the incremental variant.
///
/// It is used like a [`Session`](super::Session): pass each request to [`handle_request`](Self::handle_request), and
/// call [`poll_response`](Self::poll_response) until it returns `None` after each request, after each change of the
/// store and after [`set_held`](Self::set_held).
///
/// - Each request is processed, whatever its nonce, and changes the subscription: first the names to subscribe to are
///   added, then those to unsubscribe from are removed.
/// - The resource of a subscribed name is sent, also if the name was subscribed to before. If it does not exist, the
///   name is in `removed_resources`; that of a virtual host is an alias without a resource, as in VHDS. Later changes
///   are sent as they occur.
/// - A type has at most one unacknowledged response; later changes wait for its ACK or NACK. A rejected resource is
///   not sent again until it changes or is subscribed to again.
/// - A resource that a client has from an earlier stream (`initial_resource_versions`) is only sent if it differs.
/// - If a name is unsubscribed from while the wildcard or a glob covers it, the session sends its current state: the
///   resource, or its removal.
/// - A glob stands for its members, present and future. An empty glob is reported by its own name in
///   `removed_resources`.
/// - Resources have times to live for clients whose node announces that feature; they get three heartbeats within it, by
///   [`handle_time`](Self::handle_time).
/// - In a store [on demand](Store::with_on_demand), what is known of names waits 5 s for a wildcard of the type that is
///   incomplete, and for nothing else.
/// - Types are sent in the order of [`Session`](super::Session).
///
/// The legacy wildcard is a first request of a type without names. By the letter of the protocol document, a client
/// that has never sent a non-empty list of names to subscribe to uses it, which includes a first request with names
/// to unsubscribe from. It is intended for clients without names, though, and a client that unsubscribes from a name,
/// possibly from an earlier stream, has names. Such a request therefore subscribes to nothing.
///
/// A session follows one store through its changes; it keeps only the resources in memory that were last sent.
#[derive(Debug, Clone, Default)]
pub struct DeltaSession {
    settings: Settings,
    /// The node of the first request that had one.
    node: Option<Node>,
    held: Held,
    /// The number of responses, by which nonces are made.
    sent: u64,
    /// Subscriptions in the order in which types are sent.
    types: BTreeMap<TypeKey, Subscription>,
    /// The changes of names by the last request.
    changes: NameChanges,
    silence: Silence,
}

impl DeltaSession {
    /// A session for a new stream.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Handles a request.
    ///
    /// # Errors
    /// The request violates the protocol, or is for a type for which the server ends the stream. The session is
    /// unchanged.
    pub fn handle_request(&mut self, request: DeltaDiscoveryRequest) -> Result<Handled, Misuse> {
        if request.type_url.is_empty() {
            return Err(Misuse::NoTypeUrl);
        }
        if self.settings.behavior.unknown_types.contains(&request.type_url) {
            return Err(Misuse::UnknownType);
        }
        let key = TypeKey::of(&request.type_url);
        // All checks come before the first change, so that an error leaves the session as it was.
        self.check(&key, &request)?;
        if self.node.is_none() {
            self.node = request.node;
        }
        let behavior = &self.settings.behavior;
        let features = Features::of(self.node.as_ref());
        let subscription = self.types.entry(key).or_insert_with(|| Subscription::new(features));
        let is_nack = request.error_detail.is_some();
        let answer = subscription.take_answer(&request.response_nonce, request.error_detail, behavior);
        self.silence.on_request(is_nack && behavior.after_nack == AfterNack::Silence);
        let mut changes = NameChanges::default();
        if is_nack && behavior.ignore_names_in_nack {
            self.changes = changes;
            return Ok(Handled::Understood { answer, names_changed: false });
        }
        let named =
            !(request.resource_names_subscribe.is_empty() && request.resource_names_unsubscribe.is_empty());
        // In this order, so that a name in both lists ends up unsubscribed (B2.9).
        for name in request.resource_names_subscribe {
            changes.subscribed.extend(subscription.subscribe(name, behavior));
        }
        if subscription.on_first_request(named, request.initial_resource_versions) {
            changes.subscribed.push(WILDCARD.to_owned());
        }
        for name in request.resource_names_unsubscribe {
            changes.unsubscribed.extend(subscription.unsubscribe(name, behavior));
        }
        self.changes = changes;
        Ok(Handled::Understood { answer, names_changed: !self.changes.is_empty() })
    }

    /// Checks a request against the limits.
    fn check(&self, key: &TypeKey, request: &DeltaDiscoveryRequest) -> Result<(), Misuse> {
        let limits = &self.settings.limits;
        limits.check_node(request.node.as_ref())?;
        limits.check_name(&request.type_url)?;
        limits.check_types(self.types.len() + usize::from(!self.types.contains_key(key)))?;
        let subscribed: usize = self.types.values().map(Subscription::len).sum();
        let of_type = self.types.get(key);
        // A name that occurs twice counts twice, as an upper estimate: a set would cost an allocation for each request.
        let names = request.resource_names_subscribe.iter().map(String::as_str);
        let is_new = |name: &&str| of_type.is_none_or(|subscription| !subscription.has(name));
        let new = names.clone().filter(is_new).count();
        limits.check_names(subscribed + new, names)?;
        limits.check_initial_versions(&request.initial_resource_versions)
    }

    /// Returns the next response to send, if any.
    pub fn poll_response(&mut self, store: &Store) -> Option<DeltaDiscoveryResponse> {
        if self.settings.behavior.after_nack == AfterNack::Silence {
            let versions = self.types.keys().map(|key| store.get(&key.type_url).version());
            if self.silence.holds(versions.sum()) {
                return None;
            }
        }
        let Self { types, held, settings, .. } = self;
        let nonce = self.sent + 1;
        let mut response = types.iter_mut().find_map(|(key, subscription)| {
            if held.holds(&key.type_url) || subscription.is_awaiting() {
                return None;
            }
            subscription.poll(&key.type_url, settings.behavior.nonce(nonce), store, settings)
        })?;
        self.sent = nonce;
        if settings.behavior.empty_resource_versions {
            response.resources.iter_mut().for_each(|resource| resource.version.clear());
        }
        settings.behavior.order(&mut response.resources, nonce);
        let control_plane = settings.identifier.clone().map(|identifier| ControlPlane { identifier });
        Some(DeltaDiscoveryResponse { control_plane, ..response })
    }

    /// Updates the time, which determines the heartbeats of resources with a time to live, and the end of waits in a
    /// store [on demand](Store::with_on_demand). Returns the time of the next call, if there is one; also call it before
    /// [`poll_response`](Self::poll_response) when the store has changed. Without calls there are no heartbeats, and names
    /// wait until a wildcard beside them is complete.
    pub fn handle_time(&mut self, now: Instant, store: &Store) -> Option<Instant> {
        let types = self.types.iter_mut();
        types.filter_map(|(key, subscription)| subscription.handle_time(now, &store.get(&key.type_url))).min()
    }

    /// Records a response that was sent outside of the session, so that the client's ACK or NACK of it is recognized.
    ///
    /// It does not change the responses of the session, but delays them until then.
    pub fn note_sent(&mut self, response: &DeltaDiscoveryResponse) {
        if let Some(subscription) = self.types.get_mut(&TypeKey::of(&response.type_url)) {
            subscription.note_sent(&response.nonce, &response.system_version_info);
        }
    }

    /// Sets the types for which the session sends no responses.
    pub fn set_held(&mut self, held: Held) {
        self.held = held;
    }

    /// The node of the client, if received.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// The changes of the subscribed names of its type by the last valid request.
    pub fn changes(&self) -> &NameChanges {
        &self.changes
    }

    /// Iterates over all subscriptions: type URLs, each with its names as in [`subscribed`](Self::subscribed).
    pub fn subscriptions(&self) -> impl Iterator<Item = (&str, &str)> {
        let types = self.types.iter();
        types.flat_map(|(key, subscription)| subscription.names().map(|name| (key.type_url.as_str(), name)))
    }

    /// The subscribed names of a type, in order; `*` is the wildcard in any form.
    pub fn subscribed(&self, type_url: &str) -> Vec<&str> {
        let subscription = self.types.get(&TypeKey::of(type_url));
        subscription.into_iter().flat_map(Subscription::names).collect()
    }

    /// Whether there is an unacknowledged response of the type.
    pub fn is_awaiting(&self, type_url: &str) -> bool {
        self.types.get(&TypeKey::of(type_url)).is_some_and(Subscription::is_awaiting)
    }
}

#[cfg(test)]
mod tests;
