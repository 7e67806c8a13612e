use std::{collections::BTreeMap, sync::Arc};

use imbl::OrdSet;

use crate::control_plane::Request;

/// What clients want, by stream and type.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    types: BTreeMap<(u64, String), Wish>,
}

#[derive(Debug, Default)]
struct Wish {
    /// A first request came.
    begun: bool,
    /// A name was sent, so that an empty list means nothing from then on (state of the world).
    ever_named: bool,
    /// What is wanted (incremental).
    names: OrdSet<Arc<str>>,
}

/// The names that a client wants by a request.
#[derive(Debug, Clone)]
pub(super) enum Names {
    /// Those that it lists.
    Listed,
    /// All there are, said by an empty list.
    Wildcard,
    /// Those that it and the requests before it lead to.
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
