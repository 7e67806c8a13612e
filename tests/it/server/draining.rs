//! Updates, and how the connections of older configurations end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use xdskit::{
    Bootstrap,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

use super::world::{ECHO, HOLD, World, call, chain, rds};
use crate::common::soon;

#[tokio::test(flavor = "multi_thread")]
async fn sv6_3_sv6_4_sv6_6_updates_under_load_lose_no_call() {
    let world = World::start().await;
    world.control.update(|tx| {
        tx.set(listener("shop").rds("shop"));
        tx.set(route_config("shop").virtual_host(["*"], [route::prefix("/").cluster("shop")]));
        tx.set(cluster("shop"));
        tx.set(endpoints("shop").locality("eu", "a", [world.address.to_string().as_str()]));
    });
    let bootstrap = Bootstrap::from_json(&world.control.bootstrap_json()).unwrap();
    let channel = xdskit::Channel::builder("xds:///shop").bootstrap(bootstrap).build().unwrap();
    let (is_over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (channel, is_over, calls) = (channel.clone(), is_over.clone(), calls.clone());
            tokio::spawn(async move {
                let mut client = tonic::client::Grpc::new(channel);
                while !is_over.load(Ordering::Relaxed) {
                    client.ready().await.unwrap();
                    let path = http::uri::PathAndQuery::from_static(ECHO);
                    let request = tonic::Request::new(bytes::Bytes::from_static(b"a"));
                    soon(client.unary(request, path, crate::common::raw::Raw)).await.unwrap();
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for update in 0..20 {
        let before = calls.load(Ordering::Relaxed);
        let name = format!("chain {update}");
        world.control.set(world.listener(vec![chain(&name, rds("routes"))]));
        // New connections have the new chain, and calls go on meanwhile.
        world
            .until_call(|result| {
                result.as_ref().is_ok_and(|response| response.metadata().get("x-chain").unwrap() == &name)
            })
            .await;
        soon(async {
            while calls.load(Ordering::Relaxed) < before + 50 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.unwrap();
    }
    // The connections of all older configurations end.
    drop(channel);
    soon(async {
        while world.server.status().await[0].filter_chains > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn sv6_9_requests_are_reset_after_the_grace() {
    let world = World::start_with(|builder| builder.drain_grace(Duration::from_millis(20))).await;
    let client = world.client();
    let held = tokio::spawn(async move { call(&client, HOLD, "held").await });
    world.echo.holds(1).await;
    world.control.set(world.listener(vec![chain("other", rds("routes"))]));
    held.await.unwrap().unwrap_err();
    soon(async {
        while world.server.status().await[0].connections != Default::default() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    call(&world.client(), ECHO, "a").await.unwrap();
}

#[tokio::test]
async fn sv6_7_http1_connections_end_with_the_next_response_or_when_they_are_idle() {
    let world = World::start().await;
    let mut busy = TcpStream::connect(world.address).await.unwrap();
    busy.write_all(format!("GET {HOLD} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    world.echo.holds(1).await;
    let mut idle = TcpStream::connect(world.address).await.unwrap();
    idle.write_all(b"GET /test.Echo/x HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut chunk = [0; 4096];
    assert!(soon(idle.read(&mut chunk)).await.unwrap() > 0);
    world.control.set(world.listener(vec![chain("other", rds("routes"))]));
    let mut rest = Vec::new();
    soon(idle.read_to_end(&mut rest)).await.unwrap();
    world.echo.release();
    let mut text = String::new();
    soon(busy.read_to_string(&mut text)).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("\r\nconnection: close\r\n"), "{text}");
}
