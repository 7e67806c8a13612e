//! Which backends get the calls while some of them fail, and while the control plane moves localities.

use tonic::Code;

use super::*;

#[tokio::test]
async fn ch12_ping_pong_reaches_all_backends() {
    let [a, b, c, d] = Backend::start_all(["a", "b", "c", "d"]).await;
    let mesh = Mesh::start(&[&a, &b, &c, &d]).await;
    mesh.reach(&["a", "b", "c", "d"]).await;
}

#[tokio::test]
async fn ch12_round_robin_gives_each_of_4_backends_25_of_100_calls() {
    let [a, b, c, d] = Backend::start_all(["a", "b", "c", "d"]).await;
    let mesh = Mesh::start(&[&a, &b, &c, &d]).await;
    mesh.reach(&["a", "b", "c", "d"]).await;
    for _ in 0..3 {
        assert!(mesh.shares(100).await.into_values().eq([25; 4]));
    }
}

#[tokio::test]
async fn ch12_backends_restart_and_get_the_same_shares_again() {
    let [a, b, c] = Backend::start_all(["a", "b", "c"]).await;
    let mesh = Mesh::start(&[&a, &b, &c]).await;
    mesh.reach(&["a", "b", "c"]).await;
    let addresses = [a.crash(), b.crash(), c.crash()];
    mesh.becomes(ChannelState::TransientFailure).await;
    for _ in 0..100 {
        assert_eq!(mesh.call(ECHO, "hello").await.unwrap_err().code(), Code::Unavailable);
    }
    let mut restarted = Vec::new();
    for (name, address) in ["a", "b", "c"].into_iter().zip(addresses) {
        restarted.push(Backend::start_at(name, address).await);
    }
    mesh.becomes(ChannelState::Ready).await;
    mesh.reach(&["a", "b", "c"]).await;
    assert!(mesh.shares(99).await.into_values().eq([33; 3]));
}

/// Two backends in the first priority, and two in the second one.
async fn two_priorities() -> (Mesh, [Backend; 2], [Backend; 2]) {
    let primary = Backend::start_all(["primary-1", "primary-2"]).await;
    let secondary = Backend::start_all(["secondary-1", "secondary-2"]).await;
    let mesh = Mesh::start(&[&primary[0], &primary[1]]).await;
    mesh.server.set(both(&primary, &secondary));
    (mesh, primary, secondary)
}

fn both(primary: &[Backend; 2], secondary: &[Backend; 2]) -> EndpointsBuilder {
    let primary = locality(endpoints("cart"), "a", 0, &[&primary[0], &primary[1]]);
    locality(primary, "b", 1, &[&secondary[0], &secondary[1]])
}

#[tokio::test]
async fn ch12_secondary_locality_gets_requests_on_primary_failure() {
    let (mesh, [one, two], secondary) = two_priorities().await;
    let load = mesh.load(TASKS);
    load.until_only(&["primary-1", "primary-2"]).await;
    assert_eq!(load.failed(), []);
    let addresses = [one.crash(), two.crash()];
    load.until_only(&["secondary-1", "secondary-2"]).await;
    let failed = load.failed();
    // A task has one call in flight at a time, and there were two crashes.
    assert!(
        failed.len() <= 2 * TASKS && failed.iter().all(|(code, _)| *code == Code::Unavailable),
        "{failed:?}"
    );
    let _one = Backend::start_at("primary-1", addresses[0]).await;
    let _two = Backend::start_at("primary-2", addresses[1]).await;
    load.until_only(&["primary-1", "primary-2"]).await;
    let of_secondary = secondary.iter().map(Backend::calls).sum::<usize>();
    load.until_only(&["primary-1", "primary-2"]).await;
    assert_eq!(secondary.iter().map(Backend::calls).sum::<usize>(), of_secondary);
    assert_eq!(load.stop().await, failed, "the return of the primary fails no call");
}

#[tokio::test]
async fn ch12_secondary_locality_gets_no_requests_on_partial_primary_failure() {
    let (mesh, [one, _two], secondary) = two_priorities().await;
    let load = mesh.load(TASKS);
    load.until_only(&["primary-1", "primary-2"]).await;
    let address = one.crash();
    load.until_only(&["primary-2"]).await;
    let _one = Backend::start_at("primary-1", address).await;
    load.until_only(&["primary-1", "primary-2"]).await;
    assert!(secondary.iter().all(|it| it.calls() == 0));
    let failed = load.stop().await;
    assert!(failed.len() <= TASKS && failed.iter().all(|(code, _)| *code == Code::Unavailable), "{failed:?}");
}

#[tokio::test]
async fn ch12_failover_follows_the_health_that_the_control_plane_reports() {
    let (mesh, primary, secondary) = two_priorities().await;
    let load = mesh.load(TASKS);
    load.until_only(&["primary-1", "primary-2"]).await;
    let all = || both(&primary, &secondary);
    mesh.server.set(all().unhealthy(&primary[0].text()));
    load.until_only(&["primary-2"]).await;
    mesh.server.set(all().unhealthy(&primary[0].text()).unhealthy(&primary[1].text()));
    load.until_only(&["secondary-1", "secondary-2"]).await;
    mesh.server.set(all());
    load.until_only(&["primary-1", "primary-2"]).await;
    assert_eq!(load.stop().await, []);
}

/// Two localities of one priority, with these weights; a weight of 0 leaves one out.
fn weighted(one: &Backend, two: &Backend, weights: [u32; 2]) -> EndpointsBuilder {
    let mut all = endpoints("cart");
    for ((zone, backend), weight) in [("a", one), ("b", two)].into_iter().zip(weights) {
        if weight > 0 {
            all = locality(all, zone, 0, &[backend]).weight(weight);
        }
    }
    all
}

#[tokio::test]
async fn ch12_gentle_failover_moves_calls_as_the_weights_of_localities_say() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(weighted(&one, &two, [100, 0]));
    let load = mesh.load(TASKS);
    load.until_only(&["one"]).await;
    for percent in [80, 50, 20] {
        mesh.server.set(weighted(&one, &two, [percent, 100 - percent]));
        load.until_only(&["one", "two"]).await;
        mesh.has_share("one", percent as usize).await;
    }
    mesh.server.set(weighted(&one, &two, [0, 100]));
    load.until_only(&["two"]).await;
    mesh.server.set(weighted(&one, &two, [100, 0]));
    load.until_only(&["one"]).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch12_load_based_failover_sends_what_exceeds_a_locality_to_the_next() {
    let [one, two, three] = Backend::start_all(["one", "two", "three"]).await;
    let mesh = Mesh::start(&[&one]).await;
    let load = mesh.load(TASKS);
    load.until_only(&["one"]).await;
    // The locality is full: the control plane sends the rest to a locality with two backends, then takes it back.
    let shared = locality(endpoints("cart"), "a", 0, &[&one]).weight(60);
    mesh.server.set(locality(shared, "b", 0, &[&two, &three]).weight(40));
    load.until_only(&["one", "three", "two"]).await;
    mesh.has_share("one", 60).await;
    mesh.has_share("two", 20).await;
    mesh.server.set(cart(&[&one]));
    load.until_only(&["one"]).await;
    assert_eq!(load.stop().await, []);
}
