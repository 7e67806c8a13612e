//! Connections from an application's point of view: TLS, credentials, limits, and misbehaving servers.

#![cfg(feature = "tls")]
pub(super) mod credentials;
mod metadata;
mod plugins;

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::time::Duration;

use crate::common::*;
use xdskit::{
    Observed,
    config::{AuthorityBuilder, Bootstrap, Server},
    control_plane::Headers,
    error::Code,
    testing::FaultyProxy,
};

#[apply(servers)]
async fn a_message_over_the_limit_keeps_everything_good(transport: Transport) {
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let client = transport.builder(server.uri()).max_message_size(1000).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    control_plane.set(cluster("shop", &"x".repeat(1000)));
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!(note(&stale), Some("one"));
    let error = stale.error().unwrap();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.reason().contains("1000 bytes") && error.reason().contains("max_message_size"), "{error}");
    control_plane.set(cluster("shop", "two"));
    let good = soon(shop.wait_for(|seen| seen.error().is_none())).await.unwrap();
    assert_eq!(note(&good), Some("two"));
}

#[apply(servers)]
async fn headers_that_come_with_the_first_response_or_never_stall_nothing(transport: Transport) {
    for headers in [Headers::WithFirstResponse, Headers::Never] {
        let (control_plane, mut events) = observed();
        control_plane.set_headers(headers);
        let server = control_plane.serve("127.0.0.1:0").await.unwrap();
        let client =
            transport.builder(server.uri()).resource_timeout(Duration::from_millis(50)).build().unwrap();
        let mut shop = client.watch::<Cluster>("shop");
        events.until_subscribed(&["shop"]).await;
        let _more = client.watch::<Cluster>("more");
        events.until_subscribed(&["more", "shop"]).await;
        if headers == Headers::Never {
            assert!(soon(shop.ready()).await.unwrap_err().is_not_found(), "its timer runs");
        } else {
            control_plane.set(cluster("shop", "one"));
            assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
        }
    }
}

#[apply(servers)]
async fn a_server_that_never_reads_stalls_nothing_else(transport: Transport) {
    let (deaf, _) = observed();
    deaf.set_reading(false);
    let deaf_server = deaf.serve("127.0.0.1:0").await.unwrap();
    let (good, _) = observed();
    let name = "xdstp://good/envoy.config.cluster.v3.Cluster/shop";
    good.set(cluster(name, "one"));
    let good_server = good.serve("127.0.0.1:0").await.unwrap();
    let authority = AuthorityBuilder::default().server(Server::new(good_server.uri()).insecure());
    let bootstrap = Bootstrap::builder()
        .server(Server::new(deaf_server.uri()).insecure())
        .authority("good", authority)
        .build()
        .unwrap();
    let client =
        transport.builder_from(bootstrap).resource_timeout(Duration::from_millis(50)).build().unwrap();
    // Far more than the server's flow-control window.
    let names: Vec<_> = (0..40).map(|i| format!("{i}-{}", "x".repeat(100_000))).collect();
    let watches: Vec<_> = names.iter().map(|name| client.watch::<Cluster>(name)).collect();
    assert_eq!(soon(client.watch::<Cluster>(name).ready()).await.unwrap().note, "one");
    drop(watches);
    good.set(cluster(name, "two"));
    let mut again = client.watch::<Cluster>(name);
    soon(again.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    soon(client.shutdown()).await;
}

#[apply(servers)]
async fn a_stream_cut_within_a_response_loses_nothing(transport: Transport) {
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let proxy = FaultyProxy::start(server.addr()).await;
    let client = transport.client(proxy.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    proxy.cut_after(30);
    control_plane.set(cluster("shop", "two"));
    soon(proxy.expect_cut()).await;
    let mut present = Vec::new();
    let whole = shop.wait_for(|seen| {
        present.push(seen.is_present());
        note(seen) == Some("two")
    });
    soon(whole).await.unwrap();
    assert!(present.iter().all(|present| *present), "{present:?}");
}
