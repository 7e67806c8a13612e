//! Peers with TLS, and what channels need of them.

use std::{fs, path::PathBuf, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, SanType, date_time_ymd,
};
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};

use crate::{channel::FallbackCredentials, config::TlsConfig};

/// A certificate authority, with the files of what it issues.
pub(in crate::channel) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Ca {
    pub(in crate::channel) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let ca = Self { issuer, folder: tempfile::tempdir().unwrap() };
        fs::write(ca.file(), ca.issuer.pem()).unwrap();
        ca
    }

    /// The file of its certificate.
    pub(in crate::channel) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate and its key, in files.
    pub(in crate::channel) fn issue(&self, names: &[&str]) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.pair(names);
        let at = |end| self.folder.path().join(format!("{}.{end}", names.join("+").replace('/', "_")));
        let files = (at("pem"), at("key"));
        fs::write(&files.0, certificate.pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    /// A server with a certificate for some names, which speaks HTTP/2.
    pub(in crate::channel) fn server(&self, names: &[&str]) -> ServerConfig {
        self.server_with(names, None)
    }

    /// The same, which demands certificates of its clients that a CA has issued.
    pub(in crate::channel) fn server_with(&self, names: &[&str], clients: Option<&Self>) -> ServerConfig {
        self.config(self.pair(names), clients)
    }

    fn config(
        &self,
        (certificate, key): (rcgen::Certificate, KeyPair),
        clients: Option<&Self>,
    ) -> ServerConfig {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(ca.issuer.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    /// A server with a serial number, by which its certificate can be revoked.
    pub(in crate::channel) fn server_with_serial(&self, names: &[&str], serial: u64) -> ServerConfig {
        self.config(self.pair_with(names, Some(serial)), None)
    }

    /// A file with the list of the certificates that are revoked.
    pub(in crate::channel) fn revoke(&self, serials: &[u64]) -> PathBuf {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let file = self.folder.path().join(format!("{serials:?}.crl"));
        fs::write(&file, list.signed_by(&self.issuer).unwrap().der()).unwrap();
        file
    }

    /// TLS with servers of the CA for all clusters that configure none.
    pub(in crate::channel) fn fallback(&self) -> FallbackCredentials {
        TlsConfig::default().with_ca_certificate_file(self.file()).into()
    }

    fn pair(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        self.pair_with(names, None)
    }

    fn pair_with(&self, names: &[&str], serial: Option<u64>) -> (rcgen::Certificate, KeyPair) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.serial_number = serial.map(Into::into);
        params.subject_alt_names = names.iter().map(|name| san(name)).collect();
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// A DNS name, a URI or an IP address.
fn san(name: &str) -> SanType {
    match name.parse() {
        Ok(ip) => SanType::IpAddress(ip),
        Err(_) if name.contains("://") => SanType::URI(name.try_into().unwrap()),
        Err(_) => SanType::DnsName(name.try_into().unwrap()),
    }
}
