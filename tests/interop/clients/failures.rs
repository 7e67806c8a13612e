//! Injected faults, retries, outliers, and a policy of the application.

use xdskit::pb::{
    envoy::{
        config::{
            cluster::v3::{LoadBalancingPolicy, OutlierDetection, load_balancing_policy::Policy},
            core::v3::TypedExtensionConfig,
            route::v3::{RetryPolicy, route::Action},
        },
        extensions::filters::{
            common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier},
            http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, http_filter::ConfigType,
            },
        },
        r#type::v3::FractionalPercent,
    },
    google::protobuf::{self as google, UInt32Value},
    xds::r#type::v3::TypedStruct,
};

use super::*;

/// A listener with the filter `fault`, which does nothing by itself.
fn with_filter() -> impl Into<xdskit::control_plane::AnyResource> {
    listener("shop").rds("routes").edit(|listener| {
        let any = listener.api_listener.as_mut().and_then(|it| it.api_listener.as_mut()).expect("it has one");
        let mut manager = HttpConnectionManager::decode(any.value.clone()).expect("it is one");
        let config_type = Some(ConfigType::TypedConfig(fault_config(&HttpFault::default())));
        manager
            .http_filters
            .insert(0, HttpFilter { name: "fault".into(), config_type, ..Default::default() });
        any.value = manager.encode_to_vec().into();
    })
}

fn fault_config(fault: &HttpFault) -> google::Any {
    let type_url = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault".to_owned();
    google::Any { type_url, value: fault.encode_to_vec().into() }
}

/// A route with a fault for the calls of a case.
fn faulty(case: &str, fault: &HttpFault) -> RouteBuilder {
    let config = fault_config(fault);
    let route = route::prefix("").header("fi_testcase", case).cluster("cart");
    route.edit(|route| drop(route.typed_per_filter_config.insert("fault".to_owned(), config)))
}

fn percent(numerator: u32) -> Option<FractionalPercent> {
    Some(FractionalPercent { numerator, ..FractionalPercent::default() })
}

fn delay(share: u32) -> HttpFault {
    let delay = FaultDelaySecifier::FixedDelay(google::Duration { seconds: 20, nanos: 0 });
    let delay = FaultDelay { fault_delay_secifier: Some(delay), percentage: percent(share) };
    HttpFault { delay: Some(delay), ..HttpFault::default() }
}

fn abort(share: u32) -> HttpFault {
    let abort = FaultAbort { error_type: Some(ErrorType::HttpStatus(401)), percentage: percent(share) };
    HttpFault { abort: Some(abort), ..HttpFault::default() }
}

#[tokio::test]
async fn fault_injection() {
    let [one] = backends(["one"]).await;
    let trio = Trio::start(&["--qps=200"], &[&one]).await;
    trio.server.set(with_filter());
    let zero = HttpFault { abort: abort(0).abort, ..delay(0) };
    trio.set_routes([
        faulty("zero", &zero),
        faulty("delay", &delay(100)),
        faulty("delay half", &delay(50)),
        faulty("abort", &abort(100)),
        faulty("abort half", &abort(50)),
        route::prefix("").cluster("cart"),
    ]);
    let of_case = |case| [(UNARY, "fi_testcase", case)];
    for (case, code) in [
        ("abort", Code::Unauthenticated),
        ("zero", Code::Ok),
        ("none", Code::Ok),
        ("delay", Code::DeadlineExceeded),
    ] {
        let load = Load { metadata: &of_case(case), timeout_sec: 1, ..UNARY_CALLS };
        trio.each(async |client| client.all_end(load, &[(UNARY, code)]).await).await;
    }
    for (case, code) in [("abort half", Code::Unauthenticated), ("delay half", Code::DeadlineExceeded)] {
        let load = Load { metadata: &of_case(case), timeout_sec: 1, ..UNARY_CALLS };
        trio.each(async |client| {
            let codes = client.run(load, 400).await;
            let [ok, failed] = [Code::Ok, code].map(|code| codes[&(UNARY, code.into())]);
            let all: i32 = codes.values().sum();
            // Within 5 standard deviations, which chance exceeds once in a million times.
            let is_half = (2 * failed - all).pow(2) <= 25 * all;
            assert!(ok + failed == all && is_half, "{}: {case}: {codes:?}", client.name);
        })
        .await;
    }
}

fn retried(num_retries: u32) -> RouteBuilder {
    route::prefix("").cluster("cart").edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let (num_retries, retry_on) = (Some(UInt32Value { value: num_retries }), "unavailable".to_owned());
        action.retry_policy = Some(RetryPolicy { retry_on, num_retries, ..RetryPolicy::default() });
    })
}

/// The backends see as many attempts of each client as the policy says.
#[tokio::test]
async fn retries() {
    let [mut one] = backends(["one"]).await;
    let trio = Trio::start(&["--qps=100"], &[&one]).await;
    let metadata = [(UNARY, BEHAVIOR, "succeed-on-retry-attempt-4,error-code-14")];
    let load = Load { metadata: &metadata, ..UNARY_CALLS };
    for (num_retries, code) in [(3, Code::Unavailable), (4, Code::Ok)] {
        trio.set_routes([retried(num_retries)]);
        trio.each(async |client| client.stop().await).await;
        for client in &trio.all {
            // Until it has the policy.
            client.all_end(load, &[(UNARY, code)]).await;
            let before = one.count("UnaryCall").await;
            let codes = client.run(load, 100).await;
            let attempts = one.count("UnaryCall").await - before;
            let calls: i32 = codes.values().sum();
            assert!(codes.keys().eq([&(UNARY, code.into())]), "{}: {codes:?}", client.name);
            assert_eq!(attempts, u64::from(num_retries + 1) * calls as u64, "{}", client.name);
        }
    }
}

