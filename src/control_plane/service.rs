//! The services of a control plane, by the paths of requests.

use std::{convert::Infallible, sync::Arc, task};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{Body as HttpBody, BoxFuture, Service, StdError},
    server::{Grpc, NamedService, StreamingService},
};

use super::{
    connection::ConnectionInfo,
    event::Event,
    hub::Hub,
    load_hub::NOT_SERVED,
    load_stream::{LoadStream, Resettable, Signals},
    method::Method,
    stream::Stream,
};
use crate::{codec::RawCodec, config::TransportApiVersion};

/// The services of a [`ControlPlane`](super::ControlPlane), routed by the path of a request: ADS, the service of
/// each type, and that of load reports, of v3 and v2.
///
/// A tonic server routes by the name of a service, so the services are added to one by
/// [`ControlPlane::routes`](super::ControlPlane::routes). With `add_service`, they receive requests for ADS of v3
/// alone.
#[derive(Debug, Clone)]
pub struct DiscoveryServices {
    hub: Arc<Hub>,
}

impl DiscoveryServices {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }
}

impl<B> Service<http::Request<B>> for DiscoveryServices
where
    B: HttpBody + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // Before anything else of the request is read, so that strangers cost little.
        let permitted = match &self.hub.authorize {
            Some(check) => check(request.headers()),
            None => Ok(()),
        };
        if let Err(status) = permitted {
            #[cfg(feature = "json")]
            if super::rest::Route::of(&request).is_some() {
                return Box::pin(async move { Ok(super::rest::unauthorized(&status)) });
            }
            return Box::pin(async move { Ok(status.into_http()) });
        }
        #[cfg(feature = "json")]
        if let Some(route) = super::rest::Route::of(&request) {
            let hub = self.hub.clone();
            return Box::pin(async move { Ok(route.answer(hub, request).await) });
        }
        if is_load_reporting(request.uri().path()) {
            let hub = self.hub.clone();
            return Box::pin(async move { Ok(LoadOpener::answer(hub, request).await) });
        }
        let Some(method) = Method::of(request.uri().path()) else {
            let reason = format!("{} is not served", request.uri().path());
            return Box::pin(async { Ok(Status::unimplemented(reason).into_http()) });
        };
        let opener = Opener { method, hub: self.hub.clone() };
        let max_request_size = self.hub.server_limits.max_request_size;
        Box::pin(async move {
            let mut grpc = Grpc::new(RawCodec)
                .max_decoding_message_size(max_request_size)
                // The size of a response is that of the resources, which the server itself has chosen.
                .max_encoding_message_size(usize::MAX);
            Ok(grpc.streaming(opener, request).await)
        })
    }
}

impl NamedService for DiscoveryServices {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

/// Opens the streams of a method.
#[derive(Debug)]
struct Opener {
    method: Method,
    hub: Arc<Hub>,
}

impl StreamingService<Bytes> for Opener {
    type Response = Bytes;
    type ResponseStream = UnboundedReceiverStream<Result<Bytes, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let addr = request.remote_addr();
        let (_, extensions, requests) = request.into_parts();
        let peer = ConnectionInfo::peer_of(&extensions).or(addr);
        let guard = ConnectionInfo::stream_of(&extensions);
        let (responses, responses_out) = mpsc::unbounded_channel();
        let (headers, headers_due) = oneshot::channel();
        let Method { variant, api_version, type_url } = self.method;
        let (id, commands) = self.hub.open(self.method);
        tracing::debug!(stream = id, ?peer, ?variant, ?api_version, type_url, "stream opened");
        self.hub.emit(&Event::Opened { stream: id, peer, variant, api_version, type_url });
        let stream = Stream::new(id, self.method, self.hub.clone(), responses, headers);
        tokio::spawn(async move {
            // A task of its own: it notices the end of the client by its queue of responses.
            stream.run(requests, commands).await;
            drop(guard);
        });
        Box::pin(async move {
            // The sender is dropped when the headers are due; it never sends a value.
            let _ = headers_due.await;
            Ok(Response::new(UnboundedReceiverStream::new(responses_out)))
        })
    }
}

/// Opens a stream of load reports.
#[derive(Debug)]
struct LoadOpener {
    hub: Arc<Hub>,
    /// Resets the stream; taken by the stream.
    reset: Option<oneshot::Sender<()>>,
}

impl LoadOpener {
    /// Opens a stream, whose body can be reset.
    async fn answer<B>(hub: Arc<Hub>, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<StdError> + Send + 'static,
    {
        let (reset, is_reset) = oneshot::channel();
        let mut grpc = Grpc::new(RawCodec).max_decoding_message_size(hub.server_limits.max_request_size);
        let response = grpc.streaming(Self { hub, reset: Some(reset) }, request).await;
        response.map(|body| Body::new(Resettable::new(body, is_reset)))
    }
}

impl StreamingService<Bytes> for LoadOpener {
    type Response = Bytes;
    type ResponseStream = UnboundedReceiverStream<Result<Bytes, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let Some((id, commands)) = self.hub.load_reporting.open() else {
            return Box::pin(async { Err(Status::unimplemented(NOT_SERVED)) });
        };
        let addr = request.remote_addr();
        let (_, extensions, reports) = request.into_parts();
        let peer = ConnectionInfo::peer_of(&extensions).or(addr);
        let guard = ConnectionInfo::stream_of(&extensions);
        tracing::debug!(stream = id, ?peer, "stream of load reports opened");
        let (responses, responses_out) = mpsc::unbounded_channel();
        let (headers, headers_due) = oneshot::channel();
        let signals = Signals { headers: Some(headers), reset: self.reset.take() };
        let stream = LoadStream::new(id, self.hub.clone(), responses, signals);
        tokio::spawn(async move {
            // The stream counts on its connection until its task has ended.
            stream.run(reports, commands).await;
            drop(guard);
        });
        Box::pin(async move {
            // The sender is dropped when the headers are due; it never sends a value.
            let _ = headers_due.await;
            Ok(Response::new(UnboundedReceiverStream::new(responses_out)))
        })
    }
}

/// Whether a path is the method of load reports, in either version.
fn is_load_reporting(path: &str) -> bool {
    [TransportApiVersion::V3, TransportApiVersion::V2].iter().any(|version| version.load_reporting() == path)
}
