//! `xdskit status`: the status of clients, from their status services.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Status,
    body::Body,
    codegen::{Service, http},
    server::NamedService,
    transport,
};
use xdskit::{
    Client, config::Bootstrap, control_plane::type_url, csds::ClientStatusService,
    testing::resources::cluster,
};

use super::{Server, process::Process, walk::serve};

/// Serves the status of clients on loopback.
async fn serve_status<S>(service: S) -> SocketAddr
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible, Future: Send>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let server = transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    addr
}

/// A client with a resolved target, and a cluster with a rejected update.
async fn client(server: &Server, scope: &str) -> Client {
    serve(&server.control_plane, "shop", "10.0.0.1:80");
    let bootstrap = Bootstrap::from_json(&server.control_plane.bootstrap_json()).unwrap();
    let client = Client::builder(bootstrap).scope(scope).build().unwrap();
    client.resolve("xds:///shop").ready().await.unwrap();
    client
}

/// The words of each line.
fn words(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

#[tokio::test]
async fn each_client_is_a_table_with_its_errors_below() {
    let server = Server::start().await;
    let client = client(&server, "xds:///shop").await;
    let mut watch = client.watch::<xdskit::resource::Cluster>("shop");
    let version = server.control_plane.version(type_url::CLUSTER);
    watch.ready().await.unwrap();
    server.control_plane.set(cluster("shop").edit(|cluster| cluster.eds_cluster_config = None));
    watch.wait_for(|seen| seen.error().is_some()).await.unwrap();
    let _tree = client.resolve("xds:///shop");
    let service = ClientStatusService::new();
    service.add(&client);
    let addr = serve_status(service).await.to_string();

    let mut status = Process::tool(["status", &addr, "--filter", "cluster=s*"], &[]);
    let text = status.text().await;
    let lines = words(&text);
    assert_eq!(text.lines().next(), Some(&*format!("Client \"xds:///shop\", node \"test\", at {addr}")));
    assert_eq!(lines[1], ["Name", "Status", "Version", "Type", "LastUpdated"]);
    assert_eq!(lines[2][..4], ["shop", "NACKED", &version, "envoy.config.cluster.v3.Cluster"]);
    assert!(text.lines().nth(3).unwrap().starts_with("! Cluster \"shop\": eds_cluster_config"), "{text}");
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(status.exit().await.code(), Some(0));

    let mut status = Process::tool(["status", "--json", &addr], &[]);
    let line = status.json().await;
    assert_eq!((&line["client_scope"], &line["node"]["id"]), (&json!("xds:///shop"), &json!("test")));
    let resources = line["generic_xds_configs"].as_array().unwrap();
    let bad = resources.iter().find(|resource| resource["type_url"] == type_url::CLUSTER).unwrap();
    assert_eq!((&bad["client_status"], &bad["xds_config"]["name"]), (&json!("NACKED"), &json!("shop")));
    assert!(bad["error_state"]["details"].as_str().unwrap().contains("eds_cluster_config"));
    assert_eq!((status.line().await, status.exit().await.code()), (None, Some(0)));
}

#[tokio::test]
async fn several_clients_and_servers_are_shown_one_after_the_other() {
    let server = Server::start().await;
    let (one, other) = (client(&server, "one").await, client(&server, "other").await);
    let service = ClientStatusService::new();
    service.add(&one);
    service.add(&other);
    let addr = serve_status(service).await.to_string();
    let nobody = serve_status(ClientStatusService::new()).await.to_string();
    let mut status = Process::tool(["status", &addr, &nobody], &[]);
    let text = status.text().await;
    for part in ["Client \"one\"", "\n\nClient \"other\"", &*format!("No clients at {nobody}.")] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(status.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_server_with_the_streaming_method_alone_is_queried_by_it() {
    let server = Server::start().await;
    let client = client(&server, "streamed").await;
    let service = ClientStatusService::new();
    service.add(&client);
    let addr = serve_status(StreamAlone(service)).await.to_string();
    let mut status = Process::tool(["status", &addr], &[]);
    let text = status.text().await;
    assert!(text.starts_with("Client \"streamed\""), "{text}");
    assert_eq!(status.exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_failed_query_is_exit_code_1_with_the_reason() {
    let server = Server::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = closed.local_addr().unwrap().to_string();
    drop(closed);
    let good = serve_status(ClientStatusService::new()).await.to_string();
    for (addr, part) in [
        (gone, "Connection refused"),
        (silent.local_addr().unwrap().to_string(), "no answer within 300ms"),
        (server.control_plane.addr().to_string(), "there is no client status service (CSDS)"),
    ] {
        let mut status = Process::tool(["status", "--timeout=0.3", &addr, &good], &[]);
        let line = status.complaint(&addr).await;
        assert!(line.contains(part), "{part:?} is not in {line:?}");
        assert!(status.text().await.contains(&good), "the others are queried nevertheless");
        assert_eq!(status.exit().await.code(), Some(1), "{addr}");
    }
}

/// A status service without the unary method, as in some servers.
#[derive(Clone)]
struct StreamAlone(ClientStatusService);

impl NamedService for StreamAlone {
    const NAME: &'static str = ClientStatusService::NAME;
}

impl Service<http::Request<Body>> for StreamAlone {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path().ends_with("/FetchClientStatus") {
            return async { Ok(Status::unimplemented("").into_http()) }.boxed();
        }
        self.0.call(request).boxed()
    }
}
