//! The server's half of one ADS stream, without I/O, in both variants of the protocol.

use std::collections::BTreeSet;

use crate::{escape::debug_as_message, pb::envoy::config::core::v3::ControlPlane};

mod behavior;
mod delta;
mod key;
mod memory;
mod pulse;
#[cfg(feature = "json")]
mod rest;
mod retry;
mod silence;
mod sotw;
mod wrap;

#[cfg(all(feature = "json", any(test, feature = "control-plane")))]
pub(super) use self::rest::answer as answer_once;
pub use self::{
    behavior::{AfterNack, Behavior},
    delta::DeltaSession,
    sotw::Session,
};

/// How a server writes its responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Puts each resource into the wrapper that gives it a name and a version of its own.
    pub wrap_resources: bool,
    /// What the server says that it is.
    pub identifier: Option<String>,
    /// URLs of types beside Listener and Cluster whose responses are complete, so that absence means deletion: those of
    /// an application's own with [`FULL_STATE`](crate::Resource::FULL_STATE).
    pub full_state_types: BTreeSet<String>,
    /// How many resources and removed names together a response of the incremental variant holds at most; what is left
    /// goes into the next, after the client's answer. There is no limit unless one is set; 0 counts as 1.
    pub max_per_response: Option<usize>,
    /// Sends everything that a client asks for on a new stream, also what it holds according to its
    /// `initial_resource_versions`, as some servers do (B2.35).
    pub ignore_initial_versions: bool,
    /// What else the server does as others do that make it harder for clients.
    pub behavior: Behavior,
}

impl Settings {
    fn control_plane(&self) -> Option<ControlPlane> {
        self.identifier.clone().map(|identifier| ControlPlane { identifier })
    }
}

/// Types that a session is silent on. Requests are understood as ever; only responses are held back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    all: bool,
    types: BTreeSet<String>,
}

/// What a request was.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Handled {
    /// It carried an outdated nonce and was ignored, names included (B1.8). It does not happen in the incremental variant.
    Outdated,
    /// It asked for resources, or answers a response, or both.
    #[non_exhaustive]
    Understood {
        /// The answer to the response that was on its way, if this is it.
        answer: Option<Answer>,
        /// Whether other resources are wanted than before.
        names_changed: bool,
    },
}

/// What a request of a client changed of the names that it wants of a type; see [`Session::changes`]. Names are canonical, and
/// `*` is the wildcard, however the client wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameChanges {
    /// Names that were not wanted before.
    pub wanted: Vec<String>,
    /// Names that were, and may be among those that were not before.
    pub let_go: Vec<String>,
}

impl NameChanges {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.let_go.is_empty()
    }
}

/// A client's answer to a response.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// Accepted (ACK).
    #[non_exhaustive]
    Accepted {
        /// The version of the response.
        version: String,
    },
    /// Rejected (NACK).
    #[non_exhaustive]
    Rejected {
        /// The version of the response.
        version: String,
        /// The number of a gRPC status code.
        code: i32,
        /// What is wrong with it.
        message: String,
    },
}

/// A request that ends the stream.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A request of an aggregated stream does not say its type.
    #[error("type_url: missing on an aggregated stream")]
    NoTypeUrl,
    /// The server does not know the type, and is one that ends the stream for that; see
    /// [`unknown_types`](Behavior::unknown_types).
    #[error("type_url: the server does not know the type")]
    UnknownType,
}

impl Held {
    /// Nothing is held.
    pub const fn none() -> Self {
        Self { all: false, types: BTreeSet::new() }
    }

    /// Everything is held.
    pub const fn all() -> Self {
        Self { all: true, types: BTreeSet::new() }
    }

    /// Holds one type.
    pub fn hold(&mut self, type_url: &str) {
        self.types.insert(type_url.to_owned());
    }

    /// Releases one type; nothing changes while everything is held.
    pub fn release(&mut self, type_url: &str) {
        self.types.remove(type_url);
    }

    /// Whether a type is held.
    pub fn holds(&self, type_url: &str) -> bool {
        self.all || self.types.contains(type_url)
    }
}

debug_as_message!(Misuse);

const WILDCARD: &str = "*";
