//! Polls from the driver's point of view, of the control plane's gateway and of scripted servers.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::{future::Future, time::Duration};

use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc::{self, UnboundedReceiver},
    time::{Instant, timeout},
};

use super::*;
use crate::{
    config::{ApiType, CustomCredentials, Polling, Server},
    control_plane::type_url::{CLUSTER, ENDPOINTS},
    engine::Input,
    error::Code,
    pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    protocol::{ServerId, StreamEvent, StreamId},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints},
    },
    transport::{
        Disconnect, DisconnectKind,
        credentials::{
            ChannelCredentialsPlugin, ConnectionCredentials, CredentialsContext, CredentialsRegistry, Loading,
        },
    },
};

#[tokio::test]
async fn d10_a_request_is_answered_once() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(cluster("shop"));
    let mut peer = Peer::connect(&control_plane.uri());
    let response = peer.poll(&request("")).await.unwrap().unwrap();
    assert_eq!((&*response.type_url, response.resources.len()), (CLUSTER, 1));
    assert_eq!(peer.poll(&request(&response.version_info)).await, Ok(None));
    let requests = control_plane.requests();
    let [first, second] = &requests.iter().collect::<Vec<_>>()[..] else { panic!("{requests:?}") };
    assert_eq!(first.message().node().unwrap().id, "me");
    assert_eq!(second.message().sotw().unwrap().version_info, response.version_info);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other_and_all_types() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
    let proxy = control_plane.proxy().await;
    let transport = RestTransport::new(&GrpcTransport::default().with_max_message_size(1 << 20));
    let server: Arc<Server> = Arc::new(Server::new(format!("http://{}", proxy.addr())).build().unwrap());
    let mut clusters = Peer::with(&transport, server.clone(), "/v3/discovery:clusters", POLLING);
    let mut assignments = Peer::with(&transport, server, "/v3/discovery:endpoints", POLLING);
    for _ in 0..3 {
        clusters.poll(&request("")).await.unwrap();
        let message = DiscoveryRequest { type_url: ENDPOINTS.into(), ..request("") };
        assert_eq!(assignments.poll(&message).await.unwrap().unwrap().resources.len(), 1);
    }
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn d11_another_status_is_a_failure_and_the_next_request_is_answered() {
    let control_plane = TestControlPlane::start().await;
    let mut peer = Peer::connect(&control_plane.uri());
    control_plane.set_rest_status(Some(http::StatusCode::SERVICE_UNAVAILABLE));
    let failure = peer.poll(&request("")).await.unwrap_err();
    assert_eq!(failure.kind, DisconnectKind::Failed(Code::Unavailable));
    assert_eq!(failure.message, "HTTP status 503 Service Unavailable: as the test has it");
    control_plane.set_rest_status(None);
    assert!(peer.poll(&request("")).await.unwrap().is_some());
}

#[tokio::test]
async fn ms6_a_404_is_an_absence_and_a_405_is_a_failure() {
    let mut peer = Peer::connect(&answering(404, "No resources found").await);
    for _ in 0..2 {
        assert_eq!(peer.poll(&request("")).await, Ok(Some(DiscoveryResponse::default())));
    }
    let mut peer = Peer::connect(&answering(405, "").await);
    assert_eq!(peer.poll(&request("")).await.unwrap_err().kind, DisconnectKind::Failed(Code::Unimplemented));
}

