//! Limits of route lookup that are settings of the channel.

use super::*;
use crate::channel::LookupLimits;

async fn limited(name: &'static str, limits: LookupLimits) -> Rig {
    Rig::with(name, Peer::start().await, |builder| builder.lookup_limits(limits), |_| {}).await
}

#[tokio::test]
async fn rl11_the_size_of_a_response_is_a_setting() {
    let limits = LookupLimits::new().with_response_size(200).with_header_data_size(20);
    let mut rig = limited("rl11_response", limits).await;
    rig.prosper().await;
    // The size of the message beside the header data, of 128 bytes and more.
    let rest = 2 + rig.cluster("a").len() + 3;
    let call = rig.call_as("at");
    rig.resolve("a", &"x".repeat(200 - rest)).await;
    let at_a = rig.a.request().await;
    assert_eq!(at_a.header("x-google-rls-data"), None, "the header data exceed their own limit");
    at_a.respond();
    soon(call).await.unwrap().unwrap();
    let call = rig.call_as("past");
    rig.resolve("a", &"x".repeat(201 - rest)).await;
    let (code, message) = failure(call).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("found 201 bytes, the limit is: 200 bytes"), "{message}");
    let call = rig.call_as("data");
    rig.resolve("a", "twenty bytes of data").await;
    let at_a = rig.a.request().await;
    assert_eq!(at_a.header("x-google-rls-data"), Some("twenty bytes of data"));
    at_a.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl11_a_request_with_larger_keys_is_not_looked_up_and_fails_alone() {
    let mut rig = limited("rl11_keys", LookupLimits::new().with_key_size(40)).await;
    // With the path, 14 bytes, and the key, 6 bytes.
    let call = rig.call_as(&"x".repeat(20));
    rig.resolve("a", "").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let (code, message) = failure(rig.call_as(&"x".repeat(21))).await;
    let expected = "the path and the keys of the request have 41 bytes, and 40 at most are looked up";
    assert_eq!((code, message.contains(expected)), (Code::Unavailable, true), "{message}");
    assert!(rig.lookup.is_quiet());
    // With a default target it goes there.
    let default = rig.cluster("b");
    rig.configure(|config| config.default_target = default);
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    let call = rig.call_as(&"x".repeat(21));
    rig.b.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl11_plugins_beyond_the_limit_fail_their_calls_and_those_before_go_on() {
    let mut rig = limited("rl11_plugins", LookupLimits::new().with_plugins(1)).await;
    let call = rig.call_as("blue");
    rig.resolve("a", "").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    // Its name comes before that of the other one.
    rig.configure_each(&[("another", "/another"), ("rls", "")], |_| {});
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    let (code, message) = failure(rig.mesh.get("/another/Get")).await;
    let expected =
        "the cluster specifier plugin another is not executed, since the routes have more than 1 of them";
    assert_eq!((code, message.contains(expected)), (Code::Unavailable, true), "{message}");
    let call = rig.call_as("blue");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert!(rig.lookup.is_quiet(), "the responses are kept");
    rig.call_plain().await;
    // The end of the other one makes room.
    rig.configure_each(&[("another", "/another")], |_| {});
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    let call = rig.mesh.get("/another/Get");
    rig.resolve("b", "").await;
    rig.b.request().await.respond();
    soon(call).await.unwrap().unwrap();
}
