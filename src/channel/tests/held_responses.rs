//! Responses whose applications read slowly, or not at all (CH2.14, CH15.7).

use h2::{Reason, SendStream};

use super::{
    peer::Received,
    raw::{ACK, DATA, PING, Raw, RawListener, SETTINGS, WINDOW_UPDATE},
    *,
};
use crate::channel::connection::Handle;

/// A response that has begun, and its server's side.
struct Held {
    response: Response<ChannelBody>,
    stream: SendStream<Bytes>,
    received: Received,
}

async fn hold(mesh: &Mesh, peer: &mut Peer, request: Request<Given>) -> Held {
    let mut channel = mesh.channel.clone();
    let call =
        tokio::spawn(async move { channel.call(request).await.unwrap_or_else(|error| match error {}) });
    let mut received = peer.request().await;
    let stream = received.begin_response();
    Held { response: soon(call).await.unwrap(), stream, received }
}

fn request(timeout: Option<&'static str>) -> Request<Given> {
    let mut request = Request::post("/watch").body(Given::default()).unwrap();
    if let Some(timeout) = timeout {
        request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
    }
    request
}

/// Lets this time pass.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Waits until the channel has reset a stream.
async fn reset(stream: &mut SendStream<Bytes>) -> Reason {
    soon(std::future::poll_fn(|cx| stream.poll_reset(cx))).await.unwrap()
}

/// The next frame of a body.
async fn next_frame(body: &mut ChannelBody) -> Option<Result<Frame<Bytes>, Status>> {
    soon(std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))).await
}

impl Mesh {
    /// What requests to the only endpoint are sent with.
    fn handle(&self) -> Handle {
        use crate::balance::{
            pick_args::{CallAttributes, PickArgs},
            picker::Pick,
        };
        let (attributes, random) = (&mut CallAttributes::default(), &mut fastrand::Rng::new());
        let mut args = PickArgs { attributes, random, request: &crate::resolve::RouteQuery::new("/", 0) };
        let Pick::Complete(attempt) = self.channel.shared.calls.published.load().pick(0, &mut args) else {
            panic!("there is no connection")
        };
        attempt.endpoint.connections.oldest().handle().clone()
    }
}

