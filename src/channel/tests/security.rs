//! Connections that clusters secure, to scripted peers with TLS.

mod authority;
mod crypto;
mod proxies;
mod revocation;
mod rotation;
mod status;

use std::path::{Path, PathBuf};

use prost::Message as _;
use serde_json::{Value, json};

use super::{filters::any, peer::Received, raw::RawListener, secure::Ca, *};
use crate::{
    channel::FallbackCredentials,
    config::TlsConfig,
    pb::envoy::{
        config::{
            cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
            core::v3::{TransportSocket, transport_socket::ConfigType},
        },
        extensions::transport_sockets::tls::v3::{
            CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
            UpstreamTlsContext, common_tls_context::ValidationContextType,
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
    pb::google::protobuf::UInt32Value,
    test_log::Log,
    testing::resources::ClusterBuilder,
    tls::PeerIdentity,
};

const UPSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
/// The client's name.
const SHOP: &str = "spiffe://example.org/shop";

/// TLS of a cluster whose servers have one of these names, and whether it has the client's certificate.
fn upstream(names: &[&str], has_identity: bool) -> TransportSocket {
    upstream_with(names, has_identity, |_| {})
}

fn upstream_with(
    names: &[&str],
    has_identity: bool,
    change: impl FnOnce(&mut UpstreamTlsContext),
) -> TransportSocket {
    let instance = |name: &str| CertificateProviderPluginInstance {
        instance_name: name.to_owned(),
        ..CertificateProviderPluginInstance::default()
    };
    let exact = |name: &&str| StringMatcher {
        match_pattern: Some(MatchPattern::Exact((*name).to_owned())),
        ..StringMatcher::default()
    };
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance("roots")),
        match_subject_alt_names: names.iter().map(exact).collect(),
        ..CertificateValidationContext::default()
    };
    let common = CommonTlsContext {
        tls_certificate_provider_instance: has_identity.then(|| instance("identity")),
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..CommonTlsContext::default()
    };
    let mut context =
        UpstreamTlsContext { common_tls_context: Some(common), ..UpstreamTlsContext::default() };
    change(&mut context);
    socket(UPSTREAM, &context)
}

fn socket(type_name: &str, config: &impl prost::Message) -> TransportSocket {
    let config_type = Some(ConfigType::TypedConfig(any(type_name, &config.encode_to_vec())));
    TransportSocket { name: "envoy.transport_sockets.tls".to_owned(), config_type }
}

/// The cluster has a transport socket from now on.
fn secure(mesh: &Mesh, name: &str, socket: TransportSocket) {
    mesh.server.set(cluster(name).edit(|it| it.transport_socket = Some(socket)));
}

/// A cluster with a transport socket and a limit of requests, by which tests tell what a channel has.
fn limited(name: &str, requests: u32, socket: TransportSocket) -> ClusterBuilder {
    let limit = Thresholds { max_requests: Some(UInt32Value { value: requests }), ..Thresholds::default() };
    cluster(name).edit(|it| {
        it.transport_socket = Some(socket);
        it.circuit_breakers = Some(CircuitBreakers { thresholds: vec![limit], ..CircuitBreakers::default() });
    })
}

/// A mesh whose client has the certificate providers `roots` and `identity`, and whose cluster has no TLS yet.
async fn start(
    name: &str,
    addresses: &[SocketAddr],
    (roots, identity): (&Path, &(PathBuf, PathBuf)),
    settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
) -> Mesh {
    let mut mesh = Mesh::at(name, addresses, |it| it).await;
    let mut bootstrap: Value = serde_json::from_str(&mesh.server.bootstrap_json()).unwrap();
    let file_watcher = |mut config: Value| {
        config["refresh_interval"] = "1s".into();
        json!({"plugin_name": "file_watcher", "config": config})
    };
    bootstrap["certificate_providers"] = json!({
        "roots": file_watcher(json!({"ca_certificate_file": roots})),
        "identity": file_watcher(json!({"certificate_file": identity.0, "private_key_file": identity.1})),
    });
    bootstrap["xds_servers"][0]["server_features"] = json!(["xds_v3", "trusted_xds_server"]);
    let bootstrap = Bootstrap::from_json(&bootstrap.to_string()).unwrap();
    mesh.client = Client::builder(bootstrap).build().unwrap();
    mesh.channel = build(&mesh, settings);
    mesh
}

