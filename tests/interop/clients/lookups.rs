//! Route lookup (RLS): which clusters calls get by the responses of one lookup service, and how they end. gRPC-Go's original client does
//! not register the policy of route lookup, so these are two clients.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    task,
};

use bytes::Bytes;
use futures_util::future::join;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Response, Status,
    body::Body,
    codegen::{BoxFuture, Service, http},
    server::{self, NamedService, UnaryService},
    transport::Server,
};
use xdskit::pb::{
    envoy::config::{
        core::v3::TypedExtensionConfig,
        route::v3::{ClusterSpecifierPlugin, route::Action, route_action::ClusterSpecifier},
    },
    google::protobuf::{Any, Duration as Proto},
    grpc::lookup::v1::{
        GrpcKeyBuilder, NameMatcher, RouteLookupClusterSpecifier, RouteLookupConfig, RouteLookupRequest,
        RouteLookupResponse, grpc_key_builder::Name, route_lookup_request::Reason,
    },
};

use super::*;
use crate::raw::Raw;

/// What becomes of the lookups of a user.
#[derive(Debug, Clone)]
enum Behavior {
    /// These clusters, with header data.
    Targets(Vec<&'static str>, &'static str),
    /// As before, after this time.
    Slow(Duration, &'static str),
    Fails(Code),
    Silent,
}

/// A lookup service by users, which are the header of calls.
#[derive(Debug, Clone, Default)]
struct Lookup {
    users: Arc<Mutex<BTreeMap<String, Behavior>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    is_go: bool,
    user: String,
    reason: Reason,
    stale_header_data: String,
}

impl Lookup {
    /// Starts the service. Returns its target.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let server = Server::builder().add_service(self.clone());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        format!("dns:///{address}")
    }

    fn set(&self, user: &str, behavior: Behavior) {
        self.users.lock().expect("no panic").insert(user.to_owned(), behavior);
    }

    /// The requests of a client for a user, in their order.
    fn requests(&self, client: &Client, user: &str) -> Vec<(Reason, String)> {
        let seen = self.seen.lock().expect("no panic");
        let seen = seen.iter().filter(|seen| seen.is_go == (client.name == "grpcgo") && seen.user == user);
        seen.map(|seen| (seen.reason, seen.stale_header_data.clone())).collect()
    }
}

impl NamedService for Lookup {
    const NAME: &'static str = "grpc.lookup.v1.RouteLookupService";
}

impl Service<http::Request<Body>> for Lookup {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> task::Poll<Result<(), Infallible>> {
        task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(server::Grpc::new(Raw).unary(service, request).await) })
    }
}

impl UnaryService<Bytes> for Lookup {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let agent = request.metadata().get("user-agent").and_then(|agent| agent.to_str().ok());
        let is_go = agent.is_some_and(|agent| agent.starts_with("grpc-go/"));
        let message = RouteLookupRequest::decode(request.into_inner()).expect("a request of lookups");
        let user = message.key_map.get("user").cloned().unwrap_or_default();
        let behavior = self.users.lock().expect("no panic").get(&user).cloned();
        let reason = message.reason();
        let seen = Seen { is_go, user, reason, stale_header_data: message.stale_header_data };
        self.seen.lock().expect("no panic").push(seen);
        Box::pin(async move {
            let (targets, header_data) = match behavior {
                Some(Behavior::Targets(targets, header_data)) => (targets, header_data),
                Some(Behavior::Slow(delay, target)) => {
                    sleep(delay).await; // a slow service
                    (vec![target], "")
                }
                Some(Behavior::Fails(code)) => return Err(Status::new(code, "as requested")),
                Some(Behavior::Silent) => std::future::pending().await,
                None => return Err(Status::not_found("no such user")),
            };
            let targets = targets.into_iter().map(str::to_owned).collect();
            let response = RouteLookupResponse { targets, header_data: header_data.to_owned() };
            Ok(Response::new(response.encode_to_vec().into()))
        })
    }
}

