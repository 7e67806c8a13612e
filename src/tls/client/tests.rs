//! CH7.2 to CH7.18 with handshakes against servers of rustls.

mod crypto;
mod revocation;
mod system_roots;

use std::{io, time::Duration};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, HandshakeKind, ServerConfig,
        pki_types::{CertificateDer, UnixTime},
        sign::SingleCertAndKey,
    },
};

use super::*;
use crate::{
    config::{Bootstrap, CertificateProvider, DEFAULT_REFRESH_INTERVAL, FileWatcherConfig, Server},
    resource::{
        Registry,
        matcher::{StringMatcher, StringPattern},
        tls::{ProviderInstance, SanMatcher},
    },
    tls::{
        files,
        fixture::{self, Ca, Folder, dns, uri},
    },
};

/// What a server has seen of a handshake.
#[derive(Debug, PartialEq)]
struct Seen {
    server_name: Option<String>,
    client: Option<Vec<u8>>,
    resumed: bool,
    version: rustls::ProtocolVersion,
}

/// Two authorities, the files of one provider instance, and what else a test changes of them.
struct World {
    folder: Folder,
    servers: Ca,
    clients: Ca,
    providers: Arc<Providers>,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut FileWatcherConfig)) -> Self {
        let (folder, servers, clients) = (Folder::new(), Ca::new(), Ca::new());
        folder.write("ca.crt", servers.pem());
        folder.write_identity(&clients.issue([uri("spiffe://clients/a")]));
        let mut both = FileWatcherConfig::identity(folder.path("tls.crt"), folder.path("tls.key"));
        both.ca_certificate_file = Some(folder.path("ca.crt"));
        change(&mut both);
        let builder = Bootstrap::builder().server(Server::new("localhost:1").insecure());
        let builder = builder.certificate_provider("both", CertificateProvider::FileWatcher(both));
        Self {
            folder,
            servers,
            clients,
            providers: Providers::new(&builder.build().unwrap(), &Registry::new(), fixture::crypto()),
        }
    }

    fn client(&self, tls: UpstreamTls, hostname: Option<&str>) -> ClientTls {
        ClientTls::of_cluster(self.providers.clone(), Arc::new(tls), hostname)
    }

    fn server(&self) -> ServerConfig {
        self.servers.issue([dns("a.example"), uri("spiffe://servers/a")]).server(None)
    }
}

fn instance(name: &str) -> ProviderInstance {
    ProviderInstance { instance_name: name.into(), certificate_name: "".into() }
}

/// TLS without a client certificate, by one matcher.
fn upstream(exact: &str) -> UpstreamTls {
    let matcher = StringMatcher { pattern: StringPattern::Exact(exact.into()), ignore_case: false };
    UpstreamTls {
        identity: None,
        roots: Roots::Provider(instance("both")),
        san_matchers: Box::new([SanMatcher { san_type: None, matcher }]),
        sni: None,
        auto_host_sni: false,
        auto_sni_san_validation: false,
    }
}

fn mutual(exact: &str) -> UpstreamTls {
    UpstreamTls { identity: Some(instance("both")), ..upstream(exact) }
}

/// Makes a handshake over a pipe, and checks what was agreed on as if it was another time.
async fn checked_at(
    time: UnixTime,
    client: &ClientTls,
    server: &Arc<ServerConfig>,
) -> Result<PeerIdentity, String> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let serve = async {
        let mut stream = TlsAcceptor::from(server.clone()).accept(far).await.unwrap();
        stream.write_all(b"x").await.unwrap();
        stream.flush().await.unwrap();
        stream
    };
    let (connected, _served) = tokio::join!(client.connect(near), serve);
    let mut stream = connected.unwrap().stream;
    stream.read_exact(&mut [0]).await.unwrap(); // and the tickets before it
    let generation = client.generation.lock().unwrap().clone().unwrap();
    let (connection, name) = (stream.get_ref().1, client.security.sent_name("").unwrap());
    let text = |error| match error {
        HandshakeError::Unusable(reason) => reason,
        HandshakeError::Failed(e) => panic!("{e}"),
    };
    generation.check(connection, &name, time).map_err(text)?;
    PeerIdentity::of(chain(connection).map_err(text)?.0)
}

