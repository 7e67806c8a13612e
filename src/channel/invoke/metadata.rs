//! Headers and trailers as metadata of the crate `grpc`.

use std::mem;

use base64::{
    Engine,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use grpc::{StatusCodeError, StatusError, core::RequestHeaders, metadata::MetadataMap};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{CONTENT_TYPE, TE},
    uri::PathAndQuery,
};
use tonic::{Code, Status, body::Body};
use tracing::debug;

use super::send::RequestMessages;
use crate::channel::status::{GRPC_MESSAGE, GRPC_STATUS};

/// The request of a call.
///
/// # Errors
/// The method is no path.
pub(super) fn request(mut headers: RequestHeaders, body: RequestMessages) -> Result<Request<Body>, Status> {
    let method = headers.method_name();
    let path = PathAndQuery::try_from(method.as_str()).ok().filter(|_| method.starts_with('/'));
    let path = path.ok_or_else(|| Status::internal(format!("the method {method:?} is no path")))?;
    let mut request = Request::new(Body::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from(path);
    let metadata = tonic::metadata::MetadataMap::from(mem::take(headers.metadata_mut()));
    let mut sent = metadata.into_headers();
    if !sent.is_empty() {
        for name in RESERVED {
            sent.remove(name);
        }
    }
    sent.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    *request.headers_mut() = sent;
    Ok(request)
}

/// The metadata of headers. The content type is none, and binary values that are not Base64 are left out.
pub(super) fn of_headers(mut headers: HeaderMap) -> MetadataMap {
    headers.remove(CONTENT_TYPE);
    if headers.is_empty() {
        return MetadataMap::new();
    }
    remove_malformed(&mut headers);
    MetadataMap::try_from(tonic::metadata::MetadataMap::from_headers(headers)).unwrap_or_default()
}

/// The metadata of trailers, without those of the status.
pub(super) fn of_trailers(mut trailers: HeaderMap) -> MetadataMap {
    trailers.remove(GRPC_STATUS);
    trailers.remove(GRPC_MESSAGE);
    of_headers(trailers)
}

/// The status in trailers; UNKNOWN without one.
pub(super) fn status(trailers: &HeaderMap) -> grpc::Status {
    if trailers.get(GRPC_STATUS).is_some_and(|code| Code::from_bytes(code.as_bytes()) == Code::Ok) {
        return Ok(());
    }
    let status = Status::from_header_map(trailers);
    let (code, message) =
        status.as_ref().map_or((Code::Unknown, "the response has no grpc-status"), |status| {
            (status.code(), status.message())
        });
    Err(StatusError::new(StatusCodeError::from(code as i32), message))
}

/// Removes binary values that are not Base64: one of them would hide all others.
fn remove_malformed(headers: &mut HeaderMap) {
    let is_malformed = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().ends_with(BINARY) && BASE64.decode(value.as_bytes()).is_err()
    };
    if !headers.iter().any(is_malformed) {
        return;
    }
    let mut rest = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers.iter() {
        if is_malformed((name, value)) {
            debug!(name = name.as_str(), "left out a value of metadata that is not Base64");
        } else {
            rest.append(name.clone(), value.clone());
        }
    }
    *headers = rest;
}

/// Base64 with or without padding, as gRPC permits it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// The end of the names of binary values.
const BINARY: &str = "-bin";
/// Headers that are no metadata of applications.
const RESERVED: [HeaderName; 5] =
    [TE, CONTENT_TYPE, GRPC_STATUS, GRPC_MESSAGE, HeaderName::from_static("grpc-message-type")];
