//! Which certificates of clients are accepted, and clients that are unkind.

use rcgen::{ExtendedKeyUsagePurpose, date_time_ymd};
use tokio_rustls::rustls::{self, version};

use super::*;
use crate::tls::RevocationLists;

/// The failure of a client's certificate, whose text has a part.
#[track_caller]
fn check((failure, text): (AcceptFailure, String), expected: AcceptFailure, part: &str) {
    assert_eq!(failure, expected, "{text}");
    assert!(text.contains(part), "{text}");
}

#[tokio::test]
async fn sv5_5_without_roots_clients_are_not_asked_for_certificates() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(false, false)).await;
    let unknown = Ca::new().issue([dns("shop")]);
    assert_eq!(accepted(&server, &world.client(&unknown)).await.0.peer, None);
}

#[tokio::test]
async fn sv5_5_certificates_are_requested_with_roots_and_one_that_is_not_trusted_is_refused() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, false)).await;
    assert_eq!(accepted(&server, &world.anonymous(&["h2"])).await.0.peer, None);
    let issued = world.clients.issue([uri("spiffe://clients/shop"), dns("shop"), dns("shop.example")]);
    let peer = accepted(&server, &world.client(&issued)).await.0.peer.unwrap();
    assert_eq!(peer.certificate(), &*issued.der);
    assert_eq!(peer.chain().collect::<Vec<_>>(), [&*issued.der]);
    assert_eq!(peer.uris().collect::<Vec<_>>(), ["spiffe://clients/shop"]);
    assert_eq!(peer.dns_names().collect::<Vec<_>>(), ["shop", "shop.example"]);
    assert_eq!(peer.spiffe_id(), Some("spiffe://clients/shop"));
    assert_eq!(peer.subject(), "CN=rcgen self signed cert");
    let unknown = Ca::new().issue([dns("shop")]);
    let text = "the client's certificate (DNS \"shop\") is not trusted by certificate provider instance \"both\": it is not \
                signed by one of the roots";
    check(refused(&server, &world.client(&unknown)).await, AcceptFailure::ClientCertificate, text);
}

#[tokio::test]
async fn sv5_5_clients_without_a_certificate_are_refused_if_one_is_required() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, true)).await;
    let issued = world.clients.issue([]);
    assert_eq!(accepted(&server, &world.client(&issued)).await.0.peer.unwrap().certificate(), &*issued.der);
    for version in [&version::TLS12, &version::TLS13] {
        let builder = ClientConfig::builder_with_provider(fixture::provider());
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let client = builder.with_root_certificates(world.servers.store()).with_no_client_auth();
        let client = Arc::new(with_alpn(client, &["h2"]));
        let text = "the client has no certificate";
        check(refused(&server, &client).await, AcceptFailure::NoClientCertificate, text);
    }
}

#[tokio::test]
async fn sv5_6_certificates_are_for_clients_and_valid_and_of_any_name() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, true)).await;
    let refused = async |issued: Issued, part: &str| {
        let why = refused(&server, &world.client(&issued)).await;
        check(why, AcceptFailure::ClientCertificate, part);
    };
    let only =
        |usage| world.clients.issue_with([dns("shop")], |params| params.extended_key_usages = vec![usage]);
    refused(only(ExtendedKeyUsagePurpose::ServerAuth), "it is not for clients, by its extended key usage")
        .await;
    accepted(&server, &world.client(&only(ExtendedKeyUsagePurpose::ClientAuth))).await;
    let expired = world.clients.issue_with([], |params| params.not_after = date_time_ymd(2020, 1, 1));
    refused(expired, "it has expired (not after 2020-01-01T00:00:00Z").await;
    let early = world.clients.issue_with([], |params| params.not_before = date_time_ymd(3000, 1, 1));
    refused(early, "it is not valid yet").await;
    let between = world.clients.intermediate("between", 7, |_| {});
    let issued = between.issue([dns("anything")]);
    refused(between.issue([]), "it is not signed by one of the roots").await;
    let client = with_alpn(issued.client(&world.servers, [between.0.der().clone()]), &["h2"]);
    let peer = accepted(&server, &Arc::new(client)).await.0.peer.unwrap();
    assert_eq!(peer.chain().len(), 2);
}

