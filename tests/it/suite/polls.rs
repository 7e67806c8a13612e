//! Polls from an application's point of view.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use http::StatusCode;
use xdskit::{
    Client, ResourceSelector,
    config::{ApiType, Bootstrap, CallCredentials, CustomCredentials, Polling, Server, TlsConfig},
    control_plane::{self, type_url},
    error::Code,
    testing::TestControlPlane,
    transport::credentials::{
        ChannelCredentialsPlugin, ConnectionCredentials, CredentialsContext, CredentialsRegistry, Loading,
    },
};

use crate::common::{
    Cluster, cluster, note, observed, soon,
    tls::{Ca, Files, TlsServer},
};

#[apply(polls)]
async fn d11_bad_answers_keep_the_last_good_until_there_is_a_good_one(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = transport.builder(server.uri()).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    assert_eq!(soon(shop.ready()).await.unwrap().note, "one");
    server.set_rest_status(Some(StatusCode::BAD_GATEWAY));
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!((note(&stale), stale.error().unwrap().code()), (Some("one"), Code::Unavailable));
    server.set_rest_status(None);
    soon(shop.wait_for(|seen| seen.error().is_none())).await.unwrap();
    server.hold();
    server.expect_clients(1).await.unwrap();
    server.inject_raw("{");
    let stale = soon(shop.wait_for(|seen| seen.error().is_some())).await.unwrap();
    assert_eq!((note(&stale), stale.error().unwrap().code()), (Some("one"), Code::InvalidArgument));
    server.set(cluster("shop", "two"));
    server.release();
    let good = soon(shop.wait_for(|seen| seen.error().is_none())).await.unwrap();
    assert_eq!(note(&good), Some("two"));
}

#[apply(polls)]
async fn ms6_a_404_is_the_absence_of_the_requested_resources(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set_rest_not_found(true);
    let client =
        transport.builder(server.uri()).resource_timeout(Duration::from_millis(200)).build().unwrap();
    let mut all = client.watch_all::<Cluster>(ResourceSelector::All);
    let none = soon(all.wait_for(|members| members.is_complete())).await.unwrap();
    assert!(none.is_empty() && none.warning().is_none(), "{none:?}");
    let mut shop = client.watch::<Cluster>("shop");
    let reason = soon(shop.ready()).await.unwrap_err();
    assert_eq!(reason.code(), Code::NotFound);
    assert!(reason.to_string().contains("HTTP status 404 at /v3/discovery:clusters"), "{reason}");
    server.set(cluster("shop", "one"));
    soon(shop.wait_for(|seen| note(seen) == Some("one"))).await.unwrap();
    server.remove(type_url::CLUSTER, "shop");
    let gone = soon(shop.wait_for(|seen| seen.is_absent())).await.unwrap();
    assert_eq!(gone.error().unwrap().code(), Code::NotFound);
    assert!(client.status().await.servers.iter().all(|server| server.error.is_none()));
}

#[apply(polls)]
async fn d12_there_is_one_request_at_a_time_for_each_type(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.hold();
    let client = transport.builder(server.uri()).build().unwrap();
    let _watches: Vec<_> = (0..10).map(|i| client.watch::<Cluster>(format!("c{i}"))).collect();
    server.expect_clients(1).await.unwrap();
    let _more = client.watch::<Cluster>("more");
    assert_eq!(server.clients(), 1);
    server.set(cluster("more", "one"));
    server.release();
    assert_eq!(soon(client.watch::<Cluster>("more").ready()).await.unwrap().note, "one");
}

#[apply(polls)]
async fn an_unsubscribed_name_comes_again_when_it_is_resubscribed(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one"));
    let client = transport.builder(server.uri()).build().unwrap();
    for _ in 0..3 {
        assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
    }
}

