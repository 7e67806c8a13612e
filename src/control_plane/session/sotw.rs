use std::{collections::BTreeMap, time::Instant};

use self::subscription::Subscription;
#[cfg(feature = "json")]
pub(super) use self::subscription::Whole;
use super::{
    super::store::Store, AfterNack, Answer, Handled, Held, Misuse, NameChanges, Settings, key::TypeKey,
    memory::Memory, silence::Silence,
};
use crate::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
};

mod subscription;

/// What the server says on one stream.
///
/// Whoever owns the stream hands over each request with [`handle_request`](Self::handle_request), and calls
/// [`poll_response`](Self::poll_response) until it gives `None` after each request, after each change of the store and after
/// [`set_held`](Self::set_held). What it gives is to be sent in that order.
///
/// The rules: a type is answered once it was asked for, and again when something of what was asked for changes, or more is
/// asked for. A type has one response on its way; the next waits for the answer to it. Listeners and clusters are sent
/// complete, so that absence says that there is none; of other types a response holds what is new. What a client rejected
/// is not sent again until it changes or the client asks for more. Requests with an outdated nonce are ignored. A glob stands
/// for its members. Resources with a time to live are confirmed three times within it, by
/// [`handle_time`](Self::handle_time). Everything is sent in one order: clusters, endpoints, listeners, route configurations, then other types by their URLs.
///
/// A session follows one store through its changes; it keeps nothing alive but what the client was last told.
#[derive(Debug, Clone, Default)]
pub struct Session {
    settings: Settings,
    node: Option<Node>,
    held: Held,
    sent: u64,
    types: BTreeMap<TypeKey, Subscription>,
    changes: NameChanges,
    silence: Silence,
    /// What the client held of types that this stream has not asked for yet.
    before: BTreeMap<TypeKey, Memory>,
}

impl Session {
    /// A session for a fresh stream.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// A session for a fresh stream of a client whose last stream had another session, which matters with
    /// [`skip_known_versions`](super::Behavior::skip_known_versions).
    pub fn resume(settings: Settings, previous: &Self) -> Self {
        let mut before = previous.before.clone();
        let types = previous.types.iter();
        before.extend(types.map(|(key, subscription)| (key.clone(), subscription.memory.resumed())));
        Self { before, ..Self::new(settings) }
    }

    /// Takes in a request.
    ///
    /// # Errors
    /// When the request breaks the protocol, or is for a type for which the server ends the stream. The session is as it was before.
    pub fn handle_request(&mut self, request: DiscoveryRequest) -> Result<Handled, Misuse> {
        if request.type_url.is_empty() {
            return Err(Misuse::NoTypeUrl);
        }
        if self.settings.behavior.unknown_types.contains(&request.type_url) {
            return Err(Misuse::UnknownType);
        }
        if self.node.is_none() {
            self.node = request.node;
        }
        let behavior = &self.settings.behavior;
        let key = TypeKey::of(&request.type_url);
        let subscription = self.types.entry(key).or_insert_with_key(|key| {
            Subscription::new(self.before.remove(key).unwrap_or_default(), &request.version_info)
        });
        if request.response_nonce != subscription.nonce {
            self.changes = NameChanges::default();
            return Ok(Handled::Outdated);
        }
        let is_nack = request.error_detail.is_some();
        let answer = subscription.awaiting.take().map(|version| match request.error_detail {
            None => Answer::Accepted { version },
            Some(status) => Answer::Rejected { version, code: status.code, message: status.message },
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
            false => subscription.subscribe(request.resource_names, behavior),
        };
        Ok(Handled::Understood { answer, names_changed: !self.changes.is_empty() })
    }

    /// The next response that is due, if any.
    pub fn poll_response(&mut self, store: &Store) -> Option<DiscoveryResponse> {
        if self.settings.behavior.after_nack == AfterNack::Silence {
            let versions = self.types.keys().map(|key| store.get(&key.type_url).version());
            if self.silence.holds(versions.sum()) {
                return None;
            }
        }
        let Self { types, held, settings, .. } = self;
        let mut response = types.iter_mut().find_map(|(key, subscription)| {
            if held.holds(&key.type_url) || subscription.awaiting.is_some() {
                return None;
            }
            let full_state = key.full_state() || settings.full_state_types.contains(&key.type_url);
            subscription.poll((&key.type_url, full_state), store, settings)
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

    /// Takes note of the time, by which resources with a time to live are confirmed. Returns when it is to be called again, if
    /// there are any; also call it before [`poll_response`](Self::poll_response) when the store changed. Without it nothing is
    /// ever confirmed.
    pub fn handle_time(&mut self, now: Instant, store: &Store) -> Option<Instant> {
        let types = self.types.iter_mut();
        types.filter_map(|(key, subscription)| subscription.handle_time(now, &store.get(&key.type_url))).min()
    }

    /// Takes note of a response that somebody else put on the stream, so that the client's answer to it is understood.
    ///
    /// It changes nothing of what the client will be told. The answer to a response that was on its way will be ignored,
    /// because the client has a newer nonce by then.
    pub fn note_sent(&mut self, response: &DiscoveryResponse) {
        if let Some(subscription) = self.types.get_mut(&TypeKey::of(&response.type_url)) {
            subscription.nonce.clone_from(&response.nonce);
            subscription.awaiting = Some(response.version_info.clone());
        }
    }

    /// Says which types the session is silent on from now on.
    pub fn set_held(&mut self, held: Held) {
        self.held = held;
    }

    /// What the client said that it is, once it has.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// What the last request changed of the names that are wanted of its type.
    pub fn changes(&self) -> &NameChanges {
        &self.changes
    }

    /// All that the client wants: type URLs, each with its names as in [`subscribed`](Self::subscribed).
    pub fn wanted(&self) -> impl Iterator<Item = (&str, &str)> {
        let types = self.types.iter();
        types.flat_map(|(key, wanted)| wanted.names().map(|name| (key.type_url.as_str(), name)))
    }

    /// The names that the client wants of a type, in order; `*` is among them, however the client wrote it.
    pub fn subscribed(&self, type_url: &str) -> Vec<&str> {
        let subscription = self.types.get(&TypeKey::of(type_url));
        subscription.into_iter().flat_map(Subscription::names).collect()
    }

    /// Whether a response of the type is on its way that the client has not answered.
    pub fn is_awaiting(&self, type_url: &str) -> bool {
        self.types.get(&TypeKey::of(type_url)).is_some_and(|subscription| subscription.awaiting.is_some())
    }
}

#[cfg(test)]
mod tests;
