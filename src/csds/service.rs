use std::{convert::Infallible, future::Future, pin::Pin, task};

use bytes::Bytes;
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    codegen::{Body as HttpBody, BoxFuture, Service, StdError},
    server::{Grpc, NamedService, StreamingService, UnaryService},
};

use super::{ClientStatusService, message::client_config};
use crate::{
    codec::RawCodec,
    pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse},
};

impl ClientStatusService {
    /// Responds to a request.
    async fn answer(&self, request: Bytes) -> Result<Bytes, Status> {
        let request = ClientStatusRequest::decode(request)
            .map_err(|error| Status::invalid_argument(format!("not a ClientStatusRequest: {error}")))?;
        // Node matchers select among the clients of a management server (A40-4).
        if !request.node_matchers.is_empty() {
            return Err(Status::invalid_argument("node_matchers are not supported: this is a client"));
        }
        let statuses = self.statuses().await;
        let contents = !request.exclude_resource_contents;
        let config = statuses.into_iter().map(|status| client_config(status, contents)).collect();
        Ok(ClientStatusResponse { config }.encode_to_vec().into())
    }
}

impl<B> Service<http::Request<B>> for ClientStatusService
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
        let service = self.clone();
        match request.uri().path() {
            FETCH => Box::pin(async { Ok(Grpc::new(RawCodec).unary(Fetch(service), request).await) }),
            STREAM => Box::pin(async { Ok(Grpc::new(RawCodec).streaming(Watch(service), request).await) }),
            path => {
                let reason = format!("{path} is not served");
                Box::pin(async { Ok(Status::unimplemented(reason).into_http()) })
            }
        }
    }
}

impl NamedService for ClientStatusService {
    const NAME: &'static str = "envoy.service.status.v3.ClientStatusDiscoveryService";
}

/// The unary method.
struct Fetch(ClientStatusService);

impl UnaryService<Bytes> for Fetch {
    type Response = Bytes;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Bytes>, Status>> + Send>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { service.answer(request.into_inner()).await.map(Response::new) })
    }
}

/// The streaming method: one response to each request (A40-3).
struct Watch(ClientStatusService);

impl StreamingService<Bytes> for Watch {
    type Response = Bytes;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let service = self.0.clone();
        let answers = request.into_inner().then(move |request| {
            let service = service.clone();
            async move { service.answer(request?).await }
        });
        std::future::ready(Ok(Response::new(Box::pin(answers))))
    }
}

const FETCH: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
const STREAM: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus";
