//! Handshakes with clients of rustls over pipes.

mod clients;
mod sessions;

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, DuplexStream},
    sync::mpsc,
};
use tokio_rustls::{
    TlsConnector, client,
    rustls::{ClientConfig, HandshakeKind, pki_types::ServerName},
};

use super::*;
use crate::{
    resource::tls::{CertificateIdentity, CertificatePublisher, CertificateRoots, ProviderInstance},
    tls::{
        fixture::{self, Ca, Folder, Issued, dns, uri},
        scripted::{Scripted, providers},
    },
};

/// The authorities of both sides, and a provider whose publisher a test has.
struct World {
    servers: Ca,
    clients: Ca,
    providers: Arc<Providers>,
    runs: mpsc::UnboundedReceiver<CertificatePublisher>,
}

/// The server's certificate as a client has seen it, and whether its session was resumed.
#[derive(Debug, PartialEq)]
struct Seen {
    certificate: Vec<u8>,
    resumed: bool,
}

impl World {
    fn new() -> Self {
        let (plugin, runs) = Scripted::handed("both");
        Self { servers: Ca::new(), clients: Ca::new(), providers: providers(&[("both", &plugin)]), runs }
    }

    /// A server with these settings, for which nothing is published.
    async fn unpublished(
        &mut self,
        tls: DownstreamTls,
        settings: ServerTlsSettings,
    ) -> (ServerTls, CertificatePublisher) {
        let server = ServerTls::of_chain(&self.providers, &tls, settings);
        server.start();
        (server, self.runs.recv().await.unwrap())
    }

    /// A server with a certificate, and the roots of its clients.
    async fn server(&mut self, tls: DownstreamTls) -> (ServerTls, CertificatePublisher) {
        let (server, publisher) = self.unpublished(tls, ServerTlsSettings::default()).await;
        publisher.publish_identity(self.servers.issue([dns("a.example")]).identity()).unwrap();
        publisher.publish_roots(CertificateRoots::from_pem(self.clients.pem())).unwrap();
        (server, publisher)
    }

    /// A client with this certificate.
    fn client(&self, issued: &Issued) -> Arc<ClientConfig> {
        Arc::new(with_alpn(issued.client(&self.servers, []), &["h2"]))
    }

    /// A client with no certificate.
    fn anonymous(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(fixture::provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let config = builder.with_root_certificates(self.servers.store()).with_no_client_auth();
        Arc::new(with_alpn(config, protocols))
    }
}

fn with_alpn(mut config: ClientConfig, protocols: &[&str]) -> ClientConfig {
    config.alpn_protocols = protocols.iter().map(|one| one.as_bytes().to_vec()).collect();
    config
}

fn tls(roots: bool, require_client_certificate: bool) -> DownstreamTls {
    let instance = || ProviderInstance { instance_name: "both".into(), certificate_name: "".into() };
    DownstreamTls { identity: instance(), roots: roots.then(instance), require_client_certificate }
}

fn deadline() -> Instant {
    tokio::time::Instant::now().into_std() + Duration::from_secs(120)
}

/// The part of a client: it makes the handshake, and reads a byte, and so the tickets and alerts before it.
async fn connect(
    client: &Arc<ClientConfig>,
    host: &str,
    io: DuplexStream,
) -> std::io::Result<(Seen, client::TlsStream<DuplexStream>)> {
    let host = ServerName::try_from(host.to_owned()).unwrap();
    let mut stream = TlsConnector::from(client.clone()).connect(host, io).await?;
    stream.read_exact(&mut [0]).await?;
    let connection = stream.get_ref().1;
    let certificate = connection.peer_certificates().unwrap()[0].to_vec();
    let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    Ok((Seen { certificate, resumed }, stream))
}

/// A handshake of a client for the host `a.example`, with the results of both sides.
async fn handshake(
    server: &ServerTls,
    client: &Arc<ClientConfig>,
) -> (Result<Accepted<DuplexStream>, AcceptError>, std::io::Result<Seen>) {
    let (near, far) = tokio::io::duplex(1 << 18);
    let accept = async {
        let mut accepted = server.accept(far, deadline()).await?;
        accepted.stream.write_all(b"x").await.unwrap();
        accepted.stream.flush().await.unwrap();
        Ok(accepted)
    };
    let (accepted, connected) = tokio::join!(accept, connect(client, "a.example", near));
    (accepted, connected.map(|(seen, _)| seen))
}

/// The connection of a client that is accepted.
async fn accepted(server: &ServerTls, client: &Arc<ClientConfig>) -> (Accepted<DuplexStream>, Seen) {
    let (accepted, seen) = handshake(server, client).await;
    (accepted.unwrap(), seen.unwrap())
}

/// Why a client is not accepted; it has an error, too.
async fn refused(server: &ServerTls, client: &Arc<ClientConfig>) -> (AcceptFailure, String) {
    let (accepted, connected) = handshake(server, client).await;
    let error = accepted.err().unwrap();
    connected.unwrap_err();
    (error.failure(), error.to_string())
}

#[tokio::test]
async fn sv5_2_new_handshakes_have_the_latest_identity_and_connections_stay() {
    let mut world = World::new();
    let (server, publisher) = world.server(tls(false, false)).await;
    let client = world.anonymous(&["h2"]);
    let (near, far) = tokio::io::duplex(1 << 18);
    let (first, before) = tokio::join!(server.accept(far, deadline()), async {
        let host = ServerName::try_from("a.example").unwrap();
        TlsConnector::from(client.clone()).connect(host, near).await
    });
    let (mut first, mut before) = (first.unwrap().stream, before.unwrap());
    let (next, other) = (world.servers.issue([dns("a.example")]), world.servers.issue([dns("a.example")]));
    publisher.publish_identity(next.identity()).unwrap();
    let (second, seen) = accepted(&server, &client).await;
    assert_eq!(seen, Seen { certificate: next.der.to_vec(), resumed: false });
    assert_eq!(*second.local_certificate, *next.der);
    // A certificate without its key changes nothing.
    let half = CertificateIdentity::from_pem(other.pem.as_str(), next.key_pem());
    publisher.publish_identity(half).unwrap_err();
    assert_eq!(accepted(&server, &client).await.1.certificate, next.der.to_vec());
    first.write_all(b"still here").await.unwrap();
    first.flush().await.unwrap();
    let mut bytes = [0; 10];
    before.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"still here");
}

