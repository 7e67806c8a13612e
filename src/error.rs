//! The errors of watches and resolutions: their origin, their resource, and the reason.
//!
//! The [`Debug`](fmt::Debug) form of this crate's errors is the name of the type and the message on one line. This form is
//! printed when `fn main() -> Result<(), Box<dyn Error>>` returns an error, and by `unwrap`.
//!
//! ```
//! use xdskit::config::Bootstrap;
//!
//! let error = Bootstrap::from_json(r#"{ "xds_servers": [{ "server_uri": "a:1" }] }"#).unwrap_err();
//! assert_eq!(format!("{error:?}"), "BootstrapError(bootstrap: xds_servers[0].channel_creds: missing)");
//! ```

mod merged;

use std::{borrow::Cow, error::Error, fmt, sync::Arc};

use serde::Serialize;

pub use self::merged::MergedError;
use crate::base::Invalid;
pub use crate::escape::Escaped;

/// gRPC's status codes, with their numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are gRPC's own")]
pub enum Code {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

/// The party that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Blame {
    /// The management server: it sent an unusable resource, or reported that the resource does not exist.
    Peer,
    /// The network: the management server is unreachable, or the stream to it failed.
    Network,
    /// The application or its bootstrap: the request is impossible.
    Local,
}

/// The reason why a resource is absent, or why its last known good value may be stale.
///
/// It is cheap to clone. Its [`Display`](fmt::Display) form contains the type and name of the resource, the invalid field if there
/// is one, and the node id of this client, by which an operator finds the client in the logs of the server. Text from the
/// server is [escaped](Escaped) in this form, and in no other.
///
/// The error converts into a `tonic::Status` with the feature `client`, and becomes the source of that. The code of the status is
/// `UNAVAILABLE` (A54).
#[derive(Clone, PartialEq)]
pub struct WatchError {
    inner: Arc<Inner>,
}

#[derive(Debug, Clone, PartialEq)]
struct Inner {
    code: Code,
    blame: Blame,
    type_url: &'static str,
    name: Arc<str>,
    node: Arc<str>,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq)]
enum Reason {
    Text(Arc<str>),
    /// An error of the server as a whole.
    Server(Arc<str>),
    Invalid(Invalid),
}

/// The subject of an error: the resource, and the node that requested it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) type_url: &'static str,
    pub(crate) name: Arc<str>,
    pub(crate) node: Arc<str>,
}

impl WatchError {
    pub(crate) fn new(code: Code, blame: Blame, about: Subject, reason: impl Into<Arc<str>>) -> Self {
        Self::with_reason(code, blame, about, Reason::Text(reason.into()))
    }

    /// An error of the server as a whole, not of the resource.
    pub(crate) fn of_server(code: Code, blame: Blame, about: Subject, reason: impl Into<Arc<str>>) -> Self {
        Self::with_reason(code, blame, about, Reason::Server(reason.into()))
    }

    pub(crate) fn rejected(about: Subject, invalid: Invalid) -> Self {
        Self::with_reason(Code::InvalidArgument, Blame::Peer, about, Reason::Invalid(invalid))
    }

    /// Returns this error for a resource that depends on the failed one. The text of the path to it is bounded, whatever its
    /// length and the number of calls.
    pub(crate) fn via(&self, about: Subject, path: &str) -> Self {
        let with_path = |text: &str| {
            format!("{}: {}", shortened(path, LONGEST_PATH), shortened(text, LONGEST_REASON)).into()
        };
        let reason = match &self.inner.reason {
            Reason::Text(text) => Reason::Text(with_path(text)),
            Reason::Server(text) => Reason::Server(with_path(text)),
            Reason::Invalid(invalid) => Reason::Invalid(invalid.clone()),
        };
        Self::with_reason(self.inner.code, self.inner.blame, about, reason)
    }

    /// Returns this error with `more` appended to its text.
    pub(crate) fn and(&self, more: &str) -> Self {
        let with_more = |text: &str| format!("{}{more}", shortened(text, LONGEST_REASON)).into();
        let reason = match &self.inner.reason {
            Reason::Text(text) => Reason::Text(with_more(text)),
            Reason::Server(text) => Reason::Server(with_more(text)),
            Reason::Invalid(invalid) => Reason::Invalid(invalid.clone().and(more)),
        };
        Self { inner: Arc::new(Inner { reason, ..(*self.inner).clone() }) }
    }

