//! CH7.7: connections of channels that reconnect when certificates are rotated.

use std::fs;

use super::*;

/// The client's certificate is another one from now on.
fn renew(files: &(PathBuf, PathBuf), by: &Ca) {
    let (certificate, key) = by.issue(&["spiffe://example.org/renewed"]);
    fs::copy(key, &files.1).unwrap();
    fs::copy(certificate, &files.0).unwrap();
}

fn reconnecting(builder: ChannelBuilder) -> ChannelBuilder {
    builder.xds_credentials(FallbackCredentials::Plaintext).reconnect_on_rotation(true)
}

/// The connection of a call of a channel, which the peer answers.
async fn connection(channel: &Channel, peer: &mut Peer) -> usize {
    let (mut channel, request) = (channel.clone(), Request::post("/a").body(Given::default()).unwrap());
    let call = async move { channel.call(request).await.unwrap_or_else(|error| match error {}) };
    let call = tokio::spawn(finish(call));
    let received = peer.request().await;
    let connection = received.connection;
    received.respond();
    soon(call).await.unwrap().unwrap();
    connection
}

/// Calls until one has another connection than this.
async fn leaves(channel: &Channel, peer: &mut Peer, before: usize) -> usize {
    soon(async {
        loop {
            let now = connection(channel, peer).await;
            if now != before {
                return now;
            }
        }
    })
    .await
}

#[tokio::test]
async fn ch7_7_connections_are_replaced_by_the_channels_that_are_set_to_and_stay_for_others() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server_with(&["a.example"], Some(&ca))).await;
    let (name, files) = ("ch7_7_setting", (ca.file(), ca.issue(&[SHOP])));
    let mesh = start(name, &[peer.address], (&files.0, &files.1), reconnecting).await;
    secure(&mesh, name, upstream(&["a.example"], true));
    let other = build(&mesh, |it| it.xds_credentials(FallbackCredentials::Plaintext));
    assert_eq!(connection(&mesh.channel, &mut peer).await, 0);
    assert_eq!(connection(&other, &mut peer).await, 1);
    let running = mesh.get("/running");
    let first = peer.request().await;
    assert_eq!(first.connection, 0);
    renew(&files.1, &ca);
    assert_eq!(leaves(&mesh.channel, &mut peer, 0).await, 2);
    assert!(!running.is_finished());
    first.respond();
    soon(running).await.unwrap().unwrap();
    assert_eq!(connection(&other, &mut peer).await, 1);
    assert_eq!(connection(&mesh.channel, &mut peer).await, 2);
}

#[tokio::test]
async fn ch7_7_a_certificate_that_the_server_refuses_leaves_the_connection_in_use() {
    let (log, _guard) = Log::start("xdskit::channel=debug");
    let (ca, unknown) = (Ca::new(), Ca::new());
    let mut peer = Peer::secured(ca.server_with(&["a.example"], Some(&ca))).await;
    let (name, files) = ("ch7_7_refused", (ca.file(), ca.issue(&[SHOP])));
    let mesh = start(name, &[peer.address], (&files.0, &files.1), reconnecting).await;
    secure(&mesh, name, upstream(&["a.example"], true));
    assert_eq!(connection(&mesh.channel, &mut peer).await, 0);
    renew(&files.1, &unknown);
    let failed = || log.lines().iter().filter(|it| it.contains("connection attempt failed")).count();
    soon(async {
        while failed() < 3 {
            assert_eq!(connection(&mesh.channel, &mut peer).await, 0);
        }
    })
    .await;
    renew(&files.1, &ca);
    assert_eq!(leaves(&mesh.channel, &mut peer, 0).await, 1);
    let rotated = "INFO xdskit::channel::task: certificates were rotated, connections are replaced \
                   target_name=xds:///shop roots={} identities={\"identity\"}";
    assert_eq!(log.lines().iter().filter(|it| **it == rotated).count(), 2, "{:?}", log.lines());
}

#[tokio::test]
async fn ch7_7_ch3_8_shared_connections_are_replaced_by_shared_ones() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["a.example"])).await;
    let (name, files) = ("ch7_7_shared", (ca.file(), ca.issue(&[SHOP])));
    let shared = |it: ChannelBuilder| reconnecting(it).share_connections(true);
    let mesh = start(name, &[peer.address], (&files.0, &files.1), shared).await;
    secure(&mesh, name, upstream(&["a.example"], false));
    let same = build(&mesh, shared);
    let stays = build(&mesh, |it| shared(it).reconnect_on_rotation(false));
    for channel in [&mesh.channel, &same, &stays] {
        assert_eq!(connection(channel, &mut peer).await, 0);
    }
    let mut roots = fs::read(&files.0).unwrap();
    roots.extend(fs::read(Ca::new().file()).unwrap());
    fs::write(&files.0, roots).unwrap();
    for channel in [&mesh.channel, &same] {
        assert_eq!(leaves(channel, &mut peer, 0).await, 1);
    }
    assert_eq!(connection(&stays, &mut peer).await, 0);
}

#[tokio::test]
async fn ch7_7_certificates_that_the_cluster_does_not_use_replace_nothing() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server_with(&["a.example"], None)).await;
    let (name, files) = ("ch7_7_unused", (ca.file(), ca.issue(&[SHOP])));
    let mesh = start(name, &[peer.address], (&files.0, &files.1), reconnecting).await;
    mesh.server.set(cluster("cart").edit(|it| it.transport_socket = Some(upstream(&["a.example"], true))));
    mesh.server.set(assignment("cart", &[&peer]));
    secure(&mesh, name, upstream(&["a.example"], false));
    // Another channel, whose cluster uses them, shows when they are rotated.
    mesh.server.set(listener("cart").rds("cart"));
    mesh.server.set(route_config("cart").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    assert_eq!(connection(&mesh.channel, &mut peer).await, 0);
    let other = reconnecting(mesh.client.channel("xds:///cart")).build().unwrap();
    assert_eq!(connection(&other, &mut peer).await, 1);
    renew(&files.1, &ca);
    assert_eq!(leaves(&other, &mut peer, 1).await, 2);
    assert_eq!(connection(&mesh.channel, &mut peer).await, 0);
    for _ in 0..3 {
        peer.connection().await;
    }
    assert!(peer.has_no_further_connection());
}
