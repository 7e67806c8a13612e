//! What an operator can follow in the logs.
//!
//! Each test has a subscriber of its own for its thread, and a runtime that stays on this thread.

use std::{
    io,
    sync::{Arc, Mutex},
};

use crate::{common::*, test_log::set_subscriber, transport::Transport};
use bytes::Bytes;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;
use xdskit::{
    Resource, ResourceSelector,
    client::{Dns, Lookup},
    config::Bootstrap,
    control_plane::{AnyResource, type_url},
    pb::envoy::{
        config::core::v3::{DataSource, data_source::Specifier},
        extensions::transport_sockets::tls::v3 as tls,
        service::discovery::v3::DeltaDiscoveryResponse,
    },
    resource::{Context, Invalid, Secret},
    testing::{
        TestControlPlane,
        resources::{cluster as good_cluster, endpoints, listener, route, route_config},
    },
};

#[tokio::test]
async fn a_resource_can_be_followed_from_its_response_to_its_watcher() {
    let (log, _guard) = Log::start("xdskit=trace");
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = Transport::Delta.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let about = format!("type_url=\"{}\" name=shop", type_url::CLUSTER);
    let version = server.version(type_url::CLUSTER);
    // Which watch it is, what the response was, what became of the resource, and the notified watches.
    log.line(&["DEBUG", "watch started watch_id=1", "names=shop"]);
    let response =
        format!("response{{server={} type_url=\"{}\" version={version}", server.uri(), type_url::CLUSTER);
    log.line(&["TRACE", "response received", &format!("version=\"{version}\"")]);
    log.line(&["DEBUG", &response, "resource accepted", &about]);
    log.line(&["TRACE", &response, "watcher notified watch_id=1", &about]);
}

#[tokio::test]
async fn decisions_are_debug_and_name_the_kept_version() {
    let (log, _guard) = Log::start("xdskit=debug");
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = Transport::Delta.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    server.set(cluster("shop", BAD));
    soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    let rejected = server.version(type_url::CLUSTER);
    log.line(&[
        "DEBUG",
        "response{",
        "resource rejected",
        &format!("version={rejected} kept=true"),
        "service_name: bad",
    ]);
    log.line(&[" WARN", "response rejected", "service_name: bad"]);
    server.remove(type_url::CLUSTER, "shop");
    soon(shop.wait_for(|seen| seen.is_absent())).await.unwrap();
    log.line(&["DEBUG", "response{", "resource does not exist", "kept=false", "has deleted it"]);
    drop(shop);
    client.shutdown().await;
    assert!(!log.text().contains("TRACE"));
}

#[tokio::test]
async fn a_resolution_can_be_followed() {
    let (log, _guard) = Log::start("xdskit=debug");
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener("shop").rds("routes"));
        tx.set(route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("web")]));
        tx.set(good_cluster("web"));
        tx.set(endpoints("web").locality("eu", "a", ["10.0.0.1:80"]));
    });
    let client = Transport::Delta.client(server.uri());
    soon(client.resolve("xds:///shop").ready()).await.unwrap();
    log.line(&["resolution started watch_id=1", "target=\"xds:///shop\""]);
    log.line(&["resolution continued watch_id=1 dependency=internal-1"]);
    log.line(&["watch started watch_id=internal-1", "names=shop"]);
    log.line(&["resolution succeeded watch_id=1", "target=\"xds:///shop\""]);
}

#[tokio::test]
async fn connections_are_info_and_a_server_that_is_away_is_a_warning() {
    let (log, _guard) = Log::start("xdskit=info");
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = Transport::Delta.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    log.line(&[" INFO", "connected", &server.uri()]);
    server.stop().await;
    soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    log.line(&[" WARN", "stream failed", &server.uri()]);
    assert!(!log.text().contains("DEBUG"), "{}", log.text());
}

