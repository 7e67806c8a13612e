use std::{collections::BTreeMap, time::Instant};

use super::{
    super::store::Store, AfterNack, Handled, Held, Misuse, NameChanges, Settings, WILDCARD, key::TypeKey,
    silence::Silence,
};
use crate::pb::envoy::{
    config::core::v3::{ControlPlane, Node},
    service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse},
};

use self::subscription::Subscription;

mod subscription;

/// What the server says on one stream of the incremental variant.
///
/// It is used as a [`Session`](super::Session) is: hand over each request with
/// [`handle_request`](Self::handle_request), and call [`poll_response`](Self::poll_response) until it gives `None` after each
/// request, after each change of the store and after [`set_held`](Self::set_held).
///
/// The rules: each request is understood, whatever its nonce, and changes what is wanted: first the names to subscribe to
/// are taken, then those to unsubscribe from. A name that is subscribed to is sent, also if it was wanted before; that it
/// does not exist is said in `removed_resources`, or of a virtual host by its name as an alias without a resource, as is the
/// manner of VHDS. From then on changes are sent, as they happen. A type has one response on
/// its way; what comes up meanwhile waits for the answer to it. What a client rejected is not sent again until it changes
/// or is subscribed to again. What a client holds from an earlier stream (`initial_resource_versions`) is sent only if it
/// differs. A name that is let go while the wildcard, or a glob, goes on is settled by sending the resource, or that there
/// is none. A glob stands for its members as they come and go; that it has none is said by its own name in
/// `removed_resources`. Resources with a time to live are confirmed three times within it, by
/// [`handle_time`](Self::handle_time). Types are sent in the order of [`Session`](super::Session).
///
/// The legacy wildcard is a first request of a type without names. The document asks for it of a client that has never sent
/// a non-empty list of names to subscribe to, which, read by the letter, a first request with names to unsubscribe from
/// satisfies. What it is meant for are clients that know no names; a client that unsubscribes from one, be it as the rest of
/// another stream, does. So it asks for nothing, and gets nothing.
///
/// A session follows one store through its changes; it keeps nothing alive but what the client was last told.
#[derive(Debug, Clone, Default)]
pub struct DeltaSession {
    settings: Settings,
    node: Option<Node>,
    held: Held,
    sent: u64,
    types: BTreeMap<TypeKey, Subscription>,
    changes: NameChanges,
    silence: Silence,
}

impl DeltaSession {
    /// A session for a fresh stream.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes in a request.
    ///
    /// # Errors
    /// When the request breaks the protocol, or is for a type for which the server ends the stream. The session is as it was before.
    pub fn handle_request(&mut self, request: DeltaDiscoveryRequest) -> Result<Handled, Misuse> {
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
        let subscription = self.types.entry(TypeKey::of(&request.type_url)).or_default();
        let is_nack = request.error_detail.is_some();
        let answer = subscription.take_answer((&request.response_nonce, request.error_detail), behavior);
        self.silence.on_request(is_nack && behavior.after_nack == AfterNack::Silence);
        let mut changes = NameChanges::default();
        if is_nack && behavior.ignore_names_in_nack {
            self.changes = changes;
            return Ok(Handled::Understood { answer, names_changed: false });
        }
        let named =
            !(request.resource_names_subscribe.is_empty() && request.resource_names_unsubscribe.is_empty());
        // In this order, so that a name in both lists ends up unsubscribed from (B2.9).
        for name in request.resource_names_subscribe {
            changes.wanted.extend(subscription.subscribe(name, behavior));
        }
        if subscription.begin(named, request.initial_resource_versions) {
            changes.wanted.push(WILDCARD.to_owned());
        }
        for name in request.resource_names_unsubscribe {
            changes.let_go.extend(subscription.unsubscribe(name, behavior));
        }
        self.changes = changes;
        Ok(Handled::Understood { answer, names_changed: !self.changes.is_empty() })
    }

    /// The next response that is due, if any.
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
            subscription.poll((&key.type_url, settings.behavior.nonce(nonce)), store, settings)
        })?;
        self.sent = nonce;
        if settings.behavior.empty_resource_versions {
            response.resources.iter_mut().for_each(|resource| resource.version.clear());
        }
        settings.behavior.order(&mut response.resources, nonce);
        let control_plane = settings.identifier.clone().map(|identifier| ControlPlane { identifier });
        Some(DeltaDiscoveryResponse { control_plane, ..response })
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
    /// It changes nothing of what the client will be told, but that waits for the answer.
    pub fn note_sent(&mut self, response: &DeltaDiscoveryResponse) {
        if let Some(subscription) = self.types.get_mut(&TypeKey::of(&response.type_url)) {
            subscription.note_sent(&response.nonce, &response.system_version_info);
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

    /// What the last request that was understood changed of the names that are wanted of its type.
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
        self.types.get(&TypeKey::of(type_url)).is_some_and(Subscription::is_awaiting)
    }
}

#[cfg(test)]
mod tests;
