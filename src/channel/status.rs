//! Statuses that the channel makes itself.

use std::net::SocketAddr;

use h2::Reason;
use tonic::Status;

/// The status of a call without a usable endpoint, route or configuration.
pub(super) fn unavailable(reason: &str, node: &str) -> Status {
    Status::unavailable(with_node(reason, node))
}

/// The deadline of a call is over.
pub(super) fn deadline_exceeded(reason: &str) -> Status {
    Status::deadline_exceeded(format!("deadline exceeded: {reason}"))
}

/// The status of a stream to an endpoint that ends without one (CH2.26).
pub(super) fn of_stream(error: &h2::Error, address: SocketAddr) -> Status {
    let Some(reason) = error.reason().filter(|_| !error.is_io()) else {
        return Status::unavailable(format!("{address}: the connection was lost: {error}"));
    };
    if error.is_go_away() {
        return Status::unavailable(format!("{address}: the connection was closed: {error}"));
    }
    let message = format!("{address}: the stream was reset: {error}");
    match reason {
        Reason::REFUSED_STREAM => Status::unavailable(message),
        Reason::CANCEL => Status::cancelled(message),
        Reason::ENHANCE_YOUR_CALM => Status::resource_exhausted(message),
        Reason::INADEQUATE_SECURITY => Status::permission_denied(message),
        _ => Status::internal(message),
    }
}

/// Whether the server cannot have processed the request (CH6.13, CH15.4).
pub(super) fn is_never_processed(error: &h2::Error) -> bool {
    if !error.is_remote() {
        return false;
    }
    match error.reason() {
        Some(Reason::REFUSED_STREAM) => error.is_reset(),
        Some(Reason::NO_ERROR) => error.is_go_away(),
        _ => false,
    }
}

fn with_node(reason: &str, node: &str) -> String {
    // Errors of resources name the node already.
    if reason.contains("[node id: ") { reason.to_owned() } else { format!("{reason} [node id: {node}]") }
}
