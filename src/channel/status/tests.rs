use std::time::Duration;

use super::*;

#[test]
fn ch2_26_a_stream_that_the_server_cancels_after_the_deadline_has_exceeded_it() {
    let cancelled = h2::Error::from(Reason::CANCEL);
    let address = ([127, 0, 0, 1], 80).into();
    let of = |deadline| of_error(&cancelled, address, None, deadline).code();
    let now = Instant::now();
    assert_eq!(of(Some(now)), Code::DeadlineExceeded);
    assert_eq!(of(Some(now + Duration::from_secs(600))), Code::Cancelled);
    assert_eq!(of(None), Code::Cancelled);
    let refused = h2::Error::from(Reason::REFUSED_STREAM);
    let status = of_error(&refused, address, None, Some(now));
    assert_eq!(status.code(), Code::Unavailable, "other resets keep their codes");
}

#[test]
fn ch2_26_a_status_cancelled_after_the_deadline_is_deadline_exceeded() {
    let now = Instant::now();
    let of = |code, message: Option<&'static str>, deadline| {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_STATUS, HeaderValue::from_static(code));
        if let Some(message) = message {
            headers.insert(GRPC_MESSAGE, HeaderValue::from_static(message));
        }
        correct_deadline(&mut headers, deadline);
        let status = Status::from_header_map(&headers).unwrap();
        (status.code(), status.message().to_owned())
    };
    let exceeded = |message: &str| (Code::DeadlineExceeded, format!("deadline exceeded: {message}"));
    assert_eq!(of("1", Some("Timeout%20expired"), Some(now)), exceeded("Timeout expired"));
    assert_eq!(of("1", None, Some(now)), exceeded("call cancelled by the server"));
    let later = now + Duration::from_secs(600);
    assert_eq!(of("1", Some("no"), Some(later)), (Code::Cancelled, "no".to_owned()));
    assert_eq!(of("1", Some("no"), None), (Code::Cancelled, "no".to_owned()));
    assert_eq!(of("14", Some("no"), Some(now)), (Code::Unavailable, "no".to_owned()));
    assert_eq!(of("0", None, Some(now)), (Code::Ok, String::new()));
}

/// The head of a response.
fn response(http: u16, content_type: Option<&str>, grpc_status: Option<&str>) -> Response<()> {
    let mut response = Response::builder().status(http).body(()).unwrap();
    let headers = [(CONTENT_TYPE, content_type), (GRPC_STATUS, grpc_status)];
    for (name, value) in headers.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

const PEER: ([u8; 4], u16) = ([127, 0, 0, 1], 80);
/// Status codes of HTTP with those of gRPC (http-grpc-status-mapping.md).
const HTTP: [(u16, Code); 10] = [
    (200, Code::Unknown),
    (400, Code::Internal),
    (401, Code::Unauthenticated),
    (403, Code::PermissionDenied),
    (404, Code::Unimplemented),
    (429, Code::Unavailable),
    (500, Code::Unknown),
    (502, Code::Unavailable),
    (503, Code::Unavailable),
    (504, Code::Unavailable),
];
const OF_GRPC: [&str; 5] = [
    "application/grpc",
    "application/grpc+proto",
    "application/grpc;charset=utf-8",
    "Application/GRPC",
    "application/grpc ; x=y",
];
const OTHERS: [&str; 6] = [
    "text/html",
    "application/grpc-web",
    "application/grpc-web+proto",
    "application/grpcx",
    "application",
    "",
];

#[test]
fn ch2_25_the_status_of_a_response_by_http_status_content_type_grpc_status_and_end_of_the_stream() {
    let grpc = OF_GRPC.map(|value| (Some(value), true));
    let others = OTHERS.map(|value| (Some(value), false));
    for (http, code) in HTTP {
        for (content_type, is_grpc) in grpc.into_iter().chain(others).chain([(None, false)]) {
            for is_end in [false, true] {
                for grpc_status in [None, Some("0"), Some("5")] {
                    let mut response = response(http, content_type, grpc_status);
                    let failed = of_response(&response, is_end, PEER.into()).map(|status| status.code());
                    let about = format!("{http} {content_type:?} {grpc_status:?} {is_end}");
                    let by_http = grpc_status.is_none() && (is_end || !is_grpc);
                    assert_eq!(failed, by_http.then_some(code), "{about}");
                    if by_http {
                        continue;
                    }
                    // What follows is the end of the body. `grpc-status` of the head counts if it is all that there is.
                    let head = ResponseHead::new(&mut response, is_end);
                    let in_head = in_headers(response.headers());
                    let is_kept = grpc_status == Some("5") || is_end;
                    assert_eq!(in_head.is_some(), grpc_status.is_some() && is_kept, "{about}");
                    let end = |trailers| match head.end(trailers, PEER.into()) {
                        Ok(trailers) => Code::from(in_headers(&trailers).unwrap() as i32),
                        Err(status) => status.code(),
                    };
                    let with_status = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("7"))]);
                    assert_eq!(end(Some(with_status)), Code::PermissionDenied, "{about}");
                    let without = if grpc_status == Some("0") && !is_end { Code::Ok } else { code };
                    assert_eq!([end(Some(HeaderMap::new())), end(None)], [without; 2], "{about}");
                }
            }
        }
    }
}

#[test]
fn ch2_25_a_response_without_a_status_is_described_with_its_address_and_what_it_is() {
    let message = |content_type: Option<&str>| {
        let status = of_response(&response(503, content_type, None), true, PEER.into()).unwrap();
        status.message().to_owned()
    };
    let html = "127.0.0.1:80: the response is not one of gRPC: content-type \"text/html\", HTTP status 503 Service \
                Unavailable";
    assert_eq!(message(Some("text/html")), html);
    let grpc = "127.0.0.1:80: the response has no grpc-status, HTTP status 503 Service Unavailable";
    assert_eq!(message(Some("application/grpc")), grpc);
    assert!(message(None).contains("content-type none"));
    let long = message(Some(&"x".repeat(5_000)));
    assert!(long.len() < 350 && long.contains("...(truncated)"), "{long}");
}
