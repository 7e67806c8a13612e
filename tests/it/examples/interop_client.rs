//! The example `interop_client`, as the driver of a test uses it.

#[allow(dead_code, reason = "a driver needs a part of it")]
#[path = "../../../examples/interop_client/codec.rs"]
mod codec;
#[allow(dead_code, reason = "a driver needs a part of it")]
#[path = "../../../examples/interop_client/messages.rs"]
mod messages;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    task::{Context, Poll},
};

use prost::Message;
use tonic::{
    Code, Request, Response, Status,
    body::Body,
    client,
    codegen::{BoxFuture, Bytes, Service, http, http::uri::PathAndQuery},
    metadata::MetadataValue,
    server::{Grpc, NamedService, UnaryService},
    transport::{self, Endpoint, server::TcpIncoming},
};
use xdskit::{
    pb::envoy::service::status::v3::{ClientStatusRequest, ClientStatusResponse},
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

use self::{
    codec::Proto,
    messages::{
        ClientConfigureRequest, Empty, HealthCheckResponse, LoadBalancerAccumulatedStatsResponse,
        LoadBalancerStatsRequest, LoadBalancerStatsResponse, Metadata, MetadataEntry, MetadataType, RpcType,
    },
};
use super::{Process, Server};
use crate::common::{raw::Raw, soon};

/// A server of `grpc.testing.TestService` with the hostname `one`. A call with the metadata `fail` fails.
#[derive(Debug, Clone)]
struct TestService;

impl NamedService for TestService {
    const NAME: &'static str = "grpc.testing.TestService";
}

impl Service<http::Request<Body>> for TestService {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(Grpc::new(Raw).unary(Self, request).await) })
    }
}

impl UnaryService<Bytes> for TestService {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let mut response = Response::new(Bytes::new());
        response.metadata_mut().insert("hostname", MetadataValue::from_static("one"));
        let fails = request.metadata().contains_key("fail");
        Box::pin(async move { if fails { Err(Status::unavailable("as requested")) } else { Ok(response) } })
    }
}

/// The example in a mesh with the server.
struct Driven {
    process: Process,
    services: transport::Channel,
    _server: Server,
}

impl Driven {
    async fn start(flags: &[&str]) -> Self {
        let server = Server::start().await;
        let incoming = TcpIncoming::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = incoming.local_addr().unwrap().to_string();
        let router = transport::Server::builder().add_service(TestService);
        tokio::spawn(router.serve_with_incoming(incoming));
        server.control_plane.update(|tx| {
            tx.set(listener("shop").rds("routes"));
            tx.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
            tx.set(cluster("cart"));
            tx.set(endpoints("cart").locality("eu", "a", [address.as_str()]));
        });
        let bootstrap = server.bootstrap().display().to_string();
        let args = ["--server", "xds:///shop", "-qps=200", "--stats_port", "0"].iter().chain(flags);
        let mut process = Process::example("interop_client", args, &[("GRPC_XDS_BOOTSTRAP", &bootstrap)]);
        let port = process.json().await["stats_port"].as_u64().unwrap();
        let services = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap();
        let services = soon(services.connect()).await.unwrap();
        Self { process, services, _server: server }
    }

    async fn call<R: Message + Default + 'static>(
        &self,
        method: &'static str,
        request: impl Message + 'static,
    ) -> R {
        let mut grpc = client::Grpc::new(self.services.clone());
        soon(grpc.ready()).await.unwrap();
        let path = PathAndQuery::from_static(method);
        soon(grpc.unary(Request::new(request), path, Proto::new())).await.unwrap().into_inner()
    }

    async fn distribution(&self, request: LoadBalancerStatsRequest) -> LoadBalancerStatsResponse {
        self.call("/grpc.testing.LoadBalancerStatsService/GetClientStats", request).await
    }

    /// Waits until calls of a type have ended with a status. Returns the counts.
    async fn ended(&self, kind: RpcType, code: Code) -> LoadBalancerAccumulatedStatsResponse {
        soon(async {
            loop {
                let stats: LoadBalancerAccumulatedStatsResponse = self
                    .call("/grpc.testing.LoadBalancerStatsService/GetClientAccumulatedStats", Empty {})
                    .await;
                let of = stats.stats_per_method.get(kind.type_name());
                if of.is_some_and(|of| of.result.contains_key(&code.into())) {
                    return stats;
                }
            }
        })
        .await
    }

    async fn configure(&self, types: &[RpcType], metadata: &[(RpcType, &str)]) {
        let metadata = metadata.iter().map(|(kind, key)| Metadata {
            r#type: (*kind).into(),
            key: (*key).to_owned(),
            value: "yes".to_owned(),
        });
        let types = types.iter().map(|kind| (*kind).into()).collect();
        let request = ClientConfigureRequest { types, metadata: metadata.collect(), timeout_sec: 5 };
        let Empty {} = self.call("/grpc.testing.XdsUpdateClientConfigureService/Configure", request).await;
    }
}

fn next(num_rpcs: i32) -> LoadBalancerStatsRequest {
    LoadBalancerStatsRequest { num_rpcs, timeout_sec: 20, metadata_keys: Vec::new() }
}

