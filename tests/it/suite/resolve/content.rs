//! Results of the resources alone, from any kind of source.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use xdskit::{
    RouteQuery, Snapshot, Target,
    control_plane::type_url,
    error::{Blame, Code},
    pb::envoy::config::{
        core::v3::{Address, SocketAddress, address, socket_address::PortSpecifier},
        listener::v3::{Filter, FilterChain, filter},
    },
    resolve::ClusterView,
    resource::ClusterKind,
    testing::resources::{cluster, endpoints, listener, route, route_config},
};

use super::mesh::*;
use crate::common::soon;

#[apply(every_transport)]
async fn a_resolution_shows_the_tree_and_its_changes(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    assert!(resolution.latest().is_none());
    let snapshot = soon(resolution.next()).await.unwrap().unwrap();
    assert_eq!(text(&Ok(snapshot.clone())), "cart: 10.0.0.1:80");
    let names = (&*snapshot.listener().name, &*snapshot.route_config().name, &*snapshot.virtual_host().name);
    assert_eq!(names, ("shop", "shop", "*"));
    let route = snapshot.route(&RouteQuery::new("/add", 0)).unwrap();
    assert_eq!(route.pick_cluster().unwrap().name(), "cart");

    server.set(endpoints("cart").locality("eu", "a", ["10.0.0.1:80", "10.0.0.2:80"]).draining("10.0.0.1:80"));
    let newer = soon(StreamExt::next(&mut resolution)).await.unwrap().unwrap();
    assert_eq!(text(&Ok(newer.clone())), "cart: 10.0.0.2:80");
    assert_eq!(newer.cluster("cart").unwrap().endpoints().count(), 2);
    assert!(Arc::ptr_eq(snapshot.listener(), newer.listener()), "what is the same is shared");
    assert_eq!(text(&Ok(snapshot)), "cart: 10.0.0.1:80", "a snapshot does not change");
    assert!(resolution.next().now_or_never().is_none(), "nothing else has happened");
}

#[apply(every_transport)]
async fn a75_1_an_aggregate_uses_its_leaves_in_order(transport: Transport) {
    let server = shop().await;
    server.update(|tx| {
        tx.set(shop_routes(&["all"]));
        tx.set(cluster("all").aggregate(["near", "far"]));
        tx.set(cluster("far").aggregate(["cart", "near"]));
        tx.set(cluster("near"));
        tx.set(
            endpoints("near")
                .locality("eu", "a", ["10.0.0.9:80"])
                .locality("eu", "b", ["10.0.0.8:80"])
                .priority(1),
        );
    });
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    let both = "all: 10.0.0.9:80 10.0.0.8:80 10.0.0.1:80, cart: 10.0.0.1:80, near: 10.0.0.9:80 10.0.0.8:80";
    let snapshot = soon(resolution.ready()).await;
    let text_without_far = |seen: &_| text(seen).replace("far: 10.0.0.1:80 10.0.0.9:80 10.0.0.8:80, ", "");
    assert_eq!(text_without_far(&snapshot), both);
    let snapshot = snapshot.unwrap();
    let all = snapshot.cluster("all").unwrap();
    assert!(matches!(all.kind(), Some(ClusterKind::Aggregate { .. })), "{all:?}");
    assert_eq!(all.leaves().map(ClusterView::name).collect::<Vec<_>>(), ["near", "cart"]);
    let first = |snapshot: &Snapshot| {
        let priority = snapshot.cluster("all").unwrap().first_usable_priority().unwrap();
        (priority.cluster().name().to_owned(), priority.index())
    };
    assert_eq!(first(&snapshot), ("near".to_owned(), 0));

    let near = || endpoints("near").locality("eu", "a", ["10.0.0.9:80"]);
    server.set(near().unhealthy("10.0.0.9:80"));
    let snapshot = soon(resolution.wait_for(|seen| first(seen.as_ref().unwrap()).0 == "cart")).await;
    assert!(snapshot.unwrap().unwrap().cluster("all").unwrap().error().is_none());
    server.set(near());
    soon(resolution.wait_for(|seen| first(seen.as_ref().unwrap()).0 == "near")).await.unwrap().unwrap();
}

#[apply(every_transport)]
async fn a74_5_a_missing_child_of_an_aggregate_is_skipped(transport: Transport) {
    let server = shop().await;
    server.update(|tx| {
        tx.set(shop_routes(&["all"]));
        tx.set(cluster("all").aggregate(["missing", "cart"]));
    });
    let client = impatient_client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "all: 10.0.0.1:80, cart: 10.0.0.1:80, missing: NOT_FOUND").await;
}

