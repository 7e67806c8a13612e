//! The session of a stream of the state-of-the-world variant.

use std::{collections::BTreeMap, time::Instant};

use self::subscription::Subscription;
#[cfg(feature = "json")]
pub(super) use self::subscription::Whole;
use super::{
    super::store::Store, AfterNack, Answer, Handled, Held, Misuse, NameChanges, Settings, features::Features,
    key::TypeKey, memory::Memory, silence::Silence,
};
use crate::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
};

mod known;
mod subscription;
mod wait;

/// The server side of one stream of the state-of-the-world variant.
///
/// The owner of the stream passes each request to [`handle_request`](Self::handle_request), and calls
/// [`poll_response`](Self::poll_response) until it returns `None` after each request, after each change of the store
/// and after [`set_held`](Self::set_held). Responses must be sent in this order.
///
/// - A response of a type is sent when the type is first requested, and again when a subscribed resource changes, or
///   names are added. In a store [on demand](Store::with_on_demand) it waits for resources whose state is unknown, if
///   their absence would delete them at the client: for 250 ms, or 5 s if the client may have resources of the type.
/// - A type has at most one unacknowledged response; the next one waits for its ACK or NACK. Rejected resources are
///   not sent again until they change or the client adds names.
/// - Listeners and clusters are sent completely, so that absence means deletion; a response of another type contains
///   the new resources.
/// - Requests with an outdated nonce are ignored.
/// - A glob stands for its members.
/// - Resources are wrapped in `Resource` messages where that is needed, and have times to live, for clients whose node
///   announces these features. Other clients get resources without a time to live, and an error in place of those that
///   cannot be sent without a wrapper.
/// - Resources with a time to live get three heartbeats within it, by [`handle_time`](Self::handle_time).
/// - Types are sent in a fixed order: clusters, endpoints, listeners, route configurations, then other types by their
///   URLs.
///
/// A session follows one store through its changes; it keeps only the resources in memory that were last sent.
#[derive(Debug, Clone, Default)]
pub struct Session {
    settings: Settings,
    /// The node of the first request that had one.
    node: Option<Node>,
    held: Held,
    /// The number of responses, which is the nonce.
    sent: u64,
    /// Subscriptions in the order in which types are sent.
    types: BTreeMap<TypeKey, Subscription>,
    /// The changes of names by the last request.
    changes: NameChanges,
    silence: Silence,
    /// The resources that the client has of types that have not been requested on this stream.
    before: BTreeMap<TypeKey, Memory>,
}

impl Session {
    /// A session for a new stream.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// A session for a new stream of a client with a previous session, which matters for
    /// [`skip_known_versions`](super::Behavior::skip_known_versions).
    pub fn resume(settings: Settings, previous: &Self) -> Self {
        let mut before = previous.before.clone();
        let types = previous.types.iter();
        before.extend(types.map(|(key, subscription)| (key.clone(), subscription.memory.resumed())));
        Self { before, ..Self::new(settings) }
    }

