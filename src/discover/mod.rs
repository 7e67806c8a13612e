//! The endpoints of a cluster as changes of a set of services: the input of tower's load balancers.
//!
//! ```no_run
//! use tonic::{body::Body, client::Grpc, codegen::http::Request, transport::Endpoint};
//! use tower::{
//!     balance::p2c::Balance,
//!     buffer::Buffer,
//!     load::{CompleteOnResponse, PendingRequests},
//! };
//! use xdskit::Client;
//!
//! fn carts(client: &Client) {
//!     let endpoints = client.discover("xds:///shop", "cart", |endpoint| {
//!         // The channel connects with the first call, and reconnects when necessary.
//!         let address = format!("http://{}", endpoint.address());
//!         let channel = Endpoint::from_shared(address).expect("an address is a valid URI").connect_lazy();
//!         PendingRequests::new(channel, CompleteOnResponse::default())
//!     });
//!     let (carts, worker) = Buffer::<Request<Body>, _>::pair(Balance::new(endpoints), 1024);
//!     tokio::spawn(worker);
//!     let client = Grpc::new(carts); // or the client that was generated for a service
//! }
//! ```
//!
//! # A channel or `discover`
//!
//! For gRPC, the channel (`xdskit::Channel`, feature `channel`) is the better choice: it executes the cluster's policy, weights,
//! failover to endpoints that can be reached, retries, TLS and outlier detection, none of which happens here. `discover` is for
//! other protocols and transports, since the application makes the services, and for a balancer of the application.
//!
//! # Services
//!
//! A balancer drops a service whose `poll_ready` fails, so the services should recover from failures by themselves, as
//! tonic's lazy channels do. The management server decides which endpoints are used.
//!
//! A draining endpoint is removed, and calls that were already sent to its service end there. So mark a backend as draining
//! some time before it is shut down; as the example `greeter` does with its mesh.
//!
//! # When there is no endpoint
//!
//! Calls wait in a balancer without services. [`Discover`] therefore yields the reason as an error after a
//! [timeout](Discover::with_empty_timeout) without endpoints, 20 s by default, and again after each further one: a mistyped
//! target or cluster, a target without a listener, a cluster without usable endpoints, an unreachable server. Errors do not
//! end the stream: later endpoints are inserted. As long as there are endpoints there are no errors, however long a server
//! is unreachable.
//!
//! - A [`Balance`] returns the error from `poll_ready` and can be polled again: the waiting call fails, and a later one succeeds
//!   if there are endpoints by then.
//! - A [`Buffer`] around it closes: the waiting calls and all later ones fail with the error, since tower treats a failed
//!   service as lost. An application can exit then, or build a new buffer with another [`discover`]. If calls should wait
//!   instead, with timeouts of their own, use `with_empty_timeout(Duration::MAX)`.
//!
//! The timeout exists because an error closes a buffer for good: the replacement of a listener or cluster, or endpoints
//! that are briefly unhealthy, must not do so.
//!
//! [`Balance`]: https://docs.rs/tower/0.5/tower/balance/p2c/struct.Balance.html
//! [`Buffer`]: https://docs.rs/tower/0.5/tower/buffer/struct.Buffer.html

mod deadline;
mod usable;

use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures_core::Stream;
use tower::discover::Change;

use self::{deadline::Deadline, usable::Usable};
use crate::{
    client::{Client, ClusterSubscription, Resolution},
    config::Target,
    error::{Blame, Code, Subject, WatchError},
    resolve::Resolved,
    resource::{Cluster, ClusterLoadAssignment, Endpoint, Resource},
};

