//! Statuses that the channel makes itself.

use std::net::SocketAddr;

use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header::CONTENT_TYPE};
use tokio::time::Instant;
use tonic::{Code, Status};

use super::connection::{Reserved, header_list_size};
use crate::balance::retry::Pushback;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// The code OK as a value of `grpc-status`.
const OK: &str = "0";
/// The code CANCELLED as a value of `grpc-status`.
const CANCELLED: &str = "1";

/// The status of a call without a usable endpoint, route or configuration.
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

/// The deadline of a call is over.
pub(super) fn deadline_exceeded(reason: &str) -> Status {
    Status::deadline_exceeded(format!("deadline exceeded: {reason}"))
}

/// The status of a stream to an endpoint that ends without one (CH2.26).
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
    of_error(error, (attempt.endpoint().address, attempt.lost_by()), deadline)
}

/// As before, with the reason why the connection was ended from this side, if it was.
pub(super) fn of_error(
    error: &h2::Error,
    (address, lost_by): (SocketAddr, Option<&str>),
    deadline: Option<Instant>,
) -> Status {
    let Some(reason) = error.reason().filter(|_| !error.is_io()) else {
        return match lost_by {
            Some(reason) => Status::unavailable(format!("{address}: the connection was closed: {reason}")),
            None => Status::unavailable(format!("{address}: the connection was lost: {error}")),
        };
    };
    if error.is_go_away() {
        return Status::unavailable(format!("{address}: the connection was closed: {error}"));
    }
    let message = format!("{address}: the stream was reset: {error}");
    match reason {
        Reason::REFUSED_STREAM => Status::unavailable(message),
        Reason::CANCEL if deadline.is_some_and(|it| it <= Instant::now()) => deadline_exceeded(&message),
        Reason::CANCEL => Status::cancelled(message),
        Reason::ENHANCE_YOUR_CALM => Status::resource_exhausted(message),
        Reason::INADEQUATE_SECURITY => Status::permission_denied(message),
        _ => Status::internal(message),
    }
}

/// Whether the headers or trailers of a response are within the limit of the channel (CH15.9).
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

/// The status of a request whose headers the endpoint would not accept: some servers end the connection instead of the call.
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
    if !is_cancelled || deadline.is_none_or(|it| it > Instant::now()) {
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

/// The status of a response that is not one of gRPC, such as that of a proxy on the way (CH2.25).
pub(super) fn of_response<B>(response: &Response<B>, address: SocketAddr) -> Option<Status> {
    let is_grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
    let headers = response.headers();
    if headers.contains_key(GRPC_STATUS) || headers.get(CONTENT_TYPE).is_some_and(is_grpc) {
        return None;
    }
    let code = crate::error::Code::from_http_status(response.status().as_u16().into());
    let content = headers.get(CONTENT_TYPE);
    Some(Status::new(
        Code::from(code as i32),
        format!(
            "{address}: the response is not one of gRPC: HTTP status {}, content-type {content:?}",
            response.status()
        ),
    ))
}

/// Whether a response is a status alone, other than OK: there is nothing yet that the application could have seen (CH6.11).
pub(super) fn is_failure(response: &Response<RecvStream>) -> bool {
    let is_failure = |code: &HeaderValue| code != OK;
    response.headers().get(GRPC_STATUS).is_some_and(is_failure) && response.body().is_end_stream()
}

/// The status code of trailers, or of headers that are trailers as well.
pub(super) fn in_headers(headers: &HeaderMap) -> Option<crate::error::Code> {
    let code = headers.get(GRPC_STATUS)?;
    Some(core_code(Code::from_bytes(code.as_bytes())))
}

/// The code as the core has it.
pub(super) fn core_code(code: Code) -> crate::error::Code {
    crate::error::Code::from_i32(code as i32)
}

/// What the server says of retries (CH6.8).
pub(super) fn pushback(headers: &HeaderMap) -> Pushback {
    Pushback::parse(headers.get_all(PUSHBACK).iter().map(HeaderValue::as_bytes))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ch2_26_a_stream_that_the_server_cancels_after_the_deadline_has_exceeded_it() {
        let cancelled = h2::Error::from(Reason::CANCEL);
        let peer = (([127, 0, 0, 1], 80).into(), None);
        let of = |deadline| of_error(&cancelled, peer, deadline).code();
        let now = Instant::now();
        assert_eq!(of(Some(now)), Code::DeadlineExceeded);
        assert_eq!(of(Some(now + Duration::from_secs(600))), Code::Cancelled);
        assert_eq!(of(None), Code::Cancelled);
        let refused = h2::Error::from(Reason::REFUSED_STREAM);
        let status = of_error(&refused, peer, Some(now));
        assert_eq!(status.code(), Code::Unavailable, "other resets keep their codes");
    }

    #[test]
    fn ch2_26_a_status_cancelled_after_the_deadline_is_deadline_exceeded() {
        let now = Instant::now();
        let of = |code, message: Option<&'static str>, deadline| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
            if let Some(message) = message {
                headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
            }
            correct_deadline(&mut headers, deadline);
            let status = Status::from_header_map(&headers).unwrap();
            (status.code(), status.message().to_owned())
        };
        let exceeded = |message: &str| (Code::DeadlineExceeded, format!("deadline exceeded: {message}"));
        assert_eq!(of("1", Some("Timeout%20expired"), Some(now)), exceeded("Timeout expired"));
        assert_eq!(of("1", None, Some(now)), exceeded("call cancelled by the server"));
        let later = now + Duration::from_secs(600);
        assert_eq!(of("1", Some("no"), Some(later)), (Code::Cancelled, "no".to_owned()));
        assert_eq!(of("1", Some("no"), None), (Code::Cancelled, "no".to_owned()));
        assert_eq!(of("14", Some("no"), Some(now)), (Code::Unavailable, "no".to_owned()));
        assert_eq!(of("0", None, Some(now)), (Code::Ok, String::new()));
    }

    #[test]
    fn ch2_25_a_response_that_is_not_of_grpc_has_the_code_of_its_http_status() {
        for (http, code) in [
            (200, Code::Unknown),
            (400, Code::Internal),
            (401, Code::Unauthenticated),
            (403, Code::PermissionDenied),
            (404, Code::Unimplemented),
            (429, Code::Unavailable),
            (500, Code::Unknown),
            (502, Code::Unavailable),
            (503, Code::Unavailable),
            (504, Code::Unavailable),
        ] {
            let response =
                Response::builder().status(http).header(CONTENT_TYPE, "text/html").body(()).unwrap();
            let status = of_response(&response, ([127, 0, 0, 1], 80).into()).unwrap();
            assert_eq!(status.code(), code, "{http}");
            assert!(status.message().starts_with("127.0.0.1:80: "), "{status:?}");
        }
        for (name, value) in [("grpc-status", "0"), ("content-type", "application/grpc+proto")] {
            let response = Response::builder().status(503).header(name, value).body(()).unwrap();
            assert!(of_response(&response, ([127, 0, 0, 1], 80).into()).is_none(), "{name}");
        }
    }
}
