//! Unparsed resources: a relay does not validate their content.

use std::{fmt, time::Duration};

use bytes::Bytes;

use crate::{
    Observed, Resource,
    control_plane::type_url::{
        CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIGURATION, RUNTIME, SCOPED_ROUTE_CONFIGURATION, SECRET,
        VIRTUAL_HOST,
    },
    error::Code,
    resource::{Context, Invalid},
};

/// The relayed types.
pub(crate) const TYPES: [&str; 8] = [
    LISTENER,
    ROUTE_CONFIGURATION,
    SCOPED_ROUTE_CONFIGURATION,
    VIRTUAL_HOST,
    CLUSTER,
    ENDPOINTS,
    SECRET,
    RUNTIME,
];

/// A resource of one of [`TYPES`]: its bytes, and its time to live.
pub(crate) struct Raw<const TYPE: usize> {
    bytes: Bytes,
    ttl: Option<Duration>,
}

impl<const TYPE: usize> Resource for Raw<TYPE> {
    const TYPE_URL: &'static str = TYPES[TYPE];
    /// The first and the fifth of [`TYPES`].
    const FULL_STATE: bool = TYPE == 0 || TYPE == 4;
    const SENSITIVE: bool = TYPE == 6;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self { bytes: bytes.clone(), ttl: cx.ttl })
    }
}

impl<const TYPE: usize> fmt::Debug for Raw<TYPE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes.len(), TYPES[TYPE])
    }
}

/// The state of a resource at the management server, without its type.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum State {
    /// It exists.
    Present {
        bytes: Bytes,
        ttl: Option<Duration>,
        version: String,
        /// Not confirmed, since the server is unreachable or sent an error.
        stale: bool,
    },
    /// It does not exist.
    Absent,
    /// The server sent an error in its place: a gRPC status code, and the reason.
    Refused(i32, String),
    /// Its state is unknown, possibly temporarily.
    #[default]
    Unknown,
}

impl<const TYPE: usize> From<&Observed<Raw<TYPE>>> for State {
    fn from(observed: &Observed<Raw<TYPE>>) -> Self {
        match observed {
            Observed::Present { resource, version, warning, .. } => Self::Present {
                bytes: resource.bytes.clone(),
                ttl: resource.ttl,
                version: version.to_string(),
                stale: warning.is_some(),
            },
            Observed::Absent { reason, .. } if reason.code() == Code::NotFound => Self::Absent,
            Observed::Absent { reason, .. } if !reason.is_transient() => {
                Self::Refused(reason.code() as i32, reason.reason().to_owned())
            }
            Observed::Pending | Observed::Absent { .. } => Self::Unknown,
        }
    }
}

/// The name in the message of a resource.
pub(crate) fn own_name(bytes: &Bytes) -> Option<String> {
    Raw::<0>::name(bytes).ok().map(|name| name.into_owned())
}