/// Makes a handshake over a pipe. The server then sends a byte, after its tickets.
async fn handshake(client: &ClientTls, server: &Arc<ServerConfig>) -> Result<(PeerIdentity, Seen), String> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let accept = TlsAcceptor::from(server.clone()).accept(far);
    let serve = async {
        let mut stream = accept.await.ok()?;
        stream.write_all(b"x").await.ok()?;
        stream.flush().await.ok()?;
        let connection = stream.get_ref().1;
        let seen = Seen {
            server_name: connection.server_name().map(str::to_owned),
            client: connection.peer_certificates().map(|chain| chain[0].to_vec()),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            version: connection.protocol_version().unwrap(),
        };
        Some((seen, stream))
    };
    let connect = async {
        let Connected { mut stream, peer: identity, .. } = client.connect(near).await?;
        let mut byte = [0];
        let read = stream.read_exact(&mut byte).await;
        match read {
            Ok(_) => Ok(identity),
            Err(e) => Err(format!(
                "after the handshake: {}",
                client.explain(&e, false).unwrap_or_else(|| e.to_string())
            )),
        }
    };
    let (connected, served) = tokio::join!(connect, serve);
    let identity = connected?;
    Ok((identity, served.expect("the client has read from it").0))
}

async fn error(client: &ClientTls, server: ServerConfig) -> String {
    handshake(client, &Arc::new(server)).await.unwrap_err()
}

#[tokio::test]
async fn ch7_8_ch7_15_a_server_that_is_trusted_and_named_is_connected_to_by_http2() {
    let world = World::new();
    let client = world.client(upstream("spiffe://servers/a"), None);
    let (identity, seen) = handshake(&client, &Arc::new(world.server())).await.unwrap();
    assert_eq!(identity.spiffe_id(), Some("spiffe://servers/a"));
    assert_eq!(seen.server_name, None, "no name is sent that is not configured");
    assert_eq!((seen.client, seen.resumed), (None, false));
    assert_eq!(seen.version, rustls::ProtocolVersion::TLSv1_3);
}

#[tokio::test]
async fn ch7_15_tls_1_2_is_used_where_the_server_has_no_other() {
    let world = World::new();
    let issued = world.servers.issue([dns("a.example")]);
    let newer = issued.server(None);
    let mut server = ServerConfig::builder_with_provider(fixture::provider())
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(newer.cert_resolver.clone());
    server.alpn_protocols = newer.alpn_protocols;
    let (_, seen) = handshake(&world.client(upstream("a.example"), None), &Arc::new(server)).await.unwrap();
    assert_eq!(seen.version, rustls::ProtocolVersion::TLSv1_2);
}

#[tokio::test]
async fn ch3_4_ch7_15_a_server_without_http2_is_a_failure_of_alpn() {
    let world = World::new();
    let client = world.client(upstream("a.example"), None);
    for (protocols, reason) in [
        (vec![], "ALPN: the server did not select `h2`, so it does not use HTTP/2"),
        (vec![b"http/1.1".to_vec()], "TLS handshake failed: ALPN: the server does not use `h2`"),
    ] {
        let mut server = world.server();
        server.alpn_protocols = protocols;
        assert_eq!(error(&client, server).await, reason);
    }
}

#[tokio::test]
async fn ch7_18_a_server_that_is_refused_is_an_error_with_names_and_provider() {
    let world = World::new();
    let other = Ca::new().issue([dns("a.example")]).server(None);
    let client = world.client(upstream("a.example"), None);
    assert_eq!(
        error(&client, other).await,
        "TLS handshake failed: the server's certificate (DNS \"a.example\") is not trusted by certificate provider \
         instance \"both\": it is not signed by one of the roots"
    );
    let client = world.client(upstream("b.example"), None);
    assert_eq!(
        error(&client, world.server()).await,
        "TLS handshake failed: the server's certificate (DNS \"a.example\", URI \"spiffe://servers/a\"), trusted by \
         certificate provider instance \"both\", has no name that is exact \"b.example\""
    );
}

