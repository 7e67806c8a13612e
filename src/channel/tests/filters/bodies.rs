//! Bodies that filters wrap.

use http_body_util::{BodyExt as _, StreamBody};

use super::*;

/// A response as text: its data and its trailers.
async fn text(response: Response<ChannelBody>) -> Result<(String, http::HeaderMap), Status> {
    let collected = soon(response.into_body().collect()).await?;
    let trailers = collected.trailers().cloned().unwrap_or_default();
    Ok((String::from_utf8(collected.to_bytes().to_vec()).unwrap(), trailers))
}

fn uppercase(frame: Frame<Bytes>) -> Frame<Bytes> {
    frame.map_data(|data| data.to_ascii_uppercase().into())
}

#[tokio::test]
async fn ch5_2_a_filter_wraps_the_bodies_and_changes_the_trailers() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_bodies";
    let mesh = start(name, &[&peer]).await;
    script(name, |_, request, next| {
        Box::pin(async move {
            let request = request.map(|body| FilterBody::new(body.map_frame(uppercase)));
            Ok(next.run(request).await.map(|body| {
                FilterBody::new(body.map_frame(|frame| {
                    let frame = uppercase(frame);
                    match frame.into_trailers() {
                        Ok(mut trailers) => {
                            trailers.insert("x-filter", "1".parse().unwrap());
                            Frame::trailers(trailers)
                        }
                        Err(frame) => frame,
                    }
                }))
            }))
        })
    });
    with_filter(&mesh, of(name));
    let (send, body) = Given::live();
    let call = tokio::spawn(mesh.begin("/a", body));
    send.send("ab".into()).unwrap();
    let mut received = peer.request().await;
    assert_eq!(received.data().await, "AB");
    let mut stream = received.begin_response();
    stream.send_data("cd".into(), false).unwrap();
    let response = soon(call).await.unwrap();
    // The request goes on after the response has begun.
    send.send("ef".into()).unwrap();
    assert_eq!(received.data().await, "EF");
    drop(send);
    assert_eq!(received.data().await, "");
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    stream.send_trailers(trailers).unwrap();
    let (data, trailers) = text(response).await.unwrap();
    assert_eq!(
        (&*data, trailers["x-filter"].as_bytes(), trailers["grpc-status"].as_bytes()),
        ("CD", &b"1"[..], &b"0"[..])
    );
    assert_eq!(mesh.running(name), 0);
}

/// A body that ends with an error.
fn broken() -> FilterBody {
    let error = || Err(FilterError::new(FilterCode::DataLoss, "the checksum is wrong"));
    let frames = [Ok(Frame::data(Bytes::from_static(b"ab"))), error()];
    FilterBody::new(StreamBody::new(futures_util::stream::iter(frames)))
}

#[tokio::test]
async fn ch5_2_an_error_of_a_body_is_the_status_of_the_call() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_broken";
    let mesh = start(name, &[&peer]).await;
    script(name, |_, request, next| {
        Box::pin(async move {
            if request.uri().path() == "/request" {
                return Ok(next.run(request.map(|_| broken())).await);
            }
            Ok(next.run(request).await.map(|_| broken()))
        })
    });
    with_filter(&mesh, of(name));
    let expected = (Code::DataLoss, "the checksum is wrong".to_owned());
    let call = mesh.get("/request");
    let received = peer.request().await;
    assert_eq!(received.cancelled().await, h2::Reason::CANCEL);
    assert_eq!(status(call).await, expected);
    let call = mesh.get("/response");
    peer.request().await.respond();
    assert_eq!(status(call).await, expected);
    until("nothing runs", || mesh.running(name) == 0).await;
}

#[tokio::test]
async fn ch5_2_a_panic_in_a_body_fails_the_call_with_internal() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_body_panics";
    let mesh = start(name, &[&peer]).await;
    let panics = |body: FilterBody| FilterBody::new(body.map_frame(|_| panic!("on purpose")));
    script(name, move |_, request, next| {
        Box::pin(async move {
            if request.uri().path() == "/request" {
                return Ok(next.run(request.map(panics)).await);
            }
            Ok(next.run(request).await.map(panics))
        })
    });
    with_filter(&mesh, of(name));
    let expected = (Code::Internal, "an HTTP filter panicked in a body".to_owned());
    assert_eq!(status(mesh.call("/request", Given::of([vec![1]]))).await, expected);
    let call = mesh.get("/response");
    loop {
        let received = peer.request().await;
        if received.path() == "/response" {
            received.respond();
            break;
        }
    }
    assert_eq!(status(call).await, expected);
    until("nothing runs", || mesh.running(name) == 0).await;
}

#[tokio::test]
async fn ch5_2_a_filter_that_drops_the_response_cancels_the_stream() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_drops";
    let mesh = start(name, &[&peer]).await;
    script(name, |_, request, next| {
        Box::pin(async move {
            drop(next.run(request).await);
            Err(FilterError::new(FilterCode::PermissionDenied, "not for you"))
        })
    });
    with_filter(&mesh, of(name));
    let call = mesh.get("/a");
    let mut received = peer.request().await;
    let mut stream = received.begin_response();
    assert_eq!(status(call).await, (Code::PermissionDenied, "not for you".into()));
    assert_eq!(reset(&mut stream).await, h2::Reason::CANCEL);
    until("nothing runs", || mesh.running(name) == 0).await;
}

#[tokio::test]
async fn ch5_2_the_deadline_ends_a_body_that_a_filter_never_ends() {
    let peer = Peer::start().await;
    let name = "ch5_2_endless";
    let mesh = start(name, &[&peer]).await;
    script(name, |_, _, _| {
        let body = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, FilterError>>());
        Box::pin(async move { Ok(Response::new(FilterBody::new(body))) })
    });
    with_filter(&mesh, of(name));
    let request = Request::post("/a").header("grpc-timeout", "1H").body(Given::default()).unwrap();
    let response = soon(mesh.channel.clone().call(request)).await.unwrap();
    let call = tokio::spawn(finish(async { response }));
    pass(Duration::from_secs(3_599)).await;
    assert!(!call.is_finished());
    pass(Duration::from_secs(2)).await;
    let expected = "deadline exceeded: the response is not complete";
    assert_eq!(status(call).await, (Code::DeadlineExceeded, expected.into()));
}
