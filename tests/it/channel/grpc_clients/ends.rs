//! How calls end: by the application, by malformed responses, and by messages that cannot be encoded or decoded.

use super::{
    server::{BAD_METADATA, COMPRESSED, CUT, ECHO, HOLD, HOLD_OPEN},
    *,
};

/// A message that no bytes are.
struct Undecodable;

impl RecvMessage for Undecodable {
    fn decode(&mut self, _: &mut dyn Buf) -> Result<(), String> {
        Err("no bytes are one".into())
    }
}

#[tokio::test]
async fn ch1_7_ch17_2_dropping_the_receiving_side_cancels_the_call_before_and_after_its_response_begins() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    for method in [HOLD, HOLD_OPEN] {
        let (mut sender, mut receiver) = invoke(&mesh.channel, method, CallOptions::new()).await;
        send(&mut sender, "hello").await.unwrap();
        server.runs(1).await;
        if method == HOLD_OPEN {
            let headers = soon(receiver.recv(&mut Raw::default())).await;
            assert!(matches!(headers, ResponseStreamItem::Headers(_)), "{headers:?}");
        }
        drop(receiver);
        server.runs(0).await;
        // What is sent later is refused, once the body is dropped.
        soon(async { while send(&mut sender, "hello").await.is_ok() {} }).await;
    }
}

#[tokio::test]
async fn ch17_2_dropping_the_sending_side_ends_the_request_and_not_the_call() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    send(&mut sender, "one").await.unwrap();
    assert_eq!(receive(&mut receiver).await.unwrap(), "one");
    drop(sender);
    assert_eq!(end(&mut receiver).await, (None, String::new()));
    // The final message does the same, and nothing follows it.
    let (mut sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    send_last(&mut sender, "one").await.unwrap();
    assert_eq!(send(&mut sender, "two").await, Err(()));
    assert_eq!(receive(&mut receiver).await.unwrap(), "one");
    assert_eq!(end(&mut receiver).await, (None, String::new()));
    server.runs(0).await;
}

#[tokio::test]
async fn ch2_14_ch17_1_a_call_begins_and_its_deadline_ends_it_though_neither_stream_is_polled() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    for method in [HOLD, HOLD_OPEN] {
        let (mut sender, mut receiver) =
            invoke(&mesh.channel, method, within(Duration::from_millis(200))).await;
        server.runs(1).await;
        server.runs(0).await;
        assert_eq!(end(&mut receiver).await.0, Some(StatusCodeError::DeadlineExceeded));
        soon(async { while send(&mut sender, "hello").await.is_ok() {} }).await;
    }
}

#[tokio::test]
async fn ch17_7_a_message_that_cannot_be_encoded_fails_its_call_with_the_reason() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    for has_begun in [false, true] {
        let (mut sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
        if has_begun {
            send(&mut sender, "one").await.unwrap();
            assert_eq!(receive(&mut receiver).await.unwrap(), "one");
        }
        assert_eq!(soon(sender.send(&Raw(None), SendOptions::new())).await, Err(()));
        let (code, message) = end(&mut receiver).await;
        let expected = "the message cannot be encoded: it is empty";
        assert_eq!((code, message.as_str()), (Some(StatusCodeError::Internal), expected), "{has_begun}");
        assert_eq!(send(&mut sender, "two").await, Err(()));
    }
    server.runs(0).await;
}

#[tokio::test]
async fn ch17_5_a_message_that_cannot_be_decoded_ends_its_call_and_cancels_it_at_the_server() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    send(&mut sender, "one").await.unwrap();
    let headers = soon(receiver.recv(&mut Undecodable)).await;
    assert!(matches!(headers, ResponseStreamItem::Headers(_)), "{headers:?}");
    let ended = soon(receiver.recv(&mut Undecodable)).await;
    let ResponseStreamItem::Trailers(trailers) = ended else { panic!("{ended:?}") };
    let status = trailers.into_status().unwrap_err();
    let expected = "the message of 3 bytes cannot be decoded: no bytes are one";
    assert_eq!((status.code(), status.message()), (StatusCodeError::Internal, expected));
    server.runs(0).await;
}

#[tokio::test]
async fn ch17_5_ch17_6_malformed_responses_fail_their_calls_alone() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut neighbor, mut answers) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    let compressed = "the response has a compressed message (flag 1, grpc-encoding \"identity\"), which the request did \
                      not accept";
    for (method, expected) in [(CUT, "the response ended within a message"), (COMPRESSED, compressed)] {
        let (mut sender, mut receiver) = invoke(&mesh.channel, method, CallOptions::new()).await;
        send_last(&mut sender, "hello").await.unwrap();
        let (code, message) = end(&mut receiver).await;
        assert_eq!((code, message.as_str()), (Some(StatusCodeError::Internal), expected), "{method}");
        send(&mut neighbor, "hello").await.unwrap();
        assert_eq!(receive(&mut answers).await.unwrap(), "hello");
    }
    let outcome = by_grpc(&mesh.channel, BAD_METADATA, &[], CallOptions::new()).await;
    assert_eq!(
        (outcome.code, outcome.message.as_str()),
        (5, "it fails: ä"),
        "the status of the server is kept"
    );
    let names: Vec<_> = outcome.trailers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-trailer", "x-trailer", "x-trailer-bin", "x-trailer-bin"], "x-bad-bin is left out");
    drop(neighbor);
    server.runs(0).await;
}

#[tokio::test]
async fn ch17_7_a_method_that_is_no_path_fails_its_call() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    for method in ["", "test.Calls/Echo", "/test Calls"] {
        let (mut sender, mut receiver) = invoke(&mesh.channel, method, CallOptions::new()).await;
        assert_eq!(send(&mut sender, "hello").await, Err(()));
        let (code, message) = end(&mut receiver).await;
        assert_eq!(
            (code, message),
            (Some(StatusCodeError::Internal), format!("the method {method:?} is no path"))
        );
    }
    assert_eq!(server.calls(), 0);
}

#[tokio::test]
async fn ch17_4_the_shutdown_of_the_channel_ends_calls_with_a_status() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let (mut sender, mut receiver) = invoke(&mesh.channel, HOLD_OPEN, CallOptions::new()).await;
    send(&mut sender, "hello").await.unwrap();
    server.runs(1).await;
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    let running = end(&mut receiver).await;
    assert_eq!(running, (Some(StatusCodeError::Cancelled), "channel is shut down".to_owned()));
    let (_sender, mut receiver) = invoke(&mesh.channel, ECHO, CallOptions::new()).await;
    let (code, message) = end(&mut receiver).await;
    assert_eq!(code, Some(StatusCodeError::Unavailable), "{message}");
}

#[tokio::test]
async fn ch17_1_a_call_that_panics_fails_alone() {
    let server = TestServer::start();
    let mesh = mesh(&server).await;
    let panics = channel(&mesh, |builder| {
        builder.propagate(|_, headers| assert!(!headers.contains_key("x-panic"), "as it should"))
    });
    for name in ["x-panic", "x-other"] {
        let mut metadata = MetadataMap::new();
        metadata.append(name, "a".parse().unwrap());
        let headers = RequestHeaders::new().with_method_name(ECHO).with_metadata(metadata);
        let (mut sender, mut receiver) = soon(panics.invoke(headers, CallOptions::new())).await;
        let _ = send_last(&mut sender, "hello").await;
        let (code, message) = end(&mut receiver).await;
        let expected = (name == "x-panic").then_some(StatusCodeError::Internal);
        assert_eq!((code, message.contains("panicked")), (expected, expected.is_some()), "{message}");
    }
    server.runs(0).await;
}
