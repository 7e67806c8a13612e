//! The status of a client on a real connection, for operators: A40.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::time::{Duration, SystemTime};

use crate::common::*;
use xdskit::{
    Resource, ResourceSelector,
    client::{ClientStatus, ConnectionState, ResourceState, ResourceStatus},
    control_plane::{ControlPlane, type_url},
    error::Code,
    resource::Secret,
    testing::{TestControlPlane, resources::endpoints},
};

#[apply(servers)]
async fn a40_5_versions_times_and_bytes_are_those_of_what_is_in_use(transport: Transport) {
    let before = SystemTime::now();
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = transport.builder(server.uri()).scope("xds:///shop").build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let status = client.status().await;
    assert_eq!((&*status.node_id, &*status.scope), ("test-node", "xds:///shop"));
    assert_eq!(status.servers.len(), 1);
    assert_eq!(status.servers[0].connection, ConnectionState::Connected);
    assert_eq!((&*status.servers[0].uri, &status.servers[0].error), (&*server.uri(), &None));
    let shown = the(&status, "shop");
    assert_eq!((shown.state, shown.type_url), (ResourceState::Acked, type_url::CLUSTER));
    assert_eq!(version(shown.version.as_str()), server.version(type_url::CLUSTER));
    assert_eq!(shown.bytes.as_ref(), Some(cluster("shop", "one").bytes()));
    let updated = shown.last_updated.unwrap();
    // The two clocks may differ slightly.
    assert!(updated >= before - TICK && updated <= status.taken_at, "{before:?} {updated:?}");
    assert_eq!(shown.error, None);
}

#[apply(servers)]
async fn a_server_is_shown_with_its_identifier_and_since_when_there_is_a_stream(transport: Transport) {
    let before = SystemTime::now();
    let long = format!("istiod-{}", "x".repeat(1_000));
    for (identifier, shown) in [("istiod 1.27", "istiod 1.27"), (&*long, "istiod-xxx")] {
        let server = TestControlPlane::start_with(ControlPlane::builder().identifier(identifier)).await;
        server.set(cluster("shop", "one"));
        let client = transport.client(server.uri());
        soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
        let of = client.status().await.servers.remove(0);
        let known = of.identifier.as_deref().unwrap();
        assert!(known.starts_with(shown) && known.len() <= 200, "{known}");
        assert!(of.to_string().contains(&format!("connected, {shown}")), "{of}");
        let is_delta = matches!(transport, Transport::Delta | Transport::PerTypeDelta);
        assert_eq!(of.system_version.is_some(), is_delta, "{of:?}");
        let since = of.connected_since.unwrap();
        assert!(since >= before - TICK && since <= SystemTime::now() + TICK, "{before:?} {since:?}");
    }
}

#[apply(servers)]
async fn a40_2_a_rejected_update_is_shown_beside_what_is_in_use(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = transport.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let good = server.version(type_url::CLUSTER);
    server.set(cluster("shop", BAD));
    soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    let status = client.status().await;
    let shown = the(&status, "shop");
    assert_eq!((shown.state, version(shown.version.as_str())), (ResourceState::Nacked, &*good));
    assert_eq!(shown.bytes.as_ref(), Some(cluster("shop", "one").bytes()));
    let error = shown.error.clone().unwrap();
    assert_eq!(version(error.version.as_str()), server.version(type_url::CLUSTER));
    assert_eq!(error.details.code(), Code::InvalidArgument);
    assert!(error.at >= shown.last_updated.unwrap() - TICK && error.at <= status.taken_at);
    let text = status.to_string();
    assert!(
        text.contains("\n! Cluster \"shop\": eds_cluster_config.service_name: bad [node id: test-node]"),
        "{text}"
    );

    server.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| seen.error().is_none())).await.unwrap();
    assert_eq!(the(&client.status().await, "shop").error, None);
}

#[apply(servers)]
async fn all_kinds_of_watches_are_shown_in_order(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("b", ""));
    server.set(cluster("a", ""));
    server.set(endpoints("e").locality("eu", "a", ["10.0.0.1:80"]));
    let client = transport.client(server.uri());
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    soon(all.wait_for(|members| members.is_complete())).await.unwrap();
    let mut e = client.watch::<xdskit::resource::ClusterLoadAssignment>("e");
    soon(e.ready()).await.unwrap();
    let _nothing = client.watch::<Secret>("nothing");
    let status = client.status().await;
    let shown: Vec<_> = status.resources.iter().map(|shown| (&*shown.name, shown.state)).collect();
    let acked = ResourceState::Acked;
    assert_eq!(shown, [("a", acked), ("b", acked), ("e", acked), ("nothing", ResourceState::Requested)]);
    assert_eq!(status.resources[3].type_url, Secret::TYPE_URL);
    let text = status.to_string();
    let head = text.lines().find(|line| line.starts_with("Name")).unwrap();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["Name", "Status", "Version", "Type", "LastUpdated"]
    );
    let row: Vec<_> = text.lines().find(|line| line.starts_with("a ")).unwrap().split_whitespace().collect();
    assert_eq!((row[1], version(row[2])), ("ACKED", &*server.version(type_url::CLUSTER)));
    assert_eq!(row[3], type_url::CLUSTER.rsplit('/').next().unwrap());
}

#[apply(servers)]
async fn a_server_that_is_not_there_is_shown_with_the_reason(transport: Transport) {
    let client = transport.client("127.0.0.1:1");
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.next()).await.unwrap();
    let status = client.status().await;
    assert_eq!(status.servers[0].connection, ConnectionState::BackingOff);
    assert!(
        status.servers[0].error.as_ref().unwrap().starts_with("cannot connect to xDS server 127.0.0.1:1")
    );
    assert_eq!(the(&status, "shop").state, ResourceState::Requested);
    let which =
        if transport.api_type().is_aggregated() { "" } else { " for envoy.config.cluster.v3.Cluster" };
    let shown = format!("Server 127.0.0.1:1{which}: waiting to connect again; cannot connect");
    assert!(status.to_string().contains(&shown));
}

#[apply(servers)]
async fn a_client_that_was_shut_down_has_nothing_to_show(transport: Transport) {
    let client = transport.client("127.0.0.1:1");
    let _shop = client.watch::<Cluster>("shop");
    client.shutdown().await;
    let status = client.status().await;
    assert!(status.servers.is_empty() && status.resources.is_empty());
    assert_eq!(&*status.node_id, "test-node");
    assert_eq!(status.to_string(), "Client \"\", node \"test-node\"\nNo resources are watched.");
}

fn the<'a>(status: &'a ClientStatus, name: &str) -> &'a ResourceStatus {
    status.resources.iter().find(|shown| *shown.name == *name).unwrap()
}

const TICK: Duration = Duration::from_millis(10);
