//! Statuses that the channel makes itself.

use std::net::SocketAddr;

use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::connection::{Reserved, header_list_size, shown};
use crate::{
    balance::retry::Pushback,
    escape::{PEER_TEXT, cut},
};

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(super) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// The content type of gRPC.
const GRPC: &[u8] = b"application/grpc";
/// The code OK as a value of `grpc-status`.
const OK: &str = "0";
/// The code CANCELLED as a value of `grpc-status`.
const CANCELLED: &str = "1";

/// Returns the status of a call without a usable endpoint, route or configuration.
pub(super) fn unavailable(reason: &str, node: &str) -> Status {
    Status::unavailable(with_node(reason, node))
}

/// The status of a call that cannot be routed or balanced, by a defect of the configuration or of a policy (CH1.18).
pub(super) fn internal(reason: &str, node: &str) -> Status {
    Status::internal(with_node(reason, node))
}

/// A status that routing or load balancing makes. Codes that are reserved for applications become INTERNAL (CH1.17).
pub(super) fn local(code: crate::error::Code, reason: &str) -> Status {
    let code = Code::from(code as i32);
    match code {
        // A54: these codes are the results of applications, and OK would be a success without a response.
        Code::Ok
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::DataLoss => Status::internal(format!("{code:?} is reserved for applications: {reason}")),
        Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::Unauthenticated => Status::new(code, reason),
    }
}

/// Returns the status of a call whose deadline has passed.
pub(super) fn deadline_exceeded(reason: &str) -> Status {
    Status::deadline_exceeded(format!("deadline exceeded: {reason}"))
}

/// Returns the status of a stream to an endpoint that ends without one (CH2.26).
///
/// A server that measures the deadline too may cancel the stream before the timer of the client fires, which has a resolution of
/// 1 ms: that is the deadline as well.
pub(super) fn of_stream(error: &h2::Error, attempt: &Reserved, deadline: Option<Instant>) -> Status {
    // h2 does not tell headers that are too large from malformed ones, which are much rarer.
    if error.is_reset() && error.is_library() && error.reason() == Some(Reason::PROTOCOL_ERROR) {
        let http2 = attempt.handle().http2();
        let (limit, announced) = (http2.enforced_header_list_size(), http2.max_header_list_size);
        return Status::resource_exhausted(format!(
            "{}: the headers or trailers of the response are malformed, or larger than {limit} bytes (max_header_list_size is {announced})",
            attempt.endpoint().address
        ));
    }
    of_error(error, attempt.endpoint().address, attempt.lost_by(), deadline)
}

/// Returns the status of a call that failed with an error of HTTP/2. `lost_by` is the reason why this side ended the connection;
/// `None` if the server ended it.
pub(super) fn of_error(
    error: &h2::Error,
    address: SocketAddr,
    lost_by: Option<&str>,
    deadline: Option<Instant>,
) -> Status {
    let Some(reason) = error.reason().filter(|_| !error.is_io()) else {
        return match lost_by {
            Some(reason) => Status::unavailable(format!("{address}: the connection was closed: {reason}")),
            None => Status::unavailable(format!("{address}: the connection was lost: {}", shown(error))),
        };
    };
    if error.is_go_away() {
        return Status::unavailable(format!("{address}: the connection was closed: {}", shown(error)));
    }
    let message = format!("{address}: the stream was reset: {}", shown(error));
    match reason {
        Reason::REFUSED_STREAM => Status::unavailable(message),
        Reason::CANCEL if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
            deadline_exceeded(&message)
        }
        Reason::CANCEL => Status::cancelled(message),
        Reason::ENHANCE_YOUR_CALM => Status::resource_exhausted(message),
        Reason::INADEQUATE_SECURITY => Status::permission_denied(message),
        _ => Status::internal(message),
    }
}

/// Checks the headers or trailers of a response against the limit of the channel (CH15.9).
///
/// # Errors
/// The status of the call.
pub(super) fn check_header_list(headers: &HeaderMap, attempt: &Reserved) -> Result<(), Status> {
    let (size, limit) = (header_list_size(headers), attempt.handle().http2().max_header_list_size);
    if size <= limit as usize {
        return Ok(());
    }
    Err(Status::resource_exhausted(format!(
        "{}: the headers or trailers of the response have {size} bytes, max_header_list_size is {limit}",
        attempt.endpoint().address
    )))
}

/// Returns the status of a request whose headers the endpoint would not accept: some servers end the connection instead of the
/// call.
pub(super) fn request_too_large(address: SocketAddr, size: usize, limit: u32) -> Status {
    Status::resource_exhausted(format!(
        "{address}: the headers of the request have {size} bytes, and the server accepts {limit} \
         (SETTINGS_MAX_HEADER_LIST_SIZE)"
    ))
}

/// Turns the status CANCELLED of a server into DEADLINE_EXCEEDED if the deadline has passed (CH2.26): servers that measure the deadline
/// too, such as tonic's, end the call with CANCELLED, and may do so before the timer of the client fires.
pub(super) fn correct_deadline(headers: &mut HeaderMap, deadline: Option<Instant>) {
    let is_cancelled = headers.get(GRPC_STATUS).is_some_and(|code| code == CANCELLED);
    if !is_cancelled || deadline.is_none_or(|deadline| deadline > Instant::now()) {
        return;
    }
    let message =
        headers.get(GRPC_MESSAGE).map_or(&b"call cancelled by the server"[..], HeaderValue::as_bytes);
    let message = [b"deadline exceeded: ", message].concat();
    headers.insert(GRPC_STATUS, HeaderValue::from_static("4"));
    if let Ok(message) = HeaderValue::from_bytes(&message) {
        headers.insert(GRPC_MESSAGE, message);
    }
}

