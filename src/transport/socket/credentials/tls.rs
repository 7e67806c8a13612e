use std::{path::Path, sync::Arc};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, Error, InconsistentKeys, RootCertStore,
        crypto::{CryptoProvider, ring},
        pki_types::{
            CertificateDer, PrivateKeyDer, ServerName,
            pem::{self, PemObject},
        },
        sign::{CertifiedKey, SingleCertAndKey},
    },
};
use tonic::codegen::StdError;

use super::{super::BoxedIo, Alpn, Secured, in_file};
use crate::config::TlsConfig;

/// A TLS configuration with certificates as of one time.
pub(super) struct Tls {
    connector: TlsConnector,
    alpn: Alpn,
    /// The server name, in place of the host.
    server_name: Option<String>,
}

impl Tls {
    /// Reads the files, or the system's root certificates.
    pub(super) fn load(config: &TlsConfig, alpn: Alpn) -> Result<Self, String> {
        if let Some(path) = &config.spiffe_trust_bundle_map_file {
            return Err(in_file("spiffe_trust_bundle_map_file", path, &"not supported yet"));
        }
        let roots = match &config.ca_certificate_file {
            Some(path) => roots_of(path)?,
            None => system_roots()?,
        };
        let provider =
            CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots);
        let mut client = match (&config.certificate_file, &config.private_key_file) {
            (Some(certificate), Some(key)) => {
                let identity = identity(certificate, key, builder.crypto_provider())?;
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

    pub(super) async fn secure(&self, io: BoxedIo, host: &str) -> Result<Secured, StdError> {
        let name = ServerName::try_from(self.server_name.as_deref().unwrap_or(host).to_owned())?;
        let io = self.connector.connect(name, io).await?;
        let selected_http2 = io.get_ref().1.alpn_protocol() == Some(HTTP2);
        if self.alpn == Alpn::Http2 && !selected_http2 {
            return Err("the server does not use HTTP/2: it did not select `h2` (ALPN)".into());
        }
        Ok(Secured { io: Box::new(io), selected_http2 })
    }
}

/// The client's identity. Certificate and key are two files, of which a rotation may have replaced only one.
fn identity(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<SingleCertAndKey, String> {
    let chain = certificates_of("certificate_file", certificate)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| in_file("private_key_file", key, &pem_problem(&e, "private key")))?;
    let private = provider
        .key_provider
        .load_private_key(private)
        .map_err(|e| in_file("private_key_file", key, &format!("a key that cannot be used: {e}")))?;
    let pair = CertifiedKey::new(chain, private);
    match pair.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair.into()),
        Err(Error::InconsistentKeys(_)) => {
            let other = format!("not for the key in private_key_file {}: replace both", key.display());
            Err(in_file("certificate_file", certificate, &other))
        }
        Err(e) => Err(in_file("certificate_file", certificate, &unusable(&e))),
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of("ca_certificate_file", path)? {
        roots.add(certificate).map_err(|e| in_file("ca_certificate_file", path, &unusable(&e)))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let why: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
    Err(format!("no ca_certificate_file, and the system has no usable root certificates: {}", why.join("; ")))
}

fn certificates_of(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| in_file(field, path, &pem_problem(&e, "certificate")))?;
    if certificates.is_empty() {
        return Err(in_file(field, path, &pem_problem(&pem::Error::NoItemsFound, "certificate")));
    }
    Ok(certificates)
}

/// The reason why a PEM file has no such item.
fn pem_problem(error: &pem::Error, expected: &str) -> String {
    if let pem::Error::Io(error) = error {
        return error.to_string();
    }
    if let pem::Error::NoItemsFound = error {
        return format!("no {expected} in it");
    }
    format!("not a PEM file: {error}")
}

/// rustls uses "invalid peer certificate" for own certificates, too.
fn unusable(error: &Error) -> String {
    if let Error::InvalidCertificate(why) = error {
        return format!("a certificate that cannot be used: {why:?}");
    }
    format!("a certificate that cannot be used: {error}")
}

const HTTP2: &[u8] = b"h2";

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

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

    /// A certificate and its key.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["x".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}
