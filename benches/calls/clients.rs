//! The clients that are compared, behind one type.

use std::net::SocketAddr;

use tokio::runtime::Runtime;
use tonic::transport::{Channel as TonicChannel, Endpoint};
use xdskit::Channel;

use super::{
    direct::Direct,
    load::{Call, Load, run},
    mesh::{Mesh, TARGET},
};

/// A client with connections to some servers.
pub(crate) enum Client {
    /// `h2` without more.
    Direct(Direct),
    /// tonic's channel; to more than one server, its channel that balances.
    Tonic(TonicChannel),
    Xdskit(Channel),
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
        Self::Xdskit(mesh.client().channel(TARGET).build().expect("the target is valid"))
    }

    pub(crate) fn run(&self, runtime: &Runtime, load: Load) -> Vec<Call> {
        match self {
            Self::Direct(client) => runtime.block_on(run(client, load)),
            Self::Tonic(client) => runtime.block_on(run(client, load)),
            Self::Xdskit(client) => runtime.block_on(run(client, load)),
        }
    }
}