/// The status of a call by the head of a response without `grpc-status` (CH2.25), such as that of a proxy on the way. `None` if the
/// trailers have the status, or the head is one itself.
///
/// | `grpc-status` | content type | END_STREAM | the status of the call |
/// |---|---|---|---|
/// | present | any | set | `grpc-status` |
/// | OK | any | not set | that of the trailers, or else OK |
/// | a failure | any | not set | `grpc-status` |
/// | absent | gRPC | not set | that of the trailers |
/// | absent | gRPC | set | by the HTTP status |
/// | absent | other, or none | any | by the HTTP status |
///
/// The HTTP status 200 without a status of gRPC is UNKNOWN.
pub(super) fn of_response<B>(response: &Response<B>, is_end: bool, address: SocketAddr) -> Option<Status> {
    let headers = response.headers();
    if headers.contains_key(GRPC_STATUS) {
        return None;
    }
    let what = match is_grpc(headers) {
        true if !is_end => return None,
        true => "the response has no grpc-status".to_owned(),
        false => {
            let content = headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
            let content = content
                .as_deref()
                .map_or("none".to_owned(), |content| format!("{:?}", cut(content, PEER_TEXT)));
            format!("the response is not one of gRPC: content-type {content}")
        }
    };
    Some(of_http(response.status(), &what, address))
}

/// Returns the status of a call by its HTTP status.
fn of_http(http: StatusCode, what: &str, address: SocketAddr) -> Status {
    let code = crate::error::Code::from_http_status(http.as_u16().into());
    Status::new(Code::from(code as i32), format!("{address}: {what}, HTTP status {http}"))
}

/// Whether the content type is one of gRPC: `application/grpc`, alone or with a suffix or parameters. `application/grpc-web` is
/// another one.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes) else { return false };
    let (name, rest) = value.split_at(value.len().min(GRPC.len()));
    name.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// The parts of the head of a response that decide about trailers without a status.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseHead {
    /// The HTTP status.
    http: StatusCode,
    /// Whether the head has the status OK, though it is not the end.
    is_ok: bool,
}

impl ResponseHead {
    /// Reads the head of a response, which is its end if `is_end` is set. Otherwise a status OK is removed, since clients take it
    /// for the end.
    pub(super) fn new<B>(response: &mut Response<B>, is_end: bool) -> Self {
        let is_ok = !is_end && response.headers().get(GRPC_STATUS).is_some_and(|code| code == OK);
        if is_ok {
            response.headers_mut().remove(GRPC_STATUS);
        }
        Self { http: response.status(), is_ok }
    }

    /// Returns the trailers of a response that has ended, with a status.
    ///
    /// # Errors
    /// There is none: the call fails by the HTTP status.
    pub(super) fn end(self, trailers: Option<HeaderMap>, address: SocketAddr) -> Result<HeaderMap, Status> {
        match trailers {
            Some(trailers) if trailers.contains_key(GRPC_STATUS) => Ok(trailers),
            trailers if self.is_ok => {
                let mut trailers = trailers.unwrap_or_default();
                trailers.insert(GRPC_STATUS, HeaderValue::from_static(OK));
                Ok(trailers)
            }
            Some(_) => Err(of_http(self.http, "the trailers have no grpc-status", address)),
            None => Err(of_http(self.http, "the response ended without trailers", address)),
        }
    }
}

/// Whether a response consists of a status alone, other than OK, so that the application has seen nothing of it (CH6.11).
pub(super) fn is_failure(response: &Response<RecvStream>) -> bool {
    let is_failure = |code: &HeaderValue| code != OK;
    response.headers().get(GRPC_STATUS).is_some_and(is_failure) && response.body().is_end_stream()
}

/// Returns the status code in trailers, or in headers that are trailers as well.
pub(super) fn in_headers(headers: &HeaderMap) -> Option<crate::error::Code> {
    let code = headers.get(GRPC_STATUS)?;
    Some(core_code(Code::from_bytes(code.as_bytes())))
}

/// Converts a code to that of the core.
pub(super) fn core_code(code: Code) -> crate::error::Code {
    crate::error::Code::from_i32(code as i32)
}

/// Returns the pushback of the server, which delays or forbids retries (CH6.8).
pub(super) fn pushback(headers: &HeaderMap) -> Pushback {
    Pushback::parse(headers.get_all(PUSHBACK).iter().map(HeaderValue::as_bytes))
}

/// Whether a stream ended together with its connection.
pub(super) fn is_connection_lost(error: &h2::Error) -> bool {
    error.is_io() || error.is_go_away()
}

/// Whether the server cannot have processed the request (CH6.13, CH15.4).
pub(super) fn is_never_processed(error: &h2::Error) -> bool {
    if !error.is_remote() {
        return false;
    }
    match error.reason() {
        Some(Reason::REFUSED_STREAM) => error.is_reset(),
        // h2 ends the streams above the last one of a graceful GOAWAY with its code; those below it run on.
        Some(Reason::NO_ERROR) => error.is_go_away(),
        _ => false,
    }
}

/// Appends the node id to a reason.
fn with_node(reason: &str, node: &str) -> String {
    // Errors of resources name the node already.
    if reason.contains("[node id: ") { reason.to_owned() } else { format!("{reason} [node id: {node}]") }
}

#[cfg(test)]
mod tests;
