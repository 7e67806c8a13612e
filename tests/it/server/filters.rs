//! HTTP filters of applications.

use std::sync::Arc;

use serde::Serialize;
use tonic::{Code, codegen::http};
use xdskit::{
    Client,
    error::Code as FilterCode,
    resource::{
        Context, Extension, Invalid, Payload, Registry,
        http_filter::{
            CallFilter, ClientFilter, FilterBody, FilterError, FilterFuture, HttpFilterExtension, Next, Sides,
        },
    },
};

use super::world::{ECHO, World, any, bootstrap, call, chain_with, exchange, rds, served};
use crate::common::soon;

/// Does what the header `x-filter` of a request orders.
#[derive(Debug, PartialEq, Serialize)]
struct Obey;

impl Extension for Obey {
    const TYPE_NAME: &'static str = "test.Obey";

    fn parse(_: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

impl HttpFilterExtension for Obey {
    const SIDES: Sides = Sides::Server;
    type Override = Self;
}

impl ClientFilter for Obey {
    type State = ();

    fn state(&self, _: &str) {}

    fn call_filter(&self, _: Option<&Self>, _: &Arc<()>) -> Box<dyn CallFilter> {
        Box::new(Self)
    }
}

impl CallFilter for Obey {
    fn call<'a>(&'a self, mut request: http::Request<FilterBody>, next: Next<'a>) -> FilterFuture<'a> {
        Box::pin(async move {
            let order = request.headers_mut().remove("x-filter");
            match order.as_ref().and_then(|order| order.to_str().ok()).unwrap_or_default() {
                "fail" => Err(FilterError::new(FilterCode::PermissionDenied, "not you")),
                "panic" => panic!("as it should"),
                _ => {
                    let mut response = next.run(request).await;
                    let count = response.headers().get_all("x-passed").iter().count();
                    response.headers_mut().append("x-passed", count.into());
                    Ok(response)
                }
            }
        })
    }
}

#[tokio::test]
async fn sv8_4_sv8_7_filters_of_the_application_pass_answer_and_panic() {
    let control = xdskit::testing::TestControlPlane::start().await;
    let client = Client::builder(bootstrap(&control))
        .extensions(Registry::new().with_client_filter::<Obey>())
        .build()
        .unwrap();
    let echo = super::world::Echo::new();
    let server = xdskit::Server::builder(bootstrap(&control))
        .client(client)
        .xds_credentials(xdskit::server::Fallback::Plaintext)
        .listen("127.0.0.1:0".parse().unwrap())
        .serve(echo.clone())
        .unwrap();
    let address = server.addresses()[0];
    let world = World { control, server, echo, address };
    let filters = vec![("one", any("test.Obey", Vec::new())), ("two", any("test.Obey", Vec::new()))];
    world.control.set(world.listener(vec![chain_with("main", rds("routes"), filters)]));
    world.control.set(served("routes", &["/test.Echo/"]));
    soon(world.server.serving()).await;
    let response = call(&world.client(), ECHO, "hello").await.unwrap();
    let passed: Vec<_> = response.metadata().get_all("x-passed").iter().collect();
    assert_eq!(passed, ["0", "1"]);
    assert_eq!(response.into_inner(), "hello");
    let request = |order: &str| {
        format!("GET /test.Echo/x HTTP/1.1\r\nhost: a\r\nx-filter: {order}\r\nconnection: close\r\n\r\n")
    };
    let text = exchange(world.address, request("fail").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 403 Forbidden\r\n") && text.ends_with("not you"), "{text}");
    let text = exchange(world.address, request("panic").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{text}");
    let status = call(&world.client(), "/other.Service/Method", "a").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
}
