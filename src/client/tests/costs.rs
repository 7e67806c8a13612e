//! The costs of an idle client and of a busy one, in virtual time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::{advance, sleep};

use super::{life::Network, *};

/// Counts how often a future is polled.
async fn counted(future: impl Future<Output = ()>, polls: Arc<AtomicU64>) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_wakes_an_idle_client() {
    let network = Network::default();
    let (client, driver) = network.client().build_with_driver().unwrap();
    let polls = Arc::new(AtomicU64::new(0));
    tokio::spawn(counted(driver, polls.clone()));
    let watches: Vec<_> = ["a", "b"].map(|name| client.watch::<Text>(name)).into();
    // The resources are not sent, and their timers expire.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(network.sent().len(), 1);
    let before = polls.load(Ordering::Relaxed);
    sleep(Duration::from_secs(24 * 3_600)).await;
    assert_eq!(polls.load(Ordering::Relaxed), before);
    drop(watches);
    sleep(Duration::from_millis(1)).await;
    assert!(polls.load(Ordering::Relaxed) > before, "it is counted");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_watches_are_few_requests_whatever_is_between_them() {
    for apart in [0, 20, 50] {
        let network = Network::default();
        let client = network.client().build().unwrap();
        let _first = client.watch::<Text>("first");
        sleep(Duration::from_secs(1)).await;
        let before = network.sent().len();
        assert_eq!(before, 1, "the stream is live");
        let mut watches = Vec::with_capacity(10_000);
        for i in 0..10_000 {
            watches.push(client.watch::<Text>(format!("service-{i:05}.example.com")));
            advance(Duration::from_micros(apart)).await;
        }
        sleep(Duration::from_secs(1)).await;
        let sent = network.sent().split_off(before);
        let (longest, bytes) = (*sent.last().unwrap(), sent.iter().sum::<usize>());
        assert!(sent.len() <= 40, "{} requests, {apart} µs apart", sent.len());
        assert!(longest >= 10_000 * "service-00000.example.com".len(), "the last one names everything");
        assert!(bytes <= 12 * longest, "{bytes} bytes, {longest} in the last, {apart} µs apart");
    }
}