#[tokio::test]
async fn ch7_12_ch7_13_the_hostname_of_the_endpoint_is_sent_and_validated() {
    let world = World::new();
    let auto = UpstreamTls { auto_host_sni: true, auto_sni_san_validation: true, ..upstream("x") };
    let server = Arc::new(world.server());
    let client = world.client(auto.clone(), Some("a.example:443"));
    let (_, seen) = handshake(&client, &server).await.unwrap();
    assert_eq!(seen.server_name.as_deref(), Some("a.example"));
    let client = world.client(auto.clone(), Some("b.example:443"));
    let refused = handshake(&client, &server).await.unwrap_err();
    assert!(refused.ends_with("DNS \"b.example\", the server name that was sent"), "{refused}");
    // An address is not sent, so the matchers apply.
    let client = world.client(auto.clone(), Some("10.0.0.1:443"));
    assert!(handshake(&client, &server).await.unwrap_err().ends_with("exact \"x\""));
    let named = UpstreamTls { sni: Some("c.example.".into()), ..upstream("a.example") };
    let (_, seen) = handshake(&world.client(named, Some("a.example")), &server).await.unwrap();
    assert_eq!(seen.server_name.as_deref(), Some("c.example"));
    let invalid = UpstreamTls { sni: Some("a b".into()), ..upstream("a.example") };
    let error = handshake(&world.client(invalid, None), &server).await.unwrap_err();
    assert_eq!(error, "\"a b\" is no server name that TLS can send");
}

#[tokio::test]
async fn ch7_14_a_client_certificate_is_offered_where_the_cluster_names_a_provider() {
    let world = World::new();
    let issued = world.servers.issue([dns("a.example")]);
    let demanding = Arc::new(issued.server(Some(&world.clients)));
    let (_, seen) = handshake(&world.client(mutual("a.example"), None), &demanding).await.unwrap();
    let own = PeerIdentity::of(&CertificateDer::from(seen.client.unwrap())).unwrap();
    assert_eq!(own.spiffe_id(), Some("spiffe://clients/a"));
    // A server that does not ask sees none.
    let (_, seen) =
        handshake(&world.client(mutual("a.example"), None), &Arc::new(world.server())).await.unwrap();
    assert_eq!(seen.client, None);
    // Without a provider the certificate is empty, and it is the server that refuses.
    assert_eq!(
        handshake(&world.client(upstream("a.example"), None), &demanding).await.unwrap_err(),
        "after the handshake: the server sent the TLS alert CertificateRequired: does it require a client \
         certificate (the cluster names no provider of one)?"
    );
    let strangers = Arc::new(issued.server(Some(&Ca::new())));
    let refused = handshake(&world.client(mutual("a.example"), None), &strangers).await.unwrap_err();
    let file = world.folder.path("tls.crt");
    let hint = format!(": does it trust the certificate in {}?", file.display());
    assert!(refused.contains("the server sent the TLS alert") && refused.ends_with(&hint), "{refused}");
}

#[tokio::test]
async fn ch7_2_ch7_14_without_material_there_is_no_handshake() {
    let world = World::new();
    let server = Arc::new(world.server());
    let gone = world.folder.path("tls.key");
    std::fs::remove_file(&gone).unwrap();
    let refused = handshake(&world.client(mutual("a.example"), None), &server).await.unwrap_err();
    let start = format!(
        "no client certificate of certificate provider instance \"both\": private_key_file {}: No such file",
        gone.display()
    );
    assert!(refused.starts_with(&start), "{refused:?} is not {start:?}");
    let unknown = UpstreamTls { roots: Roots::Provider(instance("x")), ..upstream("a.example") };
    let refused = handshake(&world.client(unknown, None), &server).await.unwrap_err();
    assert_eq!(refused, "certificate provider instance \"x\": the bootstrap has none of this name");
}

#[tokio::test]
async fn ch7_2_nothing_is_sent_to_a_server_without_material() {
    let world = World::with(|both| both.ca_certificate_file = None);
    let client = world.client(upstream("a.example"), None);
    let (near, mut far) = tokio::io::duplex(1 << 16);
    let refused = client.connect(near).await.err().unwrap();
    assert!(
        refused.starts_with("no root certificates of certificate provider instance \"both\": it has neither")
    );
    let mut sent = Vec::new();
    far.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent, b"");
}

#[tokio::test(start_paused = true)]
async fn ch7_7_ch7_16_sessions_are_resumed_until_there_is_other_material() {
    let world = World::new();
    let server = Arc::new(world.server());
    let client = world.client(upstream("a.example"), None);
    let resumed = async || handshake(&client, &server).await.unwrap().1.resumed;
    assert!(!resumed().await && resumed().await && resumed().await);
    // Other roots, which trust the server, too.
    world.folder.write("ca.crt", format!("{}{}", world.servers.pem(), world.clients.pem()));
    tokio::time::sleep(DEFAULT_REFRESH_INTERVAL + Duration::from_secs(1)).await;
    assert!(!resumed().await && resumed().await);
    // Roots that no longer trust it: no session outlives them.
    world.folder.write("ca.crt", world.clients.pem());
    tokio::time::sleep(DEFAULT_REFRESH_INTERVAL).await;
    let refused = handshake(&client, &server).await.unwrap_err();
    assert!(refused.ends_with("it is not signed by one of the roots"), "{refused}");
}

