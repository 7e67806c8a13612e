//! The resources of go-control-plane's mesh in the crate's watches.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::time::timeout;
use xdskit::{
    Client, Observed, ResourceSelector,
    client::Watch,
    config::Bootstrap,
    error::Code,
    resource::{
        Cluster, ClusterKind, ClusterLoadAssignment, HealthStatus, Listener, RouteConfiguration,
        listener::RouteSource,
        route_action::{ClusterChoice, RouteAction},
    },
};

use crate::{
    mesh,
    peer::{NODE, Peer, is_request},
    process::PATIENCE,
    setup::{Setup, TestClient, on, on_all, on_all_but_java_delta, on_all_ways},
};

on_all_ways! {
    every_service_leads_to_its_endpoints,
    a_canary_moves_and_an_endpoint_drains,
    a_restart_is_ridden_out,
    what_is_removed_is_not_found,
    five_thousand_clusters_by_wildcard,
}
on_all! {
    an_aggregate_names_its_clusters_in_order,
    a_shutdown_ends_the_stream,
}
// Not with java-control-plane's incremental variant; see the same in observer.rs.
on! { [
    snapshot_sotw, snapshot_delta, linear_sotw, linear_delta, java_sotw, snapshot_types_sotw, snapshot_types_delta,
    linear_types_sotw, linear_types_delta, snapshot_rest
]: a_rejected_cluster_has_an_error_with_the_reason }
on_all_but_java_delta! {
    five_thousand_clusters_by_name_cost_few_requests,
}

async fn every_service_leads_to_its_endpoints(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut endpoints = BTreeSet::new();
    for service in mesh::SERVICES {
        let listener = ready(&mut client.watch::<Listener>(service)).await;
        let routes = match &listener.api().expect("all listeners are for clients").routes {
            RouteSource::Inline(routes) => routes.clone(),
            RouteSource::Rds(routes) => {
                assert_eq!(&*routes.name, format!("{service}-routes"));
                ready(&mut client.watch::<RouteConfiguration>(&*routes.name)).await
            }
            RouteSource::Scoped(_) | _ => panic!("{service}: {listener:?}"),
        };
        for (cluster, _) in weights(&routes, service) {
            endpoints.extend(endpoints_of(&client, &cluster).await);
        }
    }
    assert_eq!(endpoints.into_iter().collect::<Vec<_>>(), mesh::addresses());
}

async fn an_aggregate_names_its_clusters_in_order(setup: Setup) {
    let peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let orders = ready(&mut client.watch::<Cluster>("orders")).await;
    let ClusterKind::Aggregate { clusters, .. } = &orders.kind else { panic!("{orders:?}") };
    assert_eq!(
        clusters.iter().map(|name| &**name).collect::<Vec<_>>(),
        ["orders-primary", "orders-fallback"]
    );
    let fallback = ready(&mut client.watch::<Cluster>("orders-fallback")).await;
    let ClusterKind::LogicalDns { address, .. } = &fallback.kind else { panic!("{fallback:?}") };
    assert_eq!(address.to_string(), "orders.fallback.example:8443");
}

async fn a_canary_moves_and_an_endpoint_drains(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    let before = ready(&mut routes).await;
    assert_eq!(weights(&before, "cart"), [("cart-stable".to_owned(), 99), ("cart-canary".to_owned(), 1)]);
    peer.command("update canary 90 10").await;
    let moved = [("cart-stable".to_owned(), 90), ("cart-canary".to_owned(), 10)];
    until(&mut routes, |seen| {
        is_good(seen) && seen.resource().is_some_and(|now| weights(now, "cart") == moved)
    })
    .await;

    let mut endpoints = client.watch::<ClusterLoadAssignment>("payments-endpoints");
    assert!(draining(&*ready(&mut endpoints).await).is_empty());
    peer.command("drain 10.1.5.3:8080").await;
    until(&mut endpoints, |seen| seen.resource().is_some_and(|now| draining(now) == ["10.1.5.3:8080"])).await;
}

async fn a_rejected_cluster_has_an_error_with_the_reason(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut payments = client.watch::<Cluster>("payments");
    let mut inventory = client.watch::<Cluster>("inventory");
    let good = ready(&mut payments).await;
    assert_ne!(ready(&mut inventory).await.max_requests, 77);

    peer.command("invalid").await;
    let seen = until(&mut payments, |seen| seen.error().is_some()).await;
    let why = seen.error().expect("it was waited for");
    assert!(seen.resource().is_some_and(|kept| Arc::ptr_eq(kept, &good)), "{seen:?}");
    assert_eq!((why.code(), why.name(), why.node_id()), (Code::InvalidArgument, "payments", NODE));
    assert!(
        why.is_rejected() && why.field().is_some_and(|field| field.contains("ring_hash_lb_config")),
        "{why}"
    );
    until(&mut inventory, |seen| is_good(seen) && seen.resource().is_some_and(|now| now.max_requests == 77))
        .await;

    peer.command("valid").await;
    until(&mut payments, is_good).await;
}

