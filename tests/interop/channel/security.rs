//! TLS by the configuration of clusters: mutual TLS, the kinds of names, SPIFFE, and certificates that are rotated.

use std::{fs, os::unix::fs::symlink, path::Path};

use serde_json::json;
use tokio::time::timeout;
use tonic::Code;
use xdskit::channel::PeerIdentity;

use super::*;
use crate::security::{Authority, Pair, ServerFiles, dns, email, ip, uri};

with_each_backend! {
    mutual_tls_connects_with_both_certificates,
    a_client_that_a_backend_does_not_trust_fails_calls_with_the_alert,
    a_backend_of_another_authority_is_never_called,
    tls_is_never_replaced_by_plaintext,
    backends_are_named_by_each_kind_of_name,
    backends_are_trusted_by_the_bundle_of_their_spiffe_domain,
    certificates_are_rotated_under_load_without_a_failed_call,
}

async fn mutual_tls_connects_with_both_certificates(language: Language) {
    let (servers, clients) = (Authority::new(), Authority::new());
    let mut one = demanding(language, &servers, &clients).await;
    let client = clients.write("client", [uri("spiffe://clients/a"), dns("c.example")]);
    let tls = mutual(&json!([{"exact": "one.example"}]));
    let mesh = Mesh::secured(language, &[&one], Some(tls), providers(&servers.root(), &client)).await;
    for _ in 0..10 {
        let response = mesh.unary(ECHO, Request::new("hello".into())).await.expect("both are trusted");
        assert_eq!(response.metadata().get("x-client").expect("it is seen"), "c.example,spiffe://clients/a");
        let identity = response.extensions().get::<PeerIdentity>().expect("the connection has TLS");
        assert_eq!(identity.spiffe_id(), Some("spiffe://servers/one"));
    }
    assert_eq!(one.count("Echo").await, 10);
}

async fn a_client_that_a_backend_does_not_trust_fails_calls_with_the_alert(language: Language) {
    let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let mut one = demanding(language, &servers, &clients).await;
    let stranger = strangers.write("client", [uri("spiffe://clients/a"), dns("c.example")]);
    let names = json!([{"exact": "one.example"}]);
    let file = stranger.certificate.display();
    let cases = [
        (upstream(&names), " CertificateRequired: does it require a client certificate".to_owned()),
        (mutual(&names), format!(": does it trust the certificate in {file}?")),
    ];
    for (tls, hint) in cases {
        let providers = providers(&servers.root(), &stranger);
        let mesh = Mesh::secured(language, &[&one], Some(tls), providers).await;
        // C-core sends no alert, but closes the connection after the handshake, which has succeeded for the client.
        let ends = ["HTTP/2: broken pipe", "HTTP/2: the server closed the connection"];
        let is_named = |reason: &str| match language {
            Language::Go | Language::Java => {
                reason.contains("the server sent the TLS alert ") && reason.contains(&hint)
            }
            Language::Python => ends.iter().any(|end| reason.contains(end)),
            Language::Node => unreachable!("it has no TLS here"),
        };
        mesh.refused_if(&hint, is_named).await;
        for _ in 0..100 {
            mesh.unary(ECHO, Request::new("hello".into())).await.expect_err("it is not trusted");
        }
    }
    assert_eq!(one.count("Echo").await, 0);
}

async fn a_backend_of_another_authority_is_never_called(language: Language) {
    let (servers, strangers, clients) = (Authority::new(), Authority::new(), Authority::new());
    let mut one = demanding(language, &strangers, &clients).await;
    let client = clients.write("client", [dns("c.example")]);
    let tls = mutual(&json!([{"exact": "one.example"}]));
    let mesh = Mesh::secured(language, &[&one], Some(tls), providers(&servers.root(), &client)).await;
    let reason = mesh.refused("it is not signed by one of the roots").await;
    assert!(reason.contains("is not trusted by certificate provider instance \"roots\""), "{reason}");
    assert_eq!(one.count("Echo").await, 0);
}

