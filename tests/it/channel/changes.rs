//! Calls of several tasks while the mesh changes, with the number of calls that fail: none, or those in flight at a crash.

use tonic::Code;
use xdskit::control_plane::type_url;

use super::{
    backend::{EMPTY, HOLD},
    calls::call_owned,
    *,
};

const TASKS: usize = 4;

#[tokio::test]
async fn ch3_51_draining_under_load_fails_no_call_and_running_ones_end() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    let load = mesh.load(TASKS);
    mesh.server.set(cart(&[&one, &two]));
    load.until_only(&["one", "two"]).await;
    mesh.server.set(cart(&[&one, &two]).draining(&one.text()));
    load.until_only(&["two"]).await;
    one.release();
    assert_eq!(backend_of(&soon(held).await.unwrap().unwrap()), "one");
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch3_5_graceful_stops_in_turn_under_load_fail_no_call() {
    let [mut one, mut two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one, &two]).await;
    let load = mesh.load(TASKS);
    for _ in 0..3 {
        load.until_only(&["one", "two"]).await;
        one = one.restart_gracefully().await;
        load.until_only(&["one", "two"]).await;
        two = two.restart_gracefully().await;
    }
    load.until_only(&["one", "two"]).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch3_9_additions_and_removals_under_load_fail_no_call() {
    let [one, two, three] = Backend::start_all(["one", "two", "three"]).await;
    let mesh = Mesh::start(&[&one]).await;
    let load = mesh.load(TASKS);
    for _ in 0..3 {
        load.until_only(&["one"]).await;
        mesh.server.set(cart(&[&one, &two]));
        load.until_only(&["one", "two"]).await;
        mesh.server.set(cart(&[&two, &three]));
        load.until_only(&["three", "two"]).await;
        mesh.server.set(cart(&[&one]));
    }
    load.until_only(&["one"]).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch1_24_a_restart_of_the_control_plane_under_load_fails_no_call() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    let load = mesh.load(TASKS);
    load.until_only(&["one"]).await;
    mesh.server.stop().await;
    load.until_only(&["one"]).await;
    mesh.server.set(cart(&[&two]));
    mesh.server.restart().await;
    load.until_only(&["two"]).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch3_22_a_crash_that_the_control_plane_does_not_know_fails_calls_in_flight_alone() {
    let [one, two, three] = Backend::start_all(["one", "two", "three"]).await;
    let mesh = Mesh::start(&[&one, &two, &three]).await;
    mesh.reach(&["one", "three", "two"]).await;
    let held: Vec<_> = (0..30).map(|_| tokio::spawn(call_owned(mesh.channel.clone(), HOLD))).collect();
    one.holds(10).await;
    two.holds(10).await;
    three.holds(10).await;
    let load = mesh.load(TASKS);
    load.until_only(&["one", "three", "two"]).await;
    let address = one.crash();
    load.until_only(&["three", "two"]).await;
    let failed = load.failed();
    // A task has one call in flight at a time.
    assert!(failed.len() <= TASKS && failed.iter().all(|(code, _)| *code == Code::Unavailable), "{failed:?}");
    two.release();
    three.release();
    let mut results = Vec::new();
    for call in held {
        results.push(soon(call).await.unwrap());
    }
    let lost: Vec<_> = results.iter().filter_map(|it| it.as_ref().err()).collect();
    assert_eq!(lost.len(), 10, "{lost:?}");
    let is_lost =
        |it: &&Status| it.code() == Code::Unavailable && it.message().contains(&address.to_string());
    assert!(lost.iter().all(is_lost), "{lost:?}");
    let _one = Backend::start_at("one", address).await;
    load.until_only(&["one", "three", "two"]).await;
    assert_eq!(load.stop().await, failed, "its return fails no call");
}

#[tokio::test]
async fn ch3_55_priorities_that_are_unhealthy_and_then_crash_are_left_in_order() {
    let [one, two, three] = Backend::start_all(["one", "two", "three"]).await;
    let mesh = Mesh::start(&[&one]).await;
    let all = || locality(locality(cart(&[&one]), "b", 1, &[&two]), "c", 2, &[&three]);
    mesh.server.set(all());
    let load = mesh.load(TASKS);
    load.until_only(&["one"]).await;
    mesh.server.set(all().unhealthy(&one.text()));
    load.until_only(&["two"]).await;
    assert_eq!(load.failed(), []);
    let address = two.crash();
    load.until_only(&["three"]).await;
    let failed = load.failed();
    assert!(failed.len() <= TASKS && failed.iter().all(|(code, _)| *code == Code::Unavailable), "{failed:?}");
    let _two = Backend::start_at("two", address).await;
    load.until_only(&["two"]).await;
    mesh.server.set(locality(locality(cart(&[&one]), "b", 1, &[]), "c", 2, &[&three]));
    load.until_only(&["one"]).await;
    assert_eq!(load.stop().await, failed);
}

#[tokio::test]
async fn ch1_13_a_cluster_that_never_existed_fails_its_calls_and_no_others() {
    let one = Backend::start("one").await;
    let mesh = {
        let mesh = Mesh::start(&[&one]).await;
        Mesh::with(mesh.server, |client| client.resource_timeout(Duration::from_millis(100)))
    };
    let routes = [route::path(EMPTY).cluster("nowhere"), route::prefix("").cluster("cart")];
    mesh.server.set(route_config("routes").virtual_host(["*"], routes));
    let load = mesh.load(TASKS);
    for _ in 0..10 {
        let error = mesh.call(EMPTY, "").await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.message().contains("nowhere"), "{error:?}");
        load.until_only(&["one"]).await;
    }
    mesh.server.set(cluster("nowhere"));
    mesh.server.set(locality(endpoints("nowhere"), "a", 0, &[&one]));
    soon(until_ok(|| mesh.call(EMPTY, ""))).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch1_8_a_deleted_listener_fails_later_calls_alone_and_its_return_ends_that() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    let load = mesh.load(TASKS);
    load.until_only(&["one"]).await;
    assert_eq!(load.failed(), []);
    mesh.server.remove(type_url::LISTENER, "shop");
    load.until_failed(100).await;
    mesh.server.set(listener("shop").rds("routes"));
    load.until_only(&["one"]).await;
    let failed = load.stop().await;
    let names_it = |(code, message): &(Code, String)| {
        *code == Code::Unavailable && message.contains("Listener \"shop\"")
    };
    assert!(failed.iter().all(names_it), "{failed:?}");
    one.release();
    soon(held).await.unwrap().unwrap();
}