async fn a_restart_is_ridden_out(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let absent = Arc::new(Mutex::new(Vec::new()));
    let _guard = client.on_change::<Cluster, _>("payments", {
        let absent = absent.clone();
        move |seen| {
            absent
                .lock()
                .expect("nothing panics while it is held")
                .extend(seen.is_absent().then(|| seen.clone()))
        }
    });
    let mut payments = client.watch::<Cluster>("payments");
    let mut routes = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut payments).await;
    ready(&mut routes).await;
    peer.accepted("RouteConfiguration", &"1".into()).await;

    peer.command("stop").await;
    until(&mut payments, |seen| seen.error().is_some_and(|why| why.code() == Code::Unavailable)).await;
    // A new resource cannot be received now.
    let mut late = client.watch::<Cluster>("inventory");
    until(&mut late, |seen| seen.error().is_some_and(|why| why.is_transient())).await;

    peer.command("update canary 55 45").await;
    peer.command("start").await;
    until(&mut routes, |seen| {
        is_good(seen) && seen.resource().is_some_and(|now| weights(now, "cart")[0].1 == 55)
    })
    .await;
    until(&mut payments, is_good).await;
    until(&mut late, is_good).await;
    let absent = absent.lock().expect("nothing panics while it is held");
    assert!(absent.is_empty(), "{absent:?}");
}

async fn what_is_removed_is_not_found(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut listener = client.watch::<Listener>("audit");
    let mut cluster = client.watch::<Cluster>("audit");
    let mut routes = client.watch::<RouteConfiguration>("audit-routes");
    ready(&mut listener).await;
    ready(&mut cluster).await;
    ready(&mut routes).await;
    let mut other = client.watch::<RouteConfiguration>("cart-routes");
    ready(&mut other).await;
    peer.command("remove audit").await;
    until(&mut listener, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found())).await;
    until(&mut cluster, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found())).await;
    if setup.is_delta() {
        until(&mut routes, |seen| seen.is_absent() && seen.error().is_some_and(|why| why.is_not_found()))
            .await;
        return;
    }
    peer.command("update canary 55 45").await;
    until(&mut other, |seen| seen.resource().is_some_and(|now| weights(now, "cart")[0].1 == 55)).await;
    assert!(is_good(&routes.latest()), "B1.11: absence is no removal");
}

async fn five_thousand_clusters_by_wildcard(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let versions = peer.command("clusters 5000").await;
    let client = client_of(&peer);
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let total = 5000 + mesh::clusters().len();
    let members =
        within("all clusters", all.wait_for(|members| members.is_complete())).await.expect("it runs");
    assert_eq!(members.len(), total);
    assert!(members.iter().all(|(name, seen)| seen.resource().is_some_and(|cluster| cluster.name == *name)));
    peer.accepted("Cluster", &versions["Cluster"]).await;

    peer.command("set base").await;
    within("the end of most", all.wait_for(|members| present(members.iter()) == mesh::clusters().len()))
        .await
        .expect("it runs");
}

async fn five_thousand_clusters_by_name_cost_few_requests(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let versions = peer.command("clusters 5000").await;
    let client = client_of(&peer);
    ready(&mut client.watch::<Listener>("shop")).await; // a stream is there: each watch below could be a request
    let mut watches: Vec<_> = (0..5000).map(|i| client.watch::<Cluster>(format!("bulk-{i:05}"))).collect();
    for watch in &mut watches {
        ready(watch).await;
    }
    peer.event("an ACK of all", |event| {
        is_request(event, "Cluster") && event["names"] == 5000 && event["version"] == versions["Cluster"]
    })
    .await;
    let events = peer.events_for(std::time::Duration::ZERO).await;
    let names = 5000 * "bulk-00000".len() as u64;
    let bytes = |event: &Value| event["bytes"].as_u64().expect("requests have a size");
    let requests: Vec<_> = events.iter().filter(|event| is_request(event, "Cluster")).map(bytes).collect();
    assert!(requests.len() <= 40, "{requests:?}");
    assert!(requests.iter().sum::<u64>() <= 15 * names, "{requests:?}");
}

async fn a_shutdown_ends_the_stream(setup: Setup) {
    let mut peer = Peer::start(setup).await;
    let client = client_of(&peer);
    let mut shop = client.watch::<Listener>("shop");
    ready(&mut shop).await;
    within("the shutdown", client.shutdown()).await;
    peer.event("the end of the stream", |event| event["event"] == "closed").await;
    assert!(within("the end of the watch", shop.next()).await.is_none());
}

