//! Files of management servers, and handshakes by them.

use std::{fs, path::Path, time::Duration};

use rcgen::{CertificateParams, KeyPair, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{HandshakeKind, ServerConfig},
};

use super::*;
use crate::{
    config::Bootstrap,
    tls::fixture::{self, Ca, Folder, dns, uri},
};

/// Loads the material of a connection as the first one of a client.
async fn load(config: &TlsConfig) -> Result<Tls, String> {
    load_from(&TlsCache::default(), config).await
}

/// Loads the material of a connection of a client.
async fn load_from(cache: &TlsCache, config: &TlsConfig) -> Result<Tls, String> {
    let server = Server::new(HOST).tls(config.clone());
    let bootstrap = Bootstrap::builder().server(server).build().unwrap();
    cache.load(bootstrap.servers().next().unwrap(), config.clone(), Alpn::Http2).await
}

#[tokio::test]
async fn a65_files_that_cannot_be_used_are_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ((good, key), (_, other)) = (pair(), pair());
    let (good, key) = (file("good.pem", &good), file("good.key", &key));
    let other = file("other.key", &other);
    let text = file("text", "not a certificate");
    let torn = file("torn", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let garbled = file("garbled", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let no_key = file("no.key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    let missing = folder.path().join("missing");
    let ca = |path: &Path| TlsConfig::default().with_ca_certificate_file(path);
    let pair = |certificate: &Path, key: &Path| ca(&good).with_identity(certificate, key);
    assert!(load(&pair(&good, &key)).await.is_ok());
    let unlike = format!("not for the key in private_key_file {}: replace both", other.display());
    for (config, field, path, reason) in [
        (ca(&missing), "ca_certificate_file", &missing, "No such file"),
        (ca(&text), "ca_certificate_file", &text, "no certificate in it"),
        (ca(&torn), "ca_certificate_file", &torn, "not a PEM file: missing section end"),
        (ca(&garbled), "ca_certificate_file", &garbled, "a certificate that cannot be used: BadEncoding"),
        (pair(&missing, &key), "certificate_file", &missing, "No such file"),
        (pair(&text, &key), "certificate_file", &text, "no certificate in it"),
        (pair(&garbled, &key), "certificate_file", &garbled, "a certificate that cannot be used"),
        (pair(&good, &missing), "private_key_file", &missing, "No such file"),
        (pair(&good, &good), "private_key_file", &good, "no private key in it"),
        (pair(&good, &no_key), "private_key_file", &no_key, "a key that cannot be used"),
        (pair(&good, &other), "certificate_file", &good, unlike.as_str()),
    ] {
        let error = load(&config).await.err().unwrap();
        let start = format!("{field} {}: {reason}", path.display());
        assert!(error.starts_with(&start), "{error:?} is not {start:?}");
    }
}

/// Makes a handshake with a server of a certificate that has this name.
async fn handshake(config: &TlsConfig, ca: &Ca, name: SanType) -> Result<(), String> {
    secure(&load(config).await?, &ca.issue([name]).server(None)).await.map(drop)
}

/// Makes a handshake with a server. Returns whether a session was resumed.
async fn secure(tls: &Tls, server: &ServerConfig) -> Result<bool, String> {
    let (near, far) = tokio::io::duplex(1 << 16);
    let accept = async {
        let mut stream = TlsAcceptor::from(Arc::new(server.clone())).accept(far).await.ok()?;
        stream.write_all(b"x").await.ok()?;
        stream.flush().await.ok()?;
        Some(stream)
    };
    let secure = async {
        let mut io = tls.secure(Socket::Memory(Box::new(near)), HOST).await.map_err(|e| e.to_string())?.io;
        // With the tickets before it.
        io.read_exact(&mut [0]).await.map_err(|e| e.to_string())
    };
    let (secured, accepted) = tokio::join!(secure, accept);
    secured?;
    Ok(accepted.unwrap().get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed))
}

#[tokio::test]
async fn a87_a_server_is_verified_by_the_bundle_of_its_trust_domain() {
    let (folder, ca, other) = (Folder::new(), Ca::new(), Ca::new());
    let map = serde_json::json!({ "trust_domains": { "mesh": ca.bundle(), "other": other.bundle() } });
    // The roots beside a map are ignored.
    let config = TlsConfig::default()
        .with_ca_certificate_file(folder.path("missing"))
        .with_spiffe_trust_bundle_map_file(folder.write("map.json", map.to_string()));
    handshake(&config, &ca, uri("spiffe://mesh/control-plane")).await.unwrap();
    for (ca, name, reason) in [
        (&other, uri("spiffe://mesh/control-plane"), "it is not signed by one of the roots"),
        (
            &ca,
            uri("spiffe://elsewhere/x"),
            "its trust domain is none of those of the map: [\"mesh\", \"other\"]",
        ),
        (&ca, dns("control-plane.example"), "it has no URI, so no SPIFFE id"),
    ] {
        let error = handshake(&config, ca, name).await.unwrap_err();
        assert!(error.contains("map.json") && error.ends_with(reason), "{error:?} is not {reason:?}");
    }
    // A name that is set is validated as well.
    let named = config.with_server_name("control-plane.example");
    let error = handshake(&named, &ca, uri("spiffe://mesh/control-plane")).await.unwrap_err();
    assert!(error.ends_with("is not for the host \"control-plane.example\""), "{error}");
}

#[tokio::test]
async fn a87_a_map_that_is_unusable_is_an_error_with_its_place() {
    let folder = Folder::new();
    let map = folder.write("map.json", r#"{ "trust_domains": { "a": { "keys": [{}] } } }"#);
    let config = TlsConfig::default().with_spiffe_trust_bundle_map_file(&map);
    let error = load(&config).await.err().unwrap();
    let place = "trust_domains[\"a\"].keys[0].kty: missing";
    assert_eq!(error, format!("spiffe_trust_bundle_map_file {}: {place}", map.display()));
}

#[tokio::test]
async fn a65_the_next_connection_has_the_files_that_were_replaced() {
    let (folder, old, new, clients) = (Folder::new(), Ca::new(), Ca::new(), Ca::new());
    let config = TlsConfig::default()
        .with_ca_certificate_file(folder.write("ca.crt", old.pem()))
        .with_identity(folder.path("tls.crt"), folder.path("tls.key"));
    folder.write_identity(&clients.issue([uri("spiffe://clients/a")]));
    let (cache, server) = (TlsCache::default(), |ca: &Ca| ca.issue([dns(HOST)]).server(Some(&clients)));
    let first = load_from(&cache, &config).await.unwrap();
    secure(&first, &server(&old)).await.unwrap();
    secure(&first, &server(&new)).await.unwrap_err();
    folder.write("ca.crt", new.pem());
    let second = load_from(&cache, &config).await.unwrap();
    secure(&second, &server(&new)).await.unwrap();
    secure(&second, &server(&old)).await.unwrap_err();
    // A client certificate of an authority that the server does not know.
    folder.write_identity(&old.issue([uri("spiffe://clients/a")]));
    let third = load_from(&cache, &config).await.unwrap();
    assert!(secure(&third, &server(&new)).await.is_err());
    secure(&second, &server(&new)).await.unwrap();
}

#[tokio::test]
async fn a65_files_that_become_unusable_leave_the_last_good_material_in_use() {
    let (folder, ca, new) = (Folder::new(), Ca::new(), Ca::new());
    let config = TlsConfig::default()
        .with_ca_certificate_file(folder.write("ca.crt", ca.pem()))
        .with_identity(folder.path("tls.crt"), folder.path("tls.key"));
    folder.write_identity(&ca.issue([uri("spiffe://clients/a")]));
    let (cache, server) = (TlsCache::default(), |ca: &Ca| ca.issue([dns(HOST)]).server(Some(ca)));
    secure(&load_from(&cache, &config).await.unwrap(), &server(&ca)).await.unwrap();
    folder.write("ca.crt", "half a certif");
    // Half a rotation: a certificate that is not for the key.
    let key = fs::read(folder.path("tls.key")).unwrap();
    folder.write_identity(&new.issue([uri("spiffe://clients/a")]));
    let other_key = fs::read(folder.path("tls.key")).unwrap();
    fs::write(folder.path("tls.key"), key).unwrap();
    secure(&load_from(&cache, &config).await.unwrap(), &server(&ca)).await.unwrap();
    fs::remove_file(folder.path("tls.crt")).unwrap();
    secure(&load_from(&cache, &config).await.unwrap(), &server(&ca)).await.unwrap();
    // Another client has no last good material.
    assert!(load(&config).await.err().unwrap().starts_with("ca_certificate_file "));
    folder.write("ca.crt", new.pem());
    folder.write_identity(&new.issue([uri("spiffe://clients/a")]));
    assert_ne!(fs::read(folder.path("tls.key")).unwrap(), other_key);
    secure(&load_from(&cache, &config).await.unwrap(), &server(&new)).await.unwrap();
}

#[tokio::test]
async fn a65_sessions_are_resumed_as_long_as_the_files_are_the_same() {
    let (folder, ca) = (Folder::new(), Ca::new());
    let config = TlsConfig::default().with_ca_certificate_file(folder.write("ca.crt", ca.pem()));
    let (cache, server) = (TlsCache::default(), ca.issue([dns(HOST)]).server(None));
    let mut resumed = Vec::new();
    for connection in 0..4 {
        if connection == 2 {
            folder.write("ca.crt", format!("{}{}", ca.pem(), Ca::new().pem()));
        }
        resumed.push(secure(&load_from(&cache, &config).await.unwrap(), &server).await.unwrap());
    }
    assert_eq!(resumed, [false, true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a69_a_server_whose_certificate_is_revoked_is_refused_by_the_next_connection() {
    let (folder, lists, ca) = (Folder::new(), Folder::new(), Ca::new());
    let config = TlsConfig::default().with_ca_certificate_file(folder.write("ca.crt", ca.pem()));
    let issued = ca.issue_with([dns(HOST)], |params| params.serial_number = Some(7.into()));
    let server = issued.server(None);
    let directory = || RevocationLists::directory(lists.path(""));
    let revoking = || {
        let mut cache = TlsCache::default();
        cache.revoke_by(directory());
        cache
    };
    let cache = revoking();
    assert!(cache == revoking() && cache != TlsCache::default());
    let error = secure(&load_from(&cache, &config).await.unwrap(), &server).await.unwrap_err();
    assert!(error.contains("is not determined by the certificate revocation lists in "), "{error}");
    lists.write("a.crl", ca.revoke(&[8]).der());
    tokio::time::sleep(Duration::from_secs(601)).await;
    secure(&load_from(&cache, &config).await.unwrap(), &server).await.unwrap();
    lists.write("a.crl", ca.revoke(&[7]).der());
    tokio::time::sleep(Duration::from_secs(601)).await;
    let error = secure(&load_from(&cache, &config).await.unwrap(), &server).await.unwrap_err();
    assert!(error.contains("certificate 07 of the issuer") && error.contains("is revoked by "), "{error}");
}

#[tokio::test]
async fn tls_has_the_cryptography_that_is_set() {
    let (folder, ca, provider) = (Folder::new(), Ca::new(), fixture::provider_without_keys());
    let with = |provider: &Arc<CryptoProvider>| {
        let mut cache = TlsCache::default();
        cache.set_crypto(provider.clone());
        cache
    };
    let cache = with(&provider);
    // Providers are compared by identity, so that no client is shared that has another one.
    assert!(cache == with(&provider) && cache != with(&fixture::provider_without_keys()));
    let (certificate, key) = folder.write_identity(&ca.issue([dns(HOST)]));
    let config = TlsConfig::default().with_identity(certificate, key);
    let config = config.with_ca_certificate_file(folder.write("ca.crt", ca.pem()));
    let error = load_from(&cache, &config).await.err().unwrap();
    assert!(error.contains("refused by the provider"), "{error}");
    load(&config).await.unwrap();
}

/// The server, and the name of its certificate.
const HOST: &str = "control-plane.example";

/// A certificate and its key.
fn pair() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["x".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}
