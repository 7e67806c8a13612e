//! Time limits and the limit of concurrent requests.

use tokio::task::JoinSet;
use tonic::Code;
use xdskit::{
    pb::{
        envoy::config::{
            cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
            route::v3::{route::Action, route_action::MaxStreamDuration},
        },
        google::protobuf::{Duration as Limit, UInt32Value},
    },
    testing::resources::{ClusterBuilder, RouteBuilder},
};

use super::*;
use crate::channel::backend::HOLD;

fn limited_to(route: RouteBuilder, limit: Duration) -> RouteBuilder {
    route.edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let limit = Limit { seconds: limit.as_secs() as i64, nanos: limit.subsec_nanos() as i32 };
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: Some(limit), ..MaxStreamDuration::default() });
    })
}

#[tokio::test]
async fn ch12_timeout_is_the_smaller_one_of_application_and_route() {
    let one = Backend::start("one").await;
    // The routes' limits, and the application's. The backend holds calls until they are cancelled.
    let (short, long) = (Duration::from_millis(100), Duration::from_secs(20));
    for (limit, timeout) in [(long, Some(short)), (short, None), (short, Some(long))] {
        let mesh = Mesh::start(&[&one]).await;
        let routes = [
            limited_to(route::path(HOLD).cluster("cart"), limit),
            limited_to(route::prefix("").cluster("cart"), long),
        ];
        mesh.server.set(route_config("routes").virtual_host(["*"], routes));
        // A route of its own has another limit, and a call within the limits succeeds.
        let request = || {
            let mut request = Request::new("hello".into());
            timeout.iter().for_each(|timeout| request.set_timeout(*timeout));
            request
        };
        let mut generous = Request::new("hello".into());
        generous.set_timeout(long);
        call(&mesh.channel, ECHO, generous).await.unwrap();
        let error = call(&mesh.channel, HOLD, request()).await.unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded, "{limit:?} {timeout:?} {error:?}");
        one.holds(0).await;
    }
}

/// A cluster with a limit of concurrent requests. The counter is that of the process, so that no other test may use its name.
fn breaker(name: &str, max_requests: u32) -> ClusterBuilder {
    cluster(name).edit(|cluster| {
        let max_requests = Some(UInt32Value { value: max_requests });
        let thresholds = vec![Thresholds { max_requests, ..Thresholds::default() }];
        cluster.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
    })
}

/// Begins calls, of which this many must be held, and the others fail.
async fn hold(
    calls: &mut JoinSet<Result<Response<Bytes>, Status>>,
    channel: &Channel,
    kind: &'static str,
    [held, failed]: [usize; 2],
) {
    for _ in 0..held + failed {
        calls.spawn(held_call(channel.clone(), HOLD, kind));
    }
    for _ in 0..failed {
        let error = soon(calls.join_next()).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains("requests are running, the maximum"), "{error:?}");
    }
}

async fn held_call(
    channel: Channel,
    method: &'static str,
    kind: &'static str,
) -> Result<Response<Bytes>, Status> {
    let mut request = Request::new("hello".into());
    request.metadata_mut().insert("x-kind", kind.parse().unwrap());
    call(&channel, method, request).await
}

#[tokio::test]
async fn ch12_circuit_breaking_keeps_500_and_1000_calls_open_and_then_800() {
    let [unary, empty] = Backend::start_all(["unary", "empty"]).await;
    let mesh = Mesh::start(&[]).await;
    for (name, backend, max_requests) in [("case-unary", &unary, 500), ("case-empty", &empty, 1_000)] {
        mesh.server.set(breaker(name, max_requests));
        mesh.server.set(locality(endpoints(name), "a", 0, &[backend]));
    }
    let routes = ["unary", "empty"]
        .map(|kind| route::prefix("").header("x-kind", kind).cluster(format!("case-{kind}")));
    mesh.server.set(route_config("routes").virtual_host(["*"], routes));
    let (mut of_unary, mut of_empty) = (JoinSet::new(), JoinSet::new());
    hold(&mut of_unary, &mesh.channel, "unary", [500, 100]).await;
    hold(&mut of_empty, &mesh.channel, "empty", [1_000, 100]).await;
    unary.holds(500).await;
    empty.holds(1_000).await;
    mesh.server.set(breaker("case-unary", 800));
    soon(until_ok(|| held_call(mesh.channel.clone(), ECHO, "unary"))).await;
    hold(&mut of_unary, &mesh.channel, "unary", [300, 100]).await;
    unary.holds(800).await;
    empty.holds(1_000).await;
    for (backend, mut calls, expected) in [(unary, of_unary, 800), (empty, of_empty, 1_000)] {
        backend.release();
        assert_eq!(calls.len(), expected);
        while let Some(call) = soon(calls.join_next()).await {
            call.unwrap().unwrap();
        }
    }
}
