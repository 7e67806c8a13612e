//! Failures of requests that are none of gRPC.

use http::{HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use tonic::{Code, Status};

use super::{ChannelBody, deadline::Deadline, telemetry::CallTelemetry};

/// Gives a failed response an HTTP status that is an error, and a text, beside the headers of gRPC: a client that does not read
/// `grpc-status` must not take `200 OK` for success.
pub(super) fn fail(response: &mut Response<ChannelBody>) {
    let is_alone = response.status() == StatusCode::OK && response.body().is_end_stream();
    let Some(status) = Status::from_header_map(response.headers()).filter(|_| is_alone) else { return };
    let http = match status.code() {
        Code::Ok => return,
        Code::Unavailable | Code::Cancelled | Code::ResourceExhausted => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => StatusCode::BAD_GATEWAY,
    };
    let text = format!("{:?}: {}\n\nThis channel carries gRPC alone.\n", status.code(), status.message());
    let body = Full::from(text).map_err(|never| match never {});
    *response.status_mut() = http;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    let (deadline, telemetry) = (Deadline::default(), CallTelemetry::default());
    *response.body_mut() = ChannelBody::filtered(Box::pin(body), deadline, None, telemetry);
}