/// With one of five backends failing, hardly a call fails, and this crate's channel makes no more attempts than grpc-go.
#[tokio::test]
async fn retries_while_a_fifth_fails() {
    let mut all = backends(["five", "four", "one", "three", "two"]).await;
    let trio = Trio::start(&["--qps=200"], &all.each_ref()).await;
    trio.set_routes([retried(4)]);
    trio.reach(&["five", "four", "one", "three", "two"]).await;
    trio.each(async |client| client.stop().await).await;
    let metadata = [(UNARY, BEHAVIOR, "hostname=five error-code-14")];
    let load = Load { metadata: &metadata, ..UNARY_CALLS };
    trio.each(async |client| client.all_end(load, &[(UNARY, Code::Ok)]).await).await;
    // The 5 % are 2 standard deviations of 600 calls, which chance exceeds at times, so there are up to 3 rounds.
    let (mut rounds, mut is_met) = (Vec::new(), [false; 2]);
    for _ in 0..3 {
        let mut attempts = [0.0; 3];
        for (client, attempts) in trio.all.iter().zip(&mut attempts) {
            *attempts = attempts_per_call(client, load, &mut all).await;
        }
        rounds.push(attempts);
        let [ours, others @ ..] = attempts;
        assert!(ours > 1.1, "a fifth of all attempts fails, so that there are 1.25 for each call: {ours}");
        for (is_met, other) in is_met.iter_mut().zip(others) {
            *is_met |= ours <= other * 1.05;
        }
        if is_met == [true; 2] {
            return;
        }
    }
    panic!("attempts for each call, ours and those of both on grpc-go: {rounds:?}");
}

async fn attempts_per_call(client: &Client, load: Load<'_>, backends: &mut [Backend]) -> f64 {
    let before = attempts(backends).await;
    let codes = client.run(load, 600).await;
    let calls: i32 = codes.values().sum();
    // All five attempts of one call in 3,000 get to the backend that fails.
    let is_expected = codes[&(UNARY, 0)] >= calls - 4 && codes.keys().all(|(_, code)| [0, 14].contains(code));
    assert!(is_expected, "{}: {codes:?}", client.name);
    (attempts(backends).await - before) as f64 / f64::from(calls)
}

async fn attempts(backends: &mut [Backend]) -> u64 {
    let mut sum = 0;
    for backend in backends {
        sum += backend.count("UnaryCall").await;
    }
    sum
}

#[tokio::test]
async fn outlier_detection() {
    let all = backends(["five", "four", "one", "three", "two"]).await;
    let trio = Trio::start(&["--qps=100"], &all.each_ref()).await;
    trio.reach(&["five", "four", "one", "three", "two"]).await;
    let number = |value| Some(UInt32Value { value });
    let time = |seconds, nanos| Some(google::Duration { seconds, nanos });
    let detection = OutlierDetection {
        interval: time(0, 500_000_000),
        base_ejection_time: time(2, 0),
        max_ejection_time: time(2, 0),
        max_ejection_percent: number(50),
        failure_percentage_threshold: number(50),
        enforcing_failure_percentage: number(100),
        failure_percentage_minimum_hosts: number(5),
        failure_percentage_request_volume: number(5),
        enforcing_success_rate: number(0),
        ..OutlierDetection::default()
    };
    trio.server.set(cluster("cart").edit(|it| it.outlier_detection = Some(detection)));
    let metadata = [(UNARY, BEHAVIOR, "hostname=five error-code-2")];
    let load = Load { metadata: &metadata, ..UNARY_CALLS };
    trio.each(async |client| client.configure(load).await).await;
    trio.reach(&["four", "one", "three", "two"]).await;
    trio.each(async |client| client.configure(UNARY_CALLS).await).await;
    trio.reach(&["five", "four", "one", "three", "two"]).await;
}

/// Calls to a cluster without endpoints fail. Up to grpc-go 1.70 they wait instead (CH3.21).
#[tokio::test]
async fn no_endpoints() {
    let trio = Trio::start(&["--qps=100", "--rpc_timeout_sec=1"], &[]).await;
    let codes = [Code::Unavailable, Code::Unavailable, Code::DeadlineExceeded];
    for (client, code) in trio.all.iter().zip(codes) {
        client.all_end(UNARY_CALLS, &[(UNARY, code)]).await;
    }
}

/// The first policy is unknown. The second one adds metadata, by which the backend fails the calls.
#[tokio::test]
async fn custom_lb() {
    let [one] = backends(["one"]).await;
    let trio = Trio::start(&["--qps=100"], &[&one]).await;
    trio.reach(&["one"]).await;
    let policies = vec![policy("test.ThisLoadBalancerDoesNotExist"), policy("test.RpcBehaviorLoadBalancer")];
    let policies = LoadBalancingPolicy { policies };
    trio.server.set(cluster("cart").edit(|it| it.load_balancing_policy = Some(policies)));
    trio.each(async |client| client.all_end(UNARY_CALLS, &[(UNARY, Code::DataLoss)]).await).await;
}

fn policy(name: &str) -> Policy {
    let kind = Some(google::value::Kind::StringValue("error-code-15".to_owned()));
    let fields = [("rpcBehavior".to_owned(), google::Value { kind })].into();
    let type_url = format!("type.googleapis.com/{name}");
    let value = TypedStruct { type_url, value: Some(google::Struct { fields }) }.encode_to_vec().into();
    let type_url = "type.googleapis.com/xds.type.v3.TypedStruct".to_owned();
    let typed_config = Some(google::Any { type_url, value });
    Policy { typed_extension_config: Some(TypedExtensionConfig { name: name.to_owned(), typed_config }) }
}
