//! What connections are made of: TLS, credentials, limits, and servers that behave badly, as an application sees them.

#![cfg(feature = "tls")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use common::*;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::{net::TcpListener, sync::mpsc, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use xdskit::{
    Client, Observed, WatchError,
    config::{AuthorityBuilder, Bootstrap, CallCredentials, Server, ServerBuilder, TlsConfig},
    control_plane::{ControlPlane, Event, Headers},
    error::{Blame, Code},
    testing::FaultyProxy,
};

#[tokio::test]
async fn tls_with_a_ca_file() {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let server = TlsServer::start(None, ca.server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let client = with_server(Server::new(server.uri()).tls(tls));
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
}

#[tokio::test]
async fn a_server_of_an_unknown_ca_is_not_trusted() {
    let files = Files::new();
    Ca::new().write_root(&files.ca());
    let server = TlsServer::start(None, Ca::new().server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(Server::new(server.uri()).tls(tls)).await;
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Network));
    assert!(error.reason().contains("invalid peer certificate"), "{error}");
}

#[tokio::test]
async fn a_server_under_another_name_is_not_trusted() {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let server = TlsServer::start(None, ca.server_config_for("xds.example.com")).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(Server::new(server.uri()).tls(tls)).await;
    assert!(error.reason().contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn mutual_tls_presents_the_clients_certificate() {
    let files = Files::new();
    let (ca, clients) = (Ca::new(), Ca::new());
    ca.write_root(&files.ca());
    let config = ca.server_config().client_ca_root(Certificate::from_pem(clients.root()));
    let server = TlsServer::start(None, config).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(Server::new(server.uri()).tls(tls.clone())).await;
    assert_eq!(error.code(), Code::Unavailable, "without a certificate: {error}");
    clients.write_identity(&files.certificate(), &files.key());
    let tls = tls.with_identity(files.certificate(), files.key());
    let client = with_server(Server::new(server.uri()).tls(tls));
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
}

#[tokio::test]
async fn certificate_files_are_read_again_for_each_connection() {
    let files = Files::new();
    let (old, new) = (Ca::new(), Ca::new());
    old.write_root(&files.ca());
    let server = TlsServer::start(None, old.server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let client = with_server(Server::new(server.uri()).tls(tls));
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    let addr = server.stop().await;
    let server = TlsServer::start(Some(addr), new.server_config()).await;
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!(note(&stale), Some("one"), "the last good one stays");
    assert!(stale.error().unwrap().reason().contains("invalid peer certificate"), "{stale:?}");
    new.write_root(&files.ca());
    server.control_plane.set(cluster("shop", "two"));
    let rotated = soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    assert_eq!(rotated.error(), None);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let files = Files::new();
    let missing = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(Server::new("127.0.0.1:1").tls(missing.clone())).await;
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Local));
    let path = files.ca().display().to_string();
    assert!(error.reason().contains(&format!("ca_certificate_file {path}: ")), "{error}");
    fs::write(files.ca(), "not a certificate").unwrap();
    let error = failure(Server::new("127.0.0.1:1").tls(missing.clone())).await;
    assert!(error.reason().ends_with("no certificate in it"), "{error}");
    let ca = Ca::new();
    ca.write_root(&files.ca());
    fs::write(files.certificate(), ca.root()).unwrap();
    let without_key = missing.with_identity(files.certificate(), files.key());
    let error = failure(Server::new("127.0.0.1:1").tls(without_key)).await;
    assert!(error.reason().contains("private_key_file "), "{error}");
}

#[tokio::test]
async fn security_is_never_less_than_asked_for() {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let plain = ControlPlane::new().serve("127.0.0.1:0").await.unwrap();
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let error = failure(Server::new(plain.addr().to_string()).tls(tls)).await;
    assert_eq!(error.code(), Code::Unavailable, "TLS to a server without: {error}");
    let secure = TlsServer::start(None, ca.server_config()).await;
    let error = failure(Server::new(secure.uri()).insecure()).await;
    assert_eq!(error.code(), Code::Unavailable, "plain text to a server with TLS: {error}");
}

#[tokio::test]
async fn a_token_goes_with_the_call_over_tls_alone() {
    let files = Files::new();
    let ca = Ca::new();
    ca.write_root(&files.ca());
    let token = files.path("token");
    fs::write(&token, "abc.def.ghi\n").unwrap();
    let server = TlsServer::start(None, ca.server_config()).await;
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let credentials = CallCredentials::JwtTokenFile(token);
    let client = with_server(Server::new(server.uri()).tls(tls).call_credentials(credentials.clone()));
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    assert_eq!(server.authorization.lock().unwrap().as_deref(), Some("Bearer abc.def.ghi"));
    let plain = Server::new("127.0.0.1:1").insecure().call_credentials(credentials);
    let error = failure(plain).await;
    assert!(error.blame() == Blame::Local && error.reason().contains("secured connections only"), "{error}");
}

#[tokio::test]
async fn a_message_over_the_limit_keeps_everything_good() {
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let client = builder(server.uri()).max_message_size(1000).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    control_plane.set(cluster("shop", &"x".repeat(1000)));
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!(note(&stale), Some("one"));
    let error = stale.error().unwrap();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.reason().contains("1000 bytes") && error.reason().contains("max_message_size"), "{error}");
    control_plane.set(cluster("shop", "two"));
    let good = soon(shop.wait_for(|seen| seen.error().is_none())).await.unwrap();
    assert_eq!(note(&good), Some("two"));
}