async fn tls_is_never_replaced_by_plaintext(language: Language) {
    let servers = Authority::new();
    let mut one = Backend::start(language, "one").await;
    let client = servers.write("client", [dns("c.example")]);
    let mut mesh = Mesh::secured(language, &[&one], None, providers(&servers.root(), &client)).await;
    let response = mesh.unary(ECHO, Request::new("hello".into())).await.expect("the fallback is plaintext");
    assert!(response.extensions().get::<PeerIdentity>().is_none());
    mesh.secure(&mutual(&json!([{"exact": "one.example"}]))).await;
    mesh.refused("TLS handshake failed: ").await;
    let calls = one.count("Echo").await;
    for _ in 0..100 {
        mesh.unary(ECHO, Request::new("hello".into())).await.expect_err("there is no TLS");
    }
    assert_eq!(one.count("Echo").await, calls);
    mesh.peer.command("secure payments").await;
    mesh.answered().await;
}

async fn backends_are_named_by_each_kind_of_name(language: Language) {
    let servers = Authority::new();
    let names = [
        dns("one.example"),
        dns("*.wild.example"),
        uri("spiffe://servers/one"),
        email("one@mail.example"),
        ip("127.0.0.1"),
    ];
    let files = ServerFiles { pair: servers.write("server", names), client_ca: None };
    let one = Backend::start_tls(language, "one", files).await;
    let typed = |kind: &str, matcher: Value| json!([{"san_type": kind, "matcher": matcher}]);
    // What is refused shows that the one that is accepted after it has arrived.
    let kinds = [
        (
            json!([{"exact": "two.example"}]),
            "exact \"two.example\"",
            json!([{"exact": "two.example"}, {"exact": "one.example"}]),
        ),
        (
            typed("DNS", json!({"exact": "a.b.wild.example"})),
            "DNS exact \"a.b.wild.example\"",
            typed("DNS", json!({"exact": "a.wild.example"})),
        ),
        (
            typed("URI", json!({"prefix": "spiffe://clients/"})),
            "URI prefix \"spiffe://clients/\"",
            typed("URI", json!({"prefix": "spiffe://servers/"})),
        ),
        (
            typed("DNS", json!({"suffix": "@mail.example"})),
            "DNS suffix \"@mail.example\"",
            typed("EMAIL", json!({"suffix": "@mail.example"})),
        ),
        (
            typed("IP_ADDRESS", json!({"exact": "127.0.0.2"})),
            "IP exact \"127.0.0.2\"",
            typed("IP_ADDRESS", json!({"exact": "127.0.0.1"})),
        ),
    ];
    let client = servers.write("client", [dns("c.example")]);
    let providers = providers(&servers.root(), &client);
    let mut mesh = Mesh::secured(language, &[&one], Some(upstream(&kinds[0].0)), providers).await;
    for (wrong, shown, right) in kinds {
        mesh.secure(&upstream(&wrong)).await;
        let reason = mesh.refused(&format!(" has no name that is {shown}")).await;
        let seen = "(DNS \"one.example\", DNS \"*.wild.example\", URI \"spiffe://servers/one\", \
                    email \"one@mail.example\", IP \"127.0.0.1\")";
        assert!(reason.contains(&format!("the server's certificate {seen}")), "{reason}");
        mesh.secure(&upstream(&right)).await;
        mesh.answered().await;
    }
}

