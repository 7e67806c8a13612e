//! Calls whose clusters are looked up (RLS), by a lookup service whose responses the tests write.

mod limits;
mod metrics;
mod services;
mod status;

use bytes::BufMut as _;
use h2::Reason;
use prost::Message as _;

use super::{filters::any, peer::Received, *};
use crate::{
    channel::ChannelState,
    pb::{
        envoy::config::{
            core::v3::TypedExtensionConfig,
            route::v3::{ClusterSpecifierPlugin, route::Action, route_action::ClusterSpecifier},
        },
        google::protobuf as google,
        grpc::lookup::v1::{
            GrpcKeyBuilder, NameMatcher, RouteLookupClusterSpecifier, RouteLookupConfig, RouteLookupRequest,
            RouteLookupResponse, grpc_key_builder::Name, route_lookup_request::Reason as LookupReason,
        },
    },
};

/// A mesh whose calls are looked up, but for those of `/plain`, and its lookup service.
struct Rig {
    mesh: Mesh,
    lookup: Peer,
    /// The endpoints of the clusters `…-a` and `…-b`, and of `/plain`.
    a: Peer,
    b: Peer,
    plain: Peer,
    name: &'static str,
}

impl Rig {
    async fn start(name: &'static str, edit: impl FnOnce(&mut RouteLookupConfig)) -> Self {
        Self::with(name, Peer::start().await, |builder| builder, edit).await
    }

    async fn with(
        name: &'static str,
        lookup: Peer,
        settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
        edit: impl FnOnce(&mut RouteLookupConfig),
    ) -> Self {
        let (a, b, plain) = (Peer::start().await, Peer::start().await, Peer::start().await);
        let mut mesh = Mesh::start(&format!("{name}-plain"), &[&plain]).await;
        for (suffix, peer) in [("a", &a), ("b", &b), ("lookup", &lookup)] {
            let cluster_name = format!("{name}-{suffix}");
            mesh.server.set(cluster(&cluster_name));
            mesh.server.set(assignment(&cluster_name, &[peer]));
        }
        mesh.server.set(listener("lookup").rds("lookups"));
        let route = route::prefix("").cluster(format!("{name}-lookup"));
        mesh.server.set(route_config("lookups").virtual_host(["*"], [route]));
        let builder = mesh.client.channel("xds:///shop");
        let builder = builder.connect_backoff(Duration::from_millis(20), Duration::from_millis(100));
        mesh.channel = settings(builder).build().unwrap();
        let rig = Self { mesh, lookup, a, b, plain, name };
        rig.configure(edit);
        rig
    }

    /// Sets the configuration of the plugin.
    fn configure(&self, edit: impl FnOnce(&mut RouteLookupConfig)) {
        self.configure_each(&[("rls", "")], edit);
    }

    /// Sets plugins by their names, and the prefixes of their routes.
    fn configure_each(&self, plugins: &[(&str, &str)], edit: impl FnOnce(&mut RouteLookupConfig)) {
        let mut config = config();
        edit(&mut config);
        let specifier = RouteLookupClusterSpecifier { route_lookup_config: Some(config) };
        let typed_config = any("grpc.lookup.v1.RouteLookupClusterSpecifier", &specifier.encode_to_vec());
        let declared = plugins.iter().map(|(name, _)| ClusterSpecifierPlugin {
            extension: Some(TypedExtensionConfig {
                name: (*name).into(),
                typed_config: Some(typed_config.clone()),
            }),
            is_optional: false,
        });
        let looked_up = plugins.iter().map(|(name, prefix)| {
            route::prefix(*prefix).cluster("unused").edit(|route| {
                let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
                action.cluster_specifier = Some(ClusterSpecifier::ClusterSpecifierPlugin((*name).into()));
            })
        });
        let plain = route::prefix("/plain").cluster(format!("{}-plain", self.name));
        let routes = route_config("routes").virtual_host(["*"], [plain].into_iter().chain(looked_up));
        let declared = declared.collect();
        self.mesh.server.set(routes.edit(|routes| routes.cluster_specifier_plugins = declared));
    }

