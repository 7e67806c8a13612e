//! The resolution of targets in go-control-plane's mesh, by the crate.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::oneshot, task::JoinHandle};
use xdskit::{
    Client, Resolution, RouteQuery, Snapshot, WatchError,
    client::{Addresses, Dns, Lookup},
    config::Bootstrap,
    error::Code,
    resolve::ClusterView,
    resource::ClusterKind,
};

use crate::{
    library::within,
    mesh,
    peer::Peer,
    setup::{Setup, TestClient, on, on_all, on_all_ways},
};

on_all_ways! {
    a_canary_moves_from_0_to_100_without_a_torn_snapshot,
    a_renamed_cluster_is_never_missed,
    a_tree_outlives_its_server_and_follows_it_when_it_is_back,
    a_target_that_is_removed_or_never_existed_is_an_error,
}
on_all! {
    every_service_is_walked_to_its_endpoints,
    a_renamed_route_configuration_is_never_missed,
    an_aggregate_fails_over_and_back,
}
// Not with java-control-plane, which does not send a resource again after an unsubscription and a new subscription at
// the same version.
on! { [snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_delta]: routes_to_a_missing_cluster_wait_for_it_and_then_have_an_error }

async fn every_service_is_walked_to_its_endpoints(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut endpoints = BTreeSet::new();
    let mut clusters = BTreeSet::new();
    for service in mesh::SERVICES {
        let snapshot = ready(&mut client.resolve(format!("xds:///{service}"))).await;
        assert_eq!((&*snapshot.listener().name, snapshot.authority()), (service, service));
        assert_eq!(*snapshot.route_config().name, format!("{service}-routes"));
        assert_eq!(*snapshot.virtual_host().name, *service);
        assert_whole(&snapshot);
        assert_eq!(snapshot.warnings().count(), 0, "{service}");
        clusters.extend(snapshot.clusters().map(|cluster| cluster.name().to_owned()));
        let hosts = |cluster: &ClusterView<'_>| matches!(cluster.kind(), Some(ClusterKind::Eds { .. }));
        endpoints.extend(snapshot.clusters().filter(hosts).flat_map(addresses));
    }
    assert_eq!(clusters.into_iter().collect::<Vec<_>>(), mesh::clusters());
    assert_eq!(endpoints.into_iter().collect::<Vec<_>>(), mesh::addresses());
}

async fn a_canary_moves_from_0_to_100_without_a_torn_snapshot(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let services = ["shop", "cart", "checkout"]; // the first has its routes in the listener
    for service in services {
        peer.command(&format!("canary {service} 0")).await;
    }
    let observers = services.map(|service| {
        let resolution = client.resolve(format!("xds:///{service}"));
        Observer::start(resolution, move |snapshot| {
            assert_whole(snapshot);
            weights(snapshot)
        })
    });
    let mut shown: Vec<_> =
        services.iter().map(|service| client.resolve(format!("xds:///{service}"))).collect();
    let mut steps = vec![(100, 0)];
    for canary in [1, 5, 10, 25, 50, 75, 99, 100] {
        steps.push((100 - canary, canary));
        for service in services {
            peer.command(&format!("canary {service} {canary}")).await;
        }
        // Two of three steps follow each other without a pause.
        if steps.len() % 3 == 0 || canary == 100 {
            for (service, resolution) in services.iter().zip(&mut shown) {
                let expected = named(service, (100 - canary, canary));
                until(resolution, |snapshot| weights(snapshot) == expected).await;
            }
        }
    }
    for (service, observer) in services.iter().zip(observers) {
        let seen = observer.stop().await;
        let steps: Vec<_> = steps.iter().map(|step| named(service, *step)).collect();
        let places = seen.iter().map(|weights| {
            let place = steps.iter().position(|step| step == weights);
            place.unwrap_or_else(|| panic!("{service}: {weights:?} is none of the steps"))
        });
        assert!(places.is_sorted(), "{service} went back: {seen:?}");
        assert_eq!(seen.last(), steps.last());
    }
}

async fn a_renamed_cluster_is_never_missed(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    // Of a route configuration, of a listener, and below an aggregate.
    let clusters = [("payments", "payments"), ("email", "email"), ("orders", "orders-primary")];
    let observers = clusters.map(|(service, _)| {
        let own = mesh::addresses_of(service);
        Observer::start(client.resolve(format!("xds:///{service}")), move |snapshot| {
            assert_whole(snapshot);
            assert_eq!(used(snapshot), own);
        })
    });
    let mut shown = clusters.map(|(service, _)| client.resolve(format!("xds:///{service}")));
    for round in 1..=8 {
        for ((_, cluster), resolution) in clusters.iter().zip(&mut shown) {
            let name = format!("{cluster}-{round}");
            peer.command(&format!("rename {cluster} {name}")).await;
            let others =
                |snapshot: &Snapshot| snapshot.clusters().any(|other| is_older(other.name(), cluster, &name));
            until(resolution, |snapshot| snapshot.cluster(&name).is_some() && !others(snapshot)).await;
        }
    }
    for observer in observers {
        assert!(!observer.stop().await.is_empty());
    }
}

