//! Calls that end in a filter.

use std::future::pending;

use super::*;

/// A mesh whose filter waits for ever before it passes on the request, or after it has a response. Its end is told.
async fn waiting(name: &'static str, peer: &Peer, waits_before: bool) -> (Mesh, Arc<Notify>, Arc<Notify>) {
    let mesh = start(name, &[peer]).await;
    let (begun, ended) = (Arc::<Notify>::default(), Arc::<Notify>::default());
    let (begins, ends) = (begun.clone(), ended.clone());
    script(name, move |_, request, next| {
        let (begins, on_drop) = (begins.clone(), OnDrop(ends.clone()));
        Box::pin(async move {
            let _on_drop = on_drop;
            let response = if waits_before { None } else { Some(next.run(request).await) };
            begins.notify_one();
            pending::<()>().await;
            Ok(response.unwrap_or_default())
        })
    });
    with_filter(&mesh, of(name));
    (mesh, begun, ended)
}

#[tokio::test]
async fn ch5_2_the_deadline_ends_a_filter_and_names_it() {
    let mut peer = Peer::start().await;
    let (mesh, begun, ended) = waiting("ch5_2_deadline", &peer, true).await;
    let call = mesh.with_timeout("/a", "1H");
    soon(begun.notified()).await;
    assert_eq!(mesh.channel.shared.calls.published.waiting(), 0, "it is not queued");
    pass(Duration::from_secs(3_599)).await;
    assert!(!call.is_finished());
    pass(Duration::from_secs(2)).await;
    let expected = "deadline exceeded: HTTP filter \"mine\" has not finished";
    assert_eq!(status(call).await, (Code::DeadlineExceeded, expected.into()));
    soon(ended.notified()).await;
    assert!(peer.is_quiet());
}

#[tokio::test]
async fn ch5_2_the_deadline_ends_a_filter_that_has_a_response() {
    let mut peer = Peer::start().await;
    let (mesh, begun, ended) = waiting("ch5_2_late", &peer, false).await;
    let call = mesh.with_timeout("/a", "1H");
    let mut received = peer.request().await;
    let mut stream = received.begin_response();
    soon(begun.notified()).await;
    pass(Duration::from_secs(3_601)).await;
    assert_eq!(status(call).await.0, Code::DeadlineExceeded);
    soon(ended.notified()).await;
    assert_eq!(reset(&mut stream).await, h2::Reason::CANCEL);
    until("nothing runs", || mesh.running("ch5_2_late") == 0).await;
}

#[tokio::test]
async fn ch5_2_a_call_that_is_dropped_drops_its_filter() {
    let peer = Peer::start().await;
    let (mesh, begun, ended) = waiting("ch5_2_cancelled", &peer, true).await;
    let call = mesh.get("/a");
    soon(begun.notified()).await;
    call.abort();
    soon(ended.notified()).await;
}

#[tokio::test]
async fn ch5_2_a_shutdown_ends_filters_before_their_requests_at_once_and_others_after_the_grace() {
    let mut peer = Peer::start().await;
    for waits_before in [true, false] {
        let name = if waits_before { "ch5_2_shut_before" } else { "ch5_2_shut_after" };
        let (mesh, begun, ended) = waiting(name, &peer, waits_before).await;
        let call = mesh.get("/a");
        let received = if waits_before { None } else { Some(peer.request().await) };
        let mut received = received;
        let _stream = received.as_mut().map(|it| it.begin_response());
        soon(begun.notified()).await;
        let grace = if waits_before { Duration::from_secs(3_600) } else { Duration::ZERO };
        soon(mesh.channel.shutdown(grace)).await;
        let (code, message) = status(call).await;
        assert!(message.contains("channel is shut down"), "{message}");
        assert_eq!(code, if waits_before { Code::Unavailable } else { Code::Cancelled });
        soon(ended.notified()).await;
    }
}

#[tokio::test]
async fn ch5_2_a_panic_of_a_filter_fails_its_call_with_internal() {
    let mut peer = Peer::start().await;
    let name = "ch5_2_panics";
    let mesh = start(name, &[&peer]).await;
    script(name, |_, request, next| {
        assert!(request.uri().path() != "/call", "on purpose");
        Box::pin(async move {
            assert!(request.uri().path() != "/future", "on purpose");
            let path = request.uri().path().to_owned();
            let response = next.run(request).await;
            assert!(path != "/response", "on purpose");
            Ok(response)
        })
    });
    with_filter(&mesh, of(name));
    let expected = (Code::Internal, "HTTP filter \"mine\" panicked in a call".to_owned());
    for path in ["/call", "/future", "/response", "/call"] {
        let call = mesh.get(path);
        if path == "/response" {
            peer.request().await.respond();
        }
        assert_eq!(status(call).await, expected, "{path}");
    }
    let call = mesh.get("/good");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    until("nothing runs", || mesh.running(name) == 0).await;
}

#[tokio::test]
async fn ch5_4_a_filter_that_panics_when_it_is_made_fails_calls_until_the_next_configuration() {
    let mut peer = Peer::start().await;
    let name = "ch5_4_broken";
    let mesh = start(name, &[&peer]).await;
    script("ch5_4_works", |_, request, next| Box::pin(async move { Ok(next.run(request).await) }));
    with_filter(&mesh, of("panics#made"));
    let expected = (Code::Internal, "HTTP filter \"mine\" panicked when it was made".to_owned());
    assert_eq!(status(mesh.get("/a")).await, expected);
    with_filter(&mesh, of("ch5_4_works"));
    loop {
        let call = mesh.get("/b");
        tokio::select! {
            received = peer.request() => {
                received.respond();
                return soon(call).await.unwrap().unwrap();
            }
            () = until("it fails", || call.is_finished()) => assert_eq!(status(call).await, expected),
        }
    }
}
