//! Calls with the cookie of a session go to one backend.

use xdskit::{
    pb::envoy::config::{
        cluster::v3::cluster::CommonLbConfig,
        core::v3::{HealthStatus, HealthStatusSet},
    },
    testing::resources::ClusterBuilder,
};

use super::*;
use crate::channel::filters::{session, shop};

/// The cluster, of which cookies may lead to endpoints that drain.
fn draining() -> ClusterBuilder {
    cluster("cart").edit(|cluster| {
        let statuses = [HealthStatus::Unknown, HealthStatus::Healthy, HealthStatus::Draining];
        let override_host_status = Some(HealthStatusSet { statuses: statuses.map(Into::into).into() });
        cluster.common_lb_config = Some(CommonLbConfig { override_host_status, ..Default::default() });
    })
}

/// A mesh that keeps sessions by the cookie `sid`.
async fn with_sessions(backends: &[&Backend]) -> Mesh {
    let mesh = Mesh::start(backends).await;
    mesh.server.set(shop(|filters| filters.insert(0, session("sid"))));
    mesh.server.set(draining());
    mesh
}

/// The backend of a call with a cookie, and the cookie that its response sets.
async fn reached(mesh: &Mesh, cookie: Option<&str>) -> Result<(String, Option<String>), Status> {
    let mut request = Request::new("hello".into());
    if let Some(cookie) = cookie {
        request.metadata_mut().insert("cookie", cookie.parse().unwrap());
    }
    let response = call(&mesh.channel, ECHO, request).await?;
    let set = response.metadata().get("set-cookie");
    let pair = set.map(|it| it.to_str().unwrap().split_once("; ").unwrap().0.to_owned());
    Ok((backend_of(&response), pair))
}

/// The cookie of a session on a backend.
async fn cookie_of(mesh: &Mesh, name: &str) -> String {
    loop {
        let (reached, cookie) = reached(mesh, None).await.unwrap();
        if reached == name {
            return cookie.expect("the first call sets it");
        }
    }
}

#[tokio::test]
async fn ch12_gamma_affinity_the_cookie_of_the_first_call_leads_the_next_ones_to_its_backend() {
    let backends = Backend::start_all(["one", "two", "three"]).await;
    let mesh = with_sessions(&backends.each_ref()).await;
    let (first, cookie) = reached(&mesh, None).await.unwrap();
    let cookie = cookie.expect("the first call sets it");
    mesh.reach(&["one", "three", "two"]).await;
    for _ in 0..10 {
        assert_eq!(reached(&mesh, Some(&cookie)).await.unwrap(), (first.clone(), None));
    }
    assert_eq!(mesh.shares(30).await.len(), 3, "calls without it are spread");
}

#[tokio::test]
async fn ch12_session_drain_a_draining_backend_serves_its_sessions_until_it_stops() {
    let [one, mut two] = Backend::start_all(["one", "two"]).await;
    let mesh = with_sessions(&[&one, &two]).await;
    mesh.reach(&["one", "two"]).await;
    let cookie = cookie_of(&mesh, "two").await;
    mesh.server.set(cart(&[&one, &two]).draining(&two.text()));
    soon(async {
        let mut last = 0;
        while last < 20 {
            last = if reached(&mesh, None).await.unwrap().0 == "one" { last + 1 } else { 0 };
        }
    })
    .await;
    for _ in 0..20 {
        assert_eq!(reached(&mesh, Some(&cookie)).await.unwrap(), ("two".to_owned(), None));
        assert_eq!(reached(&mesh, None).await.unwrap().0, "one", "new sessions are not there");
    }
    assert_eq!(two.connections(), 1, "it keeps its connection");
    two.stop();
    let (next, other) = soon(async {
        loop {
            // Calls reach it until its connections are closed, and the one that finds them gone may fail.
            match reached(&mesh, Some(&cookie)).await {
                Ok((name, None)) => assert_eq!(name, "two"),
                Ok(reached) => return reached,
                Err(error) => assert_eq!(error.code(), tonic::Code::Unavailable),
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(next, "one");
    let other = other.expect("another cookie");
    assert_ne!(other, cookie);
    assert_eq!(reached(&mesh, Some(&other)).await.unwrap(), ("one".to_owned(), None));
}
