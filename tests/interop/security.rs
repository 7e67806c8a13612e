//! Backends with TLS that demand client certificates, in each language: certificates for tests of the channel's credentials,
//! and that the backends read them as the tests expect.

use std::{fs, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};
use serde_json::{Value, json};
use tonic::{
    Request, Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    backend::{Backend, Language},
    channel::{ECHO, with_each_backend},
    library::within,
    raw::Raw,
};

with_each_backend! {
    a_backend_knows_the_names_of_its_client_and_demands_a_certificate,
}

/// A certificate authority, whose files are in a directory of the test.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// The PEM files of a certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// What a backend has its TLS from.
#[derive(Debug, Clone)]
pub(crate) struct ServerFiles {
    pub(crate) pair: Pair,
    /// The authority of the client certificates that it demands, if it does.
    pub(crate) client_ca: Option<PathBuf>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate with the name of its issuer is one that has signed itself, to C-core.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it can sign itself");
        let folder = tempfile::tempdir().expect("a directory");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("it can be written");
        Self { issuer, folder }
    }

    /// The PEM file of its certificate.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The bundle of a trust domain with this authority alone, as in a map of such (SPIFFE).
    pub(crate) fn bundle(&self) -> Value {
        let x5c = STANDARD.encode(self.issuer.der());
        json!({"spiffe_sequence": 1, "keys": [{"kty": "EC", "use": "x509-svid", "x5c": [x5c]}]})
    }

    /// Writes a certificate with these names and its key to `NAME.pem` and `NAME.key`, in place of those before.
    pub(crate) fn write(&self, name: &str, names: impl IntoIterator<Item = SanType>) -> Pair {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are valid");
        params.subject_alt_names = names.into_iter().collect();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        let file = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        let pair = Pair { certificate: file("pem"), key: file("key") };
        fs::write(&pair.certificate, certificate.pem()).expect("it can be written");
        fs::write(&pair.key, key.serialize_pem()).expect("it can be written");
        pair
    }
}

pub(crate) fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("a name"))
}

pub(crate) fn uri(name: &str) -> SanType {
    SanType::URI(name.try_into().expect("a URI"))
}

pub(crate) fn email(name: &str) -> SanType {
    SanType::Rfc822Name(name.try_into().expect("an address"))
}

pub(crate) fn ip(name: &str) -> SanType {
    SanType::IpAddress(name.parse().expect("an address"))
}

async fn a_backend_knows_the_names_of_its_client_and_demands_a_certificate(language: Language) {
    let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let names = [dns("a.example"), uri("spiffe://servers/a"), email("a@example.com"), ip("127.0.0.1")];
    let files = ServerFiles { pair: servers.write("server", names), client_ca: Some(clients.root()) };
    let backend = Backend::start_tls(language, "one", files).await;
    let of = |authority: &Authority| authority.write("client", [uri("spiffe://clients/a"), dns("c.example")]);
    let seen = client_seen(&backend, &servers, Some(of(&clients))).await.expect("it is trusted");
    assert_eq!(seen, "c.example,spiffe://clients/a");
    client_seen(&backend, &servers, None).await.expect_err("it demands a certificate");
    client_seen(&backend, &servers, Some(of(&strangers))).await.expect_err("it is of another authority");
}

/// Calls by tonic's own channel; returns the names that the backend has read.
async fn client_seen(backend: &Backend, servers: &Authority, pair: Option<Pair>) -> Result<String, Status> {
    let read = |path: &PathBuf| fs::read(path).expect("it can be read");
    let root = Certificate::from_pem(read(&servers.root()));
    let mut tls = ClientTlsConfig::new().ca_certificate(root).domain_name("a.example");
    if let Some(pair) = &pair {
        tls = tls.identity(Identity::from_pem(read(&pair.certificate), read(&pair.key)));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", backend.address())).expect("it is valid");
    let channel = endpoint.tls_config(tls).expect("it is valid").connect_lazy();
    let mut grpc = Grpc::new(channel);
    let call = async {
        grpc.ready().await.map_err(|e| Status::unavailable(e.to_string()))?;
        grpc.unary(Request::new(Bytes::from("hello")), PathAndQuery::from_static(ECHO), Raw).await
    };
    let response = within("the call", call).await?;
    let names = response.metadata().get("x-client").expect("the backends have it");
    Ok(names.to_str().expect("it is text").to_owned())
}
