//! Handshakes by the roots of the system (A82). Those are what rustls-native-certs finds, in the files of an environment variable if it is
//! set. A process cannot set its own without harm to other threads, so these tests start themselves again.

use std::{env, process::Command};

use super::*;

/// The roots of the system in the process that a test has started.
const ROOTS: &str = "SSL_CERT_FILE";
/// The key of the server there, whose certificate is beside it.
const KEY: &str = "XDSKIT_TEST_SYSTEM_ROOTS";

/// Runs a test of this file in a process whose system has roots, with a certificate of a server. Returns its output if it fails.
fn run_again(name: &str, roots: &Ca, servers: &Ca) -> Result<(), String> {
    let folder = Folder::new();
    let (_, key) = folder.write_identity(&servers.issue([dns("a.example")]));
    let roots = folder.write("roots.pem", roots.pem());
    let this = format!("{}::{name}", module_path!().split_once("::").unwrap().1);
    let mut test = Command::new(env::current_exe().unwrap());
    let test = test.args([&*this, "--exact", "--nocapture", "--test-threads=1"]);
    let output = test.env(KEY, key).env(ROOTS, roots).env_remove("SSL_CERT_DIR").output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("running 1 test"), "{text}");
    if output.status.success() { Ok(()) } else { Err(text) }
}

/// The server of the process, if a test has started it.
fn server() -> Option<Arc<ServerConfig>> {
    let key = std::path::PathBuf::from(env::var_os(KEY)?);
    let certificate = key.with_file_name("tls.crt");
    let read = |path: &std::path::Path| std::fs::read(path).unwrap();
    let (chain, private) = (read(&certificate), read(&key));
    let chain = files::Content { path: &certificate, bytes: &chain };
    let pair = files::identity(&chain, &files::Content { path: &key, bytes: &private }, &fixture::provider());
    let builder = ServerConfig::builder_with_provider(fixture::provider());
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.unwrap())));
    config.alpn_protocols = vec![b"h2".to_vec()];
    Some(Arc::new(config))
}

/// The clients whose roots are those of the system.
fn clients(world: &World) -> [ClientTls; 2] {
    let system = UpstreamTls { roots: Roots::System, ..upstream("a.example") };
    [world.client(system, None), ClientTls::of_config(&TlsConfig::default(), "a.example", &fixture::crypto())]
}

#[tokio::test]
async fn ch7_8_a82_a_server_is_trusted_by_the_roots_of_the_system() {
    let world = World::new();
    let Some(server) = server() else {
        let ca = Ca::new();
        run_again("ch7_8_a82_a_server_is_trusted_by_the_roots_of_the_system", &ca, &ca).unwrap();
        return;
    };
    for client in clients(&world) {
        handshake(&client, &server).await.unwrap();
    }
    // The roots of a provider are others.
    let refused = handshake(&world.client(upstream("a.example"), None), &server).await.unwrap_err();
    assert!(refused.ends_with("instance \"both\": it is not signed by one of the roots"), "{refused}");
}

#[tokio::test]
async fn ch7_8_a82_a_server_that_the_roots_of_the_system_do_not_trust_is_refused() {
    let world = World::new();
    let Some(server) = server() else {
        let name = "ch7_8_a82_a_server_that_the_roots_of_the_system_do_not_trust_is_refused";
        run_again(name, &Ca::new(), &Ca::new()).unwrap();
        return;
    };
    for (client, origin) in
        clients(&world).iter().zip(["the system's root certificates", "the TLS configuration of the channel"])
    {
        let refused = handshake(client, &server).await.unwrap_err();
        let end = format!("is not trusted by {origin}: it is not signed by one of the roots");
        assert!(refused.ends_with(&end), "{refused}");
    }
}

#[tokio::test]
async fn ch7_17_lists_are_for_the_roots_of_the_system_too() {
    let world = World::new();
    let Some(server) = server() else {
        let ca = Ca::new();
        return run_again("ch7_17_lists_are_for_the_roots_of_the_system_too", &ca, &ca).unwrap();
    };
    let lists = Folder::new();
    lists.write("a.crl", Ca::new().revoke(&[]).der());
    for client in clients(&world) {
        let lists = crate::tls::RevocationLists::directory(lists.path(""));
        let client = client.with_revocation(Some(Revocation::new(lists)));
        let refused = handshake(&client, &server).await.unwrap_err();
        assert!(refused.contains("a.crl is not signed by the key of the issuer"), "{refused}");
    }
}