#[tokio::test]
async fn polls_go_over_tls_by_http2_to_servers_that_know_their_clients() {
    let (authority, clients, files) = (Ca::new(), Ca::new(), Files::new());
    authority.write_root(&files.ca());
    clients.write_identity(&files.certificate(), &files.key());
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let uri = serve(&control_plane, authority.mutual_config(&clients)).await;
    let with_identity = TlsConfig::default()
        .with_ca_certificate_file(files.ca())
        .with_identity(files.certificate(), files.key());
    let client = over(&uri, with_identity);
    let mut shop = client.watch::<Cluster>("shop");
    assert_eq!(soon(shop.ready()).await.unwrap().note, "one");
    control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    let nobody = over(&uri, TlsConfig::default().with_ca_certificate_file(files.ca()));
    let error = soon(nobody.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[apply(polls)]
async fn a97_each_poll_has_the_token_of_its_time(transport: Transport) {
    let (authority, files) = (Ca::new(), Files::new());
    authority.write_root(&files.ca());
    let token = |signature: &str| format!("eyJhbGciOiJub25lIn0.eyJleHAiOjUwMDAwMDAwMDB9.{signature}");
    std::fs::write(files.path("token"), token("one")).unwrap();
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = TlsServer::start(control_plane, None, authority.server_config()).await;
    let polled = Server::new(server.uri())
        .tls(TlsConfig::default().with_ca_certificate_file(files.ca()))
        .call_credentials(CallCredentials::JwtTokenFile(files.path("token")));
    let client =
        transport.builder_from(Bootstrap::builder().server(polled).build().unwrap()).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    std::fs::write(files.path("token"), token("two")).unwrap();
    server.control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    let is_newest =
        |tokens: Vec<Option<String>>| tokens.last() == Some(&Some(format!("Bearer {}", token("two"))));
    soon(async {
        while !is_newest(server.tokens()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.tokens()[0], Some(format!("Bearer {}", token("one"))));
}

/// TLS with a root from the bootstrap, and a new token with each request.
#[derive(Debug, Default)]
struct Tokens {
    made: AtomicUsize,
}

impl ChannelCredentialsPlugin for Tokens {
    fn load<'a>(&'a self, context: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
        Box::pin(async move {
            let root = context.config.as_str().ok_or("no root in the configuration")?;
            let made = self.made.fetch_add(1, Ordering::SeqCst);
            let tls = TlsConfig::default().with_ca_certificate_file(root);
            Ok(ConnectionCredentials::tls(tls).with_bearer_token(&made.to_string())?)
        })
    }
}

#[apply(polls)]
async fn polls_have_the_headers_of_registered_credentials(transport: Transport) {
    let (authority, files) = (Ca::new(), Files::new());
    authority.write_root(&files.ca());
    let (control_plane, _) = observed();
    control_plane.set(cluster("shop", "one"));
    let server = TlsServer::start(control_plane, None, authority.server_config()).await;
    let root = CustomCredentials::new("tokens", files.ca().to_str().unwrap().into());
    let polled = Server::new(server.uri()).custom_credentials(root);
    let registry = CredentialsRegistry::default().with_channel("tokens", Tokens::default());
    let bootstrap = Bootstrap::builder().server(polled).build().unwrap();
    let client = transport.builder_from(bootstrap).credentials(registry).build().unwrap();
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    server.control_plane.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    let tokens = server.tokens();
    assert!(tokens.iter().all(|token| token.as_ref().is_some_and(|token| token.starts_with("Bearer "))));
    assert_ne!(tokens.first(), tokens.last());
}

/// A control plane behind TLS.
async fn serve(
    control_plane: &control_plane::ControlPlane,
    tls: tonic::transport::ServerTlsConfig,
) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let mut server = tonic::transport::Server::builder().tls_config(tls).unwrap();
    tokio::spawn(server.add_routes(control_plane.routes()).serve_with_incoming(incoming));
    addr.to_string()
}

fn over(uri: &str, tls: TlsConfig) -> Client {
    let polling = Polling::every(Duration::from_millis(10)).with_request_timeout(Duration::from_secs(10));
    let server = Server::new(uri).tls(tls).api_type(ApiType::Rest).polling(polling);
    Client::builder(Bootstrap::builder().server(server).build().unwrap()).build().unwrap()
}
