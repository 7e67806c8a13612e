//! Credentials of types that the application implements.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use http::{HeaderMap, header::AUTHORIZATION};
use serde_json::json;
use xdskit::{
    Client, Observed,
    config::{Bootstrap, CallCredentials, CustomCredentials, Server, TlsConfig},
    control_plane::ControlPlane,
    error::{Blame, Code},
    transport::credentials::{
        CallCredentialsPlugin, ChannelCredentialsPlugin, ConnectionCredentials, CredentialsContext,
        CredentialsRegistry, Handshake, Io, Loading,
    },
};

use super::credentials::serve;
use crate::common::{
    tls::{Ca, Files, TlsServer},
    *,
};

/// TLS with a root from the bootstrap, and an access token, as with Google's default credentials.
#[derive(Debug, Default)]
struct Tokens {
    made: AtomicUsize,
    /// Whether loading a token fails.
    is_down: Arc<AtomicBool>,
}

impl ChannelCredentialsPlugin for Tokens {
    fn load<'a>(&'a self, context: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
        Box::pin(async move {
            if self.is_down.load(Ordering::SeqCst) {
                return Err(io::Error::other("the metadata server is down").into());
            }
            let root = context.config["root"].as_str().ok_or("no `root` in the configuration")?;
            let tls = TlsConfig::default().with_ca_certificate_file(root);
            let made = self.made.fetch_add(1, Ordering::SeqCst) + 1;
            Ok(ConnectionCredentials::tls(tls).with_bearer_token(&format!("token-{made}"))?)
        })
    }
}

/// The server's URI in a header.
#[derive(Debug)]
struct Audience;

impl CallCredentialsPlugin for Audience {
    fn load<'a>(&'a self, context: CredentialsContext<'a>) -> Loading<'a, HeaderMap> {
        Box::pin(async move {
            let audience = format!("{} {}", context.server.uri, context.config).try_into()?;
            Ok(HeaderMap::from_iter([(AUTHORIZATION, audience)]))
        })
    }
}

/// A connection in plain text that counts as secured.
#[derive(Debug, Clone, Default)]
struct Trusted {
    hosts: Arc<std::sync::Mutex<Vec<String>>>,
}

impl ChannelCredentialsPlugin for Trusted {
    fn load<'a>(&'a self, _: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
        Box::pin(async { Ok(ConnectionCredentials::handshake(self.clone())) })
    }
}

impl Handshake for Trusted {
    fn handshake<'a>(&'a self, io: Box<dyn Io>, host: &'a str) -> Loading<'a, Box<dyn Io>> {
        self.hosts.lock().unwrap().push(host.to_owned());
        Box::pin(async { Ok(io) })
    }
}

#[derive(Debug)]
struct Plain;

impl ChannelCredentialsPlugin for Plain {
    fn load<'a>(&'a self, _: CredentialsContext<'a>) -> Loading<'a, ConnectionCredentials> {
        Box::pin(async { Ok(ConnectionCredentials::plaintext().with_bearer_token("secret")?) })
    }
}

#[apply(servers)]
async fn a27_7_a_registered_type_of_channel_credentials_secures_the_stream(transport: Transport) {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let server = serve(ca.server_config()).await;
    let registry = CredentialsRegistry::default().with_channel("google_default", Tokens::default());
    let client = read_from_bootstrap(transport, &server, &files, &registry);
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
    assert_eq!(server.tokens()[0].as_deref(), Some("Bearer token-1"));
}

#[apply(servers)]
async fn credentials_that_cannot_be_loaded_are_an_error_until_they_can(transport: Transport) {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let server = serve(ca.server_config()).await;
    let is_down = Arc::new(AtomicBool::new(true));
    let tokens = Tokens { is_down: is_down.clone(), ..Tokens::default() };
    let registry = CredentialsRegistry::default().with_channel("google_default", tokens);
    let client = read_from_bootstrap(transport, &server, &files, &registry);
    let mut shop = client.watch::<Cluster>("shop");
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Unavailable, Blame::Local));
    let reason = "channel credentials `google_default`: the metadata server is down";
    assert!(error.reason().contains(reason), "{error}");
    assert!(server.tokens().is_empty(), "nothing was sent");
    is_down.store(false, Ordering::SeqCst);
    assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
}