#[tokio::test]
async fn sv5_3_sv13_5_servers_share_an_instance_that_runs_from_the_start_to_the_last_of_them() {
    let mut world = World::new();
    let (one, publisher) = world.server(tls(true, false)).await;
    let other = ServerTls::of_chain(&world.providers, &tls(false, false), ServerTlsSettings::default());
    other.start();
    let client = world.anonymous(&["h2"]);
    let of = async |server: &ServerTls| accepted(server, &client).await.1.certificate;
    assert_eq!(of(&one).await, of(&other).await);
    assert!(world.runs.is_empty(), "there is one run");
    drop(one);
    let next = world.servers.issue([dns("a.example")]);
    publisher.publish_identity(next.identity()).unwrap();
    assert_eq!(of(&other).await, next.der.to_vec());
    drop(other);
    let third = ServerTls::of_chain(&world.providers, &tls(false, false), ServerTlsSettings::default());
    third.start();
    world.runs.recv().await.unwrap();
    assert_eq!(of(&third).await, next.der.to_vec(), "the last good material is kept");
}

#[tokio::test]
async fn sv5_4_a_handshake_waits_for_the_identity() {
    let mut world = World::new();
    let (server, publisher) = world.unpublished(tls(true, false), ServerTlsSettings::default()).await;
    publisher.report_failure("the vault is sealed");
    let client = world.anonymous(&["h2"]);
    let issued = world.servers.issue([dns("a.example")]);
    let roots = CertificateRoots::from_pem(world.clients.pem());
    let publish = async {
        tokio::task::yield_now().await;
        publisher.publish_roots(roots).unwrap();
        tokio::task::yield_now().await;
        publisher.publish_identity(issued.identity()).unwrap();
    };
    let ((_, seen), ()) = tokio::join!(accepted(&server, &client), publish);
    assert_eq!(seen.certificate, issued.der.to_vec());
}

