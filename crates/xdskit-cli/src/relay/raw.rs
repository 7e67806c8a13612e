//! Unparsed resources of any type: a relay does not validate their content.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use xdskit::{
    Observed, Resource,
    control_plane::type_url::{CLUSTER, LISTENER, SECRET},
    error::Code,
    name::ResourceName,
    resource::{Context, Invalid, ResourceType},
};

/// A resource of any type: its bytes, and its time to live.
pub(crate) struct Raw {
    /// The encoded message.
    bytes: Bytes,
    /// The time to live, if it has one.
    ttl: Option<Duration>,
}

impl Resource for Raw {
    /// Each watch has the type URL of its [`ResourceType`] in place of this one.
    const TYPE_URL: &'static str = "type.googleapis.com/google.protobuf.Any";

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self { bytes: bytes.clone(), ttl: cx.ttl })
    }
}

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

/// The types that a relay passes on: all that were requested since it started, up to a limit.
///
/// A client of a management server knows types for good, and so does a relay: the limit is what bounds its memory.
#[derive(Debug, Default)]
pub(crate) struct Types {
    /// The types by their type URLs.
    known: BTreeMap<Arc<str>, ResourceType>,
}

impl Types {
    /// The type of a URL; `None` above the limit.
    pub(crate) fn of(&mut self, type_url: &Arc<str>) -> Option<ResourceType> {
        let is_full = self.known.len() >= MAX_TYPES;
        match self.known.entry(type_url.clone()) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(_) if is_full => None,
            Entry::Vacant(unknown) => {
                // CP13: a type needs a static text. What leaks is bounded by the numbers of types and of bytes of a type URL.
                let type_url: &'static str = Box::leak(String::from(&**type_url).into_boxed_str());
                let ty = ResourceType::of::<Raw>()
                    .with_type_url(type_url)
                    .with_full_state([LISTENER, CLUSTER].contains(&type_url))
                    .with_sensitive(type_url == SECRET);
                Some(*unknown.insert(ty))
            }
        }
    }
}

/// The state of a resource at the management server, without its type.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum UpstreamState {
    /// The resource exists.
    Present {
        /// The message, without its wrapper.
        bytes: Bytes,
        /// The time to live.
        ttl: Option<Duration>,
        /// The version of the resource; empty if the server sent none.
        version: String,
        /// Not confirmed, since the server is unreachable or sent an error.
        stale: bool,
    },
    /// The resource does not exist.
    Absent,
    /// The server sent an error in its place: a gRPC status code, and the reason.
    Refused(i32, String),
    /// Its state is unknown, possibly temporarily.
    #[default]
    Unknown,
}

impl UpstreamState {
    /// Whether the resource exists.
    pub(super) fn is_present(&self) -> bool {
        matches!(self, Self::Present { .. })
    }

    /// Whether the resource is present, and whether it is present and stale, as numbers for sums.
    pub(super) fn is_present_and_stale(&self) -> (usize, usize) {
        let is_stale = matches!(self, Self::Present { stale: true, .. });
        (usize::from(self.is_present()), usize::from(is_stale))
    }
}

impl From<&Observed<Raw>> for UpstreamState {
    fn from(observed: &Observed<Raw>) -> Self {
        match observed {
            Observed::Present { resource, version, warning, .. } => Self::Present {
                bytes: resource.bytes.clone(),
                ttl: resource.ttl,
                version: version.to_string(),
                stale: warning.is_some(),
            },
            Observed::Absent { reason, .. } if reason.code() == Code::NotFound => Self::Absent,
            // A final error is an answer for clients. A transient one may pass, so that they wait as for an unknown state.
            Observed::Absent { reason, .. } if !reason.is_transient() => {
                Self::Refused(reason.code() as i32, reason.reason().to_owned())
            }
            Observed::Pending | Observed::Absent { .. } | _ => Self::Unknown,
        }
    }
}

/// Whether the name in the message of a resource is this one, in any spelling.
pub(crate) fn is_own_name(bytes: &Bytes, name: &str) -> bool {
    Raw::name(bytes).is_ok_and(|own| {
        own == name
            || ResourceName::canonicalize(&own).is_ok_and(|own| ResourceName::canonicalize(name) == Ok(own))
    })
}

/// The maximum number of types, as on a stream.
pub(crate) const MAX_TYPES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cp13_the_types_of_a_relay_have_a_limit() {
        let mut types = Types::default();
        let url = |number: usize| Arc::<str>::from(format!("type.googleapis.com/example.T{number}"));
        assert!(
            (0..MAX_TYPES)
                .all(|number| types.of(&url(number)).is_some_and(|ty| *ty.type_url() == *url(number)))
        );
        assert!(types.of(&url(MAX_TYPES)).is_none());
        assert!(types.of(&url(7)).is_some());
    }

    #[test]
    fn cp13_the_name_in_a_message_may_have_another_spelling() {
        let message = |name: &str| Bytes::from([&[10, name.len() as u8], name.as_bytes()].concat());
        let written = "xdstp://mesh/envoy.config.cluster.v3.Cluster/shop?b=2&a=1";
        assert!(is_own_name(&message(written), "xdstp://mesh/envoy.config.cluster.v3.Cluster/shop?a=1&b=2"));
        assert!(is_own_name(&message("shop"), "shop"));
        assert!(!is_own_name(&message("shop"), "mail"));
        assert!(!is_own_name(&Bytes::from_static(b"\x0a\xff"), "shop"));
    }
}
