//! The endpoints of a cluster as changes of a set of services, which is what tower's load balancers work on.
//!
//! ```no_run
//! use tonic::transport::{Channel, Endpoint};
//! use tower::{
//!     balance::p2c::Balance,
//!     buffer::Buffer,
//!     load::{CompleteOnResponse, PendingRequests},
//! };
//! use xdskit::{Client, discover::discover};
//!
//! # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//! let shop = client.resolve("xds:///shop");
//! let carts = discover(shop, "cart", |endpoint| {
//!     // It connects with the first call, and again whenever it has to.
//!     let address = format!("http://{}", endpoint.address());
//!     let channel = Endpoint::from_shared(address).expect("an address is a valid URI").connect_lazy();
//!     PendingRequests::new(channel, CompleteOnResponse::default())
//! });
//! let (carts, worker) = Buffer::pair(Balance::new(carts), 1024);
//! tokio::spawn(worker);
//! let client = tonic::client::Grpc::new(carts); // or the client that was generated for a service
//! # let _: tonic::client::Grpc<Buffer<http::Request<tonic::body::Body>, _>> = client;
//! # Ok(())
//! # }
//! ```
//!
//! A balancer drops a service that says by itself that it has failed, so give it services that recover, such as tonic's
//! lazy channels: whether an endpoint is to be used is for the management server to say.
//!
//! An endpoint that is drained is removed, and calls that its service has taken already end there. So leave some time
//! between saying that a backend is draining and shutting it down; the example `balance` shows it.

mod usable;

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;
use tower::discover::Change;

use self::usable::Usable;
use crate::{
    client::{ClusterHold, Resolution},
    resource::Endpoint,
};

/// Turns what a target resolves to into changes of the services of one cluster, each made of an endpoint.
///
/// The services are those of the endpoints that requests are to go to: the healthy ones, or those of unknown health, of the
/// first priority that has any; an aggregate's leaves are asked in their order. The cluster is
/// [held](Resolution::hold_cluster), so it may be one that no route leads to.
///
/// ```
/// use xdskit::{
///     Client,
///     config::Bootstrap,
///     discover::discover,
///     testing::{ControlPlane, resources},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ControlPlane::start().await;
/// server.update(|tx| {
///     let to_cart = resources::route::prefix("/").cluster("cart");
///     tx.set(resources::listener("shop"));
///     tx.set(resources::route_config("shop").virtual_host(["*"], [to_cart]));
///     tx.set(resources::cluster("cart"));
///     tx.set(resources::endpoints("cart").locality("eu", "a", ["10.0.0.1:80"]));
/// });
/// let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json())?).build()?;
///
/// let mut carts = discover(client.resolve("xds:///shop"), "cart", |endpoint| endpoint.weight);
/// let Some(tower::discover::Change::Insert(address, weight)) = carts.next().await else { panic!() };
/// assert_eq!((address.to_string().as_str(), weight.get()), ("10.0.0.1:80", 1));
/// # Ok(())
/// # }
/// ```
pub fn discover<S, F>(resolution: Resolution, cluster: impl AsRef<str>, make: F) -> Discover<S, F>
where
    F: FnMut(&Endpoint) -> S,
{
    let hold = resolution.hold_cluster(cluster);
    Discover { resolution, hold, make, usable: Usable::default(), changes: VecDeque::new() }
}

/// The usable endpoints of a cluster, as a stream of changes; made by [`discover`].
///
/// It is a [`tower::discover::Discover`], keyed by the main address of the endpoint.
///
/// - A balancer never runs empty in between: what is new is inserted before what is gone is removed.
/// - An endpoint that stays but is told to be another (its hostname, metadata or additional addresses) is inserted again,
///   which replaces the service. News of its health or weight alone do not touch it.
/// - Errors never end the stream. While something cannot be reached ([`WatchError::is_transient`]) the services stay as they
///   are; a target, cluster or list of endpoints that is gone, or has never been good, takes all services away.
/// - It ends when the client is shut down. The services stay as they are.
///
/// [`WatchError::is_transient`]: crate::WatchError::is_transient
#[must_use = "streams do nothing unless polled"]
pub struct Discover<S, F> {
    resolution: Resolution,
    hold: ClusterHold,
    make: F,
    usable: Usable,
    changes: VecDeque<Change<SocketAddr, S>>,
}

impl<S, F> Discover<S, F>
where
    F: FnMut(&Endpoint) -> S,
{
    /// The name of the cluster.
    pub fn cluster(&self) -> &str {
        self.hold.name()
    }

    /// Waits for the next change; `None` when the client is shut down.
    ///
    /// # Cancel safety
    /// No change is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Change<SocketAddr, S>> {
        std::future::poll_fn(|cx| self.poll_change(cx)).await
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> Poll<Option<Change<SocketAddr, S>>> {
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Poll::Ready(Some(change));
            }
            let Some(seen) = ready!(Pin::new(&mut self.resolution).poll_next(cx)) else {
                return Poll::Ready(None);
            };
            let changes = self.usable.update(&seen, self.hold.name());
            let inserted = changes
                .inserted
                .iter()
                .map(|endpoint| Change::Insert(endpoint.address(), (self.make)(endpoint)));
            self.changes.extend(inserted);
            self.changes.extend(changes.removed.into_iter().map(Change::Remove));
        }
    }
}

impl<S, F> Stream for Discover<S, F>
where
    F: FnMut(&Endpoint) -> S,
{
    type Item = Result<Change<SocketAddr, S>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_change(cx).map(|change| change.map(Ok))
    }
}

/// Nothing in it is ever pinned.
impl<S, F> Unpin for Discover<S, F> {}

impl<S, F> fmt::Debug for Discover<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discover")
            .field("resolution", &self.resolution)
            .field("cluster", &self.hold)
            .finish_non_exhaustive()
    }
}
