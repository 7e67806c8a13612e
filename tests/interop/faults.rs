//! Faults of go-control-plane: crashes, freezes, replacements, a bad network, and fallback to another server.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use xdskit::{
    Client, Resource, ResourceSelector,
    client::{ChangeGuard, Members},
    config::{Bootstrap, Node, Polling, Server},
    error::Code,
    resource::{Cluster, ClusterLoadAssignment, Listener, RouteConfiguration},
    testing::{Direction, FaultyProxy},
};

use crate::{
    library::{all_endpoints, all_routes, is_good, ready, until, weights, within},
    mesh,
    peer::{NODE, Peer, REFRESH, is_request},
    setup::{Setup, TestClient, on, on_all, on_all_but_java_delta},
};

on! { [
    snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw, java_delta, snapshot_types_sotw, linear_types_delta,
    snapshot_rest
]: killed_and_restarted_with_the_same_content_it_changes_nothing }
on_all! {
    frozen_it_is_given_up_and_resumed_it_serves,
    a71_the_fallback_serves_until_the_primary_is_there,
    a71_with_everything_cached_a_dead_primary_is_waited_for,
    a_network_that_cuts_delays_and_swallows_loses_nothing,
}
// java-control-plane ignores the initial versions of a client.
on_all_but_java_delta! {
    replaced_by_one_with_other_content_what_it_lacks_is_gone_and_all_else_is_new,
}
// In ADS mode, too, since all names of a type are watched.
on! { [snapshot_sotw, snapshot_delta, ads_sotw, ads_delta, linear_sotw, linear_delta]:
    a_frozen_primary_is_left_for_the_fallback_and_returned_to,
    a71_a_primary_that_is_back_in_the_same_version_is_returned_to,
}
on! { [snapshot_sotw, java_sotw]: go1_rejections_are_paced_and_a_fixed_snapshot_comes_with_the_next }

async fn killed_and_restarted_with_the_same_content_it_changes_nothing(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(setup, [peer.addr()]);
    let seen = Seen::default();
    let _guard = seen.note::<RouteConfiguration>(&client, "cart-routes");
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    let mut listener = client.watch::<Listener>("shop");
    let before = ready(&mut routes).await;
    ready(&mut listener).await;
    peer.accepted("RouteConfiguration", &"1".into()).await;
    let port = peer.kill().await;
    until(&mut routes, |seen| seen.error().is_some()).await;
    let mut peer = Peer::start_on(setup, port).await;
    let after = until(&mut routes, is_good).await;
    assert!(after.resource().is_some_and(|after| Arc::ptr_eq(after, &before)), "the very same");
    until(&mut listener, is_good).await;
    peer.event("who holds it", |event| {
        let holds = if setup.is_delta() { event["held"] == 1 } else { event["version"] == "1" };
        is_request(event, "RouteConfiguration") && event["nonce"] == "" && holds
    })
    .await;
    seen.expect_no_loss();
}

async fn replaced_by_one_with_other_content_what_it_lacks_is_gone_and_all_else_is_new(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(setup, [peer.addr()]);
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    let mut bulk = client.watch::<Cluster>("bulk-00001");
    let mut payments = client.watch::<Cluster>("payments");
    peer.command("clusters 3").await;
    ready(&mut routes).await;
    until(&mut bulk, is_good).await;
    ready(&mut payments).await;
    let port = peer.kill().await;
    until(&mut bulk, |seen| seen.error().is_some()).await;
    // It counts its versions from 1 again, and does not have this cluster.
    let mut peer = Peer::start_on(setup, port).await;
    peer.command("update canary 61 39").await;
    let gone =
        until(&mut bulk, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found())).await;
    assert!(gone.error().is_some_and(|why| why.reason().contains("has deleted it")), "{gone:?}");
    until(&mut routes, |seen| is_good(seen) && canary(seen.resource()) == Some(39)).await;
    until(&mut payments, is_good).await;
}