fn client_of(peer: &Peer) -> TestClient {
    let bootstrap = Bootstrap::from_json(&peer.bootstrap()).expect("the bootstrap is valid");
    peer.setup().client(Client::builder(bootstrap))
}

/// Waits for all routes of the mesh by their names. In ADS mode none is sent before all are requested.
pub(crate) async fn all_routes(client: &Client) -> BTreeMap<String, Watch<RouteConfiguration>> {
    let names = mesh::services_with_rds().into_iter().map(|service| format!("{service}-routes"));
    all_named(client, names).await
}

/// Waits for all endpoints likewise.
pub(crate) async fn all_endpoints(client: &Client) -> BTreeMap<String, Watch<ClusterLoadAssignment>> {
    let names = mesh::endpoint_clusters().into_iter().map(|cluster| format!("{cluster}-endpoints"));
    all_named(client, names).await
}

async fn all_named<T: xdskit::Resource>(
    client: &Client,
    names: impl Iterator<Item = String>,
) -> BTreeMap<String, Watch<T>> {
    let mut all: BTreeMap<_, _> = names.map(|name| (name.clone(), client.watch::<T>(name))).collect();
    for watch in all.values_mut() {
        until(watch, is_good).await;
    }
    all
}

pub(crate) async fn within<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, wait).await {
        Ok(found) => found,
        Err(_) => panic!("{what} did not come"),
    }
}

pub(crate) async fn ready<T: xdskit::Resource>(watch: &mut Watch<T>) -> Arc<T> {
    let found = timeout(PATIENCE, watch.ready()).await;
    match found {
        Ok(Ok(resource)) => resource,
        Ok(Err(why)) => panic!("{why}"),
        Err(_) => panic!("nothing came of {}", T::TYPE_URL),
    }
}

pub(crate) async fn until<T: xdskit::Resource>(
    watch: &mut Watch<T>,
    is_met: impl Fn(&Observed<T>) -> bool,
) -> Arc<Observed<T>> {
    let found = timeout(PATIENCE, watch.wait_for(is_met)).await;
    match found {
        Ok(seen) => seen.expect("the client runs"),
        Err(_) => panic!("what was waited for did not come; the latest is {:?}", watch.latest()),
    }
}

pub(crate) fn is_good<T>(seen: &Observed<T>) -> bool {
    seen.is_present() && seen.error().is_none()
}

fn present<'a>(members: impl Iterator<Item = (&'a Arc<str>, &'a Observed<Cluster>)>) -> usize {
    members.filter(|(_, seen)| seen.is_present()).count()
}

/// The clusters of the service's last route, with their weights.
pub(crate) fn weights(routes: &RouteConfiguration, service: &str) -> Vec<(String, u32)> {
    let host = routes.virtual_host(service).unwrap_or_else(|| panic!("no virtual host in {routes:?}"));
    let last = host.routes.last().expect("each service has a route");
    let RouteAction::Forward(action) = &last.action else { panic!("{last:?}") };
    match &action.clusters {
        ClusterChoice::Cluster(name) => vec![(name.to_string(), 1)],
        ClusterChoice::WeightedClusters(weighted) => {
            let clusters = weighted.clusters.iter();
            clusters.map(|cluster| (cluster.name.to_string(), cluster.weight)).collect()
        }
        ClusterChoice::Plugin(plugin) => panic!("{service} has no plugins, and there is {plugin:?}"),
        other => panic!("{other:?}"),
    }
}

/// The addresses of a cluster, or of the clusters that it aggregates, with their ports.
async fn endpoints_of(client: &Client, name: &str) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    let mut all = Vec::new();
    while let Some(name) = names.pop() {
        match &ready(&mut client.watch::<Cluster>(&name)).await.kind {
            ClusterKind::Eds { service_name, .. } => {
                assert_eq!(**service_name, format!("{name}-endpoints"));
                let endpoints = ready(&mut client.watch::<ClusterLoadAssignment>(service_name)).await;
                all.extend(addresses(&endpoints, |_| true));
            }
            ClusterKind::Aggregate { clusters, .. } => names.extend(clusters.iter().map(ToString::to_string)),
            ClusterKind::LogicalDns { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    all
}

fn draining(endpoints: &ClusterLoadAssignment) -> Vec<String> {
    addresses(endpoints, |health| health == HealthStatus::Draining)
}

fn addresses(endpoints: &ClusterLoadAssignment, includes: impl Fn(HealthStatus) -> bool) -> Vec<String> {
    let localities = endpoints.priorities.iter().flat_map(|priority| priority.localities.iter());
    let all = localities.flat_map(|locality| locality.endpoints.iter());
    all.filter(|endpoint| includes(endpoint.health)).map(|endpoint| endpoint.address().to_string()).collect()
}
