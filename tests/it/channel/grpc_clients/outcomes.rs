//! Both clients see the same of each shape of call.

use ::tracing::{Instrument, debug_span};
use grpc::client::DynInvoke;
use xdskit::pb::{
    envoy::config::route::v3::{RetryPolicy, RouteAction, route::Action, route_action::MaxStreamDuration},
    google::protobuf::{self, UInt32Value},
};

use super::{
    server::{COLLECT, ECHO, FAIL_AT_ONCE, FAIL_LATE, FLAKY, HOLD, HOLD_OPEN, REPEAT},
    *,
};
use crate::tracing::Log;

/// Makes a call by both clients, and returns what both of them see.
async fn by_both(channel: &Channel, method: &str, messages: &[Bytes]) -> Outcome {
    let outcome = by_grpc(channel, method, messages, CallOptions::new()).await;
    assert_eq!(by_tonic(channel, method, messages, None).await, outcome, "{method}");
    outcome
}

fn messages(texts: &[&'static str]) -> Vec<Bytes> {
    texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect()
}

/// Changes the route, and waits until calls use it.
async fn set_route(mesh: &Mesh, edit: impl FnOnce(&mut RouteAction)) {
    let route = route::prefix("").cluster("cart").edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        edit(action);
    });
    mesh.apply(route_config("routes").virtual_host(["*"], [route])).await;
}

#[tokio::test]
async fn ch17_4_each_shape_of_call_has_the_same_outcome_as_with_tonic() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let all = messages(&["one", "", "three"]);
    for (method, sent, received) in [
        (ECHO, &all[..1], messages(&["one"])),
        (ECHO, &all[..], all.clone()),
        (ECHO, &[], vec![]),
        (COLLECT, &all[..], messages(&["onethree"])),
        (COLLECT, &[], messages(&[""])),
        (REPEAT, &all[..1], messages(&["one"; 5])),
    ] {
        let outcome = by_both(&mesh.channel, method, sent).await;
        assert_eq!((outcome.code, &outcome.messages), (0, &received), "{method}");
        let tags = [("x-tag", &b"a"[..]), ("x-tag", b"b"), ("x-tag-bin", &[0, 255])];
        assert_eq!(outcome.headers, tags.map(|(name, value)| (name.to_owned(), value.to_vec())));
        let trailers = [
            ("x-trailer", &b"one"[..]),
            ("x-trailer", b"two"),
            ("x-trailer-bin", &[0, 255]),
            ("x-trailer-bin", &[1]),
        ];
        assert_eq!(outcome.trailers, trailers.map(|(name, value)| (name.to_owned(), value.to_vec())));
    }
    server.runs(0).await;
}

#[tokio::test]
async fn ch1_17_ch17_4_statuses_have_their_details_and_metadata_in_trailers_alone_and_after_messages() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let late = by_both(&mesh.channel, FAIL_LATE, &messages(&["hello"])).await;
    let at_once = by_both(&mesh.channel, FAIL_AT_ONCE, &messages(&["hello"])).await;
    let unknown = by_both(&mesh.channel, "/test.Calls/Unknown", &messages(&["hello"])).await;
    for (outcome, code, received) in [(&late, 9, &["one"][..]), (&at_once, 8, &[])] {
        assert_eq!((outcome.code, outcome.message.as_str()), (code, "it fails: ä"));
        assert_eq!(outcome.details, [8, 9, 18, 1, b'a']);
        assert_eq!((&outcome.messages, outcome.trailers.len() >= 4), (&messages(received), true));
    }
    assert_eq!((unknown.code, unknown.message.as_str()), (12, "/test.Calls/Unknown"));
    server.runs(0).await;
}

#[tokio::test]
async fn ch17_4_retries_by_the_policy_of_the_route_are_the_same_for_both_clients() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    for sent in [messages(&["one"]), messages(&["one", "two", "three"])] {
        set_route(&mesh, |_| {}).await;
        let before = server.calls();
        let outcome = by_both(&mesh.channel, FLAKY, &sent).await;
        assert_eq!((outcome.code, outcome.message.as_str()), (14, "this is not the third attempt"));
        assert_eq!(server.calls() - before, 2, "one attempt each");
        set_route(&mesh, |action| {
            let (retry_on, num_retries) = ("unavailable".to_owned(), Some(UInt32Value { value: 2 }));
            action.retry_policy = Some(RetryPolicy { retry_on, num_retries, ..RetryPolicy::default() });
        })
        .await;
        let before = server.calls();
        let outcome = by_both(&mesh.channel, FLAKY, &sent).await;
        assert_eq!((outcome.code, outcome.messages), (0, vec![Bytes::from(sent.concat())]));
        assert_eq!(server.calls() - before, 6, "three attempts each");
    }
}

#[tokio::test]
async fn ch2_13_ch17_4_a_deadline_ends_calls_of_both_clients_alike() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let limit = Duration::from_millis(50);
    for method in [HOLD, HOLD_OPEN] {
        let outcome = by_grpc(&mesh.channel, method, &messages(&["hello"]), within(limit)).await;
        let with_tonic = by_tonic(&mesh.channel, method, &messages(&["hello"]), Some(limit)).await;
        assert_eq!((outcome.code, with_tonic.code), (4, 4), "{outcome:?} {with_tonic:?}");
        // The server may see its deadline first, whose reset has another text.
        for ended in [&outcome, &with_tonic] {
            assert!(ended.message.starts_with("deadline exceeded: "), "{ended:?}");
        }
        assert_eq!((outcome.headers, outcome.messages), (with_tonic.headers, with_tonic.messages));
        server.runs(0).await;
    }
    // The deadline of the route, without one of the application.
    set_route(&mesh, |action| {
        let limit = Some(protobuf::Duration { seconds: 0, nanos: 50_000_000 });
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: limit, ..Default::default() });
    })
    .await;
    let outcome =
        by_grpc(&mesh.channel, HOLD, &messages(&["hello"]), within(Duration::from_secs(3_600))).await;
    assert_eq!(outcome.code, 4, "{outcome:?}");
    server.runs(0).await;
}

