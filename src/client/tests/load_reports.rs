//! The load reports of applications that balance by themselves, to an embedded management server.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Map, json};

use crate::{
    Client,
    client::{LoadReportStatus, ResourceSelector},
    config::{Bootstrap, Locality, Server},
    control_plane::{LoadReporting, LoadTotals, store::loads::EndpointLoad},
    lrs::{LoadStreamState, OrcaLoadReport, Outcome},
    pb::{
        envoy::config::core::v3::{
            ConfigSource, Metadata, SelfConfigSource, config_source::ConfigSourceSpecifier,
        },
        google::protobuf::{self, value::Kind},
    },
    resource::Cluster,
    testing::{
        TestControlPlane,
        resources::{ClusterBuilder, EndpointsBuilder, cluster, endpoints, listener, route, route_config},
    },
};

#[tokio::test]
async fn lr1_1_lr2_3_lr6_8_load_is_reported_on_the_connection_of_the_cluster_until_the_end() {
    let server = server().await;
    let proxy = server.proxy().await;
    let client = Client::builder(Bootstrap::from_json(&proxy.bootstrap_json()).unwrap()).build().unwrap();
    let shop = client.load_reporter("shop");
    let zone = shop.locality(&Locality::new("eu", "a", ""));
    known(&client).await;
    let call = zone.call_started();
    let load = server.expect_load("shop", SOON).await.unwrap();
    assert_eq!((load.service.as_deref(), load.localities[0].requests.in_progress), (Some("shop-eds"), 1));
    assert!(load.interval.unwrap() >= Duration::from_secs(1));
    assert_eq!(proxy.connections(), 1, "both streams are on it");
    let status = only(&client).await;
    assert_eq!((status.state, status.interval), (LoadStreamState::Reporting, Some(Duration::from_secs(1))));
    assert!(client.status().await.to_string().contains(": sent each 1s, of all clusters"));
    call.finish(Outcome::Success, None);
    shop.dropped("throttle");
    // The last report is sent at once.
    client.shutdown().await;
    let totals = server.control_plane().load_totals("shop");
    assert_eq!((totals.issued, totals.successful, totals.dropped), (1, 1, 1));
    drop(zone.call_started());
}

#[tokio::test]
async fn lr2_3_load_reports_go_on_when_the_stream_of_resources_ends() {
    let server = server().await;
    let client = client(&server);
    let zone = client.load_reporter("shop").locality(&Locality::default());
    known(&client).await;
    drop(zone.call_started());
    server.expect_load("shop", SOON).await.unwrap();
    server.disconnect();
    server.expect_clients(1).await.unwrap();
    drop(zone.call_started());
    let totals = server.expect_load_totals("shop", |totals| totals.issued == 2).await.unwrap();
    assert_eq!(totals.failed, 2);
    assert_eq!(only(&client).await.failures, 0, "the stream of load reports went on");
}

#[tokio::test]
async fn lr2_7_a_server_without_load_reporting_is_no_error_of_the_application() {
    let server = TestControlPlane::start().await;
    server.set(reported("shop"));
    let client = client(&server);
    let zone = client.load_reporter("shop").locality(&Locality::default());
    let mut clusters = client.watch_all::<Cluster>(ResourceSelector::All);
    known(&client).await;
    let call = zone.call_started();
    until(&client, |status| status.failures > 0).await;
    assert!(clusters.ready().await.unwrap().warning().is_none(), "LR2.3");
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    drop(call);
    let totals = server.expect_load_totals("shop", |totals| totals.failed == 1).await.unwrap();
    assert_eq!(totals.issued, 1, "counting went on");
}

#[tokio::test]
async fn lr1_3_load_goes_to_the_server_that_the_client_falls_back_to() {
    let (primary, fallback) = (server().await, server().await);
    let servers = [&primary, &fallback].map(|it| Server::new(it.uri()).insecure());
    let [one, other] = servers;
    let bootstrap = Bootstrap::builder().server(one).server(other).build().unwrap();
    let client = Client::builder(bootstrap).build().unwrap();
    let zone = client.load_reporter("shop").locality(&Locality::default());
    known(&client).await;
    let call = zone.call_started();
    primary.expect_load("shop", SOON).await.unwrap();
    primary.stop().await;
    fallback.set(cluster("late"));
    // Something that is not cached makes the client fall back (A71).
    client.watch::<Cluster>("late").ready().await.unwrap();
    until_any(&client, |all| all.len() == 2 && all[1].state == LoadStreamState::Reporting).await;
    drop(zone.call_started());
    let totals = fallback.expect_load_totals("shop", |totals| totals.failed == 1).await.unwrap();
    assert_eq!(totals.issued, 1, "the earlier call is not counted there (LR5.8)");
    drop(call);
    primary.restart().await;
    primary.expect_load_totals("shop", |totals| totals.failed == 1).await.unwrap();
}