impl Client {
    /// The endpoints of a cluster as changes of a set of services: [`discover()`] on the resolution of a target.
    ///
    /// ```
    /// use tower::discover::Change;
    /// use xdskit::Client;
    ///
    /// /// Prints each endpoint that is added or removed.
    /// async fn follow(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut carts = client.discover("xds:///shop", "cart", |endpoint| endpoint.address());
    ///     while let Some(change) = carts.next().await {
    ///         match change? {
    ///             Change::Insert(address, _) => println!("insert {address}"),
    ///             Change::Remove(address) => println!("remove {address}"),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn discover<S, F>(
        &self,
        target: impl Into<Target>,
        cluster: impl AsRef<str>,
        make: F,
    ) -> Discover<S, F>
    where
        F: FnMut(&Endpoint) -> S,
    {
        discover(self.resolve(target), cluster, make)
    }
}

/// Converts a resolution to changes of a set of services: one for each usable endpoint of a cluster, created by
/// `make`. [`Client::discover`] does the same for a target.
///
/// The services are those of the usable endpoints of the
/// [first usable priority](crate::resolve::ClusterView::first_usable_priority). The cluster is
/// [subscribed to](Resolution::subscribe_cluster), so it need not be part of a route.
///
/// ```
/// use tower::discover::Change;
/// use xdskit::{
///     Client,
///     config::Bootstrap,
///     discover::discover,
///     testing::{TestControlPlane, resources},
/// };
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let server = TestControlPlane::start().await;
///     server.update(|tx| {
///         let to_cart = resources::route::prefix("/").cluster("cart");
///         tx.set(resources::listener("shop"));
///         tx.set(resources::route_config("shop").virtual_host(["*"], [to_cart]));
///         tx.set(resources::cluster("cart"));
///         tx.set(resources::endpoints("cart").locality("eu", "a", ["10.0.0.1:80"]));
///     });
///     let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json())?).build()?;
///
///     let mut carts = discover(client.resolve("xds:///shop"), "cart", |endpoint| endpoint.weight);
///     match carts.next().await.expect("the client is not shut down")? {
///         Change::Insert(address, weight) => println!("insert {address}, weight {weight}"),
///         Change::Remove(address) => println!("remove {address}"),
///     }
///     Ok(())
/// }
/// ```
pub fn discover<S, F>(resolution: Resolution, cluster: impl AsRef<str>, make: F) -> Discover<S, F>
where
    F: FnMut(&Endpoint) -> S,
{
    let hold = resolution.subscribe_cluster(cluster);
    Discover {
        resolution,
        hold,
        make,
        usable: Usable::default(),
        changes: VecDeque::new(),
        deadline: Deadline::new(),
        has_ended: false,
    }
}

/// The usable endpoints of a cluster, as a stream of changes; created by [`discover`].
///
/// It is a [`tower::discover::Discover`], keyed by the main address of the endpoint.
///
/// - New endpoints are inserted before old ones are removed, so that a balancer is never empty in between.
/// - An endpoint with a changed hostname, metadata or additional address is inserted again, which replaces its service. A
///   change of its health or weight alone does not affect the service.
/// - Transient errors ([`WatchError::is_transient`]) do not affect the services. If the target, the cluster or the assignment
///   of endpoints is deleted, all services are removed.
/// - After a [timeout](Self::with_empty_timeout) without services, the reason is yielded as an error. Errors do not end the
///   stream: see [the module](self#when-there-is-no-endpoint) for their effect in tower.
/// - The stream ends when the client is shut down. The services remain; without any, an error (`CANCELLED`) is yielded first.
///
/// It must be polled within a tokio runtime.
#[must_use = "streams do nothing unless polled"]
pub struct Discover<S, F> {
    /// The states of the target.
    resolution: Resolution,
    /// Keeps the cluster among the resources of the resolution, even if no route leads to it.
    hold: ClusterSubscription,
    /// Creates the service of an endpoint.
    make: F,
    /// The endpoints whose services were inserted, including those in `changes`.
    usable: Usable,
    /// Changes that were not yielded yet.
    changes: VecDeque<Change<SocketAddr, S>>,
    /// The time without endpoints.
    deadline: Deadline,
    /// Whether the end was yielded as an error.
    has_ended: bool,
}

