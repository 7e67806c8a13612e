//! The error messages of `watch` for operators: the error, its place, its reason, and what to check.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, future::Future, net::SocketAddr, path::Path};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use xdskit::{
    control_plane::{self, ControlPlane},
    testing::resources::cluster,
};

use super::process::Process;
use crate::common::tls::{Ca, Files, TlsServer};

#[tokio::test]
async fn nobody_listens() {
    let addr = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
    assert_message(
        &Client::insecure(addr),
        &[
            "cannot connect to xDS server",
            "Connection refused",
            "no process listens at this address; is the server running?",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_bootstrap_of_envoys_does_as_well() {
    let (control_plane, server) = serve().await;
    control_plane.set(cluster("shop"));
    let addr = server.addr();
    let document = format!(
        "dynamic_resources:\n  ads_config:\n    api_type: GRPC\n    \
         grpc_services: [{{ google_grpc: {{ target_uri: '{addr}' }} }}]\nadmin: {{}}\n"
    );
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bootstrap.yaml");
    fs::write(&path, document).unwrap();
    let mut watch =
        Process::start("watch", ["--bootstrap", path.to_str().unwrap(), "--json", "cluster=shop"]);
    let line = watch.json().await;
    assert_eq!((&line["watch"], &line["state"]), (&json!("cluster=shop"), &json!("present")));
}

#[tokio::test]
async fn the_host_has_no_address() {
    assert_message(
        &Client::new("xds.invalid:443", json!([{"type": "insecure"}])),
        &["cannot connect to xDS server", "the host xds.invalid cannot be looked up"],
    )
    .await;
}

#[tokio::test]
async fn a_server_accepts_and_sends_nothing() {
    let addr = scripted(|mut io| async move { drop(io.read_to_end(&mut Vec::new()).await) }).await;
    assert_message(
        &Client::insecure(addr),
        &["cannot connect to xDS server", "the server accepted the connection but has sent nothing"],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_is_frozen() {
    let (control_plane, server) = serve().await;
    control_plane.set(cluster("shop"));
    control_plane.set_held(control_plane::session::Held::all());
    assert_message(
        &Client::insecure(server.addr()),
        &["did not send it in time; the server accepted the stream but has sent no response (is this node known to it?)"],
    )
    .await;
}

#[tokio::test]
async fn a_server_without_the_resource() {
    let (control_plane, server) = serve().await;
    control_plane.set(cluster("other"));
    assert_message(
        &Client::insecure(server.addr()),
        &[
            "does not exist: xDS server",
            "did not send it in time; is the name correct and visible to this node?",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_flaps() {
    let addr = scripted(|io| async move { drop(io) }).await;
    assert_message(&Client::insecure(addr), &["it closed the connection without a response; is it healthy, or does the server require TLS (channel_creds `tls`)?"]).await;
}

#[tokio::test]
async fn a_server_that_ends_each_stream() {
    let (events, mut seen) = mpsc::unbounded_channel();
    let control_plane =
        ControlPlane::builder().observe(move |event| drop(events.send(event.clone()))).build();
    control_plane.set_held(control_plane::session::Held::all());
    let server = control_plane.serve(LOOPBACK).await.unwrap();
    let ending = control_plane.clone();
    tokio::spawn(async move {
        while let Some(event) = seen.recv().await {
            if let control_plane::Event::Request { .. } = event {
                ending.disconnect(tonic::Status::resource_exhausted("too many clients"));
            }
        }
    });
    assert_message(
        &Client::insecure(server.addr()),
        &["the stream to xDS server", "RESOURCE_EXHAUSTED: too many clients"],
    )
    .await;
}

#[tokio::test]
async fn plain_text_to_a_server_with_tls() {
    let server = TlsServer::start(ControlPlane::new(), None, Ca::new().server_config()).await;
    assert_message(
        &Client::new(&server.uri(), json!([{"type": "insecure"}])),
        &["does the server require TLS (channel_creds `tls`)?"],
    )
    .await;
}

#[tokio::test]
async fn tls_to_a_server_without() {
    let (_, server) = serve().await;
    assert_message(
        &Client::new(&server.addr().to_string(), json!([{"type": "tls"}])),
        &["it does not use TLS; is it one for channel_creds `insecure`?"],
    )
    .await;
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority() {
    let files = Files::new();
    Ca::new().write_root(&files.ca());
    let server = TlsServer::start(ControlPlane::new(), None, Ca::new().server_config()).await;
    assert_message(
        &Client::tls(&server, &files.ca()),
        &["is not trusted by ca_certificate_file", "it is not signed by one of the roots"],
    )
    .await;
    assert_message(
        &Client::new(&server.uri(), json!([{"type": "tls"}])),
        &["is not trusted by the system's root certificates (no ca_certificate_file is configured)"],
    )
    .await;
}

#[tokio::test]
async fn a_certificate_for_another_host() {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let server = TlsServer::start(ControlPlane::new(), None, ca.server_config_for("xds.example.com")).await;
    assert_message(
        &Client::tls(&server, &files.ca()),
        &["is not for the host \"127.0.0.1\"", "xds.example.com"],
    )
    .await;
}

#[tokio::test]
async fn a_certificate_that_has_expired() {
    let (ca, files) = (Ca::new(), Files::new());
    ca.write_root(&files.ca());
    let server = TlsServer::start(ControlPlane::new(), None, ca.expired_config()).await;
    assert_message(
        &Client::tls(&server, &files.ca()),
        &[
            "the server's certificate (IP \"127.0.0.1\")",
            "it has expired (not after 2020-01-01T00:00:00Z; now is 20",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_server_that_wants_a_certificate() {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let server = TlsServer::start(ControlPlane::new(), None, ca.mutual_config(&Ca::new())).await;
    // By its alert, or by the end of the connection, whichever is detected first.
    assert_message(&Client::tls(&server, &files.ca()), &["ertificate"]).await;
}

#[tokio::test]
async fn a_token_that_has_expired() {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let token = files.path("token");
    fs::write(&token, format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(r#"{"exp":1000000000}"#)))
        .unwrap();
    let server = TlsServer::start(ControlPlane::new(), None, ca.server_config()).await;
    let mut client = Client::tls(&server, &files.ca());
    client.server["call_creds"] = json!([{"type": "jwt_token_file", "config": {"jwt_token_file": token}}]);
    assert_message(
        &client,
        &[
            "no credentials for xDS server",
            "jwt_token_file",
            "the token has expired at 2001-09-09T01:46:40Z: replace it by a new one",
        ],
    )
    .await;
}

#[tokio::test]
async fn a_server_for_something_else() {
    let router = tonic::service::Routes::default();
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    tokio::spawn(tonic::transport::Server::builder().add_routes(router).serve_with_incoming(incoming));
    assert_message(
        &Client::insecure(addr),
        &["UNIMPLEMENTED: no aggregated discovery service (ADS) there; is this its port?"],
    )
    .await;
}

/// A client's settings for its server.
struct Client {
    server: Value,
}

impl Client {
    fn new(uri: &str, channel_creds: Value) -> Self {
        Self { server: json!({"server_uri": uri, "channel_creds": channel_creds}) }
    }

    fn insecure(addr: SocketAddr) -> Self {
        Self::new(&addr.to_string(), json!([{"type": "insecure"}]))
    }

    fn tls(server: &TlsServer, ca: &Path) -> Self {
        Self::new(&server.uri(), json!([{"type": "tls", "config": {"ca_certificate_file": ca}}]))
    }
}

/// Runs `watch` for the cluster shop, and checks the parts of its first message.
async fn assert_message(client: &Client, parts: &[&str]) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bootstrap.json");
    let bootstrap = json!({"xds_servers": [client.server], "node": {"id": "operators-node"}});
    fs::write(&path, bootstrap.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let mut watch =
        Process::start("watch", ["--bootstrap", path, "--json", "--resource-timeout", "0.5", "cluster=shop"]);
    let line = watch.json().await;
    assert_eq!(line["state"], "absent", "{line}");
    let message = line["error"]["message"].as_str().unwrap();
    let uri = client.server["server_uri"].as_str().unwrap();
    for part in parts.iter().chain(&["Cluster \"shop\"", uri, "[node id: operators-node]"]) {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

async fn serve() -> (ControlPlane, control_plane::ServerHandle) {
    let control_plane = ControlPlane::new();
    let server = control_plane.serve(LOOPBACK).await.unwrap();
    (control_plane, server)
}

/// Serves connections by a script.
async fn scripted<F: Future<Output = ()> + Send>(
    script: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let script = script(io);
            script.await;
        }
    });
    addr
}

const LOOPBACK: &str = "127.0.0.1:0";
