//! Fault injection (A33).

use prost::Message;
use tokio::sync::{Mutex, MutexGuard};

use super::*;
use crate::{
    filters::running_faults,
    pb::{
        envoy::{
            config::{
                listener::v3::ApiListener,
                route::v3::{RetryPolicy, route::Action, route_action::ClusterSpecifier},
            },
            extensions::filters::{
                common::fault::v3::{
                    FaultDelay,
                    fault_delay::{FaultDelaySecifier, HeaderDelay},
                },
                http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_filter::ConfigType,
                },
            },
            r#type::v3::FractionalPercent,
        },
        google::protobuf::{Any, Duration as Proto, UInt32Value},
    },
};

/// Faults are counted for the whole process, so these tests run one after the other.
pub(super) static SERIAL: Mutex<()> = Mutex::const_new(());

/// A mesh with a filter that injects faults. Its calls are for one cluster.
struct Faulty {
    mesh: Mesh,
    name: &'static str,
    _serial: MutexGuard<'static, ()>,
}

impl Faulty {
    async fn start(name: &'static str, peers: &[&Peer], fault: HttpFault) -> Self {
        let serial = SERIAL.lock().await;
        let mesh = Mesh::start(name, peers).await;
        mesh.server.set(listener("shop").rds("routes").edit(|listener| {
            let api = listener.api_listener.take().unwrap().api_listener.unwrap();
            let mut manager = HttpConnectionManager::decode(&*api.value).unwrap();
            let config_type = Some(ConfigType::TypedConfig(any(&fault)));
            let filter = HttpFilter { name: "fault".into(), config_type, ..HttpFilter::default() };
            manager.http_filters.insert(0, filter);
            let api = Any { value: manager.encode_to_vec().into(), ..api };
            listener.api_listener = Some(ApiListener { api_listener: Some(api) });
        }));
        Self { mesh, name, _serial: serial }
    }

    /// A call with these headers.
    fn with(&self, path: &str, headers: &[(&str, &str)]) -> JoinHandle<Result<(), Status>> {
        let headers = headers.iter().fold(Request::post(path), |it, (name, value)| it.header(*name, *value));
        let (request, mut channel) = (headers.body(Given::default()).unwrap(), self.mesh.channel.clone());
        tokio::spawn(finish(
            async move { channel.call(request).await.unwrap_or_else(|error| match error {}) },
        ))
    }

    /// The calls that the cluster counts.
    fn running(&self) -> u32 {
        self.mesh.running(self.name)
    }
}

pub(super) fn any(fault: &HttpFault) -> Any {
    let type_url = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault".into();
    Any { type_url, value: fault.encode_to_vec().into() }
}

fn percent(numerator: u32) -> Option<FractionalPercent> {
    Some(FractionalPercent { numerator, denominator: 0 })
}

/// Every call is delayed by so many seconds.
fn delay(seconds: i64) -> HttpFault {
    let delay = FaultDelaySecifier::FixedDelay(Proto { seconds, nanos: 0 });
    let delay = FaultDelay { fault_delay_secifier: Some(delay), percentage: percent(100) };
    HttpFault { delay: Some(delay), ..HttpFault::default() }
}

/// Every call with the header is delayed.
fn delay_by_header() -> HttpFault {
    let delay = FaultDelaySecifier::HeaderDelay(HeaderDelay {});
    let delay = FaultDelay { fault_delay_secifier: Some(delay), percentage: percent(100) };
    HttpFault { delay: Some(delay), ..HttpFault::default() }
}

/// Every call fails.
pub(super) fn abort(with: ErrorType) -> HttpFault {
    let abort = FaultAbort { error_type: Some(with), percentage: percent(100) };
    HttpFault { abort: Some(abort), ..HttpFault::default() }
}

async fn status(call: JoinHandle<Result<(), Status>>) -> (Code, String) {
    let status = soon(call).await.unwrap().unwrap_err();
    (status.code(), status.message().to_owned())
}

