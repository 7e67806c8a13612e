//! Calls of each kind, and how they end.

use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tonic::{Code, codec::CompressionEncoding, metadata::MetadataValue};

use super::*;

with_each_backend! {
    unary_calls_carry_metadata_in_both_directions,
    streams_of_each_kind,
    messages_of_4_mib_and_a_stream_of_1_mib_each,
    a_deadline_cancels_the_call_at_the_backend,
    the_limit_of_a_route_cancels_the_call_at_the_backend,
    a_dropped_call_is_cancelled_at_the_backend,
    statuses_and_trailers_pass_unchanged,
    compressed_messages_in_both_directions,
}

with_node_backend! {
    unary_calls_carry_metadata_in_both_directions,
    streams_of_each_kind,
    messages_of_4_mib_and_a_stream_of_1_mib_each,
    a_deadline_cancels_the_call_at_the_backend,
    the_limit_of_a_route_cancels_the_call_at_the_backend,
    a_dropped_call_is_cancelled_at_the_backend,
    statuses_and_trailers_pass_unchanged,
}

async fn unary_calls_carry_metadata_in_both_directions(language: Language) {
    let (mesh, mut backend) = Mesh::with_one(language).await;
    let mut request = Request::new("hello".into());
    request.metadata_mut().insert("x-echo", MetadataValue::from_static("a b, c"));
    request.metadata_mut().insert_bin("x-echo-bin", MetadataValue::from_bytes(&[0, 1, 255]));
    let response = mesh.unary(ECHO, request).await.expect("it succeeds");
    assert_eq!((backend_of(&response).as_str(), &response.get_ref()[..]), (backend.name(), &b"hello"[..]));
    assert_eq!(response.metadata().get("x-echo").expect("it is sent back"), "a b, c");
    let binary = response.metadata().get_bin("x-echo-bin").expect("it is sent back");
    assert_eq!(binary.to_bytes().expect("it is valid"), &[0, 1, 255][..]);
    for _ in 0..100 {
        mesh.unary(ECHO, Request::new("again".into())).await.expect("it succeeds");
    }
    assert_eq!(backend.count("Echo").await, 101);
}

async fn streams_of_each_kind(language: Language) {
    let (mesh, _backend) = Mesh::with_one(language).await;
    let mut grpc = grpc(&mesh.channel);
    let messages = stream::iter(["one", "two", "three"].map(Bytes::from));
    let collect =
        grpc.client_streaming(Request::new(messages), PathAndQuery::from_static(COLLECT), Raw).await;
    assert_eq!(&collect.expect("it succeeds").into_inner()[..], b"3 11");

    let request = Request::new(Bytes::from("1000 10"));
    let expand = grpc.server_streaming(request, PathAndQuery::from_static(EXPAND), Raw).await;
    let expanded = expand.expect("it succeeds").into_inner().map(|it| it.expect("it is complete"));
    let messages: Vec<_> = within("the stream", expanded.collect()).await;
    assert_eq!(messages, vec![Bytes::from("xxxxxxxxxx"); 1000]);

    let (send, mut answers) = chat(&mesh).await;
    for message in ["one", "", "three"] {
        send.send(message.into()).expect("the stream is open");
        assert_eq!(next(&mut answers).await.expect("it is sent back"), message);
    }
    drop(send);
    assert!(within("the end", answers.next()).await.is_none());
    let trailers = within("the trailers", answers.trailers()).await.expect("it ended well");
    assert!(trailers.is_some());
}

async fn messages_of_4_mib_and_a_stream_of_1_mib_each(language: Language) {
    let (mesh, _backend) = Mesh::with_one(language).await;
    let message = Bytes::from((0..4 << 20).map(|i: u32| (i / 7) as u8).collect::<Vec<_>>());
    let response = mesh.unary(ECHO, Request::new(message.clone())).await.expect("it succeeds");
    assert!(response.into_inner() == message);

    let message = message.slice(..1 << 20);
    let (send, mut answers) = chat(&mesh).await;
    for _ in 0..8 {
        send.send(message.clone()).expect("the stream is open");
    }
    for _ in 0..8 {
        assert!(next(&mut answers).await.expect("it is sent back") == message);
    }
}

