//! States of a channel, and what waits in them.

use std::task::{Context, Poll, Waker};

use tonic::{
    Code,
    body::Body,
    codegen::{Service, http},
};
use xdskit::{channel::WaitForReady, control_plane::type_url};

use super::{backend::HOLD, calls::call_owned, *};

#[tokio::test]
async fn ch1_3_ch1_29_a_channel_passes_its_states_and_an_idle_one_has_no_watches() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let channel = mesh.client.channel("xds:///shop").idle_timeout(Duration::from_secs(1)).build().unwrap();
    let mut states = channel.watch_state();
    assert_eq!(soon(states.next()).await, Some(ChannelState::Idle));
    mesh.server.hold();
    channel.connect();
    assert_eq!(soon(states.next()).await, Some(ChannelState::Connecting), "before the first configuration");
    mesh.server.release();
    soon(async { while states.next().await.unwrap() != ChannelState::Ready {} }).await;
    soon(async { while states.next().await.unwrap() != ChannelState::Idle {} }).await;
    for ty in [type_url::LISTENER, type_url::CLUSTER] {
        mesh.server.expect_names(ty, &[]).await.unwrap();
    }
    mesh.ready().await;
    let address = one.crash();
    mesh.becomes(ChannelState::TransientFailure).await;
    let _one = Backend::start_at("one", address).await;
    mesh.becomes(ChannelState::Ready).await;
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    assert_eq!(mesh.channel.state(), ChannelState::Shutdown);
}

#[tokio::test]
async fn ch3_12_a_channel_is_ready_if_one_of_its_clusters_is() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(endpoints("wine"));
    mesh.server.set(cluster("wine"));
    let routes = |first| {
        let routes = [route::prefix("/test").cluster(first), route::prefix("").cluster("wine")];
        route_config("routes").virtual_host(["*"], routes)
    };
    mesh.server.set(routes("wine"));
    mesh.channel.connect();
    mesh.becomes(ChannelState::TransientFailure).await;
    mesh.server.set(routes("cart"));
    mesh.becomes(ChannelState::Ready).await;
    mesh.server.set(routes("wine"));
    mesh.becomes(ChannelState::TransientFailure).await;
}

#[tokio::test]
async fn ch1_4_poll_ready_reserves_nothing() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let mut channel = mesh.client.channel("xds:///shop").max_queued(1).build().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        let ready = Service::<http::Request<Body>>::poll_ready(&mut channel, &mut cx);
        assert!(matches!(ready, Poll::Ready(Ok(()))));
    }
    assert_eq!(channel.state(), ChannelState::Idle);
    call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
}

#[tokio::test]
async fn ch1_10_before_the_first_configuration_calls_wait_until_it_comes_or_their_deadline() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.hold();
    let mut request = Request::new("hello".into());
    request.set_timeout(Duration::from_millis(50));
    let error = call(&mesh.channel, ECHO, request).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(call_owned(mesh.channel.clone(), ECHO))).collect();
    mesh.becomes(ChannelState::Connecting).await;
    assert_eq!(one.calls(), 0);
    mesh.server.release();
    for call in waiting {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch1_16_the_extension_of_a_request_is_stronger_than_the_default_of_the_channel() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(endpoints("cart"));
    let waits = mesh.client.channel("xds:///shop").wait_for_ready(true).build().unwrap();
    let outcome = async |channel: &Channel, wait: Option<bool>, timeout: Duration| {
        let mut request = Request::new("hello".into());
        request.set_timeout(timeout);
        if let Some(wait) = wait {
            request.extensions_mut().insert(WaitForReady(wait));
        }
        call(channel, ECHO, request).await.unwrap_err().code()
    };
    // Calls that fail do so at once, however long that takes on a busy machine.
    let (long, short) = (Duration::from_secs(20), Duration::from_millis(50));
    assert_eq!(outcome(&mesh.channel, None, long).await, Code::Unavailable);
    assert_eq!(outcome(&mesh.channel, Some(true), short).await, Code::DeadlineExceeded);
    assert_eq!(outcome(&waits, None, short).await, Code::DeadlineExceeded);
    assert_eq!(outcome(&waits, Some(false), long).await, Code::Unavailable);
}

