//! Retries by the policy of routes (A44).

use super::*;
use crate::{
    channel::AttemptCount,
    pb::{
        envoy::config::route::v3::{RetryPolicy, retry_policy::RetryBackOff, route::Action},
        google::protobuf::{Duration as Proto, UInt32Value},
    },
    testing::resources::RouteBuilder,
};

const ATTEMPTS: &str = "grpc-previous-rpc-attempts";

pub(super) fn policy(retry_on: &str, num_retries: u32) -> RetryPolicy {
    let millisecond = Some(Proto { seconds: 0, nanos: 1_000_000 });
    RetryPolicy {
        retry_on: retry_on.into(),
        num_retries: Some(UInt32Value { value: num_retries }),
        retry_back_off: Some(RetryBackOff { base_interval: millisecond, max_interval: millisecond }),
        ..RetryPolicy::default()
    }
}

pub(super) fn with_policy(route: RouteBuilder, policy: RetryPolicy) -> RouteBuilder {
    route.edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.retry_policy = Some(policy);
    })
}

/// A mesh whose only route has a retry policy.
async fn retrying(name: &str, peers: &[&Peer], policy: RetryPolicy) -> Mesh {
    retrying_with(name, peers, policy, |builder| builder).await
}

async fn retrying_with(
    name: &str,
    peers: &[&Peer],
    policy: RetryPolicy,
    settings: impl FnOnce(ChannelBuilder) -> ChannelBuilder,
) -> Mesh {
    let mesh = Mesh::with(name, peers, settings).await;
    let route = with_policy(route::prefix("").cluster(name), policy);
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    mesh
}

fn code(result: Result<(), Status>) -> Code {
    result.map_or_else(|status| status.code(), |()| Code::Ok)
}

#[tokio::test]
async fn ch6_19_ch6_20_retries_say_how_many_attempts_came_before_and_the_first_does_not() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_19_previous", &[&peer], policy("unavailable", 4)).await;
    let request = Request::post("/a").header(ATTEMPTS, "7").header("x-user", "ada");
    let mut channel = mesh.channel.clone();
    let call =
        tokio::spawn(async move { channel.call(request.body(Given::of([vec![1; 3]])).unwrap()).await });
    for expected in [None, Some("1"), Some("2"), Some("3")] {
        let mut attempt = peer.request().await;
        assert_eq!((attempt.header(ATTEMPTS), attempt.header("x-user")), (expected, Some("ada")));
        assert_eq!(attempt.rest().await, [1; 3], "the whole body comes with each attempt");
        attempt.fail(Code::Unavailable, &[]);
    }
    let last = peer.request().await;
    assert_eq!(last.header(ATTEMPTS), Some("4"));
    last.respond();
    let response = soon(call).await.unwrap().unwrap_or_else(|error| match error {});
    assert_eq!(response.extensions().get(), Some(&AttemptCount(5)), "CH6.20");
    drop(response);
    assert_eq!((mesh.buffered(), mesh.running("ch6_19_previous")), (0, 0));
}

#[tokio::test]
async fn ch6_9_ch13_11_the_status_of_the_last_attempt_is_delivered_unchanged() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_9_last", &[&peer], policy("unavailable,internal", 2)).await;
    let call = mesh.get("/a");
    for number in ["1", "2", "3"] {
        peer.request().await.fail(Code::Unavailable, &[("grpc-message", number), ("x-attempt", number)]);
    }
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "3"));
    assert_eq!(status.metadata().get("x-attempt").unwrap(), "3", "nothing of earlier attempts is shown");
    // Another code ends the call at the first attempt, or at a later one.
    let call = mesh.get("/a");
    peer.request().await.fail(Code::Internal, &[]);
    peer.request().await.fail(Code::NotFound, &[("grpc-message", "gone")]);
    assert_eq!(soon(call).await.unwrap().unwrap_err().message(), "gone");
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch6_1_a_policy_of_the_route_hides_that_of_the_virtual_host() {
    let mut peer = Peer::start().await;
    let name = "ch6_1_hidden";
    let mesh = Mesh::start(name, &[&peer]).await;
    let routes = [
        with_policy(route::path("/none").cluster(name), policy("", 1)),
        with_policy(route::path("/own").cluster(name), policy("internal", 1)),
        route::prefix("").cluster(name),
    ];
    mesh.server.set(route_config("routes").virtual_host(["*"], routes).edit(|config| {
        config.virtual_hosts[0].retry_policy = Some(policy("unavailable", 1));
    }));
    for (path, code, attempts) in [
        ("/none", Code::Unavailable, 1),
        ("/own", Code::Unavailable, 1),
        ("/own", Code::Internal, 2),
        ("/other", Code::Unavailable, 2),
        ("/other", Code::Internal, 1),
    ] {
        let call = mesh.get(path);
        for _ in 0..attempts {
            peer.request().await.fail(code, &[]);
        }
        assert_eq!(soon(call).await.unwrap().unwrap_err().code(), code, "{path} {code:?}");
        assert!(peer.is_quiet());
    }
}

