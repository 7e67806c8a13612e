//! Several management servers: authorities with servers of their own (A47), and fallback from one server to the next
//! (A71), on real connections to embedded control planes.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::{future::Future, time::Duration};

use tokio::time::timeout;
use xdskit::{
    Client, Observed, Resource,
    config::{AuthorityBuilder, Bootstrap, Node, Server},
    resource::{Cluster, ClusterLoadAssignment},
    testing::{
        TestControlPlane,
        resources::{cluster, endpoints, listener, route, route_config},
    },
};

#[apply(servers)]
async fn a_client_starts_on_the_fallback_and_returns_without_a_gap(transport: Transport) {
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    primary.stop().await;
    fallback.set(endpoints("shop").locality("eu", "a", ["10.0.0.2:80"]));
    let client = client(transport, Bootstrap::builder().server(server(&primary)).server(server(&fallback)));
    let mut shop = client.watch::<ClusterLoadAssignment>("shop");
    assert_eq!(addresses(&soon(shop.ready()).await.unwrap()), ["10.0.0.2:80"]);
    let mut late = client.watch::<ClusterLoadAssignment>("late");
    soon(fallback.expect_names(ClusterLoadAssignment::TYPE_URL, &["late", "shop"])).await.unwrap();

    primary.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
    primary.set(endpoints("late").locality("eu", "a", ["10.0.0.3:80"]));
    primary.restart().await;
    let seen = soon(shop.next()).await.unwrap();
    assert_eq!((addresses(seen.resource().unwrap()), seen.error()), (vec!["10.0.0.1:80".to_owned()], None));
    soon(fallback.expect_clients(0)).await.unwrap();
    assert_eq!(
        addresses(&soon(late.ready()).await.unwrap()),
        ["10.0.0.3:80"],
        "begun during the fallback, served after it"
    );
    primary.set(endpoints("late").locality("eu", "a", ["10.0.0.4:80"]));
    let seen =
        soon(late.wait_for(|seen| seen.resource().is_some_and(|all| addresses(all) == ["10.0.0.4:80"])));
    assert!(seen.await.unwrap().error().is_none());
}

#[apply(servers)]
async fn with_everything_cached_the_last_known_good_stays_and_no_other_server_is_contacted(
    transport: Transport,
) {
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    primary.set(endpoints("shop").locality("eu", "a", ["10.0.0.1:80"]));
    let client = client(transport, Bootstrap::builder().server(server(&primary)).server(server(&fallback)));
    let mut shop = client.watch::<ClusterLoadAssignment>("shop");
    soon(shop.ready()).await.unwrap();
    primary.stop().await;
    let seen = soon(shop.next()).await.unwrap();
    assert!(seen.is_present() && seen.error().unwrap().is_transient(), "{seen:?}");
    assert_eq!(fallback.requests().len(), 0);
}

#[apply(servers)]
async fn the_error_of_all_servers_has_the_reason_of_each(transport: Transport) {
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    primary.stop().await;
    fallback.stop().await;
    let client = client(transport, Bootstrap::builder().server(server(&primary)).server(server(&fallback)));
    let error = soon(client.watch::<Cluster>("shop").ready()).await.unwrap_err().to_string();
    for server in [&primary, &fallback] {
        assert!(error.contains(&format!("cannot connect to xDS server {}", server.uri())), "{error}");
    }
    assert!(error.contains("Cluster \"shop\"") && error.contains("me"), "{error}");
}

#[apply(servers)]
async fn a_tree_is_walked_on_the_fallback_and_on_the_primary_again(transport: Transport) {
    let (primary, fallback) = (TestControlPlane::start().await, TestControlPlane::start().await);
    for (server, address) in [(&primary, "10.0.0.1:80"), (&fallback, "10.0.0.2:80")] {
        server.set(listener("shop").rds("shop-routes"));
        server.set(route_config("shop-routes").virtual_host(["shop"], [route::prefix("/").cluster("shop")]));
        server.set(cluster("shop"));
        server.set(endpoints("shop").locality("eu", "a", [address]));
    }
    primary.stop().await;
    let client = client(transport, Bootstrap::builder().server(server(&primary)).server(server(&fallback)));
    let mut mesh = client.resolve("xds:///shop");
    for (address, after) in [("10.0.0.2:80", true), ("10.0.0.1:80", false)] {
        loop {
            let tree = soon(mesh.next()).await.unwrap().expect("no gap");
            let shop = tree.cluster("shop").expect("the routes lead to it");
            let found: Vec<_> = shop.endpoints().map(|endpoint| endpoint.address().to_string()).collect();
            if found == [address] {
                break;
            }
            assert!(!after || found.is_empty(), "{found:?}");
        }
        if after {
            primary.restart().await;
        }
    }
}

#[apply(servers)]
async fn a47_one_authoritys_failure_is_seen_by_its_watchers_alone(transport: Transport) {
    let (here, there) = (TestControlPlane::start().await, TestControlPlane::start().await);
    let (shop, taxes, cart) = (
        "xdstp://here/envoy.config.cluster.v3.Cluster/shop",
        "xdstp://there/envoy.config.cluster.v3.Cluster/taxes",
        "cart",
    );
    for name in [shop, cart] {
        here.set(cluster(name).eds_service("e"));
    }
    there.set(cluster(taxes).eds_service("e"));
    let client = client(
        transport,
        Bootstrap::builder()
            .server(server(&here))
            .authority("here", AuthorityBuilder::default().server(server(&here)))
            .authority("there", AuthorityBuilder::default().server(server(&there))),
    );
    let mut watches = [shop, taxes, cart].map(|name| client.watch::<Cluster>(name));
    for watch in &mut watches {
        soon(watch.ready()).await.unwrap();
    }
    there.stop().await;
    let [shop, taxes, cart] = &mut watches;
    let seen = soon(taxes.next()).await.unwrap();
    assert!(seen.is_present() && seen.error().unwrap().is_transient(), "{seen:?}");
    for watch in [shop, cart] {
        assert!(matches!(&*watch.latest(), Observed::Present { warning: None, .. }));
    }
    let mut nobodys = client.watch::<Cluster>("xdstp://nowhere/envoy.config.cluster.v3.Cluster/x");
    let error = soon(nobodys.ready()).await.unwrap_err().to_string();
    assert!(error.contains("authority \"nowhere\" is not found in the bootstrap"), "{error}");
}

fn server(control_plane: &TestControlPlane) -> xdskit::config::ServerBuilder {
    Server::new(control_plane.uri()).insecure()
}

fn client(transport: Transport, bootstrap: xdskit::config::BootstrapBuilder) -> Client {
    transport.builder_from(bootstrap.node(Node::new("me")).build().unwrap()).build().unwrap()
}

fn addresses(assignment: &ClusterLoadAssignment) -> Vec<String> {
    assignment.endpoints().map(|endpoint| endpoint.address().to_string()).collect()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}