#[tokio::test(start_paused = true)]
async fn sv5_4_a_handshake_without_an_identity_fails_at_its_deadline_and_others_go_on() {
    let mut world = World::new();
    let (server, publisher) = world.unpublished(tls(true, false), ServerTlsSettings::default()).await;
    publisher.publish_roots(CertificateRoots::from_pem(world.clients.pem())).unwrap();
    let folder = Folder::new();
    let (certificate, key) = folder.write_identity(&world.servers.issue([dns("a.example")]));
    let files = FileWatcherConfig::identity(certificate, key);
    let other = ServerTls::of_files(&files, false, ServerTlsSettings::default(), &fixture::crypto());
    let client = world.anonymous(&["h2"]);
    let begin = tokio::time::Instant::now();
    let ((failure, text), ()) = tokio::join!(refused(&server, &client), async {
        accepted(&other, &client).await;
        assert!(begin.elapsed() < Duration::from_secs(120));
    });
    assert_eq!(failure, AcceptFailure::NoMaterial);
    let reason =
        "no server certificate of certificate provider instance \"both\": it has published none within 10 s";
    assert_eq!(text, reason);
    assert_eq!(begin.elapsed().as_secs(), 120);
}

#[tokio::test]
async fn sv5_4_an_instance_that_cannot_be_used_is_an_error_with_its_name() {
    let world = World::new();
    let mut tls = tls(false, false);
    tls.identity.instance_name = "none".into();
    let server = ServerTls::of_chain(&world.providers, &tls, ServerTlsSettings::default());
    let (near, far) = tokio::io::duplex(1 << 18);
    let client = world.anonymous(&["h2"]);
    let soon = tokio::time::Instant::now().into_std();
    let (accepted, _) = tokio::join!(
        server.accept(far, soon + Duration::from_millis(100)),
        connect(&client, "a.example", near)
    );
    let error = accepted.err().unwrap();
    assert_eq!(error.failure(), AcceptFailure::NoMaterial);
    let text = "certificate provider instance \"none\": the bootstrap has none of this name";
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn sv5_10_the_protocol_is_negotiated_and_a_client_without_one_is_refused_or_accepted() {
    let mut world = World::new();
    let (grpc, publisher) = world.server(tls(false, false)).await;
    let of = |http1, accepts_without_alpn| {
        let settings = ServerTlsSettings { http1, accepts_without_alpn, revocation: None };
        ServerTls::of_chain(&world.providers, &tls(false, false), settings)
    };
    let (http, lenient) = (of(true, false), of(true, true));
    let client = |protocols: &[&str]| world.anonymous(protocols);
    let protocol =
        async |server: &ServerTls, protocols: &[&str]| accepted(server, &client(protocols)).await.0.protocol;
    assert_eq!(protocol(&grpc, &["http/1.1", "h2"]).await, NegotiatedProtocol::Http2);
    assert_eq!(protocol(&http, &["http/1.1", "h2"]).await, NegotiatedProtocol::Http2);
    assert_eq!(protocol(&http, &["http/1.1"]).await, NegotiatedProtocol::Http1);
    assert_eq!(protocol(&lenient, &[]).await, NegotiatedProtocol::None);
    let none = "ALPN: the client and the server have no protocol in common";
    assert_eq!(refused(&grpc, &client(&["http/1.1"])).await, (AcceptFailure::Alpn, none.to_owned()));
    let none = "ALPN: the client has offered no protocol";
    assert_eq!(refused(&http, &client(&[])).await, (AcceptFailure::Alpn, none.to_owned()));
    let (_, connected) = handshake(&grpc, &client(&[])).await;
    let error = connected.unwrap_err().to_string();
    assert!(error.contains("NoApplicationProtocol"), "{error}");
    drop(publisher);
}

#[tokio::test]
async fn sv5_11_the_server_name_selects_nothing() {
    let mut world = World::new();
    let (server, publisher) = world.server(tls(false, false)).await;
    let issued = world.servers.issue([dns("a.example"), dns("b.example")]);
    publisher.publish_identity(issued.identity()).unwrap();
    let mut client = ClientConfig::clone(&world.anonymous(&["h2"]));
    for sends_name in [true, false] {
        client.enable_sni = sends_name;
        let client = Arc::new(client.clone());
        for host in ["a.example", "b.example"] {
            let (near, far) = tokio::io::duplex(1 << 18);
            let (accepted, connected) = tokio::join!(
                async {
                    let mut accepted = server.accept(far, deadline()).await.unwrap();
                    accepted.stream.write_all(b"x").await.unwrap();
                    accepted.stream.flush().await.unwrap();
                    accepted
                },
                connect(&client, host, near)
            );
            assert_eq!(connected.unwrap().0.certificate, issued.der.to_vec());
            assert_eq!(*accepted.local_certificate, *issued.der);
        }
    }
}
