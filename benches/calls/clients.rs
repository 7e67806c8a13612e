//! The clients that are compared, behind one type.

use std::{fs, net::SocketAddr};

use tokio::runtime::Runtime;
use tonic::transport::{Certificate, Channel as TonicChannel, ClientTlsConfig, Endpoint};
use xdskit::{Channel, config::TlsConfig};

use super::{
    direct::Direct,
    invoke,
    load::{Call, Load, run},
    mesh::Mesh,
    tls::{NAME, Pki},
};

/// A client with connections to some servers.
pub(crate) enum Client {
    /// `h2` without more.
    Direct(Direct),
    /// tonic's channel; to more than one server, its channel that balances.
    Tonic(TonicChannel),
    Xdskit(Channel),
    /// The same channel with a client of the crate `grpc`.
    Invoke(Channel),
}

impl Client {
    pub(crate) async fn direct(addresses: &[SocketAddr]) -> Self {
        Self::Direct(Direct::connect(addresses).await)
    }

    /// It connects with its first calls. On the current runtime.
    pub(crate) fn tonic(addresses: &[SocketAddr]) -> Self {
        let endpoint = |address: &SocketAddr| Endpoint::from_shared(format!("http://{address}"));
        let mut endpoints = addresses.iter().map(|it| endpoint(it).expect("it is valid"));
        match addresses {
            [_] => Self::Tonic(endpoints.next().expect("there is one").connect_lazy()),
            _ => Self::Tonic(TonicChannel::balance_list(endpoints)),
        }
    }

    /// It connects with its first calls. On the current runtime.
    pub(crate) fn xdskit(mesh: &Mesh) -> Self {
        Self::Xdskit(mesh.channel().build().expect("the target is valid"))
    }

    /// To one server with TLS. It connects with its first calls. On the current runtime.
    pub(crate) fn tonic_secured(address: SocketAddr, pki: &Pki) -> Self {
        let roots = Certificate::from_pem(fs::read(pki.certificate()).expect("it is there"));
        let tls = ClientTlsConfig::new().ca_certificate(roots).domain_name(NAME);
        let endpoint = Endpoint::from_shared(format!("https://{address}")).expect("it is valid");
        Self::Tonic(endpoint.tls_config(tls).expect("it is valid").connect_lazy())
    }

    /// With TLS. It connects with its first calls. On the current runtime.
    pub(crate) fn xdskit_secured(mesh: &Mesh, pki: &Pki) -> Self {
        let tls = TlsConfig::default().with_ca_certificate_file(pki.certificate());
        let builder = mesh.channel().xds_credentials(tls);
        Self::Xdskit(builder.build().expect("the target is valid"))
    }

    pub(crate) fn run(&self, runtime: &Runtime, load: Load) -> Vec<Call> {
        match self {
            Self::Direct(client) => runtime.block_on(run(client, load)),
            Self::Tonic(client) => runtime.block_on(run(client, load)),
            Self::Xdskit(client) => runtime.block_on(run(client, load)),
            Self::Invoke(client) => runtime.block_on(invoke::run(client, load)),
        }
    }
}