async fn a_renamed_route_configuration_is_never_missed(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let observer = Observer::start(client.resolve("xds:///payments"), assert_whole);
    let mut payments = client.resolve("xds:///payments");
    ready(&mut payments).await;
    for round in 1..=8 {
        let name = format!("payments-routes-{round}");
        peer.command(&format!("reroute payments {name}")).await;
        until(&mut payments, |snapshot| *snapshot.route_config().name == *name).await;
    }
    assert!(!observer.stop().await.is_empty());
}

async fn routes_to_a_missing_cluster_wait_for_it_and_then_have_an_error(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = impatient_client_of(&peer);
    let mut users = client.resolve("xds:///users");
    let mut ratings = client.resolve("xds:///ratings");
    until(&mut users, |_| true).await;
    let other = until(&mut ratings, |_| true).await;

    peer.command("lose users").await;
    // The old routes stay in use until the timer of the missing cluster expires.
    let lost = within("the missing cluster", users.next()).await.expect("the client runs");
    let lost = lost.expect("the target is there");
    let route = lost.route(&RouteQuery::new("/users.Users/Get", 0)).expect("there is a route");
    let cluster = route.pick_cluster().expect("a cluster that there is not is in the snapshot, too");
    let why = cluster.error().expect("there is no such cluster");
    assert_eq!((cluster.name(), why.name(), why.code()), ("users-lost", "users-lost", Code::NotFound));
    assert!(cluster.first_usable_priority().is_none() && cluster.endpoints().next().is_none());
    assert!(lost.cluster("users").is_none(), "nothing leads to it any more");

    peer.command("find users").await;
    let found = until(&mut users, |snapshot| snapshot.cluster("users").is_some()).await;
    assert_whole(&found);
    assert!(found.cluster("users-lost").is_none());
    let latest = ratings.latest().expect("it is known").expect("it is there");
    assert!(Arc::ptr_eq(&latest, &other), "others are not concerned");
}

async fn an_aggregate_fails_over_and_back(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut orders = client.resolve("xds:///orders");
    let primary = mesh::addresses_of("orders");
    let snapshot = ready(&mut orders).await;
    assert_eq!(used(&snapshot), primary);
    let leaves = |snapshot: &Snapshot| {
        let orders = snapshot.cluster("orders").expect("routes lead to it");
        orders.leaves().map(|leaf| leaf.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(leaves(&snapshot), ["orders-primary", "orders-fallback"]);
    for _ in 0..3 {
        peer.command("fail orders-primary").await;
        let failed = until(&mut orders, |snapshot| used(snapshot) != primary).await;
        assert_eq!(used(&failed), [format!("{FALLBACK}:8443")]);
        assert_eq!(leaves(&failed), leaves(&snapshot));
        assert_whole(&failed);
        peer.command("heal orders-primary").await;
        let healed = until(&mut orders, |snapshot| used(snapshot) == primary).await;
        assert_whole(&healed);
    }
    // Without any address of the fallback there are no endpoints, and the reason is that of the fallback.
    peer.command("fail orders-primary").await;
    peer.command("fallback nowhere.example").await;
    let gone = until(&mut orders, |snapshot| used(snapshot).is_empty()).await;
    let fallback = gone.cluster("orders-fallback").expect("the aggregate leads to it");
    assert!(
        fallback.error().is_none() && fallback.endpoints_error().is_some_and(|why| why.is_transient()),
        "{fallback:?}"
    );
}

async fn a_tree_outlives_its_server_and_follows_it_when_it_is_back(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let observer = Observer::start(client.resolve("xds:///cart"), assert_whole);
    let mut cart = client.resolve("xds:///cart");
    ready(&mut cart).await;
    peer.command("stop").await;
    let stale =
        until(&mut cart, |snapshot| snapshot.warnings().any(|why| why.code() == Code::Unavailable)).await;
    assert_eq!(weights(&stale), named("cart", (99, 1)));
    let late = within("the reason", client.resolve("xds:///audit").next()).await.expect("the client runs");
    assert!(late.is_err_and(|why| why.code() == Code::Unavailable));

    peer.command("canary cart 30").await;
    peer.command("rename cart-stable cart-new").await;
    peer.command("start").await;
    let moved = [("cart-new".to_owned(), 70), ("cart-canary".to_owned(), 30)];
    until(&mut cart, |snapshot| weights(snapshot) == moved && snapshot.warnings().next().is_none()).await;
    observer.stop().await;
}

async fn a_target_that_is_removed_or_never_existed_is_an_error(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut audit = client.resolve("xds:///audit");
    ready(&mut audit).await;
    peer.command("remove audit").await;
    // Its routes may be removed before it.
    let wait = audit.wait_for(|seen| seen.as_ref().is_err_and(|why| why.name() == "audit"));
    let gone = within("an error", wait).await.expect("the client runs");
    assert!(gone.is_err_and(|why| why.code() == Code::NotFound));
    let never = until_error(&mut impatient_client_of(&peer).resolve("xds:///no-such-service")).await;
    assert_eq!((never.code(), never.name()), (Code::NotFound, "no-such-service"));

    peer.command("set base").await;
    // The listener may be sent before the restored cluster.
    let back = until(&mut audit, |snapshot| used(snapshot) == mesh::addresses_of("audit")).await;
    assert_whole(&back);
}

/// Checks every snapshot that a resolution yields, in a task of its own.
struct Observer<T> {
    task: JoinHandle<Vec<T>>,
    end: oneshot::Sender<Infallible>,
}

impl<T: Send + 'static> Observer<T> {
    /// Fails the test when there is no snapshot, or `look` panics.
    fn start(mut resolution: Resolution, look: impl Fn(&Snapshot) -> T + Send + 'static) -> Self {
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                tokio::select! {
                    biased;
                    next = resolution.next() => match next.expect("the client runs") {
                        Ok(snapshot) => seen.push(look(&snapshot)),
                        Err(why) => panic!("after {} snapshots: {why}", seen.len()),
                    },
                    _ = &mut ended => return seen,
                }
            }
        });
        Self { task, end }
    }

    /// Returns all results, up to the latest.
    async fn stop(self) -> Vec<T> {
        drop(self.end);
        within("the observer", self.task).await.expect("what it saw was right")
    }
}

