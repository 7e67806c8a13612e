//! HTTP filters of the application.

mod bodies;
mod discovered;
mod ends;
mod mutations;
mod script;

use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderName;
use tokio::sync::Notify;

use self::script::{Scripted, overridden, with_filters};
pub(super) use self::script::{any, of, script, with_filter};
use super::{secure::Ca, *};
use crate::{
    error::Code as FilterCode,
    pb::{
        envoy::{
            config::route::v3::{RetryPolicy, route::Action},
            extensions::filters::http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
            r#type::v3::FractionalPercent,
        },
        google::protobuf::UInt32Value,
    },
    resource::{
        Registry,
        http_filter::{FilterBody, FilterError},
    },
};

/// A mesh with a client that executes the scripts of tests.
async fn start(name: &str, peers: &[&Peer]) -> Mesh {
    start_with(name, peers, |builder| builder).await
}

pub(super) async fn start_with(
    name: &str,
    peers: &[&Peer],
    settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
) -> Mesh {
    let mut mesh = Mesh::start(name, peers).await;
    let registry = Registry::new().with_client_filter::<Scripted>();
    let client = Client::builder(Bootstrap::from_json(&mesh.server.bootstrap_json()).unwrap());
    mesh.client = client.extensions(registry).build().unwrap();
    let builder = mesh.client.channel("xds:///shop");
    mesh.channel = settings(builder.connect_backoff(Duration::from_millis(20), Duration::from_millis(100)))
        .build()
        .unwrap();
    mesh
}

async fn status(call: JoinHandle<Result<(), Status>>) -> (Code, String) {
    let status = soon(call).await.unwrap().unwrap_err();
    (status.code(), status.message().to_owned())
}

/// What scripts have seen.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[tokio::test]
async fn ch5_2_a_filter_changes_the_request_and_the_response() {
    let mut peer = Peer::start().await;
    let mesh = start("ch5_2_changes", &[&peer]).await;
    script("ch5_2_changes", |setting, mut request, next| {
        Box::pin(async move {
            let cluster = next.cluster().parse().unwrap();
            request.headers_mut().insert("x-cluster", cluster);
            request.headers_mut().insert("x-setting", setting.parse().unwrap());
            request.headers_mut().insert("connection", "close".parse().unwrap());
            request.headers_mut().remove("x-secret");
            let mut response = next.run(request).await;
            response.headers_mut().insert("x-seen", "yes".parse().unwrap());
            Ok(response)
        })
    });
    with_filter(&mesh, of("ch5_2_changes"));
    let request = Request::post("/a").header("x-secret", "s").header("x-user", "ada");
    let (request, mut channel) = (request.body(Given::default()).unwrap(), mesh.channel.clone());
    let call = tokio::spawn(async move { channel.call(request).await });
    let received = peer.request().await;
    let header = |name| received.header(name);
    assert_eq!((header("x-cluster"), header("x-user")), (Some("ch5_2_changes"), Some("ada")));
    assert_eq!((header("x-setting"), header("x-secret"), header("connection")), (Some(""), None, None));
    assert_eq!(header("te"), Some("trailers"), "what gRPC requires is there");
    received.respond();
    let response = soon(call).await.unwrap().unwrap();
    assert_eq!(response.headers()["x-seen"], "yes");
    soon(finish(async { response })).await.unwrap();
}

#[tokio::test]
async fn ch5_2_a_filter_has_the_override_of_its_route() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_override";
    let mesh = start(name, &[&peer]).await;
    script(name, |setting, mut request, next| {
        Box::pin(async move {
            request.headers_mut().insert("x-setting", setting.parse().unwrap());
            Ok(next.run(request).await)
        })
    });
    with_filter(&mesh, of(name));
    let own = route::prefix("/own").cluster(name).edit(|route| {
        route.typed_per_filter_config.insert("mine".into(), overridden("7"));
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [own, route::prefix("").cluster(name)]));
    for (path, setting) in [("/own", "7"), ("/other", "")] {
        let call = mesh.get(path);
        let received = peer.request().await;
        assert_eq!(received.header("x-setting"), Some(setting), "{path}");
        received.respond();
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch5_2_a_filter_fails_a_call_or_answers_it_without_an_endpoint() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_answers";
    let mesh = start(name, &[&peer]).await;
    mesh.server.set(assignment(name, &[]));
    script(name, |_, request, _| {
        Box::pin(async move {
            match request.uri().path() {
                "/fails" => Err(FilterError::new(FilterCode::NotFound, "no such thing")),
                "/ok" => Err(FilterError::new(FilterCode::Ok, "")),
                _ => {
                    let body = http_body_util::Full::new(Bytes::from_static(b"cached"));
                    Ok(Response::builder().header("x-from", "filter").body(FilterBody::new(body)).unwrap())
                }
            }
        })
    });
    with_filter(&mesh, of(name));
    // Codes that are reserved for applications are the application's here.
    assert_eq!(status(mesh.get("/fails")).await, (Code::NotFound, "no such thing".into()));
    soon(mesh.get("/ok")).await.unwrap().unwrap();
    let response = soon(mesh.begin("/answered", Given::default())).await;
    assert_eq!(response.headers()["x-from"], "filter");
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!(body.to_bytes(), "cached");
    assert_eq!((peer.is_quiet(), mesh.running(name)), (true, 0));
}

