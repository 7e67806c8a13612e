//! gRPC's xDS interoperability tests: the example `interop_client` on this crate's channel, the same client on today's grpc-go, and
//! gRPC-Go's own client on an older one do the same, by the same configuration of this crate's control plane and with the same
//! backends. Each test compares where their calls go and how they end.

mod channelz;
mod distributions;
mod failures;
mod limits;
mod lookups;
mod routing;

#[allow(dead_code, reason = "a driver needs a part of it")]
#[path = "../../examples/interop_client/codec.rs"]
mod codec;
#[allow(dead_code, reason = "a driver needs a part of it")]
#[path = "../../examples/interop_client/messages.rs"]
mod messages;

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join3;
use prost::Message;
use serde_json::json;
use tokio::{
    process::Command,
    select,
    time::{Instant, sleep},
};
use tonic::{
    Code, Request,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use xdskit::testing::{
    TestControlPlane,
    resources::{EndpointsBuilder, RouteBuilder, cluster, endpoints, listener, route, route_config},
};

use self::{
    codec::Proto,
    messages::{
        ClientConfigureRequest, Empty, LoadBalancerAccumulatedStatsResponse, LoadBalancerStatsRequest,
        LoadBalancerStatsResponse, Metadata, RpcType,
    },
};
use crate::{
    backend::{Backend, Language},
    library::within,
    peer::{free_port, program},
    process::{PATIENCE, Process},
};

/// The clients of the service `shop`, whose calls go to the cluster `cart` at first.
struct Trio {
    server: TestControlPlane,
    /// This crate's, that on today's grpc-go, and gRPC-Go's original.
    all: [Client; 3],
}

/// A running client of the tests.
struct Client {
    process: Process,
    services: Channel,
    /// The port of its services.
    port: u64,
    name: &'static str,
}

/// What a client calls: the metadata by method, and the deadline.
#[derive(Clone, Copy)]
struct Load<'a> {
    types: &'a [RpcType],
    metadata: &'a [(RpcType, &'a str, &'a str)],
    timeout_sec: i32,
}

/// How many calls of a method ended with each status, by its number.
type Codes = BTreeMap<(RpcType, i32), i32>;

impl Trio {
    /// Starts all with these flags. The cluster has these backends.
    async fn start(flags: &[&str], backends: &[&Backend]) -> Self {
        Self::start_each([flags; 3], backends).await
    }

    /// The same with other flags for each client.
    async fn start_each(flags: [&[&str]; 3], backends: &[&Backend]) -> Self {
        let server = mesh(backends).await;
        let all = join3(
            Client::start("interop_client", "XDSKIT_INTEROP_CLIENT", &server, flags[0]),
            Client::start("grpcgo", "XDSKIT_INTEROP_GRPC_GO", &server, flags[1]),
            Client::start_original(&server, flags[2]),
        )
        .await
        .into();
        Self { server, all }
    }

    fn set_routes(&self, routes: impl IntoIterator<Item = RouteBuilder>) {
        self.server.set(route_config("routes").virtual_host(["*"], routes));
    }

    /// Does something with all at the same time. The results are in the order of the clients.
    async fn each<T>(&self, act: impl AsyncFn(&Client) -> T) -> [T; 3] {
        let [ours, go, original] = &self.all;
        join3(act(ours), act(go), act(original)).await.into()
    }

    /// Stops the calls, some of which were routed to new clusters, and asserts that none of ours has failed. On grpc-go the routes come
    /// before the picker that has their new clusters, and calls in between are UNAVAILABLE (CH1.19): those that begin in a moment, and up
    /// to grpc-go 1.64 all until the endpoints of the cluster are received.
    async fn stop_after_new_clusters(&self) {
        let all = self.each(async |client| client.stop().await).await;
        for (codes, permitted) in all.iter().zip([0, 4, i32::MAX]) {
            let failures = codes.iter().filter(|((_, code), _)| *code != 0);
            assert!(failures.clone().all(|((_, code), _)| *code == Code::Unavailable as i32), "{all:?}");
            assert!(
                failures.map(|(_, calls)| calls).sum::<i32>() <= permitted,
                "{permitted} instead of {all:?}"
            );
        }
    }

    /// Waits until exactly these backends receive the next 100 calls of each client, none of which fails.
    async fn reach(&self, backends: &[&str]) {
        self.each(async |client| client.reach(backends).await).await;
    }
}

