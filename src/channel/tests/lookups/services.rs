//! The channel to the lookup service.

use super::{super::secure::Ca, *};

#[tokio::test]
async fn rl12_a_service_that_is_looked_up_by_itself_fails_its_lookups() {
    let mut rig = Rig::start("rl12_itself", |config| config.lookup_service = "xds:///shop".into()).await;
    let (code, message) = failure(rig.call_as("blue")).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("is not executed for calls to a lookup service"), "{message}");
    rig.call_plain().await;
}

#[tokio::test]
async fn rl13_a_service_may_be_a_host() {
    let mut rig = Rig::start("rl13_host", |config| config.lookup_service = "unix:///lookup".into()).await;
    let (code, message) = failure(rig.call_as("blue")).await;
    assert_eq!(code, Code::Unavailable);
    assert!(message.contains("\"unix:///lookup\" is no target of the schemes"), "{message}");
    rig.call_plain().await;
    let address = rig.lookup.address;
    rig.configure(|config| config.lookup_service = format!("dns:///{address}"));
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    // The throttle of the service before is not that of this one.
    let call = rig.call_as("blue");
    rig.resolve("a", "").await;
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
}

#[tokio::test]
async fn rl13_the_channel_to_a_host_is_secured_as_the_channel() {
    let ca = Ca::new();
    let lookup = Peer::secured(ca.server(&["shop"])).await;
    let (target, fallback) = (lookup.address.to_string(), ca.fallback());
    let settings = |builder: ChannelBuilder| builder.xds_credentials(fallback);
    let mut rig = Rig::with("rl13_secured", lookup, settings, |config| config.lookup_service = target).await;
    let call = rig.call_as("blue");
    rig.lookup().await.1.fail(Code::NotFound, &[("grpc-message", "seen")]);
    let (code, message) = failure(call).await;
    assert_eq!(
        (code, message.contains("the last lookup has failed: seen")),
        (Code::Unavailable, true),
        "{message}"
    );
    // A server with another certificate gets no keys.
    let mut other = Peer::secured(Ca::new().server(&["shop"])).await;
    let target = other.address.to_string();
    rig.configure(|config| config.lookup_service = target);
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    let (code, message) = failure(rig.call_as("red")).await;
    assert_eq!((code, other.is_quiet()), (Code::Unavailable, true), "{message}");
}
