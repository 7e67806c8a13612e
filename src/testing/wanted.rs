use std::{collections::BTreeMap, sync::Arc};

use imbl::OrdSet;

use crate::control_plane::Request;

/// The subscriptions of clients, by stream and type.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    types: BTreeMap<(u64, String), Wish>,
}

#[derive(Debug, Default)]
struct Wish {
    /// Whether a request was received.
    begun: bool,
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

impl Wishes {
    pub(super) fn take_in(&mut self, stream: u64, request: &Request) -> Names {
        let wish = self.types.entry((stream, request.type_url().to_owned())).or_default();
        let first = !std::mem::replace(&mut wish.begun, true);
        match request {
            Request::Sotw(request) => {
                wish.ever_named |= !request.resource_names.is_empty();
                if wish.ever_named { Names::Listed } else { Names::Wildcard }
            }
            Request::Delta(request) => {
                if first && request.resource_names_subscribe.is_empty() {
                    wish.names.insert(WILDCARD.into());
                }
                for name in &request.resource_names_subscribe {
                    wish.names.insert(name.as_str().into());
                }
                for name in &request.resource_names_unsubscribe {
                    wish.names.remove(name.as_str());
                }
                Names::Set(wish.names.clone())
            }
        }
    }

    pub(super) fn forget(&mut self, stream: u64) {
        self.types.retain(|(of, _), _| *of != stream);
    }
}

impl Names {
    pub(super) fn list<'a>(&'a self, request: &'a Request) -> Vec<&'a str> {
        match self {
            Self::Listed => request.names().iter().map(String::as_str).collect(),
            Self::Wildcard => vec![WILDCARD],
            Self::Set(names) => names.iter().map(|name| &**name).collect(),
        }
    }
}

const WILDCARD: &str = "*";
