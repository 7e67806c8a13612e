//! Identity tokens of Google Cloud (A83).

use super::{
    filters::{any, with_filter},
    secure::Ca,
    *,
};
use crate::{
    channel::metadata_server::tests::{Answer, Metadata, token},
    pb::envoy::config::{
        core::v3::Metadata as ClusterMetadata, route::v3::RetryPolicy, route::v3::route::Action,
    },
    testing::resources::ClusterBuilder,
};

const FILTER: &str = "envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfig";
const AUDIENCE: &str = "envoy.extensions.filters.http.gcp_authn.v3.Audience";
/// `url: "https://shop"`
const SHOP: &[u8] = b"\x0a\x0chttps://shop";

/// A token that is valid until the year 2100.
fn good() -> Answer {
    Answer::Respond(200, token(LASTING))
}

const LASTING: &str = r#"{"exp":4102444800}"#;

/// A cluster with a value in its metadata under the name of the filter.
fn with_metadata(name: &str, type_name: &str, value: &[u8]) -> ClusterBuilder {
    let any = any(type_name, value);
    cluster(name).edit(|cluster| {
        let typed_filter_metadata = [("mine".to_owned(), any)].into();
        cluster.metadata = Some(ClusterMetadata { typed_filter_metadata, ..Default::default() });
    })
}

/// A mesh whose cluster has an audience, and whose connections are private.
async fn start(name: &str, (peer, ca): (&Peer, &Ca), metadata: &Metadata) -> Mesh {
    let host = metadata.host.clone();
    let fallback = ca.fallback();
    let settings = |it: ChannelBuilder| it.gcp_metadata_server(host).xds_credentials(fallback);
    let mesh = Mesh::with(name, &[peer], settings).await;
    with_filter(&mesh, any(FILTER, b""));
    mesh.server.set(with_metadata(name, AUDIENCE, SHOP));
    mesh
}

async fn status(call: JoinHandle<Result<(), Status>>) -> (Code, String) {
    let status = soon(call).await.unwrap().unwrap_err();
    (status.code(), status.message().to_owned())
}

/// Lets time pass.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn ch5_13_a_call_on_a_plaintext_connection_is_unauthenticated_and_fetches_no_token() {
    let (mut peer, mut metadata) = (Peer::start().await, Metadata::start([good()]).await);
    let name = "ch5_13_plaintext";
    let mesh = Mesh::with(name, &[&peer], |it| it.gcp_metadata_server(metadata.host.clone())).await;
    with_filter(&mesh, any(FILTER, b""));
    mesh.server.set(with_metadata(name, AUDIENCE, SHOP));
    let (code, message) = status(mesh.get("/a")).await;
    let reason = "the connection is plaintext, and the call has credentials, which are sent with TLS alone";
    assert_eq!((code, message), (Code::Unauthenticated, format!("{}: {reason}", peer.address)));
    assert_eq!((metadata.is_quiet(), peer.is_quiet(), mesh.running(name)), (true, true, 0));
}

#[tokio::test]
async fn ch5_13_calls_have_the_token_of_one_fetch() {
    let ca = Ca::new();
    let (mut peer, mut metadata) =
        (Peer::secured(ca.server(&["shop"])).await, Metadata::start([good()]).await);
    let mesh = start("ch5_13_token", (&peer, &ca), &metadata).await;
    let calls: Vec<_> = (0..3).map(|_| mesh.get("/a")).collect();
    for _ in 0..3 {
        let received = peer.request().await;
        assert_eq!(received.header("authorization"), Some(&*format!("Bearer {}", token(LASTING))));
        received.respond();
    }
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    assert!(metadata.request().await.contains("?audience=https%3a%2f%2fshop "));
    assert!(metadata.is_quiet());
}