#[tokio::test]
async fn sv5_6_ch7_17_revoked_certificates_are_refused_with_revocation_lists() {
    let mut world = World::new();
    let folder = Folder::new();
    let list = folder.write("list.crl", world.clients.revoke(&[7]).der());
    let revocation = Some(Revocation::new(RevocationLists::files([list])));
    let settings = ServerTlsSettings { revocation, ..ServerTlsSettings::default() };
    let (server, publisher) = world.unpublished(tls(true, true), settings).await;
    publisher.publish_identity(world.servers.issue([dns("a.example")]).identity()).unwrap();
    publisher.publish_roots(CertificateRoots::from_pem(world.clients.pem())).unwrap();
    let issue = |serial: u64| {
        world.clients.issue_with([], |params| {
            params.serial_number = Some(serial.into());
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    };
    accepted(&server, &world.client(&issue(8))).await;
    let why = refused(&server, &world.client(&issue(7))).await;
    check(why, AcceptFailure::ClientCertificate, "is revoked by");
}

#[tokio::test]
async fn sv5_7_the_spiffe_id_of_a_client_selects_the_roots() {
    let mut world = World::new();
    let (server, publisher) = world.server(tls(true, true)).await;
    let other = Ca::new();
    let bundle = |ca: &Ca| vec![ca.0.der().to_vec()];
    let map = [("a.org".to_owned(), bundle(&world.clients)), ("b.org".to_owned(), bundle(&other))];
    publisher.publish_roots(CertificateRoots::from_spiffe_bundles(map.into())).unwrap();
    let issued = world.clients.issue([uri("spiffe://a.org/shop")]);
    let peer = accepted(&server, &world.client(&issued)).await.0.peer.unwrap();
    assert_eq!(peer.spiffe_id(), Some("spiffe://a.org/shop"));
    for (issued, part) in [
        (other.issue([uri("spiffe://a.org/shop")]), "it is not signed by one of the roots"),
        (world.clients.issue([uri("spiffe://c.org/shop")]), "its trust domain is none of those of the map"),
        (
            world.clients.issue([uri("spiffe://a.org/shop"), uri("spiffe://a.org/cart")]),
            "it has several URIs, a SPIFFE id must be the only one",
        ),
        (world.clients.issue([dns("a.org")]), "it has no URI, so no SPIFFE id"),
        (world.clients.issue([uri("spiffe://a.org")]), "is no SPIFFE id"),
    ] {
        check(refused(&server, &world.client(&issued)).await, AcceptFailure::ClientCertificate, part);
    }
    publisher.publish_roots(CertificateRoots::from_spiffe_bundles([].into())).unwrap();
    let why = refused(&server, &world.client(&issued)).await;
    check(why, AcceptFailure::ClientCertificate, "its trust domain is none of those of the map: []");
}

#[tokio::test(start_paused = true)]
async fn sv5_4_clients_that_are_slow_or_unkind_hold_no_other() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, false)).await;
    let failure = async |io: DuplexStream| server.accept(io, deadline()).await.err().unwrap().failure();
    let pipe = || tokio::io::duplex(1 << 18);
    let begin = tokio::time::Instant::now();
    let (mut silent, far) = pipe();
    let silent = tokio::join!(failure(far), async {
        // The first bytes of a record, and no more.
        silent.write_all(&[22, 3, 1, 2]).await.unwrap();
        accepted(&server, &world.anonymous(&["h2"])).await;
        assert!(begin.elapsed() < Duration::from_secs(120));
        let mut read = [0; 1];
        assert_eq!(silent.read(&mut read).await.unwrap(), 0);
    });
    assert_eq!(silent.0, AcceptFailure::Timeout);
    assert_eq!(begin.elapsed().as_secs(), 120);
    let (mut near, far) = pipe();
    near.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    assert_eq!(failure(far).await, AcceptFailure::NotTls);
    let (near, far) = pipe();
    drop(near);
    assert_eq!(failure(far).await, AcceptFailure::Closed);
    // A client that does not trust the server.
    let (near, far) = pipe();
    let stranger = World::new().anonymous(&["h2"]);
    let (seen, connected) = tokio::join!(failure(far), connect(&stranger, "a.example", near));
    assert_eq!(seen, AcceptFailure::RefusedByClient);
    connected.unwrap_err();
    // A client that ends after its first message.
    let (near, far) = pipe();
    let host = ServerName::try_from("a.example").unwrap();
    let mut hello = rustls::ClientConnection::new(world.anonymous(&["h2"]), host).unwrap();
    let mut bytes = Vec::new();
    hello.write_tls(&mut bytes).unwrap();
    let ended = tokio::join!(failure(far), async move {
        let mut near = near;
        near.write_all(&bytes).await.unwrap();
        near.read_exact(&mut [0; 5]).await.unwrap();
    });
    assert_eq!(ended.0, AcceptFailure::Closed);
}

#[tokio::test]
async fn sv5_6_certificates_beyond_the_limit_are_refused() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, false)).await;
    let issued = world.clients.issue([dns("shop")]);
    let others = std::iter::repeat_n(world.clients.0.der().clone(), 300);
    let client = with_alpn(issued.client(&world.servers, others), &["h2"]);
    let why = refused(&server, &Arc::new(client)).await;
    check(why, AcceptFailure::ClientCertificate, "the client's certificates are larger than 64 KiB");
}

#[tokio::test]
async fn sv5_12_tls_1_2_and_1_3_are_accepted() {
    let mut world = World::new();
    let (server, _publisher) = world.server(tls(true, true)).await;
    let issued = world.clients.issue([dns("shop")]);
    for version in [&version::TLS12, &version::TLS13] {
        let builder = ClientConfig::builder_with_provider(fixture::provider());
        let builder = builder.with_protocol_versions(&[version]).unwrap();
        let client = builder.with_root_certificates(world.servers.store());
        let of = issued.client(&world.servers, []).client_auth_cert_resolver.clone();
        let client = Arc::new(with_alpn(client.with_client_cert_resolver(of), &["h2"]));
        let (accepted, _) = accepted(&server, &client).await;
        assert_eq!(accepted.stream.get_ref().1.protocol_version(), Some(version.version));
        assert_eq!(accepted.peer.unwrap().certificate(), &*issued.der);
        assert!(accepted.cipher_suite.is_some());
    }
}
