//! What the messages of failed calls contain (CH1.18).

use super::{
    raw::{GOAWAY, RawListener},
    *,
};
use crate::{
    pb::envoy::config::{
        core::v3::HealthStatus,
        route::v3::{QueryParameterMatcher, RedirectAction, route::Action, route_action::ClusterSpecifier},
    },
    testing::resources::RouteBuilder,
};

async fn failed(mesh: &Mesh, path: &str) -> Status {
    soon(mesh.get(path)).await.unwrap().unwrap_err()
}

/// Makes calls until one has this in its message: a new configuration comes a little later.
async fn fails_with(mesh: &Mesh, path: &str, texts: &[&str]) {
    soon(async {
        loop {
            let status = failed(mesh, path).await;
            if texts.iter().all(|text| status.message().contains(text)) {
                assert_eq!(status.code(), Code::Unavailable);
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn on_header(route: RouteBuilder) -> RouteBuilder {
    route.edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.cluster_specifier = Some(ClusterSpecifier::ClusterHeader("x-cluster".into()));
    })
}

fn with_query(route: RouteBuilder) -> RouteBuilder {
    route.edit(|route| {
        let parameter = QueryParameterMatcher { name: "debug".into() };
        route.r#match.as_mut().unwrap().query_parameters.push(parameter);
    })
}

#[tokio::test]
async fn ch2_5_a_request_without_a_route_names_its_path_and_the_routes_that_are_left_out() {
    let peer = Peer::start().await;
    let name = "ch2_5_messages";
    let mesh = Mesh::start(name, &[&peer]).await;
    let to = |path: &str| route::path(path).cluster(name);
    let redirect = to("/redirect").edit(|route| route.action = Some(Action::Redirect(RedirectAction {})));
    let routes = [to("/a"), with_query(to("/b")), with_query(to("/c")), on_header(to("/d")), redirect];
    mesh.server.set(route_config("routes").virtual_host(["*"], routes));
    let no_route = "no route matches the path \"/shop.Cart/Add\" and the headers of the request (2 routes, and 3 that \
                    clients leave out: 1 for cluster_header, 2 for query_parameters)";
    let status = failed(&mesh, "/shop.Cart/Add").await;
    assert!(status.message().contains(no_route), "{status:?}");
    let status = failed(&mesh, "/redirect").await;
    let action = "for the path \"/redirect\" is redirect, which is not for clients";
    assert!(status.message().contains(action), "{status:?}");
}

#[tokio::test]
async fn ch1_14_a_cluster_without_usable_endpoints_has_their_number_by_reason() {
    let peer = Peer::start().await;
    let name = "ch1_14_messages";
    let mesh = Mesh::start(name, &[&peer]).await;
    let addresses = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"];
    let healths = |healths: &'static [HealthStatus]| {
        endpoints(name).locality("eu", "a", addresses.into_iter().take(healths.len())).edit(|assignment| {
            let endpoints = &mut assignment.endpoints[0].lb_endpoints;
            endpoints.iter_mut().zip(healths).for_each(|(it, health)| it.health_status = *health as i32);
        })
    };
    let begin = format!("cluster {name} has no usable endpoints: ");
    for (assignment, text) in [
        (endpoints(name), "the assignment has no endpoints"),
        (
            healths(&[HealthStatus::Unhealthy, HealthStatus::Draining, HealthStatus::Unhealthy]),
            "of 3 endpoints 2 are unhealthy, 1 are draining",
        ),
        (healths(&[HealthStatus::Draining]), "the only endpoint is draining"),
        (
            healths(&[HealthStatus::Timeout, HealthStatus::Timeout]),
            "all 2 endpoints are timed out in health checks",
        ),
        (
            endpoints(name)
                .locality("eu", "a", addresses)
                .edit(|it| it.endpoints[0].load_balancing_weight = None),
            "the assignment has no endpoints; 1 locality without weight, with 3 endpoints, is left out",
        ),
    ] {
        mesh.server.set(assignment);
        fails_with(&mesh, "/a", &[&format!("{begin}{text} [node")]).await;
    }
}

#[tokio::test]
async fn ch1_18_the_debug_data_of_a_goaway_are_cut_in_the_messages_of_calls() {
    let listener = RawListener::bind().await;
    let mesh = Mesh::at("ch1_18_goaway", &[listener.address], |builder| builder).await;
    let call = mesh.get("/a");
    let debug_data = "\u{1}".repeat(16_000);
    // A call that was excluded is sent again once.
    for _ in 0..2 {
        let mut raw = listener.accept().await;
        raw.request().await;
        raw.write(GOAWAY, 0, 0, &[&[0, 0, 0, 0, 0, 0, 0, 2], debug_data.as_bytes()].concat()).await;
    }
    let status = soon(call).await.unwrap().unwrap_err();
    let message = status.message();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(message.len() < 300 && message.ends_with("...(truncated)"), "{} bytes: {message}", message.len());
    assert!(message.starts_with(&format!("{}: the connection was closed: ", listener.address)), "{message}");
}

#[tokio::test]
async fn ch1_18_a_call_that_ends_at_its_deadline_names_what_it_waited_for() {
    let mut peer = Peer::start().await;
    let name = "ch1_18_deadline";
    let mesh = Mesh::start(name, &[&peer]).await;
    // Otherwise it might still be connecting at the deadline.
    mesh.channel.wait_ready(Duration::from_secs(20)).await.unwrap();
    let late = mesh.with_timeout("/late", "500m");
    let held = peer.request().await;
    let status = soon(late).await.unwrap().unwrap_err();
    let text = format!("deadline exceeded: cluster {name}, {}: no response", peer.address);
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, &*text));
    drop(held);
    // A listener that accepts and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = "ch1_18_silent";
    let mesh = Mesh::at(name, &[silent.local_addr().unwrap()], |builder| builder).await;
    mesh.channel.connect();
    until("the configuration is there", || mesh.channel.shared.calls.published.load().number() > 1).await;
    let status = soon(mesh.with_timeout("/late", "300m")).await.unwrap().unwrap_err();
    let text = format!("deadline exceeded: cluster {name} is connecting");
    assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, &*text));
}

#[tokio::test]
async fn e3_what_is_left_out_of_an_assignment_is_in_the_status_beside_the_usable_endpoints() {
    let mut peer = Peer::start().await;
    let name = "e3_left_out";
    let mesh = Mesh::start(name, &[&peer]).await;
    let both = endpoints(name).locality("eu", "a", [peer.address.to_string().as_str()]);
    let both = both.locality("eu", "b", ["10.0.0.1:1", "10.0.0.2:1"]);
    mesh.server.set(both.edit(|assignment| assignment.endpoints[1].load_balancing_weight = None));
    // A channel is idle before its first call.
    let call = mesh.get("/a");
    peer.request().await.respond();
    soon(call).await.unwrap().unwrap();
    let part = "cluster e3_left_out: left out: endpoints[1]: no load_balancing_weight (endpoints: 2)";
    soon(async { while mesh.channel.status().await.not_executed != [part.into()] {} }).await;
    let shown = mesh.channel.status().await.to_string();
    assert!(shown.ends_with(&format!("\n- {part}")), "{shown}");
}