async fn backends_are_trusted_by_the_bundle_of_their_spiffe_domain(language: Language) {
    let (servers, others) = (Authority::new(), Authority::new());
    let start = async |name: &'static str, id: &str| {
        let files = ServerFiles { pair: servers.write(name, [uri(id)]), client_ca: Some(servers.root()) };
        Backend::start_tls(language, name, files).await
    };
    let one = start("one", "spiffe://servers/one").await;
    let mut stranger = start("stranger", "spiffe://strangers/one").await;
    let mut liar = start("liar", "spiffe://others/one").await;
    let folder = tempfile::tempdir().expect("a directory");
    let map = folder.path().join("map.json");
    let domains = json!({"trust_domains": {"servers": servers.bundle(), "others": others.bundle()}});
    fs::write(&map, domains.to_string()).expect("it can be written");
    let client = servers.write("client", [uri("spiffe://servers/client")]);
    let mut providers = providers(&others.root(), &client);
    providers["roots"]["config"]["spiffe_trust_bundle_map_file"] = path(&map);
    let mut mesh = Mesh::secured(language, &[&one], Some(mutual(&json!([]))), providers).await;
    let response = mesh.unary(ECHO, Request::new("hello".into())).await.expect("its domain is in the map");
    let identity = response.extensions().get::<PeerIdentity>().expect("the connection has TLS");
    assert_eq!(identity.spiffe_id(), Some("spiffe://servers/one"));
    assert_eq!(response.metadata().get("x-client").expect("it is seen"), "spiffe://servers/client");

    mesh.peer.command(&endpoints("payments", &[&stranger])).await;
    let reason = mesh.refused("is none of those of the map: [\"others\", \"servers\"]").await;
    assert!(reason.contains("URI \"spiffe://strangers/one\""), "{reason}");
    // The domain is known, but not with this authority.
    mesh.peer.command(&endpoints("payments", &[&liar])).await;
    let reason = mesh.refused("it is not signed by one of the roots").await;
    assert!(reason.contains("URI \"spiffe://others/one\""), "{reason}");
    mesh.peer.command(&endpoints("payments", &[&one])).await;
    mesh.answered().await;
    assert_eq!((stranger.count("Echo").await, liar.count("Echo").await), (0, 0));
}

async fn certificates_are_rotated_under_load_without_a_failed_call(language: Language) {
    let (old, new) = (Authority::new(), Authority::new());
    let files = |authority: &Authority, name: &str, id: &str| ServerFiles {
        pair: authority.write(name, [uri(id)]),
        client_ca: Some(authority.root()),
    };
    let mut one = Backend::start_tls(language, "one", files(&old, "one", "spiffe://old/one")).await;
    let mut two = Backend::start_tls(language, "two", files(&old, "two", "spiffe://old/two")).await;
    let mounted = Mounted::new();
    mounted.replace("1", &old.pem(), &old.write("client", [uri("spiffe://old/client")]));
    let tls = mutual(&json!([{"prefix": "spiffe://"}]));
    let mut mesh = Mesh::secured(language, &[&one, &two], Some(tls), mounted.providers()).await;
    let load = mesh.load_with_identities();
    let (old_one, old_two) =
        ("one spiffe://old/one spiffe://old/client", "two spiffe://old/two spiffe://old/client");
    load.until_only(&[old_one, old_two]).await;

    // The connections stay, although neither backend trusts the new certificate.
    let both = format!("{}{}", old.pem(), new.pem());
    mounted.replace("2", &both, &new.write("client", [uri("spiffe://new/client")]));
    load.until_only(&[old_one, old_two]).await;

    mesh.peer.command(&endpoints("payments", &[&two])).await;
    load.until_only(&[old_two]).await;
    one = replaced(one, files(&new, "one", "spiffe://new/one")).await;
    mesh.peer.command(&endpoints("payments", &[&one, &two])).await;
    let new_one = "one spiffe://new/one spiffe://new/client";
    load.until_only(&[new_one, old_two]).await;

    mesh.peer.command(&endpoints("payments", &[&one])).await;
    load.until_only(&[new_one]).await;
    two = replaced(two, files(&new, "two", "spiffe://new/two")).await;
    mesh.peer.command(&endpoints("payments", &[&one, &two])).await;
    let new_two = "two spiffe://new/two spiffe://new/client";
    load.until_only(&[new_one, new_two]).await;

    assert_eq!(load.stop().await, []);
    assert!(one.count("Echo").await > 0 && two.count("Echo").await > 0);
}

/// Stops a backend that gets no calls any more, and starts it with other certificates.
async fn replaced(mut backend: Backend, files: ServerFiles) -> Backend {
    backend.stop().await;
    backend.stopped().await;
    backend.restart_tls(files).await
}

impl Mesh {
    async fn secure(&mut self, tls: &Value) {
        self.peer.command(&format!("secure payments {tls}")).await;
    }

    /// Calls until one fails for a reason that contains a text, and returns the reason.
    async fn refused(&self, text: &str) -> String {
        self.refused_if(text, |reason| reason.contains(text)).await
    }

