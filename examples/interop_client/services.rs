//! The services for the driver of a test.

use std::{
    convert::Infallible,
    future::ready,
    sync::Arc,
    task::{Context, Poll},
};

use prost::Message;
use tonic::{
    Request, Response, Status,
    body::Body,
    codegen::{self, BoxFuture, http},
    server::{Grpc, NamedService, UnaryService},
};

use super::{
    calls::Settings,
    codec::Proto,
    messages::{ClientConfigureRequest, Empty, HealthCheckResponse, LoadBalancerStatsRequest},
    stats::Stats,
};

/// Where the calls went, and how they ended.
#[derive(Debug, Clone)]
pub(crate) struct LoadBalancerStats {
    pub(crate) stats: Arc<Stats>,
}

/// What is called from now on.
#[derive(Debug, Clone)]
pub(crate) struct Configure {
    pub(crate) settings: Arc<Settings>,
}

/// The process is healthy as long as it responds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Health;

impl Methods for LoadBalancerStats {
    const NAME: &'static str = "grpc.testing.LoadBalancerStatsService";

    async fn call(self, method: String, request: http::Request<Body>) -> http::Response<Body> {
        let stats = self.stats;
        match method.as_str() {
            "GetClientStats" => {
                let distribution = move |request: LoadBalancerStatsRequest| {
                    let stats = stats.clone();
                    async move { Ok(stats.distribution(request).await) }
                };
                unary(request, distribution).await
            }
            "GetClientAccumulatedStats" => {
                unary(request, move |_: Empty| ready(Ok(stats.accumulated()))).await
            }
            _ => Status::unimplemented(method).into_http(),
        }
    }
}

impl Methods for Configure {
    const NAME: &'static str = "grpc.testing.XdsUpdateClientConfigureService";

    async fn call(self, method: String, request: http::Request<Body>) -> http::Response<Body> {
        let settings = self.settings;
        let configure = move |request: ClientConfigureRequest| {
            let configured = settings.configure(&request).map_err(Status::invalid_argument);
            ready(configured.map(|()| Empty {}))
        };
        match method.as_str() {
            "Configure" => unary(request, configure).await,
            _ => Status::unimplemented(method).into_http(),
        }
    }
}

impl Methods for Health {
    const NAME: &'static str = "grpc.health.v1.Health";

    async fn call(self, method: String, request: http::Request<Body>) -> http::Response<Body> {
        match method.as_str() {
            "Check" => unary(request, |_: Empty| ready(Ok(HealthCheckResponse { status: 1 }))).await,
            _ => Status::unimplemented(method).into_http(),
        }
    }
}

/// The methods of a service.
pub(crate) trait Methods: Clone + Send + Sync + 'static {
    const NAME: &'static str;

    /// Responds to a call of a method.
    fn call(
        self,
        method: String,
        request: http::Request<Body>,
    ) -> impl Future<Output = http::Response<Body>> + Send;
}

/// A service as servers take it.
#[derive(Debug, Clone)]
pub(crate) struct Served<M>(pub(crate) M);

impl<M: Methods> codegen::Service<http::Request<Body>> for Served<M> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let methods = self.0.clone();
        let path = request.uri().path();
        let method = path.rsplit_once('/').map_or(path, |(_, method)| method).to_owned();
        Box::pin(async move { Ok(methods.call(method, request).await) })
    }
}

impl<M: Methods> NamedService for Served<M> {
    const NAME: &'static str = M::NAME;
}

/// A unary method.
struct Unary<H>(H);

impl<Q, R, H, F> UnaryService<Q> for Unary<H>
where
    H: Fn(Q) -> F,
    F: Future<Output = Result<R, Status>> + Send + 'static,
    R: Message + 'static,
{
    type Response = R;
    type Future = BoxFuture<Response<R>, Status>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let response = (self.0)(request.into_inner());
        Box::pin(async move { response.await.map(Response::new) })
    }
}

async fn unary<Q, R, F>(request: http::Request<Body>, handle: impl Fn(Q) -> F) -> http::Response<Body>
where
    Q: Message + Default + 'static,
    R: Message + 'static,
    F: Future<Output = Result<R, Status>> + Send + 'static,
{
    Grpc::new(Proto::new()).unary(Unary(handle), request).await
}