fn build(mesh: &Mesh, settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> Channel {
    let builder = mesh.client.channel("xds:///shop");
    settings(builder.connect_backoff(Duration::from_millis(20), Duration::from_millis(100))).build().unwrap()
}

/// A mesh of a cluster with TLS, of which a CA has issued all certificates.
async fn secured(name: &str, peer: &Peer, ca: &Ca, socket: TransportSocket) -> Mesh {
    let files = (&*ca.file(), &ca.issue(&[SHOP]));
    let mesh =
        start(name, &[peer.address], files, |it| it.xds_credentials(FallbackCredentials::Plaintext)).await;
    secure(&mesh, name, socket);
    mesh
}

async fn status(call: JoinHandle<Result<(), Status>>) -> (Code, String) {
    let status = soon(call).await.unwrap().unwrap_err();
    (status.code(), status.message().to_owned())
}

/// Makes a call that the peer answers, and returns its request.
async fn answered(mesh: &Mesh, peer: &mut Peer) -> Received {
    let call = mesh.get("/a");
    let mut received = peer.request().await;
    received.end();
    soon(call).await.unwrap().unwrap();
    received
}

/// A call fails with UNAVAILABLE and a text.
async fn fails(mesh: &Mesh, text: &str) {
    let (code, message) = status(mesh.get("/a")).await;
    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(message.contains(text), "{message:?} has no {text:?}");
}

#[tokio::test]
async fn ch7_1_with_insecure_credentials_the_tls_of_clusters_is_ignored() {
    let (log, _guard) = Log::start("xdskit=warn");
    let (mut peer, ca) = (Peer::start().await, Ca::new());
    let name = "ch7_1_insecure";
    let files = (&*ca.file(), &ca.issue(&[SHOP]));
    // The later choice counts.
    let settings =
        |it: ChannelBuilder| it.xds_credentials(FallbackCredentials::Plaintext).insecure_credentials();
    let mesh = start(name, &[peer.address], files, settings).await;
    for (requests, names) in [(10, ["a.example"]), (20, ["b.example"])] {
        mesh.server.set(limited(name, requests, upstream(&names, false)));
        let is_there =
            async || mesh.channel.status().await.leaves.iter().any(|it| it.max_requests == requests);
        soon(async {
            while !is_there().await {
                answered(&mesh, &mut peer).await;
            }
        })
        .await;
        let received = answered(&mesh, &mut peer).await;
        assert_eq!(received.request.uri().scheme_str(), Some("http"));
    }
    assert_eq!(log.lines(), [""; 0]);
}

#[tokio::test]
async fn ch7_1_without_credentials_calls_to_a_cluster_with_tls_fail_with_the_names_of_the_settings() {
    let (log, _guard) = Log::start("xdskit=warn");
    let (mut peer, ca) = (Peer::start().await, Ca::new());
    let name = "ch7_1_unset";
    let mesh = start(name, &[peer.address], (&ca.file(), &ca.issue(&[SHOP])), |it| it).await;
    // A mesh without TLS needs no choice.
    answered(&mesh, &mut peer).await;
    for (requests, names) in [(10, ["a.example"]), (20, ["b.example"])] {
        mesh.server.set(limited(name, requests, upstream(&names, false)));
        let is_there =
            async || mesh.channel.status().await.leaves.iter().any(|it| it.max_requests == requests);
        soon(async { while !is_there().await {} }).await;
        fails(
            &mesh,
            "cluster ch7_1_unset has no usable endpoints: it has TLS, and the channel has no credentials",
        )
        .await;
        fails(&mesh, "`ChannelBuilder::xds_credentials`").await;
        fails(&mesh, "`insecure_credentials`").await;
    }
    let warning = "WARN xdskit::balance::configs: the channel does not execute a part of the configuration: TLS, \
                   calls fail since the channel has no credentials cluster=\"ch7_1_unset\"";
    assert_eq!(log.lines(), [warning]);
    // TLS that the cluster has no more needs no choice, either.
    mesh.server.set(cluster(name));
    let is_plain = async || mesh.channel.status().await.leaves.iter().any(|it| it.max_requests == 1_024);
    soon(async { while !is_plain().await {} }).await;
    answered(&mesh, &mut peer).await;
}

#[tokio::test]
async fn ch7_2_with_xds_credentials_the_cluster_decides_and_the_fallback_is_for_clusters_without_tls() {
    let ca = Ca::new();
    let mut secure_peer = Peer::secured(ca.server(&["a.example"])).await;
    let mesh = secured("ch7_2_tls", &secure_peer, &ca, upstream(&["a.example"], false)).await;
    let received = answered(&mesh, &mut secure_peer).await;
    assert_eq!(received.request.uri().scheme_str(), Some("https"));
    assert_eq!(received.request.uri().authority().unwrap(), "shop");
    let mut plain_peer = Peer::start().await;
    let files = (&*ca.file(), &ca.issue(&[SHOP]));
    let settings = |it: ChannelBuilder| it.xds_credentials(FallbackCredentials::Plaintext);
    let mesh = start("ch7_2_plaintext", &[plain_peer.address], files, settings).await;
    assert_eq!(answered(&mesh, &mut plain_peer).await.request.uri().scheme_str(), Some("http"));
}

#[tokio::test]
async fn ch7_2_tls_that_cannot_be_used_fails_and_is_never_replaced_by_the_fallback() {
    let (peer, ca) = (RawListener::bind().await, Ca::new());
    let missing = ca.file().with_file_name("missing.pem");
    let name = "ch7_2_missing";
    let settings = |it: ChannelBuilder| it.xds_credentials(FallbackCredentials::Plaintext);
    for has_identity in [false, true] {
        let files = match has_identity {
            true => (ca.file(), (missing.clone(), missing.clone())),
            false => (missing.clone(), ca.issue(&[SHOP])),
        };
        let mesh = start(name, &[peer.address], (&files.0, &files.1), settings).await;
        secure(&mesh, name, upstream(&["a.example"], has_identity));
        mesh.channel.connect();
        // The configuration may come after the first call.
        let call = mesh.get("/a");
        assert_eq!(peer.received().await, b"", "nothing is sent in the place of a handshake");
        let (code, message) = status(call).await;
        assert_eq!(code, Code::Unavailable);
        assert!(message.contains(&format!("{}: no ", peer.address)), "{message}");
        assert!(message.contains("missing.pem"), "{message}");
    }
}

#[tokio::test]
async fn ch7_2_plaintext_to_a_server_with_tls_is_a_failed_attempt() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["shop"])).await;
    let mesh = Mesh::start("ch7_2_plaintext_client", &[&peer]).await;
    fails(&mesh, &format!("{}: HTTP/2: ", peer.address)).await;
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch7_3_tls_of_the_fallback_is_verified_for_the_authority_of_the_channel() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["shop"])).await;
    let files = (ca.file(), ca.issue(&[SHOP]));
    let fallback = || ca.fallback();
    let mesh =
        start("ch7_3_right", &[peer.address], (&files.0, &files.1), |it| it.xds_credentials(fallback()))
            .await;
    assert_eq!(answered(&mesh, &mut peer).await.request.uri().scheme_str(), Some("https"));
    let other = |it: ChannelBuilder| it.xds_credentials(fallback()).authority("other.example:80");
    let mesh = start("ch7_3_other", &[peer.address], (&files.0, &files.1), other).await;
    fails(&mesh, "other.example").await;
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch7_14_a_client_certificate_is_sent_if_the_cluster_names_a_provider_of_one() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server_with(&["a.example"], Some(&ca))).await;
    let mesh = secured("ch7_14_identity", &peer, &ca, upstream(&["a.example"], true)).await;
    answered(&mesh, &mut peer).await;
    let mesh = secured("ch7_14_none", &peer, &ca, upstream(&["a.example"], false)).await;
    fails(&mesh, "does it require a client certificate").await;
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch7_18_certificates_that_are_not_right_fail_calls_with_the_address_and_the_reason() {
    let (ca, other) = (Ca::new(), Ca::new());
    let peer = Peer::secured(ca.server(&["a.example", "spiffe://example.org/a"])).await;
    let mesh = secured("ch7_18_names", &peer, &ca, upstream(&["b.example"], false)).await;
    let why = format!(
        "{}: TLS handshake failed: the server's certificate (DNS \"a.example\", URI \"spiffe://example.org/a\"), \
         trusted by certificate provider instance \"roots\", has no name that is exact \"b.example\"",
        peer.address
    );
    fails(&mesh, &why).await;
    let status = mesh.channel.status().await;
    let errors: Vec<_> = status.leaves[0].endpoints().map(|it| it.error.as_deref()).collect();
    assert_eq!(errors, [Some(&*why)]);
    let peer = Peer::secured(other.server(&["a.example"])).await;
    let mesh = secured("ch7_18_ca", &peer, &ca, upstream(&["a.example"], false)).await;
    let why = format!(
        "{}: TLS handshake failed: the server's certificate (DNS \"a.example\") is not trusted by certificate provider \
         instance \"roots\": it is not signed by one of the roots",
        peer.address
    );
    fails(&mesh, &why).await;
    let mut peer = Peer::start().await;
    let mesh = secured("ch7_18_plaintext", &peer, &ca, upstream(&["a.example"], false)).await;
    fails(&mesh, "TLS handshake failed: ").await;
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch3_4_a_peer_with_tls_that_selects_another_protocol_is_a_failed_attempt() {
    let ca = Ca::new();
    for protocols in [&[][..], &["http/1.1"]] {
        let mut config = ca.server(&["a.example"]);
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let peer = Peer::secured(config).await;
        let mesh = secured("ch3_4_alpn", &peer, &ca, upstream(&["a.example"], false)).await;
        fails(&mesh, &format!("{}: ", peer.address)).await;
        fails(&mesh, "ALPN: the server").await;
    }
}

#[tokio::test]
async fn ch7_20_an_update_of_the_security_moves_new_calls_and_lets_running_ones_end() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["a.example", "b.example"])).await;
    let name = "ch7_20_update";
    let mesh = secured(name, &peer, &ca, upstream(&["a.example"], false)).await;
    let running = mesh.get("/running");
    let first = peer.request().await;
    assert_eq!(first.connection, 0);
    secure(&mesh, name, upstream(&["b.example"], false));
    soon(async { while answered(&mesh, &mut peer).await.connection == 0 {} }).await;
    assert!(!running.is_finished());
    first.respond();
    soon(running).await.unwrap().unwrap();
    secure(&mesh, name, upstream(&["c.example"], false));
    soon(async {
        loop {
            let call = mesh.get("/a");
            tokio::select! {
                received = peer.request() => received.respond(),
                ended = call => if ended.unwrap().is_err() { return },
            }
        }
    })
    .await;
    fails(&mesh, "c.example").await;
}

