//! Resources of the builders for tests have their effect on calls.

use tonic::Code;
use xdskit::testing::resources::{
    RouteBuilder, http_filter, lb_policy, outlier_detection, retry_on, upstream_tls,
};

use super::{
    backend::{FIFTH, HOLD},
    security::{Pki, SERVER},
    *,
};

fn to_cart() -> RouteBuilder {
    route::prefix("").cluster("cart")
}

fn routes(route: RouteBuilder) -> RouteConfigBuilder {
    route_config("routes").virtual_host(["*"], [route])
}

async fn code(mesh: &Mesh, method: &'static str) -> Code {
    mesh.call(method, "hello").await.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn upstream_tls_verifies_the_name_and_sends_the_certificate_of_the_client() {
    let pki = Pki::new();
    let one = Backend::start_secured("one", pki.mutual()).await;
    let mesh = pki.mesh(None, &[&one]).await;
    let verified = || upstream_tls("roots").san("other.example").san(SERVER);
    mesh.server.set(cluster("cart").tls(verified().client_certificates("identity")));
    mesh.ready().await;
    assert_eq!(code(&mesh, ECHO).await, Code::Ok);
    mesh.apply(cluster("cart").tls(verified())).await;
    assert_eq!(code(&mesh, ECHO).await, Code::Unavailable, "without the client's certificate");
    let of_other = upstream_tls("roots").san("other.example").client_certificates("identity");
    mesh.apply(cluster("cart").tls(of_other)).await;
    // Until the first attempt by the update has failed, calls fail with the reason of the last one.
    mesh.until(|seen| seen.unwrap_err().message().contains("other.example")).await;
}

#[tokio::test]
async fn ring_hash_sends_equal_headers_of_hash_header_to_one_endpoint() {
    let backends = Backend::start_all(["one", "three", "two"]).await;
    let hashed = cluster("cart").lb_policy(lb_policy::ring_hash(128, 512));
    let mesh = Mesh::start_with(hashed, &backends.each_ref()).await;
    mesh.server.set(routes(to_cart().hash_header("x-user")));
    let mut by_user = BTreeMap::new();
    for user in ["ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal"].repeat(5) {
        let mut request = Request::new(Bytes::new());
        request.metadata_mut().insert("x-user", user.parse().unwrap());
        let answered = backend_of(&call(&mesh.channel, ECHO, request).await.unwrap());
        by_user.entry(user).or_insert_with(BTreeSet::new).insert(answered);
    }
    assert!(by_user.values().all(|backends| backends.len() == 1), "{by_user:?}");
    assert!(by_user.values().collect::<BTreeSet<_>>().len() > 1, "{by_user:?}");
}

#[tokio::test]
async fn wrr_locality_divides_calls_by_the_weights_of_localities() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let policy = lb_policy::wrr_locality(lb_policy::round_robin());
    let mesh = Mesh::start_with(cluster("cart").lb_policy(policy), &[&one]).await;
    let weighted = locality(cart(&[&one]).weight(3), "b", 0, &[&two]).weight(1);
    mesh.server.set(weighted);
    mesh.reach(&["one", "two"]).await;
    mesh.has_share("one", 75).await;
}

#[tokio::test]
async fn pick_first_uses_one_endpoint_and_max_requests_limits_the_calls_in_flight() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one, &two]).await;
    mesh.ready().await;
    // The name of a cluster that no other test has: calls in flight are counted for the whole process.
    mesh.server.set(cluster("limited").lb_policy(lb_policy::pick_first()).max_requests(1));
    mesh.server.set(locality(endpoints("limited"), "a", 0, &[&one, &two]));
    mesh.apply(routes(route::prefix("").cluster("limited"))).await;
    assert_eq!(mesh.shares(20).await.keys().collect::<Vec<_>>(), ["one"]);
    let channel = mesh.channel.clone();
    let held = tokio::spawn(async move { call(&channel, HOLD, Request::new("held".into())).await });
    one.holds(1).await;
    assert_eq!(code(&mesh, ECHO).await, Code::Unavailable);
    one.release();
    soon(held).await.unwrap().unwrap();
    assert_eq!(code(&mesh, ECHO).await, Code::Ok);
}