impl<S, F> Discover<S, F>
where
    F: FnMut(&Endpoint) -> S,
{
    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        self.hold.name()
    }

    /// Sets the time without services after which an error is yielded, and between such errors: 20 s by default. The minimum is
    /// a millisecond; [`Duration::MAX`] means never.
    ///
    /// A shorter time than the client's [`resource_timeout`](crate::client::ClientBuilder::resource_timeout) also
    /// fails calls while a server has not yet responded.
    pub fn with_empty_timeout(mut self, limit: Duration) -> Self {
        self.deadline.set_limit(limit);
        self
    }

    /// Waits for the next change; `None` when the client is shut down.
    ///
    /// # Errors
    /// The reason for the absence of services for [some time](Self::with_empty_timeout):
    ///
    /// - the error of the target, such as `NOT_FOUND` for one without a listener, or that of the cluster or of its
    ///   endpoints;
    /// - `UNAVAILABLE` for a cluster without usable endpoints;
    /// - `DEADLINE_EXCEEDED` as long as their state is unknown.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Result<Change<SocketAddr, S>, WatchError>> {
        std::future::poll_fn(|cx| self.poll_change(cx)).await
    }

    /// Yields pending changes first, so that a new state does not overtake an earlier one.
    fn poll_change(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Change<SocketAddr, S>, WatchError>>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Poll::Ready(Some(Ok(change)));
            }
            match Pin::new(&mut self.resolution).poll_next(cx) {
                Poll::Ready(Some(seen)) => self.update(&seen),
                Poll::Ready(None) => {
                    // Once: the next poll returns `None`, the end.
                    let error = self.usable.is_empty() && !std::mem::replace(&mut self.has_ended, true);
                    return Poll::Ready(error.then(|| Err(self.resolution.shut_down())));
                }
                Poll::Pending => {
                    let limit = ready!(self.deadline.poll(cx));
                    return Poll::Ready(Some(Err(self.why_empty(limit))));
                }
            }
        }
    }

    /// Appends the changes to a new state.
    fn update(&mut self, seen: &Resolved) {
        let changes = self.usable.update(seen, self.hold.name());
        let make = &mut self.make;
        let inserted =
            changes.inserted.iter().map(|endpoint| Change::Insert(endpoint.address(), make(endpoint)));
        // Insertions come first: a balancer that was empty in between would make calls wait.
        self.changes.extend(inserted);
        self.changes.extend(changes.removed.into_iter().map(Change::Remove));
        self.deadline.observe(self.usable.is_empty());
    }

    /// The reason for the absence of endpoints.
    fn why_empty(&self, waited: Duration) -> WatchError {
        let target = self.resolution.subject();
        let about = |type_url| Subject { type_url, name: self.hold.name().into(), ..target.clone() };
        let unknown = |about| {
            let reason = format!("nothing is known of it after {waited:?}");
            WatchError::new(Code::DeadlineExceeded, Blame::Network, about, reason)
        };
        let snapshot = match self.resolution.latest() {
            None => return unknown(target),
            Some(Err(error)) => return error,
            Some(Ok(snapshot)) => snapshot,
        };
        let Some(cluster) = snapshot.cluster(self.hold.name()) else {
            return unknown(about(Cluster::TYPE_URL));
        };
        let problem = usable::problems(cluster).next().cloned();
        problem.unwrap_or_else(|| {
            let about = about(ClusterLoadAssignment::TYPE_URL);
            WatchError::new(Code::Unavailable, Blame::Peer, about, "there is no usable endpoint")
        })
    }
}

impl<S, F> Stream for Discover<S, F>
where
    F: FnMut(&Endpoint) -> S,
{
    type Item = Result<Change<SocketAddr, S>, WatchError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_change(cx)
    }
}

/// No field is ever pinned.
impl<S, F> Unpin for Discover<S, F> {}

impl<S, F> fmt::Debug for Discover<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discover")
            .field("resolution", &self.resolution)
            .field("cluster", &self.hold)
            .finish_non_exhaustive()
    }
}