#[tokio::test]
async fn ch7_20_an_update_that_leaves_the_security_as_it_is_keeps_the_connection() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["a.example"])).await;
    let name = "ch7_20_same";
    let mesh = secured(name, &peer, &ca, upstream(&["a.example"], false)).await;
    answered(&mesh, &mut peer).await;
    for requests in 1..10 {
        mesh.server.set(limited(name, requests, upstream(&["a.example"], false)));
        mesh.server.set(assignment(name, &[&peer]).locality("eu", "b", []));
        assert_eq!(answered(&mesh, &mut peer).await.connection, 0);
    }
}

#[tokio::test]
async fn ch7_21_shared_connections_are_of_the_same_security() {
    let ca = Ca::new();
    let mut peer = Peer::secured(ca.server(&["shop", "other"])).await;
    let files = (ca.file(), ca.issue(&[SHOP]));
    let fallback = |it: ChannelBuilder| it.share_connections(true).xds_credentials(ca.fallback());
    let mesh = start("ch7_21", &[peer.address], (&files.0, &files.1), fallback).await;
    let get = |channel: &Channel| {
        let (mut channel, request) = (channel.clone(), Request::post("/a").body(Given::default()).unwrap());
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ))
    };
    let same = build(&mesh, fallback);
    let other = build(&mesh, |it| fallback(it).authority("other"));
    let other_files = TlsConfig::default().with_ca_certificate_file(ca.file());
    let other_files = other_files.with_identity(&files.1.0, &files.1.1);
    let third = build(&mesh, |it| it.share_connections(true).xds_credentials(other_files));
    let mut connections = Vec::new();
    for channel in [&mesh.channel, &same, &other, &third, &other] {
        let call = get(channel);
        let received = peer.request().await;
        connections.push(received.connection);
        received.respond();
        soon(call).await.unwrap().unwrap();
    }
    assert_eq!(connections, [0, 0, 1, 2, 1]);
}

