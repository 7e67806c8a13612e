//! The gateway for REST.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use prost::Message;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{Status, body::Body, transport::Channel};
use tower::{Service, ServiceExt};
use xdskit::{
    config::TransportApiVersion,
    control_plane::{
        ControlPlane, Event, ServerHandle, ServerLimits, Variant,
        type_url::{
            CLUSTER, ENDPOINTS, LISTENER, ROUTE_CONFIGURATION, RUNTIME, SCOPED_ROUTE_CONFIGURATION, SECRET,
        },
    },
    pb::envoy::{config::cluster::v3::Cluster, service::discovery::v3::DiscoveryResponse},
    testing::{
        self,
        resources::{cluster, endpoints},
    },
};

/// A response: the status, and the body.
pub(super) type Answer = (u16, String);

/// Sends a request over HTTP/1.1.
async fn call(server: &str, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(server.trim_start_matches("http://")).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: xds\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

pub(super) async fn post(server: &ServerHandle, path: &str, body: &Value) -> Answer {
    call(&server.uri(), "POST", path, &body.to_string()).await
}

fn value(answer: &Answer) -> Value {
    assert_eq!(answer.0, 200, "{answer:?}");
    serde_json::from_str(&answer.1).unwrap()
}

async fn start() -> (ControlPlane, ServerHandle) {
    let control_plane = ControlPlane::builder().version_prefix("v").build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server)
}

