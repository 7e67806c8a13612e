//! Requests that are none of gRPC (CH2.27).

use http_body_util::BodyExt as _;

use super::*;

/// Makes a request with a content type, or without one.
async fn fetch(mesh: &Mesh, content_type: Option<&str>, timeout: &str) -> (u16, String, Option<String>) {
    let request = Request::get("/page").header("grpc-timeout", timeout);
    let request =
        content_type.into_iter().fold(request, |request, value| request.header("content-type", value));
    let response = mesh.channel.clone().call(request.body(Given::default()).unwrap()).await;
    let response = response.unwrap_or_else(|error| match error {});
    let code = response.headers().get("grpc-status").map(|code| code.to_str().unwrap().to_owned());
    let http = response.status().as_u16();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    (http, String::from_utf8(text.to_vec()).unwrap(), code)
}

#[tokio::test]
async fn ch2_27_a_failed_request_that_is_none_of_grpc_has_an_http_status_that_is_an_error_and_a_text() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_27_http", &[&peer]).await;
    for content_type in [None, Some("text/plain"), Some("application/grpc-web")] {
        let (fetched, ()) = tokio::join!(soon(fetch(&mesh, content_type, "1M")), async {
            peer.request().await.answer(200);
        });
        let (http, text, code) = fetched;
        assert_eq!((http, code.as_deref()), (502, Some("2")), "{content_type:?}");
        assert!(text.contains("is not one of gRPC") && text.contains("carries gRPC alone"), "{text}");
    }
    // That of gRPC has its status in the headers of gRPC alone.
    let (fetched, ()) = tokio::join!(soon(fetch(&mesh, Some("application/grpc"), "1M")), async {
        peer.request().await.answer(200);
    });
    assert_eq!(fetched, (200, String::new(), Some("2".to_owned())));
}

#[tokio::test]
async fn ch2_27_the_http_status_is_that_of_a_gateway_by_the_code_of_grpc() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch2_27_codes", &[&peer]).await;
    let codes = [
        (Code::Unavailable, 503),
        (Code::ResourceExhausted, 503),
        (Code::Cancelled, 503),
        (Code::DeadlineExceeded, 504),
        (Code::Internal, 502),
        (Code::NotFound, 502),
    ];
    for (code, expected) in codes {
        let (fetched, ()) = tokio::join!(soon(fetch(&mesh, None, "1M")), async {
            peer.request().await.fail(code, &[("grpc-message", "no")]);
        });
        let (http, text, in_headers) = fetched;
        assert_eq!((http, in_headers), (expected, Some((code as i32).to_string())), "{code:?}");
        assert!(text.starts_with(&format!("{code:?}: no\n")), "{text}");
    }
    let (http, text, code) = soon(fetch(&mesh, None, "0m")).await;
    assert_eq!((http, code.as_deref()), (504, Some("4")), "{text}");
}
