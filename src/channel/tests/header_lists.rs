//! Header lists that are larger than one of both sides accepts (CH15.9).

use http::HeaderMap;

use super::*;

/// A value with which a header list has this size, beside what tests put into it otherwise.
fn filler(size: usize) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for number in 0..size / 1_000 {
        headers.insert(
            http::HeaderName::try_from(format!("x-{number:03}")).unwrap(),
            "v".repeat(963).parse().unwrap(),
        );
    }
    headers
}

/// The status of a call whose response, or its trailers, have this size; and whether a neighbour on the same connection fails.
async fn status_of(mesh: &Mesh, peer: &mut Peer, headers: usize, trailers: usize) -> Result<(), Status> {
    let neighbour = mesh.get("/neighbour");
    let held = peer.request().await;
    let call = mesh.get("/large");
    let mut received = peer.request().await;
    assert_eq!(held.connection, received.connection);
    let mut stream = received.begin_response_with(filler(headers));
    let mut end = filler(trailers);
    end.insert("grpc-status", "0".parse().unwrap());
    let _ = stream.send_trailers(end);
    let status = soon(call).await.unwrap();
    held.respond();
    soon(neighbour).await.unwrap().unwrap();
    status
}

#[tokio::test]
async fn ch15_9_response_headers_above_the_limit_fail_their_call_alone() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch15_9", &[&peer]).await;
    status_of(&mesh, &mut peer, 15_000, 15_000).await.unwrap();
    for (headers, trailers) in [(17_000, 0), (0, 17_000), (60_000, 0), (0, 60_000)] {
        let status = status_of(&mesh, &mut peer, headers, trailers).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        let address = peer.address;
        let prefix = format!("{address}: the headers or trailers of the response have ");
        assert!(status.message().starts_with(&prefix), "{status:?}");
        assert!(status.message().ends_with(" bytes, max_header_list_size is 16384"), "{status:?}");
    }
    // Above 8 times the limit h2 resets the stream by the headers, and cuts the trailers.
    for (headers, trailers, end) in [
        (150_000, 0, "larger than 131072 bytes (max_header_list_size is 16384)"),
        (400_000, 0, "larger than 131072 bytes (max_header_list_size is 16384)"),
        (0, 150_000, " bytes, max_header_list_size is 16384"),
    ] {
        let status = status_of(&mesh, &mut peer, headers, trailers).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().ends_with(end), "{status:?}");
    }
}

#[tokio::test]
async fn ch15_9_the_limit_of_response_headers_is_a_setting() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::with("ch15_9_setting", &[&peer], |builder| builder.max_header_list_size(100_000)).await;
    status_of(&mesh, &mut peer, 99_000, 99_000).await.unwrap();
    let status = status_of(&mesh, &mut peer, 101_000, 0).await.unwrap_err();
    assert!(status.message().ends_with("max_header_list_size is 100000"), "{status:?}");
    let smallest = Mesh::with("ch15_9_setting", &[&peer], |builder| builder.max_header_list_size(0)).await;
    status_of(&smallest, &mut peer, 0, 0).await.unwrap();
}

#[tokio::test]
async fn ch15_9_metadata_that_the_server_does_not_accept_fails_its_call_and_is_not_retried() {
    let mut peer = Peer::with(|it| {
        it.max_header_list_size(8 << 10);
    })
    .await;
    let mesh = Mesh::start("ch15_9_request", &[&peer]).await;
    // The connection is there, and with it what the server accepts.
    let first = mesh.get("/first");
    let held = peer.request().await;
    let request = Request::post("/large").header("x", "v".repeat(9_000)).body(Given::default()).unwrap();
    let mut channel = mesh.channel.clone();
    let status =
        soon(finish(async move { channel.call(request).await.unwrap_or_else(|error| match error {}) }))
            .await
            .unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let address = peer.address;
    assert!(
        status.message().starts_with(&format!("{address}: the headers of the request have 9")),
        "{status:?}"
    );
    assert!(
        status.message().contains("the server accepts 8192 (SETTINGS_MAX_HEADER_LIST_SIZE)"),
        "{status:?}"
    );
    assert!(peer.is_quiet());
    assert_eq!(mesh.running("ch15_9_request"), 1, "the first call alone");
    held.respond();
    soon(first).await.unwrap().unwrap();
}
