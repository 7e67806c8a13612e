//! A channel as a `tower::Service`.

use std::{
    convert::Infallible,
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{Channel, ChannelBody, request};

impl<B> Service<Request<B>> for Channel
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>> + Send,
{
    type Response = Response<ChannelBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<ChannelBody>, Infallible>> + Send>>;

    /// Always ready: nothing is reserved, and calls wait in their futures (CH1.4).
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let calls = self.shared.calls.clone();
        Box::pin(async move { Ok(calls.call(request.map(request::erase)).await) })
    }
}
