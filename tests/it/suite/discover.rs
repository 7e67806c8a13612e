//! The endpoints of a cluster as services, on a real connection to an embedded control plane.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::{Ready, ready},
    net::SocketAddr,
    task::{Context, Poll},
    time::Duration,
};

use crate::common::soon;
use futures_util::{FutureExt, StreamExt};
use tower::{
    BoxError, Service, ServiceExt,
    balance::p2c::Balance,
    discover::Change,
    load::{CompleteOnResponse, PendingRequests},
};
use xdskit::{
    Bootstrap, Client, WatchError,
    client::ClientBuilder,
    control_plane::type_url,
    discover::{Discover, discover},
    resource::Endpoint,
    testing::{
        TestControlPlane,
        resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
    },
};

#[apply(servers)]
async fn services_come_and_go_with_the_endpoints(transport: Transport) {
    let server = shop(&[A, B]).await;
    let mut carts = carts(&builder_of(transport, &server).build().unwrap());
    assert_eq!(carts.cluster(), "cart");
    assert_eq!([next(&mut carts).await, next(&mut carts).await], [format!("+{A}"), format!("+{B}")]);
    server.set(cart(&[A, B]).draining(A));
    assert_eq!(next(&mut carts).await, format!("-{A}"));
    server.set(cart(&[C]));
    assert_eq!(next(&mut carts).await, format!("+{C}"), "the new one first");
    assert_eq!(next(&mut carts).await, format!("-{B}"));
    server.set(cart(&[C]).locality("us", "a", [A]).priority(1));
    server.set(cart(&[C]).unhealthy(C).locality("us", "a", [A]).priority(1));
    assert_eq!(next(&mut carts).await, format!("+{A}"), "the next priority");
    assert_eq!(next(&mut carts).await, format!("-{C}"));
    assert!(carts.next().now_or_never().is_none());
}

#[apply(servers)]
async fn services_outlive_the_servers_absence(transport: Transport) {
    let server = shop(&[A, B]).await;
    let client = builder_of(transport, &server).build().unwrap();
    let (mut carts, mut shop) = (carts(&client), client.resolve("xds:///shop"));
    next(&mut carts).await;
    next(&mut carts).await;
    server.stop().await;
    let is_stale = |seen: &Result<_, _>| {
        seen.as_ref().is_ok_and(|seen: &std::sync::Arc<xdskit::Snapshot>| seen.warnings().count() > 0)
    };
    soon(shop.wait_for(is_stale)).await.unwrap().unwrap();
    assert!(carts.next().now_or_never().is_none(), "they stay");
    server.set(cart(&[B, C]));
    server.restart().await;
    assert_eq!([next(&mut carts).await, next(&mut carts).await], [format!("+{C}"), format!("-{A}")]);
}

#[apply(servers)]
async fn services_go_with_their_cluster_and_come_back_with_it(transport: Transport) {
    let server = shop(&[A]).await;
    let mut carts = carts(&builder_of(transport, &server).deletion_grace(Duration::ZERO).build().unwrap());
    assert_eq!(next(&mut carts).await, format!("+{A}"));
    server.remove(type_url::CLUSTER, "cart");
    assert_eq!(next(&mut carts).await, format!("-{A}"));
    server.set(cluster("cart"));
    assert_eq!(next(&mut carts).await, format!("+{A}"));
    server.remove(type_url::LISTENER, "shop");
    assert_eq!(next(&mut carts).await, format!("-{A}"), "the target is gone");
    server.set(listener("shop"));
    assert_eq!(next(&mut carts).await, format!("+{A}"));
}

/// A74-6: it is subscribed to.
#[apply(servers)]
async fn no_route_has_to_lead_to_the_cluster(transport: Transport) {
    let server = shop(&[A]).await;
    server.update(|tx| {
        tx.set(cluster("extra"));
        tx.set(endpoints("extra").locality("eu", "a", [B]));
    });
    let client = builder_of(transport, &server).build().unwrap();
    let mut extras = discover(client.resolve("xds:///shop"), "extra", address);
    assert_eq!(next(&mut extras).await, format!("+{B}"));
    server.set(route_config("shop").virtual_host(["*"], [route::prefix("/").cluster("extra")]));
    server.expect_names(type_url::CLUSTER, &["extra"]).await.unwrap();
    assert!(extras.next().now_or_never().is_none(), "routes are nothing to it");
    drop(extras);
    soon(client.resolve("xds:///shop").ready()).await.unwrap();
}

