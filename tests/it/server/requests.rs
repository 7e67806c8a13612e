//! Requests: their routes, and how they are refused.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::Code;
use xdskit::pb::envoy::config::route::v3 as pb;

use super::world::{ECHO, ROUTES, World, call, chain, exchange, rds, served};
use crate::common::soon;

#[tokio::test]
async fn sv1_6_the_service_sees_listener_chain_route_and_addresses() {
    let world = World::start().await;
    let response = call(&world.client(), ECHO, "a").await.unwrap();
    let metadata = response.metadata();
    for (name, expected) in [
        ("x-chain", "main"),
        ("x-virtual-host", "all"),
        ("x-route", "below /test.Echo/"),
        ("x-local", &*world.address.to_string()),
        ("x-tls", "false"),
        ("x-authority", &*world.address.to_string()),
        ("x-host", ""),
    ] {
        assert_eq!(metadata.get(name).unwrap(), expected, "{name}");
    }
    assert!(metadata.get("x-peer").unwrap().to_str().unwrap().starts_with("127.0.0.1:"));
}

#[tokio::test]
async fn sv7_12_sv7_13_requests_without_a_route_are_refused_in_their_protocol() {
    let world = World::start().await;
    let status = call(&world.client(), "/other.Service/Method", "a").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(status.message(), "no route matches the request [node id: test]");
    let text = exchange(world.address, b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{text}");
    assert!(text.ends_with("no route matches the request [node id: test]"), "{text}");
}

#[tokio::test]
async fn sv7_5_malformed_heads_are_refused() {
    let world = World::start().await;
    world.control.set(served("routes", &["/"]));
    world.until_call(Result::is_ok).await;
    for (head, body) in [
        ("OPTIONS * HTTP/1.1\r\nhost: a\r\n", "malformed path"),
        ("GET /x HTTP/1.1\r\nhost: a\r\nhost: b\r\n", "several host headers"),
    ] {
        let text = exchange(world.address, format!("{head}connection: close\r\n\r\n").as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n") && text.ends_with(body), "{text}");
    }
}

#[tokio::test]
async fn sv7_6_http1_has_the_authority_of_its_target_or_host() {
    let world = World::start().await;
    world.control.set(served("routes", &["/"]));
    world.until_call(Result::is_ok).await;
    let text = exchange(world.address, b"GET /x?y HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("GET /x?y"), "{text}");
    assert!(text.contains("\r\nx-host: a\r\n"), "{text}");
    let absolute = b"GET http://b/x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let text = exchange(world.address, absolute).await;
    assert!(text.contains("\r\nx-host: \r\n") && text.contains("\r\nx-authority: b\r\n"), "{text}");
}

#[tokio::test]
async fn sv6_5_sv7_3_an_update_of_routes_is_for_the_next_request_on_the_same_connection() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let mut status = async || {
        stream.write_all(b"GET /test.Echo/x HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let (mut text, mut chunk) = (String::new(), [0; 4096]);
        while !text.contains("\r\n\r\n") || text.ends_with("\r\n\r\n") {
            let count = soon(stream.read(&mut chunk)).await.unwrap();
            assert!(count > 0, "the connection is closed");
            text.push_str(std::str::from_utf8(&chunk[..count]).unwrap());
        }
        text.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status().await, "200");
    world.control.set(served("routes", &["/other"]));
    soon(async { while status().await == "200" {} }).await;
    world.control.set(served("routes", &["/"]));
    soon(async { while status().await == "503" {} }).await;
    assert_eq!(world.server.status().await[0].connections.serving, 1);
}

#[tokio::test]
async fn sv7_7_sv11_8_rejected_routes_keep_the_good_ones_and_deleted_ones_are_unavailable() {
    let world = World::start().await;
    let mut bad = served("routes", &["/none"]);
    bad.virtual_hosts[0].domains.clear();
    world.control.set(bad);
    soon(world.control.expect_nack(ROUTES)).await.unwrap();
    call(&world.client(), ECHO, "a").await.unwrap();
    // A chain with other routes, which do not exist, is served all the same.
    world.control.set(world.listener(vec![chain("main", rds("missing"))]));
    world.control.set_error(ROUTES, "missing", Code::NotFound as i32, "no such routes");
    world
        .until_call(|result| {
            result.as_ref().is_err_and(|status| {
                status.message() == "the server has no route configuration [node id: test]"
            })
        })
        .await;
}

#[tokio::test]
async fn sv7_10_a_route_of_a_client_is_unavailable() {
    let world = World::start().await;
    let mut routes = served("routes", &["/"]);
    let redirect = pb::route::Action::Redirect(pb::RedirectAction {});
    routes.virtual_hosts[0].routes[0].action = Some(redirect);
    world.control.set(routes);
    world
        .until_call(|result| {
            result.as_ref().is_err_and(|status| {
                status.message() == "the action of the route is not for servers [node id: test]"
            })
        })
        .await;
}