#[tokio::test]
async fn ch7_16_the_certificate_of_a_resumed_session_is_verified_by_the_time_of_the_handshake() {
    let world = World::new();
    let server = Arc::new(world.server());
    let client = world.client(upstream("a.example"), None);
    let late = UnixTime::since_unix_epoch(Duration::from_secs(1 << 40));
    for is_resumed in [false, true] {
        let checked = checked_at(late, &client, &server).await;
        // rustls has verified the first by its own clock.
        assert_eq!(checked.is_err_and(|why| why.contains("expired")), is_resumed);
    }
}

#[tokio::test]
async fn ch7_16_another_generation_resumes_no_session() {
    let world = World::new();
    let server = Arc::new(world.server());
    let first = world.client(upstream("a.example"), None);
    let second = world.client(upstream("spiffe://servers/a"), None);
    handshake(&first, &server).await.unwrap();
    assert!(!handshake(&second, &server).await.unwrap().1.resumed);
}

#[tokio::test(start_paused = true)]
async fn ch7_7_a_rotated_client_certificate_is_used_by_the_next_handshake() {
    let world = World::new();
    let server = Arc::new(world.servers.issue([dns("a.example")]).server(Some(&world.clients)));
    let client = world.client(mutual("a.example"), None);
    let first = handshake(&client, &server).await.unwrap().1.client;
    let rotated = world.clients.issue([uri("spiffe://clients/b")]);
    world.folder.write_identity(&rotated);
    assert_eq!(handshake(&client, &server).await.unwrap().1.client, first, "the interval is not over");
    tokio::time::sleep(DEFAULT_REFRESH_INTERVAL + Duration::from_secs(1)).await;
    assert_eq!(handshake(&client, &server).await.unwrap().1.client.as_deref(), Some(&*rotated.der));
}

#[tokio::test]
async fn ch7_11_a_server_is_verified_by_the_bundle_of_its_trust_domain() {
    let folder = Folder::new();
    let world = World::with(|both| both.spiffe_trust_bundle_map_file = Some(folder.path("map.json")));
    let map =
        json!({ "trust_domains": { "servers": world.servers.bundle(), "clients": world.clients.bundle() } });
    folder.write("map.json", map.to_string());
    let client = world.client(upstream("spiffe://servers/a"), None);
    handshake(&client, &Arc::new(world.server())).await.unwrap();
    let foreign = world.clients.issue([uri("spiffe://servers/a")]).server(None);
    assert!(error(&client, foreign).await.ends_with("it is not signed by one of the roots"));
    let plain = world.servers.issue([dns("a.example")]).server(None);
    assert!(error(&client, plain).await.ends_with("it has no URI, so no SPIFFE id"));
}

#[tokio::test]
async fn ch7_3_the_fallback_verifies_the_host_of_the_authority() {
    let world = World::new();
    let server = Arc::new(world.server());
    let config = TlsConfig::default().with_ca_certificate_file(world.folder.path("ca.crt"));
    let client = ClientTls::of_config(&config, "a.example:443", &fixture::crypto());
    let (_, seen) = handshake(&client, &server).await.unwrap();
    assert_eq!(seen.server_name.as_deref(), Some("a.example"));
    let refused = handshake(&ClientTls::of_config(&config, "b.example", &fixture::crypto()), &server)
        .await
        .unwrap_err();
    assert_eq!(
        refused,
        "TLS handshake failed: the server's certificate (DNS \"a.example\", URI \"spiffe://servers/a\"), trusted by \
         the TLS configuration of the channel, is not for the host \"b.example\""
    );
    let named = config.with_server_name("a.example");
    handshake(&ClientTls::of_config(&named, "b.example", &fixture::crypto()), &server).await.unwrap();
}