#[apply(servers)]
async fn the_stream_ends_with_the_client_alone(transport: Transport) {
    let server = shop(&[A]).await;
    let client = builder_of(transport, &server).resource_timeout(Duration::from_millis(50)).build().unwrap();
    let mut missing = discover(client.resolve("xds:///missing"), "cart", address);
    let mut carts = carts(&client);
    soon(client.resolve("xds:///missing").wait_for(Result::is_err)).await;
    assert!(missing.next().now_or_never().is_none(), "an error is no end");
    server.set(listener("missing").rds("shop"));
    assert_eq!(next(&mut missing).await, format!("+{A}"));
    assert_eq!(next(&mut carts).await, format!("+{A}"));
    soon(client.shutdown()).await;
    assert!(soon(carts.next()).await.is_none() && soon(carts.next()).await.is_none());
}

/// After any sequence of responses, with intermediate states skipped, the changes lead to the usable endpoints.
#[apply(servers)]
async fn all_changes_together_give_what_is_usable(transport: Transport) {
    let server = shop(&[A]).await;
    let client = builder_of(transport, &server).build().unwrap();
    let (mut carts, mut shop) = (carts(&client), client.resolve("xds:///shop"));
    let mut services = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(74);
    for round in 0..200 {
        let (last, expected) = random_carts(&mut random, round);
        server.set(last);
        if random.bool() {
            continue;
        }
        let marker = format!("10.9.9.9:{}", 1000 + round);
        let is_last = |seen: &Result<std::sync::Arc<xdskit::Snapshot>, _>| {
            let snapshot = seen.as_ref().unwrap();
            snapshot
                .cluster("cart")
                .unwrap()
                .endpoints()
                .any(|endpoint| endpoint.address().to_string() == marker)
        };
        soon(shop.wait_for(is_last)).await.unwrap().unwrap();
        while let Some(change) = carts.next().now_or_never() {
            let was_empty = services.is_empty();
            match change.unwrap().unwrap() {
                Change::Insert(address, service) => {
                    assert_eq!(address, service);
                    assert!(services.insert(address, service).is_none(), "inserted twice");
                }
                Change::Remove(address) => assert!(services.remove(&address).is_some(), "not there"),
            }
            assert!(was_empty || expected.is_empty() || !services.is_empty(), "empty in between");
        }
        assert_eq!(services.keys().copied().collect::<BTreeSet<_>>(), expected, "round {round}");
    }
}

/// Calls to targets and clusters without endpoints fail with the reason.
#[apply(servers)]
async fn a_balancer_without_endpoints_fails_its_calls(transport: Transport) {
    let server = shop(&[A]).await;
    server.update(|tx| {
        tx.set(cluster("empty"));
        tx.set(endpoints("empty"));
    });
    let client = builder_of(transport, &server).resource_timeout(Duration::from_millis(50)).build().unwrap();
    for (target, cluster, reason) in [
        ("xds:///missing", "cart", "Listener \"missing\""),
        ("xds:///shop", "missing", "Cluster \"missing\""),
        ("xds:///shop", "empty", "ClusterLoadAssignment \"empty\": there is no usable endpoint"),
    ] {
        let services = discover(client.resolve(target), cluster, |endpoint| {
            PendingRequests::new(Echo(endpoint.address()), CompleteOnResponse::default())
        });
        let mut balance: Balance<_, ()> = Balance::new(services.with_empty_timeout(Duration::from_secs(1)));
        let error = soon(call(&mut balance)).await.unwrap_err();
        let error = error.source().unwrap().downcast_ref::<WatchError>().unwrap();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[apply(servers)]
async fn a_balancer_of_tower_calls_what_is_usable(transport: Transport) {
    let server = shop(&[A, B]).await;
    let client = builder_of(transport, &server).build().unwrap();
    let mut shop = client.resolve("xds:///shop");
    let services = discover(shop.clone(), "cart", |endpoint| {
        PendingRequests::new(Echo(endpoint.address()), CompleteOnResponse::default())
    });
    let mut balance: Balance<_, ()> = Balance::new(services);
    let mut called = BTreeSet::new();
    for _ in 0..100 {
        called.insert(soon(call(&mut balance)).await.unwrap().to_string());
    }
    assert_eq!(called, [A.to_owned(), B.to_owned()].into());
    server.set(cart(&[A, B]).draining(A));
    soon(shop.wait_for(|seen| {
        seen.as_ref().unwrap().cluster("cart").unwrap().usable_endpoints_of_all_priorities().count() == 1
    }))
    .await;
    for _ in 0..100 {
        assert_eq!(soon(call(&mut balance)).await.unwrap().to_string(), B);
    }
}

/// A service that responds with its own address.
#[derive(Debug)]
struct Echo(SocketAddr);

impl Service<()> for Echo {
    type Response = SocketAddr;
    type Error = Infallible;
    type Future = Ready<Result<SocketAddr, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(self.0))
    }
}