#[tokio::test]
async fn outlier_detection_ejects_the_endpoint_that_fails() {
    let backends = Backend::start_all(["one", "three", "two"]).await;
    let detection = outlier_detection()
        .interval(Duration::from_millis(50))
        .base_ejection_time(Duration::from_secs(60))
        .max_ejection_percent(50)
        .failure_percentage(50, 3, 1);
    let mesh = Mesh::start_with(cluster("cart").outlier_detection(detection), &backends.each_ref()).await;
    mesh.reach(&["one", "three", "two"]).await;
    backends[0].set_sick(true);
    let mut in_a_row = 0;
    mesh.until(|seen| {
        in_a_row = if seen.is_ok() { in_a_row + 1 } else { 0 };
        in_a_row == 20
    })
    .await;
    assert_eq!(mesh.shares(20).await.keys().collect::<Vec<_>>(), ["three", "two"]);
}

#[tokio::test]
async fn retries_of_a_route_are_made_as_often_as_it_permits() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    assert_eq!(code(&mesh, FIFTH).await, Code::Unavailable);
    let delay = Duration::from_millis(1);
    for (retries, expected) in [(3, Code::Unavailable), (4, Code::Ok)] {
        let policy = retry_on(["cancelled", "unavailable"]).num_retries(retries).back_off(delay, delay);
        mesh.apply(routes(to_cart().retry(policy))).await;
        assert_eq!(code(&mesh, FIFTH).await, expected);
    }
    mesh.apply(routes(to_cart().retry(retry_on(["cancelled"]).num_retries(4)))).await;
    assert_eq!(code(&mesh, FIFTH).await, Code::Unavailable);
}

#[tokio::test]
async fn timeouts_of_route_and_listener_end_calls() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    let limit = Duration::from_millis(50);
    mesh.apply(routes(to_cart().timeout(limit))).await;
    assert_eq!(code(&mesh, HOLD).await, Code::DeadlineExceeded);
    mesh.apply(listener("shop").max_stream_duration(limit).rds("routes")).await;
    mesh.apply(routes(to_cart())).await;
    assert_eq!(code(&mesh, HOLD).await, Code::DeadlineExceeded);
}

#[tokio::test]
async fn faults_of_the_listener_are_injected_except_on_routes_that_override_them() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    let all = 1_000_000;
    let abort = http_filter::fault().abort(7, all).max_active_faults(10);
    mesh.apply(listener("shop").http_filter("faults", abort).rds("routes")).await;
    assert_eq!(code(&mesh, ECHO).await, Code::PermissionDenied);
    mesh.apply(routes(to_cart().override_filter("faults", http_filter::fault()))).await;
    assert_eq!(code(&mesh, ECHO).await, Code::Ok);
    let delay = http_filter::fault().delay(Duration::from_secs(3600), all);
    mesh.apply(routes(to_cart().timeout(Duration::from_millis(50)).override_filter("faults", delay))).await;
    assert_eq!(code(&mesh, ECHO).await, Code::DeadlineExceeded);
}

#[tokio::test]
async fn header_mutations_change_requests_and_responses() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    let set = |value| http_filter::header_mutation().set_response_header("x-backend", value);
    mesh.apply(listener("shop").rds("routes").http_filter("tags", set("listener"))).await;
    assert_eq!(backend_of(&mesh.call(ECHO, "hello").await.unwrap()), "listener");
    mesh.apply(routes(to_cart().override_filter("tags", set("route")))).await;
    assert_eq!(backend_of(&mesh.call(ECHO, "hello").await.unwrap()), "route");
}

#[tokio::test]
async fn cookie_sessions_lead_to_one_endpoint() {
    let backends = Backend::start_all(["one", "three", "two"]).await;
    let mesh = Mesh::start(&backends.each_ref()).await;
    mesh.reach(&["one", "three", "two"]).await;
    mesh.apply(
        listener("shop").rds("routes").http_filter("sessions", http_filter::cookie_session("session")),
    )
    .await;
    let first = mesh.call(ECHO, "hello").await.unwrap();
    let cookie = first.metadata().get("set-cookie").unwrap().to_str().unwrap();
    let cookie = cookie.split(';').next().unwrap();
    for _ in 0..10 {
        let mut request = Request::new(Bytes::new());
        request.metadata_mut().insert("cookie", cookie.parse().unwrap());
        let again = call(&mesh.channel, ECHO, request).await.unwrap();
        assert_eq!(backend_of(&again), backend_of(&first));
    }
}

#[tokio::test]
async fn removed_resources_are_named_by_their_types() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    assert!(!mesh.server.remove_resource::<xdskit::resource::Listener>("cart"), "there is no such listener");
    assert!(mesh.server.remove_resource::<xdskit::resource::Listener>("shop"));
    mesh.until(|seen| seen.is_err_and(|error| error.message().contains("Listener \"shop\""))).await;
}
