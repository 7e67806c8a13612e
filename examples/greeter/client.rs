//! The client, as tonic would generate it from a `.proto` file: it works with any channel.

use std::error::Error;

use tonic::{
    Request, Status,
    body::Body,
    client::{Grpc, GrpcService},
    codegen::{Bytes, StdError, http::uri::PathAndQuery},
};

use super::server::{GREET, Texts};

/// A client of the service.
#[derive(Debug, Clone)]
pub(crate) struct GreeterClient<T> {
    inner: Grpc<T>,
}

impl<T> GreeterClient<T>
where
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: http_body::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<Box<dyn Error + Send + Sync>> + Send,
{
    pub(crate) fn new(channel: T) -> Self {
        Self { inner: Grpc::new(channel) }
    }

    /// Returns the name of the server that greets.
    pub(crate) async fn say_hello(&mut self, to: &str) -> Result<String, Status> {
        self.inner.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let request = Request::new(to.to_owned());
        let response = self.inner.unary(request, PathAndQuery::from_static(GREET), Texts).await?;
        Ok(response.into_inner())
    }
}