/// Both clients in a mesh whose calls are looked up. The clusters `cart` and `pay` have the backends `one` and `two`, and `down` has
/// an endpoint that cannot be reached.
struct Pair {
    server: TestControlPlane,
    lookup: Lookup,
    target: String,
    ours: Client,
    go: Client,
    _backends: [Backend; 2],
}

impl Pair {
    async fn start(edit: impl FnOnce(&mut RouteLookupConfig)) -> Self {
        let both = backends(["one", "two"]).await;
        let server = mesh(&[&both[0]]).await;
        server.set(cluster("pay"));
        server.set(locality(endpoints("pay"), "a", 0, &[&both[1]]));
        server.set(cluster("down"));
        server.set(endpoints("down").locality("eu", "a", ["127.0.0.1:1"]));
        let lookup = Lookup::default();
        let target = lookup.start().await;
        set_routes(&server, &target, edit);
        // Calls without a user, until a test names one.
        lookup.set("", Behavior::Targets(vec!["cart"], ""));
        let flags = ["--qps=100"];
        let (ours, go) = join(
            Client::start("interop_client", "XDSKIT_INTEROP_CLIENT", &server, &flags),
            Client::start("grpcgo", "XDSKIT_INTEROP_GRPC_GO", &server, &flags),
        )
        .await;
        Self { server, lookup, target, ours, go, _backends: both }
    }

    fn set_routes(&self, edit: impl FnOnce(&mut RouteLookupConfig)) {
        set_routes(&self.server, &self.target, edit);
    }

    async fn each(&self, act: impl AsyncFn(&Client)) {
        join(act(&self.ours), act(&self.go)).await;
    }

    /// Has both clients make calls of a user that go to a backend alone.
    async fn go_to(&self, user: &str, backend: &str) {
        let metadata = [(UNARY, "user", user)];
        self.each(async |client| {
            client.configure(Load { metadata: &metadata, ..UNARY_CALLS }).await;
            client.reach(&[backend]).await;
        })
        .await;
    }

    /// Has both clients make calls of a user that end with a status alone.
    async fn end_with(&self, user: &str, code: Code) {
        let metadata = [(UNARY, "user", user)];
        let load = Load { metadata: &metadata, ..UNARY_CALLS };
        self.each(async |client| client.all_end(load, &[(UNARY, code)]).await).await;
    }
}

/// Routes that are looked up by users.
fn set_routes(server: &TestControlPlane, target: &str, edit: impl FnOnce(&mut RouteLookupConfig)) {
    let seconds = |seconds| Some(Proto { seconds, nanos: 0 });
    let mut config = RouteLookupConfig {
        grpc_keybuilders: vec![GrpcKeyBuilder {
            names: vec![Name { service: "grpc.testing.TestService".into(), method: String::new() }],
            headers: vec![NameMatcher {
                key: "user".into(),
                names: vec!["user".into()],
                required_match: false,
            }],
            ..GrpcKeyBuilder::default()
        }],
        lookup_service: target.to_owned(),
        lookup_service_timeout: seconds(1),
        max_age: seconds(60),
        cache_size_bytes: 100_000,
        ..RouteLookupConfig::default()
    };
    edit(&mut config);
    let plugin = RouteLookupClusterSpecifier { route_lookup_config: Some(config) };
    let type_url = "type.googleapis.com/grpc.lookup.v1.RouteLookupClusterSpecifier".to_owned();
    let typed_config = Some(Any { type_url, value: plugin.encode_to_vec().into() });
    let extension = Some(TypedExtensionConfig { name: "rls".into(), typed_config });
    let looked_up = route::prefix("").cluster("unused").edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.cluster_specifier = Some(ClusterSpecifier::ClusterSpecifierPlugin("rls".into()));
    });
    let routes = route_config("routes").virtual_host(["*"], [looked_up]);
    server.set(routes.edit(|routes| {
        routes.cluster_specifier_plugins = vec![ClusterSpecifierPlugin { extension, is_optional: false }];
    }));
}