async fn frozen_it_is_given_up_and_resumed_it_serves(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(setup, [peer.addr()]);
    let seen = Seen::default();
    let _guard = seen.note::<RouteConfiguration>(&client, "cart-routes");
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut routes).await;
    peer.freeze();
    let stale = until(&mut routes, |seen| seen.error().is_some()).await;
    let why = stale.error().expect("it was waited for");
    assert!(stale.is_present() && why.code() == Code::Unavailable && why.is_transient(), "{stale:?}");
    for part in ["keep-alive timed out", "accepts connections but sends nothing", &peer.addr().to_string()] {
        assert!(why.reason().contains(part), "{part:?} is not in {why}");
    }
    // A new request has to wait.
    let mut late = client.watch::<Cluster>("payments");
    until(&mut late, |seen| seen.error().is_some_and(|why| why.is_transient())).await;
    peer.thaw();
    until(&mut routes, is_good).await;
    until(&mut late, is_good).await;
    peer.command("update canary 61 39").await;
    until(&mut routes, |seen| canary(seen.resource()) == Some(39)).await;
    seen.expect_no_loss();
}

async fn a71_the_fallback_serves_until_the_primary_is_there(setup: Setup) {
    let port = Peer::start(setup).await.kill().await;
    let mut fallback = Peer::start(setup).await;
    fallback.command("update canary 70 30").await;
    let client = client_of(setup, [([127, 0, 0, 1], port).into(), fallback.addr()]);
    let seen = Seen::default();
    let _guard = seen.note::<RouteConfiguration>(&client, "cart-routes");
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    assert_eq!(canary(Some(&ready(&mut routes).await)), Some(30));
    let mut late = client.watch::<ClusterLoadAssignment>("payments-endpoints");
    ready(&mut late).await;

    let mut primary = Peer::start_on(setup, port).await;
    until(&mut routes, |seen| is_good(seen) && canary(seen.resource()) == Some(1)).await;
    fallback.event("the end of its stream", |event| event["event"] == "closed").await;
    // Resources first watched during the fallback are the primary's now, too.
    primary.accepted("ClusterLoadAssignment", &"1".into()).await;
    primary.command("drain 10.1.5.3:8080").await;
    let drained =
        |seen: &xdskit::Observed<ClusterLoadAssignment>| is_good(seen) && has_drained(seen.resource());
    until(&mut late, drained).await;
    seen.expect_no_loss();
}

async fn a71_with_everything_cached_a_dead_primary_is_waited_for(setup: Setup) {
    let (mut primary, mut fallback) = (Peer::start(setup).await, Peer::start(setup).await);
    fallback.command("update canary 70 30").await;
    let client = client_of(setup, [primary.addr(), fallback.addr()]);
    let seen = Seen::default();
    let _guard = seen.note::<RouteConfiguration>(&client, "cart-routes");
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut routes).await;
    primary.accepted("RouteConfiguration", &"1".into()).await;
    let port = primary.kill().await;
    let stale = until(&mut routes, |seen| seen.error().is_some()).await;
    assert_eq!(canary(stale.resource()), Some(1), "A71-6: the resource of the primary stays");
    assert!(fallback.events_for(Duration::ZERO).await.iter().all(|event| event["event"] != "opened"));

    // A watch of an unknown resource triggers the fallback, for everything.
    let mut late = client.watch::<ClusterLoadAssignment>("payments-endpoints");
    ready(&mut late).await;
    until(&mut routes, |seen| is_good(seen) && canary(seen.resource()) == Some(30)).await;
    let mut primary = Peer::start_on(setup, port).await;
    primary.command("update canary 80 20").await;
    until(&mut routes, |seen| is_good(seen) && canary(seen.resource()) == Some(20)).await;
    until(&mut late, is_good).await;
    seen.expect_no_loss();
}