#[tokio::test]
async fn no_private_key_is_logged() {
    let (log, _guard) = Log::start("trace");
    let server = TestControlPlane::start().await;
    let secret = |text: &str| {
        let specifier = Some(Specifier::InlineString(text.into()));
        let secret = Some(DataSource { specifier, ..Default::default() });
        let generic = tls::secret::Type::GenericSecret(tls::GenericSecret { secret, ..Default::default() });
        tls::Secret { name: "s".into(), r#type: Some(generic) }
    };
    server.set(secret("PRIVATE"));
    let client = Transport::Delta.client(server.uri());
    let mut watch = client.watch::<Secret>("s");
    soon(watch.ready()).await.unwrap();
    let key =
        Some(DataSource { specifier: Some(Specifier::InlineString("PRIVATE".into())), ..Default::default() });
    let bad = tls::TlsCertificate { private_key: key, ..Default::default() };
    server.set(tls::Secret { name: "s".into(), r#type: Some(tls::secret::Type::TlsCertificate(bad)) });
    soon(watch.wait_for(|seen| seen.error().is_some())).await.unwrap();
    log.line(&["DEBUG", "resource rejected", "tls_certificate.certificate_chain: must be set"]);
    // What the transport below logs are frames, of which it shows no contents.
    let text = log.text();
    assert!(!text.contains("PRIVATE") && !text.contains("80, 82, 73"), "{text}");
}

#[tokio::test]
async fn what_a_server_sends_forges_no_line_of_the_log() {
    let (log, _guard) = Log::start("xdskit=trace");
    let plane = xdskit::control_plane::ControlPlane::builder().version_prefix(forged("version"));
    let server = TestControlPlane::start_with(plane).await;
    server.update(|tx| {
        tx.set(cluster("shop", "one"));
        tx.set(cluster(&forged("member"), "one"));
        tx.set_error(type_url::CLUSTER, "refused", 7, &forged("refusal"));
        tx.set(AnyResource::new(Rejected::TYPE_URL, "rejected", "x"));
    });
    let client = Transport::Delta.client(server.uri());
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let mut refused = client.watch::<Cluster>("refused");
    let mut rejected = client.watch::<Rejected>("rejected");
    soon(all.wait_for(|members| members.len() == 2)).await.unwrap();
    let refused = soon(refused.ready()).await.unwrap_err();
    let rejected = soon(rejected.ready()).await.unwrap_err();
    let removed_resources = vec![forged("member"), forged("unheard")];
    let removal = DeltaDiscoveryResponse {
        type_url: type_url::CLUSTER.into(),
        system_version_info: forged("system"),
        nonce: forged("nonce"),
        removed_resources,
        ..Default::default()
    };
    let type_url = forged("type");
    let unheard = DeltaDiscoveryResponse { type_url, ..removal.clone() };
    server.inject(unheard);
    server.inject(removal);
    soon(all.wait_for(|members| members.len() == 1)).await.unwrap();
    server.control_plane().disconnect(tonic::Status::resource_exhausted(forged("status")));
    let mut later = client.watch::<Cluster>("later");
    server.stop().await;
    soon(later.ready()).await.unwrap_err();
    log.is_unforged(&["version", "member", "refusal", "field", "type", "system", "nonce", "status"]);
    let status = client.status().await.to_string();
    for shown in [refused.to_string(), rejected.to_string(), status] {
        assert!(shown.contains("2026 ERROR forged") && !shown.contains(FORGED), "{shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains("\n2026"), "{shown}");
    }
}

#[tokio::test]
async fn addresses_and_hosts_forge_no_line_of_the_log() {
    let (log, _guard) = Log::start("xdskit=trace");
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener("shop").rds("routes"));
        tx.set(route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("web")]));
        tx.set(good_cluster("web").logical_dns(&forged("host"), 80));
    });
    let patience = std::time::Duration::from_millis(100);
    let client =
        Transport::Delta.builder(server.uri()).dns(Nowhere).resource_timeout(patience).build().unwrap();
    soon(client.resolve("xds:///shop").wait_for(Result::is_ok)).await.unwrap().unwrap();
    log.is_unforged(&["host", "answer"]);
}

