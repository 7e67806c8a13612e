//! CH7.17: certificate revocation lists of channels.

use super::*;
use crate::channel::{ChannelError, RevocationLists};

#[tokio::test]
async fn ch7_17_a_server_that_is_revoked_fails_calls_with_the_address_and_the_list() {
    let (ca, other) = (Ca::new(), Ca::new());
    let mut peer = Peer::secured(ca.server_with_serial(&["a.example", "shop"], 7)).await;
    let files = (ca.file(), ca.issue(&[SHOP]));
    let address = peer.address;
    for (name, is_fallback) in [("ch7_17_cluster", false), ("ch7_17_fallback", true)] {
        let mesh = async |lists: RevocationLists| {
            let fallback = if is_fallback { ca.fallback() } else { FallbackCredentials::Plaintext };
            let settings = |it: ChannelBuilder| it.xds_credentials(fallback).certificate_revocation(lists);
            let mesh = start(name, &[address], (&files.0, &files.1), settings).await;
            if !is_fallback {
                secure(&mesh, name, upstream(&["a.example"], false));
            }
            mesh
        };
        let list = ca.revoke(&[7]);
        let revoked = mesh(RevocationLists::files([&list]).fail_open()).await;
        fails(&revoked, &format!("{address}: ")).await;
        fails(&revoked, "certificate 07 of the issuer").await;
        fails(&revoked, &format!("is revoked by {}", list.display())).await;
        let unknown = mesh(RevocationLists::files([other.revoke(&[])])).await;
        fails(&unknown, "is not signed by the key of the issuer").await;
        assert!(peer.is_quiet());
        let accepted = mesh(RevocationLists::files([ca.revoke(&[8])])).await;
        let call = accepted.get("/a");
        let received = peer.request().await;
        assert_eq!(received.request.uri().scheme_str(), Some("https"));
        received.respond();
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch7_17_ch7_21_shared_connections_are_of_the_same_lists() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["shop"])).await;
    let files = (ca.file(), ca.issue(&[SHOP]));
    let fallback = |it: ChannelBuilder| it.share_connections(true).xds_credentials(ca.fallback());
    let lists = RevocationLists::files([ca.revoke(&[])]);
    let mesh = start("ch7_17_shared", &[peer.address], (&files.0, &files.1), fallback).await;
    let with =
        |lists: &RevocationLists| build(&mesh, |it| fallback(it).certificate_revocation(lists.clone()));
    let channels = [mesh.channel.clone(), with(&lists), with(&lists), with(&lists.clone().fail_open())];
    let mut connections = Vec::new();
    for channel in &channels {
        let mut channel = channel.clone();
        let request = Request::post("/a").body(Given::default()).unwrap();
        let call = async move { channel.call(request).await.unwrap_or_else(|error| match error {}) };
        let call = tokio::spawn(finish(call));
        let received = peer.request().await;
        connections.push(received.connection);
        received.respond();
        soon(call).await.unwrap().unwrap();
    }
    assert_eq!(connections, [0, 1, 1, 2]);
}

#[tokio::test]
async fn ch7_17_lists_without_credentials_are_an_error() {
    let peer = Peer::start().await;
    let mesh = Mesh::start("ch7_17_plaintext", &[&peer]).await;
    let builder = mesh.client.channel("xds:///shop");
    let built = builder.certificate_revocation(RevocationLists::directory("/nowhere")).build();
    let error = built.unwrap_err();
    assert!(matches!(error, ChannelError::RevocationWithoutCredentials { .. }));
    assert_eq!(
        error.to_string(),
        "the channel to xds:///shop has revocation lists, and no `xds_credentials`: its connections have no TLS"
    );
}
