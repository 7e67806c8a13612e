//! The serving state: what starts and ends it.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use tonic::Code;
use xdskit::{
    Server,
    pb::google::protobuf::BoolValue,
    server::{Fallback, ServerError, ServingState},
    testing::{TestControlPlane, resources},
};

use super::world::{
    ECHO, Echo, HOLD, LISTENER, LONG, World, bootstrap, call, chain, is_closed_at_once, listener, rds, served,
};
use crate::common::soon;

fn is_not_serving(state: &ServingState) -> bool {
    matches!(state, ServingState::NotServing(_))
}

#[tokio::test]
async fn sv2_3_a_port_of_the_system_is_a_part_of_the_name() {
    let world = World::start().await;
    let response = call(&world.client(), ECHO, "hello").await.unwrap();
    let expected = format!("grpc/server?addr={}", world.address);
    assert_eq!(response.metadata().get("x-listener").unwrap(), &expected);
    assert_eq!(response.into_inner(), "hello");
    let status = soon(world.server.status()).await.remove(0);
    assert_eq!((&*status.name, status.state), (&*expected, ServingState::Serving));
    assert_eq!((status.connections.serving, status.filter_chains), (1, 1));
}

#[tokio::test]
async fn sv1_5_sv1_8_security_listener_and_template_are_required() {
    let control = TestControlPlane::start().await;
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let builder = || Server::builder(bootstrap(&control)).listen(any);
    assert!(matches!(builder().serve(Echo::new()), Err(ServerError::NoCredentials)));
    let none = Server::builder(bootstrap(&control)).xds_credentials(Fallback::Plaintext);
    assert!(matches!(none.serve(Echo::new()), Err(ServerError::NoListener)));
    let without = xdskit::Bootstrap::from_json(&control.bootstrap_json()).unwrap();
    let without = Server::builder(without).xds_credentials(Fallback::Plaintext).listen(any);
    let error = without.serve(Echo::new()).unwrap_err();
    assert!(
        error.to_string().ends_with("the bootstrap has no server_listener_resource_name_template"),
        "{error}"
    );
}

#[tokio::test]
async fn sv2_8_the_application_may_name_the_listener() {
    let world = World::without_resources(|builder| builder.listener_name("mine")).await;
    let mut message = world.listener(vec![chain("main", rds("routes"))]);
    message.name = "mine".into();
    world.control.set(message);
    world.control.set(served("routes", &["/"]));
    soon(world.server.serving()).await;
}

#[tokio::test]
async fn sv3_3_a_port_in_use_is_an_error_of_the_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let control = TestControlPlane::start().await;
    let builder = Server::builder(bootstrap(&control)).xds_credentials(Fallback::Plaintext).listen(address);
    let error = builder.serve(Echo::new()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
}

#[tokio::test]
async fn sv3_3_nothing_listens_before_the_first_configuration() {
    let world = World::without_resources(|builder| builder).await;
    assert!(tokio::net::TcpStream::connect(world.address).await.is_err());
    world.control.set(world.listener(vec![chain("main", rds("routes"))]));
    world.control.set(served("routes", &["/"]));
    soon(world.server.serving()).await;
    assert!(tokio::net::TcpStream::connect(world.address).await.is_ok());
}

#[tokio::test]
async fn sv3_3_a_socket_that_was_handed_over_closes_connections_before_the_first_configuration() {
    let control = TestControlPlane::start().await;
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let builder = Server::builder(bootstrap(&control)).xds_credentials(Fallback::Plaintext).listener(socket);
    let server = builder.serve(Echo::new()).unwrap();
    assert!(is_closed_at_once(address).await);
    control.set(listener(address, vec![chain("main", rds("routes"))]));
    control.set(served("routes", &["/"]));
    soon(server.serving()).await;
    server.shutdown().await;
}

#[tokio::test]
async fn sv2_6_sv11_10_another_address_and_a_clients_listener_are_not_served() {
    let world = World::start().await;
    let elsewhere = SocketAddr::from(([127, 0, 0, 1], world.address.port() ^ 1));
    let mut message = listener(elsewhere, vec![chain("main", rds("routes"))]);
    message.name = format!("grpc/server?addr={}", world.address);
    world.control.set(message);
    let state = world.until(is_not_serving).await.to_string();
    assert!(state.contains(&elsewhere.to_string()) && state.contains(&world.address.to_string()), "{state}");
    assert!(state.contains("FAILED_PRECONDITION") && state.contains("[node id: test]"), "{state}");
    world.control.set(resources::listener(format!("grpc/server?addr={}", world.address)).rds("routes"));
    world.until(|state| state.to_string().contains("api_listener")).await;
    assert!(is_closed_at_once(world.address).await);
    world.control.set(world.listener(vec![chain("main", rds("routes"))]));
    soon(world.server.serving()).await;
}

#[tokio::test]
async fn sv3_4_sv3_6_sv11_5_deletion_finishes_requests_and_return_serves_again() {
    let world = World::start().await;
    let client = world.client();
    let held = tokio::spawn(async move { call(&client, HOLD, "held").await });
    world.echo.holds(1).await;
    let name = format!("grpc/server?addr={}", world.address);
    world.control.remove(LISTENER, &name);
    let state = world.until(is_not_serving).await.to_string();
    assert!(state.starts_with("NOT_SERVING: NOT_FOUND: Listener ") && state.contains(&name), "{state}");
    assert!(is_closed_at_once(world.address).await);
    world.echo.release();
    assert_eq!(held.await.unwrap().unwrap().into_inner(), "held");
    world.control.set(world.listener(vec![chain("main", rds("routes"))]));
    soon(world.server.serving()).await;
    call(&world.client(), ECHO, "a").await.unwrap();
}