#[tokio::test]
async fn ch1_30_calls_that_begin_while_the_channel_becomes_idle_are_not_lost() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let channel = mesh.client.channel("xds:///shop").idle_timeout(Duration::from_secs(1)).build().unwrap();
    for _ in 0..3 {
        let mut states = channel.watch_state();
        call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
        // As soon as the state is seen, its connections are about to close.
        soon(async { while states.next().await.unwrap() != ChannelState::Idle {} }).await;
        let calls: Vec<_> = (0..20).map(|_| tokio::spawn(call_owned(channel.clone(), ECHO))).collect();
        for call in calls {
            soon(call).await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn ch1_20_the_clusters_of_the_newest_routes_and_of_calls_that_wait_are_watched() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.set(endpoints("cart"));
    mesh.becomes(ChannelState::TransientFailure).await;
    let mut request = Request::new("hello".into());
    request.extensions_mut().insert(WaitForReady(true));
    let channel = mesh.channel.clone();
    let waiting = tokio::spawn(async move { call(&channel, ECHO, request).await });
    // A call that is refused shows that the one before has selected its cluster.
    assert_eq!(mesh.call(ECHO, "hello").await.unwrap_err().code(), Code::Unavailable);
    mesh.server.update(|mesh| {
        mesh.set(cluster("wine"));
        mesh.set(endpoints("wine"));
        mesh.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("wine")]));
    });
    mesh.server.expect_names(type_url::CLUSTER, &["cart", "wine"]).await.unwrap();
    mesh.server.set(cart(&[&one]));
    assert_eq!(
        backend_of(&soon(waiting).await.unwrap().unwrap()),
        "one",
        "it keeps the cluster that it has selected"
    );
    mesh.server.expect_names(type_url::CLUSTER, &["wine"]).await.unwrap();
}

#[tokio::test]
async fn ch2_4_ch13_11_a_fraction_of_none_matches_no_call_and_one_of_all_each() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let routes = |per_million| {
        let some = route::prefix("").per_million(per_million).cluster("cart");
        route_config("routes").virtual_host(["*"], [some])
    };
    mesh.server.set(routes(0));
    mesh.until(|seen| seen.is_err()).await;
    for _ in 0..100 {
        assert_eq!(mesh.call(ECHO, "hello").await.unwrap_err().code(), Code::Unavailable);
    }
    mesh.server.set(routes(1_000_000));
    mesh.until(|seen| seen.is_ok()).await;
    assert_eq!(mesh.shares(100).await, BTreeMap::from([("one".to_owned(), 100)]));
}

#[tokio::test]
async fn ch2_24_the_authority_is_that_of_the_request_or_else_of_the_channel() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let channel = mesh.client.channel("xds:///shop").authority("shop.example").build().unwrap();
    let of = |response: Response<Bytes>| {
        response.metadata().get("x-authority").unwrap().to_str().unwrap().to_owned()
    };
    let response = call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
    assert_eq!(of(response), "shop.example");
    let mut grpc = Grpc::with_origin(channel, "http://own.example".parse().unwrap());
    soon(grpc.ready()).await.unwrap();
    let path = PathAndQuery::from_static(ECHO);
    let response = soon(grpc.unary(Request::new("hello".into()), path, Raw)).await.unwrap();
    assert_eq!(of(response), "own.example");
}

#[tokio::test]
async fn ch2_27_a_call_that_fails_is_a_response_with_a_status() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("/other").cluster("cart")]));
    mesh.until(|seen| seen.is_err()).await;
    let request = http::Request::builder().uri(ECHO).header("content-type", "application/grpc");
    let response = soon(mesh.channel.clone().call(request.body(Body::empty()).unwrap())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["grpc-status"], (Code::Unavailable as i32).to_string());
    assert_eq!(response.headers()["content-type"], "application/grpc");
    assert!(http_body::Body::is_end_stream(response.body()));
}

#[tokio::test]
async fn ch2_1_a_call_is_routed_once_and_its_route_sees_what_the_application_sent() {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(cluster("wine"));
    mesh.server.set(endpoints("wine").locality("eu", "a", [two.text().as_str()]));
    let tagged = route::prefix("").header("x-tag", "wine").cluster("wine");
    mesh.server.set(route_config("routes").virtual_host(["*"], [tagged, route::prefix("").cluster("cart")]));
    mesh.ready().await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    let mut request = Request::new(Bytes::from("hello"));
    request.metadata_mut().insert("x-tag", "wine".parse().unwrap());
    let response = soon(async {
        loop {
            let mut again = Request::new(Bytes::from("hello"));
            *again.metadata_mut() = request.metadata().clone();
            match call(&mesh.channel, ECHO, again).await {
                Ok(response) if backend_of(&response) == "two" => return response,
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    assert_eq!(response.metadata().get("x-tag").unwrap(), "wine", "the backend sees it as well");
    one.release();
    assert_eq!(backend_of(&soon(held).await.unwrap().unwrap()), "one");
}
