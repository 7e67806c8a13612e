//! TLS, certificates and tokens: rotation, errors, and the use of each.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{fs, net::SocketAddr};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use tonic::transport::ServerTlsConfig;
use xdskit::{
    Client, Observed, WatchError,
    config::{AuthorityBuilder, Bootstrap, CallCredentials, Server, ServerBuilder, TlsConfig},
    control_plane::ControlPlane,
    error::{Blame, Code},
};

use crate::common::{
    tls::{Ca, Files, TlsServer},
    *,
};

#[apply(servers)]
async fn tls_with_a_ca_file(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let server = serve(ca.server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let client = with_server(transport, Server::new(server.uri()).tls(tls));
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
}

#[apply(servers)]
async fn a_server_of_an_unknown_ca_is_not_trusted(transport: Transport) {
    let files = Files::new();
    Ca::new().write_root(&files.ca());
    let server = serve(Ca::new().server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(transport, Server::new(server.uri()).tls(tls)).await;
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Network));
    assert!(error.reason().contains("is not trusted by ca_certificate_file "), "{error}");
}

#[apply(servers)]
async fn a_server_under_another_name_is_not_trusted(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let server = serve(ca.server_config_for("xds.example.com")).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(transport, Server::new(server.uri()).tls(tls)).await;
    assert!(error.reason().contains("is not for the host \""), "{error}");
}

#[apply(servers)]
async fn mutual_tls_presents_the_clients_certificate(transport: Transport) {
    let files = Files::new();
    let (ca, clients) = (Ca::new(), Ca::new());
    ca.write_root(&files.ca());
    let server = serve(ca.mutual_config(&clients)).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(transport, Server::new(server.uri()).tls(tls.clone())).await;
    assert_eq!(error.code(), Code::Unavailable, "without a certificate: {error}");
    clients.write_identity(&files.certificate(), &files.key());
    let tls = tls.with_identity(files.certificate(), files.key());
    let client = with_server(transport, Server::new(server.uri()).tls(tls));
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
}

#[apply(servers)]
async fn certificate_files_are_read_again_for_each_connection(transport: Transport) {
    let files = Files::new();
    let (old, new) = (Ca::new(), Ca::new());
    old.write_root(&files.ca());
    let server = serve(old.server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let client = with_server(transport, Server::new(server.uri()).tls(tls));
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let addr = server.stop().await;
    let server = serve_at(addr, new.server_config()).await;
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!(note(&stale), Some("one"), "the last good one stays");
    assert!(stale.error().unwrap().reason().contains("is not trusted by ca_certificate_file "), "{stale:?}");
    new.write_root(&files.ca());
    server.control_plane.set(cluster("shop", "two"));
    let rotated = soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    assert_eq!(rotated.error(), None);
}

#[apply(servers)]
async fn files_that_cannot_be_used_are_named(transport: Transport) {
    let files = Files::new();
    let missing = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(transport, Server::new("127.0.0.1:1").tls(missing.clone())).await;
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Local));
    let path = files.ca().display().to_string();
    assert!(error.reason().contains(&format!("ca_certificate_file {path}: ")), "{error}");
    fs::write(files.ca(), "not a certificate").unwrap();
    let error = failure(transport, Server::new("127.0.0.1:1").tls(missing.clone())).await;
    assert!(error.reason().ends_with("no certificate in it"), "{error}");
    let ca = Ca::new();
    ca.write_root(&files.ca());
    fs::write(files.certificate(), ca.root()).unwrap();
    let without_key = missing.with_identity(files.certificate(), files.key());
    let error = failure(transport, Server::new("127.0.0.1:1").tls(without_key)).await;
    assert!(error.reason().contains("private_key_file "), "{error}");
}

#[apply(servers)]
async fn security_is_never_less_than_configured(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let plain = ControlPlane::new().serve("127.0.0.1:0").await.unwrap();
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(transport, Server::new(plain.addr().to_string()).tls(tls)).await;
    assert_eq!(error.code(), Code::Unavailable, "TLS to a server without: {error}");
    let secure = serve(ca.server_config()).await;
    let error = failure(transport, Server::new(secure.uri()).insecure()).await;
    assert_eq!(error.code(), Code::Unavailable, "plain text to a server with TLS: {error}");
}

