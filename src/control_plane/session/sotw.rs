use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use prost::Message;

use super::{
    super::{
        store::{Store, Stored, Type},
        type_url,
    },
    Answer, Handled, Held, Misuse, Settings, WILDCARD,
    key::TypeKey,
};
use crate::pb::{
    envoy::{
        config::core::v3::{ControlPlane, Node},
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse, Resource},
    },
    google::protobuf::Any,
};

/// What the server says on one stream.
///
/// Whoever owns the stream hands over each request with [`handle_request`](Self::handle_request), and calls
/// [`poll_response`](Self::poll_response) until it gives `None` after each request, after each change of the store and after
/// [`set_held`](Self::set_held). What it gives is to be sent in that order.
///
/// The rules: a type is answered once it was asked for, and again when something of what was asked for changes, or more is
/// asked for. A type has one response on its way; the next waits for the answer to it. Listeners and clusters are sent
/// complete, so that absence says that there is none; of other types a response holds what is new. What a client rejected
/// is not sent again until it changes or the client asks for more. Requests with an outdated nonce are ignored. Everything
/// is sent in one order: clusters, endpoints, listeners, route configurations, then other types by their URLs.
///
/// A session follows one store through its changes; it keeps nothing alive but what the client was last told.
#[derive(Debug, Clone, Default)]
pub struct Session {
    settings: Settings,
    node: Option<Node>,
    held: Held,
    sent: u64,
    types: BTreeMap<TypeKey, Subscription>,
}

impl Session {
    /// A session for a fresh stream.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes in a request.
    ///
    /// # Errors
    /// When the request breaks the protocol so that the stream must end. The session is as it was before.
    pub fn handle_request(&mut self, request: DiscoveryRequest) -> Result<Handled, Misuse> {
        if request.type_url.is_empty() {
            return Err(Misuse::NoTypeUrl);
        }
        if self.node.is_none() {
            self.node = request.node;
        }
        let subscription = self.types.entry(TypeKey::of(&request.type_url)).or_default();
        if request.response_nonce != subscription.nonce {
            return Ok(Handled::Outdated);
        }
        let answer = subscription.awaiting.take().map(|version| match request.error_detail {
            None => Answer::Accepted { version },
            Some(status) => Answer::Rejected { version, code: status.code, message: status.message },
        });
        let names_changed = subscription.subscribe(request.resource_names);
        Ok(Handled::Understood { answer, names_changed })
    }

    /// The next response that is due, if any.
    pub fn poll_response(&mut self, store: &Store) -> Option<DiscoveryResponse> {
        let Self { types, held, settings, .. } = self;
        let (key, (resources, version)) = types.iter_mut().find_map(|(key, subscription)| {
            if held.holds(&key.type_url) || subscription.awaiting.is_some() {
                return None;
            }
            let now = store.get(&key.type_url);
            let full_state = key.full_state() || settings.full_state_types.contains(&key.type_url);
            let due = subscription.due(full_state, &now)?;
            let version = store.version(now.version());
            let any = |(name, stored)| settings.any(&key.type_url, name, stored, store);
            Some((key.clone(), (due.into_iter().map(any).collect::<Vec<_>>(), version)))
        })?;
        self.sent += 1;
        let response = DiscoveryResponse {
            version_info: version,
            resources,
            type_url: key.type_url,
            nonce: self.sent.to_string(),
            control_plane: settings.identifier.clone().map(|identifier| ControlPlane { identifier }),
            ..DiscoveryResponse::default()
        };
        self.note_sent(&response);
        Some(response)
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

impl Settings {
    fn any(&self, type_url: &str, name: &str, stored: &Stored, store: &Store) -> Any {
        let bare = Any { type_url: type_url.to_owned(), value: stored.bytes().clone() };
        if !self.wrap_resources {
            return bare;
        }
        let wrapper = Resource {
            name: name.to_owned(),
            version: store.version(stored.version()),
            resource: Some(bare),
            ..Resource::default()
        };
        Any { type_url: type_url::WRAPPER.to_owned(), value: Bytes::from(wrapper.encode_to_vec()) }
    }
}

/// One type on one stream.
#[derive(Debug, Clone, Default)]
struct Subscription {
    /// Names that are wanted, without `*`: sorted, each once.
    names: Vec<String>,
    wildcard: bool,
    /// An empty list of names means `*` until a name was sent (B1.2).
    ever_named: bool,
    added: Added,
    /// The resources when it was last decided what to say.
    seen: Option<Type>,
    /// The nonce of the newest response.
    nonce: String,
    /// The version of the response that the client has not answered.
    awaiting: Option<String>,
}

/// What was asked for since the last response.
#[derive(Debug, Clone, Default)]
struct Added {
    names: Vec<String>,
    wildcard: bool,
}

impl Subscription {
    /// Replaces what is wanted (B1.1); returns whether it is something else than before.
    fn subscribe(&mut self, mut names: Vec<String>) -> bool {
        names.sort_unstable();
        names.dedup();
        self.ever_named |= !names.is_empty();
        let star = names.binary_search_by(|name| name.as_str().cmp(WILDCARD));
        let wildcard = star.map(|at| names.remove(at)).is_ok() || !self.ever_named;
        if wildcard == self.wildcard && names == self.names {
            return false;
        }
        self.added.wildcard |= wildcard && !self.wildcard;
        let before = std::mem::replace(&mut self.names, names);
        let new = self.names.iter().filter(|name| before.binary_search(name).is_err()).cloned();
        self.added.names.extend(new);
        self.wildcard = wildcard;
        true
    }

    /// What a response must hold now; `None` when there is nothing to say. What is due is taken as said.
    fn due<'a>(&mut self, full_state: bool, now: &'a Type) -> Option<Vec<(&'a str, &'a Stored)>> {
        let added = std::mem::take(&mut self.added);
        let seen = self.seen.replace(now.clone());
        // Before the first response everything that is wanted counts as added.
        let changed = seen.iter().flat_map(|seen| now.changed_since(seen));
        let mut due = added.names.iter().map(String::as_str).chain(changed).filter(|name| self.wants(name));
        let everything = added.wildcard && self.wildcard;
        if full_state {
            // It may hold nothing, which says that there is nothing (B1.10).
            return (everything || due.next().is_some()).then(|| self.everything(now));
        }
        let due: Vec<_> = match everything {
            true => now.iter().collect(),
            false => due.collect::<BTreeSet<_>>().into_iter().filter_map(|name| now.entry(name)).collect(),
        };
        // A response that holds nothing would say nothing (B1.11). What appears later is a change since now.
        (!due.is_empty()).then_some(due)
    }

    fn everything<'a>(&self, now: &'a Type) -> Vec<(&'a str, &'a Stored)> {
        if self.wildcard {
            return now.iter().collect();
        }
        self.names.iter().filter_map(|name| now.entry(name)).collect()
    }

    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.binary_search_by(|wanted| wanted.as_str().cmp(name)).is_ok()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.wildcard.then_some(WILDCARD).into_iter().chain(self.names.iter().map(String::as_str))
    }
}

#[cfg(test)]
mod tests;
