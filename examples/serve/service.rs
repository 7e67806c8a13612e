//! The service: it answers with what it was sent, and what it knows of the request.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value};
use tonic::{
    Status,
    body::Body,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::{
        BoxFuture, Service,
        http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode},
    },
    server::{Grpc, UnaryService},
};
use xdskit::server::{InboundRequest, RequestBody};

/// The service of the program.
#[derive(Debug, Clone)]
pub(crate) struct Echo;

impl Service<Request<RequestBody>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        Box::pin(async move {
            let shown = shown(&request);
            let headers = request.headers();
            if let Some(time) = number(headers.get("x-delay-ms")) {
                tokio::time::sleep(Duration::from_millis(time)).await;
            }
            let is_grpc = |value: &HeaderValue| value.as_bytes().starts_with(b"application/grpc");
            let mut response = match headers.get("content-type").is_some_and(is_grpc) {
                true => Grpc::new(Raw).unary(Unary, request).await,
                false => plain(&shown, request.into_body()).await,
            };
            response.headers_mut().extend(shown);
            Ok(response)
        })
    }
}

/// What the server knows of a request, as headers.
fn shown(request: &Request<RequestBody>) -> HeaderMap {
    let mut shown = HeaderMap::new();
    let mut show = |name: HeaderName, text: &str| {
        shown.insert(name, HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("")));
    };
    if let Some(inbound) = request.extensions().get::<InboundRequest>() {
        let of = HeaderName::from_static;
        show(of("x-method"), request.uri().path());
        show(of("x-listener"), inbound.listener());
        show(of("x-chain"), inbound.filter_chain());
        show(of("x-virtual-host"), inbound.virtual_host());
        show(of("x-route"), inbound.route());
        show(of("x-local"), &inbound.local_addr().to_string());
        show(of("x-peer"), &inbound.peer_addr().to_string());
        show(of("x-tls"), &inbound.is_tls().to_string());
        show(of("x-principal"), inbound.spiffe_id().unwrap_or_default());
        show(of("x-sans"), &inbound.subject_alt_names().join(","));
    }
    for (name, value) in request.headers() {
        let echoed = name.as_str().strip_prefix("x-echo-").and_then(|name| name.parse::<HeaderName>().ok());
        if let Some(name) = echoed {
            shown.append(name, value.clone());
        }
    }
    shown
}

/// The answer to a request that is not one of gRPC.
async fn plain(shown: &HeaderMap, body: RequestBody) -> Response<Body> {
    let Ok(body) = body.collect().await else {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let shown =
        shown.iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or_default().into()));
    let mut all: Map<String, Value> = shown.collect();
    all.insert("body".to_owned(), String::from_utf8_lossy(&body.to_bytes()).into());
    let mut response = Response::new(Body::new(Full::new(Bytes::from(Value::Object(all).to_string()))));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    response
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.parse().ok()
}

struct Unary;

impl UnaryService<Bytes> for Unary {
    type Response = Bytes;
    type Future = Ready<Result<tonic::Response<Bytes>, Status>>;

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        ready(Ok(tonic::Response::new(request.into_inner())))
    }
}

/// Messages as bytes, so that the program needs no generated code.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
