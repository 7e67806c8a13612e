//! Requests that are sent again because the server did not process them (CH6.12 to CH6.14, CH6.16, CH6.17).

use h2::Reason;

use super::*;

fn parts(sizes: &[usize]) -> Vec<Vec<u8>> {
    sizes.iter().enumerate().map(|(number, size)| vec![u8::try_from(number).unwrap(); *size]).collect()
}

#[tokio::test]
async fn ch6_13_a_body_that_was_sent_in_part_is_sent_again_and_goes_on() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch6_13_live", &[&peer]).await;
    let (send, body) = Given::live();
    let call = mesh.call("/a", body);
    let mut first = peer.request().await;
    send.send("one ".into()).unwrap();
    assert_eq!(first.data().await, "one ");
    send.send("two ".into()).unwrap();
    assert_eq!(first.data().await, "two ");
    first.reset(Reason::REFUSED_STREAM);
    let mut second = peer.request().await;
    let mut seen = Vec::new();
    while seen.len() < 8 {
        seen.extend_from_slice(&second.data().await);
    }
    assert_eq!(seen, b"one two ");
    send.send("three".into()).unwrap();
    assert_eq!(second.data().await, "three");
    drop(send);
    assert_eq!(second.data().await, "");
    second.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(mesh.buffered(), 0);
}

#[tokio::test]
async fn ch6_16_a_body_is_sent_again_while_flow_control_still_holds_its_rest() {
    // The peer lets 65,535 bytes pass until it reads.
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch6_16_flow", &[&peer]).await;
    let given = parts(&[100_000, 60_000, 40_000]);
    let call = mesh.call("/a", Given::of(given.clone()));
    let first = peer.request().await;
    until("something was sent", || mesh.buffered() > 0).await;
    first.reset(Reason::REFUSED_STREAM);
    let mut second = peer.request().await;
    assert_eq!(second.rest().await, given.concat());
    second.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(mesh.buffered(), 0);
}

#[tokio::test]
async fn ch6_16_a_body_above_the_limit_is_sent_once_and_keeps_nothing() {
    let mut peer = Peer::with(|it| {
        it.initial_window_size(1 << 20).initial_connection_window_size(4 << 20);
    })
    .await;
    let mesh = Mesh::start("ch6_16_limit", &[&peer]).await;
    for (sizes, is_repeated) in [(&[256 << 10][..], true), (&[200 << 10, (56 << 10) + 1][..], false)] {
        let given = parts(sizes);
        let call = mesh.call("/a", Given::of(given.clone()));
        let mut first = peer.request().await;
        assert_eq!(first.rest().await, given.concat());
        assert_eq!(mesh.buffered() > 0, is_repeated);
        first.reset(Reason::REFUSED_STREAM);
        if is_repeated {
            let mut second = peer.request().await;
            assert_eq!(second.rest().await, given.concat());
            second.respond();
            soon(call).await.unwrap().unwrap();
        } else {
            assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
        }
    }
    assert!(peer.is_quiet());
    assert_eq!((mesh.buffered(), mesh.running("ch6_16_limit")), (0, 0));
}

#[tokio::test]
async fn ch6_16_ch13_13_all_requests_of_a_channel_share_a_limit() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::with("ch6_16_channel", &[&peer], |it| it.retry_buffer(1_000, 1_500)).await;
    let one = mesh.call("/one", Given::of(parts(&[1_000])));
    let mut first = peer.request().await;
    assert_eq!(first.rest().await.len(), 1_000);
    let other = mesh.call("/other", Given::of(parts(&[1_000])));
    let mut second = peer.request().await;
    assert_eq!(second.rest().await.len(), 1_000);
    assert_eq!(mesh.buffered(), 1_000, "there is no room for the other one");
    second.reset(Reason::REFUSED_STREAM);
    assert_eq!(soon(other).await.unwrap().unwrap_err().code(), Code::Unavailable);
    first.reset(Reason::REFUSED_STREAM);
    peer.request().await.respond();
    soon(one).await.unwrap().unwrap();
    assert_eq!(mesh.buffered(), 0);
}

#[tokio::test]
async fn ch6_17_without_a_buffer_only_requests_without_a_body_are_sent_again() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::with("ch6_17", &[&peer], |it| it.retry_buffer(0, 0)).await;
    let call = mesh.call("/body", Given::of(parts(&[1])));
    peer.request().await.reset(Reason::REFUSED_STREAM);
    assert_eq!(soon(call).await.unwrap().unwrap_err().code(), Code::Unavailable);
    let call = mesh.get("/none");
    peer.request().await.reset(Reason::REFUSED_STREAM);
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch6_13_a_request_that_was_not_processed_is_sent_again_once() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch6_13_once", &[&peer]).await;
    let call = mesh.get("/a");
    peer.request().await.reset(Reason::REFUSED_STREAM);
    peer.request().await.reset(Reason::REFUSED_STREAM);
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(peer.is_quiet());
    assert_eq!(mesh.running("ch6_13_once"), 0);
}

#[tokio::test]
async fn ch6_14_a_connection_that_is_lost_otherwise_is_not_free() {
    for end in [End::Crash, End::Abrupt(Reason::INTERNAL_ERROR), End::Abrupt(Reason::ENHANCE_YOUR_CALM)] {
        let mut peer = Peer::start().await;
        let mesh = Mesh::start("ch6_14", &[&peer]).await;
        let call = mesh.get("/a");
        let received = peer.request().await;
        peer.connection().await.send(end).unwrap_or_else(|_| panic!("it is open"));
        let status = soon(call).await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
        assert!(status.message().starts_with(&peer.address.to_string()), "{status:?}");
        drop(received);
        let next = mesh.get("/b");
        let received = peer.request().await;
        assert_eq!(received.path(), "/b", "the server may have run the first one");
        received.respond();
        soon(next).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch6_11_a_response_commits_the_call_and_the_rest_of_the_body_follows() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch6_11", &[&peer]).await;
    let (send, body) = Given::live();
    send.send("one".into()).unwrap();
    let begun = tokio::spawn(mesh.begin("/a", body));
    let mut received = peer.request().await;
    assert_eq!(received.data().await, "one");
    assert_eq!(mesh.buffered(), 3);
    let (body, mut request) = (received.begin_response(), received);
    let response = soon(begun).await.unwrap();
    assert_eq!(mesh.buffered(), 0, "nothing is kept any more");
    // Nobody polls the response, and the request goes on.
    send.send("two".into()).unwrap();
    assert_eq!(request.data().await, "two");
    drop((response, body));
    drop(send);
}

#[tokio::test]
async fn ch1_7_a_body_that_cannot_be_read_cancels_the_stream() {
    struct Failing(bool);
    impl Body for Failing {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let is_first = !std::mem::replace(&mut self.0, true);
            Poll::Ready(Some(if is_first {
                Ok(Frame::data("one".into()))
            } else {
                Err(Status::data_loss("the disk is gone"))
            }))
        }
    }
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch1_7_body", &[&peer]).await;
    let mut channel = mesh.channel.clone();
    let request = Request::post("/a").body(Failing(false)).unwrap();
    let call = tokio::spawn(finish(async move { channel.call(request).await.unwrap() }));
    let status = soon(call).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "the disk is gone"));
    assert_eq!(mesh.running("ch1_7_body"), 0);
    assert_eq!(peer.request().await.cancelled().await, Reason::CANCEL);
}
