//! What an operator can follow in the logs.
//!
//! A test program of its own: what is logged is decided once for all threads of a process.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;

const API_TYPE: xdskit::config::ApiType = xdskit::config::ApiType::AggregatedDeltaGrpc;

use std::{
    io,
    sync::{Arc, Mutex},
};

use crate::common::*;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;
use xdskit::{
    control_plane::type_url,
    pb::envoy::{
        config::core::v3::{DataSource, data_source::Specifier},
        extensions::transport_sockets::tls::v3 as tls,
    },
    resource::Secret,
    testing::{
        ControlPlane,
        resources::{cluster as good_cluster, endpoints, listener, route, route_config},
    },
};

#[tokio::test]
async fn a_resource_can_be_followed_from_its_response_to_its_watcher() {
    let (log, _guard) = Log::start("xdskit=trace");
    let server = ControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let about = format!("type_url=\"{}\" name=shop", type_url::CLUSTER);
    let version = server.version(type_url::CLUSTER);
    // Which view the watch is, what the response was, what became of the resource, and who was told.
    log.line(&["DEBUG", "watching view=1", "names=shop"]);
    let response =
        format!("response{{server={} type_url=\"{}\" version={version}", server.uri(), type_url::CLUSTER);
    log.line(&["TRACE", "received", &format!("version=\"{version}\"")]);
    log.line(&["DEBUG", &response, "accepted", &about]);
    log.line(&["TRACE", &response, "told view=1", &about]);
}

#[tokio::test]
async fn decisions_are_debug_and_say_what_is_kept() {
    let (log, _guard) = Log::start("xdskit=debug");
    let server = ControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    server.set(cluster("shop", BAD));
    soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    let rejected = server.version(type_url::CLUSTER);
    log.line(&[
        "DEBUG",
        "response{",
        "rejected",
        &format!("version={rejected} kept=true"),
        "service_name: bad",
    ]);
    log.line(&[" WARN", "rejecting a response", "service_name: bad"]);
    server.remove(type_url::CLUSTER, "shop");
    soon(shop.wait_for(|seen| seen.is_absent())).await.unwrap();
    log.line(&["DEBUG", "response{", "does not exist", "kept=false", "has deleted it"]);
    drop(shop);
    client.shutdown().await;
    assert!(!log.text().contains("TRACE"));
}

#[tokio::test]
async fn a_resolution_can_be_followed() {
    let (log, _guard) = Log::start("xdskit=debug");
    let server = ControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener("shop").rds("routes"));
        tx.set(route_config("routes").virtual_host(["shop"], [route::prefix("/").cluster("web")]));
        tx.set(good_cluster("web"));
        tx.set(endpoints("web").locality("eu", "a", ["10.0.0.1:80"]));
    });
    let client = client(server.uri());
    soon(client.resolve("xds:///shop").ready()).await.unwrap();
    log.line(&["resolving view=1", "target=\"xds:///shop\""]);
    log.line(&["a resolution goes on view=1 needs=walk-1"]);
    log.line(&["watching view=walk-1", "names=shop"]);
    log.line(&["resolved view=1", "target=\"xds:///shop\""]);
}

#[tokio::test]
async fn connections_are_info_and_a_server_that_is_away_is_a_warning() {
    let (log, _guard) = Log::start("xdskit=info");
    let server = ControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    log.line(&[" INFO", "connected", &server.uri()]);
    server.stop().await;
    soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    log.line(&[" WARN", "no stream to the server", &server.uri()]);
    assert!(!log.text().contains("DEBUG"), "{}", log.text());
}

#[tokio::test]
async fn no_private_key_is_logged() {
    let (log, _guard) = Log::start("trace");
    let server = ControlPlane::start().await;
    let secret = |text: &str| {
        let specifier = Some(Specifier::InlineString(text.into()));
        let secret = Some(DataSource { specifier, ..Default::default() });
        let generic = tls::secret::Type::GenericSecret(tls::GenericSecret { secret, ..Default::default() });
        tls::Secret { name: "s".into(), r#type: Some(generic) }
    };
    server.set(secret("PRIVATE"));
    let client = client(server.uri());
    let mut watch = client.watch::<Secret>("s");
    soon(watch.ready()).await.unwrap();
    let key =
        Some(DataSource { specifier: Some(Specifier::InlineString("PRIVATE".into())), ..Default::default() });
    let bad = tls::TlsCertificate { private_key: key, ..Default::default() };
    server.set(tls::Secret { name: "s".into(), r#type: Some(tls::secret::Type::TlsCertificate(bad)) });
    soon(watch.wait_for(|seen| seen.error().is_some())).await.unwrap();
    log.line(&["DEBUG", "rejected", "tls_certificate.certificate_chain: must be set"]);
    // What the transport below logs are frames, of which it shows no contents.
    let text = log.text();
    assert!(!text.contains("PRIVATE") && !text.contains("80, 82, 73"), "{text}");
}

/// What is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(filter: &str) -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(log.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
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