    /// The same with a condition.
    async fn refused_if(&self, what: &str, is_met: impl Fn(&str) -> bool) -> String {
        let mut last = Ok(());
        let wait = async {
            loop {
                match self.unary(ECHO, Request::new("hello".into())).await {
                    Err(status) if is_met(status.message()) => return status,
                    outcome => last = outcome.map(drop),
                }
                tokio::task::yield_now().await;
            }
        };
        let Ok(status) = timeout(PATIENCE, wait).await else { panic!("no call fails by {what:?}: {last:?}") };
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        status.message().to_owned()
    }

    /// Calls until one succeeds.
    async fn answered(&self) {
        let wait = async {
            while self.unary(ECHO, Request::new("hello".into())).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        within("an answer", wait).await;
    }

    /// Calls whose answers are told apart by the backend, its SPIFFE id, and the names that it sees.
    fn load_with_identities(&self) -> Load {
        let channel = self.channel.clone();
        Load::start(TASKS, move || {
            let channel = channel.clone();
            async move {
                let response = unary(&channel, ECHO, Request::new("hello".into())).await?;
                let identity = response.extensions().get::<PeerIdentity>().and_then(PeerIdentity::spiffe_id);
                let client = response.metadata().get("x-client").and_then(|it| it.to_str().ok());
                let of = |it: Option<&str>| it.unwrap_or("nobody").to_owned();
                Ok(format!("{} {} {}", backend_of(&response), of(identity), of(client)))
            }
        })
    }
}

/// The backend `one`, which demands client certificates.
async fn demanding(language: Language, servers: &Authority, clients: &Authority) -> Backend {
    let pair = servers.write("server", [uri("spiffe://servers/one"), dns("one.example")]);
    Backend::start_tls(language, "one", ServerFiles { pair, client_ca: Some(clients.root()) }).await
}

/// The context of TLS with backends of which a name matches one of these matchers.
fn upstream(names: &Value) -> Value {
    let is_typed = names[0]["san_type"].is_string();
    let field = if is_typed { "match_typed_subject_alt_names" } else { "match_subject_alt_names" };
    let roots = json!({"instance_name": "roots"});
    let validation = json!({"ca_certificate_provider_instance": roots, field: names});
    json!({"common_tls_context": {"validation_context": validation}})
}

/// The same with the client's certificate.
fn mutual(names: &Value) -> Value {
    let mut tls = upstream(names);
    tls["common_tls_context"]["tls_certificate_provider_instance"] = json!({"instance_name": "identity"});
    tls
}

/// The certificate providers `roots` and `identity`, which read their files every second.
fn providers(roots: &Path, client: &Pair) -> Value {
    let files = |mut config: Value| {
        config["refresh_interval"] = "1s".into();
        json!({"plugin_name": "file_watcher", "config": config})
    };
    json!({
        "roots": files(json!({"ca_certificate_file": path(roots)})),
        "identity": files(json!({
            "certificate_file": path(&client.certificate),
            "private_key_file": path(&client.key),
        })),
    })
}

fn path(of: &Path) -> Value {
    of.to_str().expect("it is text").into()
}

/// Files of a client as Kubernetes mounts them: links to files in `..data`, which is a link to a directory, and is replaced.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Self {
        let mounted = Self(tempfile::tempdir().expect("a directory"));
        for name in ["ca.pem", "tls.pem", "tls.key"] {
            symlink(Path::new("..data").join(name), mounted.file(name)).expect("it can be linked");
        }
        mounted
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn providers(&self) -> Value {
        let client = Pair { certificate: self.file("tls.pem"), key: self.file("tls.key") };
        providers(&self.file("ca.pem"), &client)
    }

    /// Replaces all files at once.
    fn replace(&self, version: &str, roots: &str, client: &Pair) {
        let folder = self.file(version);
        fs::create_dir(&folder).expect("it is new");
        fs::write(folder.join("ca.pem"), roots).expect("it can be written");
        fs::copy(&client.certificate, folder.join("tls.pem")).expect("it can be copied");
        fs::copy(&client.key, folder.join("tls.key")).expect("it can be copied");
        symlink(version, self.file("..data_tmp")).expect("it can be linked");
        fs::rename(self.file("..data_tmp"), self.file("..data")).expect("it can be renamed");
    }
}