/// The same targets, the same failures: the successes come first, so that hardly a lookup is throttled.
#[tokio::test]
async fn lookups_choose_the_same_clusters_and_fail_alike() {
    let pair = Pair::start(|_| {}).await;
    let lookup = &pair.lookup;
    lookup.set("ada", Behavior::Targets(vec!["cart"], ""));
    lookup.set("bob", Behavior::Targets(vec!["pay"], "data"));
    lookup.set("slow", Behavior::Slow(Duration::from_millis(300), "pay"));
    lookup.set("next", Behavior::Targets(vec!["down", "pay", "cart"], ""));
    lookup.set("down", Behavior::Targets(vec!["down"], ""));
    lookup.set("refused", Behavior::Fails(Code::PermissionDenied));
    lookup.set("empty", Behavior::Targets(vec![], ""));
    lookup.set("silent", Behavior::Silent);
    for (user, backend) in [("ada", "one"), ("bob", "two"), ("slow", "two"), ("next", "two")] {
        pair.go_to(user, backend).await;
        pair.each(async |client| {
            let expected = [(Reason::Miss, String::new())];
            assert_eq!(lookup.requests(client, user), expected, "{}: one lookup of {user}", client.name);
        })
        .await;
    }
    for user in ["down", "refused", "empty", "silent", "nobody"] {
        pair.end_with(user, Code::Unavailable).await;
    }
    // Responses serve on, whatever has failed meanwhile.
    pair.go_to("ada", "one").await;
}

/// Calls go on with a response that is refreshed, and then to the other cluster.
#[tokio::test]
async fn stale_lookups_are_refreshed_without_a_failed_call() {
    let seconds = |seconds| Some(Proto { seconds, nanos: 0 });
    let pair = Pair::start(|config| (config.stale_age, config.max_age) = (seconds(1), seconds(60))).await;
    pair.lookup.set("ada", Behavior::Targets(vec!["cart"], "first"));
    pair.go_to("ada", "one").await;
    pair.lookup.set("ada", Behavior::Targets(vec!["pay"], "second"));
    pair.each(async |client| {
        client.reach(&["two"]).await;
        let codes = client.stop().await;
        assert!(codes.keys().eq([&(UNARY, Code::Ok.into())]), "{}: {codes:?}", client.name);
        let seen = pair.lookup.requests(client, "ada");
        let first = [(Reason::Miss, String::new()), (Reason::Stale, "first".to_owned())];
        assert_eq!(seen[..2], first, "{}", client.name);
    })
    .await;
}

/// With a default target, calls whose lookups fail go there; those with a response do not.
#[tokio::test]
async fn failed_lookups_go_to_the_default_target() {
    let pair = Pair::start(|config| config.default_target = "pay".into()).await;
    pair.lookup.set("ada", Behavior::Targets(vec!["cart"], ""));
    pair.lookup.set("refused", Behavior::Fails(Code::Internal));
    pair.lookup.set("silent", Behavior::Silent);
    pair.go_to("ada", "one").await;
    for user in ["refused", "silent", "nobody"] {
        pair.go_to(user, "two").await;
    }
    pair.go_to("ada", "one").await;
    // Without it they fail. grpc-go 1.75 has its calls wait then: it updates the policy of the default target that is gone, with the
    // name of no cluster.
    pair.set_routes(|_| {});
    let metadata = [(UNARY, "user", "refused")];
    pair.ours.all_end(Load { metadata: &metadata, ..UNARY_CALLS }, &[(UNARY, Code::Unavailable)]).await;
    pair.ours.configure(Load { metadata: &[(UNARY, "user", "ada")], ..UNARY_CALLS }).await;
    pair.ours.reach(&["one"]).await;
}