async fn a_deadline_cancels_the_call_at_the_backend(language: Language) {
    let (mesh, mut backend) = Mesh::with_one(language).await;
    mesh.unary(ECHO, Request::new("hello".into())).await.expect("it succeeds");
    let mut request = Request::new("600000".into());
    request.set_timeout(Duration::from_secs(1));
    let error = mesh.unary(HOLD, request).await.expect_err("it takes too long");
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error:?}");
    backend.calls("began", "Hold", 1).await;
    backend.calls("cancelled", "Hold", 1).await;
    // A call within its deadline.
    let mut request = Request::new("1".into());
    request.set_timeout(PATIENCE);
    assert_eq!(&mesh.unary(HOLD, request).await.expect("it succeeds").into_inner()[..], b"held");
}

async fn the_limit_of_a_route_cancels_the_call_at_the_backend(language: Language) {
    let (mut mesh, mut backend) = Mesh::with_one(language).await;
    mesh.peer.command("limit payments 2000").await;
    mesh.unary(ECHO, Request::new("hello".into())).await.expect("it succeeds");
    let error = mesh.unary(HOLD, Request::new("600000".into())).await.expect_err("it takes too long");
    assert_eq!(error.code(), Code::DeadlineExceeded, "{error:?}");
    backend.calls("cancelled", "Hold", 1).await;
}

async fn a_dropped_call_is_cancelled_at_the_backend(language: Language) {
    let (mesh, mut backend) = Mesh::with_one(language).await;
    let held = tokio::spawn({
        let channel = mesh.channel.clone();
        async move { unary(&channel, HOLD, Request::new("600000".into())).await }
    });
    backend.calls("began", "Hold", 1).await;
    held.abort();
    backend.calls("cancelled", "Hold", 1).await;

    let (send, answers) = chat(&mesh).await;
    backend.calls("began", "Chat", 1).await;
    drop(answers);
    backend.calls("cancelled", "Chat", 1).await;
    assert!(send.is_closed());
}

async fn statuses_and_trailers_pass_unchanged(language: Language) {
    let (mesh, _backend) = Mesh::with_one(language).await;
    for code in 1..=16 {
        let text = format!("{code} no disk: 100 % full, \"grün\"\nat /dev/sda");
        let error = mesh.unary(FAIL, Request::new(text.into())).await.expect_err("it fails");
        assert_eq!(error.code(), Code::from_i32(code), "{error:?}");
        assert_eq!(error.message(), "no disk: 100 % full, \"grün\"\nat /dev/sda");
        assert_eq!(error.metadata().get("x-trailer").expect("it is sent"), "one");
        let binary = error.metadata().get_bin("x-trailer-bin").expect("it is sent");
        assert_eq!(binary.to_bytes().expect("it is valid"), &[0, 1, 255][..]);
    }
    let error = mesh.unary("/interop.Backend/None", Request::new(Bytes::new())).await;
    assert_eq!(error.expect_err("there is no such method").code(), Code::Unimplemented);
}

async fn compressed_messages_in_both_directions(language: Language) {
    let (mesh, _backend) = Mesh::with_one(language).await;
    let mut grpc = grpc(&mesh.channel)
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let message = Bytes::from(vec![7; 1 << 20]);
    let mut request = Request::new(message.clone());
    request.metadata_mut().insert("x-compress", MetadataValue::from_static("gzip"));
    let call = grpc.unary(request, PathAndQuery::from_static(ECHO), Raw);
    let response = within("the response", call).await.expect("it succeeds");
    assert_eq!(response.metadata().get("grpc-encoding").expect("it is compressed"), "gzip");
    assert!(response.into_inner() == message);
}

async fn chat(mesh: &Mesh) -> (mpsc::UnboundedSender<Bytes>, Streaming<Bytes>) {
    super::chat(&mesh.channel).await.expect("the stream begins")
}

async fn next(answers: &mut Streaming<Bytes>) -> Result<Bytes, Status> {
    within("a message", answers.next()).await.expect("the stream is open")
}
