use std::{collections::BTreeMap, sync::Arc};

use imbl::OrdSet;

use crate::control_plane::Request;

/// The subscriptions of clients, by stream and type.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// The state by stream and type URL.
    types: BTreeMap<(u64, String), Subscription>,
}

/// The state of a type on a stream.
#[derive(Debug, Default)]
struct Subscription {
    /// Whether a request was received.
    has_begun: bool,
    /// Whether a name was sent, after which an empty list has no special meaning (state of the world).
    ever_named: bool,
    /// The subscribed names (incremental).
    names: OrdSet<Arc<str>>,
}

/// The names that a client subscribes to with a request.
#[derive(Debug, Clone)]
pub(super) enum Names {
    /// The names in the request.
    Listed,
    /// The wildcard, as an empty list.
    Wildcard,
    /// The names that result from this request and earlier ones.
    Set(OrdSet<Arc<str>>),
}

impl Subscriptions {
    /// Updates the subscription of the request's type, and returns the names after it.
    pub(super) fn on_request(&mut self, stream: u64, request: &Request) -> Names {
        let subscription = self.types.entry((stream, request.type_url().to_owned())).or_default();
        let first = !std::mem::replace(&mut subscription.has_begun, true);
        match request {
            Request::Sotw(request) => {
                subscription.ever_named |= !request.resource_names.is_empty();
                // After names, an empty list ends all subscriptions.
                if subscription.ever_named { Names::Listed } else { Names::Wildcard }
            }
            Request::Delta(request) => {
                // The first request without names is for the wildcard.
                if first && request.resource_names_subscribe.is_empty() {
                    subscription.names.insert(WILDCARD.into());
                }
                for name in &request.resource_names_subscribe {
                    subscription.names.insert(name.as_str().into());
                }
                for name in &request.resource_names_unsubscribe {
                    subscription.names.remove(name.as_str());
                }
                Names::Set(subscription.names.clone())
            }
        }
    }

    /// Forgets a stream.
    pub(super) fn on_closed(&mut self, stream: u64) {
        self.types.retain(|(of, _), _| *of != stream);
    }
}

impl Names {
    /// The names after the request.
    pub(super) fn list<'a>(&'a self, request: &'a Request) -> Vec<&'a str> {
        match self {
            Self::Listed => request.names().iter().map(String::as_str).collect(),
            Self::Wildcard => vec![WILDCARD],
            Self::Set(names) => names.iter().map(|name| &**name).collect(),
        }
    }
}

/// The name that stands for all resources of a type.
const WILDCARD: &str = "*";
