//! Calls through a channel, to real servers, by the configuration of an embedded control plane.

mod applied;
pub(crate) mod backend;
mod builders;
mod calls;
mod cases;
mod certificate_plugins;
mod changes;
mod channelz;
mod endpoints;
mod filters;
mod grpc_clients;
mod life;
mod metrics;
mod notes;
mod policies;
mod routes;
mod scaling;
mod security;
mod states;
mod subsets;
mod weights;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tonic::{Request, Response, Status, client::Grpc, codegen::http::uri::PathAndQuery};
use xdskit::{
    Bootstrap, Channel, Client,
    channel::ChannelState,
    client::ClientBuilder,
    control_plane::AnyResource,
    pb::{
        envoy::config::{
            cluster::v3::{LoadBalancingPolicy, load_balancing_policy::Policy},
            core::v3::TypedExtensionConfig,
        },
        google::protobuf::Any,
    },
    testing::{
        TestControlPlane,
        resources::{
            ClusterBuilder, EndpointsBuilder, RouteConfigBuilder, cluster, endpoints, listener, route,
            route_config,
        },
    },
};

use self::backend::{Backend, ECHO};
use crate::common::{load::Load, raw::Raw, soon};

/// A mesh with the service `shop`, of which all requests go to the cluster `cart`.
struct Mesh {
    server: TestControlPlane,
    client: Client,
    channel: Channel,
}

impl Mesh {
    async fn start(backends: &[&Backend]) -> Self {
        Self::start_with(cluster("cart"), backends).await
    }

    async fn start_with(cart_cluster: ClusterBuilder, backends: &[&Backend]) -> Self {
        let server = TestControlPlane::start().await;
        server.set(listener("shop").rds("routes"));
        server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
        server.set(cart_cluster);
        server.set(cart(backends));
        Self::of(server)
    }

    fn of(server: TestControlPlane) -> Self {
        Self::with(server, |client| client)
    }

    /// With settings of the client.
    fn with(server: TestControlPlane, settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap())
            .deletion_grace(Duration::ZERO);
        let client = settings(client).build().unwrap();
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

    /// Calls until each of these backends, and no other, has answered.
    async fn reach(&self, names: &[&str]) {
        let mut seen = BTreeSet::new();
        self.until(|name| {
            seen.insert(name.unwrap());
            seen.len() == names.len()
        })
        .await;
        assert!(seen.iter().eq(names), "{seen:?}");
    }

    /// Whether a backend gets its share of 1,000 calls, in percent, within 3 standard deviations. Chance exceeds them once in
    /// 370 times, so there are up to 3 rounds.
    async fn has_share(&self, name: &str, percent: usize) {
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let calls = self.shares(1_000).await.remove(name).unwrap_or_default();
            if calls.abs_diff(10 * percent).pow(2) <= 9 * percent * (100 - percent) / 10 {
                return;
            }
            rounds.push(calls);
        }
        panic!("{name} gets {rounds:?} of 1,000 calls instead of {percent} %");
    }

    /// Calls of some tasks, one after the other.
    fn load(&self, tasks: usize) -> Load {
        let channel = self.channel.clone();
        Load::start(tasks, move || {
            let channel = channel.clone();
            async move { call(&channel, ECHO, Request::new("hello".into())).await.map(|it| backend_of(&it)) }
        })
    }

    /// Changes a resource, and waits until calls use it.
    async fn apply(&self, resource: impl Into<AnyResource>) {
        let resource = resource.into();
        let type_url = resource.type_url().to_owned();
        self.server.set(resource);
        self.applied(&type_url).await;
    }

    /// Waits until the client has accepted the current version of a type, and calls use it.
    async fn applied(&self, type_url: &str) {
        let version = self.server.version(type_url);
        while self.server.expect_ack(type_url).await.unwrap().version != version {}
        self.channel.wait_until_applied(Duration::from_secs(20)).await.unwrap();
    }

    async fn ready(&self) {
        self.channel.wait_ready(Duration::from_secs(20)).await.unwrap();
    }

    /// Waits for a state.
    async fn becomes(&self, expected: ChannelState) {
        let mut states = self.channel.watch_state();
        soon(async { while states.next().await.expect("it is there") != expected {} }).await;
    }
}

/// The cluster `cart` with a list of policies.
fn cluster_with(policies: impl Into<Vec<Policy>>) -> ClusterBuilder {
    cluster("cart").edit(|it| {
        it.load_balancing_policy = Some(LoadBalancingPolicy { policies: policies.into() });
    })
}

/// A load balancing policy of a type of Envoy's extensions, or of another one with a `:` before it.
fn policy(type_name: &str, config: &impl Message) -> Policy {
    let own = || format!("envoy.extensions.load_balancing_policies.{type_name}");
    let type_name = type_name.strip_prefix(':').map_or_else(own, ToOwned::to_owned);
    let type_url = format!("type.googleapis.com/{type_name}");
    let typed_config = Some(Any { type_url, value: config.encode_to_vec().into() });
    Policy { typed_extension_config: Some(TypedExtensionConfig { typed_config, ..Default::default() }) }
}

fn cart(backends: &[&Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = backends.iter().map(|it| it.text()).collect();
    endpoints("cart").locality("eu", "a", addresses.iter().map(String::as_str))
}

/// Endpoints of a cluster in one locality, by zone and priority.
fn locality(of: EndpointsBuilder, zone: &str, priority: u32, backends: &[&Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = backends.iter().map(|it| it.text()).collect();
    of.locality("eu", zone, addresses.iter().map(String::as_str)).priority(priority)
}

/// Makes calls until one succeeds. A call that fails at once does not yield by itself.
async fn until_ok<T, F: Future<Output = Result<T, Status>>>(call: impl Fn() -> F) {
    while call().await.is_err() {
        tokio::task::yield_now().await;
    }
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