    /// Handles a request.
    ///
    /// # Errors
    /// The request violates the protocol, or is for a type for which the server ends the stream. The session is
    /// unchanged.
    pub fn handle_request(&mut self, request: DiscoveryRequest) -> Result<Handled, Misuse> {
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
            self.node.clone_from(&request.node);
        }
        let behavior = &self.settings.behavior;
        let features = Features::of(self.node.as_ref());
        let subscription = self.types.entry(key).or_insert_with_key(|key| {
            let memory = self.before.remove(key).unwrap_or_default();
            Subscription::new(memory, &request.version_info, features)
        });
        // B1.8: the client has not read the newest response yet, and its ACK or NACK of that repeats the names.
        if request.response_nonce != subscription.nonce {
            self.changes = NameChanges::default();
            return Ok(Handled::Outdated);
        }
        let is_nack = request.error_detail.is_some();
        let answer = subscription.awaiting.take().map(|version| match &request.error_detail {
            None => Answer::Accepted { version },
            Some(status) => Answer::Rejected { version, code: status.code, message: status.message.clone() },
        });
        if answer.is_some() {
            subscription.on_answer(!is_nack, behavior);
        }
        if !is_nack && request.version_info.is_empty() {
            subscription.on_forgotten_version(behavior);
        }
        self.silence.on_request(is_nack && behavior.after_nack == AfterNack::Silence);
        self.changes = match is_nack && behavior.ignore_names_in_nack {
            true => NameChanges::default(),
            false => subscription.subscribe(&request, behavior),
        };
        Ok(Handled::Understood { answer, names_changed: !self.changes.is_empty() })
    }

    /// Checks a request against the limits.
    fn check(&self, key: &TypeKey, request: &DiscoveryRequest) -> Result<(), Misuse> {
        let limits = &self.settings.limits;
        limits.check_node(request.node.as_ref())?;
        limits.check_name(&request.type_url)?;
        limits.check_types(self.types.len() + usize::from(!self.types.contains_key(key)))?;
        let others = self.types.iter().filter(|(other, _)| *other != key);
        let others: usize = others.map(|(_, subscription)| subscription.len()).sum();
        let names = request.resource_names.iter().map(String::as_str);
        limits.check_names(others + names.len(), names)
    }

    /// Returns the next response to send, if any.
    pub fn poll_response(&mut self, store: &Store) -> Option<DiscoveryResponse> {
        if self.settings.behavior.after_nack == AfterNack::Silence {
            let versions = self.types.keys().map(|key| store.get(&key.type_url).version());
            if self.silence.holds(versions.sum()) {
                return None;
            }
        }
        let Self { types, held, settings, .. } = self;
        let mut response = types.iter_mut().find_map(|(key, subscription)| {
            // One response of a type at a time: a slow client skips states, and no queue grows for it.
            if held.holds(&key.type_url) || subscription.awaiting.is_some() {
                return None;
            }
            let full_state = key.full_state() || settings.full_state_types.contains(&key.type_url);
            subscription.poll(&key.type_url, full_state, store, settings)
        })?;
        self.sent += 1;
        settings.behavior.order(&mut response.resources, self.sent);
        let response = DiscoveryResponse {
            nonce: self.sent.to_string(),
            control_plane: settings.control_plane(),
            ..response
        };
        self.note_sent(&response);
        Some(response)
    }

    /// Updates the time, which determines the heartbeats of resources with a time to live, and the end of waits in a
    /// store [on demand](Store::with_on_demand). Returns the time of the next call, if there is one; also call it before
    /// [`poll_response`](Self::poll_response) when the store has changed. Without calls there are no heartbeats, and a
    /// response waits until all of it is known.
    pub fn handle_time(&mut self, now: Instant, store: &Store) -> Option<Instant> {
        let Self { types, settings, .. } = self;
        let deadline = |(key, subscription): (&TypeKey, &mut Subscription)| {
            let full_state = key.full_state() || settings.full_state_types.contains(&key.type_url);
            subscription.handle_time(now, &store.get(&key.type_url), full_state)
        };
        types.iter_mut().filter_map(deadline).min()
    }

    /// Records a response that was sent outside of the session, so that the client's ACK or NACK of it is recognized.
    ///
    /// It does not change the later responses of the session. The ACK or NACK of an earlier, unacknowledged response
    /// will be ignored, since the client has received a newer nonce by then.
    pub fn note_sent(&mut self, response: &DiscoveryResponse) {
        if let Some(subscription) = self.types.get_mut(&TypeKey::of(&response.type_url)) {
            subscription.nonce.clone_from(&response.nonce);
            subscription.awaiting = Some(response.version_info.clone());
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

    /// The changes of the subscribed names of its type by the last request.
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
        self.types.get(&TypeKey::of(type_url)).is_some_and(|subscription| subscription.awaiting.is_some())
    }
}

#[cfg(test)]
mod tests;