#[tokio::test]
async fn d10_each_type_is_polled_by_its_path_with_json_both_ways() {
    let (control_plane, server) = start().await;
    control_plane.update(|tx| {
        tx.set(cluster("shop").eds());
        tx.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
    });
    let request = json!({"node": {"id": "me"}, "resource_names": ["shop"], "type_url": ENDPOINTS});
    let response = value(&post(&server, "/v3/discovery:endpoints", &request).await);
    assert_eq!(response["type_url"], ENDPOINTS);
    let assignment = &response["resources"][0];
    assert_eq!((&assignment["@type"], &assignment["cluster_name"]), (&json!(ENDPOINTS), &json!("shop")));
    let socket = &assignment["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
    assert_eq!(socket, &json!({"address": "10.0.0.1", "port_value": 80}));
    let response = value(&post(&server, "/v3/discovery:clusters", &json!({})).await);
    assert_eq!(
        (&response["version_info"], &response["resources"][0]["name"]),
        (&json!("v1"), &json!("shop"))
    );
    let response = value(&post(&server, "/v2/discovery:clusters", &json!({})).await);
    assert_eq!(response["resources"][0]["@type"], "type.googleapis.com/envoy.api.v2.Cluster");
}

#[tokio::test]
async fn d10_there_are_paths_for_all_types_but_virtual_hosts() {
    let (_control_plane, server) = start().await;
    for (name, type_url) in [
        ("clusters", CLUSTER),
        ("endpoints", ENDPOINTS),
        ("listeners", LISTENER),
        ("routes", ROUTE_CONFIGURATION),
        ("scoped-routes", SCOPED_ROUTE_CONFIGURATION),
        ("secrets", SECRET),
        ("runtime", RUNTIME),
        ("extension_configs", "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"),
    ] {
        let response = value(&post(&server, &format!("/v3/discovery:{name}"), &json!({})).await);
        assert_eq!(response["type_url"], type_url);
    }
    for path in
        ["/v3/discovery:virtual-hosts", "/v3/discovery:", "/v3/discovery", "/v4/discovery:clusters", "/"]
    {
        assert_eq!(post(&server, path, &json!({})).await.0, 404, "{path}");
    }
    assert_eq!(call(&server.uri(), "GET", "/v3/discovery:clusters", "").await.0, 405);
}

#[tokio::test]
async fn d11_what_the_client_has_is_not_sent_again() {
    let (control_plane, server) = start().await;
    control_plane.set(cluster("a"));
    let response = value(&post(&server, "/v3/discovery:clusters", &json!({"resource_names": ["a"]})).await);
    let again = json!({"resource_names": ["a"], "version_info": response["version_info"]});
    assert_eq!(post(&server, "/v3/discovery:clusters", &again).await, (304, String::new()));
    control_plane.set(cluster("a").edit(|cluster| cluster.lb_policy = 2));
    let newer = value(&post(&server, "/v3/discovery:clusters", &again).await);
    assert_ne!(newer["version_info"], response["version_info"]);
}

#[tokio::test]
async fn a_bad_request_is_answered_with_the_reason() {
    let (_control_plane, server) = start().await;
    for (body, why) in [
        ("", "not a DiscoveryRequest: there is nothing in it"),
        ("{", "not a DiscoveryRequest: line 1, column 1: EOF while parsing an object"),
        (
            r#"{"resource_names": "a"}"#,
            "not a DiscoveryRequest: resource_names: must be a list, not the text \"a\"",
        ),
        (
            r#"{"type_url": "x/y"}"#,
            "type_url: \"x/y\" on a stream of \"type.googleapis.com/envoy.config.cluster.v3.Cluster\"",
        ),
    ] {
        let answer = call(&server.uri(), "POST", "/v3/discovery:clusters", body).await;
        assert_eq!(answer, (400, why.to_owned()));
    }
}

#[tokio::test]
async fn rest_is_spoken_over_http2_beside_streams() {
    let (control_plane, server) = start().await;
    control_plane.set(cluster("a"));
    let mut channel = Channel::from_shared(server.uri()).unwrap().connect().await.unwrap();
    let body = Body::new(Full::new(Bytes::from_static(b"{}")));
    let request = http::Request::post(format!("{}/v3/discovery:clusters", server.uri())).body(body).unwrap();
    let response = channel.ready().await.unwrap().call(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["resources"][0]["name"], "a");
}

#[tokio::test]
async fn observers_see_a_poll_as_a_stream_of_one_request() {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let control_plane =
        ControlPlane::builder().observe(move |event| drop(sender.send(event.clone()))).build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    post(&server, "/v2/discovery:clusters", &json!({"resource_names": ["a"]})).await;
    let Some(Event::Opened {
        stream: 1,
        variant: Variant::Sotw,
        api_version: TransportApiVersion::V2,
        type_url,
        ..
    }) = events.recv().await
    else {
        panic!("not opened")
    };
    assert_eq!(type_url, Some(CLUSTER));
    let Some(Event::Request { stream: 1, request, .. }) = events.recv().await else { panic!("no request") };
    assert_eq!((request.type_url(), request.names()), (CLUSTER, &["a".to_owned()][..]));
    assert!(matches!(events.recv().await, Some(Event::Response { stream: 1, resources: 0, .. })));
    assert!(matches!(events.recv().await, Some(Event::Closed { stream: 1, .. })));
}

#[tokio::test]
async fn polls_can_be_held_and_answered_by_anything() {
    let control_plane = testing::TestControlPlane::start().await;
    control_plane.set(cluster("a"));
    control_plane.hold();
    let uri = control_plane.uri();
    let polled = || {
        let uri = uri.clone();
        tokio::spawn(async move { call(&uri, "POST", "/v3/discovery:clusters", "{}").await })
    };
    let poll = polled();
    control_plane.expect_clients(1).await.unwrap();
    assert_eq!(control_plane.inject_raw("garbage"), 1);
    assert_eq!(poll.await.unwrap(), (200, "garbage".to_owned()));
    let poll = polled();
    control_plane.expect_clients(1).await.unwrap();
    let response =
        DiscoveryResponse { version_info: "x".into(), type_url: CLUSTER.into(), ..Default::default() };
    assert_eq!(control_plane.inject(response), 1);
    assert_eq!(value(&poll.await.unwrap())["version_info"], "x");
    let poll = polled();
    control_plane.expect_clients(1).await.unwrap();
    control_plane.control_plane().disconnect(Status::unavailable("gone"));
    assert_eq!(poll.await.unwrap(), (503, "gone".to_owned()));
    let poll = polled();
    control_plane.expect_clients(1).await.unwrap();
    control_plane.release();
    assert_eq!(value(&poll.await.unwrap())["resources"][0]["name"], "a");
    control_plane.set_rest_status(Some(http::StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(polled().await.unwrap().0, 429);
    control_plane.set_rest_status(None);
    assert_eq!(polled().await.unwrap().0, 200);
}

#[tokio::test]
async fn a_message_of_an_unknown_type_survives_the_gateway() {
    let (control_plane, server) = start().await;
    let mut message = Cluster { name: "a".into(), ..Cluster::default() };
    message.upstream_config = Some(xdskit::pb::envoy::config::core::v3::TypedExtensionConfig {
        name: "x".into(),
        typed_config: Some(xdskit::pb::google::protobuf::Any {
            type_url: "acme.io/a.B".into(),
            value: Cluster::default().encode_to_vec().into(),
        }),
    });
    control_plane.set(message);
    let response = value(&post(&server, "/v3/discovery:clusters", &json!({})).await);
    let expected = json!({"@type": "acme.io/a.B", "@bytes": ""});
    assert_eq!(response["resources"][0]["upstream_config"]["typed_config"], expected);
}

#[tokio::test]
async fn cp10_a_poll_above_the_largest_size_is_answered_with_the_setting() {
    let body = json!({"resource_names": ["shop"]});
    let mut limits = ServerLimits::default();
    limits.max_request_size = body.to_string().len();
    let control_plane = ControlPlane::builder().server_limits(limits).build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    assert_eq!(post(&server, "/v3/discovery:clusters", &body).await.0, 200);
    let (status, reason) =
        post(&server, "/v3/discovery:clusters", &json!({"resource_names": ["shops"]})).await;
    assert_eq!(status, 413);
    assert!(reason.contains("(max_request_size)"), "{reason}");
}

#[tokio::test]
async fn cp16_a_poll_of_a_server_on_demand_is_refused_with_the_reason() {
    let control_plane = ControlPlane::builder().on_demand(true).build();
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let (status, reason) =
        post(&server, "/v3/discovery:clusters", &json!({"resource_names": ["shop"]})).await;
    assert_eq!(status, 501);
    assert!(reason.contains("use gRPC"), "{reason}");
}
