//! A request that has its route.

use std::{future::poll_fn, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;
use tracing::debug;

use super::{
    body::{BodyError, RequestBody},
    info::{ConnectionInfo, InboundRequest},
};
use crate::{
    error::Code,
    serve::{Refusal, RoutedRequest},
};

/// A request with its route, and the service that is to have it.
pub(super) struct Exchange<S> {
    pub(super) service: S,
    pub(super) connection: Arc<ConnectionInfo>,
    pub(super) routed: RoutedRequest,
    pub(super) is_grpc: bool,
}

impl<S, B> Exchange<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    /// Passes a request that its filters have let pass to the service.
    pub(super) async fn forward(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<B>, Refusal> {
        self.routed.check_action()?;
        request.extensions_mut().insert(InboundRequest::new(self.connection.clone(), self.routed.clone()));
        let failed = |error: S::Error| {
            debug!(error = %error.into(), "the service has failed");
            Refusal::of_status(Code::Internal, "the service has failed")
        };
        poll_fn(|cx| self.service.poll_ready(cx)).await.map_err(failed)?;
        self.service.call(request).await.map_err(failed)
    }
}