/// Lets time pass.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn faults(running: u32) {
    until("faults run", || running_faults() == running).await;
}

#[tokio::test]
async fn ch5_6_ch5_8_a_call_is_delayed_and_then_fails_without_being_sent() {
    let mut peer = Peer::start().await;
    let both = HttpFault { abort: abort(ErrorType::HttpStatus(401)).abort, ..delay(1_000) };
    let it = Faulty::start("ch5_6_both", &[&peer], both).await;
    let call = it.mesh.get("/a");
    faults(1).await;
    pass(999).await;
    assert!(!call.is_finished());
    assert_eq!(it.mesh.channel.shared.calls.published.waiting(), 0, "it is not queued");
    pass(2).await;
    assert_eq!(status(call).await, (Code::Unauthenticated, "fault injected".into()));
    assert_eq!((running_faults(), it.running(), peer.is_quiet()), (0, 0, true));
}

#[tokio::test]
async fn ch5_9_a_delayed_call_is_sent_after_its_delay() {
    let mut peer = Peer::start().await;
    let it = Faulty::start("ch5_9_sent", &[&peer], delay(1_000)).await;
    let call = it.mesh.get("/a");
    faults(1).await;
    pass(999).await;
    assert_eq!((call.is_finished(), it.running(), peer.is_quiet()), (false, 0, true));
    pass(2).await;
    let request = peer.request().await;
    assert_eq!(running_faults(), 0, "a fault is over with its delay (CH5.10)");
    request.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch5_9_a_delay_ends_with_the_deadline_the_call_and_the_channel() {
    let mut peer = Peer::start().await;
    let it = Faulty::start("ch5_9_ends", &[&peer], delay(1_000)).await;
    let call = it.mesh.with_timeout("/deadline", "100S");
    faults(1).await;
    pass(101).await;
    let (code, message) = status(call).await;
    assert_eq!(code, Code::DeadlineExceeded);
    assert_eq!(message, "deadline exceeded: the delay of an injected fault is not over");
    assert_eq!(running_faults(), 0);
    let call = it.mesh.get("/cancelled");
    faults(1).await;
    call.abort();
    faults(0).await;
    let call = it.mesh.get("/shutdown");
    faults(1).await;
    soon(it.mesh.channel.shutdown(Duration::from_secs(100))).await;
    let (code, message) = status(call).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.starts_with("channel is shut down"), "{message}");
    assert_eq!((running_faults(), peer.is_quiet()), (0, true));
}

#[tokio::test]
async fn ch5_8_an_injected_status_is_none_of_a_control_plane_and_is_not_retried() {
    let mut peer = Peer::start().await;
    for (with, code) in [
        (ErrorType::GrpcStatus(5), Code::NotFound),
        (ErrorType::GrpcStatus(15), Code::DataLoss),
        (ErrorType::GrpcStatus(14), Code::Unavailable),
        (ErrorType::HttpStatus(200), Code::Unknown),
    ] {
        let it = Faulty::start("ch5_8_status", &[&peer], abort(with)).await;
        let route = route::prefix("").cluster("ch5_8_status").edit(|route| {
            let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
            let (retry_on, num_retries) = ("unavailable".to_owned(), Some(UInt32Value { value: 3 }));
            action.retry_policy = Some(RetryPolicy { retry_on, num_retries, ..RetryPolicy::default() });
        });
        it.mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
        let response = soon(it.mesh.begin("/a", Given::default())).await;
        assert_eq!(response.extensions().get::<crate::channel::AttemptCount>(), None);
        let status = Status::from_header_map(response.headers()).unwrap();
        // With its own code, although a control plane must not cause it (CH1.17).
        assert_eq!((status.code(), status.message()), (code, "fault injected"));
        assert_eq!((it.running(), peer.is_quiet()), (0, true));
    }
}