#[apply(every_transport)]
async fn f1_a_socket_listener_is_for_servers(transport: Transport) {
    let server = shop().await;
    server.set(listener("shop").edit(|listener| {
        let manager = listener.api_listener.take().unwrap().api_listener.unwrap();
        let config_type = Some(filter::ConfigType::TypedConfig(manager));
        let filters = vec![Filter { name: "http".into(), config_type }];
        listener.default_filter_chain = Some(FilterChain { filters, ..FilterChain::default() });
        let port_specifier = Some(PortSpecifier::PortValue(80));
        let address =
            SocketAddress { address: "10.0.0.1".into(), port_specifier, ..SocketAddress::default() };
        listener.address = Some(Address { address: Some(address::Address::SocketAddress(address)) });
    }));
    let error = soon(client_of(transport, &server).resolve("xds:///shop").ready()).await.unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::FailedPrecondition, Blame::Peer));
    let reason = "client-side listener resource \"shop\" does not contain API listener configuration";
    assert_eq!(error.to_string(), format!("Listener \"shop\": {reason} [node id: test-node]"));
}

#[apply(every_transport)]
async fn f3_there_is_no_virtual_host(transport: Transport) {
    let server = shop().await;
    server.set(
        route_config("shop").virtual_host(["a.example", "*.b.example"], [route::prefix("/").cluster("cart")]),
    );
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    let error = soon(resolution.ready()).await.unwrap_err();
    assert_eq!((error.code(), error.type_url()), (Code::NotFound, type_url::ROUTE_CONFIGURATION));
    let reason = "could not find VirtualHost for \"shop\"; the domains are: a.example, *.b.example";
    assert_eq!(error.to_string(), format!("RouteConfiguration \"shop\": {reason} [node id: test-node]"));
    server.set(shop_routes(&["cart"]));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
}

#[apply(every_transport)]
async fn a27_15_a_cluster_may_have_no_endpoints(transport: Transport) {
    let server = shop().await;
    server.set(endpoints("cart"));
    let snapshot = see(&mut client_of(transport, &server).resolve("xds:///shop"), "cart: ").await;
    let cart = snapshot.cluster("cart").unwrap();
    assert!(
        cart.unusable_reason().is_none()
            && cart.assignment().is_some()
            && cart.first_usable_priority().is_none()
    );
}

#[apply(every_transport)]
async fn a_bad_update_is_a_warning_and_what_was_good_serves(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.set(cluster("cart").edit(|cart| cart.eds_cluster_config = None));
    let seen = soon(resolution.next()).await.unwrap().unwrap();
    assert_eq!(text(&Ok(seen.clone())), "cart: 10.0.0.1:80");
    let warnings: Vec<_> = seen.warnings().map(ToString::to_string).collect();
    assert_eq!(warnings, ["Cluster \"cart\": eds_cluster_config: must be set [node id: test-node]"]);
    server.set(cluster("cart"));
    let seen = soon(resolution.next()).await.unwrap().unwrap();
    assert_eq!((text(&Ok(seen.clone())), seen.warnings().count()), ("cart: 10.0.0.1:80".to_owned(), 0));
}

#[apply(every_transport)]
async fn the_authority_chooses_the_virtual_host(transport: Transport) {
    let server = shop().await;
    server.update(|tx| {
        tx.set(cluster("web"));
        tx.set(endpoints("web").locality("eu", "a", ["10.0.1.1:80"]));
        tx.set(
            route_config("shop")
                .virtual_host(["shop"], [route::prefix("/").cluster("cart")])
                .virtual_host(["*.example"], [route::prefix("/").cluster("web")]),
        );
    });
    let client = client_of(transport, &server);
    let mut own = client.resolve("xds:///shop");
    see(&mut own, "cart: 10.0.0.1:80").await;
    let mut other = client.resolve(Target::new("xds:///shop").with_authority("Shop.Example"));
    let snapshot = see(&mut other, "web: 10.0.1.1:80").await;
    assert_eq!((snapshot.authority(), &*snapshot.virtual_host().name), ("Shop.Example", "*.example"));
}

#[apply(every_transport)]
async fn equal_targets_are_resolved_once(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    let mut first = client.resolve("xds:///shop");
    let snapshot = see(&mut first, "cart: 10.0.0.1:80").await;
    let joined = client.resolve(Target::new("xds:///shop"));
    assert!(Arc::ptr_eq(&joined.latest().unwrap().unwrap(), &snapshot), "there at once, and the same");
}