#[tokio::test]
async fn d11_a_200_that_is_no_response_is_a_failure() {
    let cut = r#"{"version_info": "1", "resources": ["#;
    let other = format!(r#"{{"version_info": "1", "type_url": "{ENDPOINTS}"}}"#);
    for (body, why) in [
        ("garbage", "the response is not a DiscoveryResponse: line 1, column 1: expected value"),
        ("", "the response is not a DiscoveryResponse: there is nothing in it"),
        (
            "{}",
            "the response is not a DiscoveryResponse: has neither resources nor a version, so it is not a DiscoveryResponse",
        ),
        (cut, "the response is not a DiscoveryResponse: line 1, column 36: EOF while parsing a list"),
        (&other, &format!("the response is of the type {ENDPOINTS:?}, not {CLUSTER:?}")),
    ] {
        let mut peer = Peer::connect(&answering(200, body).await);
        let failure = peer.poll(&request("")).await.unwrap_err();
        assert_eq!(failure, Disconnect::new(DisconnectKind::Unusable, why));
    }
}

#[tokio::test]
async fn a_response_without_a_type_is_of_the_requested_type() {
    let uri = answering(200, r#"{"versionInfo": "1", "resources": [], "colour": 1}"#).await;
    let response = Peer::connect(&uri).poll(&request("")).await.unwrap().unwrap();
    assert_eq!((&*response.version_info, &*response.type_url), ("1", CLUSTER));
}

#[tokio::test]
async fn nobody_listens() {
    let addr = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
    let mut peer = Peer::connect(&format!("http://{addr}"));
    let failure = peer.poll(&request("")).await.unwrap_err();
    assert_eq!(failure.kind, DisconnectKind::Unreachable);
    assert!(failure.message.contains("no process listens at this address"), "{}", failure.message);
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("xds.sock");
    let mut peer = Peer::connect_with(Server::new(format!("unix:{}", path.display())).insecure());
    let failure = peer.poll(&request("")).await.unwrap_err();
    assert_eq!(failure.kind, DisconnectKind::Unreachable);
    assert!(failure.message.contains("No such file"), "{}", failure.message);
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let incoming = tokio_stream::wrappers::UnixListenerStream::new(listener);
    let control_plane = crate::control_plane::ControlPlane::new();
    let mut server = tonic::transport::Server::builder().accept_http1(true);
    let serving = tokio::spawn(server.add_routes(control_plane.routes()).serve_with_incoming(incoming));
    assert!(peer.poll(&request("")).await.unwrap().is_some());
    serving.abort();
}

#[tokio::test]
async fn a_restarted_server_is_found_again() {
    let control_plane = TestControlPlane::start().await;
    let mut peer = Peer::connect(&control_plane.uri());
    assert!(peer.poll(&request("")).await.is_ok());
    control_plane.stop().await;
    assert!(peer.poll(&request("")).await.is_err());
    control_plane.restart().await;
    assert!(peer.poll(&request("")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn d11_an_answer_has_its_time_and_no_more() {
    let (addr, mut accepted) = listening().await;
    let begin = Instant::now();
    let mut peer = Peer::connect(&format!("http://{addr}"));
    let failure = peer.poll(&request("")).await.unwrap_err();
    assert_eq!(failure.kind, DisconnectKind::Failed(Code::DeadlineExceeded));
    assert_eq!(failure.message, "no answer within 1s (request_timeout)");
    assert_eq!(begin.elapsed().as_secs(), 1);
    // A connection with an unanswered request is not reused.
    peer.poll(&request("")).await.unwrap_err();
    accepted.recv().await.unwrap();
    accepted.recv().await.unwrap();
}

#[tokio::test]
async fn a_response_over_the_limit_is_not_read() {
    let control_plane = TestControlPlane::start().await;
    control_plane.set(cluster("x".repeat(1000)));
    let transport = RestTransport::new(&GrpcTransport::default().with_max_message_size(500));
    let server = Arc::new(Server::new(control_plane.uri()).build().unwrap());
    let mut peer = Peer::with(&transport, server, "/v3/discovery:clusters", POLLING);
    let failure = peer.poll(&request("")).await.unwrap_err();
    assert_eq!(failure.kind, DisconnectKind::TooLarge { limit: 500 });
}

#[tokio::test]
async fn d13_a_request_whose_answer_is_held_back_is_given_up_for_a_newer_one() {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let mut peer = Peer::connect(&format!("http://{}", listener.local_addr().unwrap()));
    peer.connection.send(request("1").encode_to_vec().into());
    let (mut held, _) = soon(listener.accept()).await.unwrap();
    read_request(&mut held).await;
    let sent = soon(peer.inputs.recv()).await.unwrap();
    assert!(matches!(sent, Input::Transport(StreamEvent::RequestSent { .. })), "{sent:?}");
    peer.connection.send(request("2").encode_to_vec().into());
    let (mut socket, _) = soon(listener.accept()).await.unwrap();
    assert!(read_request(&mut socket).await.contains("\"2\""));
    // The server sees the end of the first one, and can give it up as well.
    assert_eq!(soon(held.read(&mut [0])).await.unwrap_or_default(), 0);
    socket.write_all(b"HTTP/1.1 304 x\r\n\r\n").await.unwrap();
    let sent = soon(peer.inputs.recv()).await.unwrap();
    assert!(matches!(sent, Input::Transport(StreamEvent::RequestSent { .. })), "{sent:?}");
    let unchanged = soon(peer.inputs.recv()).await.unwrap();
    assert!(matches!(unchanged, Input::Transport(StreamEvent::Unchanged { .. })), "{unchanged:?}");
}

#[tokio::test]
async fn the_request_has_its_host_and_content_type() {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let mut peer = Peer::connect(&format!("http://{addr}"));
    peer.connection.send(request("").encode_to_vec().into());
    let (mut socket, _) = listener.accept().await.unwrap();
    let text = read_request(&mut socket).await;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v3/discovery:clusters HTTP/1.1\r\n"), "{head}");
    for line in [
        "content-type: application/json".to_owned(),
        format!("host: {addr}"),
        format!("content-length: {}", body.len()),
    ] {
        assert!(head.lines().any(|it| it == line), "{head}");
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body, serde_json::json!({"node": {"id": "me"}, "type_url": CLUSTER}));
}

#[tokio::test]
async fn the_scheme_is_http_where_a_plugin_leaves_the_connection_in_plaintext() {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let credentials = CredentialsRegistry::default().with_channel("plaintext", Plaintext);
    let transport = RestTransport::new(&GrpcTransport::default().with_credentials(credentials));
    // 443 is left out of `host` where it is the port of the scheme.
    let server = Server::new(listener.local_addr().unwrap().to_string()).authority("xds.example:443");
    let server = server.custom_credentials(CustomCredentials::new("plaintext", serde_json::Value::Null));
    let server = Arc::new(server.build().unwrap());
    let mut peer = Peer::with(&transport, server, "/v3/discovery:clusters", POLLING);
    peer.connection.send(request("").encode_to_vec().into());
    let (mut socket, _) = soon(listener.accept()).await.unwrap();
    let text = soon(read_request(&mut socket)).await;
    assert!(text.contains("\r\nhost: xds.example:443\r\n"), "{text}");
}

/// Channel credentials of an application, which secure nothing.
#[derive(Debug)]
struct Plaintext;

impl ChannelCredentialsPlugin for Plaintext {
    fn load<'a>(&'a self, _: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
        Box::pin(async { Ok(ConnectionCredentials::plaintext()) })
    }
}

/// The driver's side of a connection.
struct Peer {
    connection: Box<dyn Connection>,
    inputs: UnboundedReceiver<Input>,
}

impl Peer {
    fn connect(uri: &str) -> Self {
        Self::connect_with(Server::new(uri))
    }

    fn connect_with(server: crate::config::ServerBuilder) -> Self {
        let server = Arc::new(server.build().unwrap());
        Self::with(
            &RestTransport::new(&GrpcTransport::default().with_max_message_size(1 << 20)),
            server,
            "/v3/discovery:clusters",
            POLLING,
        )
    }

    fn with(transport: &RestTransport, server: Arc<Server>, path: &'static str, polling: Duration) -> Self {
        let (reports, inputs) = mpsc::unbounded_channel();
        let events = ConnectionEvents::new(StreamId { server: ServerId(0), attempt: 1 }, reports);
        let target = ConnectRequest {
            server,
            api_type: ApiType::Rest,
            path: path.into(),
            polling: Some(Polling::every(polling)),
            keepalive: Duration::from_secs(30),
        };
        let mut peer = Self { connection: transport.connect(target, events), inputs };
        assert!(matches!(peer.inputs.try_recv(), Ok(Input::Transport(StreamEvent::Connected { .. }))));
        peer
    }

    /// Polls, and returns the report, which must be a single one after that of the sent request. "Not found" is an
    /// empty response.
    async fn poll(&mut self, message: &DiscoveryRequest) -> Result<Option<DiscoveryResponse>, Disconnect> {
        self.connection.send(message.encode_to_vec().into());
        let mut is_sent = false;
        loop {
            let Input::Transport(event) = soon(self.inputs.recv()).await.unwrap() else { unreachable!() };
            match event {
                StreamEvent::RequestSent { .. } => assert!(!std::mem::replace(&mut is_sent, true)),
                StreamEvent::Received { message, .. } => {
                    assert!(is_sent);
                    return Ok(Some(DiscoveryResponse::decode(message).unwrap()));
                }
                StreamEvent::Unchanged { .. } => {
                    assert!(is_sent);
                    return Ok(None);
                }
                StreamEvent::NotFound { .. } => {
                    assert!(is_sent);
                    return Ok(Some(DiscoveryResponse::default()));
                }
                StreamEvent::Failed { reason, .. } => return Err(reason),
                other => panic!("{other:?}"),
            }
        }
    }
}

fn request(version: &str) -> DiscoveryRequest {
    let node = crate::pb::envoy::config::core::v3::Node { id: "me".into(), ..Default::default() };
    DiscoveryRequest {
        version_info: version.into(),
        type_url: CLUSTER.into(),
        node: Some(node),
        ..Default::default()
    }
}

/// A server that sends the same response to each request.
async fn answering(status: u16, body: &str) -> String {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            read_request(&mut socket).await;
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    format!("http://{addr}")
}

/// A server that accepts connections, and sends nothing.
async fn listening() -> (std::net::SocketAddr, UnboundedReceiver<()>) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (accepted, connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok(connection) = listener.accept().await {
            open.push(connection);
            accepted.send(()).unwrap();
        }
    });
    (addr, connections)
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let read = socket.read_buf(&mut text).await.unwrap();
        let so_far = String::from_utf8_lossy(&text).into_owned();
        let is_whole = so_far.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            length.is_some_and(|length| length.parse() == Ok(body.len()))
        });
        if is_whole || read == 0 {
            return so_far;
        }
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}

const LOOPBACK: &str = "127.0.0.1:0";
const POLLING: Duration = Duration::from_secs(30);
