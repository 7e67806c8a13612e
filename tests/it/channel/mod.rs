//! Calls through a channel, to real servers, by the configuration of an embedded control plane.

pub(crate) mod backend;
mod calls;
mod endpoints;
mod life;
mod routes;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tonic::{Request, Response, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use xdskit::{
    Bootstrap, Channel, Client,
    channel::ChannelState,
    testing::{
        ControlPlane,
        resources::{EndpointsBuilder, cluster, endpoints, listener, route, route_config},
    },
};

use self::backend::{Backend, ECHO, Raw};
use crate::common::soon;

/// A mesh with the service `shop`, of which all requests go to the cluster `cart`.
struct Mesh {
    server: ControlPlane,
    client: Client,
    channel: Channel,
}

impl Mesh {
    async fn start(backends: &[&Backend]) -> Self {
        let server = ControlPlane::start().await;
        server.set(listener("shop").rds("routes"));
        server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
        server.set(cluster("cart"));
        server.set(cart(backends));
        Self::of(server)
    }

    fn of(server: ControlPlane) -> Self {
        let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap())
            .deletion_grace(Duration::ZERO)
            .build()
            .unwrap();
        let channel = client
            .channel("xds:///shop")
            .connect_backoff(Duration::from_millis(50), Duration::from_millis(200))
            .build()
            .unwrap();
        Self { server, client, channel }
    }

    async fn call(&self, method: &'static str, message: &'static str) -> Result<Response<Bytes>, Status> {
        call(&self.channel, method, Request::new(message.into())).await
    }

    /// How many of some calls each backend answers.
    async fn shares(&self, calls: usize) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for _ in 0..calls {
            let response = self.call(ECHO, "hello").await.unwrap();
            *shares.entry(backend_of(&response)).or_default() += 1;
        }
        shares
    }

    /// Makes calls until they show something.
    async fn until(&self, mut is_shown: impl FnMut(Result<String, Status>) -> bool) {
        soon(async {
            while !is_shown(self.call(ECHO, "hello").await.map(|it| backend_of(&it))) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    async fn ready(&self) {
        assert!(self.channel.wait_ready(Duration::from_secs(20)).await, "{:?}", self.channel);
    }

    /// Waits for a state.
    async fn becomes(&self, expected: ChannelState) {
        let mut states = self.channel.watch_state();
        soon(async { while states.next().await.expect("it is there") != expected {} }).await;
    }
}

fn cart(backends: &[&Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = backends.iter().map(|it| it.text()).collect();
    endpoints("cart").locality("eu", "a", addresses.iter().map(String::as_str))
}

fn backend_of(response: &Response<Bytes>) -> String {
    response.metadata().get("x-backend").unwrap().to_str().unwrap().to_owned()
}

async fn call(
    channel: &Channel,
    method: &'static str,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, Status> {
    let mut grpc = Grpc::new(channel.clone());
    soon(grpc.ready()).await.unwrap();
    soon(grpc.unary(request, PathAndQuery::from_static(method), Raw)).await
}