#[tokio::test]
async fn ch6_3_an_attempt_may_take_longer_than_the_timeout_of_the_policy_for_each() {
    let mut peer = Peer::start().await;
    let per_try_timeout = Some(Proto { seconds: 0, nanos: 1 });
    let policy = RetryPolicy { per_try_timeout, ..policy("unavailable,deadline-exceeded,cancelled", 3) };
    let mesh = retrying("ch6_3_per_try", &[&peer], policy).await;
    let (first, second) = (mesh.get("/a"), mesh.get("/b"));
    let slow = peer.request().await;
    peer.request().await.respond();
    soon(second).await.unwrap().unwrap();
    slow.respond();
    soon(first).await.unwrap().unwrap();
    assert!(peer.is_quiet(), "one attempt each");
    let not_executed = mesh.channel.status().await.not_executed;
    assert_eq!(not_executed, ["not executed: RetryPolicy.per_try_timeout".into()]);
}

#[tokio::test]
async fn ch6_5_a_retry_picks_from_the_newest_picker_of_the_cluster() {
    let (mut one, mut two) = (Peer::start().await, Peer::start().await);
    let name = "ch6_5_newest";
    let mesh = retrying(name, &[&one], policy("unavailable", 3)).await;
    let call = mesh.get("/a");
    let first = one.request().await;
    mesh.server.set(assignment(name, &[&two]));
    // Until calls go to the endpoint that replaces that of the attempt.
    let mut probe = tokio::spawn(finish(mesh.begin("/probe", Given::default())));
    loop {
        tokio::select! {
            request = one.request() => request.respond(),
            request = two.request() => {
                request.respond();
                break;
            }
        }
        soon(probe).await.unwrap().unwrap();
        probe = mesh.get("/probe");
    }
    first.fail(Code::Unavailable, &[]);
    let retry = two.request().await;
    assert_eq!(retry.header(ATTEMPTS), Some("1"));
    // There is no other endpoint, and no rule against the same one.
    retry.fail(Code::Unavailable, &[]);
    two.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch6_8_the_server_says_when_or_that_there_is_no_retry() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_8_pushback", &[&peer], policy("unavailable", 3)).await;
    let call = mesh.get("/a");
    peer.request().await.fail(Code::Unavailable, &[("grpc-retry-pushback-ms", "0")]);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    for values in [&["-1"][..], &["soon"], &["0", "0"]] {
        let call = mesh.get("/a");
        let headers: Vec<_> = values.iter().map(|value| ("grpc-retry-pushback-ms", *value)).collect();
        peer.request().await.fail(Code::Unavailable, &headers);
        assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable, "{values:?}");
        assert!(peer.is_quiet());
    }
    assert_eq!(mesh.channel.malformed().retry_pushback, 2, "a negative number is well-formed");
}

#[tokio::test]
async fn ch6_6_a_delay_that_ends_after_the_deadline_delivers_the_status_at_once() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_6_deadline", &[&peer], policy("unavailable", 3)).await;
    let call = mesh.with_timeout("/a", "100S");
    peer.request()
        .await
        .fail(Code::Unavailable, &[("grpc-retry-pushback-ms", "100000"), ("grpc-message", "busy")]);
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "busy"));
}

