//! The authority of requests to endpoints (CH2.24).

use super::*;
use crate::{
    pb::{
        envoy::config::{
            endpoint::v3::{ClusterLoadAssignment, lb_endpoint::HostIdentifier},
            route::v3::{RetryPolicy, RouteAction, route::Action, route_action::HostRewriteSpecifier},
        },
        google::protobuf::BoolValue,
    },
    testing::resources::RouteConfigBuilder,
};

/// Gives endpoints hostnames, in their order.
fn set_hostnames(assignment: &mut ClusterLoadAssignment, hostnames: &[&str]) {
    let endpoints = assignment.endpoints.iter_mut().flat_map(|it| &mut it.lb_endpoints);
    for (endpoint, hostname) in endpoints.zip(hostnames) {
        if let Some(HostIdentifier::Endpoint(endpoint)) = &mut endpoint.host_identifier {
            endpoint.hostname = (*hostname).to_owned();
        }
    }
}

/// All requests go to the cluster with the hostname of the endpoint.
fn rewrite(name: &str, edit: impl FnOnce(&mut RouteAction)) -> RouteConfigBuilder {
    let route = route::prefix("").cluster(name).edit(|it| {
        let Some(Action::Route(action)) = &mut it.action else { panic!("it has one") };
        action.host_rewrite_specifier =
            Some(HostRewriteSpecifier::AutoHostRewrite(BoolValue { value: true }));
        edit(action);
    });
    route_config("routes").virtual_host(["*"], [route])
}

/// A mesh with a trusted server, whose routes rewrite the authority.
async fn rewriting(name: &str, peers: &[&Peer], hostnames: &[&str], ca: &Ca) -> Mesh {
    let addresses: Vec<_> = peers.iter().map(|it| it.address).collect();
    let files = (ca.file(), ca.issue(&[SHOP]));
    let mesh = start(name, &addresses, (&files.0, &files.1), |it| it).await;
    mesh.server.set(rewrite(name, |_| {}));
    mesh.server.set(assignment(name, peers).edit(|it| set_hostnames(it, hostnames)));
    mesh
}

fn authority(received: &Received) -> String {
    received.request.uri().authority().unwrap().to_string()
}

#[tokio::test]
async fn ch2_24_the_authority_is_that_of_the_call_or_of_the_endpoint_or_of_the_channel() {
    let (mut peer, ca) = (Peer::start().await, Ca::new());
    let name = "ch2_24_order";
    let mesh = rewriting(name, &[&peer], &["a.example:81"], &ca).await;
    assert_eq!(authority(&answered(&mesh, &mut peer).await), "a.example:81");
    let own = mesh.get("http://own.example/a");
    let received = peer.request().await;
    assert_eq!(authority(&received), "own.example");
    received.respond();
    soon(own).await.unwrap().unwrap();
    mesh.server.set(assignment(name, &[&peer]));
    soon(async { while authority(&answered(&mesh, &mut peer).await) != "shop" {} }).await;
}

#[tokio::test]
async fn ch2_24_a_server_that_is_not_trusted_rewrites_nothing() {
    let mut peer = Peer::start().await;
    let name = "ch2_24_untrusted";
    let mesh = Mesh::start(name, &[&peer]).await;
    mesh.server.set(rewrite(name, |_| {}));
    mesh.server.set(assignment(name, &[&peer]).edit(|it| set_hostnames(it, &["a.example"])));
    // The update may come after the first call.
    for _ in 0..10 {
        assert_eq!(authority(&answered(&mesh, &mut peer).await), "shop");
    }
}

#[tokio::test]
async fn ch2_24_each_attempt_has_the_hostname_of_its_endpoint() {
    let (mut one, mut two, ca) = (Peer::start().await, Peer::start().await, Ca::new());
    let name = "ch2_24_attempts";
    let mesh = rewriting(name, &[&one, &two], &["one.example", "two.example"], &ca).await;
    let retries = RetryPolicy { retry_on: "unavailable".to_owned(), ..RetryPolicy::default() };
    mesh.server.set(rewrite(name, |action| action.retry_policy = Some(retries)));
    until("both are connected", || {
        mesh.channel.connect();
        mesh.ready_endpoints() == 2
    })
    .await;
    let call = mesh.get("/a");
    let mut seen = Vec::new();
    for is_last in [false, true] {
        let received = tokio::select! {
            received = one.request() => received,
            received = two.request() => received,
        };
        seen.push(authority(&received));
        if is_last { received.respond() } else { received.fail(Code::Unavailable, &[]) }
    }
    soon(call).await.unwrap().unwrap();
    seen.sort();
    assert_eq!(seen, ["one.example", "two.example"]);
}

#[tokio::test]
async fn ch2_24_with_tls_of_the_channel_the_certificate_has_to_be_for_the_authority() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["shop", "a.example"])).await;
    let name = "ch2_24_fallback";
    let files = (ca.file(), ca.issue(&[SHOP]));
    let fallback = |it: ChannelBuilder| it.xds_credentials(ca.fallback());
    let mesh = start(name, &[peer.address], (&files.0, &files.1), fallback).await;
    for own in ["a.example", "a.example:81"] {
        let call = mesh.get(&format!("http://{own}/a"));
        let received = peer.request().await;
        assert_eq!(authority(&received), own);
        received.respond();
        soon(call).await.unwrap().unwrap();
    }
    let (code, message) = status(mesh.get("http://b.example/a")).await;
    let start = format!("{}: the peer has no certificate for the authority b.example: ", peer.address);
    assert_eq!(code, Code::Unavailable);
    assert!(message.starts_with(&start), "{message}");
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch2_24_with_tls_of_the_cluster_any_authority_is_sent() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["a.example"])).await;
    let mesh = secured("ch2_24_cluster", &peer, &ca, upstream(&["a.example"], false)).await;
    let call = mesh.get("http://b.example/a");
    let received = peer.request().await;
    assert_eq!(authority(&received), "b.example");
    received.respond();
    soon(call).await.unwrap().unwrap();
}
