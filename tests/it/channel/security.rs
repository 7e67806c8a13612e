//! Backends with TLS, as clusters configure it, whose certificates change.

use std::{fs, path::PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tonic::transport::{Certificate, ServerTlsConfig};
use xdskit::{
    channel::{ChannelBuilder, FallbackCredentials, PeerIdentity},
    pb::envoy::{
        config::core::v3::{TransportSocket, transport_socket::ConfigType},
        extensions::transport_sockets::tls::v3::{
            CertificateProviderPluginInstance, CertificateValidationContext, CommonTlsContext,
            UpstreamTlsContext, common_tls_context::ValidationContextType,
        },
        r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
};

use super::{backend::HOLD, *};
use crate::common::tls::{Ca, Files};

const UPSTREAM: &str = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
/// The name of the servers.
pub(super) const SERVER: &str = "cart.example";

/// The authorities of servers and clients, with the files of the client.
pub(super) struct Pki {
    pub(super) servers: Ca,
    pub(super) clients: Ca,
    files: Files,
}

impl Pki {
    pub(super) fn new() -> Self {
        let pki = Self { servers: Ca::new(), clients: Ca::new(), files: Files::new() };
        pki.servers.write_root(&pki.path("roots.pem"));
        pki.renew();
        pki
    }

    /// The client has another certificate.
    pub(super) fn renew(&self) {
        self.clients.write_identity(&self.path("client.pem.new"), &self.path("client.key.new"));
        for name in ["client.pem", "client.key"] {
            fs::rename(self.path(&format!("{name}.new")), self.path(name)).unwrap();
        }
    }

    /// The DER encoding of the client's certificate.
    pub(super) fn client_certificate(&self) -> Vec<u8> {
        let pem = fs::read_to_string(self.path("client.pem")).unwrap();
        let lines: String = pem.lines().skip(1).take_while(|line| !line.starts_with("-----")).collect();
        BASE64_STANDARD.decode(lines).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    pub(super) fn server(&self) -> ServerTlsConfig {
        self.servers.server_config_for(SERVER)
    }

    /// Clients have to have certificates.
    pub(super) fn mutual(&self) -> ServerTlsConfig {
        self.server().client_ca_root(Certificate::from_pem(self.clients.root()))
    }

    /// A mesh whose client has the certificate providers `roots` and `identity`, which are read again every second.
    pub(super) async fn mesh(&self, socket: Option<TransportSocket>, backends: &[&Backend]) -> Mesh {
        self.mesh_with(socket, backends, |builder| builder).await
    }

    /// The same, with settings of the channel.
    async fn mesh_with(
        &self,
        socket: Option<TransportSocket>,
        backends: &[&Backend],
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
    ) -> Mesh {
        let cart = cluster("cart").edit(|it| it.transport_socket = socket);
        let mut mesh = Mesh::start_with(cart, backends).await;
        let mut bootstrap: Value = serde_json::from_str(&mesh.server.bootstrap_json()).unwrap();
        let provider = |mut config: Value| {
            config["refresh_interval"] = "1s".into();
            json!({"plugin_name": "file_watcher", "config": config})
        };
        let files = json!({
            "certificate_file": self.path("client.pem"),
            "private_key_file": self.path("client.key"),
        });
        bootstrap["certificate_providers"] = json!({
            "roots": provider(json!({"ca_certificate_file": self.path("roots.pem")})),
            "identity": provider(files),
        });
        mesh.client = Client::builder(Bootstrap::from_json(&bootstrap.to_string()).unwrap()).build().unwrap();
        let builder = mesh
            .client
            .channel("xds:///shop")
            .connect_backoff(Duration::from_millis(50), Duration::from_millis(200))
            .xds_credentials(FallbackCredentials::Plaintext);
        mesh.channel = settings(builder).build().unwrap();
        mesh
    }
}

/// TLS with servers of one of these names, with or without the client's certificate.
pub(super) fn upstream(names: &[&str], has_identity: bool) -> TransportSocket {
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
    let context = UpstreamTlsContext { common_tls_context: Some(common), ..UpstreamTlsContext::default() };
    let type_url = format!("type.googleapis.com/{UPSTREAM}");
    let any = Any { type_url, value: context.encode_to_vec().into() };
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(any)),
    }
}

#[tokio::test]
async fn ch7_7_certificates_that_are_rotated_under_load_fail_no_call() {
    let pki = Pki::new();
    let mut one = Backend::start_secured("one", pki.mutual()).await;
    let two = Backend::start_secured("two", pki.mutual()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], true)), &[&one, &two]).await;
    mesh.reach(&["one", "two"]).await;
    let load = mesh.load(4);
    let both =
        |answered: &BTreeMap<String, usize>| answered.len() == 2 && answered.values().sum::<usize>() >= 100;
    for round in 0..3 {
        load.until("both answer", both).await;
        pki.renew();
        // Further roots.
        if round == 1 {
            let next = Ca::new();
            let all = format!("{}{}", pki.servers.root(), next.root());
            fs::write(pki.path("roots.pem.new"), all).unwrap();
            fs::rename(pki.path("roots.pem.new"), pki.path("roots.pem")).unwrap();
        }
        one = one.restart_gracefully().await;
    }
    load.until("both answer", both).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch7_7_new_calls_have_the_new_certificate_if_the_channel_reconnects_and_none_fails() {
    let pki = Pki::new();
    let backends = [
        Backend::start_secured("one", pki.mutual()).await,
        Backend::start_secured("two", pki.mutual()).await,
    ];
    let socket = Some(upstream(&[SERVER], true));
    let mesh =
        pki.mesh_with(socket, &[&backends[0], &backends[1]], |it| it.reconnect_on_rotation(true)).await;
    mesh.reach(&["one", "two"]).await;
    let held = tokio::spawn({
        let channel = mesh.channel.clone();
        async move { call(&channel, HOLD, Request::new("held".into())).await }
    });
    let channel = mesh.channel.clone();
    let load = Load::start(4, move || {
        let channel = channel.clone();
        async move {
            let response = call(&channel, ECHO, Request::new("hello".into())).await?;
            let client = response.metadata().get("x-client").unwrap().to_str().unwrap().to_owned();
            Ok(format!("{} {client}", backend_of(&response)))
        }
    });
    let mut seen = BTreeSet::new();
    for rotations in 1..=3 {
        load.until("both answer", |answered| answered.values().sum::<usize>() >= 100).await;
        if rotations > 1 {
            pki.renew();
        }
        // Each backend has the new certificate, and no call the one before.
        let is_new = |answered: &BTreeMap<String, usize>| {
            answered.len() == 2 && answered.keys().all(|it| !seen.contains(it))
        };
        let mut answered = BTreeMap::new();
        while !is_new(&answered) {
            answered = load.until("calls", |it| it.values().sum::<usize>() >= 100).await;
        }
        seen.extend(answered.into_keys());
        assert_eq!((backends[0].connections(), backends[1].connections()), (rotations, rotations));
    }
    // Other roots are a rotation as well; equal bytes are none.
    let all = format!("{}{}", pki.servers.root(), Ca::new().root());
    fs::write(pki.path("roots.pem.new"), all).unwrap();
    fs::rename(pki.path("roots.pem.new"), pki.path("roots.pem")).unwrap();
    load.until("there are other connections", |_| backends.iter().all(|it| it.connections() == 4)).await;
    assert_eq!(load.stop().await, []);
    assert!(!held.is_finished(), "a call ends in its own time");
    backends.iter().for_each(Backend::release);
    soon(held).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch7_20_updates_of_the_security_under_load_fail_no_call() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.mutual()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], true)), &[&one]).await;
    mesh.ready().await;
    let load = mesh.load(4);
    for names in [&[SERVER, "other.example"][..], &[], &[SERVER]] {
        load.until("calls are answered", |by_backend| by_backend.values().sum::<usize>() >= 100).await;
        let connections = one.connections();
        mesh.server.set(cluster("cart").edit(|it| it.transport_socket = Some(upstream(names, true))));
        load.until("there is another connection", |_| one.connections() > connections).await;
    }
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch7_22_responses_have_the_identity_of_the_server() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.server()).await;
    let mesh = pki.mesh(Some(upstream(&[SERVER], false)), &[&one]).await;
    let response = mesh.call(ECHO, "hello").await.unwrap();
    let identity = response.extensions().get::<PeerIdentity>().unwrap();
    assert!(!identity.certificate().is_empty());
    assert_eq!(identity.spiffe_id(), None);
}
