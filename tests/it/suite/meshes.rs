//! Complete configurations of meshes, which are accepted as their servers send them.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::Value;
use xdskit::{
    Bootstrap, Client, Observed, Resource, Snapshot, WatchError,
    control_plane::{AnyResource, type_url},
    resource::{Cluster, ClusterLoadAssignment, Context, Listener, RouteConfiguration},
    testing::TestControlPlane,
};

use crate::common::{
    meshes::{Mesh, Sent, istio, traffic_director},
    soon,
};

#[apply(servers)]
async fn the_mesh_of_istio_is_accepted_as_a_whole(transport: Transport) {
    accepts(transport, istio::mesh()).await;
}

#[apply(servers)]
async fn the_mesh_of_traffic_director_is_accepted_as_a_whole(transport: Transport) {
    accepts(transport, traffic_director::mesh()).await;
}

/// Checks that every target has endpoints, and every resource is present: no error, no warning, no rejection.
async fn accepts(transport: Transport, mesh: Mesh) {
    let server = TestControlPlane::start().await;
    let bootstrap = bootstrap_of(&mesh, &server);
    for resource in &mesh.resources {
        parse(resource, &bootstrap);
    }
    server.update(|tx| {
        for resource in &mesh.resources {
            tx.set(AnyResource::new(&*resource.type_url, &*resource.name, resource.bytes.clone()));
        }
    });
    let client = transport.builder_from(bootstrap).build().unwrap();
    for (target, clusters) in &mesh.targets {
        leads_to(&client, target, clusters).await;
    }
    for name in &mesh.served {
        let mut listener = client.watch::<Listener>(*name);
        let seen = soon(listener.next()).await.unwrap();
        assert!(matches!(&*seen, Observed::Present { warning: None, .. }), "{seen:?}");
    }
    let requests = server.requests();
    let rejected: Vec<_> = requests.iter().filter_map(|request| request.message().error()).collect();
    assert!(rejected.is_empty() && !requests.is_empty(), "{rejected:?}");
}

/// The application's bootstrap, completed by the server.
fn bootstrap_of(mesh: &Mesh, server: &TestControlPlane) -> Bootstrap {
    let mut bootstrap: Value = serde_json::from_str(mesh.bootstrap).unwrap();
    let of_server: Value = serde_json::from_str(&server.bootstrap_json()).unwrap();
    bootstrap["xds_servers"] = of_server["xds_servers"].clone();
    Bootstrap::from_json(&bootstrap.to_string()).unwrap()
}

fn parse(resource: &Sent, bootstrap: &Bootstrap) {
    let providers: BTreeSet<String> = bootstrap.certificate_providers().keys().cloned().collect();
    let cx = Context::new().with_certificate_providers(&providers);
    let bytes = &resource.bytes;
    let parsed = match &*resource.type_url {
        type_url::LISTENER => Listener::parse(bytes, &cx).map(drop),
        type_url::ROUTE_CONFIGURATION => RouteConfiguration::parse(bytes, &cx).map(drop),
        type_url::CLUSTER => Cluster::parse(bytes, &cx).map(drop),
        type_url::ENDPOINTS => ClusterLoadAssignment::parse(bytes, &cx).map(drop),
        other => panic!("a mesh has no {other}"),
    };
    parsed.unwrap_or_else(|invalid| panic!("{} {:?}: {invalid}", resource.type_url, resource.name));
}

async fn leads_to(client: &Client, target: &str, clusters: &[&str]) {
    let mut resolution = client.resolve(target);
    let is_whole = |seen: &Result<Arc<Snapshot>, WatchError>| {
        seen.as_ref().is_ok_and(|snapshot| {
            let names: BTreeSet<_> = snapshot.clusters().map(|cluster| cluster.name()).collect();
            let usable = snapshot
                .clusters()
                .all(|cluster| cluster.usable_endpoints_of_all_priorities().next().is_some());
            names == clusters.iter().copied().collect() && usable && snapshot.warnings().next().is_none()
        })
    };
    let whole = tokio::time::timeout(Duration::from_secs(20), resolution.wait_for(is_whole)).await;
    assert!(whole.is_ok(), "{target} leads to {clusters:?}, but there is {:#?}", resolution.latest());
}