#[tokio::test]
async fn ch7_22_the_identity_of_the_peer_is_in_the_extensions_of_the_response() {
    let ca = Ca::new();
    let id = "spiffe://example.org/a";
    let mut peer = Peer::secured(ca.server(&[id])).await;
    let mesh = secured("ch7_22", &peer, &ca, upstream(&[id], false)).await;
    let call = tokio::spawn(mesh.begin("/a", Given::default()));
    peer.request().await.respond();
    let response = soon(call).await.unwrap();
    let identity = response.extensions().get::<PeerIdentity>().unwrap();
    assert_eq!(identity.spiffe_id(), Some(id));
    assert!(!identity.certificate().is_empty());
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch7_22_plaintext", &[&peer]).await;
    let call = tokio::spawn(mesh.begin("/a", Given::default()));
    peer.request().await.respond();
    assert!(soon(call).await.unwrap().extensions().get::<PeerIdentity>().is_none());
}

#[tokio::test]
async fn ch7_23_a_peer_that_does_not_answer_the_handshake_fails_the_attempt_at_its_timeout() {
    let (peer, ca) = (RawListener::bind().await, Ca::new());
    let files = (ca.file(), ca.issue(&[SHOP]));
    let settings = |it: ChannelBuilder| {
        let it =
            it.connect_timeout(Duration::from_millis(100)).connect_backoff(Duration::ZERO, Duration::ZERO);
        it.xds_credentials(FallbackCredentials::Plaintext)
    };
    let name = "ch7_23_silent";
    let mesh = start(name, &[peer.address], (&files.0, &files.1), settings).await;
    secure(&mesh, name, upstream(&["a.example"], false));
    fails(&mesh, &format!("{}: no HTTP/2 connection within 100ms", peer.address)).await;
}
