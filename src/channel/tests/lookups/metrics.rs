//! What metrics record of route lookup.

use std::sync::Arc;

use super::{super::telemetry::Notes, *};

#[tokio::test]
async fn rl15_picks_of_targets_and_failed_lookups_are_recorded_by_service() {
    let notes = Arc::<Notes>::default();
    let observer = Arc::new(notes.clone());
    let settings = |builder: ChannelBuilder| builder.observer(observer);
    let mut rig = Rig::with("rl15_picks", Peer::start().await, settings, |_| {}).await;
    rig.prosper().await;
    assert_eq!(notes.lookups(), ["xds:///lookup rl15_picks-a complete"; 3]);
    assert_eq!(notes.caches(), [("xds:///lookup".to_owned(), 3)]);
    // A failed lookup without a default target, whose entry has the backoff.
    let call = rig.call_as("blue");
    rig.lookup().await.1.fail(Code::Internal, &[]);
    assert_eq!(failure(call).await.0, Code::Unavailable);
    assert_eq!(notes.lookups(), ["xds:///lookup failed"]);
    assert_eq!(notes.caches(), [("xds:///lookup".to_owned(), 4)]);
    // With one, which cannot be reached.
    let default = rig.cluster("b");
    rig.mesh.server.set(endpoints(&default).locality("eu", "a", ["127.0.0.1:1"]));
    rig.configure(|config| config.default_target = default);
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    assert_eq!(failure(rig.call_as("blue")).await.0, Code::Unavailable);
    assert_eq!(notes.lookups(), ["xds:///lookup rl15_picks-b by default fail"]);
    // Calls of other routes are none of these.
    rig.call_plain().await;
    assert!(notes.lookups().is_empty());
    // Another service has a record of its own, and the keys that it shares with the one before.
    let address = rig.lookup.address;
    rig.configure(|config| config.lookup_service = format!("dns:///{address}"));
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    assert_eq!(notes.caches(), [(format!("dns:///{address}"), 3)]);
    let call = rig.call_as("x");
    rig.a.request().await.respond();
    soon(call).await.unwrap().unwrap();
    assert_eq!(notes.lookups(), [format!("dns:///{address} rl15_picks-a complete")]);
    // Without the plugin there is no cache.
    rig.configure_each(&[], |_| {});
    soon(rig.mesh.channel.wait_until_applied(Duration::from_secs(10))).await.unwrap();
    until("the cache is gone", || notes.caches().is_empty()).await;
}
