//! Resolutions and their cluster subscriptions with a hand-written driver.

use super::*;
use crate::{
    config::Target,
    resolve::{Resolved, fixture},
};

#[tokio::test]
async fn resolutions_of_equal_targets_share_a_slot() {
    let (client, mut driver) = client();
    let first = client.resolve("xds:///shop");
    let (watch_id, target, publish) = driver.resolved();
    assert_eq!(target, Target::new("xds:///shop"));
    let (second, third) = (client.resolve(Target::new("xds:///shop")), first.clone());
    driver.expect_nothing();
    publish.upgrade().unwrap().publish(shop()).wake();
    for resolution in [&first, &second, &third] {
        assert_eq!(resolution.latest().unwrap().unwrap().target(), "xds:///shop");
    }
    let other = client.resolve(Target::new("xds:///shop").with_authority("other"));
    let (other_view, target, _) = driver.resolved();
    assert_eq!(target.authority(), Some("other"));
    drop((first, second));
    driver.expect_nothing();
    drop(third);
    assert_eq!(driver.unwatched(), watch_id);
    drop(other);
    assert_eq!(driver.unwatched(), other_view);
    assert!(publish.upgrade().is_none());
}

#[tokio::test]
async fn a_target_that_is_resolved_again_is_another_watch() {
    let (client, mut driver) = client();
    drop(client.resolve("xds:///shop"));
    let mut again = client.resolve("xds:///shop");
    let (first, ..) = driver.resolved();
    assert_eq!(driver.unwatched(), first);
    let (second, _, publish) = driver.resolved();
    assert_ne!(first, second);
    assert!(again.latest().is_none() && again.next().now_or_never().is_none());
    publish.upgrade().unwrap().publish(shop()).wake();
    assert!(again.next().now_or_never().unwrap().unwrap().is_ok());
    assert!(again.ready().now_or_never().unwrap().is_ok(), "though it was seen");
}

#[tokio::test]
async fn ten_thousand_resolutions_that_end_leave_nothing() {
    let (client, mut driver) = client();
    for i in 0..10_000 {
        let shop = client.resolve(format!("xds:///shop-{i}"));
        drop(shop.subscribe_cluster("cart"));
    }
    assert_eq!(client.registry.targets(), 0);
    for _ in 0..10_000 {
        let (watch_id, ..) = driver.resolved();
        assert_eq!((driver.held().2, driver.held().2), (true, false));
        assert_eq!(driver.unwatched(), watch_id);
    }
}

#[tokio::test]
async fn a_slow_resolution_sees_the_latest_state_only() {
    let (client, mut driver) = client();
    let mut shop = client.resolve("xds:///shop");
    let watch = driver.resolved().2.upgrade().unwrap();
    let error = fixture::error::<crate::resource::Listener>("shop", Code::NotFound, "does not exist");
    watch.publish(self::shop()).wake();
    watch.publish(Arc::new(Resolved::Err(error.clone()))).wake();
    assert_eq!(shop.next().now_or_never().unwrap().unwrap().unwrap_err(), error);
    assert!(shop.next().now_or_never().is_none());
    assert!(shop.wait_for(Result::is_ok).now_or_never().is_none());
    watch.publish(self::shop()).wake();
    assert!(shop.wait_for(Result::is_ok).now_or_never().unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn resolutions_end_at_once_when_there_is_no_driver() {
    let (client, driver) = client();
    drop(driver);
    let mut late = client.resolve("xds:///shop");
    assert!(late.next().now_or_never().unwrap().is_none());
    let error = late.ready().now_or_never().unwrap().unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::Cancelled, Blame::Local));
    assert_eq!(error.to_string(), "Listener \"xds:///shop\": the client was shut down [node id: n1]");
    late.request_reresolution();
    let hold = late.subscribe_cluster("cart");
    assert_eq!((hold.name(), late.subscribe_cluster("cart").name()), ("cart", "cart"));
}

#[tokio::test]
async fn a74_6_only_the_first_subscription_and_the_last_release_reach_the_driver() {
    let (client, mut driver) = client();
    let shop = client.resolve("xds:///shop");
    let (watch_id, ..) = driver.resolved();
    let first = shop.subscribe_cluster("cart");
    assert_eq!(driver.held(), (watch_id, "cart".into(), true));
    let (second, third, other) = (
        shop.subscribe_cluster("cart"),
        first.clone(),
        client.resolve("xds:///shop").subscribe_cluster("cart"),
    );
    drop((first, second, third));
    driver.expect_nothing();
    let _web = shop.subscribe_cluster("web");
    assert_eq!(driver.held(), (watch_id, "web".into(), true));
    drop(other);
    assert_eq!(driver.held(), (watch_id, "cart".into(), false));
    let again = shop.subscribe_cluster("cart");
    assert_eq!(driver.held(), (watch_id, "cart".into(), true));
    drop(shop);
    driver.expect_nothing();
    drop(again);
    assert_eq!(driver.held(), (watch_id, "cart".into(), false));
}

#[tokio::test]
async fn a_hold_keeps_the_resolution() {
    let (client, mut driver) = client();
    let shop = client.resolve("xds:///shop");
    let (watch_id, ..) = driver.resolved();
    let hold = shop.subscribe_cluster("cart");
    drop(shop);
    assert_eq!(driver.held(), (watch_id, "cart".into(), true));
    let joined = client.resolve("xds:///shop");
    driver.expect_nothing();
    drop(joined);
    drop(hold);
    assert_eq!(driver.held(), (watch_id, "cart".into(), false));
    assert_eq!(driver.unwatched(), watch_id);
}

/// Subscriptions are created and dropped in several threads at once: the commands to the driver alternate, and end
/// with the unsubscription.
#[test]
fn a74_7_subscriptions_of_concurrent_calls_reach_the_driver_in_order() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _runtime = runtime.enter();
    let (client, mut driver) = client();
    let shop = client.resolve("xds:///shop");
    driver.resolved();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    drop(shop.subscribe_cluster("cart").clone());
                }
            });
        }
    });
    let mut is_held = false;
    while let Ok(command) = driver.0.try_recv() {
        let held = matches!(command, Command::SubscribeCluster { .. });
        assert!(held || matches!(command, Command::UnsubscribeCluster { .. }), "{command:?}");
        assert_ne!(held, is_held, "notified twice");
        is_held = held;
    }
    assert!(!is_held);
}

#[tokio::test]
async fn request_reresolution_reaches_the_driver() {
    let (client, mut driver) = client();
    let shop = client.resolve("xds:///shop");
    let (expected, ..) = driver.resolved();
    shop.request_reresolution();
    assert!(
        matches!(driver.0.try_recv().unwrap(), Command::RequestReresolution { watch_id } if watch_id == expected)
    );
}

impl Commands {
    pub(super) fn resolved(&mut self) -> (WatchId, Target, Weak<dyn Publish>) {
        match self.0.try_recv().unwrap() {
            Command::Resolve { watch_id, target, publish } => (watch_id, target, publish),
            other => panic!("{other:?}"),
        }
    }

    fn held(&mut self) -> (WatchId, String, bool) {
        match self.0.try_recv().unwrap() {
            Command::SubscribeCluster { watch_id, name } => (watch_id, name.to_string(), true),
            Command::UnsubscribeCluster { watch_id, name } => (watch_id, name.to_string(), false),
            other => panic!("{other:?}"),
        }
    }
}

fn shop() -> Erased {
    Arc::new(Resolved::Ok(Arc::new(fixture::snapshot("shop").build())))
}