#[tokio::test]
async fn ch6_21_a_filter_sees_one_call_whatever_its_attempts_are() {
    let mut peer = Peer::start().await;
    let name = "ch6_21_retries";
    let mesh = start(name, &[&peer]).await;
    let seen = Seen::default();
    let notes = seen.clone();
    script(name, move |_, mut request, next| {
        let seen = notes.clone();
        Box::pin(async move {
            seen.add("request");
            request.headers_mut().insert("x-by", "filter".parse().unwrap());
            let response = next.run(request).await;
            seen.add(format!("response {:?}", response.headers().get("grpc-status")));
            Ok(response)
        })
    });
    with_filter(&mesh, of(name));
    let policy = RetryPolicy {
        retry_on: "unavailable".into(),
        num_retries: Some(UInt32Value { value: 2 }),
        ..RetryPolicy::default()
    };
    let route = route::prefix("").cluster(name).edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.retry_policy = Some(policy);
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let call = mesh.call("/a", Given::of([b"abc".to_vec()]));
    for attempt in 0..2 {
        let mut received = peer.request().await;
        assert_eq!(received.header("x-by"), Some("filter"), "attempt {attempt}");
        assert_eq!(received.rest().await, b"abc");
        if attempt == 0 {
            received.fail(Code::Unavailable, &[]);
        } else {
            received.respond();
        }
    }
    soon(call).await.unwrap().unwrap();
    assert_eq!(seen.take(), ["request", "response None"]);
}

#[tokio::test]
async fn ch5_2_filters_run_in_the_order_of_the_listener_and_see_the_failures_of_later_ones() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_order";
    let mesh = start(name, &[&peer]).await;
    let seen = Seen::default();
    for id in ["ch5_2_outer", "ch5_2_inner"] {
        let seen = seen.clone();
        script(id, move |_, request, next| {
            let seen = seen.clone();
            Box::pin(async move {
                seen.add(format!("{id} {}", request.headers().contains_key("x-outer")));
                let mut request = request;
                request.headers_mut().insert("x-outer", "1".parse().unwrap());
                let response = next.run(request).await;
                let code = Status::from_header_map(response.headers()).map(|it| it.code());
                seen.add(format!("{id} {code:?}"));
                Ok(response)
            })
        });
    }
    let abort = FaultAbort {
        error_type: Some(ErrorType::GrpcStatus(10)),
        percentage: Some(FractionalPercent { numerator: 100, denominator: 0 }),
    };
    let fault = script::fault(&HttpFault { abort: Some(abort), ..HttpFault::default() });
    with_filters(&mesh, [("outer", of("ch5_2_outer")), ("fault", fault), ("inner", of("ch5_2_inner"))]);
    assert_eq!(status(mesh.get("/a")).await, (Code::Aborted, "fault injected".into()));
    assert_eq!(seen.take(), ["ch5_2_outer false", "ch5_2_outer Some(Aborted)"]);
    with_filters(&mesh, [("outer", of("ch5_2_outer")), ("inner", of("ch5_2_inner"))]);
    let received = loop {
        let call = mesh.get("/b");
        tokio::select! {
            received = peer.request() => break (received, call),
            () = until("the fault ends it", || call.is_finished()) => drop(seen.take()),
        }
    };
    let (request, call) = received;
    request.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(
        seen.take(),
        ["ch5_2_outer false", "ch5_2_inner true", "ch5_2_inner None", "ch5_2_outer None"]
    );
}