#[tokio::test]
async fn ch2_16_a_deadline_in_the_past_ends_a_call_before_it_is_sent() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let mut options = CallOptions::new();
    options.set_deadline(Instant::now());
    let outcome = by_grpc(&mesh.channel, ECHO, &messages(&["hello"]), options).await;
    assert_eq!(outcome.code, 4, "{outcome:?}");
    assert_eq!(server.calls(), 0);
}

#[tokio::test]
async fn ch17_4_a_target_that_is_unknown_fails_as_with_tonic() {
    let timeout = Duration::from_millis(100);
    let mesh = Mesh::with(TestControlPlane::start().await, |client| client.resource_timeout(timeout));
    let outcome = by_both(&mesh.channel, ECHO, &messages(&["hello"])).await;
    assert_eq!(outcome.code, 14, "{outcome:?}");
    assert!(outcome.message.contains("Listener \"shop\""), "{outcome:?}");
}

#[tokio::test]
async fn ch1_16_ch17_4_the_setting_of_the_channel_has_calls_wait_for_an_endpoint() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    mesh.apply(endpoints("cart")).await;
    let outcome = by_both(&mesh.channel, ECHO, &messages(&["hello"])).await;
    assert_eq!(outcome.code, 14, "{outcome:?}");
    let waits = channel(&mesh, |builder| builder.wait_for_ready(true));
    let limit = Duration::from_millis(50);
    let outcome = by_grpc(&waits, ECHO, &messages(&["hello"]), within(limit)).await;
    assert_eq!(outcome, by_tonic(&waits, ECHO, &messages(&["hello"]), Some(limit)).await);
    assert!(outcome.message.contains("cluster cart has no usable endpoints"), "{outcome:?}");
    assert_eq!(outcome.code, 4);
    let (mut sender, mut receiver) = invoke(&waits, ECHO, CallOptions::new()).await;
    send_last(&mut sender, "hello").await.unwrap();
    mesh.server.set(endpoints("cart").locality("eu", "a", [server.address.as_str()]));
    assert_eq!(receive(&mut receiver).await.unwrap(), "hello");
    assert_eq!(end(&mut receiver).await, (None, String::new()));
}

#[tokio::test]
async fn ch17_5_messages_of_4_mib_pass_both_ways_and_larger_ones_by_a_setting() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let largest = Bytes::from(vec![7; 4 << 20]);
    let outcome = by_both(&mesh.channel, ECHO, &[largest.clone(), "small".into(), largest.clone()]).await;
    assert_eq!((outcome.code, outcome.messages), (0, vec![largest, "small".into(), vec![7; 4 << 20].into()]));

    let larger = Bytes::from(vec![7; (4 << 20) + 1]);
    let outcome = by_grpc(&mesh.channel, ECHO, std::slice::from_ref(&larger), CallOptions::new()).await;
    let message = "the response has a message of 4194305 bytes, max_receive_message_size is 4194304";
    assert_eq!((outcome.code, outcome.message.as_str()), (8, message));
    server.runs(0).await;
    let accepts = channel(&mesh, |builder| builder.max_receive_message_size(5 << 20));
    let outcome = by_grpc(&accepts, ECHO, std::slice::from_ref(&larger), CallOptions::new()).await;
    assert_eq!((outcome.code, outcome.messages), (0, vec![larger]));
}

#[tokio::test]
async fn a_channel_is_an_object_of_the_crate_as_well() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let channel: Box<dyn DynInvoke> = Box::new(mesh.channel.clone());
    let headers = RequestHeaders::new().with_method_name(ECHO);
    let (mut sender, mut receiver) = soon(channel.dyn_invoke(headers, CallOptions::new())).await;
    soon(sender.dyn_send(&Raw::new("hello"), SendOptions::new().with_final_msg(true))).await.unwrap();
    let mut message = Raw::default();
    let headers = soon(receiver.dyn_recv(&mut message)).await;
    assert!(matches!(headers, ResponseStreamItem::Headers(_)), "{headers:?}");
    assert!(matches!(soon(receiver.dyn_recv(&mut message)).await, ResponseStreamItem::Message));
    assert_eq!(message.0.unwrap(), "hello");
}

#[tokio::test]
async fn ch17_4_the_span_of_the_caller_is_that_of_its_call() {
    let (_log, _guard) = Log::start("test=debug");
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let traced = channel(&mesh, |builder| {
        builder.propagate(|span, headers| {
            let name = span.metadata().map_or("none", |metadata| metadata.name());
            headers.insert("x-span", name.parse().unwrap());
        })
    });
    let sent = messages(&["hello"]);
    let call = async { by_both(&traced, ECHO, &sent).await };
    let outcome = call.instrument(debug_span!(target: "test", "handler")).await;
    assert!(outcome.headers.contains(&("x-span".to_owned(), b"handler".to_vec())), "{outcome:?}");
}
