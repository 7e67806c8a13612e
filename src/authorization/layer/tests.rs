use std::{
    convert::Infallible,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use http::{HeaderMap, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use tower::{ServiceBuilder, ServiceExt, service_fn};

use super::*;
use crate::rbac::{Rbac, TlsFacts};

type Whole = Full<Bytes>;

/// A service behind a layer, which answers with `ok`; what it has received, and how often.
#[derive(Default)]
struct Received {
    headers: Mutex<HeaderMap>,
    count: AtomicU64,
}

fn rbac(config: &str) -> Rbac {
    Rbac::from_json(config).unwrap()
}

/// Denies the paths below `/admin`, requests with `x-role: bad`, and other hosts than `shop.example`.
fn denying() -> Rbac {
    rbac(
        r#"{"rules": {"action": "DENY", "policies": {"secret-policy": {"principals": [{"any": true}], "permissions": [
            {"url_path": {"path": {"prefix": "/admin"}}},
            {"header": {"name": "x-role", "string_match": {"exact": "bad"}}},
            {"header": {"name": "host", "string_match": {"exact": "shop.example"}, "invert_match": true}}
        ]}}}}"#,
    )
}

/// Allows peers of 10/8.
fn of_network() -> Rbac {
    rbac(
        r#"{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [
            {"direct_remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}
        ]}}}}"#,
    )
}

fn from(peer: &str) -> ConnectionFacts {
    ConnectionFacts::new("10.0.0.1:80".parse().unwrap(), peer.parse().unwrap())
}

fn get(uri: &str) -> http::request::Builder {
    Request::get(uri)
}

/// Sends a request through a layer: the status, the header `grpc-status`, the text and what the service has received.
async fn send(
    layer: &RbacLayer,
    request: http::request::Builder,
) -> (StatusCode, Option<String>, String, Arc<Received>) {
    let received = Arc::new(Received::default());
    let service = service_fn(|request: Request<Whole>| {
        received.count.fetch_add(1, Ordering::Relaxed);
        *received.headers.lock().unwrap() = request.headers().clone();
        async { Ok::<_, Infallible>(Response::new(Whole::from("ok"))) }
    });
    let service = ServiceBuilder::new().layer(layer.clone()).service(service);
    let response = service.oneshot(request.body(Whole::default()).unwrap()).await.unwrap();
    let grpc_status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
    let headers = format!("{:?}", response.headers());
    assert!(!headers.contains("secret-policy"), "the peer does not learn the policy: {headers}");
    let status = response.status();
    let body = response.into_body();
    assert_eq!(body.is_end_stream(), grpc_status.is_some(), "trailers alone have no body");
    let text = body.collect().await.unwrap().to_bytes();
    drop(headers);
    (status, grpc_status, String::from_utf8(text.to_vec()).unwrap(), received)
}

/// The HTTP status, and whether the service was called.
async fn status(layer: &RbacLayer, request: http::request::Builder) -> (u16, bool) {
    let (status, _, _, received) = send(layer, request).await;
    (status.as_u16(), received.count.load(Ordering::Relaxed) == 1)
}