#[tokio::test]
async fn lr9_1_lr1_4_reporters_of_snapshots_count_for_the_leaves_of_aggregates() {
    let server = server().await;
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("all")]));
    server.set(cluster("all").aggregate(["shop"]));
    server.set(endpoints("shop-eds").locality("eu", "a", ["127.0.0.1:80"]));
    let client = client(&server);
    // Reporters of snapshots have no interest of their own.
    let mut resolution = client.resolve("xds:///shop");
    let snapshot = resolution.ready().await.unwrap();
    let endpoint = snapshot.cluster("all").unwrap().pick_endpoint(1).unwrap();
    let zone = endpoint.cluster().load_reporter().locality(&endpoint.locality().locality);
    let own = snapshot.cluster_ref("all").unwrap().load_reporter().locality(&Locality::default());
    drop((zone.call_started(), own.call_started()));
    let load = server.expect_load("shop", SOON).await.unwrap();
    assert_eq!(load.localities[0].locality, Locality::new("eu", "a", ""));
    assert_eq!(server.control_plane().load_totals("all"), LoadTotals::default());
}

#[tokio::test]
async fn lr9_3_endpoints_of_a_snapshot_have_the_counters_of_their_leaf_and_locality() {
    let server = server().await;
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)).with_endpoints());
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("all")]));
    server.set(cluster("all").aggregate(["shop"]));
    server.set(endpoints("shop-eds").locality("eu", "a", ["127.0.0.1:80", "127.0.0.1:81"]));
    let client = client(&server);
    let mut resolution = client.resolve("xds:///shop");
    let snapshot = resolution.ready().await.unwrap();
    let reporters: Vec<_> =
        snapshot.cluster("all").unwrap().endpoints().map(|endpoint| endpoint.load_reporter()).collect();
    let locality = Locality::new("eu", "a", "");
    let zone = snapshot.cluster("shop").unwrap().load_reporter().locality(&locality);
    drop((reporters[1].call_started(), zone.endpoint(reporters[1].address()).call_started()));
    let load = server.expect_load("shop", SOON).await.unwrap();
    assert_eq!((load.localities.len(), &load.localities[0].locality), (1, &locality));
    let [of_endpoint] = &load.localities[0].endpoints[..] else { panic!("of one endpoint: {load:?}") };
    assert_eq!((of_endpoint.address, of_endpoint.requests.failed), (Some(reporters[1].address()), 2));
}

#[tokio::test]
async fn lr1_2_lr1_5_clusters_without_cds_are_reported_to_a_server_of_the_bootstrap() {
    let server = server().await;
    let client = client(&server);
    let known = client.bootstrap().servers().next().unwrap().clone();
    let zone = client.load_reporter_to(&known, "own", Some("service")).locality(&Locality::default());
    drop(zone.call_started());
    let load = server.expect_load("own", SOON).await.unwrap();
    assert_eq!(load.service.as_deref(), Some("service"));
    let other = Server::new("127.0.0.1:1").insecure().build().unwrap();
    let zone = client.load_reporter_to(&other, "own", None).locality(&Locality::default());
    drop(zone.call_started());
    assert_eq!(client.status().await.load_reports.len(), 1, "it is in no bootstrap (LR1.2)");
}

