//! Resources as they came: a relay has no opinion of what is in them.

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

/// The types that are passed on.
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

/// A resource of one of [`TYPES`]: its bytes, and how long it lives.
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

/// What the management server says of a resource, without its type.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum State {
    /// It is there.
    Present {
        bytes: Bytes,
        ttl: Option<Duration>,
        version: String,
        /// Not confirmed, since the server is away or has bad news.
        stale: bool,
    },
    /// It does not exist.
    Absent,
    /// The server says that it cannot be had: a code of gRPC, and why.
    Refused(i32, String),
    /// Nothing can be said of it, which may pass.
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

/// The name that the message of a resource has by itself.
pub(crate) fn own_name(bytes: &Bytes) -> Option<String> {
    Raw::<0>::name(bytes).ok().map(|name| name.into_owned())
}