#[apply(servers)]
async fn a_token_goes_with_the_call_over_tls_alone(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let token = files.path("token");
    let jwt = jwt("shop", LATER);
    fs::write(&token, format!("{jwt}\n")).unwrap();
    let server = serve(ca.server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let credentials = CallCredentials::JwtTokenFile(token);
    let client =
        with_server(transport, Server::new(server.uri()).tls(tls).call_credentials(credentials.clone()));
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    assert_eq!(server.tokens(), [Some(format!("Bearer {jwt}"))]);
    let plain = Server::new("127.0.0.1:1").insecure().call_credentials(credentials);
    let error = failure(transport, plain).await;
    assert!(error.blame() == Blame::Local && error.reason().contains("secured connections only"), "{error}");
}

/// The server restarts with a certificate of another authority and trusts only clients of another one: all three
/// files are new.
#[apply(servers)]
async fn a65_all_files_can_be_rotated_while_the_client_runs(transport: Transport) {
    let files = Files::new();
    let (old, new) = ([Ca::new(), Ca::new()], [Ca::new(), Ca::new()]);
    let write = |[server, clients]: &[Ca; 2]| {
        server.write_root(&files.ca());
        clients.write_identity(&files.certificate(), &files.key());
    };
    write(&old);
    let server = serve(old[0].mutual_config(&old[1])).await;
    let client = with_server(transport, Server::new(server.uri()).tls(mutual(&files)));
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let addr = server.stop().await;
    let server = serve_at(addr, new[0].mutual_config(&new[1])).await;
    server.control_plane.set(cluster("shop", "two"));
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!(note(&stale), Some("one"), "the last good one stays");
    write(&new);
    let rotated = soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    assert_eq!(rotated.error(), None);
}

/// There is no earlier certificate that could be used in the meantime.
#[apply(servers)]
async fn a65_half_a_rotation_is_an_error_until_the_other_half_comes(transport: Transport) {
    let files = Files::new();
    let (ca, clients) = (Ca::new(), Ca::new());
    ca.write_root(&files.ca());
    let other_key = write_half_a_rotation(&clients, &files);
    let server = serve(ca.mutual_config(&clients)).await;
    let client = with_server(transport, Server::new(server.uri()).tls(mutual(&files)));
    let mut shop = client.watch::<Cluster>("shop");
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Local));
    let expected = format!(
        "no credentials for xDS server {}: certificate_file {}: not for the key in private_key_file {}",
        server.uri(),
        files.certificate().display(),
        files.key().display()
    );
    assert!(error.reason().starts_with(&expected), "{error}");
    assert_eq!(server.tokens(), [], "without a certificate nothing is tried");
    fs::write(files.key(), other_key).unwrap();
    let rotated = soon(shop.wait_for(|seen| note(seen) == Some("one"))).await.unwrap();
    assert_eq!(rotated.error(), None);
}

#[apply(servers)]
async fn a65_files_that_become_unusable_leave_the_last_good_ones_in_use(transport: Transport) {
    let files = Files::new();
    let (ca, clients) = (Ca::new(), Ca::new());
    ca.write_root(&files.ca());
    clients.write_identity(&files.certificate(), &files.key());
    let server = serve(ca.mutual_config(&clients)).await;
    let client = with_server(transport, Server::new(server.uri()).tls(mutual(&files)));
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    write_half_a_rotation(&clients, &files);
    let addr = server.stop().await;
    let server = serve_at(addr, ca.mutual_config(&clients)).await;
    server.control_plane.set(cluster("shop", "two"));
    let seen = soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    assert_eq!(seen.error(), None);
    fs::remove_file(files.ca()).unwrap();
    let addr = server.stop().await;
    let server = serve_at(addr, ca.mutual_config(&clients)).await;
    // In a version that the client does not have of the server before.
    server.control_plane.set(cluster("shop", "other"));
    server.control_plane.set(cluster("shop", "three"));
    let seen = soon(shop.wait_for(|seen| note(seen) == Some("three"))).await.unwrap();
    assert_eq!(seen.error(), None);
}

/// Writes another certificate with the previous key, or with that of another certificate. Returns the key for it.
fn write_half_a_rotation(clients: &Ca, files: &Files) -> Vec<u8> {
    if !files.key().exists() {
        clients.write_identity(&files.certificate(), &files.key());
    }
    let key = fs::read(files.key()).unwrap();
    clients.write_identity(&files.certificate(), &files.key());
    let other_key = fs::read(files.key()).unwrap();
    fs::write(files.key(), key).unwrap();
    other_key
}

