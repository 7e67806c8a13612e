//! Which backends get the calls.

use super::*;

#[tokio::test]
async fn ping_pong_and_round_robin() {
    let backends = backends(["four", "one", "three", "two"]).await;
    let pair = Pair::start(&["--qps=100", "--fail_on_failed_rpcs=true"], &backends.each_ref()).await;
    pair.reach(&["four", "one", "three", "two"]).await;
    for seen in pair.each(async |client| client.distribution(100).await).await {
        // Calls that begin at the same time may be counted in another order than they were picked.
        let is_even = seen.rpcs_by_peer.values().all(|calls| (23..=27).contains(calls));
        assert!(is_even && seen.num_failures == 0, "{seen:?}");
    }
}

#[tokio::test]
async fn secondary_locality_gets_requests_on_primary_failure() {
    let [one, two, three, four] = backends(["one", "two", "three", "four"]).await;
    let pair = Pair::start(&["--qps=100"], &[]).await;
    let both = locality(endpoints("cart"), "a", 0, &[&one, &two]);
    pair.server.set(locality(both, "b", 1, &[&three, &four]));
    pair.reach(&["one", "two"]).await;
    let one = one.kill().await;
    pair.reach(&["two"]).await; // no requests on partial failure
    let two = two.kill().await;
    pair.reach(&["four", "three"]).await;
    let _primary = (one.start().await, two.start().await);
    pair.reach(&["one", "two"]).await;
}