    fn cluster(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.name)
    }

    /// The next lookup.
    async fn lookup(&mut self) -> (RouteLookupRequest, Received) {
        let mut received = self.lookup.request().await;
        assert_eq!(received.path(), "/grpc.lookup.v1.RouteLookupService/RouteLookup");
        assert_eq!(received.request.uri().authority().unwrap(), "shop");
        let message = received.rest().await;
        (RouteLookupRequest::decode(&message[5..]).unwrap(), received)
    }

    /// Waits for a lookup, and responds with a cluster.
    async fn resolve(&mut self, suffix: &str, header_data: &str) -> RouteLookupRequest {
        let (request, received) = self.lookup().await;
        respond(received, &[self.cluster(suffix)], header_data);
        request
    }

    /// A call of the neighbour, which is routed without a plugin.
    async fn call_plain(&mut self) {
        let call = self.mesh.get("/plain");
        self.plain.request().await.respond();
        soon(call).await.unwrap().unwrap();
    }

    /// Has the service respond to some lookups, so that a single failure throttles no other lookup (RL5).
    async fn prosper(&mut self) {
        for tenant in ["x", "y", "z"] {
            let call = self.call_as(tenant);
            self.resolve("a", "").await;
            self.a.request().await.respond();
            soon(call).await.unwrap().unwrap();
        }
    }

    /// A call with a key.
    fn call_as(&self, tenant: &str) -> JoinHandle<Result<(), Status>> {
        let request = Request::post("/shop.Cart/Get").header("x-tenant", tenant).body(Given::default());
        let (request, mut channel) = (request.unwrap(), self.mesh.channel.clone());
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ))
    }
}

/// Keys of the header `x-tenant`, by the service `xds:///lookup`.
fn config() -> RouteLookupConfig {
    RouteLookupConfig {
        grpc_keybuilders: vec![GrpcKeyBuilder {
            names: vec![Name { service: "shop.Cart".into(), method: String::new() }],
            headers: vec![NameMatcher {
                key: "tenant".into(),
                names: vec!["x-tenant".into()],
                required_match: false,
            }],
            ..GrpcKeyBuilder::default()
        }],
        lookup_service: "xds:///lookup".into(),
        cache_size_bytes: 100_000,
        ..RouteLookupConfig::default()
    }
}

fn seconds(seconds: i64) -> Option<google::Duration> {
    Some(google::Duration { seconds, nanos: 0 })
}

fn respond(mut received: Received, targets: &[String], header_data: &str) {
    let message = RouteLookupResponse { targets: targets.to_vec(), header_data: header_data.into() };
    let message = message.encode_to_vec();
    let mut data = bytes::BytesMut::new();
    data.put_u8(0);
    data.put_u32(message.len().try_into().unwrap());
    data.extend_from_slice(&message);
    let mut stream = received.begin_response();
    stream.send_data(data.freeze(), false).unwrap();
    let trailers =
        http::HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
    stream.send_trailers(trailers).unwrap();
}

async fn failure(call: JoinHandle<Result<(), Status>>) -> (Code, String) {
    let status = soon(call).await.unwrap().unwrap_err();
    (status.code(), status.message().to_owned())
}

/// Lets time pass.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn rl6_rl9_rl14_calls_with_one_key_wait_for_one_lookup_and_have_its_header_data() {
    let mut rig = Rig::start("rl6_one", |_| {}).await;
    let calls = [rig.call_as("blue"), rig.call_as("blue")];
    let (request, received) = rig.lookup().await;
    assert_eq!(request.key_map, [("tenant".to_owned(), "blue".to_owned())].into());
    assert_eq!((&*request.target_type, request.reason()), ("grpc", LookupReason::Miss));
    // Neither another key nor a route without the plugin waits for it.
    let other = rig.call_as("red");
    rig.resolve("b", "").await;
    let at_b = rig.b.request().await;
    assert_eq!(at_b.header("x-google-rls-data"), None);
    at_b.respond();
    soon(other).await.unwrap().unwrap();
    rig.call_plain().await;
    rig.mesh.waits(2).await;
    respond(received, &[rig.cluster("a")], "data");
    for call in calls {
        let at_a = rig.a.request().await;
        assert_eq!((at_a.header("x-google-rls-data"), at_a.path()), (Some("data"), "/shop.Cart/Get"));
        at_a.respond();
        soon(call).await.unwrap().unwrap();
    }
    let hit = rig.call_as("blue");
    rig.a.request().await.respond();
    soon(hit).await.unwrap().unwrap();
    assert!(rig.lookup.is_quiet());
}