#[apply(servers)]
async fn a97_a_token_that_has_expired_is_an_error_and_its_successor_is_used(transport: Transport) {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let token = files.path("token");
    fs::write(&token, jwt("shop", 1_000_000_000)).unwrap();
    let server = serve(ca.server_config()).await;
    let client = with_server(transport, with_token(&server, &files, "token"));
    let mut shop = client.watch::<Cluster>("shop");
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Local));
    let expected =
        format!("jwt_token_file {}: the token has expired at 2001-09-09T01:46:40Z", token.display());
    assert!(error.reason().contains(&expected), "{error}");
    assert_eq!(server.tokens(), [], "nothing was sent");
    let next = jwt("shop", LATER);
    fs::write(&token, &next).unwrap();
    assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
    assert_eq!(server.tokens(), [Some(format!("Bearer {next}"))]);
}

#[apply(servers)]
async fn a_server_gets_no_credentials_but_its_own(transport: Transport) {
    let (own, other) = (Files::new(), Files::new());
    let cas = [Ca::new(), Ca::new(), Ca::new(), Ca::new()];
    for (files, [ca, clients], name) in
        [(&own, [&cas[0], &cas[1]], "own"), (&other, [&cas[2], &cas[3]], "other")]
    {
        ca.write_root(&files.ca());
        clients.write_identity(&files.certificate(), &files.key());
        fs::write(files.path("token"), jwt(name, LATER)).unwrap();
    }
    // Each rejects the other's certificate, and would be rejected with the other's roots.
    let first = serve(cas[0].mutual_config(&cas[1])).await;
    let second = serve(cas[2].mutual_config(&cas[3])).await;
    let plain = ControlPlane::new();
    let (first_server, second_server) =
        (with_token(&first, &own, "token"), with_token(&second, &other, "token"));
    let plain_server = plain.serve("127.0.0.1:0").await.unwrap();
    let names = ["second", "plain"]
        .map(|authority| format!("xdstp://{authority}/envoy.config.cluster.v3.Cluster/shop"));
    second.control_plane.set(cluster(&names[0], "second"));
    plain.set(cluster(&names[1], "plain"));
    let bootstrap = Bootstrap::builder()
        .server(first_server.tls(mutual(&own)))
        .authority("second", AuthorityBuilder::default().server(second_server.tls(mutual(&other))))
        .authority("plain", AuthorityBuilder::default().server(Server::new(plain_server.uri()).insecure()));
    let client = transport.builder_from(bootstrap.build().unwrap()).build().unwrap();
    for (name, expected) in [("shop", "one"), (&names[0], "second"), (&names[1], "plain")] {
        assert_eq!(soon(client.watch::<Cluster>(name).ready()).await.unwrap().note, expected);
    }
    assert_eq!(first.tokens(), [Some(format!("Bearer {}", jwt("own", LATER)))]);
    assert_eq!(second.tokens(), [Some(format!("Bearer {}", jwt("other", LATER)))]);
}

/// A control plane behind TLS with a cluster `shop`.
pub(crate) async fn serve(tls: ServerTlsConfig) -> TlsServer {
    serve_on(None, tls).await
}

/// The same on an address that another server had before.
async fn serve_at(addr: SocketAddr, tls: ServerTlsConfig) -> TlsServer {
    serve_on(Some(addr), tls).await
}

async fn serve_on(addr: Option<SocketAddr>, tls: ServerTlsConfig) -> TlsServer {
    let control_plane = ControlPlane::new();
    control_plane.set(cluster("shop", "one"));
    TlsServer::start(control_plane, addr, tls).await
}

/// TLS with the root, certificate and key of these files.
fn mutual(files: &Files) -> TlsConfig {
    TlsConfig::default().with_ca_certificate_file(files.ca()).with_identity(files.certificate(), files.key())
}

/// A server whose certificate the root of these files signed, with a token in these files.
pub(crate) fn with_token(server: &TlsServer, files: &Files, token: &str) -> ServerBuilder {
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let token = CallCredentials::JwtTokenFile(files.path(token));
    Server::new(server.uri()).tls(tls).call_credentials(token)
}

/// A JSON web token, whose signature is not checked.
pub(crate) fn jwt(subject: &str, expiry: u64) -> String {
    let [head, claims] = [r#"{"alg":"none"}"#, &format!(r#"{{"sub":"{subject}","exp":{expiry}}}"#)]
        .map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    format!("{head}.{claims}.{subject}")
}

pub(crate) fn with_server(transport: Transport, server: ServerBuilder) -> Client {
    transport.builder_from(Bootstrap::builder().server(server).build().unwrap()).build().unwrap()
}

/// Returns the error of a watch that cannot be served.
async fn failure(transport: Transport, server: ServerBuilder) -> WatchError {
    soon(with_server(transport, server).watch::<Cluster>("shop").ready()).await.unwrap_err()
}

/// In the year 2128.
pub(crate) const LATER: u64 = 5_000_000_000;
