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
    let pair = Pair::start(&["--qps=100", "--fail_on_failed_rpcs=true"], &backends.each_ref()).await;
    pair.reach(&["four", "one", "three", "two"]).await;
    pair.each(async |client| {
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

#[tokio::test]
async fn backends_restart() {
    let [one, two] = backends(["one", "two"]).await;
    let pair = Pair::start(&["--qps=100"], &[&one, &two]).await;
    pair.reach(&["one", "two"]).await;
    let (one, two) = (one.kill().await, two.kill().await);
    pair.each(async |client| client.all_end(UNARY_CALLS, &[(UNARY, Code::Unavailable)]).await).await;
    let _both = (one.start().await, two.start().await);
    pair.each(async |client| client.configure(UNARY_CALLS).await).await;
    pair.reach(&["one", "two"]).await;
}

/// Endpoints and then the whole cluster are replaced, which fails no call.
#[tokio::test]
async fn remove_neg_and_change_backend_service() {
    let [one, two, three] = backends(["one", "two", "three"]).await;
    let pair = Pair::start(&["--qps=100", "--fail_on_failed_rpcs=true"], &[&one, &two]).await;
    pair.reach(&["one", "two"]).await;
    pair.server.set(locality(endpoints("cart"), "a", 0, &[&one]));
    pair.reach(&["one"]).await;
    pair.server.set(cluster("pay"));
    pair.server.set(locality(endpoints("pay"), "a", 0, &[&three]));
    pair.set_routes([route::prefix("").cluster("pay")]);
    pair.reach(&["three"]).await;
    pair.server.remove(type_url::CLUSTER, "cart");
    pair.server.remove(type_url::ENDPOINTS, "cart");
    pair.reach(&["three"]).await;
    for codes in pair.each(async |client| client.stop().await).await {
        assert!(codes.keys().eq([&(UNARY, 0)]), "{codes:?}");
    }
}

#[tokio::test]
async fn localities_by_weight() {
    let [one, two] = backends(["one", "two"]).await;
    let pair = Pair::start(&["--qps=500"], &[]).await;
    let first = locality(endpoints("cart"), "a", 0, &[&one]).weight(20);
    pair.server.set(locality(first, "b", 0, &[&two]).weight(80));
    pair.reach(&["one", "two"]).await;
    pair.each(async |client| {
        // Within 3 standard deviations, which chance exceeds once in 370 times.
        let is_met = |seen: &LoadBalancerStatsResponse| seen.rpcs_by_peer["one"].abs_diff(200) <= 38;
        client.until("share of 20 % of 1,000 calls", 1_000, is_met).await;
    })
    .await;
}

/// The control plane gives its clients two of four backends. The client status is the same of both clients, down to the bytes.
#[tokio::test]
async fn csds_and_subsetting() {
    let all = backends(["one", "two", "three", "four"]).await;
    let pair = Pair::start(&["--qps=100"], &[&all[0], &all[1]]).await;
    pair.reach(&["one", "two"]).await;
    let [ours, go] = pair.each(async |client| client.status().await).await;
    assert_eq!(ours.len(), 4, "{ours:?}");
    assert!(ours.iter().all(|shown| shown.client_status() == ClientResourceStatus::Acked), "{ours:?}");
    assert_eq!(ours, go);
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
