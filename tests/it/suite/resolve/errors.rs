//! Errors as an operator reads them.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    control_plane::type_url,
    error::{Blame, Code},
};

use super::*;

#[apply(servers)]
async fn f8_there_is_no_listener(transport: Transport) {
    let server = shop().await;
    let client = impatient_client_of(transport, &server);
    let mut resolution = client.resolve("xds:///missing");
    let error = soon(resolution.ready()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.blame(), error.type_url()),
        (Code::NotFound, Blame::Peer, type_url::LISTENER)
    );
    let late = late(transport, &server, type_url::LISTENER);
    assert_eq!(error.to_string(), format!("Listener \"missing\": {late} [node id: test-node]"));
    server.set(listener("missing").rds("shop"));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.remove(type_url::LISTENER, "missing");
    let error = soon(resolution.wait_for(Result::is_err)).await.unwrap().unwrap_err();
    let deleted = format!("xDS server {} has deleted it", server.uri());
    assert_eq!(error.to_string(), format!("Listener \"missing\": {deleted} [node id: test-node]"));
}

#[apply(servers)]
async fn there_are_no_routes(transport: Transport) {
    let server = shop().await;
    server.set(listener("shop").rds("elsewhere"));
    let mut resolution = impatient_client_of(transport, &server).resolve("xds:///shop");
    let is_about_routes = |seen: &Result<_, WatchError>| {
        seen.as_ref().is_err_and(|why| why.type_url() == type_url::ROUTE_CONFIGURATION)
    };
    let error = soon(resolution.wait_for(is_about_routes)).await.unwrap().unwrap_err();
    let late = late(transport, &server, type_url::ROUTE_CONFIGURATION);
    assert_eq!(error.to_string(), format!("RouteConfiguration \"elsewhere\": {late} [node id: test-node]"));
}

#[apply(servers)]
async fn a74_4_a_missing_cluster_is_an_error_of_its_own(transport: Transport) {
    let server = shop().await;
    server.set(shop_routes(&["cart", "missing"]));
    let client = impatient_client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    let snapshot = see(&mut resolution, "cart: 10.0.0.1:80, missing: NOT_FOUND").await;
    let missing = snapshot.cluster("missing").unwrap();
    assert!(missing.config().is_none());
    let late = late(transport, &server, type_url::CLUSTER);
    assert_eq!(
        missing.error().unwrap().to_string(),
        format!("Cluster \"missing\": {late} [node id: test-node]")
    );
    server.update(|tx| {
        tx.set(cluster("missing"));
        tx.set(endpoints("missing").locality("eu", "a", ["10.0.0.2:80"]));
    });
    see(&mut resolution, "cart: 10.0.0.1:80, missing: 10.0.0.2:80").await;
}

#[apply(servers)]
async fn a74_4_a_cluster_that_is_deleted_is_an_error_after_the_time_of_grace(transport: Transport) {
    let server = shop().await;
    let client = transport.builder_of(&server).deletion_grace(Duration::from_millis(1)).build().unwrap();
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.remove(type_url::CLUSTER, "cart");
    let snapshot = see(&mut resolution, "cart: NOT_FOUND").await;
    let error = snapshot.cluster("cart").unwrap().error().unwrap();
    let deleted = format!("xDS server {} has deleted it", server.uri());
    assert_eq!(error.to_string(), format!("Cluster \"cart\": {deleted} [node id: test-node]"));
}

#[apply(servers)]
async fn a74_4_endpoints_that_are_not_there_are_a_note(transport: Transport) {
    let server = shop().await;
    server.set(cluster("cart").eds_service("elsewhere"));
    let snapshot =
        see(&mut impatient_client_of(transport, &server).resolve("xds:///shop"), "cart: NOT_FOUND").await;
    let cart = snapshot.cluster("cart").unwrap();
    assert!(cart.error().is_none() && cart.config().is_some() && cart.assignment().is_none());
    let late = late(transport, &server, type_url::ENDPOINTS);
    let expected = format!("ClusterLoadAssignment \"elsewhere\": {late} [node id: test-node]");
    assert_eq!(cart.endpoints_error().unwrap().to_string(), expected);
}

#[apply(servers)]
async fn the_server_is_down(transport: Transport) {
    let server = shop().await;
    server.stop().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    let error = soon(resolution.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Network));
    assert!(error.is_transient() && error.to_string().contains("refused"), "{error}");
    assert!(error.to_string().starts_with("Listener \"shop\": "), "{error}");
    server.restart().await;
    let snapshot = see(&mut resolution, "cart: 10.0.0.1:80").await;
    assert_eq!(snapshot.warnings().count(), 0);
    server.stop().await;
    let seen =
        soon(resolution.wait_for(|seen| seen.as_ref().is_ok_and(|seen| seen.warnings().count() == 4))).await;
    let seen = seen.unwrap().unwrap();
    assert_eq!(text(&Ok(seen.clone())), "cart: 10.0.0.1:80", "it serves");
    let stale: Vec<_> = seen.warnings().map(|why| (why.type_url(), why.code())).collect();
    let types = [type_url::LISTENER, type_url::ROUTE_CONFIGURATION, type_url::CLUSTER, type_url::ENDPOINTS];
    assert_eq!(stale, types.map(|type_url| (type_url, Code::Unavailable)));
}

/// The reason for a resource that the server does not have.
fn late(transport: Transport, server: &TestControlPlane, type_url: &str) -> String {
    let server = server.uri();
    // The incremental variant reports absence.
    let why = if transport.api_type().is_delta() { "does not have it" } else { "did not send it in time" };
    // On a stream of its own, a type gets no response for unknown names, unless responses are complete.
    let is_told = transport.api_type().is_aggregated()
        || transport.api_type().is_delta()
        || transport.is_polled()
        || [type_url::LISTENER, type_url::CLUSTER].contains(&type_url);
    // Routes and endpoints of other names would be sent, if there were any with a subscription.
    let is_of_part = ![type_url::LISTENER, type_url::CLUSTER].contains(&type_url);
    let hint = match is_told {
        true if is_of_part && !transport.api_type().is_delta() && !transport.is_polled() => ALL_NAMES_HINT,
        true => "; is the name correct and visible to this node?",
        false => "; the server accepted the stream but has sent no response (is this node known to it?)",
    };
    format!("does not exist: xDS server {server} {why}{hint}")
}

/// The hint if a server of the state-of-the-world variant has sent nothing of a type.
const ALL_NAMES_HINT: &str = ", nor any other resource of the type; is the name correct and visible to this node? Some servers \
    respond only to requests that name all resources of a type, as go-control-plane does in ADS mode (watch all of them, or use \
    the incremental variant, api_type AGGREGATED_DELTA_GRPC)";
