//! Identity tokens, as the outside fetches them for filters.

use std::{sync::Arc, time::Duration};

use crate::error::Code;

/// A token, and when it expires, in time since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The token as it is sent, without `Bearer`.
    pub(crate) text: Arc<str>,
    /// The expiry of the token (`exp`), since 1970.
    pub(crate) expiry: Duration,
}

/// Why there is no token: the status of the calls that need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenError {
    /// UNAVAILABLE for a failure that may pass, or UNAUTHENTICATED.
    pub(crate) code: Code,
    /// The audience and the reason.
    pub(crate) message: Arc<str>,
}

impl TokenError {
    /// Creates the error of a fetch that failed in a way that may pass.
    pub(crate) fn unavailable(audience: &str, reason: &str) -> Self {
        Self::new(Code::Unavailable, audience, reason)
    }

    /// Creates the error of a fetch whose result is unusable.
    pub(crate) fn unauthenticated(audience: &str, reason: &str) -> Self {
        Self::new(Code::Unauthenticated, audience, reason)
    }

    /// The status of the metadata server, other than 200 (CH5.14).
    pub(crate) fn of_status(audience: &str, status: u16) -> Self {
        // Other statuses are not temporary (CH5.14).
        let is_unavailable = Code::from_http_status(status.into()) == Code::Unavailable;
        let code = if is_unavailable { Code::Unavailable } else { Code::Unauthenticated };
        Self::new(code, audience, &format!("HTTP status {status}"))
    }

    fn new(code: Code, audience: &str, reason: &str) -> Self {
        Self { code, message: format!("identity token for {audience}: {reason}").into() }
    }
}