impl Client {
    async fn start(name: &'static str, variable: &str, server: &TestControlPlane, flags: &[&str]) -> Self {
        let mut process =
            Process::start(name, command(name, variable, server).arg("--stats_port=0").args(flags));
        let first = process.line(PATIENCE).await.unwrap_or_default();
        let Some(port) = first["stats_port"].as_u64() else {
            panic!("{name} did not print its port but {first}:\n{}", process.log())
        };
        let services = within("the services", endpoint(port).connect()).await.expect("they are there");
        Self { process, services, port, name }
    }

    /// Starts gRPC-Go's original. It does not print its port, so it is given a free one. It ends if that was taken meanwhile, and is
    /// started again with another one.
    async fn start_original(server: &TestControlPlane, flags: &[&str]) -> Self {
        let name = "grpcgo_original";
        let mut ended = Vec::new();
        while ended.len() < 3 {
            let port = free_port();
            let mut command = command(name, "XDSKIT_INTEROP_GRPC_GO_ORIGINAL", server);
            command.arg(format!("--stats_port={port}")).args(flags.iter().copied().map(flag_of_original));
            let mut process = Process::start(name, &mut command);
            let services = async {
                loop {
                    match endpoint(port.into()).connect().await {
                        Ok(services) => return services,
                        Err(_) => sleep(Duration::from_millis(20)).await, // nothing shows when it listens
                    }
                }
            };
            select! {
                biased;
                services = within("the services of the original", services) => {
                    return Self { process, services, port: port.into(), name };
                }
                status = process.exit() => ended.push((status, process.log())),
            }
        }
        panic!("{name} ends: {ended:?}")
    }

    /// The distribution of the next calls.
    async fn distribution(&self, num_rpcs: i32) -> LoadBalancerStatsResponse {
        let request = LoadBalancerStatsRequest { num_rpcs, timeout_sec: 20, metadata_keys: Vec::new() };
        self.call("/grpc.testing.LoadBalancerStatsService/GetClientStats", request).await
    }

    /// Waits for a distribution of this many calls.
    async fn until(
        &self,
        what: &str,
        num_rpcs: i32,
        is_met: impl Fn(&LoadBalancerStatsResponse) -> bool,
    ) -> LoadBalancerStatsResponse {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.distribution(num_rpcs).await;
            if is_met(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{}: no {what}: {seen:?}\n{}", self.name, self.process.log());
        }
    }

    async fn reach(&self, backends: &[&str]) {
        let what = format!("100 calls to {backends:?} alone");
        self.until(&what, 100, |seen| seen.num_failures == 0 && seen.rpcs_by_peer.keys().eq(backends)).await;
    }

    /// What it calls from now on.
    async fn configure(&self, load: Load<'_>) {
        let metadata = load.metadata.iter().map(|(r#type, key, value)| Metadata {
            r#type: (*r#type).into(),
            key: (*key).into(),
            value: (*value).into(),
        });
        let request = ClientConfigureRequest {
            types: load.types.iter().map(|it| (*it).into()).collect(),
            metadata: metadata.collect(),
            timeout_sec: load.timeout_sec,
        };
        let Empty {} = self.call("/grpc.testing.XdsUpdateClientConfigureService/Configure", request).await;
    }

    async fn accumulated(&self) -> LoadBalancerAccumulatedStatsResponse {
        self.call("/grpc.testing.LoadBalancerStatsService/GetClientAccumulatedStats", Empty {}).await
    }

    /// Makes no more calls, and waits until all have ended. Returns how many ended with each status so far.
    async fn stop(&self) -> Codes {
        self.configure(Load { types: &[], metadata: &[], timeout_sec: 0 }).await;
        self.when("the end of the calls", |stats| {
            let of = stats.stats_per_method.values();
            of.clone().all(|it| it.rpcs_started == it.result.values().sum::<i32>()).then(|| codes(stats))
        })
        .await
    }

    /// Makes at least this many calls of each method, and waits until all have ended. Returns how they ended.
    async fn run(&self, load: Load<'_>, calls: i32) -> Codes {
        let before = self.stop().await;
        let of = |codes: &Codes, of: RpcType| -> i32 {
            codes.iter().filter(|((kind, _), _)| *kind == of).map(|(_, calls)| calls).sum()
        };
        self.configure(load).await;
        self.when("the calls", |stats| {
            let now = codes(stats);
            load.types.iter().all(|kind| of(&now, *kind) - of(&before, *kind) >= calls).then_some(())
        })
        .await;
        let mut ended = self.stop().await;
        for (key, calls) in before {
            *ended.entry(key).or_default() -= calls;
        }
        ended.retain(|_, calls| *calls != 0);
        ended
    }

