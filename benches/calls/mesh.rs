//! A control plane on a thread of its own, for the target `xds:///shop`.

use std::{net::SocketAddr, sync::mpsc, thread, time::Duration};

use super::{cores, features::Feature};
use tokio::runtime;
use xdskit::{
    Bootstrap, Client,
    channel::ChannelBuilder,
    config::{Node, Server},
    control_plane::{AnyResource, ControlPlane, LoadReporting},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

pub(crate) const TARGET: &str = "xds:///shop";
pub(crate) const CLUSTER: &str = "cart";

/// A control plane with one cluster. It runs until the process ends.
#[derive(Clone)]
pub(crate) struct Mesh {
    pub(crate) control_plane: ControlPlane,
    address: SocketAddr,
    features: Vec<Feature>,
}

impl Mesh {
    pub(crate) fn start(backends: &[SocketAddr]) -> Self {
        Self::with(backends, &[])
    }

    /// With features of the route, the cluster and the channel.
    pub(crate) fn with(backends: &[SocketAddr], features: &[Feature]) -> Self {
        let control_plane = ControlPlane::new();
        let mesh = control_plane.clone();
        let (address, bound) = mpsc::channel();
        thread::spawn(move || {
            cores::pin_servers();
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = mesh.serve("127.0.0.1:0").await.expect("a free port");
                address.send(server.addr()).expect("it is awaited");
                std::future::pending::<()>().await;
            });
        });
        let mesh =
            Self { control_plane, address: bound.recv().expect("it was bound"), features: features.to_vec() };
        mesh.control_plane.ask_reports(LoadReporting::all(Duration::from_secs(1)));
        mesh.control_plane.update(|tx| {
            tx.set(listener("shop").rds("routes"));
            let route = route::prefix("").cluster(CLUSTER);
            let route = features.iter().fold(route, |route, feature| feature.edit_route(route));
            let cluster =
                features.iter().fold(cluster(CLUSTER), |cluster, feature| feature.edit_cluster(cluster));
            tx.set(route_config("routes").virtual_host(["*"], [route]));
            tx.set(cluster).set(assignment(backends));
        });
        mesh
    }

    pub(crate) fn bootstrap(&self) -> Bootstrap {
        let server = Server::new(self.address.to_string()).insecure();
        Bootstrap::builder().node(Node::new("bench")).server(server).build().expect("it is valid")
    }

    /// A channel with a client of its own, on the current runtime.
    pub(crate) fn channel(&self) -> ChannelBuilder {
        let channel = self.client().channel(TARGET);
        self.features.iter().fold(channel, |channel, feature| feature.edit_channel(channel))
    }

    /// A client of its own, on the current runtime.
    pub(crate) fn client(&self) -> Client {
        Client::builder(self.bootstrap()).build().expect("it is valid")
    }
}

/// The endpoints of the cluster, in one locality.
pub(crate) fn assignment(backends: &[SocketAddr]) -> AnyResource {
    let addresses: Vec<_> = backends.iter().map(ToString::to_string).collect();
    endpoints(CLUSTER).locality("eu", "a", addresses.iter().map(String::as_str)).into()
}
