//! One request: from its head to the service of the application.

use std::{convert::Infallible, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Uri,
    header::{self, HOST},
    uri::Authority,
};
use http_body::Body;
use hyper::body::Incoming;
use tower_service::Service;
use tracing::debug;

use super::{
    body::{ActiveRequests, BodyError, RequestBody, ResponseBody, Sent},
    chain::ServedChain,
    exchange::Exchange,
    filter_run::FilterRun,
    info::ConnectionInfo,
    reply,
};
use crate::{
    filters::FilterCallbacks,
    resolve::{RequestHeaders, RouteQuery},
    serve::{Refusal, RoutedRequest, authority, check_path},
};

/// The requests on a connection.
pub(super) struct Requests<S> {
    pub(super) service: S,
    pub(super) chain: Arc<ServedChain>,
    pub(super) connection: Arc<ConnectionInfo>,
    pub(super) active: ActiveRequests,
    pub(super) callbacks: Arc<dyn FilterCallbacks>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Requests<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let active = self.active.begin();
        let is_grpc = reply::is_grpc(request.headers());
        // SV7.3: the latest routes, to the end of the request.
        let routed = self.route(&mut request);
        let exchange = routed.map(|routed| {
            let (service, connection) = (self.service.clone(), self.connection.clone());
            Exchange { service, connection, routed, is_grpc }
        });
        let callbacks = self.callbacks.clone();
        Box::pin(async move {
            let request = request.map(RequestBody::incoming);
            let response = match exchange {
                Ok(exchange) => respond(exchange, request, callbacks).await,
                Err(refusal) => Err(refusal),
            };
            let response = response.unwrap_or_else(|refusal| {
                debug!(code = %refusal.code, reason = %refusal.message, "request refused");
                reply::response(refusal, is_grpc).map(Sent::whole)
            });
            Ok(response.map(|body| ResponseBody::new(body, active)))
        })
    }
}

impl<S> Requests<S> {
    /// Chooses the route of a request with a good head (SV7.4).
    fn route(&self, request: &mut Request<Incoming>) -> Result<RoutedRequest, Refusal> {
        let routing = self.chain.routing();
        let routed = {
            let (uri, headers) = (request.uri(), request.headers());
            check_path(uri.path())?;
            let hosts = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
            let authority = authority(target(uri), hosts)?;
            let visible = InboundHeaders(headers);
            let query = RouteQuery::new(uri.path(), fastrand::u64(..)).with_headers(&visible);
            routing.route(authority, &query)
        };
        if let (Err(_), Some(error)) = (&routed, routing.error()) {
            debug!(%error, "request without routes");
        }
        // SV7.6
        if target(request.uri()).is_some() {
            request.headers_mut().remove(HOST);
        }
        routed
    }
}

/// Passes a request through the filters of its route to the service.
async fn respond<S, B>(
    mut exchange: Exchange<S>,
    request: Request<RequestBody>,
    callbacks: Arc<dyn FilterCallbacks>,
) -> Result<Response<Sent<B>>, Refusal>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BodyError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
{
    match exchange.routed.filters().cloned() {
        None => Ok(exchange.forward(request).await?.map(|body| Sent::Service(Box::pin(body)))),
        Some(chain) => FilterRun::new(exchange, chain, callbacks).respond(request).await,
    }
}

/// The authority in the target of a request.
fn target(uri: &Uri) -> Option<&str> {
    uri.authority().map(Authority::as_str)
}

/// The headers of a request that routes see: those of the connection and of gRPC itself are none of them.
struct InboundHeaders<'a>(&'a HeaderMap);

impl RequestHeaders for InboundHeaders<'_> {
    fn for_each_value<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        let is_grpc = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("grpc-"));
        if !is_grpc && !HIDDEN.iter().any(|hidden| name.eq_ignore_ascii_case(hidden.as_str())) {
            self.0.get_all(name).iter().for_each(|value| each(value.as_bytes()));
        }
    }
}

/// Headers that are those of the connection.
const HIDDEN: [HeaderName; 10] = [
    HOST,
    header::TE,
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TRAILER,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
];
