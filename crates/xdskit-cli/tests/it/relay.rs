//! The relay: one subscription for any number of clients.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::Value;
use xdskit::{
    Client, Observed, Resource, ResourceSelector,
    client::{Watch, WatchAll},
    config::{ApiType, Bootstrap, Node, Server as Upstream},
    control_plane::{
        AnyResource,
        type_url::{CLUSTER, ENDPOINTS, VIRTUAL_HOST},
    },
    error::Code,
    pb::envoy::config::route::v3::VirtualHost as VirtualHostMessage,
    resource::{Cluster, ClusterKind, ClusterLoadAssignment, Context, Invalid, Listener, VirtualHost},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

use super::{Server, process::Process};
use crate::control_plane::sequences;

/// A relay of a control plane's resources, and its address.
async fn start(server: &Server, options: &str) -> (Process, String) {
    let mut relay =
        Process::start("relay", server.args(&format!("--listen 127.0.0.1:0 --json --report 0.1 {options}")));
    let addr = relay.json().await["listening"].as_str().expect("the address").to_owned();
    (relay, addr)
}

fn client(addr: &str, api_type: ApiType) -> Client {
    let server = Upstream::new(format!("http://{addr}")).insecure();
    let bootstrap =
        Bootstrap::builder().node(Node::new("client")).server(server).build().expect("a bootstrap");
    Client::builder(bootstrap).api_type(api_type).build().expect("a client")
}

/// Alternates between both variants.
fn variant(number: usize) -> ApiType {
    if number.is_multiple_of(2) { ApiType::AggregatedGrpc } else { ApiType::AggregatedDeltaGrpc }
}

fn noted(name: &str, note: &str) -> AnyResource {
    cluster(name).eds_service(note).into()
}

fn note(seen: &Observed<Cluster>) -> Option<&str> {
    match &seen.resource()?.kind {
        ClusterKind::Eds { service_name, .. } => Some(service_name),
        ClusterKind::LogicalDns { .. } | ClusterKind::Aggregate { .. } | _ => None,
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it takes too long")
}

/// Checks that all watches receive a note, or the absence of the resource.
async fn all_see(watches: impl IntoIterator<Item = &mut Watch<Cluster>>, expected: Option<&str>) {
    let waits = watches.into_iter().map(|watch| {
        watch.wait_for(|seen| match expected {
            Some(_) => note(seen) == expected,
            None => seen.is_absent(),
        })
    });
    for seen in soon(join_all(waits)).await {
        let seen = seen.expect("the client runs");
        assert!(
            expected.is_some() || seen.error().map(|error| error.code()) == Some(Code::NotFound),
            "{seen:?}"
        );
    }
}

fn number(report: &Value, side: &str, key: &str) -> u64 {
    report[side][key].as_u64().unwrap_or_else(|| panic!("no {side} {key} in {report}"))
}

/// A relay with 200 clients, half of them of each variant. Each watches a common cluster and one of ten, and some
/// watch all endpoints.
struct Crowd {
    relay: Process,
    addr: String,
    shared: Vec<Watch<Cluster>>,
    own: Vec<Watch<Cluster>>,
    wildcards: Vec<WatchAll<ClusterLoadAssignment>>,
}

impl Crowd {
    async fn start(server: &Server) -> Self {
        let upstream = &server.control_plane;
        upstream.set(noted("shared", "1"));
        for number in 0..10 {
            upstream.set(noted(&format!("c{number}"), "1"));
        }
        upstream.set(endpoints("eds").locality("eu", "a", ["10.0.0.1:80"]));
        let (relay, addr) = start(server, "").await;
        let clients: Vec<_> = (0..200).map(|number| client(&addr, variant(number))).collect();
        let own = |(number, client): (usize, &Client)| client.watch::<Cluster>(format!("c{}", number % 10));
        let mut crowd = Self {
            relay,
            addr,
            shared: clients.iter().map(|client| client.watch("shared")).collect(),
            own: clients.iter().enumerate().map(own).collect(),
            wildcards: clients
                .iter()
                .step_by(20)
                .map(|client| client.watch_all(ResourceSelector::All))
                .collect(),
        };
        all_see(&mut crowd.shared, Some("1")).await;
        all_see(&mut crowd.own, Some("1")).await;
        for wildcard in &mut crowd.wildcards {
            assert_eq!(soon(wildcard.ready()).await.expect("endpoints").len(), 1);
        }
        crowd
    }

    /// Returns the next report in which a figure has reached a number.
    async fn report(&mut self, side: &str, key: &str, reached: u64) -> Value {
        soon(self.relay.json_until(|report| number(report, side, key) >= reached)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_are_served_from_one_subscription_to_each_name() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    let mut crowd = Crowd::start(&server).await;
    let subscriptions = upstream.control_plane().subscriptions();
    assert_eq!((subscriptions.len(), subscriptions.total()), (12, 12));
    assert_eq!(upstream.clients(), 2, "a stream for names and one for collections");
    assert!(subscriptions.iter().any(|(type_url, name, _)| (type_url, name) == (ENDPOINTS, "*")));
    // Under load, updates may be repeated to clients that are there before all others are.
    let is_complete = |report: &Value| {
        let reached = [("streams", 200), ("subscriptions", 410), ("updates", 410)];
        reached.into_iter().all(|(key, count)| number(report, "downstream", key) >= count)
    };
    let report = soon(crowd.relay.json_until(is_complete)).await;
    let down = |key| number(&report, "downstream", key);
    assert_eq!([down("streams"), down("subscriptions"), down("names"), down("removals")], [200, 410, 12, 0]);
    let up = |key| number(&report, "upstream", key);
    assert_eq!([up("subscriptions"), up("resources"), up("updates"), up("stale")], [12, 12, 12, 0]);
    assert!(down("bytes") > 20 * up("bytes"), "{report}");

    // An update of one resource reaches its watches, with its version.
    upstream.set(noted("shared", "2"));
    all_see(&mut crowd.shared, Some("2")).await;
    let version = upstream.version(CLUSTER);
    let Observed::Present { version: seen, .. } = &*crowd.shared[1].latest() else { panic!("it is there") };
    assert_eq!(seen.as_str(), version, "the upstream's own, in the incremental variant");
    assert_eq!(note(&crowd.own[1].latest()), Some("1"));
    // So does a removal.
    upstream.remove(CLUSTER, "shared");
    all_see(&mut crowd.shared, None).await;
    let report = crowd.report("upstream", "removals", 1).await;
    assert_eq!(number(&report, "upstream", "updates"), 13);
    upstream.set(noted("shared", "3"));
    all_see(&mut crowd.shared, Some("3")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_are_served_what_was_good_while_the_upstream_is_away() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    let mut crowd = Crowd::start(&server).await;
    upstream.stop().await;
    crowd.report("upstream", "stale", 12).await;
    let mut seen = crowd.shared.iter().chain(&crowd.own).map(Watch::latest);
    assert!(seen.all(|seen| seen.is_present() && seen.error().is_none()));
    for number in 0..2 {
        let late = client(&crowd.addr, variant(number));
        all_see([&mut late.watch::<Cluster>("c7")], Some("1")).await;
    }
    upstream.set(noted("c7", "2"));
    upstream.restart().await;
    all_see(crowd.own.iter_mut().skip(7).step_by(10), Some("2")).await;
    soon(crowd.relay.json_until(|report| number(report, "upstream", "stale") == 0)).await;
    assert_eq!(upstream.control_plane().subscriptions().total(), 12);

    // Rejections of clients are counted, and not passed on to the upstream server.
    upstream.set(cluster("c9").edit(|cluster| cluster.eds_cluster_config = None));
    crowd.report("downstream", "rejections", 20).await;
    assert!(crowd.relay.complaint("rejected").await.contains("c9"));
    assert_eq!(note(&crowd.own[9].latest()), Some("1"), "the last good one");
    assert!(upstream.requests().iter().all(|request| request.message().error().is_none()));
}

#[tokio::test]
async fn what_is_not_confirmed_upstream_expires_downstream() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    upstream.set(noted("shop", "1").with_ttl(Duration::from_millis(500)));
    let (_relay, addr) = start(&server, "").await;
    let clients = [0, 1].map(|number| client(&addr, variant(number)));
    let mut watches = clients.each_ref().map(|client| client.watch::<Cluster>("shop"));
    all_see(&mut watches, Some("1")).await;
    upstream.hold();
    all_see(&mut watches, None).await;
    upstream.release();
    all_see(&mut watches, Some("1")).await;
}

#[tokio::test]
async fn what_does_not_exist_upstream_does_not_exist_downstream() {
    let server = Server::start().await;
    let (_relay, addr) = start(&server, "--protocol delta").await;
    let client = client(&addr, ApiType::AggregatedDeltaGrpc);
    let mut nobody = client.watch::<Cluster>("nobody");
    let mut none = client.watch_all::<ClusterLoadAssignment>(ResourceSelector::All);
    all_see([&mut nobody], None).await;
    assert!(nobody.latest().error().is_some_and(|error| !error.to_string().contains("in time")));
    assert!(soon(none.ready()).await.unwrap().is_empty());
    server.control_plane.set(noted("nobody", "1"));
    all_see([&mut nobody], Some("1")).await;
}

#[tokio::test]
async fn virtual_hosts_on_demand_are_relayed_by_the_requested_names() {
    let server = Server::start().await;
    let routes = route_config("routes").virtual_host(["a.shop"], [route::prefix("/").cluster("shop")]);
    let host = VirtualHostMessage { name: "shop".into(), ..routes.into_message().virtual_hosts[0].clone() };
    let host = AnyResource::encode(VIRTUAL_HOST, "shop", &host);
    server.control_plane.set(host.with_name("routes/shop").with_aliases(["routes/a.shop"]));
    let (_relay, addr) = start(&server, "--protocol delta").await;
    let client = client(&addr, ApiType::AggregatedDeltaGrpc);
    let mut found = client.watch::<VirtualHost>(VirtualHost::resource_name("routes", "a.shop"));
    assert_eq!(&*soon(found.ready()).await.unwrap().name, "shop");
    let mut unknown = client.watch::<VirtualHost>(VirtualHost::resource_name("routes", "b.shop"));
    let seen = soon(unknown.wait_for(Observed::is_absent)).await.unwrap();
    assert_eq!(seen.error().map(|error| error.code()), Some(Code::NotFound));
}

#[tokio::test]
async fn cp1_a_missing_name_hides_none_that_exists() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    upstream.set(noted("there", "1"));
    upstream.set(listener("there"));
    // In the state of the world, the upstream server never reports that a name does not exist.
    let (_relay, addr) = start(&server, "").await;
    for number in 0..2 {
        let client = client(&addr, variant(number));
        let _missing = (client.watch::<Cluster>("missing"), client.watch::<Listener>("missing"));
        let (mut cluster, mut listener) =
            (client.watch::<Cluster>("there"), client.watch::<Listener>("there"));
        soon(cluster.ready()).await.expect("the cluster");
        soon(listener.ready()).await.expect("the listener");
    }
}

#[tokio::test]
async fn cp18_names_seen_and_unseen_are_answered_by_a_relay() {
    let server = Server::start().await;
    sequences::resources().into_iter().for_each(|resource| assert!(server.control_plane.set(resource)));
    for protocol in ["sotw", "delta"] {
        let (_relay, addr) = start(&server, &format!("--protocol {protocol}")).await;
        sequences::run(&format!("http://{addr}")).await;
    }
}

#[tokio::test]
async fn cp13_resources_of_any_type_are_relayed() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    for (type_url, name) in [(Banner::TYPE_URL, "shop"), (ExtensionConfig::TYPE_URL, "filter")] {
        let message = [&[10, name.len() as u8], name.as_bytes()].concat();
        upstream.set(AnyResource::new(type_url, name, message));
    }
    for protocol in ["sotw", "delta"] {
        let (_relay, addr) = start(&server, &format!("--protocol {protocol}")).await;
        for number in 0..2 {
            let client = client(&addr, variant(number));
            soon(client.watch::<Banner>("shop").ready()).await.expect("the banner");
            soon(client.watch::<ExtensionConfig>("filter").ready()).await.expect("the extension");
            let mut all = client.watch_all::<Banner>(ResourceSelector::All);
            let seen = soon(all.ready()).await.unwrap();
            assert_eq!(seen.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["shop"]);
        }
    }
}

#[tokio::test]
async fn cp14_the_version_of_a_type_is_that_of_the_upstream_server() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    upstream.set(noted("shop", "1"));
    let (_relay, addr) = start(&server, "").await;
    for number in 0..2 {
        let client = client(&addr, variant(number));
        let mut watch = client.watch::<Cluster>("shop");
        all_see([&mut watch], Some("1")).await;
        let Observed::Present { version, .. } = &*watch.latest() else { panic!("it is there") };
        assert_eq!(version.as_str(), upstream.version(CLUSTER));
    }
}

/// An application's resource type.
#[derive(Debug)]
struct Banner;

impl Resource for Banner {
    const TYPE_URL: &'static str = "type.googleapis.com/example.Banner";

    fn parse(_: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

#[tokio::test]
async fn a_wildcard_has_the_list_of_the_upstream_and_nothing_that_others_request_by_name() {
    let server = Server::start().await;
    let upstream = &server.control_plane;
    upstream.set(noted("listed", "1"));
    upstream.set(noted("hidden", "1").with_listed(false));
    for protocol in ["sotw", "delta"] {
        let (_relay, addr) = start(&server, &format!("--protocol {protocol}")).await;
        let clients = [0, 1, 2, 3].map(|number| client(&addr, variant(number)));
        let [a, b, c, d] = &clients;
        let mut hidden = [a.watch::<Cluster>("hidden"), b.watch::<Cluster>("hidden")];
        all_see(&mut hidden, Some("1")).await;
        for client in [c, d] {
            let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
            let seen = soon(all.ready()).await.unwrap();
            assert_eq!(seen.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["listed"]);
        }
        assert!(hidden.iter().all(|watch| watch.latest().is_present()));
    }
}

#[tokio::test]
async fn names_without_a_subscription_are_unsubscribed_upstream_after_a_while() {
    let server = Server::start().await;
    server.control_plane.set(noted("a", "1"));
    server.control_plane.set(noted("b", "1"));
    let (mut relay, addr) = start(&server, "--linger 0.2").await;
    let client = client(&addr, ApiType::AggregatedDeltaGrpc);
    let (mut a, mut b) = (client.watch::<Cluster>("a"), client.watch::<Cluster>("b"));
    all_see([&mut a, &mut b], Some("1")).await;
    drop(b);
    soon(relay.json_until(|report| number(report, "upstream", "subscriptions") == 1)).await;
    server.control_plane.expect_names(CLUSTER, &["a"]).await.unwrap();
    server.control_plane.set(noted("b", "2"));
    all_see([&mut client.watch::<Cluster>("b")], Some("2")).await;
}

#[cfg(unix)]
#[tokio::test]
async fn the_figures_are_printed_at_the_end_for_people_too() {
    let server = Server::start().await;
    let mut relay = Process::start("relay", server.args("--listen 127.0.0.1:0 --report 3600"));
    let line = relay.line().await.unwrap();
    let addr = line.strip_prefix("relaying on ").expect("where it listens").to_owned();
    server.control_plane.set(noted("shop", "1"));
    let client = client(&addr, ApiType::AggregatedGrpc);
    let mut watch = client.watch::<Cluster>("shop");
    all_see([&mut watch], Some("1")).await;
    relay.interrupt();
    let line = relay.line().await.unwrap();
    assert!(line.contains("down: 1 streams, 1 subscriptions to 1 names, 1 updates"), "{line}");
    assert!(line.contains("up: 1 subscriptions, 1 resources (0 stale), 1 updates, 0 removals"), "{line}");
    assert_eq!(relay.exit().await.code(), Some(0));
}

/// The configuration of an extension (ECDS).
#[derive(Debug)]
struct ExtensionConfig;

impl Resource for ExtensionConfig {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";

    fn parse(_: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}
