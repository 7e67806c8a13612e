//! Certificate providers of the application, which channels execute (A29).

use std::sync::{LazyLock, Mutex};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tonic::transport::Certificate;
use xdskit::{
    channel::{ChannelBuilder, FallbackCredentials},
    pb::envoy::{
        config::core::v3::{TransportSocket, transport_socket::ConfigType},
        extensions::transport_sockets::tls::v3::{
            CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
            UpstreamTlsContext, common_tls_context::ValidationContextType,
        },
    },
    resource::{
        Context, Extension, Invalid, Payload, Registry,
        tls::{
            CertificateIdentity, CertificateProviderPlugin, CertificatePublisher, CertificateRoots,
            ProviderRun,
        },
    },
};

use super::{security::SERVER, *};
use crate::common::tls::Ca;

/// A plugin, which hands its publishers to the test of its name.
#[derive(Debug, PartialEq, Serialize)]
struct Vault {
    test: String,
    behavior: String,
}

/// The tests that wait for publishers.
static TESTS: LazyLock<Mutex<BTreeMap<String, mpsc::UnboundedSender<CertificatePublisher>>>> =
    LazyLock::new(Mutex::default);

impl Extension for Vault {
    const TYPE_NAME: &'static str = "vault";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        let Payload::Struct(config) = payload else { return Err(Invalid::new("must be JSON")) };
        let field = |name: &'static str| {
            let value = config.get(name).and_then(Value::as_str).map(str::to_owned);
            value.ok_or(Invalid::field(name, "missing"))
        };
        Ok(Self { test: field("test")?, behavior: field("behavior")? })
    }
}

impl CertificateProviderPlugin for Vault {
    fn run(&self, publisher: CertificatePublisher) -> ProviderRun {
        match self.behavior.as_str() {
            "panic" => panic!("the vault is haunted"),
            "block" => loop {
                std::thread::park();
            },
            "fail" => Box::pin(async { Err("the vault is sealed".into()) }),
            _ => {
                TESTS.lock().unwrap()[&self.test].send(publisher).unwrap();
                Box::pin(std::future::pending())
            }
        }
    }
}

/// Authorities, a client with the provider `vault` and others, and the publishers of `vault`.
struct World {
    servers: Ca,
    clients: Ca,
    mesh: Mesh,
    publishers: mpsc::UnboundedReceiver<CertificatePublisher>,
}

impl World {
    async fn start(
        test: &str,
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> (Self, [Backend; 2]) {
        let (servers, clients) = (Ca::new(), Ca::new());
        let secured = || {
            let roots = Certificate::from_pem(clients.root());
            servers.server_config_for(SERVER).client_ca_root(roots)
        };
        let backends =
            [Backend::start_secured("one", secured()).await, Backend::start_secured("two", secured()).await];
        let cart = cluster("cart").edit(|it| it.transport_socket = Some(upstream("vault")));
        let mut mesh = Mesh::start_with(cart, &[&backends[0], &backends[1]]).await;
        let (sender, publishers) = mpsc::unbounded_channel();
        TESTS.lock().unwrap().insert(test.to_owned(), sender);
        let provider =
            |behavior: &str| json!({"plugin_name": "vault", "config": {"test": test, "behavior": behavior}});
        let mut bootstrap: Value = serde_json::from_str(&mesh.server.bootstrap_json()).unwrap();
        bootstrap["certificate_providers"] = json!({
            "vault": provider("publish"),
            "panic": provider("panic"),
            "block": provider("block"),
            "fail": provider("fail"),
        });
        let registry = Registry::new().with_certificate_plugin::<Vault>();
        let builder = Client::builder(Bootstrap::from_json(&bootstrap.to_string()).unwrap());
        mesh.client = builder.extensions(registry).build().unwrap();
        let builder = mesh.client.channel("xds:///shop").xds_credentials(FallbackCredentials::Plaintext);
        let builder = builder.connect_backoff(Duration::from_millis(50), Duration::from_millis(200));
        mesh.channel = settings(builder).build().unwrap();
        (Self { servers, clients, mesh, publishers }, backends)
    }

    /// The publisher of the run of `vault`.
    async fn publisher(&mut self) -> CertificatePublisher {
        soon(self.publishers.recv()).await.unwrap()
    }

    fn identity(&self) -> CertificateIdentity {
        let (chain, key) = self.clients.issue("client.example");
        CertificateIdentity::from_pem(chain, key)
    }
}

/// TLS with roots and a client certificate of an instance.
fn upstream(instance: &str) -> TransportSocket {
    let instance = || CertificateProviderPluginInstance {
        instance_name: instance.to_owned(),
        ..CertificateProviderPluginInstance::default()
    };
    let validation = CertificateValidationContext {
        ca_certificate_provider_instance: Some(instance()),
        ..CertificateValidationContext::default()
    };
    let common = CommonTlsContext {
        tls_certificate_provider_instance: Some(instance()),
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..CommonTlsContext::default()
    };
    let context = UpstreamTlsContext { common_tls_context: Some(common), ..UpstreamTlsContext::default() };
    let type_url =
        "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext".to_owned();
    let any = Any { type_url, value: context.encode_to_vec().into() };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any)),
    }
}