#[tokio::test]
async fn sv9_3_a_denied_request_gets_403_or_trailers_alone_and_does_not_reach_the_service() {
    let layer = RbacLayer::new(denying());
    let (status, grpc, text, received) = send(&layer, get("http://shop.example/cart")).await;
    assert_eq!((status, grpc, text.as_str()), (StatusCode::OK, None, "ok"));
    assert_eq!(received.count.load(Ordering::Relaxed), 1);
    let (status, grpc, text, received) = send(&layer, get("http://shop.example/admin/x")).await;
    assert_eq!((status, grpc, text.as_str()), (StatusCode::FORBIDDEN, None, "Unauthorized request rejected"));
    assert_eq!(received.count.load(Ordering::Relaxed), 0);
    for content_type in ["application/grpc", "application/grpc+proto"] {
        let request = get("http://shop.example/admin").header("content-type", content_type);
        let (status, grpc, text, received) = send(&layer, request).await;
        assert_eq!((status, grpc.as_deref(), text.as_str()), (StatusCode::OK, Some("7"), ""));
        assert_eq!(received.count.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test]
async fn sv9_5_the_authority_is_that_of_the_target_or_else_the_only_host() {
    let layer = RbacLayer::new(denying());
    for (request, expected) in [
        (get("/a").header("host", "shop.example"), (200, true)),
        (get("/a").header("host", "other"), (403, false)),
        (get("/a").header("host", "shop.example").header("host", "other"), (400, false)),
        (get("http://other/a").header("host", "shop.example"), (403, false)),
    ] {
        assert_eq!(status(&layer, request).await, expected);
    }
    let (_, _, _, received) = send(&layer, get("http://shop.example/a").header("host", "other")).await;
    assert!(!received.headers.lock().unwrap().contains_key("host"), "the service must not see another one");
    // No authority at all: the matcher of an absent header does not match.
    assert_eq!(status(&layer, get("/a")).await, (200, true));
}

#[tokio::test]
async fn sv9_7_headers_that_connection_names_are_hidden_from_policies_and_from_the_service() {
    let layer = RbacLayer::new(denying());
    let request = || get("http://shop.example/a").header("x-role", "bad");
    assert_eq!(status(&layer, request()).await, (403, false));
    let named = request().header("connection", "close, X-Role, upgrade").header("upgrade", "websocket");
    let (code, _, _, received) = send(&layer, named).await;
    let headers = received.headers.lock().unwrap();
    assert_eq!((code.as_u16(), headers.contains_key("x-role")), (200, false));
    assert!(
        headers.contains_key("upgrade") && headers.contains_key("connection"),
        "for handlers of upgrades"
    );
}

#[tokio::test]
async fn sv9_9_sv9_11_what_policies_cannot_read_is_refused() {
    let layer = RbacLayer::new(denying());
    let bytes = http::HeaderValue::from_bytes(b"\xff").unwrap();
    let bad = || get("http://shop.example/a").header("x-role", &bytes);
    assert_eq!(status(&layer, bad()).await, (400, false));
    let (code, grpc, ..) = send(&layer, bad().header("content-type", "application/grpc")).await;
    assert_eq!((code.as_u16(), grpc.as_deref()), (200, Some("13")));
    assert_eq!(status(&layer, get("http://shop.example/a").header("x-other", &bytes)).await, (200, true));
    assert_eq!(status(&layer, get("http://shop.example//admin")).await, (400, false));
    assert_eq!(status(&layer, get("http://shop.example/x/%2E./admin")).await, (400, false));
    let lenient = layer.with_strict_paths(false);
    assert_eq!(status(&lenient, get("http://shop.example//admin")).await, (200, true));
}

#[tokio::test]
async fn sv9_12_sv9_14_the_connection_is_that_of_the_extensions_and_none_fails_closed() {
    let layer = RbacLayer::new(of_network());
    for (peer, expected) in [("10.9.9.9:1", (200, true)), ("192.0.2.1:1", (403, false))] {
        assert_eq!(status(&layer, get("/").extension(from(peer))).await, expected);
    }
    assert_eq!(status(&layer, get("/")).await, (500, false));
    let (_, grpc, ..) = send(&layer, get("/").header("content-type", "application/grpc")).await;
    assert_eq!(grpc.as_deref(), Some("13"));
    /// What a framework has in its extensions.
    #[derive(Clone)]
    struct Peer(&'static str);
    let layer = layer.with_connection(|extensions| extensions.get::<Peer>().map(|peer| from(peer.0)));
    assert_eq!(status(&layer, get("/").extension(Peer("10.0.0.2:1"))).await, (200, true));
    assert_eq!(status(&layer, get("/").extension(from("10.0.0.2:1"))).await, (500, false));
    let by_name = rbac(
        r#"{"rules": {"policies": {"p": {"permissions": [{"any": true}], "principals": [
            {"authenticated": {"principal_name": {"exact": "spiffe://a/b"}}}
        ]}}}}"#,
    );
    let layer = RbacLayer::new(by_name);
    let tls = |uri: &str| from("10.0.0.2:1").with_tls(TlsFacts::new().with_uri_sans([uri]));
    assert_eq!(status(&layer, get("/").extension(tls("spiffe://a/b"))).await, (200, true));
    assert_eq!(status(&layer, get("/").extension(tls("spiffe://a/c"))).await, (403, false));
    assert_eq!(status(&layer, get("/").extension(from("10.0.0.2:1"))).await, (403, false));
}

#[tokio::test]
async fn sv9_19_policies_are_replaced_while_a_service_runs() {
    let shared = SharedRbac::new(of_network());
    let layer = RbacLayer::new(shared.clone());
    let request = || get("http://shop.example/cart").version(Version::HTTP_2).extension(from("192.0.2.1:1"));
    assert_eq!(status(&layer, request()).await, (403, false));
    shared.replace(denying());
    assert_eq!(status(&layer, request()).await, (200, true));
    assert!(!shared.current().reads_connection());
}

#[tokio::test]
async fn a_service_that_fails_or_is_not_ready_is_as_without_the_layer() {
    let service =
        service_fn(|_: Request<Whole>| async { Err::<Response<Whole>, _>(std::io::Error::other("down")) });
    let service = ServiceBuilder::new().layer(RbacLayer::new(denying())).service(service);
    let request = get("http://shop.example/a").body(Whole::default()).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap_err().to_string(), "down");
}
