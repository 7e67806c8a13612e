//! The server side of one ADS stream, without I/O, in both variants of the protocol, and of one stream of load reports.

use std::collections::BTreeSet;

#[cfg(any(test, feature = "fuzzing"))]
use crate::pb;
use crate::{escape::debug_as_message, pb::envoy::config::core::v3::ControlPlane};

mod behavior;
mod delta;
mod features;
mod key;
mod limits;
mod load_stats;
mod memory;
mod patience;
mod pulse;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod response_rules;
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
    limits::Limits,
    load_stats::{LoadReporting, LoadReportingConfig, LoadSession},
    sotw::Session,
};

/// The settings of a server's responses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Whether each resource is wrapped in a `Resource` message with its name and version, for clients that announce that
    /// they support it (`xds.config.resource-in-sotw` in `client_features` of the node).
    pub wrap_resources: bool,
    /// The identifier of the server.
    pub identifier: Option<String>,
    /// Type URLs besides those of Listener and Cluster whose responses are complete, so that absence means deletion:
    /// those of application types with [`FULL_STATE`](crate::Resource::FULL_STATE).
    pub full_state_types: BTreeSet<String>,
    /// The maximum number of resources and removed names together in a response of the incremental variant; the rest
    /// goes into the next one, after the client's ACK or NACK. `None` is no limit; 0 counts as 1.
    pub max_per_response: Option<usize>,
    /// Whether a client gets all subscribed resources on a new stream, including those in its
    /// `initial_resource_versions`, as from some servers.
    pub ignore_initial_versions: bool,
    /// The limits of what a client requests on a stream.
    pub limits: Limits,
    /// Permitted but unusual behavior that makes it harder for clients.
    pub behavior: Behavior,
}

impl Settings {
    /// Returns the identifier for a response.
    fn control_plane(&self) -> Option<ControlPlane> {
        self.identifier.clone().map(|identifier| ControlPlane { identifier })
    }
}

/// The types for which a session sends no responses. Requests are still processed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Whether all types are held.
    all: bool,
    /// The held types, by URL; no effect while all are held.
    types: BTreeSet<String>,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Handled {
    /// The request had an outdated nonce and was ignored, including its names (B1.8). This does not occur in the incremental
    /// variant.
    Outdated,
    /// The request was processed as a subscription, as an ACK or NACK, or both.
    #[non_exhaustive]
    Understood {
        /// The ACK or NACK of the unacknowledged response, if it is one.
        answer: Option<Answer>,
        /// Whether the subscribed names changed.
        names_changed: bool,
    },
}

/// The change of a type's subscribed names by a request; see [`Session::changes`]. Names are canonical, and `*` is
/// the wildcard in any form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameChanges {
    /// Newly subscribed names.
    pub subscribed: Vec<String>,
    /// Names that are no longer subscribed, possibly including some that were not before.
    pub unsubscribed: Vec<String>,
}

impl NameChanges {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.subscribed.is_empty() && self.unsubscribed.is_empty()
    }
}

/// The ACK or NACK of a response.
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
        /// The reason.
        message: String,
    },
}

/// A request that ends the stream.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A request on an aggregated stream has no type URL.
    #[error("type_url: missing on an aggregated stream")]
    NoTypeUrl,
    /// The type is unknown, and the server ends the stream for it; see [`unknown_types`](Behavior::unknown_types).
    #[error("type_url: the server does not support the type")]
    UnknownType,
    /// There are more names on the stream than [`max_names`](Limits::max_names).
    #[error("resource names: {names} on the stream, above the server's limit of {limit} (max_names)")]
    #[non_exhaustive]
    TooManyNames {
        /// The number of names that the client requested.
        names: usize,
        /// The limit.
        limit: usize,
    },
    /// There are more initial versions than [`max_initial_versions`](Limits::max_initial_versions).
    #[error(
        "initial_resource_versions: {versions}, above the server's limit of {limit} (max_initial_versions)"
    )]
    #[non_exhaustive]
    TooManyVersions {
        /// The number of versions in the request.
        versions: usize,
        /// The limit.
        limit: usize,
    },
    /// A name or a type URL is longer than [`max_name_length`](Limits::max_name_length).
    #[error(
        "a resource name or type_url of {length} bytes is above the server's limit of {limit} (max_name_length)"
    )]
    #[non_exhaustive]
    LongName {
        /// The length of the name in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// There are more types on the stream than [`max_types`](Limits::max_types).
    #[error("type_url: more types on the stream than the server's limit of {limit} (max_types)")]
    #[non_exhaustive]
    TooManyTypes {
        /// The limit.
        limit: usize,
    },
    /// The node is larger than [`max_node_size`](Limits::max_node_size).
    #[error("node: {size} bytes, above the server's limit of {limit} (max_node_size)")]
    #[non_exhaustive]
    LargeNode {
        /// The size of the message in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

impl Held {
    /// Holds no type.
    pub const fn none() -> Self {
        Self { all: false, types: BTreeSet::new() }
    }

    /// Holds all types.
    pub const fn all() -> Self {
        Self { all: true, types: BTreeSet::new() }
    }

    /// Holds one type.
    pub fn hold(&mut self, type_url: &str) {
        self.types.insert(type_url.to_owned());
    }

    /// Releases one type; without effect while all types are held.
    pub fn release(&mut self, type_url: &str) {
        self.types.remove(type_url);
    }

    /// Whether a type is held.
    pub fn holds(&self, type_url: &str) -> bool {
        self.all || self.types.contains(type_url)
    }
}

debug_as_message!(Misuse);

/// The name that stands for all resources of a type.
const WILDCARD: &str = "*";