#[tokio::test]
async fn ch15_7_unread_responses_do_not_block_other_calls_on_their_connection() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch15_7_unread", &[&peer]).await;
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut response = hold(&mesh, &mut peer, request(None)).await;
        response.stream.send_data(vec![0; 2 << 20].into(), false).unwrap();
        held.push(response);
    }
    until("the windows are used up", || mesh.handle().responses().unread() >= 40 * 65_000).await;
    for _ in 0..10 {
        let call = mesh.get("/neighbour");
        let mut received = peer.request().await;
        let mut stream = received.begin_response();
        stream.send_data(vec![0; 60_000].into(), false).unwrap();
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        stream.send_trailers(trailers).unwrap();
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch15_7_a_thousand_unread_responses_hold_no_more_than_their_initial_windows() {
    let mut peer = Peer::with(|it| {
        it.max_send_buffer_size(1 << 30);
    })
    .await;
    let mesh = Mesh::start("ch15_7_thousand", &[&peer]).await;
    let mut held = Vec::new();
    for _ in 0..1_000 {
        let mut response = hold(&mesh, &mut peer, request(None)).await;
        response.stream.send_data(vec![0; 100_000].into(), false).unwrap();
        held.push(response);
    }
    let responses = mesh.handle().responses().clone();
    until("the windows are used up", || responses.unread() >= 1_000 * 65_000).await;
    assert!(responses.unread() <= 1_000 * 65_536, "{}", responses.unread());
    assert_eq!(responses.len(), 1_000);
    held.clear();
    assert_eq!((responses.len(), responses.unread()), (0, 0), "nothing is left");
}

#[tokio::test]
async fn ch15_7_stream_windows_grow_while_an_application_reads() {
    let listener = RawListener::bind().await;
    let mesh = Mesh::at("ch15_7_grows", &[listener.address], |builder| builder).await;
    let call = tokio::spawn(mesh.begin("/download", Given::default()));
    let mut raw = listener.accept().await;
    let stream = raw.request().await;
    raw.begin_response(stream).await;
    let mut body = soon(call).await.unwrap().into_body();
    let mut read = async |raw: &mut Raw| {
        for _ in 0..3 {
            raw.write(DATA, 0, stream, &[0; 16 << 10]).await;
            assert!(next_frame(&mut body).await.unwrap().unwrap().is_data());
        }
    };
    read(&mut raw).await;
    let ping = raw.frame_of(PING).await;
    read(&mut raw).await;
    raw.write(PING, ACK, 0, &ping.payload).await;
    let settings = raw.frame_of(SETTINGS).await;
    let [0, 4, window @ ..] = &settings.payload[..] else { panic!("{settings:?}") };
    let window = u32::from_be_bytes(window.try_into().unwrap());
    assert!((2 * 49_152..=4 * 65_536).contains(&window), "twice what was read, or estimated: {window}");
}

#[tokio::test]
async fn ch15_7_windows_do_not_grow_where_the_application_has_set_the_smallest() {
    let listener = RawListener::bind().await;
    let mesh = Mesh::at("ch15_7_fixed", &[listener.address], |builder| builder.max_stream_window(0)).await;
    let call = tokio::spawn(mesh.begin("/download", Given::default()));
    let mut raw = listener.accept().await;
    let stream = raw.request().await;
    raw.begin_response(stream).await;
    let mut body = soon(call).await.unwrap().into_body();
    for _ in 0..20 {
        raw.write(DATA, 0, stream, &[0; 16 << 10]).await;
        assert!(next_frame(&mut body).await.unwrap().unwrap().is_data());
    }
    raw.respond(stream).await;
    while next_frame(&mut body).await.is_some() {}
    while let Some(frame) = raw.take_read_frame() {
        assert_eq!(frame.kind, WINDOW_UPDATE, "no PING, and no SETTINGS");
    }
}

#[tokio::test]
async fn ch2_14_the_deadline_ends_a_response_that_nobody_polls() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14_held", &[&peer]).await;
    let Held { response, mut stream, received: _received } =
        hold(&mesh, &mut peer, request(Some("1S"))).await;
    assert_eq!(mesh.running("ch2_14_held"), 1);
    pass(Duration::from_millis(1_100)).await;
    until("the circuit breaker counts no call", || mesh.running("ch2_14_held") == 0).await;
    assert_eq!(mesh.handle().responses().len(), 0);
    assert_eq!(reset(&mut stream).await, Reason::CANCEL);
    let mut body = response.into_body();
    let status = next_frame(&mut body).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let address = peer.address;
    assert_eq!(status.message(), format!("deadline exceeded: {address}: the response is not complete"));
    assert!(next_frame(&mut body).await.is_none());
}

#[tokio::test]
async fn ch2_14_the_deadline_ends_a_response_that_always_has_more_data() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14_endless", &[&peer]).await;
    let Held { response, mut stream, received: _received } =
        hold(&mesh, &mut peer, request(Some("1S"))).await;
    stream.send_data(vec![0; 1 << 20].into(), false).unwrap();
    let mut body = response.into_body();
    for _ in 0..2 {
        assert!(next_frame(&mut body).await.unwrap().unwrap().is_data());
    }
    pass(Duration::from_millis(1_100)).await;
    let status = next_frame(&mut body).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(reset(&mut stream).await, Reason::CANCEL);
}

#[tokio::test]
async fn ch2_14_the_deadline_wakes_an_application_that_waits_for_data() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14_waiting", &[&peer]).await;
    let Held { response, stream, .. } = hold(&mesh, &mut peer, request(Some("1S"))).await;
    let waiting = tokio::spawn(async move { next_frame(&mut response.into_body()).await.unwrap().map(drop) });
    tokio::task::yield_now().await;
    pass(Duration::from_millis(1_100)).await;
    assert_eq!(soon(waiting).await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    drop(stream);
}

#[tokio::test]
async fn ch2_14_an_earlier_deadline_than_those_before_is_kept() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14_earlier", &[&peer]).await;
    let late = hold(&mesh, &mut peer, request(Some("100S"))).await;
    let early = hold(&mesh, &mut peer, request(Some("1S"))).await;
    // Lets the task that waits for deadlines begin its wait.
    tokio::task::yield_now().await;
    pass(Duration::from_millis(1_100)).await;
    until("one response has ended", || mesh.running("ch2_14_earlier") == 1).await;
    assert_eq!(mesh.handle().responses().len(), 1);
    pass(Duration::from_secs(100)).await;
    until("the other has ended", || mesh.running("ch2_14_earlier") == 0).await;
    // The task has ended, and begins anew.
    let another = hold(&mesh, &mut peer, request(Some("1S"))).await;
    pass(Duration::from_millis(1_100)).await;
    until("the last has ended", || mesh.running("ch2_14_earlier") == 0).await;
    drop((late, early, another));
}

