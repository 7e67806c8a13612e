//! The refusal of a request.

use std::borrow::Cow;

use crate::error::Code;

/// The status of a request that the server refuses by itself.
///
/// Clients learn codes and constant texts, and the node id where the configuration is at fault; never names of chains, routes or
/// policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The status of a gRPC request.
    pub(crate) code: Code,
    /// The status of any other request.
    pub(crate) http_status: u16,
    pub(crate) message: Cow<'static, str>,
}

impl Refusal {
    /// A request whose head is malformed.
    pub(super) fn malformed(code: Code, message: &'static str) -> Self {
        Self { code, http_status: 400, message: message.into() }
    }

    /// A request that the configuration leads nowhere.
    pub(super) fn unavailable(message: &str, node: &str) -> Self {
        // SV7.13: an operator finds the node in the log of the management server.
        let message = format!("{message} [node id: {node}]").into();
        Self { code: Code::Unavailable, http_status: 503, message }
    }

    /// The refusal with a status of gRPC, such as that of a filter.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "filters of servers end requests"))]
    pub(crate) fn of_status(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, http_status: http_status(code), message: message.into() }
    }
}

/// The HTTP status of a refusal with a code of gRPC (SV7.12).
fn http_status(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound => 404,
        Code::AlreadyExists | Code::Aborted => 409,
        Code::ResourceExhausted => 429,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => 500,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
    }
}