async fn call<S>(service: &mut S) -> Result<SocketAddr, BoxError>
where
    S: Service<(), Response = SocketAddr, Error = BoxError>,
{
    service.ready().await?.call(()).await
}

/// A server of one service, with routes to the cluster `cart`.
async fn shop(addresses: &[&str]) -> TestControlPlane {
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener("shop"));
        tx.set(route_config("shop").virtual_host(["*"], [route::prefix("/").cluster("cart")]));
        tx.set(cluster("cart"));
        tx.set(cart(addresses));
    });
    server
}

fn cart(addresses: &[&str]) -> EndpointsBuilder {
    endpoints("cart").locality("eu", "a", addresses.iter().copied())
}

/// Up to six endpoints in two priorities, some of them unusable; and the expected ones. One that is never usable
/// distinguishes the rounds.
fn random_carts(random: &mut fastrand::Rng, round: usize) -> (EndpointsBuilder, BTreeSet<SocketAddr>) {
    let marker = format!("10.9.9.9:{}", 1000 + round);
    let mut carts = endpoints("cart");
    let mut usable = [BTreeSet::new(), BTreeSet::new()];
    for priority in 0..2_u32 {
        let addresses: Vec<_> =
            (0..3).map(|i| format!("10.0.{priority}.{i}:80")).filter(|_| random.bool()).collect();
        let marker = (priority == 0).then_some(&marker);
        let region = ["eu", "us"][priority as usize];
        carts = carts
            .locality(region, "a", addresses.iter().chain(marker).map(String::as_str))
            .priority(priority);
        for address in &addresses {
            if random.u8(..3) == 0 {
                carts = carts.unhealthy(address);
            } else {
                usable[priority as usize].insert(address.parse().unwrap());
            }
        }
    }
    let [first, second] = usable;
    (carts.unhealthy(&marker), if first.is_empty() { second } else { first })
}

fn builder_of(transport: Transport, server: &TestControlPlane) -> ClientBuilder {
    transport.builder_from(Bootstrap::from_json(&server.bootstrap_json()).unwrap())
}

type Make = fn(&Endpoint) -> SocketAddr;

fn carts(client: &Client) -> Discover<SocketAddr, Make> {
    discover(client.resolve("xds:///shop"), "cart", address as Make)
}

fn address(endpoint: &Endpoint) -> SocketAddr {
    endpoint.address()
}

/// Returns the next change: `+` for an insertion, `-` for a removal.
async fn next<F: FnMut(&Endpoint) -> SocketAddr>(services: &mut Discover<SocketAddr, F>) -> String {
    match soon(StreamExt::next(services)).await.unwrap().unwrap() {
        Change::Insert(address, service) => {
            assert_eq!(address, service);
            format!("+{address}")
        }
        Change::Remove(address) => format!("-{address}"),
    }
}

const A: &str = "10.0.0.1:80";
const B: &str = "10.0.0.2:80";
const C: &str = "10.0.0.3:80";
