//! Endpoint discovery services without endpoints, in virtual time, with a hand-written driver.

use std::{future::Ready, net::SocketAddr, sync::Weak, task::Context, time::Duration};

use tokio::time::{Instant, timeout};
use tower::{
    BoxError, Service, ServiceExt,
    balance::p2c::Balance,
    buffer::Buffer,
    discover::Change,
    load::{CompleteOnResponse, PendingRequests},
};

use super::*;
use crate::{
    discover::{Discover, discover},
    error::WatchError,
    resolve::{
        Resolved,
        fixture::{self, Draft},
    },
    resource::{Endpoint, Listener},
};

#[tokio::test(start_paused = true)]
async fn nothing_known_is_an_error_after_twenty_seconds_and_each_time_again() {
    let (client, _driver) = client();
    let mut carts = carts(&client);
    for _ in 0..3 {
        let (error, waited) = failure(&mut carts).await;
        assert_eq!((error.code(), waited), (Code::DeadlineExceeded, Duration::from_secs(20)));
        assert_eq!(
            error.to_string(),
            "Listener \"xds:///shop\": nothing is known of it after 20s [node id: n1]"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_reason_is_that_of_the_target_the_cluster_or_its_endpoints() {
    let no_listener = Err(fixture::error::<Listener>("shop", Code::NotFound, "does not exist"));
    let unreachable = Err(fixture::error::<Listener>("shop", Code::Unavailable, "connection refused"));
    let cases = [
        (no_listener, Code::NotFound, "Listener \"shop\": does not exist [node id: test]"),
        (unreachable, Code::Unavailable, "Listener \"shop\": connection refused [node id: test]"),
        (
            seen(draft().eds("other", &[&["10.0.0.1:80"]])),
            Code::DeadlineExceeded,
            "Cluster \"cart\": nothing is known of it after 5s [node id: n1]",
        ),
        (seen(draft().missing("cart")), Code::NotFound, "Cluster \"cart\": does not exist [node id: test]"),
        (
            seen(draft().without_endpoints("cart")),
            Code::NotFound,
            "ClusterLoadAssignment \"cart\": does not exist [node id: test]",
        ),
        (
            seen(draft().aggregate("cart", &["leaf"]).without_endpoints("leaf")),
            Code::NotFound,
            "ClusterLoadAssignment \"leaf\": does not exist [node id: test]",
        ),
        (
            seen(draft().eds("cart", &[])),
            Code::Unavailable,
            "ClusterLoadAssignment \"cart\": there is no usable endpoint [node id: n1]",
        ),
        (
            seen(draft().eds("cart", &[&["10.0.0.1:80 UNHEALTHY"]])),
            Code::Unavailable,
            "ClusterLoadAssignment \"cart\": there is no usable endpoint [node id: n1]",
        ),
    ];
    for (state, code, message) in cases {
        let (client, mut driver) = client();
        let mut carts = carts(&client).with_empty_timeout(Duration::from_secs(5));
        publish(&driver.resolved_target(), state);
        let (error, waited) = failure(&mut carts).await;
        assert_eq!((error.code(), waited), (code, Duration::from_secs(5)), "{message}");
        assert_eq!(error.to_string(), message);
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_begins_when_the_last_endpoint_goes_and_ends_when_one_comes() {
    let (client, mut driver) = client();
    let mut carts = carts(&client).with_empty_timeout(Duration::from_secs(5));
    let view = driver.resolved_target();
    let one = || seen(draft().eds("cart", &[&["10.0.0.1:80"]]));
    let lost = || Err(fixture::error::<Listener>("shop", Code::Unavailable, "connection refused"));
    assert!(timeout(Duration::from_secs(4), carts.next()).await.is_err(), "not yet");
    publish(&view, one());
    assert!(matches!(carts.next().await, Some(Ok(Change::Insert(..)))));
    publish(&view, lost());
    assert!(timeout(HOUR, carts.next()).await.is_err(), "what is known serves on");
    publish(&view, seen(draft().missing("cart")));
    assert!(matches!(carts.next().await, Some(Ok(Change::Remove(_)))));
    assert!(timeout(Duration::from_secs(4), carts.next()).await.is_err(), "it may be replaced");
    assert_eq!(failure(&mut carts).await.1, Duration::from_secs(1));
    publish(&view, one());
    assert!(matches!(carts.next().await, Some(Ok(Change::Insert(..)))), "an error is no end");
    assert!(timeout(HOUR, carts.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_max_is_for_never() {
    let (client, mut driver) = client();
    let mut carts = carts(&client).with_empty_timeout(Duration::MAX);
    assert!(timeout(HOUR, carts.next()).await.is_err());
    publish(&driver.resolved_target(), seen(draft().missing("cart")));
    assert!(timeout(HOUR, carts.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_shut_down_leaves_an_error_where_there_is_no_service() {
    let cases = [
        (None, 0),
        (Some(seen(draft().missing("cart"))), 0),
        (Some(seen(draft().eds("cart", &[&["10.0.0.1:80"]]))), 1),
    ];
    for (state, services) in cases {
        let (client, mut driver) = client();
        let mut carts = carts(&client);
        let view = driver.resolved_target();
        if let Some(state) = state {
            publish(&view, state);
        }
        for _ in 0..services {
            assert!(carts.next().await.unwrap().is_ok());
        }
        view.upgrade().unwrap().close().wake();
        if services == 0 {
            let (error, waited) = failure(&mut carts).await;
            assert_eq!((error.code(), waited), (Code::Cancelled, Duration::ZERO));
        }
        assert!(carts.next().await.is_none() && carts.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_balancer_fails_the_call_that_waits_and_serves_a_later_one() {
    let (client, mut driver) = client();
    let mut balance = Balance::<_, ()>::new(services(&client));
    let view = driver.resolved_target();
    publish(&view, seen(draft().missing("cart")));
    let begin = Instant::now();
    let error = call(&mut balance).await.unwrap_err();
    assert_eq!(begin.elapsed(), Duration::from_secs(20));
    assert_eq!(reason(&*error).code(), Code::NotFound);
    publish(&view, seen(draft().eds("cart", &[&["10.0.0.1:80"]])));
    assert_eq!(call(&mut balance).await.unwrap().to_string(), "10.0.0.1:80");
    publish(&view, Err(fixture::error::<Listener>("shop", Code::Unavailable, "connection refused")));
    assert_eq!(call(&mut balance).await.unwrap().to_string(), "10.0.0.1:80", "through an outage");
}

#[tokio::test(start_paused = true)]
async fn a_buffer_fails_all_its_calls_with_the_reason() {
    let (client, mut driver) = client();
    let mut first = Buffer::new(Balance::<_, ()>::new(services(&client)), 8);
    let mut second = first.clone();
    let view = driver.resolved_target();
    publish(&view, seen(draft().missing("cart")));
    let (one, two) = tokio::join!(call(&mut first), call(&mut second));
    for error in [one.unwrap_err(), two.unwrap_err(), call(&mut first).await.unwrap_err()] {
        assert_eq!(reason(&*error).code(), Code::NotFound, "{error}");
    }
}

/// A service that responds with its own address.
struct Echo(SocketAddr);

impl Service<()> for Echo {
    type Response = SocketAddr;
    type Error = BoxError;
    type Future = Ready<Result<SocketAddr, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        std::future::ready(Ok(self.0))
    }
}

async fn call<S>(service: &mut S) -> Result<SocketAddr, BoxError>
where
    S: Service<(), Response = SocketAddr, Error = BoxError>,
{
    service.ready().await?.call(()).await
}

/// Returns the error of this crate in the source chain of another error.
fn reason<'a>(mut error: &'a (dyn std::error::Error + 'static)) -> &'a WatchError {
    loop {
        match error.downcast_ref::<WatchError>() {
            Some(reason) => return reason,
            None => error = error.source().expect("the reason is among the causes"),
        }
    }
}

type Carts = Discover<SocketAddr, fn(&Endpoint) -> SocketAddr>;

fn carts(client: &Client) -> Carts {
    discover(client.resolve("xds:///shop"), "cart", Endpoint::address)
}

type Echoes = Discover<PendingRequests<Echo>, fn(&Endpoint) -> PendingRequests<Echo>>;

fn services(client: &Client) -> Echoes {
    discover(client.resolve("xds:///shop"), "cart", |endpoint| {
        PendingRequests::new(Echo(endpoint.address()), CompleteOnResponse::default())
    })
}

/// Returns the next error, and the time until it.
async fn failure(carts: &mut Carts) -> (WatchError, Duration) {
    let begin = Instant::now();
    let error = timeout(HOUR, carts.next()).await.expect("an error within the hour");
    (error.unwrap().unwrap_err(), begin.elapsed())
}

impl Commands {
    /// Returns the view of the target that was just resolved.
    fn resolved_target(&mut self) -> Weak<dyn Publish> {
        self.resolved().2
    }
}

fn publish(view: &Weak<dyn Publish>, state: Resolved) {
    view.upgrade().expect("it is resolved").publish(Arc::new(state)).wake();
}

fn draft() -> Draft {
    fixture::snapshot("shop")
}

fn seen(draft: Draft) -> Resolved {
    Ok(Arc::new(draft.build()))
}

const HOUR: Duration = Duration::from_secs(3600);