#[tokio::test]
async fn a_driver_reads_where_calls_went_and_configures_them() {
    let driven = Driven::start(&["--rpc=UnaryCall,EmptyCall", "--print_response=False"]).await;
    let seen = driven.distribution(next(20)).await;
    assert_eq!((seen.rpcs_by_peer["one"], seen.num_failures), (20, 0));
    let methods = seen.rpcs_by_method.iter().map(|(name, of)| (name.as_str(), of.rpcs_by_peer["one"]));
    assert!(methods.eq([("EmptyCall", 10), ("UnaryCall", 10)]), "{seen:?}");

    // Calls of one type fail, and only these are made.
    driven.configure(&[RpcType::EmptyCall], &[(RpcType::EmptyCall, "fail")]).await;
    let stats = driven.ended(RpcType::EmptyCall, Code::Unavailable).await;
    assert!(stats.num_rpcs_failed_by_method["EMPTY_CALL"] > 0, "{stats:?}");
    assert_eq!(stats.num_rpcs_failed_by_method.get("UNARY_CALL"), None, "{stats:?}");
    assert!(stats.num_rpcs_succeeded_by_method["UNARY_CALL"] >= 10, "{stats:?}");
    let seen = driven.distribution(next(20)).await;
    assert_eq!((seen.rpcs_by_peer.len(), seen.num_failures), (0, 20), "{seen:?}");

    // Without calls, those that were waited for are failures.
    driven.configure(&[], &[]).await;
    let seen = driven.distribution(LoadBalancerStatsRequest { timeout_sec: 1, ..next(5) }).await;
    assert_eq!(seen, LoadBalancerStatsResponse { num_failures: 5, ..Default::default() });
    driven.configure(&[RpcType::UnaryCall], &[]).await;
    assert_eq!(driven.distribution(next(5)).await.rpcs_by_peer["one"], 5);
}

#[tokio::test]
async fn a_driver_reads_metadata_of_responses_and_the_client_status() {
    let driven =
        Driven::start(&["--num_channels=2", "--metadata=EmptyCall:fail:yes,UnaryCall:a:b:c:d"]).await;
    let request = LoadBalancerStatsRequest { metadata_keys: vec!["HostName".to_owned()], ..next(3) };
    let seen = driven.distribution(request).await;
    let value = "one".to_owned();
    let entry = MetadataEntry { key: "hostname".to_owned(), value, r#type: MetadataType::Initial.into() };
    let calls = seen.metadatas_by_peer["one"].rpc_metadata.iter();
    assert!(calls.map(|call| &call.metadata[..]).eq([[entry.clone()], [entry.clone()], [entry]]), "{seen:?}");
    let request = LoadBalancerStatsRequest { metadata_keys: vec!["*".to_owned()], ..next(1) };
    let seen = driven.distribution(request).await;
    let all = &seen.metadatas_by_peer["one"].rpc_metadata[0].metadata;
    let keys: BTreeSet<_> = all.iter().map(|it| it.key.as_str()).collect();
    assert!(keys.len() > 1 && keys.contains("hostname"), "{seen:?}");

    let HealthCheckResponse { status } = driven.call("/grpc.health.v1.Health/Check", Empty {}).await;
    assert_eq!(status, 1);
    let method = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
    let status: ClientStatusResponse = driven.call(method, ClientStatusRequest::default()).await;
    assert_eq!((status.config.len(), &*status.config[0].client_scope), (1, "xds:///shop"));
    assert_eq!(status.config[0].generic_xds_configs.len(), 4);
}

#[tokio::test]
async fn a_failure_after_the_first_success_ends_it_if_that_is_requested() {
    let mut driven = Driven::start(&["--fail_on_failed_rpcs", "--log_rpc_start_and_end"]).await;
    driven.ended(RpcType::UnaryCall, Code::Ok).await;
    driven.configure(&[RpcType::UnaryCall], &[(RpcType::UnaryCall, "fail")]).await;
    assert_eq!(driven.process.exit().await.code(), Some(1));
    driven.process.complaint("a call failed after the first success").await;
}

#[tokio::test]
async fn the_expected_status_is_the_success() {
    let flags = ["--expect_status=UNAVAILABLE", "--metadata=UnaryCall:fail:yes"];
    let driven = Driven::start(&flags).await;
    let stats = driven.ended(RpcType::UnaryCall, Code::Unavailable).await;
    assert_eq!(stats.num_rpcs_failed_by_method.len(), 0, "{stats:?}");
    assert!(stats.num_rpcs_succeeded_by_method["UNARY_CALL"] > 0, "{stats:?}");
}

#[tokio::test]
async fn what_is_not_supported_is_an_error() {
    for (flags, reason) in [
        (
            &["--server=xds:///shop", "--enable_csm_observability"] as &[_],
            "--enable_csm_observability is not supported",
        ),
        (
            &["--server=xds:///shop", "--rpc=StreamingCall"],
            "StreamingCall is neither UnaryCall nor EmptyCall",
        ),
        (&["--server=xds:///shop", "--metadata=UnaryCall:key"], "UnaryCall:key is not METHOD:KEY:VALUE"),
        (&["--server=xds:///shop", "--qps=0"], "--qps is at least 1"),
        (&["--server=xds:///shop", "--expect_status=NO"], "--expect_status=NO is no status"),
        (&["--server=xds:///shop", "--no_such_flag"], "--no_such_flag"),
        (&["--print_response", "--qps"], "--qps needs a value"),
        (&["--secure_mode=false", "--rpc_timeout=1500ms", "--expect_status", "14"], "--server is needed"),
    ] {
        let mut process = Process::start("interop_client", flags);
        process.complaint(reason).await;
        assert_eq!(process.exit().await.code(), Some(2), "{flags:?}");
    }
}
