//! The layer that authorizes the requests of a tower service.

use std::{
    fmt,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    SharedRbac,
    reply::{DENIED, MALFORMED, RbacBody, Reply, UNKNOWN_CONNECTION},
    request,
};
use crate::rbac::{ConnectionFacts, RequestFacts};

/// Authorizes the requests of a service by the policies of an [`Rbac`](crate::rbac::Rbac) (A41).
///
/// Requests that the policies deny do not reach the service. They get PERMISSION_DENIED in trailers alone if they are of gRPC, by their
/// content type, and the HTTP status 403 otherwise, without the name of the policy.
///
/// The addresses and the certificate of the peer are those of the [`ConnectionFacts`] in the extensions of the request, or what a
/// function finds there ([`with_connection`](Self::with_connection)). If the policies depend on them and there are none, requests
/// fail with INTERNAL or 500.
///
/// The layer removes headers that `connection` names, and `host` beside the authority of the target, so that the service sees what the
/// policies see. More than one `host`, a matched header that is not UTF-8, and [ambiguous paths](RequestFacts::with_strict_path) are
/// refused with INTERNAL or 400.
///
/// ```
/// use tower::{ServiceBuilder, service_fn};
/// use xdskit::{authorization::RbacLayer, rbac::Rbac};
///
/// fn protect(rbac: Rbac) {
///     let shop = service_fn(|_: http::Request<()>| async {
///         Ok::<_, std::io::Error>(http::Response::new(tonic::body::Body::empty()))
///     });
///     let protected = ServiceBuilder::new().layer(RbacLayer::new(rbac)).service(shop);
/// }
/// ```
#[derive(Clone)]
pub struct RbacLayer {
    settings: Settings,
}

/// A service whose requests are authorized; see [`RbacLayer`].
#[derive(Debug, Clone)]
pub struct RbacService<S> {
    inner: S,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    rbac: SharedRbac,
    strict_paths: bool,
    connection: Arc<ConnectionOf>,
}

/// Finds the connection of a request.
type ConnectionOf = dyn Fn(&Extensions) -> Option<ConnectionFacts> + Send + Sync;

pin_project! {
    /// The future of a response behind an [`RbacLayer`].
    #[derive(Debug)]
    pub struct RbacFuture<F, B> {
        #[pin]
        state: State<F, B>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum State<F, B> {
        Service { #[pin] response: F },
        Reply { response: Option<Response<RbacBody<B>>> },
    }
}

impl RbacLayer {
    /// Authorizes requests by these policies, or by those that a [`SharedRbac`] has at the time of the request.
    pub fn new(rbac: impl Into<SharedRbac>) -> Self {
        let connection = |extensions: &Extensions| extensions.get::<ConnectionFacts>().cloned();
        let (rbac, connection) = (rbac.into(), Arc::new(connection));
        Self { settings: Settings { rbac, strict_paths: true, connection } }
    }

    /// Sets how the connection of a request is found in its extensions; by default it is the [`ConnectionFacts`] among them.
    #[must_use]
    pub fn with_connection(
        mut self,
        find: impl Fn(&Extensions) -> Option<ConnectionFacts> + Send + Sync + 'static,
    ) -> Self {
        self.settings.connection = Arc::new(find);
        self
    }

    /// Sets whether requests other than those of gRPC are refused for ambiguous paths, if a policy matches paths; `true` by default.
    /// See [`RequestFacts::with_strict_path`].
    #[must_use]
    pub fn with_strict_paths(mut self, strict: bool) -> Self {
        self.settings.strict_paths = strict;
        self
    }
}

impl<S> Layer<S> for RbacLayer {
    type Service = RbacService<S>;

    fn layer(&self, inner: S) -> RbacService<S> {
        RbacService { inner, settings: self.settings.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for RbacService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<RbacBody<R>>;
    type Error = S::Error;
    type Future = RbacFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let state = match self.settings.authorize(&mut request) {
            Ok(()) => State::Service { response: self.inner.call(request) },
            Err(reply) => State::Reply { response: Some(reply.response(request.headers())) },
        };
        RbacFuture { state }
    }
}

impl Settings {
    /// Decides about a request.
    ///
    /// # Errors
    /// The reply to a request that must not reach the service.
    fn authorize<B>(&self, request: &mut Request<B>) -> Result<(), Reply> {
        let rbac = self.rbac.current();
        let connection = match (self.connection)(request.extensions()) {
            Some(connection) => connection,
            None if rbac.reads_connection() => {
                tracing::warn!("RBAC depends on the connection, of which the request has no facts");
                return Err(UNKNOWN_CONNECTION);
            }
            None => no_connection(),
        };
        let uri = request.uri().clone();
        let Ok(authority) = request::normalize(&uri, request.headers_mut()) else { return Err(MALFORMED) };
        let path = uri.path_and_query().map_or("", |path| path.as_str());
        let headers = request.headers();
        let mut facts = RequestFacts::new(request.method().as_str(), path, &connection)
            .with_headers(headers)
            .with_strict_path(self.strict_paths);
        if let Some(authority) = &authority {
            facts = facts.with_authority(authority);
        }
        let decision = rbac.authorize(&facts, since_1970());
        match decision.malformed {
            None if decision.allowed => Ok(()),
            None => {
                tracing::debug!(path, policy = decision.matched_policy, "request denied");
                Err(DENIED)
            }
            Some(malformed) => {
                tracing::debug!(path, ?malformed, "request refused");
                Err(MALFORMED)
            }
        }
    }
}

impl<F, R, E> Future for RbacFuture<F, R>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<RbacBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::Service { response } => {
                let response = ready!(response.poll(cx))?;
                Poll::Ready(Ok(response.map(RbacBody::of_service)))
            }
            // Once the future is ready it is not polled again.
            Projected::Reply { response } => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
        }
    }
}

impl fmt::Debug for RbacLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RbacLayer").field("settings", &self.settings).finish()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("rbac", &self.rbac)
            .field("strict_paths", &self.strict_paths)
            .finish_non_exhaustive()
    }
}

/// Returns the time of the wall clock, since 1970.
fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Stands for a connection that no policy depends on.
fn no_connection() -> ConnectionFacts {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    ConnectionFacts::new(nowhere, nowhere)
}

#[cfg(test)]
mod tests;