#[tokio::test]
async fn lr8_1_lr8_5_the_metrics_of_the_cluster_are_reported_of_handles_that_were_there_before() {
    let server = server().await;
    let client = client(&server);
    let zone = client.load_reporter("shop").locality(&Locality::default());
    known(&client).await;
    let report = OrcaLoadReport { cpu_utilization: 0.5, ..OrcaLoadReport::default() };
    let call = zone.call_started();
    assert!(!call.wants_metrics());
    call.finish(Outcome::Success, Some(&report));
    server.set(reported("shop").edit(|it| it.lrs_report_endpoint_metrics = vec!["cpu_utilization".into()]));
    soon(async {
        while !zone.call_started().wants_metrics() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    zone.call_started().finish(Outcome::Success, Some(&report));
    let has_metric = |totals: &LoadTotals| totals.localities.values().any(|it| it.cpu_utilization.count > 0);
    let totals = server.expect_load_totals("shop", has_metric).await.unwrap();
    let locality = totals.localities.values().next().unwrap();
    assert_eq!((locality.cpu_utilization.count, locality.cpu_utilization.sum), (1, 0.5));
}

#[tokio::test]
async fn lr3_7_endpoints_are_reported_on_request() {
    let server = server().await;
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)).with_endpoints());
    let client = client(&server);
    let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let endpoint = client.load_reporter("shop").locality(&Locality::default()).endpoint(address);
    known(&client).await;
    endpoint.call_started().finish(Outcome::Success, None);
    let load = server.expect_load("shop", SOON).await.unwrap();
    let of = &load.localities[0].endpoints[0];
    assert_eq!((of.address, of.requests.successful), (Some(address), 1));
}

#[tokio::test]
async fn lr9_5_endpoints_are_reported_with_their_metadata_of_eds_by_all_handles() {
    let server = server().await;
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)).with_endpoints());
    server.set(listener("shop").rds("routes"));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("shop")]));
    server.set(with_metadata("one"));
    let client = client(&server);
    let mut resolution = client.resolve("xds:///shop");
    let snapshot = resolution.ready().await.unwrap();
    let endpoints: Vec<_> = snapshot.cluster("shop").unwrap().endpoints().collect();
    let by_name = client.load_reporter("shop").locality(&endpoints[1].locality().locality);
    let handles = [endpoints[0].load_reporter(), by_name.endpoint(endpoints[1].address())];
    drop(snapshot);
    for version in ["one", "other"] {
        server.set(with_metadata(version));
        let is_reported = soon(async {
            loop {
                handles.iter().for_each(|handle| drop(handle.call_started()));
                let load = server.expect_load("shop", SOON).await.unwrap();
                let endpoints = load.localities.iter().flat_map(|it| &it.endpoints);
                let of = |it: &EndpointLoad| (it.address.unwrap().port(), it.metadata.clone());
                let found: Vec<_> = endpoints.map(of).collect();
                let object = json!({ "version": version, "number": 1.5 }).as_object().unwrap().clone();
                // The endpoints may be known later than the load is counted.
                if found == [(80, object), (81, Map::new())] {
                    return true;
                }
            }
        });
        assert!(is_reported.await, "with the metadata of {version}");
    }
}

/// Two endpoints, of which the first has metadata.
fn with_metadata(version: &str) -> EndpointsBuilder {
    let text = |text: &str| protobuf::Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let number = protobuf::Value { kind: Some(Kind::NumberValue(1.5)) };
    let fields = [("version".to_owned(), text(version)), ("number".to_owned(), number)].into();
    let filter_metadata = [("envoy.lb".to_owned(), protobuf::Struct { fields })].into();
    endpoints("shop-eds").locality("eu", "a", ["127.0.0.1:80", "127.0.0.1:81"]).edit(|assignment| {
        assignment.endpoints[0].lb_endpoints[0].metadata =
            Some(Metadata { filter_metadata, ..Metadata::default() });
    })
}

/// A management server that asks for all load each second, and has a cluster that is reported.
async fn server() -> TestControlPlane {
    let server = TestControlPlane::start().await;
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    server.set(reported("shop"));
    server
}

fn reported(name: &str) -> ClusterBuilder {
    cluster(name).eds_service("shop-eds").edit(|cluster| {
        let specifier = ConfigSourceSpecifier::Self_(SelfConfigSource::default());
        cluster.lrs_server =
            Some(ConfigSource { config_source_specifier: Some(specifier), ..ConfigSource::default() });
    })
}

fn client(server: &TestControlPlane) -> Client {
    Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap()).build().unwrap()
}

/// Waits until the cluster is known, and so reported.
async fn known(client: &Client) {
    client.watch::<Cluster>("shop").ready().await.unwrap();
    until_any(client, |all| !all.is_empty()).await;
}

async fn only(client: &Client) -> LoadReportStatus {
    let all = client.status().await.load_reports;
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

async fn until(client: &Client, is_met: impl Fn(&LoadReportStatus) -> bool) {
    until_any(client, |all| all.iter().any(&is_met)).await;
}

async fn until_any(client: &Client, is_met: impl Fn(&[LoadReportStatus]) -> bool) {
    soon(async {
        while !is_met(&client.status().await.load_reports) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it takes too long")
}

const SOON: Duration = Duration::from_secs(30);