#[tokio::test]
async fn sv3_4_a_released_port_is_free() {
    let world = World::start_with(|builder| builder.release_port(true)).await;
    world.control.remove(LISTENER, &format!("grpc/server?addr={}", world.address));
    world.until(is_not_serving).await;
    let other = TcpListener::bind(world.address).unwrap();
    // The port is in use when the server returns, and is opened when it is free again.
    world.control.set(world.listener(vec![chain("main", rds("routes"))]));
    world.until(|state| state.to_string().contains("cannot listen on")).await;
    drop(other);
    soon(world.server.serving()).await;
    call(&world.client(), ECHO, "a").await.unwrap();
}

#[tokio::test]
async fn sv3_7_sv11_2_an_outage_of_the_management_server_changes_nothing() {
    let world = World::start().await;
    world.control.stop().await;
    call(&world.client(), ECHO, "a").await.unwrap();
    soon(async {
        while world.server.status().await[0].warning.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    call(&world.client(), ECHO, "a").await.unwrap();
    world.control.restart().await;
    world.control.set(served("routes", &["/none"]));
    world.until_call(Result::is_err).await;
    assert_eq!(world.server.states()[0].1, ServingState::Serving);
}

#[tokio::test]
async fn sv11_4_a_rejected_listener_is_not_served() {
    let world = World::without_resources(|builder| builder).await;
    let mut bad = world.listener(vec![chain("main", rds("routes"))]);
    bad.use_original_dst = Some(BoolValue { value: true });
    world.control.set(bad);
    let state = world.until(is_not_serving).await.to_string();
    assert!(state.starts_with("NOT_SERVING: INVALID_ARGUMENT: "), "{state}");
}

#[tokio::test]
async fn sv3_8_sv3_11_the_callback_is_sequential_and_a_panic_of_it_harms_nothing() {
    let states = Arc::new(Mutex::new(Vec::new()));
    let told = states.clone();
    let world = World::without_resources(|builder| {
        builder.on_state(move |address, state| {
            told.lock().unwrap().push((address, state.to_string()));
            if state.is_serving() {
                // Connections are accepted by the new configuration.
                drop(std::net::TcpStream::connect(address).unwrap());
                panic!("as it should");
            }
        })
    })
    .await;
    let mut bad = world.listener(vec![chain("main", rds("routes"))]);
    bad.use_original_dst = Some(BoolValue { value: true });
    world.control.set(bad);
    soon(async {
        while states.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    world.control.set(world.listener(vec![chain("main", rds("routes"))]));
    world.control.set(served("routes", &["/"]));
    soon(world.server.serving()).await;
    call(&world.client(), ECHO, "a").await.unwrap();
    soon(async {
        while states.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(world.server.shutdown()).await;
    let states = states.lock().unwrap();
    assert!(states[0].1.starts_with("NOT_SERVING: INVALID_ARGUMENT"), "{states:?}");
    assert_eq!(states[1..], [(world.address, "SERVING".to_owned())]);
}

#[tokio::test]
async fn sv12_3_a_shutdown_waits_for_requests_and_closes_the_port() {
    let world = World::start().await;
    let client = world.client();
    let held = tokio::spawn(async move { call(&client, HOLD, "held").await });
    world.echo.holds(1).await;
    let server = world.server.clone();
    let shutdown = tokio::spawn(async move { server.shutdown().await });
    world.until(|state| *state == ServingState::Stopping).await;
    assert!(tokio::net::TcpStream::connect(world.address).await.is_err());
    assert!(!shutdown.is_finished());
    world.echo.release();
    assert_eq!(held.await.unwrap().unwrap().into_inner(), "held");
    soon(shutdown).await.unwrap();
    // In any order and state.
    soon(world.server.shutdown_now()).await;
    soon(world.server.shutdown_within(LONG)).await;
    assert_eq!(world.server.status().await, []);
}

#[tokio::test]
async fn sv12_3_a_limit_and_a_shutdown_at_once_reset_what_is_left() {
    for at_once in [false, true] {
        let world = World::start().await;
        let client = world.client();
        let held = tokio::spawn(async move { call(&client, HOLD, "held").await });
        world.echo.holds(1).await;
        // Without a limit first: what comes later ends it.
        let server = world.server.clone();
        let shutdown = tokio::spawn(async move { server.shutdown().await });
        world.until(|state| *state == ServingState::Stopping).await;
        match at_once {
            true => soon(world.server.shutdown_now()).await,
            false => soon(world.server.shutdown_within(Duration::from_millis(10))).await,
        }
        soon(shutdown).await.unwrap();
        assert_ne!(held.await.unwrap().unwrap_err().code(), Code::Ok);
    }
}

#[tokio::test]
async fn sv12_3_a_server_that_has_not_started_is_shut_down() {
    let world = World::without_resources(|builder| builder).await;
    let server = world.server.clone();
    let serving = tokio::spawn(async move { server.serving().await });
    soon(world.server.shutdown()).await;
    soon(serving).await.unwrap();
}

#[tokio::test]
async fn sv12_4_the_last_handle_shuts_down() {
    let World { control, server, address, echo } = World::start().await;
    let other = server.clone();
    drop(server);
    let world = World { control, server: other, address, echo };
    call(&world.client(), ECHO, "a").await.unwrap();
    drop(world.server);
    soon(async { while tokio::net::TcpStream::connect(address).await.is_ok() {} }).await;
    soon(world.control.expect_clients(0)).await.unwrap();
}
