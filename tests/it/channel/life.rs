//! The life of a channel: construction, idleness, shutdown.

use std::{env, process::Command};

use tonic::Code;
use xdskit::{channel::ChannelError, resource::Listener};

use super::{backend::HOLD, calls::call_owned, *};

#[tokio::test]
async fn ch1_1_what_cannot_be_a_channel_is_an_error_of_the_builder() {
    let bootstrap = || {
        Bootstrap::from_json(
            r#"{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}]}"#,
        )
    };
    for target in ["shop", "dns:///shop", "xds://nobody/shop", "xds:///"] {
        let error = Channel::builder(target).bootstrap(bootstrap().unwrap()).build().unwrap_err();
        assert!(matches!(error, ChannelError::Target(_)), "{error:?}");
        assert!(error.to_string().contains(target), "{error}");
    }
    let built = Channel::builder("xds:///shop").bootstrap(bootstrap().unwrap()).authority("a b").build();
    assert!(matches!(built.unwrap_err(), ChannelError::Authority { .. }));
}

#[tokio::test]
#[ignore = "runs in a process of its own, with an environment"]
async fn builds_a_channel_by_the_environment() {
    let target = env::var("TARGET").unwrap();
    match Channel::builder(target).build() {
        Ok(channel) => println!("built for {}", channel.client().bootstrap().node().id),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn ch1_1_the_bootstrap_of_a_channel_is_that_of_the_environment_by_default() {
    const FILE: &str = "GRPC_XDS_BOOTSTRAP";
    const TEXT: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";
    let built = |variables: &[(&str, &str)]| {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args([
            "channel::life::builds_a_channel_by_the_environment",
            "--exact",
            "--ignored",
            "--nocapture",
        ]);
        test.env_remove(FILE).env_remove(TEXT).envs(variables.iter().copied());
        String::from_utf8(test.output().unwrap().stdout).unwrap()
    };
    let bootstrap = r#"{"xds_servers":[{"server_uri":"127.0.0.1:1","channel_creds":[{"type":"insecure"}]}],"node":{"id":"n7"}}"#;
    let shop = ("TARGET", "xds:///shop");
    let none = "the channel to xds:///shop was given no bootstrap and no client, and cannot use the environment: bootstrap: neither \
                GRPC_XDS_BOOTSTRAP (the name of a file) nor GRPC_XDS_BOOTSTRAP_CONFIG (JSON) is set";
    for (variables, expected) in [
        (&[shop, (TEXT, bootstrap)] as &[_], "built for n7"),
        (&[shop], none),
        (&[shop, (FILE, "no/such/file")], "no/such/file (from GRPC_XDS_BOOTSTRAP): cannot be read"),
        (&[("TARGET", "shop")], "target \"shop\": does not start with `xds:`"),
    ] {
        let output = built(variables);
        assert!(output.contains(expected), "{expected} is not in {output}");
    }
}

#[tokio::test]
async fn a_channel_returns_the_client_that_it_uses() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.call(ECHO, "hello").await.unwrap();
    let mut listener = mesh.channel.client().watch::<Listener>("shop");
    soon(listener.ready()).await.unwrap();
    assert_eq!(mesh.server.clients(), 1, "it is the same client");
}

#[tokio::test]
async fn ch1_2_a_channel_is_idle_until_the_first_call() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    assert_eq!(mesh.channel.state(), ChannelState::Idle);
    assert_eq!(mesh.server.clients(), 0);
    mesh.call(ECHO, "hello").await.unwrap();
    assert_eq!(mesh.channel.state(), ChannelState::Ready);
    assert_eq!(mesh.channel.target().as_str(), "xds:///shop");
}

#[tokio::test]
async fn ch1_28_an_idle_channel_closes_its_connections_and_the_next_call_opens_them() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let channel = mesh.client.channel("xds:///shop").idle_timeout(Duration::from_millis(1)).build().unwrap();
    call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
    let mut states = channel.watch_state();
    soon(async { while states.next().await.unwrap() != ChannelState::Idle {} }).await;
    // The timeout is 1 s at least.
    call(&channel, ECHO, Request::new("hello".into())).await.unwrap();
    assert_eq!(channel.state(), ChannelState::Ready);
}

#[tokio::test]
async fn ch1_6_after_a_shutdown_calls_fail_and_running_ones_end_after_the_grace() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    soon(mesh.channel.shutdown(Duration::from_millis(10))).await;
    assert_eq!(soon(held).await.unwrap().unwrap_err().code(), Code::Cancelled);
    let error = mesh.call(ECHO, "hello").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("channel is shut down"), "{error:?}");
    assert_eq!(mesh.channel.state(), ChannelState::Shutdown);
    let error = mesh.channel.wait_ready(Duration::from_secs(20)).await.unwrap_err();
    assert_eq!(error.state(), ChannelState::Shutdown);
    assert_eq!(error.to_string(), "the channel to xds:///shop is not ready: SHUTDOWN: channel is shut down");
    soon(mesh.channel.shutdown(Duration::ZERO)).await;
    one.holds(0).await;
}

#[tokio::test]
async fn ch1_3_a_channel_that_does_not_become_ready_has_a_state_and_the_last_failure() {
    let mesh = Mesh::start(&[]).await;
    mesh.channel.connect();
    let not_ready = async |state: ChannelState, reason: &str| {
        mesh.becomes(state).await;
        let error = mesh.channel.wait_ready(Duration::ZERO).await.unwrap_err();
        assert_eq!(error.state(), state);
        assert!(error.reason().unwrap().contains(reason), "{reason} is not in {error}");
        let text = format!("the channel to xds:///shop is not ready: {state}: {}", error.reason().unwrap());
        assert_eq!(error.to_string(), text);
    };
    not_ready(ChannelState::TransientFailure, "cluster cart has no usable endpoints").await;
    // An address without a listener.
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    mesh.server.set(endpoints("cart").locality("eu", "a", [&*unused]));
    let mut states = mesh.channel.watch_state();
    soon(async { while states.next().await.unwrap() != ChannelState::Connecting {} }).await;
    not_ready(ChannelState::TransientFailure, &unused).await;
}

#[tokio::test]
async fn ch1_3_a_channel_without_a_configuration_has_the_reason_of_the_resolution() {
    let server = TestControlPlane::start().await;
    let client = Client::builder(Bootstrap::from_json(&server.bootstrap_json()).unwrap());
    let client = client.resource_timeout(Duration::from_millis(50)).build().unwrap();
    let channel = client.channel("xds:///shop").build().unwrap();
    channel.connect();
    let mut states = channel.watch_state();
    soon(async { while states.next().await.unwrap() != ChannelState::TransientFailure {} }).await;
    let error = channel.wait_ready(Duration::ZERO).await.unwrap_err();
    assert!(error.reason().unwrap().contains("Listener \"shop\": "), "{error}");
}

#[tokio::test]
async fn ch1_6_a_shutdown_waits_for_running_calls() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    let channel = mesh.channel.clone();
    let shutdown = tokio::spawn(async move { channel.shutdown(Duration::from_secs(60)).await });
    mesh.becomes(ChannelState::Shutdown).await;
    one.release();
    soon(held).await.unwrap().unwrap();
    soon(shutdown).await.unwrap();
}

#[tokio::test]
async fn ch1_5_running_calls_outlive_the_last_handle() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    drop(mesh);
    one.release();
    soon(held).await.unwrap().unwrap();
}