#[tokio::test]
async fn ch6_11_a_call_is_committed_when_its_response_begins() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_11_commit", &[&peer], policy("unavailable,cancelled,internal", 3)).await;
    let call = mesh.call("/a", Given::of([vec![1; 10]]));
    let mut attempt = peer.request().await;
    let mut stream = attempt.begin_response();
    until("nothing is kept", || mesh.buffered() == 0).await;
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "14".parse().unwrap());
    stream.send_trailers(trailers).unwrap();
    assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable);
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch6_14_a_lost_connection_and_a_reset_are_retried_by_the_policy_alone() {
    for retry_on in ["unavailable,internal", ""] {
        let mut peer = Peer::start().await;
        let name = format!("ch6_14_lost_{}", retry_on.len());
        let mesh = retrying(&name, &[&peer], policy(retry_on, 3)).await;
        let call = mesh.get("/a");
        let attempt = peer.request().await;
        peer.connection().await.send(End::Crash).unwrap();
        if retry_on.is_empty() {
            assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable);
            drop(attempt);
            continue;
        }
        let again = peer.request().await;
        drop(attempt);
        again.reset(h2::Reason::PROTOCOL_ERROR);
        peer.request().await.respond();
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch6_14_a_call_that_makes_servers_end_their_connections_ends_two_of_them_at_most() {
    let mut peer = Peer::start().await;
    // The neighbor waits for the delay of an endpoint that has ended its connections.
    let waiting = |builder: ChannelBuilder| builder.wait_for_ready(true);
    let mesh = retrying_with("ch6_14_fatal", &[&peer], policy("unavailable", 4), waiting).await;
    let call = mesh.get("/fatal");
    // A request that is dropped resets its stream, which may arrive before the end of its connection.
    let mut attempts = Vec::new();
    for _ in 0..2 {
        attempts.push(peer.request().await);
        peer.connection()
            .await
            .send(End::Abrupt(h2::Reason::ENHANCE_YOUR_CALM))
            .unwrap_or_else(|_| panic!("it is open"));
    }
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let neighbour = mesh.get("/neighbour");
    let received = peer.request().await;
    assert_eq!(received.path(), "/neighbour", "no third attempt");
    received.respond();
    soon(neighbour).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch6_13_ch6_15_an_unprocessed_attempt_is_free_once_and_then_one_of_the_policy() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_15_free", &[&peer], policy("unavailable", 1)).await;
    let call = mesh.get("/a");
    for expected in [None, None, Some("1")] {
        let attempt = peer.request().await;
        assert_eq!(attempt.header(ATTEMPTS), expected);
        attempt.reset(h2::Reason::REFUSED_STREAM);
    }
    assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable);
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch6_16_a_stream_of_messages_is_replayed_and_goes_on_in_a_retry() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch6_16_stream", &[&peer], policy("unavailable", 2)).await;
    let (send, body) = Given::live();
    let call = mesh.call("/a", body);
    let mut first = peer.request().await;
    send.send("one ".into()).unwrap();
    assert_eq!(first.data().await, "one ");
    first.fail(Code::Unavailable, &[]);
    let mut second = peer.request().await;
    send.send("two".into()).unwrap();
    drop(send);
    assert_eq!(second.rest().await, b"one two");
    second.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(mesh.buffered(), 0);
}

#[tokio::test]
async fn ch2_25_ch6_10_a_response_that_is_a_failure_by_its_http_status_alone_is_retried() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch2_25_retried", &[&peer], policy("unavailable", 2)).await;
    let call = mesh.get("/a");
    peer.request().await.answer_as_grpc(503);
    peer.request().await.answer(503);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let call = mesh.get("/b");
    peer.request().await.answer_as_grpc(400);
    let status = soon(call).await.unwrap().unwrap_err();
    let text = format!("{}: the response has no grpc-status, HTTP status 400 Bad Request", peer.address);
    assert_eq!((status.code(), status.message()), (Code::Internal, &*text));
    let call = mesh.get("/c");
    peer.request().await.end_without_status();
    let status = soon(call).await.unwrap().unwrap_err();
    let text = format!("{}: the trailers have no grpc-status, HTTP status 200 OK", peer.address);
    assert_eq!((status.code(), status.message()), (Code::Unknown, &*text));
}

#[tokio::test]
async fn ch6_16_a_request_above_the_buffer_is_not_retried() {
    let mut peer = Peer::start().await;
    let mesh =
        retrying_with("ch6_16_small", &[&peer], policy("unavailable", 2), |it| it.retry_buffer(10, 100))
            .await;
    for (size, attempts) in [(10, 3), (11, 1)] {
        let call = mesh.call("/a", Given::of([vec![1; size]]));
        for _ in 0..attempts {
            let mut attempt = peer.request().await;
            assert_eq!(attempt.rest().await.len(), size);
            attempt.fail(Code::Unavailable, &[]);
        }
        assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable, "{size}");
        assert!(peer.is_quiet());
    }
}

