//! The filter `header_mutation`, beside filters of the application and the channel's own failures.

use prost::Message as _;

use super::*;
use crate::pb::{
    envoy::{
        config::{
            common::mutation_rules::v3::{HeaderMutation as Mutation, header_mutation::Action as Change},
            core::v3::{HeaderValue, HeaderValueOption},
        },
        extensions::filters::http::header_mutation::v3 as pb,
    },
    google::protobuf::Any,
};

/// Appends a header of this name.
fn append(key: &str, value: &str) -> Vec<Mutation> {
    let header = HeaderValue { key: key.into(), value: value.into(), ..HeaderValue::default() };
    let append = HeaderValueOption { header: Some(header), ..HeaderValueOption::default() };
    vec![Mutation { action: Some(Change::Append(append)) }]
}

/// Appends a value to the header `x-order` of requests, responses and trailers.
fn all(value: &str) -> Any {
    let mutations = Some(pb::Mutations {
        request_mutations: append("x-order", value),
        response_mutations: append("x-order", value),
        response_trailers_mutations: append("x-order", value),
    });
    let config = pb::HeaderMutation { mutations, ..pb::HeaderMutation::default() };
    any("envoy.extensions.filters.http.header_mutation.v3.HeaderMutation", &config.encode_to_vec())
}

/// The values of the header `x-order`.
fn order(headers: &http::HeaderMap) -> Vec<&str> {
    headers.get_all("x-order").iter().map(|value| value.to_str().unwrap()).collect()
}

/// Passes calls on, after it has added its id to `x-order` of the request; and then to that of the response.
fn pass_on(id: &'static str) {
    script(id, move |_, mut request, next| {
        Box::pin(async move {
            request.headers_mut().append("x-order", id.parse().unwrap());
            let mut response = next.run(request).await;
            response.headers_mut().append("x-order", id.parse().unwrap());
            Ok(response)
        })
    });
}

async fn trailers(response: Response<ChannelBody>) -> http::HeaderMap {
    let collected = soon(http_body_util::BodyExt::collect(response.into_body())).await.unwrap();
    collected.trailers().cloned().unwrap()
}

#[tokio::test]
async fn ch5_16_requests_and_responses_are_changed_in_the_order_of_the_filters() {
    let mut peer = Peer::start().await;
    let name = "ch5_16_order";
    let mesh = start(name, &[&peer]).await;
    pass_on("ch5_16_one");
    pass_on("ch5_16_two");
    with_filters(
        &mesh,
        [
            ("a", all("a")),
            ("one", of("ch5_16_one")),
            ("b", all("b")),
            ("c", all("c")),
            ("two", of("ch5_16_two")),
            ("d", all("d")),
        ],
    );
    let call = tokio::spawn(mesh.begin("/a", Given::default()));
    let mut received = peer.request().await;
    assert_eq!(order(received.request.headers()), ["a", "ch5_16_one", "b", "c", "ch5_16_two", "d"]);
    let mut stream = received.begin_response();
    stream.send_data("abc".into(), false).unwrap();
    let mut end = http::HeaderMap::new();
    end.insert("grpc-status", "0".parse().unwrap());
    stream.send_trailers(end).unwrap();
    let response = soon(call).await.unwrap();
    assert_eq!(order(response.headers()), ["d", "ch5_16_two", "c", "b", "ch5_16_one", "a"]);
    assert_eq!(order(&trailers(response).await), ["d", "c", "b", "a"]);
}

#[tokio::test]
async fn ch5_16_all_attempts_have_the_mutations_of_the_call() {
    let mut peer = Peer::start().await;
    let name = "ch5_16_attempts";
    let mesh = start(name, &[&peer]).await;
    with_filter(&mesh, all("a"));
    let policy = RetryPolicy { retry_on: "unavailable".into(), ..RetryPolicy::default() };
    let route = route::prefix("").cluster(name).edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.retry_policy = Some(policy);
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    let call = tokio::spawn(mesh.begin("/a", Given::default()));
    for code in [Code::Unavailable, Code::NotFound] {
        let received = peer.request().await;
        assert_eq!(order(received.request.headers()), ["a"], "{code:?}");
        received.fail(code, &[]);
    }
    let response = soon(call).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "5");
    assert_eq!(order(response.headers()), ["a"], "the headers are the trailers, and are changed once");
}

#[tokio::test]
async fn ch5_16_a_failure_is_changed_by_the_filters_that_the_request_has_passed() {
    let mut peer = Peer::start().await;
    let name = "ch5_16_failures";
    let mesh = start(name, &[&peer]).await;
    let percentage = Some(FractionalPercent { numerator: 100, denominator: 0 });
    let abort = FaultAbort { error_type: Some(ErrorType::GrpcStatus(10)), percentage };
    let fault = script::fault(&HttpFault { abort: Some(abort), ..HttpFault::default() });
    with_filters(&mesh, [("a", all("a")), ("b", all("b")), ("fault", fault), ("c", all("c"))]);
    let response = soon(mesh.begin("/a", Given::default())).await;
    assert_eq!((response.headers()["grpc-status"].as_bytes(), peer.is_quiet()), (&b"10"[..], true));
    assert_eq!(order(response.headers()), ["b", "a"]);
}
