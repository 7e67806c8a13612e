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
    let trio = Trio::start(&["--qps=100"], &[&one]).await;
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
        trio.set_routes(routes(route));
        trio.each(async |client| client.all_end(load, expected).await).await;
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
    let [unary, empty] = backends(["unary", "empty"]).await;
    let trio = Trio::start(&["--qps=100", "--rpc_timeout_sec=100"], &[&unary]).await;
    trio.each(async |client| client.stop().await).await;
    for (name, backend, max_requests) in [("of-unary", &unary, 50), ("of-empty", &empty, 100)] {
        trio.server.set(breaker(name, max_requests));
        trio.server.set(locality(endpoints(name), "a", 0, &[backend]));
    }
    trio.set_routes([
        route::path("/grpc.testing.TestService/UnaryCall").cluster("of-unary"),
        route::prefix("").cluster("of-empty"),
    ]);
    // The routes are there when a call succeeds.
    let short = Load { types: &[UNARY, EMPTY], metadata: &[], timeout_sec: 0 };
    trio.each(async |client| client.all_end(short, &[(EMPTY, Code::Ok), (UNARY, Code::Ok)]).await).await;
    trio.each(async |client| client.stop().await).await;
    let backends = &mut [(unary, "UnaryCall"), (empty, "EmptyCall")];

    let mut open = [[0; 2]; 3];
    for limit in [50, 80] {
        trio.server.set(breaker("of-unary", limit));
        // grpc-go tests its counter before it increments it, so that calls that begin together may exceed the limit.
        for ((client, open), excess) in trio.all.iter().zip(&mut open).zip([0, 2, 2]) {
            let before = counts(backends).await;
            fill(client, [limit, 100]).await;
            let more = [u64::from(limit) - open[0], 100 - open[1]];
            let seen = within("the calls at the backends", async {
                loop {
                    let seen = counts(backends).await;
                    if seen[0] - before[0] >= more[0] && seen[1] - before[1] >= more[1] {
                        return seen;
                    }
                }
            });
            let seen = seen.await;
            for (place, more) in more.into_iter().enumerate() {
                let began = seen[place] - before[place];
                assert!(
                    (more..=more + excess).contains(&began),
                    "{}: {began} instead of {more}",
                    client.name
                );
                open[place] += began;
            }
        }
    }
}

/// Begins calls that stay open until the limits are reached, and more than 50 of each method have failed with UNAVAILABLE.
async fn fill(client: &Client, [of_unary, of_empty]: [u32; 2]) {
    let kept = [(UNARY, BEHAVIOR, "keep-open"), (EMPTY, BEHAVIOR, "keep-open")];
    let failed =
        |codes: &Codes, kind| codes.get(&(kind, Code::Unavailable.into())).copied().unwrap_or_default();
    let before = codes(&client.accumulated().await);
    client.configure(Load { types: &[UNARY, EMPTY], metadata: &kept, timeout_sec: 0 }).await;
    client
        .when("calls at the limit", |stats| {
            let now = codes(stats);
            let is_full = [(UNARY, of_unary), (EMPTY, of_empty)].into_iter().all(|(kind, limit)| {
                let of = &stats.stats_per_method[kind.type_name()];
                let open = of.rpcs_started - of.result.values().sum::<i32>();
                open >= limit as i32 && failed(&now, kind) - failed(&before, kind) > 50
            });
            assert!(now.keys().all(|(_, code)| [0, 14].contains(code)), "{now:?}");
            is_full.then_some(())
        })
        .await;
    client.configure(Load { types: &[], metadata: &[], timeout_sec: 0 }).await;
}

async fn counts(backends: &mut [(Backend, &str); 2]) -> [u64; 2] {
    let [(unary, of_unary), (empty, of_empty)] = backends;
    [unary.count(of_unary).await, empty.count(of_empty).await]
}
