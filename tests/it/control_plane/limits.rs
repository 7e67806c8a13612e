//! The limits of clients over real connections, and how clients are known.

use prost::Message;
use serde_json::json;
use tokio::{io::AsyncReadExt, net::TcpStream};
use tonic::{Code, Status};
use xdskit::{
    Client,
    config::{Bootstrap, Node, Server as Upstream, TlsConfig},
    control_plane::{
        ControlPlane, ServerHandle, ServerLimits, ServerTls, session::Limits, type_url::CLUSTER,
    },
    resource::Cluster,
    testing::resources::cluster,
};

use super::{
    peer::{DeltaPeer, Opening, Peer, connect, delta_request},
    rest::post,
};
use crate::common::tls::{Ca, Files};

async fn start(limits: Limits, server_limits: ServerLimits) -> (ControlPlane, ServerHandle) {
    let control_plane = ControlPlane::builder().limits(limits).server_limits(server_limits).build();
    control_plane.set(cluster("a"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server)
}

fn exhausted(ended: Result<Option<bytes::Bytes>, Status>, setting: &str) {
    let status = ended.expect_err("the stream ends");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains(setting), "{status:?}");
}

#[tokio::test]
async fn cp10_a_request_above_the_largest_size_ends_its_stream_alone() {
    let request = delta_request(CLUSTER, &["a"], &[]);
    let mut limits = ServerLimits::default();
    limits.max_request_size = request.encoded_len();
    let (_control_plane, server) = start(Limits::default(), limits).await;
    let connection = connect(&server.uri()).await;
    let mut other = DeltaPeer::on_connection(connection.clone()).await;
    other.send(&request);
    assert_eq!(other.response().await.resources.len(), 1, "it is at the limit");
    let mut peer = DeltaPeer::on_connection(connection).await;
    peer.change(CLUSTER, &["ab"], &[]);
    exhausted(peer.raw().await, "(max_request_size)");
    other.change(CLUSTER, &[], &["a"]);
    other.change(CLUSTER, &["a"], &[]);
    drop(peer);
}

#[tokio::test]
async fn cp4_more_names_than_a_stream_may_have_end_it_with_the_setting() {
    let mut limits = Limits::default();
    limits.max_names = 2;
    let (_control_plane, server) = start(limits, ServerLimits::default()).await;
    let mut peer = Peer::connect(&server.uri()).await;
    peer.request(CLUSTER, &["a", "b"]);
    peer.response().await;
    peer.request(CLUSTER, &["a", "b", "c"]);
    exhausted(peer.raw().await, "(max_names)");
}

#[tokio::test]
async fn cp11_the_names_of_all_clients_together_have_a_limit() {
    let mut limits = ServerLimits::default();
    limits.max_total_names = 2;
    let (control_plane, server) = start(Limits::default(), limits).await;
    let mut first = Peer::connect(&server.uri()).await;
    first.request(CLUSTER, &["a", "b"]);
    first.response().await;
    let mut second = Peer::connect(&server.uri()).await;
    second.request(CLUSTER, &["a", "b"]);
    second.response().await;
    let mut third = Peer::connect(&server.uri()).await;
    third.request(CLUSTER, &["c"]);
    exhausted(third.raw().await, "(max_total_names)");
    // What it had subscribed to is forgotten, and what the others have is not.
    let mut fourth = Peer::connect(&server.uri()).await;
    fourth.request(CLUSTER, &["a"]);
    fourth.response().await;
    assert_eq!(control_plane.subscriptions().len(), 2);
    assert_eq!(control_plane.subscriptions().streams(CLUSTER, "a"), 3);
}

#[tokio::test]
async fn cp12_further_streams_on_a_connection_wait_and_further_connections_are_closed() {
    let mut limits = ServerLimits::default();
    limits.max_streams_per_connection = 1;
    limits.max_connections = 1;
    let (control_plane, server) = start(Limits::default(), limits).await;
    let connection = connect(&server.uri()).await;
    let mut first = DeltaPeer::on_connection(connection.clone()).await;
    first.change(CLUSTER, &["a"], &[]);
    first.response().await;
    let second = tokio::spawn(DeltaPeer::on_connection(connection));
    let mut refused = TcpStream::connect(server.addr()).await.unwrap();
    // The end of the input, or a reset.
    assert!(refused.read(&mut [0; 1]).await.unwrap_or_default() == 0);
    assert_eq!(control_plane.streams(), 1);
    drop(first);
    let mut second = second.await.unwrap();
    second.change(CLUSTER, &["a"], &[]);
    assert_eq!(second.response().await.resources.len(), 1);
}