#[tokio::test]
async fn ch5_12_metadata_decide_whether_calls_have_a_token() {
    let ca = Ca::new();
    let (mut peer, metadata) = (Peer::secured(ca.server(&["shop"])).await, Metadata::start([good()]).await);
    let name = "ch5_12_metadata";
    let mesh = start(name, (&peer, &ca), &metadata).await;
    mesh.server.set(cluster(name));
    let call = mesh.get("/none");
    let received = peer.request().await;
    assert_eq!(received.header("authorization"), None);
    received.respond();
    soon(call).await.unwrap().unwrap();
    // `socket_address { address: "10.0.0.1" port_value: 1 }`
    let address = b"\x0a\x0c\x12\x0810.0.0.1\x18\x01";
    mesh.server.set(with_metadata(name, "envoy.config.core.v3.Address", address));
    let expected = "HTTP filter \"mine\": the metadata of cluster ch5_12_metadata under it are no Audience";
    loop {
        let call = mesh.get("/address");
        tokio::select! {
            received = peer.request() => {
                received.respond();
                soon(call).await.unwrap().unwrap();
            }
            () = until("it fails", || call.is_finished()) => {
                let (code, message) = status(call).await;
                assert_eq!(code, Code::Unavailable);
                assert!(message.starts_with(expected), "{message}");
                break;
            }
        }
    }
    mesh.server.set(with_metadata(name, AUDIENCE, SHOP));
    loop {
        let call = mesh.get("/audience");
        tokio::select! {
            received = peer.request() => {
                assert!(received.header("authorization").is_some());
                received.respond();
                return soon(call).await.unwrap().unwrap();
            }
            () = until("it fails", || call.is_finished()) => {
                assert_eq!(status(call).await.0, Code::Unavailable);
            }
        }
    }
}

#[tokio::test]
async fn ch5_12_a_cluster_that_does_not_exist_is_unavailable() {
    let ca = Ca::new();
    let (peer, metadata) = (Peer::secured(ca.server(&["shop"])).await, Metadata::start([good()]).await);
    let mesh = start("ch5_12_missing", (&peer, &ca), &metadata).await;
    let route = route::prefix("").cluster("nobody");
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let (code, message) = status(mesh.get("/a")).await;
    assert_eq!(code, Code::Unavailable);
    let expected = "HTTP filter \"mine\": the configuration lacks the cluster nobody";
    assert!(message.starts_with(expected), "{message}");
}

#[tokio::test]
async fn ch5_14_calls_fail_with_the_status_of_the_fetch_until_the_end_of_the_backoff() {
    let unavailable = Answer::Respond(503, String::new());
    let ca = Ca::new();
    let (mut peer, mut metadata) =
        (Peer::secured(ca.server(&["shop"])).await, Metadata::start([unavailable, good()]).await);
    let mesh = start("ch5_14_backoff", (&peer, &ca), &metadata).await;
    let expected = (Code::Unavailable, "identity token for https://shop: HTTP status 503".to_owned());
    assert_eq!(status(mesh.get("/a")).await, expected);
    metadata.request().await;
    assert_eq!(status(mesh.get("/b")).await, expected);
    assert!(metadata.is_quiet());
    pass(Duration::from_millis(1_201)).await;
    let call = mesh.get("/c");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch5_14_a_call_that_ends_during_a_fetch_leaves_it_to_the_others() {
    let ca = Ca::new();
    let (mut peer, mut metadata) =
        (Peer::secured(ca.server(&["shop"])).await, Metadata::start([Answer::Silence]).await);
    let name = "ch5_14_ends";
    let mesh = start(name, (&peer, &ca), &metadata).await;
    let first = mesh.get("/first");
    metadata.request().await;
    let (short, dropped) = (mesh.with_timeout("/short", "5S"), mesh.get("/dropped"));
    until("they have picked", || mesh.running(name) == 3).await;
    dropped.abort();
    until("it is gone", || mesh.running(name) == 2).await;
    pass(Duration::from_millis(5_001)).await;
    let expected = "deadline exceeded: the identity token is being fetched";
    assert_eq!(status(short).await, (Code::DeadlineExceeded, expected.into()));
    pass(Duration::from_secs(5)).await;
    let (code, message) = status(first).await;
    assert_eq!((code, message.contains("no response within 10s")), (Code::Unavailable, true), "{message}");
    assert_eq!((peer.is_quiet(), metadata.is_quiet(), mesh.running(name)), (true, true, 0));
}

#[tokio::test]
async fn ch5_13_each_attempt_has_the_token() {
    let ca = Ca::new();
    let (mut peer, mut metadata) =
        (Peer::secured(ca.server(&["shop"])).await, Metadata::start([good()]).await);
    let name = "ch5_13_retries";
    let mesh = start(name, (&peer, &ca), &metadata).await;
    let route = route::prefix("").cluster(name).edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.retry_policy = Some(RetryPolicy { retry_on: "unavailable".into(), ..RetryPolicy::default() });
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let call = mesh.get("/a");
    for attempt in 0..2 {
        let received = peer.request().await;
        let expected = format!("Bearer {}", token(LASTING));
        assert_eq!(received.header("authorization"), Some(&*expected), "attempt {attempt}");
        if attempt == 0 {
            received.fail(Code::Unavailable, &[]);
        } else {
            received.respond();
        }
    }
    soon(call).await.unwrap().unwrap();
    metadata.request().await;
    assert!(metadata.is_quiet());
}
