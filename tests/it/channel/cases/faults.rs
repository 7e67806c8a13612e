//! Fault injection: the route of each case has a fault of its own, and the default route has none.

use futures_util::future::join_all;
use tonic::Code;
use xdskit::{
    pb::{
        envoy::{
            extensions::filters::{
                common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier},
                http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
            },
            r#type::v3::FractionalPercent,
        },
        google::protobuf::Duration as Delay,
    },
    testing::resources::RouteBuilder,
};

use super::*;
use crate::channel::{
    backend::EMPTY,
    filters::{fault, fault_config, shop},
};

/// A mesh with routes to the same cluster, each with a fault, before a default route.
async fn faulty(backend: &Backend, routes: Vec<(RouteBuilder, HttpFault)>) -> Mesh {
    let mesh = Mesh::start(&[backend]).await;
    mesh.server.set(shop(|filters| filters.insert(0, fault("fault", &HttpFault::default()))));
    let routes = routes.into_iter().map(|(route, fault)| {
        route.edit(|route| {
            route.typed_per_filter_config.insert("fault".to_owned(), fault_config(&fault));
        })
    });
    let default = route::prefix("").cluster("cart");
    mesh.server.set(route_config("routes").virtual_host(["*"], routes.chain([default])));
    mesh
}

/// All calls of a case, and none of another.
fn of_case(case: &str) -> RouteBuilder {
    route::prefix("").header("fi_testcase", case).cluster("cart")
}

fn percent(numerator: u32) -> Option<FractionalPercent> {
    Some(FractionalPercent { numerator, denominator: 0 })
}

fn delay(share: u32) -> HttpFault {
    let delay = FaultDelaySecifier::FixedDelay(Delay { seconds: 20, nanos: 0 });
    let delay = FaultDelay { fault_delay_secifier: Some(delay), percentage: percent(share) };
    HttpFault { delay: Some(delay), ..HttpFault::default() }
}

fn abort(share: u32) -> HttpFault {
    let abort = FaultAbort { error_type: Some(ErrorType::HttpStatus(401)), percentage: percent(share) };
    HttpFault { abort: Some(abort), ..HttpFault::default() }
}

impl Mesh {
    /// The codes of calls that are made concurrently.
    async fn codes(&self, case: &'static str, method: &'static str, calls: usize) -> Vec<Code> {
        self.ready().await;
        let calls = (0..calls).map(|_| async {
            let mut request = Request::new(Bytes::from_static(b"hello"));
            request.metadata_mut().insert("fi_testcase", case.parse().unwrap());
            request.set_timeout(Duration::from_secs(1));
            let outcome = call(&self.channel, method, request).await;
            outcome.map_or_else(|status| status.code(), |_| Code::Ok)
        });
        join_all(calls).await
    }

    /// Whether half of 200 calls fail with a code, within 3 standard deviations, and the others succeed. Chance exceeds these once
    /// in 370 times, so there are up to 3 rounds.
    async fn half_fail_with(&self, case: &'static str, code: Code) {
        let mut rounds = Vec::new();
        for _ in 0..3 {
            let codes = self.codes(case, ECHO, 200).await;
            assert!(codes.iter().all(|it| [Code::Ok, code].contains(it)), "{codes:?}");
            let failed = codes.iter().filter(|it| **it == code).count();
            if failed.abs_diff(100) <= 21 {
                return;
            }
            rounds.push(failed);
        }
        panic!("{rounds:?} of 200 calls fail with {code:?} instead of half");
    }
}

#[tokio::test]
async fn ch12_fault_injection_zero_percent_fails_no_call() {
    let one = Backend::start("one").await;
    let both = HttpFault { abort: abort(0).abort, ..delay(0) };
    let mesh = faulty(&one, vec![(of_case("zero"), both)]).await;
    assert_eq!(mesh.codes("zero", ECHO, 20).await, [Code::Ok; 20]);
}

#[tokio::test]
async fn ch12_fault_injection_non_matching_calls_are_untouched() {
    let one = Backend::start("one").await;
    let mesh = faulty(&one, vec![(route::path(EMPTY).cluster("cart"), abort(100))]).await;
    assert_eq!(mesh.codes("none", EMPTY, 20).await, [Code::Unauthenticated; 20]);
    assert_eq!(mesh.codes("none", ECHO, 20).await, [Code::Ok; 20]);
    assert_eq!(one.calls(), 20);
}

#[tokio::test]
async fn ch12_fault_injection_always_delay_exceeds_the_deadline() {
    let one = Backend::start("one").await;
    let mesh = faulty(&one, vec![(of_case("delay"), delay(100))]).await;
    assert_eq!(mesh.codes("delay", ECHO, 20).await, [Code::DeadlineExceeded; 20]);
    assert_eq!(one.calls(), 0);
}

#[tokio::test]
async fn ch12_fault_injection_always_abort_fails_with_unauthenticated() {
    let one = Backend::start("one").await;
    let mesh = faulty(&one, vec![(of_case("abort"), abort(100))]).await;
    assert_eq!(mesh.codes("abort", ECHO, 20).await, [Code::Unauthenticated; 20]);
    assert_eq!(mesh.codes("other", ECHO, 1).await, [Code::Ok]);
    assert_eq!(one.calls(), 1);
}

#[tokio::test]
async fn ch12_fault_injection_delay_half_exceeds_the_deadline_of_half_of_the_calls() {
    let one = Backend::start("one").await;
    let mesh = faulty(&one, vec![(of_case("delay"), delay(50))]).await;
    mesh.half_fail_with("delay", Code::DeadlineExceeded).await;
}

#[tokio::test]
async fn ch12_fault_injection_abort_half_fails_half_of_the_calls() {
    let one = Backend::start("one").await;
    let mesh = faulty(&one, vec![(of_case("abort"), abort(50))]).await;
    mesh.half_fail_with("abort", Code::Unauthenticated).await;
}