    fn with_reason(code: Code, blame: Blame, about: Subject, reason: Reason) -> Self {
        let Subject { type_url, name, node } = about;
        Self { inner: Arc::new(Inner { code, blame, type_url, name, node, reason }) }
    }

    /// The gRPC status code. Calls of the application must not fail with this code, but with `UNAVAILABLE` (A54).
    pub fn code(&self) -> Code {
        self.inner.code
    }

    /// The party that caused the error.
    pub fn blame(&self) -> Blame {
        self.inner.blame
    }

    /// The type URL of the resource.
    pub fn type_url(&self) -> &'static str {
        self.inner.type_url
    }

    /// The name of the resource as it was requested.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The id of the node in the bootstrap.
    pub fn node_id(&self) -> &str {
        &self.inner.node
    }

    /// The path of the invalid field, if the resource was rejected because of one.
    pub fn field(&self) -> Option<&str> {
        match &self.inner.reason {
            Reason::Invalid(invalid) if !invalid.path().is_empty() => Some(invalid.path()),
            Reason::Invalid(_) | Reason::Text(_) | Reason::Server(_) => None,
        }
    }

    /// The reason alone, without resource, field and node.
    pub fn reason(&self) -> &str {
        match &self.inner.reason {
            Reason::Text(text) | Reason::Server(text) => text,
            Reason::Invalid(invalid) => invalid.reason(),
        }
    }

    /// Whether the resource does not exist: the server reported so, or did not send it in time.
    pub fn is_not_found(&self) -> bool {
        self.inner.code == Code::NotFound
    }

    /// Whether the server sent the resource and the client rejected it.
    pub fn is_rejected(&self) -> bool {
        matches!(self.inner.reason, Reason::Invalid(_))
    }

    /// Whether the error is that of the server, and not of the resource.
    pub(crate) fn is_of_server(&self) -> bool {
        matches!(self.inner.reason, Reason::Server(_))
    }

    /// Whether the error may disappear without a change of configuration: the server is unreachable, or temporarily
    /// unable to respond.
    pub fn is_transient(&self) -> bool {
        self.inner.blame == Blame::Network
            || matches!(
                self.inner.code,
                Code::Unavailable | Code::Internal | Code::Unknown | Code::ResourceExhausted
            )
    }
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { type_url, name, node, reason, .. } = &*self.inner;
        write!(f, "{} {name:?}: ", short_type(type_url))?;
        match reason {
            Reason::Text(text) | Reason::Server(text) => Escaped(text).fmt(f)?,
            Reason::Invalid(invalid) => write!(f, "{invalid}")?,
        }
        write!(f, " [node id: {}]", Escaped(node))
    }
}

impl fmt::Debug for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WatchError({}: {self})", self.inner.code)
    }
}

impl Error for WatchError {}

impl Code {
    /// The code with a number on the wire; `Unknown` for numbers that gRPC does not define.
    pub fn from_i32(number: i32) -> Self {
        ALL.iter().copied().find(|code| *code as i32 == number).unwrap_or(Self::Unknown)
    }

    /// The code of a response that has none, but an HTTP status (gRPC's http-grpc-status-mapping).
    #[cfg(any(test, feature = "balance", feature = "fuzzing"))]
    pub(crate) fn from_http_status(status: u32) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// The name in the gRPC documentation, such as `NOT_FOUND`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Cancelled => "CANCELLED",
            Self::Unknown => "UNKNOWN",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Aborted => "ABORTED",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The last part of a type URL: `Cluster` for `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
pub(crate) fn short_type(type_url: &str) -> &str {
    type_url.rsplit(['.', '/']).next().unwrap_or(type_url)
}

/// Shortens text to at most so many bytes: the middle of a longer one is omitted, between characters. The path to an
/// error is at its beginning, and the cause at its end.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let half = (most - LEFT_OUT.len()) / 2;
    let start = (0..=half).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let end = (text.len() - half..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    format!("{}{LEFT_OUT}{}", &text[..start], &text[end..]).into()
}

/// The mark of the omitted part.
const LEFT_OUT: &str = " … ";

/// The maximum length of the path to an error, in bytes.
const LONGEST_PATH: usize = 1024;

/// The maximum length of an error at the end of a path, in bytes.
const LONGEST_REASON: usize = 2048;

const ALL: [Code; 17] = [
    Code::Ok,
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

#[cfg(test)]
mod tests;