#[tokio::test]
async fn ch6_10_a_pick_without_a_usable_endpoint_is_an_attempt() {
    let name = "ch6_10_pick";
    let mesh = Mesh::start(name, &[]).await;
    let long = Some(Proto { seconds: 1_000, nanos: 0 });
    let back_off = Some(RetryBackOff { base_interval: long, max_interval: None });
    let retrying = RetryPolicy { retry_back_off: back_off, ..policy("unavailable", 1) };
    let routes = [
        with_policy(route::path("/again").cluster(name), retrying),
        with_policy(route::prefix("").cluster(name), policy("unavailable", 3)),
    ];
    mesh.server.set(route_config("routes").virtual_host(["*"], routes));
    let waiting = mesh.get("/again");
    // It ends after the other call has begun, and after all its attempts.
    let failed = soon(mesh.get("/a")).await.unwrap().unwrap_err();
    assert!(failed.message().contains("no usable endpoints"), "{failed:?}");
    assert!(!waiting.is_finished(), "its next attempt is ahead");
    waiting.abort();
}

#[tokio::test]
async fn ch6_7_a_dropped_call_is_not_retried() {
    let mut peer = Peer::start().await;
    let name = "ch6_7_drop";
    let long = Some(Proto { seconds: 1_000, nanos: 0 });
    let back_off = Some(RetryBackOff { base_interval: long, max_interval: None });
    let retrying = RetryPolicy { retry_back_off: back_off, ..policy("unavailable", 4) };
    let mesh = self::retrying(name, &[&peer], retrying).await;
    mesh.server.set(assignment(name, &[&peer]).drop_percent("all", 100));
    // Until the drop is known, calls succeed.
    let status = loop {
        let mut call = mesh.get("/a");
        tokio::select! {
            ended = soon(&mut call) => match ended.unwrap() {
                Err(status) => break status,
                Ok(()) => panic!("nobody has answered"),
            },
            attempt = peer.request() => {
                attempt.respond();
                soon(call).await.unwrap().unwrap();
            }
        }
    };
    assert!(status.message().contains("dropped by the overload category all"), "{status:?}");
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch6_18_a_throttled_channel_does_not_retry_until_calls_succeed() {
    let mut peer = Peer::start().await;
    let name = "ch6_18_throttle";
    let mesh = retrying_with(name, &[&peer], policy("unavailable", 1), |it| it.retry_throttle(4, 1.0)).await;
    for (attempts, answer) in [
        (2, Code::Unavailable),
        (1, Code::Unavailable),
        (1, Code::Ok),
        (1, Code::Ok),
        (1, Code::Ok),
        (2, Code::Unavailable),
    ] {
        let call = mesh.get("/a");
        for _ in 0..attempts {
            let attempt = peer.request().await;
            if answer == Code::Ok { attempt.respond() } else { attempt.fail(answer, &[]) }
        }
        assert_eq!(code(soon(call).await.unwrap()), answer);
        assert!(peer.is_quiet());
    }
}

#[tokio::test]
async fn ch6_18_a_call_that_fails_after_its_response_has_begun_takes_a_token() {
    let mut peer = Peer::start().await;
    let name = "ch6_18_late";
    let mesh = retrying_with(name, &[&peer], policy("unavailable", 1), |it| it.retry_throttle(4, 1.0)).await;
    let call = mesh.call("/a", Given::of([vec![1; 10]]));
    let mut attempt = peer.request().await;
    assert_eq!(attempt.data().await.len(), 10);
    let stream = attempt.begin_response();
    until("the response has begun", || mesh.buffered() == 0).await;
    attempt.reset(h2::Reason::REFUSED_STREAM);
    assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable);
    drop(stream);
    let call = mesh.get("/a");
    peer.request().await.fail(Code::Unavailable, &[]);
    assert_eq!(code(soon(call).await.unwrap()), Code::Unavailable, "2 of 4 tokens are left");
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch6_18_a_throttle_out_of_range_is_an_error_of_the_builder() {
    let peer = Peer::start().await;
    let mesh = Mesh::start("ch6_18_error", &[&peer]).await;
    let error = mesh.client.channel("xds:///shop").retry_throttle(0, 0.1).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the retry throttle of the channel to xds:///shop is not valid: the tokens must be between 1 and 1000, are 0"
    );
}

#[tokio::test]
async fn ch1_6_a_call_between_two_attempts_ends_when_the_channel_is_shut_down() {
    let mut peer = Peer::start().await;
    let mesh = retrying("ch1_6_backoff", &[&peer], policy("unavailable", 1)).await;
    let call = mesh.get("/a");
    peer.request().await.fail(Code::Unavailable, &[("grpc-retry-pushback-ms", "1000000")]);
    until("the attempt has ended", || mesh.running("ch1_6_backoff") == 0).await;
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    let status = soon(call).await.unwrap().unwrap_err();
    assert!(status.message().contains("channel is shut down"), "{status:?}");
}