#[tokio::test]
async fn ch2_14_the_task_of_deadlines_ends_with_the_connection_and_its_last_response() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14_task", &[&peer]).await;
    let response = hold(&mesh, &mut peer, request(Some("100S"))).await;
    let responses = std::sync::Arc::downgrade(mesh.handle().responses());
    peer.connection().await.send(End::Crash).unwrap_or_else(|_| panic!("it is open"));
    peer.connection().await;
    drop(response);
    until("nothing waits for a deadline", || responses.strong_count() == 0).await;
}

#[tokio::test]
async fn ch2_14_the_deadline_ends_the_upload_beside_a_response() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_14_upload", &[&peer]).await;
    let (live, body) = Given::live();
    let mut request = Request::post("/upload").body(body).unwrap();
    request.headers_mut().insert("grpc-timeout", "1S".parse().unwrap());
    let Held { response, mut stream, received: _received } = hold(&mesh, &mut peer, request).await;
    live.send(vec![1].into()).unwrap();
    pass(Duration::from_millis(1_100)).await;
    until("the body of the request is dropped", || live.is_closed()).await;
    assert_eq!(reset(&mut stream).await, Reason::CANCEL);
    drop(response);
}

#[tokio::test]
async fn ch1_6_a_shutdown_ends_held_responses_on_shared_connections() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::with("ch1_6_held", &[&peer], |builder| builder.share_connections(true)).await;
    let other = mesh.client.channel("xds:///shop").share_connections(true).build().unwrap();
    let Held { response, mut stream, received: _received } = hold(&mesh, &mut peer, request(None)).await;
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    until("the circuit breaker counts no call", || mesh.running("ch1_6_held") == 0).await;
    assert_eq!(reset(&mut stream).await, Reason::CANCEL);
    let status = next_frame(&mut response.into_body()).await.unwrap().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Cancelled, "channel is shut down"));
    drop(other);
}

#[tokio::test]
async fn ch15_10_small_messages_that_wait_to_be_read_are_merged_and_lose_no_call() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch15_10", &[&peer]).await;
    let mut held = Vec::new();
    for _ in 0..100 {
        held.push(hold(&mesh, &mut peer, request(None)).await);
    }
    let event = |number: usize| -> Bytes { format!("{number:0>100}").into() };
    for number in 0..200 {
        for response in &mut held {
            response.stream.send_data(event(number), false).unwrap();
        }
        tokio::task::yield_now().await;
    }
    let responses = mesh.handle().responses().clone();
    until("the events are there", || responses.unread() == 100 * 200 * 100).await;
    let call = mesh.get("/neighbour");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let expected: String = (0..200).map(|number| format!("{number:0>100}")).collect();
    for mut response in held {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        response.stream.send_trailers(trailers).unwrap();
        let mut body = response.response.into_body();
        let mut read = Vec::new();
        while let Some(frame) = next_frame(&mut body).await {
            if let Ok(data) = frame.unwrap().into_data() {
                read.extend(data);
            }
        }
        assert!(read == expected.as_bytes(), "each byte in its order");
    }
    assert_eq!((responses.unread(), responses.len()), (0, 0));
}

#[tokio::test]
async fn ch15_10_an_application_that_waits_for_data_is_woken_after_a_merge() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch15_10_waits", &[&peer]).await;
    let waits = hold(&mesh, &mut peer, request(None)).await;
    let Held { response, stream: mut later, .. } = waits;
    let waiting = tokio::spawn(async move { next_frame(&mut response.into_body()).await.unwrap().unwrap() });
    tokio::task::yield_now().await;
    let mut floods = hold(&mesh, &mut peer, request(None)).await;
    for _ in 0..20_000 {
        floods.stream.send_data(vec![1].into(), false).unwrap();
    }
    until("the flood is there", || mesh.handle().responses().unread() == 20_000).await;
    later.send_data(vec![2].into(), false).unwrap();
    assert_eq!(soon(waiting).await.unwrap().into_data().unwrap(), &[2][..]);
}