    /// Makes calls until all of at least 30 of each method have ended as expected.
    async fn all_end(&self, load: Load<'_>, expected: &[(RpcType, Code)]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.run(load, 30).await;
            if ended.keys().copied().eq(expected.iter().map(|(kind, code)| (*kind, (*code).into()))) {
                return;
            }
            let log = self.process.log();
            assert!(Instant::now() < deadline, "{}: {ended:?} instead of {expected:?}\n{log}", self.name);
        }
    }

    /// Waits until the counts show something.
    async fn when<T>(
        &self,
        what: &str,
        mut shown: impl FnMut(&LoadBalancerAccumulatedStatsResponse) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.accumulated().await;
            if let Some(shown) = shown(&stats) {
                return shown;
            }
            assert!(Instant::now() < deadline, "{}: no {what}: {stats:?}\n{}", self.name, self.process.log());
            sleep(Duration::from_millis(20)).await; // the counts are polled
        }
    }

    async fn call<Q: Message + 'static, R: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: Q,
    ) -> R {
        let path = PathAndQuery::from_static(method);
        let mut grpc = Grpc::new(self.services.clone());
        within("the services", grpc.ready()).await.expect("they are there");
        let response = within(method, grpc.unary(Request::new(request), path, Proto::<Q, R>::new())).await;
        response
            .unwrap_or_else(|status| panic!("{}: {status}\n{}", self.name, self.process.log()))
            .into_inner()
    }
}

/// The service `shop`, whose calls go to the cluster `cart` with these backends.
async fn mesh(backends: &[&Backend]) -> TestControlPlane {
    let server = TestControlPlane::start().await;
    server.set(listener("shop").rds("routes"));
    server.set(cluster("cart"));
    server.set(locality(endpoints("cart"), "a", 0, backends));
    server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    server
}

/// The command of a client, with its target and bootstrap.
fn command(name: &str, variable: &str, server: &TestControlPlane) -> Command {
    let server = json!({"server_uri": server.addr().to_string(), "channel_creds": [{"type": "insecure"}]});
    let bootstrap = json!({"xds_servers": [server], "node": {"id": name}}).to_string();
    let mut command = Command::new(program(variable));
    command.arg("--server=xds:///shop");
    command.env("GRPC_XDS_BOOTSTRAP_CONFIG", bootstrap).env_remove("GRPC_XDS_BOOTSTRAP");
    command.env("GRPC_GO_LOG_SEVERITY_LEVEL", "warning");
    command
}

fn endpoint(port: u64) -> Endpoint {
    Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URI")
}

/// The flag of gRPC-Go's original that stands for one of the common flags.
fn flag_of_original(flag: &str) -> String {
    match flag.split_once('=') {
        Some(("--fail_on_failed_rpcs", value)) => format!("--fail_on_failed_rpc={value}"),
        Some(("--rpc_timeout_sec", value)) => format!("--rpc_timeout={value}s"),
        _ => flag.to_owned(),
    }
}

/// How calls ended, in the order of the methods and the statuses.
fn codes(stats: &LoadBalancerAccumulatedStatsResponse) -> Codes {
    let mut codes = Codes::new();
    for (name, of) in &stats.stats_per_method {
        let kinds = [RpcType::EmptyCall, RpcType::UnaryCall];
        let kind = kinds.into_iter().find(|it| it.type_name() == name).expect("it is one of both");
        codes.extend(of.result.iter().map(|(code, calls)| ((kind, *code), *calls)));
    }
    codes
}

async fn backends<const N: usize>(names: [&'static str; N]) -> [Backend; N] {
    let started = futures_util::future::join_all(names.map(|name| Backend::start(Language::Go, name)));
    started.await.try_into().ok().expect("there is one for each")
}

/// Adds endpoints in one locality, by zone and priority.
fn locality(of: EndpointsBuilder, zone: &str, priority: u32, backends: &[&Backend]) -> EndpointsBuilder {
    let addresses: Vec<_> = backends.iter().map(|it| it.address()).collect();
    of.locality("eu", zone, addresses.iter().map(String::as_str)).priority(priority)
}

const UNARY: RpcType = RpcType::UnaryCall;
const EMPTY: RpcType = RpcType::EmptyCall;
const BEHAVIOR: &str = "rpc-behavior";
const UNARY_CALLS: Load<'_> = Load { types: &[UNARY], metadata: &[], timeout_sec: 0 };