#[tokio::test]
async fn ch7_3_the_fallback_has_a_client_certificate_if_it_is_configured() {
    let world = World::new();
    let server = Arc::new(world.servers.issue([dns("a.example")]).server(Some(&world.clients)));
    let config = TlsConfig::default().with_ca_certificate_file(world.folder.path("ca.crt"));
    let with = config.clone().with_identity(world.folder.path("tls.crt"), world.folder.path("tls.key"));
    handshake(&ClientTls::of_config(&with, "a.example", &fixture::crypto()), &server).await.unwrap();
    handshake(&ClientTls::of_config(&config, "a.example", &fixture::crypto()), &server).await.unwrap_err();
    std::fs::remove_file(world.folder.path("tls.crt")).unwrap();
    let refused =
        handshake(&ClientTls::of_config(&with, "a.example", &fixture::crypto()), &server).await.unwrap_err();
    assert!(
        refused
            .starts_with("no client certificate of the TLS configuration of the channel: certificate_file")
    );
}

#[tokio::test]
async fn ch7_18_a_peer_that_does_not_use_tls_is_named_as_such() {
    let world = World::new();
    let client = world.client(upstream("a.example"), None);
    let (near, mut far) = tokio::io::duplex(1 << 16);
    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    let refused = client.connect(near).await.err().unwrap();
    assert!(refused.starts_with("TLS handshake failed: the server does not use TLS"), "{refused}");
    let (near, far) = tokio::io::duplex(1 << 16);
    drop(far);
    let refused = client.connect(near).await.err().unwrap();
    assert!(refused.starts_with("TLS handshake failed: "), "{refused}");
}

#[tokio::test]
async fn ch7_18_ch7_28_certificates_beyond_the_limit_are_named_as_such() {
    let world = World::new();
    let client = world.client(upstream("a.example"), None);
    let names = |from: usize, count: usize| {
        (from..from + count)
            .map(|number| dns(&format!("{number}.endpoints.example")))
            .chain([dns("a.example")])
    };
    let leaf = world.servers.issue(names(0, 1_000));
    handshake(&client, &Arc::new(leaf.server(None))).await.unwrap();
    // rustls reads a certificate of its own up to the same size, so that others follow the server's.
    let others = (1..4).map(|number| world.servers.issue(names(1_000 * number, 1_000)).der);
    let large = Arc::new(leaf.server_with(others, None));
    let refused = handshake(&client, &large).await.unwrap_err();
    assert!(refused.contains("its certificates are larger than 64 KiB, the limit"), "{refused}");
    assert!(!refused.contains("does not use TLS"), "{refused}");
}

#[tokio::test]
async fn ch7_18_a_connection_that_is_closed_before_anything_is_read_is_maybe_a_refusal() {
    let world = World::new();
    let closed = io::Error::from(io::ErrorKind::ConnectionReset);
    let client = world.client(upstream("a.example"), None);
    handshake(&client, &Arc::new(world.server())).await.unwrap();
    assert_eq!(
        client.explain(&closed, false).unwrap(),
        "the server closed the connection after the handshake: does it require a client certificate (the cluster names \
         no provider of one)?"
    );
    assert_eq!(client.explain(&closed, true), None);
    let client = world.client(mutual("a.example"), None);
    handshake(&client, &Arc::new(world.server())).await.unwrap();
    let file = world.folder.path("tls.crt");
    assert_eq!(
        client.explain(&closed, false).unwrap(),
        format!(
            "the server closed the connection after the handshake: does it trust the certificate in {}?",
            file.display()
        )
    );
}

#[tokio::test]
async fn ch7_18_an_expired_client_certificate_is_named_when_the_server_refuses_it() {
    let world = World::new();
    let expired = world.clients.issue_with([uri("spiffe://clients/a")], |params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    world.folder.write_identity(&expired);
    let server = Arc::new(world.servers.issue([dns("a.example")]).server(Some(&world.clients)));
    let refused = handshake(&world.client(mutual("a.example"), None), &server).await.unwrap_err();
    assert!(refused.contains("CertificateExpired: certificate_file "), "{refused}");
    let end = "(not after 2020-01-01T00:00:00Z): replace it";
    assert!(refused.contains("has expired") && refused.ends_with(end), "{refused}");
}

#[tokio::test]
async fn ch7_7_no_key_is_shown() {
    let world = World::new();
    let client = world.client(mutual("a.example"), Some("a.example"));
    let server = world.servers.issue([dns("a.example")]).server(Some(&world.clients));
    let (identity, _) = handshake(&client, &Arc::new(server)).await.unwrap();
    let shown = format!("{client:?} {identity:?} {:?}", world.providers);
    let key = std::fs::read_to_string(world.folder.path("tls.key")).unwrap();
    for line in key.lines() {
        assert!(!shown.contains(line), "{shown}");
    }
    assert!(shown.contains("both") && shown.len() < 1000, "{shown}");
}
