//! Which backends get the calls.

use xdskit::{
    control_plane::type_url,
    pb::envoy::{
        admin::v3::ClientResourceStatus,
        service::status::v3::{ClientStatusRequest, ClientStatusResponse, client_config::GenericXdsConfig},
    },
};

use super::*;

#[tokio::test]
async fn ping_pong_and_round_robin() {
    let backends = backends(["four", "one", "three", "two"]).await;
    let trio = Trio::start(&["--qps=100", "--fail_on_failed_rpcs=true"], &backends.each_ref()).await;
    trio.reach(&["four", "one", "three", "two"]).await;
    trio.each(async |client| {
        let mut rounds = Vec::new();
        // Calls that begin at the same time may be counted in another order than they are picked, the more the busier the machine is.
        for _ in 0..3 {
            let seen = client.distribution(100).await;
            assert_eq!(seen.num_failures, 0, "{seen:?}");
            if seen.rpcs_by_peer.values().all(|calls| (23..=27).contains(calls)) {
                return;
            }
            rounds.push(seen.rpcs_by_peer);
        }
        panic!("{}: {rounds:?}", client.name);
    })
    .await;
}

#[tokio::test]
async fn secondary_locality_gets_requests_on_primary_failure() {
    let [one, two, three, four] = backends(["one", "two", "three", "four"]).await;
    let trio = Trio::start(&["--qps=100"], &[]).await;
    let both = locality(endpoints("cart"), "a", 0, &[&one, &two]);
    trio.server.set(locality(both, "b", 1, &[&three, &four]));
    trio.reach(&["one", "two"]).await;
    let one = one.kill().await;
    trio.reach(&["two"]).await; // no requests on partial failure
    let two = two.kill().await;
    trio.reach(&["four", "three"]).await;
    let _primary = (one.start().await, two.start().await);
    trio.reach(&["one", "two"]).await;
}

#[tokio::test]
async fn backends_restart() {
    let [one, two] = backends(["one", "two"]).await;
    let trio = Trio::start(&["--qps=100"], &[&one, &two]).await;
    trio.reach(&["one", "two"]).await;
    let (one, two) = (one.kill().await, two.kill().await);
    trio.each(async |client| client.all_end(UNARY_CALLS, &[(UNARY, Code::Unavailable)]).await).await;
    let _both = (one.start().await, two.start().await);
    trio.each(async |client| client.configure(UNARY_CALLS).await).await;
    trio.reach(&["one", "two"]).await;
}

/// Endpoints and then the whole cluster are replaced, which fails no call of this crate's channel.
#[tokio::test]
async fn remove_neg_and_change_backend_service() {
    let [one, two, three] = backends(["one", "two", "three"]).await;
    let flags = ["--qps=100", "--fail_on_failed_rpcs=true"];
    let trio = Trio::start_each([&flags, &flags[..1], &flags[..1]], &[&one, &two]).await;
    trio.reach(&["one", "two"]).await;
    trio.server.set(locality(endpoints("cart"), "a", 0, &[&one]));
    trio.reach(&["one"]).await;
    for stats in trio.each(async |client| client.accumulated().await).await {
        assert!(codes(&stats).keys().eq([&(UNARY, 0)]), "{stats:?}");
    }
    trio.server.set(cluster("pay"));
    trio.server.set(locality(endpoints("pay"), "a", 0, &[&three]));
    trio.set_routes([route::prefix("").cluster("pay")]);
    trio.reach(&["three"]).await;
    trio.server.remove(type_url::CLUSTER, "cart");
    trio.server.remove(type_url::ENDPOINTS, "cart");
    trio.reach(&["three"]).await;
    trio.stop_after_new_clusters().await;
}

#[tokio::test]
async fn localities_by_weight() {
    let [one, two] = backends(["one", "two"]).await;
    let trio = Trio::start(&["--qps=500"], &[]).await;
    let first = locality(endpoints("cart"), "a", 0, &[&one]).weight(20);
    trio.server.set(locality(first, "b", 0, &[&two]).weight(80));
    trio.reach(&["one", "two"]).await;
    trio.each(async |client| {
        // Within 3 standard deviations, which chance exceeds once in 370 times.
        let is_met = |seen: &LoadBalancerStatsResponse| seen.rpcs_by_peer["one"].abs_diff(200) <= 38;
        client.until("share of 20 % of 1,000 calls", 1_000, is_met).await;
    })
    .await;
}

/// The control plane gives its clients two of four backends. The client status is the same of all clients, down to the bytes.
#[tokio::test]
async fn csds_and_subsetting() {
    let all = backends(["one", "two", "three", "four"]).await;
    let trio = Trio::start(&["--qps=100"], &[&all[0], &all[1]]).await;
    trio.reach(&["one", "two"]).await;
    let [ours, go, original] = trio.each(async |client| client.status().await).await;
    assert_eq!(ours.len(), 4, "{ours:?}");
    assert!(ours.iter().all(|shown| shown.client_status() == ClientResourceStatus::Acked), "{ours:?}");
    assert_eq!(ours, go);
    assert_eq!(ours, original);
}

impl Client {
    /// The resources of its status, in their order, without the times at which they came.
    async fn status(&self) -> Vec<GenericXdsConfig> {
        let request = ClientStatusRequest::default();
        let status: ClientStatusResponse = self
            .call("/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus", request)
            .await;
        let mut all: Vec<_> = status.config.into_iter().flat_map(|it| it.generic_xds_configs).collect();
        all.iter_mut().for_each(|it| it.last_updated = None);
        all.sort_by(|one, other| one.type_url.cmp(&other.type_url));
        all
    }
}
