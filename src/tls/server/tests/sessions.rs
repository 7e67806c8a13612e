//! SV5.9: sessions, and clients that keep their tickets.

use rcgen::date_time_ymd;
use tokio_rustls::rustls::{ClientConnection, SupportedProtocolVersion, version};

use super::*;

impl World {
    /// A client with this certificate, of one version of TLS, which keeps its tickets.
    fn keeping(&self, issued: &Issued, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(fixture::provider());
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let builder = builder.with_root_certificates(self.servers.store());
        let of = issued.client(&self.servers, []).client_auth_cert_resolver.clone();
        Arc::new(with_alpn(builder.with_client_cert_resolver(of), &["h2"]))
    }
}

async fn is_resumed(server: &ServerTls, client: &Arc<ClientConfig>) -> bool {
    let (accepted, seen) = accepted(server, client).await;
    assert!(accepted.peer.is_some(), "a resumed session has the client's certificate, too");
    seen.resumed
}

#[tokio::test]
async fn sv5_9_a_session_is_resumed_under_the_identity_and_the_roots_that_made_it() {
    for version in [&version::TLS12, &version::TLS13] {
        let mut world = World::new();
        let (server, publisher) = world.server(tls(true, true)).await;
        let client = world.keeping(&world.clients.issue([dns("shop")]), version);
        assert!(!is_resumed(&server, &client).await);
        assert!(is_resumed(&server, &client).await, "{version:?}");
        // Equal material, as files that are read again.
        publisher.publish_roots(CertificateRoots::from_pem(world.clients.pem())).unwrap();
        assert!(is_resumed(&server, &client).await, "{version:?}");
        let more = format!("{}{}", world.clients.pem(), Ca::new().pem());
        publisher.publish_roots(CertificateRoots::from_pem(more)).unwrap();
        assert!(!is_resumed(&server, &client).await, "other roots");
        assert!(is_resumed(&server, &client).await);
        publisher.publish_identity(world.servers.issue([dns("a.example")]).identity()).unwrap();
        assert!(!is_resumed(&server, &client).await, "another identity");
        assert!(is_resumed(&server, &client).await);
    }
}

#[tokio::test]
async fn sv5_9_a_ticket_leads_nobody_past_roots_that_no_longer_trust_its_client() {
    for version in [&version::TLS12, &version::TLS13] {
        let mut world = World::new();
        let (server, publisher) = world.server(tls(true, true)).await;
        let client = world.keeping(&world.clients.issue([dns("shop")]), version);
        assert!(!is_resumed(&server, &client).await);
        assert!(is_resumed(&server, &client).await);
        publisher.publish_roots(CertificateRoots::from_pem(Ca::new().pem())).unwrap();
        assert_eq!(refused(&server, &client).await.0, AcceptFailure::ClientCertificate);
        // The ticket is of no use later, either: the roots that made it are others.
        publisher.publish_roots(CertificateRoots::from_pem(world.clients.pem())).unwrap();
        assert!(!is_resumed(&server, &client).await, "{version:?}");
    }
}

#[tokio::test]
async fn sv5_9_a_session_of_one_filter_chain_is_not_resumed_by_another() {
    let mut world = World::new();
    let (one, _publisher) = world.server(tls(true, false)).await;
    let other = ServerTls::of_chain(&world.providers, &tls(true, true), ServerTlsSettings::default());
    let client = world.keeping(&world.clients.issue([dns("shop")]), &version::TLS13);
    assert!(!is_resumed(&one, &client).await);
    assert!(!is_resumed(&other, &client).await);
    assert!(is_resumed(&other, &client).await);
}

#[tokio::test]
async fn sv5_9_the_certificates_of_a_resumed_session_are_verified_again() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, true)).await;
    let issued =
        world.clients.issue_with([dns("shop")], |params| params.not_after = date_time_ymd(3000, 1, 1));
    let client = world.keeping(&issued, &version::TLS13);
    assert!(!is_resumed(&server, &client).await);
    let (accepted, seen) = accepted(&server, &client).await;
    assert!(seen.resumed);
    let generation = server.generation(deadline()).await.unwrap();
    let at = |year| {
        let time = date_time_ymd(year, 1, 1).unix_timestamp().unsigned_abs();
        let now = UnixTime::since_unix_epoch(Duration::from_secs(time));
        generation.peer(accepted.stream.get_ref().1, now)
    };
    assert!(at(2999).unwrap().is_some());
    let error = at(3001).unwrap_err();
    assert_eq!(error.failure(), AcceptFailure::ClientCertificate);
    assert!(error.to_string().contains("it has expired"), "{error}");
}

#[tokio::test]
async fn sv5_12_there_is_no_early_data() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(false, false)).await;
    let mut client = ClientConfig::clone(&world.anonymous(&["h2"]));
    client.enable_early_data = true;
    let client = Arc::new(client);
    accepted(&server, &client).await;
    let host = ServerName::try_from("a.example").unwrap();
    let mut next = ClientConnection::new(client.clone(), host).unwrap();
    assert!(next.early_data().is_none(), "the ticket permits none");
    assert!(accepted(&server, &client).await.1.resumed, "though the client has a ticket");
}
