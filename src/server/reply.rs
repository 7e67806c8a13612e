//! Responses of the server itself.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use tonic::{Code, Status};

use crate::serve::Refusal;

/// Whether a request is one of gRPC.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(GRPC.as_bytes()))
}

/// The response to a refused request (SV7.12): a status without messages for gRPC, a short text otherwise.
pub(super) fn response(refusal: Refusal, is_grpc: bool) -> Response<Bytes> {
    let Refusal { code, http_status, message } = refusal;
    let mut headers = HeaderMap::new();
    let (status, body) = if is_grpc {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(GRPC));
        // The encoded message of a status is always a header value; without it the code alone would do.
        if Status::new(Code::from(code as i32), message).add_header(&mut headers).is_err() {
            headers.insert(STATUS, (code as i32).into());
        }
        (StatusCode::OK, Bytes::new())
    } else {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let status = StatusCode::from_u16(http_status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Bytes::from(message.into_owned()))
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

const GRPC: &str = "application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
