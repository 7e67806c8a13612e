use std::{path::Path, sync::Arc};

use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    },
};
use tonic::codegen::StdError;

use super::in_file;
use crate::{config::TlsConfig, transport::grpc::dial::BoxedIo};

/// TLS with the certificates of one time.
pub(super) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    /// Reads the files, or the system's root certificates.
    pub(super) fn load(config: &TlsConfig) -> Result<Self, String> {
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
                let chain = certificates_of("certificate_file", certificate)?;
                let private =
                    PrivateKeyDer::from_pem_file(key).map_err(|e| in_file("private_key_file", key, &e))?;
                builder
                    .with_client_auth_cert(chain, private)
                    .map_err(|e| in_file("certificate_file", certificate, &e))?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(_), None) | (None, Some(_)) => {
                return Err("certificate_file and private_key_file come together".to_owned());
            }
        };
        client.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(Self { connector: TlsConnector::from(Arc::new(client)) })
    }

    pub(super) async fn secure(&self, io: BoxedIo, host: &str) -> Result<BoxedIo, StdError> {
        let name = ServerName::try_from(host.to_owned())?;
        let io = self.connector.connect(name, io).await?;
        if io.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err("the server does not speak HTTP/2: it did not select `h2` (ALPN)".into());
        }
        Ok(Box::new(io))
    }
}

fn roots_of(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of("ca_certificate_file", path)? {
        roots.add(certificate).map_err(|e| in_file("ca_certificate_file", path, &e))?;
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
    Err(format!("the system has no usable root certificates: {}", why.join("; ")))
}

fn certificates_of(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| in_file(field, path, &e))?;
    if certificates.is_empty() {
        return Err(in_file(field, path, &"no certificate in it"));
    }
    Ok(certificates)
}

const HTTP2: &[u8] = b"h2";
