//! Deadlines and circuit breakers.

use xdskit::{
    pb::{
        envoy::config::{
            cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
            route::v3::{route::Action, route_action::MaxStreamDuration},
        },
        google::protobuf::{Duration as Limit, UInt32Value},
    },
    testing::resources::ClusterBuilder,
};

use super::*;

fn limited_to(route: RouteBuilder, seconds: i64) -> RouteBuilder {
    route.edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let max_stream_duration = Some(Limit { seconds, nanos: 0 });
        action.max_stream_duration = Some(MaxStreamDuration { max_stream_duration, ..Default::default() });
    })
}

#[tokio::test]
async fn timeout() {
    let [one] = backends(["one"]).await;
    let pair = Pair::start(&["--qps=100"], &[&one]).await;
    let unary = || route::path("/grpc.testing.TestService/UnaryCall").cluster("cart");
    let routes = |seconds| [limited_to(unary(), seconds), route::prefix("").cluster("cart")];
    let slow = [(UNARY, BEHAVIOR, "sleep-2"), (EMPTY, BEHAVIOR, "sleep-2")];
    let both = Load { types: &[UNARY, EMPTY], metadata: &slow, timeout_sec: 20 };
    for (route, load, expected) in [
        // That of the application is shorter, that of the route, and none is.
        (10, Load { timeout_sec: 1, types: &[UNARY], ..both }, &[(UNARY, Code::DeadlineExceeded)] as &[_]),
        (1, both, &[(EMPTY, Code::Ok), (UNARY, Code::DeadlineExceeded)]),
        (10, both, &[(EMPTY, Code::Ok), (UNARY, Code::Ok)]),
    ] {
        pair.set_routes(routes(route));
        pair.each(async |client| client.all_end(load, expected).await).await;
    }
}

fn breaker(name: &str, max_requests: u32) -> ClusterBuilder {
    cluster(name).edit(|cluster| {
        let max_requests = Some(UInt32Value { value: max_requests });
        let thresholds = vec![Thresholds { max_requests, ..Thresholds::default() }];
        cluster.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
    })
}

/// Exactly as many calls are kept open as permitted, and all others fail with UNAVAILABLE.
#[tokio::test]
async fn circuit_breaking() {
    let [mut unary, mut empty] = backends(["unary", "empty"]).await;
    let pair = Pair::start(&["--qps=100", "--rpc_timeout_sec=100"], &[]).await;
    pair.each(async |client| client.stop().await).await;
    for (name, backend, max_requests) in [("of-unary", &unary, 50), ("of-empty", &empty, 100)] {
        pair.server.set(breaker(name, max_requests));
        pair.server.set(locality(endpoints(name), "a", 0, &[backend]));
    }
    pair.set_routes([
        route::path("/grpc.testing.TestService/UnaryCall").cluster("of-unary"),
        route::prefix("").cluster("of-empty"),
    ]);
    // The routes are there when a call succeeds.
    let short = Load { types: &[UNARY, EMPTY], metadata: &[], timeout_sec: 0 };
    pair.each(async |client| client.all_end(short, &[(EMPTY, Code::Ok), (UNARY, Code::Ok)]).await).await;
    let before = [unary.count("UnaryCall").await, empty.count("EmptyCall").await];

    let kept = [(UNARY, BEHAVIOR, "keep-open"), (EMPTY, BEHAVIOR, "keep-open")];
    for (limit, more) in [(50, Load { metadata: &kept, ..short }), (80, Load { metadata: &kept, ..short })] {
        pair.server.set(breaker("of-unary", limit));
        pair.each(async |client| {
            client.configure(more).await;
            let open = client.when("the limit", |stats| {
                let of = |kind: RpcType| &stats.stats_per_method[kind.type_name()];
                let open = |kind| of(kind).rpcs_started - of(kind).result.values().sum::<i32>();
                let failed =
                    |kind| of(kind).result.get(&Code::Unavailable.into()).copied().unwrap_or_default();
                let is_there = open(UNARY) >= limit as i32 && failed(UNARY) > 50 && failed(EMPTY) > 50;
                is_there.then(|| (open(UNARY), open(EMPTY), stats.clone()))
            });
            let (of_unary, of_empty, stats) = open.await;
            // A call that is about to fail counts as open.
            let is_exact = of_unary <= limit as i32 + 2 && (100..=102).contains(&of_empty);
            assert!(is_exact, "{}: {stats:?}", client.name);
            let codes = codes(&stats);
            assert!(codes.keys().all(|(_, code)| [0, 14].contains(code)), "{codes:?}");
        })
        .await;
        let after = [unary.count("UnaryCall").await, empty.count("EmptyCall").await];
        let began = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(began, [2 * u64::from(limit), 2 * 100], "of both clients at a limit of {limit}");
    }
}
