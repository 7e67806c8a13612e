//! TLS to management servers, on rustls.

use std::{path::Path, sync::Arc};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::ServerName,
        sign::{CertifiedKey, SingleCertAndKey},
    },
};
use tonic::codegen::StdError;

use super::Secured;
use crate::{
    config::TlsConfig,
    dial::{Alpn, Socket},
    tls::{
        NameRule, TrustBundleMap, TrustRoots, Verifier,
        files::{self, Content},
        refusal,
    },
};

/// A TLS configuration with certificates as of one time.
pub(super) struct Tls {
    /// The settings of rustls.
    connector: TlsConnector,
    alpn: Alpn,
    /// The server name of the configuration; `None` for the host of the server.
    server_name: Option<String>,
}

impl Tls {
    /// Reads the files, or the system's root certificates.
    pub(super) fn load(config: &TlsConfig, alpn: Alpn) -> Result<Self, String> {
        let builder = ClientConfig::builder_with_provider(files::crypto())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let builder = match &config.spiffe_trust_bundle_map_file {
            Some(map) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(spiffe_verifier(map, config)?))
            }
            None => builder.with_root_certificates(roots(config.ca_certificate_file.as_deref())?),
        };
        let mut client = match (&config.certificate_file, &config.private_key_file) {
            (Some(certificate), Some(key)) => {
                let identity = SingleCertAndKey::from(identity(certificate, key)?);
                builder.with_client_cert_resolver(Arc::new(identity))
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) | (None, Some(_)) => {
                return Err("certificate_file and private_key_file come together".to_owned());
            }
        };
        client.alpn_protocols = match alpn {
            Alpn::Http2 => vec![HTTP2.to_vec()],
            #[cfg(feature = "rest")]
            Alpn::Http2OrHttp1 => vec![HTTP2.to_vec(), b"http/1.1".to_vec()],
        };
        let connector = TlsConnector::from(Arc::new(client));
        Ok(Self { connector, alpn, server_name: config.server_name.clone() })
    }

    /// Makes the handshake with a host of this name or address.
    pub(super) async fn secure(&self, io: Socket, host: &str) -> Result<Secured, StdError> {
        let name = ServerName::try_from(self.server_name.as_deref().unwrap_or(host).to_owned())?;
        let connected = self.connector.connect(name, io).await;
        let io = connected.map_err(|e| match refusal(&e) {
            Some(refused) => StdError::from(refused.to_string()),
            None => e.into(),
        })?;
        let selected_http2 = io.get_ref().1.alpn_protocol() == Some(HTTP2);
        if self.alpn == Alpn::Http2 && !selected_http2 {
            return Err("the server does not use HTTP/2: it did not select `h2` (ALPN)".into());
        }
        Ok(Secured { io: Box::new(io), selected_http2 })
    }
}

/// Reads the client's certificate with its key.
fn identity(certificate: &Path, key: &Path) -> Result<CertifiedKey, String> {
    let chain = files::read("certificate_file", certificate)?;
    let private = files::read("private_key_file", key)?;
    let (chain, private) =
        (Content { path: certificate, bytes: &chain }, Content { path: key, bytes: &private });
    files::identity(&chain, &private, &files::crypto()).map_err(|unusable| unusable.reason)
}

/// Reads the root certificates; those of the system without a path.
fn roots(path: Option<&Path>) -> Result<RootCertStore, String> {
    let Some(path) = path else {
        let system = files::system_certificates().and_then(|found| files::system_roots(&found));
        return system.map_err(|why| format!("no ca_certificate_file, and {why}"));
    };
    let bytes = files::read("ca_certificate_file", path)?;
    files::roots(&Content { path, bytes: &bytes }).map_err(|unusable| unusable.reason)
}

/// Verifies the server by the bundle of its trust domain, in place of roots (A87). Such a certificate is for an id and
/// seldom for a host, so only a host that is set explicitly is verified, too.
fn spiffe_verifier(map: &Path, config: &TlsConfig) -> Result<Verifier, String> {
    let field = "spiffe_trust_bundle_map_file";
    let bundles = TrustBundleMap::parse(&files::read(field, map)?);
    let bundles = bundles.map_err(|why| files::in_file(field, map, &why))?;
    let rule = match &config.server_name {
        Some(name) => NameRule::Host(ServerName::try_from(name.clone()).map_err(|e| e.to_string())?),
        None => NameRule::Any,
    };
    let origin = format!("{field} {}", map.display()).into();
    Ok(Verifier {
        roots: Arc::new(TrustRoots::Spiffe(bundles)),
        origin,
        rule,
        crypto: files::crypto(),
        #[cfg(feature = "channel")]
        revocation: None,
    })
}

const HTTP2: &[u8] = b"h2";

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, SanType};
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::tls::fixture::{Ca, Folder, dns, uri};

    #[test]
    fn a65_files_that_cannot_be_used_are_named_with_the_reason() {
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
        assert!(Tls::load(&pair(&good, &key), Alpn::Http2).is_ok());
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
            let error = Tls::load(&config, Alpn::Http2).err().unwrap();
            let start = format!("{field} {}: {reason}", path.display());
            assert!(error.starts_with(&start), "{error:?} is not {start:?}");
        }
    }

    /// Makes a handshake with a server of a certificate that has this name.
    async fn handshake(config: &TlsConfig, ca: &Ca, name: SanType) -> Result<(), String> {
        let server = Arc::new(ca.issue([name]).server(None));
        let (near, far) = tokio::io::duplex(1 << 16);
        let tls = Tls::load(config, Alpn::Http2)?;
        let secure = tls.secure(Socket::Memory(Box::new(near)), "control-plane.example");
        let (secured, _) = tokio::join!(secure, TlsAcceptor::from(server).accept(far));
        secured.map(drop).map_err(|e| e.to_string())
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

    #[test]
    fn a87_a_map_that_is_unusable_is_an_error_with_its_place() {
        let folder = Folder::new();
        let map = folder.write("map.json", r#"{ "trust_domains": { "a": { "keys": [{}] } } }"#);
        let config = TlsConfig::default().with_spiffe_trust_bundle_map_file(&map);
        let error = Tls::load(&config, Alpn::Http2).err().unwrap();
        let place = "trust_domains[\"a\"].keys[0].kty: missing";
        assert_eq!(error, format!("spiffe_trust_bundle_map_file {}: {place}", map.display()));
    }

    /// A certificate and its key.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["x".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
