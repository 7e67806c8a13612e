//! Routes and their clusters.

use tonic::Code;
use xdskit::control_plane::type_url;

use super::{
    backend::{FAIL, HOLD},
    calls::call_owned,
    *,
};

/// Two clusters, `cart` and `pay`, with one backend each.
async fn two_clusters(routes: RouteConfigBuilder) -> (Mesh, Backend, Backend) {
    let (one, two) = (Backend::start("one").await, Backend::start("two").await);
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(cluster("pay"));
    mesh.server.set(endpoints("pay").locality("eu", "a", [two.text().as_str()]));
    mesh.server.set(routes);
    (mesh, one, two)
}

#[tokio::test]
async fn ch2_6_traffic_splitting_follows_the_weights() {
    let split = route::prefix("").weighted([("cart", 20), ("pay", 80)]);
    let (mesh, _one, _two) = two_clusters(route_config("routes").virtual_host(["*"], [split])).await;
    mesh.until(|name| name.unwrap() == "two").await;
    mesh.has_share("one", 20).await;
}

#[tokio::test]
async fn ch2_2_the_virtual_host_is_that_of_the_target_and_of_no_header() {
    let hosts = route_config("routes")
        .virtual_host(["shop"], [route::prefix("").cluster("cart")])
        .virtual_host(["other.example"], [route::prefix("").cluster("pay")]);
    let (mesh, _one, _two) = two_clusters(hosts).await;
    mesh.until(|name| name.is_ok()).await;
    let origin = "http://other.example".parse().unwrap();
    let mut grpc = Grpc::with_origin(mesh.channel.clone(), origin);
    soon(grpc.ready()).await.unwrap();
    let mut request = Request::new("hello".into());
    request.metadata_mut().insert("host", "other.example".parse().unwrap());
    let response = soon(grpc.unary(request, PathAndQuery::from_static(ECHO), Raw)).await.unwrap();
    assert_eq!(backend_of(&response), "one", "the authority of a call selects no virtual host");
    let target = xdskit::Target::new("xds:///shop").with_authority("other.example");
    let other = mesh.client.channel(target).build().unwrap();
    let response = call(&other, ECHO, Request::new("hello".into())).await.unwrap();
    assert_eq!(backend_of(&response), "two", "that of the target does");
}

#[tokio::test]
async fn ch2_3_path_and_header_matching_choose_the_cluster() {
    let routes = [
        route::path(FAIL).cluster("cart"),
        route::prefix("/test.Echo/").header("x-user", "ada").cluster("pay"),
        route::prefix("/test.Echo/").cluster("cart"),
    ];
    let (mesh, _one, _two) = two_clusters(route_config("routes").virtual_host(["*"], routes)).await;
    mesh.until(|name| name.is_ok()).await;
    let with_user = |user: &'static str| {
        let mut request = Request::new("hello".into());
        request.metadata_mut().insert("x-user", user.parse().unwrap());
        call(&mesh.channel, ECHO, request)
    };
    assert_eq!(backend_of(&with_user("ada").await.unwrap()), "two");
    assert_eq!(backend_of(&with_user("bob").await.unwrap()), "one");
    assert_eq!(backend_of(&mesh.call(ECHO, "hello").await.unwrap()), "one");
}

#[tokio::test]
async fn ch2_5_a_request_without_a_route_fails_with_the_names_of_target_and_routes() {
    let (mesh, one, _two) =
        two_clusters(route_config("routes").virtual_host(["*"], [route::path(HOLD).cluster("cart")])).await;
    let error = mesh.call(ECHO, "hello").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    for part in ["xds:///shop", "\"routes\"", "no route", "[node id: "] {
        assert!(error.message().contains(part), "{error:?}");
    }
    assert_eq!(one.calls(), 0);
}

#[tokio::test]
async fn ch2_5_a_route_that_does_not_forward_fails_the_call() {
    let routes = [route::prefix("").non_forwarding().named("inbound")];
    let (mesh, _one, _two) = two_clusters(route_config("routes").virtual_host(["*"], routes)).await;
    let error = mesh.call(ECHO, "hello").await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let expected = "the action of route \"inbound\" for the path \"/test.Echo/Echo\" is non_forwarding_action, which is not for clients";
    assert!(error.message().contains(expected), "{error:?}");
}

#[tokio::test]
async fn ch1_8_without_a_listener_calls_fail_with_the_reason_and_later_succeed() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.remove(type_url::LISTENER, "shop");
    mesh.until(|seen| {
        seen.is_err_and(|error| {
            error.code() == Code::Unavailable && error.message().contains("Listener \"shop\"")
        })
    })
    .await;
    assert_eq!(mesh.channel.state(), ChannelState::TransientFailure);
    mesh.server.set(listener("shop").rds("routes"));
    mesh.until(|seen| seen.is_ok()).await;
}

#[tokio::test]
async fn ch1_22_a_running_call_keeps_going_when_its_route_is_gone() {
    let split = route::prefix("").cluster("cart");
    let (mesh, one, _two) = two_clusters(route_config("routes").virtual_host(["*"], [split])).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("pay")]));
    mesh.until(|name| name.unwrap() == "two").await;
    one.release();
    assert_eq!(backend_of(&soon(held).await.unwrap().unwrap()), "one");
}

#[tokio::test]
async fn ch1_19_new_routes_and_their_clusters_are_used_together() {
    let to = |name: &str| route_config("routes").virtual_host(["*"], [route::prefix("").cluster(name)]);
    let (mesh, _one, _two) = two_clusters(to("cart")).await;
    mesh.ready().await;
    for turn in 0..20 {
        mesh.server.set(to(if turn % 2 == 0 { "pay" } else { "cart" }));
        // A call that fails ends the test: an update alone fails none.
        mesh.until(|name| name.unwrap() == if turn % 2 == 0 { "two" } else { "one" }).await;
    }
}