#[tokio::test]
async fn files_forge_no_line_of_the_log() {
    let (log, _guard) = Log::start("xdskit=trace");
    let document = serde_json::json!({
        "dynamic_resources": { "ads_config": {
            "api_type": "GRPC", "grpc_services": [{ "google_grpc": { "target_uri": "localhost:1" } }],
        } },
        "admin": {}, "node": { "metadata": { forged("field"): 1 } }, forged("unknown"): 1,
    });
    let read = Bootstrap::from_envoy_text(&document.to_string());
    let logged = read.map_or_else(
        |error| error.to_string(),
        |read| read.warnings().iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    );
    assert!(logged.contains("unknown") && !logged.contains(FORGED) && !logged.contains('\u{1b}'), "{logged}");
    log.is_unforged(&[]);
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn an_answer_of_rest_forges_no_line_of_the_log() {
    let (log, _guard) = Log::start("xdskit=trace");
    for (status, body) in [
        ("503 no", forged("body")),
        ("200 ok", format!(r#"{{"version_info": "1", {}: 1}}"#, serde_json::json!(forged("unknown")))),
    ] {
        let uri = answering(status, &body).await;
        let patience = std::time::Duration::from_millis(200);
        let polled =
            Transport::Delta.builder(uri).api_type(xdskit::config::ApiType::Rest).resource_timeout(patience);
        let mut shop = polled.build().unwrap().watch::<Cluster>("shop");
        soon(shop.wait_for(|seen| seen.is_absent())).await.unwrap();
    }
    log.is_unforged(&["body", "unknown"]);
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn polls_warn_once_per_change_with_type_and_path() {
    let (log, _guard) = Log::start("xdskit=info");
    let server = TestControlPlane::start().await;
    let client =
        Transport::Delta.builder(server.uri()).api_type(xdskit::config::ApiType::Rest).build().unwrap();
    let _shop = client.watch::<Cluster>("shop");
    let polls = |count: usize| {
        let server = &server;
        async move {
            server.clear_requests();
            while server.requests().iter().count() < count {
                tokio::task::yield_now().await;
            }
        }
    };
    server.set_rest_status(Some(http::StatusCode::BAD_GATEWAY));
    soon(polls(5)).await;
    server.set_rest_status(Some(http::StatusCode::NOT_FOUND));
    soon(polls(5)).await;
    server.set_rest_status(None);
    soon(polls(5)).await;
    let about = format!("type_url=\"{}\" path=\"/v3/discovery:clusters\"", type_url::CLUSTER);
    for what in ["poll failed", "HTTP status 404", "poll answered again"] {
        let text = log.text();
        let lines: Vec<_> = text.lines().filter(|line| line.contains(what)).collect();
        assert!(lines.len() == 1 && lines[0].contains(&about) && lines[0].contains(&server.uri()), "{text}");
    }
}

/// A server that gives each request the same answer.
#[cfg(feature = "rest")]
async fn answering(status: &str, body: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            // The body of a poll ends its JSON.
            while !request.ends_with(b"}") && socket.read_buf(&mut request).await.unwrap() > 0 {}
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    format!("http://{addr}")
}

/// A word, and what would be a line of its own in a log, in red on a terminal.
fn forged(word: &str) -> String {
    format!("{word}{FORGED}")
}

const FORGED: &str = "\n2026 ERROR forged \u{1b}[31m";

/// A type whose resources are all bad.
#[derive(Debug)]
struct Rejected;

impl Resource for Rejected {
    const TYPE_URL: &'static str = "type.googleapis.com/test.Rejected";

    fn name(_: &[u8]) -> Result<std::borrow::Cow<'_, str>, Invalid> {
        Ok("rejected".into())
    }

    fn parse(_: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        Err(Invalid::field(&forged("field"), forged("reason")))
    }
}

/// Knows no host.
#[derive(Debug)]
struct Nowhere;

impl Dns for Nowhere {
    fn lookup<'a>(&'a self, _: &'a str) -> Lookup<'a> {
        Box::pin(async { Err(io::Error::other(forged("answer"))) })
    }
}

/// What is logged on this thread.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn start(filter: &str) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, set_subscriber(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Each of the [forged] words is there, and none of them has begun a line or reached a terminal.
    fn is_unforged(&self, words: &[&str]) {
        let text = self.text();
        for word in words {
            assert!(text.contains(&format!("{word}\\n2026 ERROR forged \\u{{1b}}")), "{word}:\n{text}");
        }
        let is_whole = text.lines().all(|line| !line.starts_with("2026 ERROR"));
        assert!(is_whole && !text.contains('\u{1b}'), "{text}");
    }

    /// There is a line with all of these.
    fn line(&self, parts: &[&str]) {
        let text = self.text();
        let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "no line has all of {parts:?} in\n{text}");
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
