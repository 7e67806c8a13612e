//! Load reports of the attempts of a balancer whose snapshots are those of a client.

use xdskit::{
    Client, Resolution,
    control_plane::LoadReporting,
    resource::Locality,
    testing::{TestControlPlane, resources::ClusterBuilder},
};

use super::*;
use crate::common::{bootstrap, soon};

/// A mesh whose cluster reports the load of each request, the client with its resolution, and a balancer of the snapshot.
async fn reporting(
    cluster: ClusterBuilder,
    endpoints: EndpointsBuilder,
) -> (TestControlPlane, (Client, Resolution), World) {
    let server = TestControlPlane::start().await;
    server.ask_reports(LoadReporting::all(Duration::from_secs(1)));
    server.update(|tx| {
        tx.set(listener("shop").rds("routes"));
        tx.set(route_config("routes").virtual_host(["shop"], [route::prefix("").cluster("shop")]));
        tx.set(cluster.report_load());
        tx.set(endpoints);
    });
    let client = Client::builder(bootstrap(server.uri())).build().unwrap();
    let mut resolution = client.resolve("xds:///shop");
    let snapshot = soon(resolution.ready()).await.unwrap();
    let mut world = World::waiting(Settings::new(1));
    world.balancer.handle_resolution(Ok(snapshot), world.now);
    world.drain();
    (server, (client, resolution), world)
}

#[tokio::test]
async fn ch9_1_attempts_are_reported_by_their_outcome_and_their_locality() {
    let localities =
        endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]).locality("eu", "b", ["10.0.0.2:80"]);
    let (server, (client, _resolution), mut world) = reporting(cluster("shop"), localities).await;
    let mut sent = BTreeMap::<SocketAddr, u64>::new();
    for number in 0..60 {
        let mut attempt = world.attempt("shop");
        *sent.entry(attempt.address()).or_default() += u64::from(!(3..5).contains(&(number / 10)));
        match number / 10 {
            0 => attempt.finish(Outcome::Success),
            1 => attempt.finish(Outcome::Error),
            2 => attempt.on_sent(), // and dropped
            3 => drop(attempt),     // not sent
            4 => {
                attempt.on_sent();
                attempt.withdraw();
            }
            _ => {
                attempt.on_sent();
                attempt.on_sent();
                attempt.finish(Outcome::Success);
            }
        }
    }
    let totals = server.expect_load_totals("shop", |totals| totals.issued >= 40).await.unwrap();
    assert_eq!((totals.issued, totals.successful, totals.failed, totals.dropped), (40, 20, 20, 0));
    let of_zone = |zone: &str| {
        let is_of = |locality: &&Locality| locality.zone() == zone;
        totals.localities.iter().find(|(locality, _)| is_of(locality)).map(|(_, totals)| totals.issued)
    };
    let sent = [1, 2].map(|number| sent.get(&address(number)).copied());
    assert_eq!([of_zone("a"), of_zone("b")], sent);
    client.shutdown().await;
}

#[tokio::test]
async fn ch9_4_drops_and_the_circuit_breaker_are_reported_by_category() {
    let one = endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]).drop_percent("test", 50);
    let (server, (client, _resolution), mut world) = reporting(cluster("shop").max_requests(1), one).await;
    let (mut held, mut dropped, mut refused) = (None, 0, 0);
    for _ in 0..100 {
        match world.pick("shop") {
            Pick::Endpoint(attempt) => held = held.or(Some(attempt)),
            Pick::Fail(PickError::Dropped(_)) => dropped += 1,
            Pick::Fail(PickError::CircuitBreaker(_)) => refused += 1,
            other @ (Pick::Wait | Pick::Fail(_)) => panic!("{other:?}"),
        }
    }
    assert!(held.is_some() && dropped > 20 && refused > 20, "{dropped} {refused}");
    let totals = server.expect_load_totals("shop", |totals| totals.dropped >= 99).await.unwrap();
    assert_eq!((totals.dropped, totals.dropped_by_category["test"]), (dropped + refused, dropped));
    client.shutdown().await;
}
