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

use super::{event::Event, hub::Hub, message::Variant, stream::Stream};
use crate::{
    codec::RawCodec,
    resource::services::{Edition, Methods},
};

/// The aggregated discovery service of a [`ControlPlane`](super::ControlPlane), to be added to a server of one's own; see
/// [`ControlPlane::service`](super::ControlPlane::service).
#[derive(Debug, Clone)]
pub struct AdsService {
    hub: Arc<Hub>,
}

impl AdsService {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }
}

impl<B> Service<http::Request<B>> for AdsService
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
        let Methods { sotw, delta } = Edition::V3.ads();
        let variant = match request.uri().path() {
            path if Some(path) == *sotw => Variant::Sotw,
            path if path == *delta => Variant::Delta,
            other => {
                let reason = format!("{other} is not served");
                return Box::pin(async { Ok(Status::unimplemented(reason).into_http()) });
            }
        };
        let method = Method { variant, hub: self.hub.clone() };
        Box::pin(async move {
            let mut grpc = Grpc::new(RawCodec)
                .max_decoding_message_size(usize::MAX)
                .max_encoding_message_size(usize::MAX);
            Ok(grpc.streaming(method, request).await)
        })
    }
}

impl NamedService for AdsService {
    const NAME: &'static str = "envoy.service.discovery.v3.AggregatedDiscoveryService";
}

/// The method for the streams of a variant.
#[derive(Debug)]
struct Method {
    variant: Variant,
    hub: Arc<Hub>,
}

impl StreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = UnboundedReceiverStream<Result<Bytes, Status>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let peer = request.remote_addr();
        let (responses, responses_out) = mpsc::unbounded_channel();
        let (headers, headers_due) = oneshot::channel();
        let variant = self.variant;
        let (id, commands) = self.hub.open(variant);
        tracing::debug!(stream = id, ?peer, ?variant, "stream opened");
        self.hub.emit(&Event::Opened { stream: id, peer, variant });
        let stream = Stream::new((id, variant), self.hub.clone(), responses, headers);
        tokio::spawn(stream.run(request.into_inner(), commands));
        Box::pin(async move {
            // The sender is dropped when the headers are due: nothing else is ever said.
            let _ = headers_due.await;
            Ok(Response::new(UnboundedReceiverStream::new(responses_out)))
        })
    }
}
