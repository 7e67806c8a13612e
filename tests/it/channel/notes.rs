//! What the messages of failed calls say about a stale configuration.

use tonic::Code;
use xdskit::{channel::WaitForReady, control_plane::type_url, pb::envoy::config::cluster::v3::cluster};

use super::{filters, *};

impl Mesh {
    /// The message of a call that fails, once it is this one.
    async fn fails(&self, mut is_expected: impl FnMut(&str) -> bool) {
        self.until(|seen| {
            seen.is_err_and(|error| error.code() == Code::Unavailable && is_expected(error.message()))
        })
        .await;
    }
}

#[tokio::test]
async fn ch1_9_rejected_updates_are_notes_in_the_messages_of_failed_calls() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.set(filters::shop(|filters| filters.clear()));
    mesh.server.set(route_config("routes").edit(|routes| {
        let host = xdskit::pb::envoy::config::route::v3::VirtualHost::default();
        routes.virtual_hosts = vec![host];
    }));
    let unsupported = cluster::DiscoveryType::Static.into();
    let discovery = Some(cluster::ClusterDiscoveryType::Type(unsupported));
    mesh.server.set(cluster("cart").edit(|it| it.cluster_discovery_type = discovery));
    mesh.server.set(cart(&[&one]).priority(3));
    for rejected in
        [type_url::LISTENER, type_url::ROUTE_CONFIGURATION, type_url::CLUSTER, type_url::ENDPOINTS]
    {
        mesh.server.expect_nack(rejected).await.unwrap();
    }
    assert_eq!(mesh.shares(20).await, BTreeMap::from([("one".to_owned(), 20)]), "calls go on");
    let address = one.crash();
    let stale = [
        "Listener \"shop\"",
        "RouteConfiguration \"routes\"",
        "Cluster \"cart\"",
        "ClusterLoadAssignment \"cart\"",
    ];
    mesh.fails(|message| {
        message.contains(&format!("{address}: ")) && stale.iter().all(|it| message.contains(it))
    })
    .await;
    let mut request = Request::new("hello".into());
    request.extensions_mut().insert(WaitForReady(true));
    request.set_timeout(Duration::from_millis(50));
    let error = call(&mesh.channel, ECHO, request).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    assert!(stale.iter().all(|it| error.message().contains(it)), "{error:?}");
    mesh.server.set(listener("shop").rds("routes"));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("cart")]));
    mesh.server.set(cluster("cart"));
    mesh.server.set(endpoints("cart").locality("eu", "a", [address.to_string().as_str()]));
    mesh.fails(|message| !message.contains("stale")).await;
}

#[tokio::test]
async fn ch1_9_an_outage_of_the_control_plane_is_a_note_in_the_messages_of_failed_calls() {
    let one = Backend::start("one").await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.ready().await;
    mesh.server.stop().await;
    assert_eq!(mesh.shares(20).await, BTreeMap::from([("one".to_owned(), 20)]), "calls go on");
    one.crash();
    mesh.fails(|message| {
        message.contains("no endpoint can be reached") && message.contains("the configuration may be stale: ")
    })
    .await;
    mesh.server.restart().await;
    mesh.fails(|message| !message.contains("stale")).await;
}