#[tokio::test]
async fn rl2_stale_responses_are_refreshed_and_calls_follow_to_the_new_target() {
    let edit = |config: &mut RouteLookupConfig| {
        (config.max_age, config.stale_age) = (seconds(200), seconds(100));
    };
    let mut rig = Rig::start("rl2_stale", edit).await;
    let call = rig.call_as("blue");
    rig.resolve("a", "old").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    pass(Duration::from_secs(101)).await;
    let call = rig.call_as("blue");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let request = rig.resolve("b", "new").await;
    assert_eq!((request.reason(), &*request.stale_header_data), (LookupReason::Stale, "old"));
    loop {
        let call = rig.call_as("blue");
        tokio::select! {
            at_a = rig.a.request() => at_a.respond(),
            at_b = rig.b.request() => {
                assert_eq!(at_b.header("x-google-rls-data"), Some("new"));
                at_b.respond();
                soon(call).await.unwrap().unwrap();
                break;
            }
        }
        soon(call).await.unwrap().unwrap();
    }
    // Nothing leads to the first target any more.
    let clusters = || async { format!("{:?}", rig.mesh.channel.status().await) };
    while clusters().await.contains(&rig.cluster("a")) {
        tokio::task::yield_now().await;
    }
    // It expires.
    pass(Duration::from_secs(201)).await;
    let call = rig.call_as("blue");
    let (request, received) = rig.lookup().await;
    assert_eq!(request.reason(), LookupReason::Miss);
    respond(received, &[rig.cluster("a")], "");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl4_rl7_after_a_failed_lookup_calls_fail_or_go_to_the_default_target() {
    let mut rig = Rig::start("rl4_fails", |_| {}).await;
    rig.prosper().await;
    let call = rig.call_as("blue");
    rig.lookup().await.1.fail(Code::PermissionDenied, &[("grpc-message", "no tenant")]);
    let (code, message) = failure(call).await;
    assert_eq!(code, Code::Unavailable, "the code of a lookup is not that of a call");
    let expected = "route lookup by xds:///lookup: the last lookup has failed: no tenant";
    assert!(message.starts_with(expected), "{message}");
    // No lookup follows during the backoff.
    assert!(failure(rig.call_as("blue")).await.1.starts_with(expected));
    rig.call_plain().await;
    assert!(rig.lookup.is_quiet());
    // The configuration changes, and the backoff stays.
    let default = rig.cluster("b");
    rig.configure(|config| config.default_target = default);
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    loop {
        let call = rig.call_as("blue");
        tokio::select! {
            at_b = rig.b.request() => {
                at_b.respond();
                soon(call).await.unwrap().unwrap();
                break;
            }
            () = until("it fails", || call.is_finished()) => {
                assert!(failure(call).await.1.starts_with(expected));
            }
        }
    }
    // After the backoff it is looked up again.
    pass(Duration::from_secs(2)).await;
    let call = rig.call_as("blue");
    rig.resolve("a", "").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl6_calls_that_end_leave_the_lookup_to_others() {
    let mut rig = Rig::start("rl6_ends", |_| {}).await;
    let dropped = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    dropped.abort();
    let _ = soon(dropped).await;
    let short = {
        let request =
            Request::post("/shop.Cart/Get").header("x-tenant", "blue").header("grpc-timeout", "50m");
        let (request, mut channel) = (request.body(Given::default()).unwrap(), rig.mesh.channel.clone());
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ))
    };
    let expected = "deadline exceeded: the cluster of the call is being looked up";
    assert_eq!(failure(short).await, (Code::DeadlineExceeded, expected.into()));
    let call = rig.call_as("blue");
    rig.mesh.waits(1).await;
    respond(received, &[rig.cluster("a")], "");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert!(rig.lookup.is_quiet());
}

#[tokio::test]
async fn rl4_a_silent_service_fails_the_lookup_after_its_timeout() {
    let mut rig = Rig::start("rl4_silent", |config| config.lookup_service_timeout = seconds(3)).await;
    let call = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    pass(Duration::from_millis(3_001)).await;
    let (code, message) = failure(call).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("deadline exceeded"), "{message}");
    assert_eq!(received.cancelled().await, Reason::CANCEL);
    rig.call_plain().await;
}