/// The kernel of a frozen server accepts connections.
async fn a_frozen_primary_is_left_for_the_fallback_and_returned_to(setup: Setup) {
    let (mut primary, mut fallback) = (Peer::start(setup).await, Peer::start(setup).await);
    fallback.command("update canary 70 30").await;
    let client = client_of(setup, [primary.addr(), fallback.addr()]);
    let seen = Seen::default();
    let _guard = seen.note::<RouteConfiguration>(&client, "cart-routes");
    let mut routes = all_routes(&client).await;
    let cart = routes.get_mut("cart-routes").expect("it is watched");
    primary.accepted("RouteConfiguration", &"1".into()).await;
    primary.freeze();
    // None of these is cached (A71-6).
    let mut endpoints = all_endpoints(&client).await;
    until(cart, |seen| is_good(seen) && canary(seen.resource()) == Some(30)).await;
    primary.thaw();
    until(cart, |seen| is_good(seen) && canary(seen.resource()) == Some(1)).await;
    fallback.event("the end of its stream", |event| event["event"] == "closed").await;
    primary.command("drain 10.1.5.3:8080").await;
    let payments = endpoints.get_mut("payments-endpoints").expect("it is watched");
    until(payments, |seen| is_good(seen) && has_drained(seen.resource())).await;
    seen.expect_no_loss();
}

/// A server sends nothing to a client with the current version.
async fn a71_a_primary_that_is_back_in_the_same_version_is_returned_to(setup: Setup) {
    let (mut primary, mut fallback) = (Peer::start(setup).await, Peer::start(setup).await);
    fallback.command("update canary 70 30").await;
    fallback.command("clusters 2").await;
    let client = client_of(setup, [primary.addr(), fallback.addr()]);
    let mut routes = all_routes(&client).await;
    let cart = routes.get_mut("cart-routes").expect("it is watched");
    let mut clusters = client.watch_all::<Cluster>(ResourceSelector::All);
    let is_of = |bulk: usize| {
        move |all: &Members<Cluster>| {
            let present = all.iter().filter(|(_, seen)| is_good(seen)).count();
            all.is_complete() && present == mesh::clusters().len() + bulk
        }
    };
    within("all clusters", clusters.wait_for(is_of(0))).await.expect("it runs");
    primary.accepted("RouteConfiguration", &"1".into()).await;
    primary.accepted("Cluster", &"1".into()).await;
    let port = primary.kill().await;
    let _endpoints = all_endpoints(&client).await;
    within("the fallback's clusters", clusters.wait_for(is_of(2))).await.expect("it runs");
    until(cart, |seen| is_good(seen) && canary(seen.resource()) == Some(30)).await;
    let _primary = Peer::start_on(setup, port).await;
    within("the primary's clusters", clusters.wait_for(is_of(0))).await.expect("it runs");
    until(cart, |seen| is_good(seen) && canary(seen.resource()) == Some(1)).await;
    fallback.event("the end of its stream", |event| event["event"] == "closed").await;
}

async fn a_network_that_cuts_delays_and_swallows_loses_nothing(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let proxy = FaultyProxy::start(peer.addr()).await;
    let client = client_of(setup, [proxy.addr()]);
    let seen = Seen::default();
    let _guard = seen.note::<RouteConfiguration>(&client, "cart-routes");
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut routes).await;
    for (round, bytes) in [1, 20, 100, 250].into_iter().enumerate() {
        proxy.cut_after(bytes);
        let weight = 10 + round as u32;
        peer.command(&format!("update canary {} {weight}", 100 - weight)).await;
        within("the cut", proxy.expect_cut()).await;
        until(&mut routes, |seen| is_good(seen) && canary(seen.resource()) == Some(weight)).await;
    }
    // A short delay has no effect.
    proxy.stall(Direction::ToClient);
    peer.command("update canary 70 30").await;
    proxy.resume(Direction::ToClient);
    let late = until(&mut routes, |seen| canary(seen.resource()) == Some(30)).await;
    assert!(late.error().is_none());
    // A black hole is detected by the keepalive.
    [Direction::ToClient, Direction::ToServer].into_iter().for_each(|direction| proxy.stall(direction));
    peer.command("update canary 60 40").await;
    let stale = until(&mut routes, |seen| seen.error().is_some()).await;
    assert_eq!(canary(stale.resource()), Some(30));
    [Direction::ToClient, Direction::ToServer].into_iter().for_each(|direction| proxy.resume(direction));
    until(&mut routes, |seen| is_good(seen) && canary(seen.resource()) == Some(40)).await;
    seen.expect_no_loss();
}

