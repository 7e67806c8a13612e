//! Calls with the same hash go to the same backend.

use tonic::Code;
use xdskit::pb::envoy::config::{
    cluster::v3::cluster::LbPolicy,
    route::v3::{
        route::Action,
        route_action::{
            HashPolicy,
            hash_policy::{FilterState, Header, PolicySpecifier},
        },
    },
};

use super::*;

fn header(name: &str) -> PolicySpecifier {
    PolicySpecifier::Header(Header { header_name: name.into(), regex_rewrite: None })
}

/// A mesh whose cluster has a ring, and whose route hashes these.
async fn with_ring(backends: &[&Backend], hashed: impl IntoIterator<Item = PolicySpecifier>) -> Mesh {
    let mesh = Mesh::start(backends).await;
    mesh.server.set(cluster("cart").edit(|cluster| cluster.lb_policy = LbPolicy::RingHash.into()));
    let policies: Vec<_> =
        hashed.into_iter().map(|it| HashPolicy { policy_specifier: Some(it), terminal: false }).collect();
    let route = route::prefix("").cluster("cart").edit(|route| {
        let Some(Action::Route(action)) = &mut route.action else { panic!("it forwards") };
        action.hash_policy = policies;
    });
    mesh.server.set(route_config("routes").virtual_host(["*"], [route]));
    mesh
}

/// The backend of a call with these headers.
async fn reached(mesh: &Mesh, headers: &[(&'static str, &str)]) -> Result<String, Status> {
    let mut request = Request::new("hello".into());
    for (name, value) in headers {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    call(&mesh.channel, ECHO, request).await.map(|it| backend_of(&it))
}

fn connections(backends: &[Backend]) -> usize {
    backends.iter().map(Backend::connections).sum()
}

#[tokio::test]
async fn ch12_affinity_test_sends_one_value_of_a_header_to_one_backend_over_one_connection() {
    let backends = Backend::start_all(["one", "two", "three"]).await;
    let mesh = with_ring(&backends.each_ref(), [header("x-user")]).await;
    let first = reached(&mesh, &[("x-user", "ada")]).await.unwrap();
    for other in 0..30 {
        let headers = [("x-user", "ada"), ("x-other", &*other.to_string())];
        assert_eq!(reached(&mesh, &headers).await.unwrap(), first);
    }
    assert_eq!(connections(&backends), 1, "the other two are not connected");
    let mut names = BTreeSet::new();
    for user in 0..60 {
        names.insert(reached(&mesh, &[("x-user", &*user.to_string())]).await.unwrap());
    }
    assert_eq!((names.len(), connections(&backends)), (3, 3), "other values are spread");
}

#[tokio::test]
async fn ch12_affinity_test_sends_the_values_of_two_headers_to_one_backend() {
    let backends = Backend::start_all(["one", "two", "three"]).await;
    let mesh = with_ring(&backends.each_ref(), [header("x-user"), header("x-session")]).await;
    let mut names = BTreeSet::new();
    for session in (0..30).map(|it| it.to_string()) {
        let headers = [("x-user", "ada"), ("x-session", &*session)];
        let name = reached(&mesh, &headers).await.unwrap();
        assert_eq!(reached(&mesh, &headers).await.unwrap(), name);
        names.insert(name);
    }
    assert_eq!(names.len(), 3, "the second header counts");
}

#[tokio::test]
async fn ch12_affinity_test_moves_to_one_other_backend_while_the_server_is_down() {
    let mut backends = Vec::from(Backend::start_all(["one", "two", "three"]).await);
    let mesh = with_ring(&backends.iter().collect::<Vec<_>>(), [header("x-user")]).await;
    let user = [("x-user", "ada")];
    let first = reached(&mesh, &user).await.unwrap();
    let place = ["one", "two", "three"].iter().position(|name| *name == first).unwrap();
    let address = backends.remove(place).crash();
    // The calls that find the connection gone may fail; those that wait for the next one do not.
    let mut second = None;
    soon(async {
        while second.is_none() {
            match reached(&mesh, &user).await {
                Ok(name) => second = Some(name).filter(|name| *name != first),
                Err(error) => assert_eq!(error.code(), Code::Unavailable),
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..30 {
        assert_eq!(reached(&mesh, &user).await.ok(), second);
    }
    let _first = Backend::start_at(&first, address).await;
    soon(async {
        while reached(&mesh, &user).await.unwrap() != first {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn ch2_17_calls_that_are_hashed_by_their_channel_go_to_one_backend() {
    let backends = Backend::start_all(["one", "two", "three"]).await;
    let channel_id = PolicySpecifier::FilterState(FilterState { key: "io.grpc.channel_id".into() });
    let mesh = with_ring(&backends.each_ref(), [channel_id]).await;
    assert_eq!(mesh.shares(30).await.into_values().collect::<Vec<_>>(), [30]);
    // Other channels have other ids: of 40, not all go there.
    let mut names = BTreeSet::new();
    for _ in 0..40 {
        let other = mesh.client.channel("xds:///shop").build().unwrap();
        let response = call(&other, ECHO, Request::new("hello".into())).await.unwrap();
        names.insert(backend_of(&response));
    }
    assert!(names.len() > 1, "{names:?}");
}

#[tokio::test]
async fn ch2_18_calls_without_a_hash_are_spread() {
    let backends = Backend::start_all(["one", "two", "three"]).await;
    let mesh = with_ring(&backends.each_ref(), [header("x-user")]).await;
    assert_eq!(mesh.shares(60).await.len(), 3);
}

#[tokio::test]
async fn ch3_38_a_channel_that_waits_to_be_ready_connects_one_endpoint() {
    let backends = Backend::start_all(["one", "two", "three"]).await;
    let mesh = with_ring(&backends.each_ref(), [header("x-user")]).await;
    mesh.ready().await;
    assert_eq!(connections(&backends), 1);
}