#[tokio::test]
async fn ch5_4_state_outlives_updates_and_ends_with_the_idleness_of_the_channel() {
    let mut peer = Peer::start().await;
    let name = "ch5_4_state";
    let mesh = start_with(name, &[&peer], |it| it.idle_timeout(Duration::from_secs(600))).await;
    let echo = |id| {
        script(id, move |state: String, mut request, next| {
            Box::pin(async move {
                request.headers_mut().insert("x-state", state.parse().unwrap());
                request.headers_mut().insert("x-config", id.parse().unwrap());
                Ok(next.run(request).await)
            })
        });
    };
    echo("ch5_4_first#state");
    echo("ch5_4_second#state");
    with_filter(&mesh, of("ch5_4_first#state"));
    let mut state_of = async |config: &str| {
        loop {
            let call = mesh.get("/a");
            let received = peer.request().await;
            let state = received.header("x-state").unwrap().to_owned();
            let is_of = received.header("x-config") == Some(config);
            received.respond();
            soon(call).await.unwrap().unwrap();
            if is_of {
                return state;
            }
        }
    };
    let first = state_of("ch5_4_first#state").await;
    assert_eq!(first, state_of("ch5_4_first#state").await);
    with_filter(&mesh, of("ch5_4_second#state"));
    assert_eq!(first, state_of("ch5_4_second#state").await, "another configuration");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    until("it is idle", || mesh.channel.state() == crate::channel::ChannelState::Idle).await;
    assert_ne!(first, state_of("ch5_4_second#state").await);
}

#[tokio::test]
async fn ch2_21_ch5_2_credentials_of_filters_are_sent_on_private_connections_alone() {
    let ca = Ca::new();
    for is_private in [false, true] {
        let mut peer =
            if is_private { Peer::secured(ca.server(&["shop"])).await } else { Peer::start().await };
        let name = if is_private { "ch5_2_private" } else { "ch5_2_plaintext" };
        let settings = |it: ChannelBuilder| if is_private { it.xds_credentials(ca.fallback()) } else { it };
        let mesh = start_with(name, &[&peer], settings).await;
        script(name, |_, request, mut next| {
            Box::pin(async move {
                let (name, value) = (HeaderName::from_static("authorization"), "Bearer t".parse().unwrap());
                next.add_credential(name, value);
                Ok(next.run(request).await)
            })
        });
        with_filter(&mesh, of(name));
        let request = Request::post("/a").header("authorization", "own").body(Given::default()).unwrap();
        let mut channel = mesh.channel.clone();
        let call = tokio::spawn(finish(async move {
            channel.call(request).await.unwrap_or_else(|error| match error {})
        }));
        if is_private {
            let received = peer.request().await;
            let values = received.request.headers().get_all("authorization").iter();
            assert_eq!(values.collect::<Vec<_>>(), ["Bearer t"]);
            received.respond();
            soon(call).await.unwrap().unwrap();
        } else {
            let (code, message) = status(call).await;
            assert_eq!(code, Code::Unauthenticated);
            let reason =
                "the connection is plaintext, and the call has credentials, which are sent with TLS alone";
            assert_eq!(message, format!("{}: {reason}", peer.address));
            assert_eq!((peer.is_quiet(), mesh.running(name)), (true, 0));
        }
    }
}

#[tokio::test]
async fn ch5_2_a_filter_shortens_the_time_of_a_call() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_timeout";
    let mesh = start(name, &[&peer]).await;
    let seen = Seen::default();
    let notes = seen.clone();
    script(name, move |_, mut request, next| {
        notes.add(format!("{}", next.deadline().is_some()));
        let timeout = if request.uri().path() == "/short" { "30S" } else { "malformed" };
        request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
        Box::pin(async move { Ok(next.run(request).await) })
    });
    with_filter(&mesh, of(name));
    let call = mesh.with_timeout("/short", "1H");
    let received = peer.request().await;
    let timeout = received.header("grpc-timeout").unwrap();
    let micros: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
    assert!(micros <= 30_000_000, "{timeout}");
    received.respond();
    soon(call).await.unwrap().unwrap();
    let (code, message) = status(mesh.get("/malformed")).await;
    assert_eq!((code, message.contains("grpc-timeout")), (Code::Internal, true), "{message}");
    assert_eq!(seen.take(), ["true", "false"]);
}

/// Waits until the client has reset the stream of a response.
async fn reset(stream: &mut h2::SendStream<Bytes>) -> h2::Reason {
    soon(std::future::poll_fn(|cx| stream.poll_reset(cx))).await.unwrap()
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

/// Tells of its end.
struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