/// The only DNS host.
#[derive(Debug)]
pub(crate) struct Hosts;

impl Dns for Hosts {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            match host {
                "orders.fallback.example" => Ok(Addresses::new([IpAddr::V4(FALLBACK)])),
                _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
            }
        })
    }
}

fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap).dns(Hosts))
}

/// A client with a resource timeout of three seconds.
fn impatient_client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap).resource_timeout(Duration::from_secs(3)))
}

pub(crate) async fn ready(resolution: &mut Resolution) -> Arc<Snapshot> {
    within("a snapshot", resolution.ready()).await.unwrap_or_else(|why| panic!("{why}"))
}

pub(crate) async fn until(resolution: &mut Resolution, is_met: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    let wait = resolution.wait_for(|seen| seen.as_ref().is_ok_and(|snapshot| is_met(snapshot)));
    let found = within("the snapshot that was waited for", wait).await;
    found.expect("the client runs").expect("it was a snapshot that was waited for")
}

async fn until_error(resolution: &mut Resolution) -> WatchError {
    let found = within("an error", resolution.wait_for(Result::is_err)).await;
    found.expect("the client runs").expect_err("it was an error that was waited for")
}

/// Checks that all clusters of routes are in the snapshot and usable.
fn assert_whole(snapshot: &Snapshot) {
    for route in &snapshot.virtual_host().routes {
        let names: Vec<_> = route.action.clusters().collect();
        assert!(!names.is_empty(), "{route:?}");
        for name in names {
            let cluster = snapshot.cluster(name).unwrap_or_else(|| panic!("{name} is not in {snapshot:?}"));
            assert!(cluster.unusable_reason().is_none(), "{cluster:?}");
            assert!(cluster.first_usable_priority().is_some(), "{cluster:?} has no endpoints");
        }
    }
}

/// The weighted clusters of requests to the target's host.
pub(crate) fn weights(snapshot: &Snapshot) -> Vec<(String, u32)> {
    let route = snapshot.route(&RouteQuery::new("/any.Service/Call", 0)).expect("each service has a route");
    route.weighted_clusters().map(|(weight, cluster)| (cluster.name().to_owned(), weight)).collect()
}

/// The weights of a service in a snapshot: clusters without weight are omitted.
fn named(service: &str, (stable, canary): (u32, u32)) -> Vec<(String, u32)> {
    let both = [(format!("{service}-stable"), stable), (format!("{service}-canary"), canary)];
    both.into_iter().filter(|(_, weight)| *weight > 0).collect()
}

/// The addresses of a target with one cluster, sorted as text.
fn used(snapshot: &Snapshot) -> Vec<String> {
    let route = snapshot.route(&RouteQuery::new("/any.Service/Call", 0)).expect("each service has a route");
    let cluster = route.pick_cluster().expect("it leads to a cluster");
    let priority = cluster.first_usable_priority().into_iter();
    let mut all: Vec<_> = priority
        .flat_map(|first| first.usable_endpoints().map(|endpoint| endpoint.address().to_string()))
        .collect();
    all.sort();
    all
}

fn addresses(cluster: ClusterView<'_>) -> Vec<String> {
    cluster.usable_endpoints_of_all_priorities().map(|endpoint| endpoint.address().to_string()).collect()
}

/// Whether a cluster has an older name of `cluster` than the newest.
fn is_older(name: &str, cluster: &str, newest: &str) -> bool {
    name.starts_with(cluster) && name != newest && name != "orders" && name != "orders-fallback"
}

const FALLBACK: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