#[tokio::test]
async fn rl4_backoffs_end_when_the_service_is_back() {
    let mut rig = Rig::start("rl4_back", |_| {}).await;
    rig.prosper().await;
    let call = rig.call_as("blue");
    rig.resolve("a", "").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    // The service goes: lookups fail, and responses serve on.
    rig.lookup.refuse(true);
    rig.lookup.connection().await.send(End::Crash).unwrap();
    let (code, message) = loop {
        let call = rig.call_as("red");
        // The connection may still be there.
        tokio::select! {
            failed = failure(call) => break failed,
            _ = rig.lookup.request() => {}
        }
    };
    assert_eq!(code, Code::Unavailable);
    assert!(message.starts_with("route lookup by xds:///lookup: the last lookup has failed: "), "{message}");
    let call = rig.call_as("blue");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    // It comes back: the backoff of at least 0.8 s ends.
    rig.lookup.refuse(false);
    let call = loop {
        let call = rig.call_as("red");
        tokio::select! {
            (_, received) = async { rig.lookup().await } => {
                respond(received, &[rig.cluster("b")], "");
                break call;
            }
            () = until("it fails", || call.is_finished()) => {}
        }
    };
    rig.b.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl8_a_call_goes_to_the_next_target_if_the_first_cannot_be_reached() {
    let mut rig = Rig::start("rl8_next", |_| {}).await;
    let unreachable = rig.cluster("a");
    rig.mesh.server.set(endpoints(&unreachable).locality("eu", "a", ["127.0.0.1:1"]));
    let call = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    respond(received, &[unreachable, rig.cluster("b")], "data");
    let at_b = rig.b.request().await;
    assert_eq!(at_b.header("x-google-rls-data"), Some("data"));
    at_b.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl10_a_lookup_goes_on_through_an_update() {
    let mut rig = Rig::start("rl10_update", |_| {}).await;
    let call = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    rig.configure(|config| config.max_age = seconds(20));
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    respond(received, &[rig.cluster("a")], "");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert!(rig.lookup.is_quiet());
}

#[tokio::test]
async fn rl11_a_response_above_the_limit_fails_its_lookup_alone() {
    let mut rig = Rig::start("rl11_huge", |_| {}).await;
    rig.prosper().await;
    let call = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    respond(received, &[rig.cluster("a")], &"x".repeat(65 << 10));
    let (code, message) = failure(call).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("65536"), "{message}");
    let call = rig.call_as("red");
    rig.resolve("a", "").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl4_a_call_that_waits_for_ready_is_looked_up_again() {
    let mut rig = Rig::start("rl4_waits", |_| {}).await;
    rig.prosper().await;
    let request = Request::post("/shop.Cart/Get").extension(crate::channel::WaitForReady(true));
    let (request, mut channel) = (request.body(Given::default()).unwrap(), rig.mesh.channel.clone());
    let call =
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ));
    rig.lookup().await.1.fail(Code::Internal, &[]);
    rig.mesh.waits(1).await;
    // The backoff is 0.8 s to 1.2 s.
    rig.resolve("b", "").await;
    rig.b.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl6_an_idle_channel_has_no_responses_and_looks_up_again() {
    let settings = |builder: ChannelBuilder| builder.idle_timeout(Duration::from_secs(60));
    let mut rig = Rig::with("rl6_idle", Peer::start().await, settings, |_| {}).await;
    for _ in 0..2 {
        let call = rig.call_as("blue");
        assert_eq!(rig.resolve("a", "").await.reason(), LookupReason::Miss);
        rig.a.request().await.respond();
        soon(call).await.unwrap().unwrap();
        // The timeout counts from the end of the call.
        pass(Duration::from_secs(61)).await;
        until("it is idle", || rig.mesh.channel.state() == ChannelState::Idle).await;
    }
}

#[tokio::test]
async fn rl6_a_shutdown_ends_calls_that_wait_for_a_lookup() {
    let mut rig = Rig::start("rl6_shutdown", |_| {}).await;
    let call = rig.call_as("blue");
    let (_, received) = rig.lookup().await;
    soon(rig.mesh.channel.shutdown(Duration::from_secs(1))).await;
    assert_eq!(failure(call).await.0, Code::Unavailable);
    assert_eq!(received.cancelled().await, Reason::CANCEL);
}