#[tokio::test]
async fn ch5_8_a_call_that_fails_on_purpose_needs_no_endpoint() {
    let it = Faulty::start("ch5_8_none", &[], abort(ErrorType::GrpcStatus(9))).await;
    assert_eq!(status(it.mesh.get("/a")).await, (Code::FailedPrecondition, "fault injected".into()));
}

#[tokio::test]
async fn ch5_8_the_status_ok_is_a_response_without_messages() {
    let mut peer = Peer::start().await;
    let it = Faulty::start("ch5_8_ok", &[&peer], abort(ErrorType::GrpcStatus(0))).await;
    let response = soon(it.mesh.begin("/a", Given::default())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], "0");
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert_eq!((response.body().is_end_stream(), peer.is_quiet()), (true, true));
}

#[tokio::test]
async fn ch5_7_a_header_that_is_no_number_injects_nothing_and_is_counted() {
    let mut peer = Peer::start().await;
    let it = Faulty::start("ch5_7_malformed", &[&peer], delay_by_header()).await;
    for value in ["soon", "-1", ""] {
        let call = it.with("/a", &[("x-envoy-fault-delay-request", value)]);
        peer.request().await.respond();
        soon(call).await.unwrap().unwrap();
    }
    assert_eq!((it.mesh.channel.malformed().fault_headers, running_faults()), (3, 0));
}

#[tokio::test]
async fn ch5_10_a_fault_counts_neither_before_nor_after_its_delay() {
    let mut peer = Peer::start().await;
    let limited = HttpFault { max_active_faults: Some(UInt32Value { value: 1 }), ..delay_by_header() };
    let it = Faulty::start("ch5_10_counts", &[&peer], limited).await;
    let delayed = [("x-envoy-fault-delay-request", "100000")];
    // Calls without a fault take no place (grpc-go#8926).
    let plain = it.mesh.get("/plain");
    let of_plain = peer.request().await;
    assert_eq!(running_faults(), 0);
    let first = it.with("/first", &delayed);
    faults(1).await;
    // At the limit a call is not delayed.
    let second = it.with("/second", &delayed);
    let of_second = peer.request().await;
    assert_eq!((of_second.path(), running_faults()), ("/second", 1));
    pass(101).await;
    let of_first = peer.request().await;
    assert_eq!(of_first.path(), "/first");
    // The first one still runs, but its fault is over (envoy#13069).
    let third = it.with("/third", &delayed);
    faults(1).await;
    for (request, call) in [(of_plain, plain), (of_second, second), (of_first, first)] {
        request.respond();
        soon(call).await.unwrap().unwrap();
    }
    assert!(peer.is_quiet());
    pass(101).await;
    peer.request().await.respond();
    soon(third).await.unwrap().unwrap();
    assert_eq!(running_faults(), 0);
}

#[tokio::test]
async fn ch5_1_a_weighted_cluster_has_the_filters_of_its_override() {
    let mut peer = Peer::start().await;
    let name = "ch5_1_weighted";
    let it = Faulty::start(name, &[&peer], HttpFault::default()).await;
    let route = route::prefix("").weighted([(name, 1), (name, 1)]).edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        let Some(ClusterSpecifier::WeightedClusters(weighted)) = &mut action.cluster_specifier else {
            panic!("it has weights")
        };
        let fault = any(&abort(ErrorType::GrpcStatus(10)));
        weighted.clusters[1].typed_per_filter_config.insert("fault".into(), fault);
    });
    it.mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let (mut sent, mut failed) = (0, 0);
    while sent < 3 || failed < 3 {
        let call = it.mesh.get("/a");
        tokio::select! {
            request = peer.request() => {
                request.respond();
                soon(call).await.unwrap().unwrap();
                sent += 1;
            }
            () = until("it fails", || call.is_finished()) => {
                assert_eq!(status(call).await, (Code::Aborted, "fault injected".into()));
                failed += 1;
            }
        }
    }
}
