//! Servers with TLS, certificate authorities, and certificate files.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use xdskit::control_plane::ControlPlane;

/// A control plane behind TLS that records the tokens of its clients.
pub(crate) struct TlsServer {
    pub(crate) control_plane: ControlPlane,
    addr: SocketAddr,
    task: JoinHandle<()>,
    shutdown: Option<oneshot::Sender<()>>,
    tokens: Arc<Mutex<Vec<Option<String>>>>,
}

impl TlsServer {
    /// Serves on an address that it had before, or on a free port.
    pub(crate) async fn start(
        control_plane: ControlPlane,
        addr: Option<SocketAddr>,
        tls: ServerTlsConfig,
    ) -> Self {
        let addr = addr.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let tokens = Arc::new(Mutex::new(Vec::new()));
        let noted = tokens.clone();
        let note = move |request: tonic::Request<()>| {
            let value =
                request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
            noted.lock().unwrap().push(value);
            Ok(request)
        };
        let router = tonic::transport::Server::builder()
            .tls_config(tls)
            .unwrap()
            .layer(tonic::service::InterceptorLayer::new(note))
            .add_routes(control_plane.routes());
        let (shutdown, until) = oneshot::channel();
        let incoming = TcpListenerStream::new(listener);
        let serve = router.serve_with_incoming_shutdown(incoming, async { drop(until.await) });
        let task = tokio::spawn(async move { drop(serve.await) });
        Self { control_plane, addr, task, shutdown: Some(shutdown), tokens }
    }

    pub(crate) fn uri(&self) -> String {
        self.addr.to_string()
    }

    /// The `authorization` of each opened stream, in order.
    pub(crate) fn tokens(&self) -> Vec<Option<String>> {
        self.tokens.lock().unwrap().clone()
    }

    /// Closes the listener, the streams and the connections; returns the address.
    pub(crate) async fn stop(mut self) -> SocketAddr {
        drop(self.shutdown.take());
        while !self.task.is_finished() {
            // Including those that were opened in the meantime.
            self.control_plane.disconnect(tonic::Status::unavailable("stopped"));
            tokio::task::yield_now().await;
        }
        self.addr
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A certificate authority.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn root(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn write_root(&self, path: &Path) {
        fs::write(path, self.root()).unwrap();
    }

    pub(crate) fn write_identity(&self, certificate: &Path, key: &Path) {
        let (chain, private) = self.issue("client.example.com");
        fs::write(certificate, chain).unwrap();
        fs::write(key, private).unwrap();
    }

    pub(crate) fn server_config(&self) -> ServerTlsConfig {
        self.server_config_for("127.0.0.1")
    }

    pub(crate) fn server_config_for(&self, name: &str) -> ServerTlsConfig {
        let (chain, private) = self.issue(name);
        ServerTlsConfig::new().identity(Identity::from_pem(chain, private))
    }

    /// The configuration of a server whose certificate has expired at the beginning of 2020.
    pub(crate) fn expired_config(&self) -> ServerTlsConfig {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2020, 1, 1);
        let chain = params.signed_by(&key, &self.0).unwrap().pem();
        ServerTlsConfig::new().identity(Identity::from_pem(chain, key.serialize_pem()))
    }

    /// The configuration of a server that requests client certificates of another authority.
    pub(crate) fn mutual_config(&self, clients: &Self) -> ServerTlsConfig {
        self.server_config().client_ca_root(Certificate::from_pem(clients.root()))
    }

    pub(crate) fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A directory for certificate files.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.path("client.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.path("client.key")
    }
}
