//! How an attempt ends without a response for the application, and what follows from that.

use tokio::time::Instant;
use tonic::Status;

use super::Responded;
use crate::{
    balance::retry::{AttemptEnd, MAX_NEVER_SENT, Pushback},
    channel::{active::ActiveCall, connection::Reserved, status},
    error::Code,
};

/// The end of an attempt without a response for the application.
pub(super) enum Failure {
    /// The connection was gone before anything was written (CH6.12). The next attempt needs a picker that is newer than that of this
    /// generation.
    NeverSent(u64),
    /// The server reported that it did not process the request (CH6.13).
    NeverProcessed(Status),
    /// The connection was lost after the request was sent, and before the response.
    ConnectionLost(Status),
    /// A failure on this side, or a reset of the stream, without a status of the server (CH6.10).
    Failed(Status),
    /// A response without messages, whose headers carry the status.
    Responded(Box<Responded>),
    /// A failure that permits no further attempt (CH6.7).
    Final(Status),
}

impl Failure {
    /// Classifies an error of the stream of an attempt.
    pub(super) fn of_stream(
        error: &h2::Error,
        attempt: &Reserved,
        deadline: Option<Instant>,
        active: &ActiveCall,
    ) -> Self {
        match status::of_stream(error, attempt, deadline) {
            // First: at the end of the grace, streams end with the same errors as after the loss of a connection.
            _ if active.is_shut_down() => Self::Final(Status::cancelled("channel is shut down")),
            status if status::is_never_processed(error) => Self::NeverProcessed(status),
            status if status::is_connection_lost(error) => match attempt.is_excluded() {
                // A GOAWAY with an error says so as well (CH6.13).
                true => Self::NeverProcessed(status),
                false => Self::ConnectionLost(status),
            },
            status => Self::Failed(status),
        }
    }

    /// Returns the end of the attempt for the retry policy; `None` if no attempt can follow.
    pub(super) fn end(&self) -> Option<AttemptEnd> {
        Some(match self {
            Self::NeverSent(_) => AttemptEnd::NeverSent,
            Self::NeverProcessed(status) => AttemptEnd::NeverProcessed(status::core_code(status.code())),
            Self::ConnectionLost(status) => AttemptEnd::ConnectionLost(status::core_code(status.code())),
            Self::Failed(status) => AttemptEnd::Failed(status::core_code(status.code()), Pushback::Absent),
            // Only a status of the server can carry a pushback.
            Self::Responded(responded) => {
                let headers = responded.0.headers();
                let code = status::in_headers(headers).unwrap_or(Code::Unknown);
                AttemptEnd::Failed(code, status::pushback(headers))
            }
            Self::Final(_) => return None,
        })
    }

    /// Returns the status of the attempt for telemetry; `None` if the attempt goes on with another connection.
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::NeverSent(_) => None,
            Self::NeverProcessed(status)
            | Self::ConnectionLost(status)
            | Self::Failed(status)
            | Self::Final(status) => Some(status::core_code(status.code())),
            Self::Responded(responded) => {
                Some(status::in_headers(responded.0.headers()).unwrap_or(Code::Unknown))
            }
        }
    }

    /// Ends the call as this attempt has ended.
    pub(super) fn deliver(self) -> Result<Responded, Status> {
        match self {
            Self::NeverSent(_) => Err(never_sent()),
            Self::NeverProcessed(status)
            | Self::ConnectionLost(status)
            | Self::Failed(status)
            | Self::Final(status) => Err(status),
            Self::Responded(responded) => Ok(*responded),
        }
    }
}

/// Returns the status of a call whose connections were lost again and again before anything was written.
pub(super) fn never_sent() -> Status {
    Status::internal(format!("{MAX_NEVER_SENT} connections were lost before the request was sent"))
}
