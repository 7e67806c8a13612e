//! What secures connections, in the status of channels.

use super::*;

/// The security of the connection, in JSON, and the end of its row in the table.
async fn shown(mesh: &Mesh) -> (Value, String) {
    let status = mesh.channel.status().await;
    let table = status.to_string();
    let row = table.lines().find(|line| line.starts_with("127.0.0.1:")).unwrap();
    let json = serde_json::to_value(&status).unwrap();
    let endpoint = &json["leaves"][0]["priorities"][0]["localities"][0]["endpoints"][0];
    let [connection] = endpoint["connections"].as_array().unwrap().as_slice() else { panic!("{json}") };
    (connection["security"].clone(), row.rsplit("  ").next().unwrap().to_owned())
}

#[tokio::test]
async fn ch7_22_the_status_shows_what_secures_a_connection_and_who_the_peer_is() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["a.example", "spiffe://example.org/a"])).await;
    let mesh = secured("ch7_22_cluster", &peer, &ca, upstream(&["a.example"], false)).await;
    answered(&mesh, &mut peer).await;
    let (json, row) = shown(&mesh).await;
    let of_cluster = json!({
        "source": "CLUSTER", "roots": "roots", "identity": null, "server_name": null,
        "peer": "spiffe://example.org/a",
    });
    assert_eq!((json, &*row), (of_cluster, "TLS to spiffe://example.org/a, roots roots"));

    let mut peer = Peer::secured(ca.server_with(&["a.example", "b.example"], Some(&ca))).await;
    let socket = upstream_with(&["a.example"], true, |context| context.sni = "b.example".to_owned());
    let mesh = secured("ch7_22_mutual", &peer, &ca, socket).await;
    answered(&mesh, &mut peer).await;
    let (json, row) = shown(&mesh).await;
    let mutual = json!({
        "source": "CLUSTER", "roots": "roots", "identity": "identity", "server_name": "b.example",
        "peer": "a.example",
    });
    let text = "TLS to a.example, roots roots, identity identity, SNI b.example";
    assert_eq!((json, &*row), (mutual, text));

    let mut peer = Peer::secured(ca.server(&["shop"])).await;
    let files = (ca.file(), ca.issue(&[SHOP]));
    let fallback = |it: ChannelBuilder| it.xds_credentials(ca.fallback());
    let mesh = start("ch7_22_fallback", &[peer.address], (&files.0, &files.1), fallback).await;
    answered(&mesh, &mut peer).await;
    let (json, row) = shown(&mesh).await;
    assert_eq!(json, json!({ "source": "FALLBACK", "peer": "shop" }));
    assert_eq!(row, "fallback TLS to shop");

    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch7_22_plain", &[&peer]).await;
    answered(&mesh, &mut peer).await;
    let (json, row) = shown(&mesh).await;
    assert_eq!((json, &*row), (json!({ "source": "PLAINTEXT" }), "plaintext"));
}