#[tokio::test]
async fn headers_that_come_with_the_first_response_or_never_stall_nothing() {
    for headers in [Headers::WithFirstResponse, Headers::Never] {
        let (control_plane, mut events) = observed();
        control_plane.set_headers(headers);
        let server = control_plane.serve("127.0.0.1:0").await.unwrap();
        let client = builder(server.uri()).resource_timeout(Duration::from_millis(50)).build().unwrap();
        let mut shop = client.watch::<Cluster>("shop");
        requested(&mut events, &["shop"]).await;
        let _more = client.watch::<Cluster>("more");
        requested(&mut events, &["more", "shop"]).await;
        if headers == Headers::Never {
            assert!(soon(shop.ready()).await.unwrap_err().is_not_found(), "its timer runs");
        } else {
            control_plane.set(cluster("shop", "one"));
            assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
        }
    }
}

#[tokio::test]
async fn a_server_that_never_reads_stalls_nothing_else() {
    let (deaf, _) = observed();
    deaf.set_reading(false);
    let deaf_server = deaf.serve("127.0.0.1:0").await.unwrap();
    let (good, _) = observed();
    let name = "xdstp://good/envoy.config.cluster.v3.Cluster/shop";
    good.set(cluster(name, "one"));
    let good_server = good.serve("127.0.0.1:0").await.unwrap();
    let authority = AuthorityBuilder::default().server(Server::new(good_server.uri()).insecure());
    let bootstrap = Bootstrap::builder()
        .server(Server::new(deaf_server.uri()).insecure())
        .authority("good", authority)
        .build()
        .unwrap();
    let client = Client::builder(bootstrap).resource_timeout(Duration::from_millis(50)).build().unwrap();
    // Far more than the server's window holds.
    let names: Vec<_> = (0..40).map(|i| format!("{i}-{}", "x".repeat(100_000))).collect();
    let watches: Vec<_> = names.iter().map(|name| client.watch::<Cluster>(name)).collect();
    assert_eq!(soon(client.watch::<Cluster>(name).ready()).await.unwrap().note, "one");
    drop(watches);
    good.set(cluster(name, "two"));
    let mut again = client.watch::<Cluster>(name);
    soon(again.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    soon(client.shutdown()).await;
}

#[tokio::test]
async fn a_stream_cut_within_a_response_loses_nothing() {
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let proxy = FaultyProxy::start(server.addr()).await;
    let client = client(proxy.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    proxy.cut_after(30);
    control_plane.set(cluster("shop", "two"));
    soon(proxy.expect_cut()).await;
    let mut present = Vec::new();
    let whole = shop.wait_for(|seen| {
        present.push(seen.is_present());
        note(seen) == Some("two")
    });
    soon(whole).await.unwrap();
    assert!(present.iter().all(|present| *present), "{present:?}");
}

/// A control plane behind TLS, with a cluster `shop`, that takes note of the token that it is shown.
struct TlsServer {
    control_plane: ControlPlane,
    addr: SocketAddr,
    task: JoinHandle<()>,
    authorization: Arc<Mutex<Option<String>>>,
}

impl TlsServer {
    async fn start(addr: Option<SocketAddr>, tls: ServerTlsConfig) -> Self {
        let control_plane = ControlPlane::new();
        control_plane.set(cluster("shop", "one"));
        let addr = addr.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let authorization = Arc::new(Mutex::new(None));
        let noted = authorization.clone();
        let note = move |request: tonic::Request<()>| {
            let value =
                request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
            *noted.lock().unwrap() = value;
            Ok(request)
        };
        let service = tonic::service::interceptor::InterceptedService::new(control_plane.service(), note);
        let router = tonic::transport::Server::builder().tls_config(tls).unwrap().add_service(service);
        let serve = async move { drop(router.serve_with_incoming(TcpListenerStream::new(listener)).await) };
        Self { control_plane, addr, task: tokio::spawn(serve), authorization }
    }

    fn uri(&self) -> String {
        self.addr.to_string()
    }

    /// Closes the listener and the streams; gives the address.
    async fn stop(mut self) -> SocketAddr {
        self.task.abort();
        let _ = (&mut self.task).await;
        self.control_plane.disconnect(tonic::Status::unavailable("stopped"));
        self.addr
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An authority that makes certificates.
struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn root(&self) -> String {
        self.0.pem()
    }

    fn write_root(&self, path: &Path) {
        fs::write(path, self.root()).unwrap();
    }

    fn write_identity(&self, certificate: &Path, key: &Path) {
        let (chain, private) = self.issue("client.example.com");
        fs::write(certificate, chain).unwrap();
        fs::write(key, private).unwrap();
    }

    fn server_config(&self) -> ServerTlsConfig {
        self.server_config_for("127.0.0.1")
    }

    fn server_config_for(&self, name: &str) -> ServerTlsConfig {
        let (chain, private) = self.issue(name);
        ServerTlsConfig::new().identity(Identity::from_pem(chain, private))
    }

    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A directory for files of certificates.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    fn certificate(&self) -> PathBuf {
        self.path("client.pem")
    }

    fn key(&self) -> PathBuf {
        self.path("client.key")
    }
}

fn with_server(server: ServerBuilder) -> Client {
    Client::builder(Bootstrap::builder().server(server).build().unwrap()).build().unwrap()
}

/// What a watch says that cannot be served.
async fn failure(server: ServerBuilder) -> WatchError {
    soon(with_server(server).watch::<Cluster>("shop").ready()).await.unwrap_err()
}

async fn requested(events: &mut mpsc::UnboundedReceiver<Event>, names: &[&str]) {
    let asked =
        |event: &Event| matches!(event, Event::Request { request, .. } if request.resource_names == names);
    event(events, asked).await;
}