#[apply(servers)]
async fn a97_registered_call_credentials_go_with_each_call_over_secured_connections_only(
    transport: Transport,
) {
    let (files, ca) = (Files::new(), Ca::new());
    ca.write_root(&files.ca());
    let server = serve(ca.server_config()).await;
    let registry = CredentialsRegistry::default().with_call("audience", Audience);
    let audience = || CallCredentials::Custom(CustomCredentials::new("audience", json!(7)));
    let tls = TlsConfig::default().with_ca_certificate_file(files.ca());
    let secured = Server::new(server.uri()).tls(tls).call_credentials(audience());
    let client = client_of(transport, Bootstrap::builder().server(secured).build().unwrap(), &registry);
    soon(client.watch::<Cluster>("shop").ready()).await.unwrap();
    assert_eq!(server.tokens()[0], Some(format!("{} 7", server.uri())));
    let plain = Server::new("127.0.0.1:1").insecure().call_credentials(audience());
    let client = client_of(transport, Bootstrap::builder().server(plain).build().unwrap(), &registry);
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert!(error.reason().contains("secured connections only"), "{error}");
}

#[apply(servers)]
async fn a_handshake_of_the_application_secures_connections(transport: Transport) {
    let control_plane = ControlPlane::new();
    control_plane.set(cluster("shop", "one"));
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let trusted = Trusted::default();
    let registry = CredentialsRegistry::default().with_channel("trusted", trusted.clone());
    let client = client_of(transport, custom_server(&server.addr().to_string(), "trusted"), &registry);
    assert_eq!(soon(client.watch::<Cluster>("shop").ready()).await.unwrap().note, "one");
    assert_eq!(trusted.hosts.lock().unwrap()[0], "127.0.0.1");
}

#[apply(servers)]
async fn a_plugin_that_sends_secrets_in_plain_text_is_refused(transport: Transport) {
    let registry = CredentialsRegistry::default().with_channel("plain", Plain);
    let client = client_of(transport, custom_server("127.0.0.1:1", "plain"), &registry);
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert!(error.reason().contains("secured connections only"), "{error}");
}

#[apply(servers)]
async fn credentials_without_an_implementation_are_an_error_that_names_them(transport: Transport) {
    let client = client_of(transport, custom_server("127.0.0.1:1", "alts"), &CredentialsRegistry::default());
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err();
    assert_eq!(error.blame(), Blame::Local);
    assert!(error.reason().contains("channel credentials `alts` have no implementation"), "{error}");
}

/// A client whose bootstrap has `google_default` with a root as its only credentials.
fn read_from_bootstrap(
    transport: Transport,
    server: &TlsServer,
    files: &Files,
    registry: &CredentialsRegistry,
) -> Client {
    let document = json!({ "xds_servers": [{
        "server_uri": server.uri(),
        "channel_creds": [{ "type": "google_default", "config": { "root": files.ca() } }],
    }] });
    client_of(
        transport,
        Bootstrap::from_json_with(&document.to_string(), &registry.types()).unwrap(),
        registry,
    )
}

fn custom_server(uri: &str, type_name: &str) -> Bootstrap {
    let credentials = CustomCredentials::new(type_name, json!(null));
    Bootstrap::builder().server(Server::new(uri).custom_credentials(credentials)).build().unwrap()
}

fn client_of(transport: Transport, bootstrap: Bootstrap, registry: &CredentialsRegistry) -> Client {
    transport.builder_from(bootstrap).credentials(registry.clone()).build().unwrap()
}