#[tokio::test]
async fn ch7_29_ch7_7_sv13_5_certificates_of_a_plugin_that_are_rotated_under_load_fail_no_call() {
    let (mut world, backends) = World::start("rotation", |it| it.reconnect_on_rotation(true)).await;
    let first = tokio::spawn({
        let channel = world.mesh.channel.clone();
        async move { call(&channel, ECHO, Request::new("waits for the certificates".into())).await }
    });
    let publisher = world.publisher().await;
    publisher.publish_roots(CertificateRoots::from_pem(world.servers.root())).unwrap();
    publisher.publish_identity(world.identity()).unwrap();
    soon(first).await.unwrap().unwrap();
    world.mesh.reach(&["one", "two"]).await;
    let load = world.mesh.load(4);
    let connections = || backends.iter().map(Backend::connections).min().unwrap();
    for round in 2..=4 {
        load.until("calls", |answered| answered.values().sum::<usize>() >= 100).await;
        // What cannot be used changes nothing.
        let (chain, _) = world.clients.issue("client.example");
        let (_, key) = world.clients.issue("client.example");
        publisher.publish_identity(CertificateIdentity::from_pem(chain, key)).unwrap_err();
        publisher.publish_roots(CertificateRoots::from_pem("")).unwrap_err();
        publisher.report_failure("the vault is sealed");
        if round == 3 {
            let roots = format!("{}{}", world.servers.root(), Ca::new().root());
            publisher.publish_roots(CertificateRoots::from_pem(roots)).unwrap();
        } else {
            publisher.publish_identity(world.identity()).unwrap();
        }
        load.until("there are other connections", |_| connections() == round).await;
    }
    assert_eq!(load.stop().await, []);
    assert!(world.publishers.is_empty(), "there was one run");
}

#[tokio::test]
async fn ch7_29_ch7_30_clusters_of_plugins_that_fail_hold_no_other() {
    let (mut world, backends) = World::start("unkind", |it| it).await;
    let call_of = |name: &'static str| {
        let server = &world.mesh.server;
        server.set(listener(name).rds(name));
        server.set(route_config(name).virtual_host(["*"], [route::prefix("").cluster(name)]));
        server.set(cluster(name).edit(|it| it.transport_socket = Some(upstream(name))));
        server.set(endpoints(name).locality("eu", "a", [backends[0].text().as_str()]));
        let builder = world.mesh.client.channel(format!("xds:///{name}"));
        let channel = builder.xds_credentials(FallbackCredentials::Plaintext).build().unwrap();
        tokio::spawn(async move { call(&channel, ECHO, Request::new("a".into())).await })
    };
    let (panics, fails, blocks) = (call_of("panic"), call_of("fail"), call_of("block"));
    for (call, reason) in [(panics, "it panicked: the vault is haunted"), (fails, "the vault is sealed")] {
        let status = soon(call).await.unwrap().unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains(reason), "{status}");
    }
    let first = world.mesh.channel.clone();
    let first = tokio::spawn(async move { call(&first, ECHO, Request::new("hello".into())).await });
    let publisher = world.publisher().await;
    publisher.publish_roots(CertificateRoots::from_pem(world.servers.root())).unwrap();
    publisher.publish_identity(world.identity()).unwrap();
    soon(first).await.unwrap().unwrap();
    world.mesh.reach(&["one", "two"]).await;
    assert!(!blocks.is_finished());
    blocks.abort();
}

#[tokio::test]
async fn ch7_29_a_configuration_that_the_plugin_refuses_is_an_error_of_the_bootstrap_with_its_place() {
    let server = TestControlPlane::start().await;
    let mut bootstrap: Value = serde_json::from_str(&server.bootstrap_json()).unwrap();
    bootstrap["certificate_providers"] = json!({"a": {"plugin_name": "vault", "config": {"test": "none"}}});
    let registry = Registry::new().with_certificate_plugin::<Vault>();
    let builder = Client::builder(Bootstrap::from_json(&bootstrap.to_string()).unwrap());
    let error = builder.extensions(registry).build().unwrap_err();
    assert_eq!(error.to_string(), "bootstrap: certificate_providers[\"a\"].config.behavior: missing");
}