/// go-control-plane sends a rejected response again after each NACK.
async fn go1_rejections_are_paced_and_a_fixed_snapshot_comes_with_the_next(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(setup, [peer.addr()]);
    let mut payments = client.watch::<Cluster>("payments");
    ready(&mut payments).await;
    peer.command("invalid").await;
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut at = Vec::new();
    while let Some(event) = peer.next_event(deadline).await {
        if is_rejection(&event) {
            at.push(Instant::now());
        }
    }
    assert!((3..=8).contains(&at.len()), "{} rejections in 5 s", at.len());
    let pauses: Vec<_> = at.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(pauses[0] >= Duration::from_millis(100), "the same response again has to wait: {pauses:?}");
    assert!(pauses[pauses.len() - 1] > 2 * pauses[0], "longer and longer: {pauses:?}");

    peer.command("valid").await;
    until(&mut payments, is_good).await;
    let rejections = peer.events_for(Duration::ZERO).await.iter().filter(|event| is_rejection(event)).count();
    // The first of them may have been read with the acknowledgement of the command.
    assert!(rejections <= at.len() + 2, "{rejections} in all, {} before it was fixed", at.len());
}

/// The states of a resource that existed before and is reported as absent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    lost: Arc<Mutex<Vec<String>>>,
}

impl Seen {
    /// Records each state of a resource.
    pub(crate) fn note<T: Resource>(&self, client: &Client, name: &str) -> ChangeGuard {
        let (lost, mut was_there) = (self.lost.clone(), false);
        client.on_change::<T, _>(name, move |seen| {
            if was_there && !seen.is_present() {
                lost.lock().expect("nothing panics while it is held").push(format!("{:?}", seen.error()));
            }
            was_there |= seen.is_present();
        })
    }

    pub(crate) fn expect_no_loss(&self) {
        let lost = self.lost.lock().expect("nothing panics while it is held");
        assert!(lost.is_empty(), "{lost:?}");
    }
}

/// A client of one server, or of several in fallback order, that detects a dead connection within two seconds.
fn client_of(setup: Setup, servers: impl IntoIterator<Item = std::net::SocketAddr>) -> TestClient {
    let server = |addr: std::net::SocketAddr| {
        let server = Server::new(addr.to_string()).insecure().api_type(setup.api_type);
        if setup.is_rest() { server.polling(Polling::every(REFRESH)) } else { server }
    };
    let node = Bootstrap::builder().node(Node::new(NODE));
    let bootstrap = servers.into_iter().fold(node, |bootstrap, addr| bootstrap.server(server(addr)));
    let builder = Client::builder(bootstrap.build().expect("the bootstrap is valid"));
    setup.client(
        builder.keep_alive_interval(Duration::from_secs(1)).keep_alive_timeout(Duration::from_secs(1)),
    )
}

/// The percentage of requests to the canary of the service cart.
fn canary(routes: Option<&Arc<RouteConfiguration>>) -> Option<u32> {
    Some(weights(routes?, "cart")[1].1)
}

fn has_drained(endpoints: Option<&Arc<ClusterLoadAssignment>>) -> bool {
    endpoints.is_some_and(|all| {
        all.endpoints().any(|endpoint| endpoint.health == xdskit::resource::HealthStatus::Draining)
    })
}

fn is_rejection(event: &serde_json::Value) -> bool {
    is_request(event, "Cluster") && !event["error"].is_null()
}
