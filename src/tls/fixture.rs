//! Certificates, files and servers for tests.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::PathBuf, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationList, CertificateRevocationListParams,
    CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SanType,
    date_time_ymd,
};
use tokio_rustls::rustls::{
    ClientConfig, Error, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, KeyProvider},
    pki_types::{CertificateDer, PrivateKeyDer},
    server::WebPkiClientVerifier,
    sign::SigningKey,
};

use super::Crypto;
use crate::resource::tls::CertificateIdentity;

/// A certificate authority.
pub(crate) struct Ca(pub(crate) CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
pub(crate) struct Issued {
    pub(crate) der: CertificateDer<'static>,
    pub(crate) pem: String,
    key: KeyPair,
}

/// A directory for files, which is removed at the end.
pub(crate) struct Folder(tempfile::TempDir);

impl Ca {
    pub(crate) fn new() -> Self {
        Self::named("an authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        Self(CertifiedIssuer::self_signed(authority(name), KeyPair::generate().unwrap()).unwrap())
    }

    /// An authority whose certificate is of this one, with a serial number.
    pub(crate) fn intermediate(
        &self,
        name: &str,
        serial: u64,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Self {
        let mut params = authority(name);
        params.serial_number = Some(serial.into());
        change(&mut params);
        Self(CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &self.0).unwrap())
    }

    /// A list of revoked certificates, which is valid from 2020 to 2040.
    pub(crate) fn revoke(&self, serials: &[u64]) -> CertificateRevocationList {
        self.revoke_with(serials, |_| {})
    }

    pub(crate) fn revoke_with(
        &self,
        serials: &[u64],
        change: impl FnOnce(&mut CertificateRevocationListParams),
    ) -> CertificateRevocationList {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: (*serial).into(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let mut params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2040, 1, 1),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        change(&mut params);
        params.signed_by(&self.0).unwrap()
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn store(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    /// A certificate with these names.
    pub(crate) fn issue(&self, names: impl IntoIterator<Item = SanType>) -> Issued {
        self.issue_with(names, |_| {})
    }

    pub(crate) fn issue_with(
        &self,
        names: impl IntoIterator<Item = SanType>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issued {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = names.into_iter().collect();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { der: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// The bundle of a trust domain with this authority alone, in a map of such.
    pub(crate) fn bundle(&self) -> serde_json::Value {
        let x5c = STANDARD.encode(self.0.der());
        serde_json::json!({ "spiffe_sequence": 1, "keys": [{ "kty": "EC", "use": "x509-svid", "x5c": [x5c] }] })
    }
}

/// The cryptography of the features.
pub(crate) fn crypto() -> Crypto {
    Crypto::choose(None)
}

/// The provider of the features.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    crypto().provider().unwrap().clone()
}

/// A provider that loads no keys.
pub(crate) fn provider_without_keys() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { key_provider: &NoKeys, ..CryptoProvider::clone(&provider()) })
}

/// Refuses each key.
#[derive(Debug)]
struct NoKeys;

impl KeyProvider for NoKeys {
    fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        Err(Error::General("refused by the provider".to_owned()))
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

impl Issued {
    /// The certificate with its key, as a provider publishes it.
    pub(crate) fn identity(&self) -> CertificateIdentity {
        CertificateIdentity::from_pem(self.pem.as_str(), self.key_pem())
    }

    /// A client that trusts an authority. It has this certificate, and those behind it, and no protocols.
    pub(crate) fn client(
        &self,
        servers: &Ca,
        others: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> ClientConfig {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let chain = std::iter::once(self.der.clone()).chain(others).collect();
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        builder.with_root_certificates(servers.store()).with_client_auth_cert(chain, key).unwrap()
    }

    /// The key in DER (PKCS#8).
    pub(crate) fn key_der(&self) -> Vec<u8> {
        self.key.serialize_der()
    }

    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// A server with this certificate, which demands client certificates of an authority if one is given.
    pub(crate) fn server(&self, clients: Option<&Ca>) -> ServerConfig {
        self.server_with([], clients)
    }

    /// The same, which sends further certificates.
    pub(crate) fn server_with(
        &self,
        others: impl IntoIterator<Item = CertificateDer<'static>>,
        clients: Option<&Ca>,
    ) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(ca) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(ca.store(), provider());
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            None => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).unwrap();
        let chain = std::iter::once(self.der.clone()).chain(others).collect();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Writes a certificate and its key.
    pub(crate) fn write_identity(&self, issued: &Issued) -> (PathBuf, PathBuf) {
        (self.write("tls.crt", &issued.pem), self.write("tls.key", issued.key_pem()))
    }
}

pub(crate) fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().unwrap())
}

pub(crate) fn email(name: &str) -> SanType {
    SanType::Rfc822Name(name.try_into().unwrap())
}

pub(crate) fn ip(name: &str) -> SanType {
    SanType::IpAddress(name.parse().unwrap())
}