#[tokio::test]
async fn cp19_streams_and_polls_without_permission_are_refused() {
    let control_plane = ControlPlane::builder()
        .authorize(|headers| match headers.get("authorization") {
            Some(token) if token == "Bearer sesame" => Ok(()),
            Some(_) | None => Err(Status::unauthenticated("a token is needed")),
        })
        .build();
    control_plane.set(cluster("a"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let opening = Opening::start(&server.uri()).await;
    opening.request(CLUSTER, &["a"]);
    let status = opening.headers.await.unwrap().expect_err("no permission");
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "a token is needed"));
    assert_eq!(control_plane.streams(), 0);
    let path = "/v3/discovery:clusters";
    assert_eq!(post(&server, path, &json!({})).await, (401, "a token is needed".to_owned()));
}

#[tokio::test]
async fn cp19_a_server_with_tls_needs_certificates_of_clients_where_it_has_authorities_for_them() {
    let (files, ca, clients) = (Files::new(), Ca::new(), Ca::new());
    let (chain, private_key) = ca.issue("127.0.0.1");
    std::fs::write(files.path("server.pem"), chain).unwrap();
    std::fs::write(files.path("server.key"), private_key).unwrap();
    clients.write_root(&files.path("clients.pem"));
    clients.write_identity(&files.certificate(), &files.key());
    ca.write_root(&files.ca());
    let control_plane = ControlPlane::new();
    control_plane.set(cluster("a").eds());
    for client_ca in [None, Some(files.path("clients.pem"))] {
        let tls =
            ServerTls::from_files(files.path("server.pem"), files.path("server.key"), client_ca.as_deref());
        let server = control_plane.serve_tls("127.0.0.1:0", tls.unwrap()).await.unwrap();
        // A client that never begins its handshake delays no other one.
        let _silent = TcpStream::connect(server.addr()).await.unwrap();
        for has_certificate in [true, false] {
            let mut tls = TlsConfig::default().with_ca_certificate_file(files.ca());
            if has_certificate {
                tls = tls.with_identity(files.certificate(), files.key());
            }
            let upstream = Upstream::new(server.addr().to_string()).tls(tls);
            let bootstrap = Bootstrap::builder().node(Node::new("me")).server(upstream).build().unwrap();
            let client = Client::builder(bootstrap).build().unwrap();
            let mut watch = client.watch::<Cluster>("a");
            let seen = watch.wait_for(|seen| !seen.is_pending()).await.unwrap();
            assert_eq!(seen.is_present(), has_certificate || client_ca.is_none(), "{seen:?}");
        }
    }
    let swapped = ServerTls::from_files(files.path("server.pem"), files.key(), None).unwrap_err();
    assert!(swapped.to_string().contains("not for the key"), "{swapped}");
}

#[tokio::test]
async fn cp19_files_of_tls_are_read_again_and_the_last_ones_stay_while_they_cannot_be_used() {
    let (files, old, new) = (Files::new(), Ca::new(), Ca::new());
    let write = |ca: &Ca| {
        let (chain, private_key) = ca.issue("127.0.0.1");
        std::fs::write(files.path("server.pem"), chain).unwrap();
        std::fs::write(files.path("server.key"), private_key).unwrap();
    };
    write(&old);
    let tls = ServerTls::from_files(files.path("server.pem"), files.path("server.key"), None).unwrap();
    let control_plane = ControlPlane::new();
    control_plane.set(cluster("a").eds());
    let server = control_plane.serve_tls("127.0.0.1:0", tls.clone()).await.unwrap();
    let is_trusted = async |ca: &Ca| {
        ca.write_root(&files.ca());
        let upstream = TlsConfig::default().with_ca_certificate_file(files.ca());
        let upstream = Upstream::new(server.addr().to_string()).tls(upstream);
        let bootstrap = Bootstrap::builder().node(Node::new("me")).server(upstream).build().unwrap();
        let client = Client::builder(bootstrap).build().unwrap();
        client.watch::<Cluster>("a").wait_for(|seen| !seen.is_pending()).await.unwrap().is_present()
    };
    assert!(!tls.reload().unwrap(), "nothing has changed");
    write(&new);
    assert!(is_trusted(&old).await, "the new files were not read yet");
    assert!(tls.reload().unwrap());
    assert!(is_trusted(&new).await);
    assert!(!is_trusted(&old).await);
    std::fs::write(files.path("server.key"), "none").unwrap();
    assert!(tls.reload().unwrap_err().to_string().contains("no private key in it"));
    assert!(is_trusted(&new).await);
}
