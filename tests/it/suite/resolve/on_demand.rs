//! Virtual hosts on demand (VHDS), in the incremental variant alone.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Resource, Target,
    control_plane::{AnyResource, Request},
    error::Code,
    pb::envoy::config::route::v3 as pb,
    resource::VirtualHost,
};

use super::*;

/// The service `shop`, with routes without virtual hosts, and a second cluster.
async fn on_demand() -> TestControlPlane {
    let server = shop().await;
    server.update(|tx| {
        tx.set(route_config("shop").vhds());
        tx.set(cluster("web"));
        tx.set(endpoints("web").locality("eu", "a", ["10.0.1.1:80"]));
    });
    server
}

/// A virtual host of this name for these domains.
fn virtual_host(name: &str, domains: &[&str], cluster: &str) -> AnyResource {
    let config = route_config("").virtual_host(domains.to_vec(), [route::prefix("/").cluster(cluster)]);
    let host = pb::VirtualHost { name: name.into(), ..config.into_message().virtual_hosts[0].clone() };
    AnyResource::encode(VirtualHost::TYPE_URL, name, &host)
}

async fn not_found(resolution: &mut Resolution) {
    let is_it = |seen: &Result<Arc<Snapshot>, WatchError>| text(seen) == "NOT_FOUND";
    soon(resolution.wait_for(is_it)).await.expect("the client is there").unwrap_err();
}

#[apply(servers)]
async fn a_virtual_host_is_requested_when_its_host_is_resolved(transport: Transport) {
    let server = on_demand().await;
    server.set(virtual_host("shop/shop", &["shop"], "cart"));
    server.set(virtual_host("shop/web.example", &["web.example"], "web"));
    let client = client_of(transport, &server);
    let mut own = client.resolve("xds:///shop");
    if !transport.api_type().is_delta() {
        let error = soon(own.ready()).await.unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented);
        let why = match transport.api_type().is_aggregated() {
            true => "the type needs an api_type of AGGREGATED_DELTA_GRPC or DELTA_GRPC",
            false if transport.is_polled() => "the type cannot be had over REST",
            false => "the type is in the incremental variant alone",
        };
        assert!(error.to_string().contains(why), "{error}");
        return;
    }
    let snapshot = see(&mut own, "cart: 10.0.0.1:80").await;
    assert_eq!((&*snapshot.virtual_host().name, &*snapshot.route_config().name), ("shop/shop", "shop"));
    let mut other = client.resolve(Target::new("xds:///shop").with_authority("Web.Example"));
    let snapshot = see(&mut other, "web: 10.0.1.1:80").await;
    assert_eq!(&*snapshot.virtual_host().name, "shop/web.example");
    server.expect_names(VirtualHost::TYPE_URL, &["shop/shop", "shop/web.example"]).await.unwrap();
    drop((other, snapshot));
    server.expect_names(VirtualHost::TYPE_URL, &["shop/shop"]).await.unwrap();
}

#[apply(servers)]
async fn b2_19_a_virtual_host_of_another_name_is_found_by_its_alias(transport: Transport) {
    if !transport.api_type().is_delta() {
        return;
    }
    let server = on_demand().await;
    server.set(virtual_host("all", &["*"], "cart").with_aliases(["shop/shop", "shop/web.example"]));
    let client = client_of(transport, &server);
    for authority in ["shop", "web.example"] {
        let mut resolution = client.resolve(Target::new("xds:///shop").with_authority(authority));
        assert_eq!(&*see(&mut resolution, "cart: 10.0.0.1:80").await.virtual_host().name, "all");
    }
}

/// The server reports unknown aliases (B2.18), and removals by the own names of resources.
#[apply(servers)]
async fn b2_18_b2_19_an_alias_is_followed_through_outages_and_removal(transport: Transport) {
    if !transport.api_type().is_delta() {
        return;
    }
    let server = on_demand().await;
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    not_found(&mut resolution).await;
    let all = |cluster| virtual_host("all", &["*"], cluster).with_aliases(["shop/shop"]);
    server.set(all("cart"));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.restart().await;
    server.set(all("web"));
    see(&mut resolution, "web: 10.0.1.1:80").await;
    let is_rejected = |request: &Request| match request {
        Request::Sotw(request) => request.error_detail.is_some(),
        Request::Delta(request) => request.error_detail.is_some(),
    };
    assert!(!server.requests().iter().any(|request| is_rejected(request.message())));
    server.remove(VirtualHost::TYPE_URL, "all");
    not_found(&mut resolution).await;
    server.set(all("cart"));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
}

#[apply(servers)]
async fn a_virtual_host_is_followed_through_changes_and_removal(transport: Transport) {
    if !transport.api_type().is_delta() {
        return;
    }
    let server = on_demand().await;
    let client = impatient_client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    not_found(&mut resolution).await;
    server.set(virtual_host("shop/shop", &["shop"], "cart"));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.set(virtual_host("shop/shop", &["shop"], "web"));
    see(&mut resolution, "web: 10.0.1.1:80").await;
    server.remove(VirtualHost::TYPE_URL, "shop/shop");
    not_found(&mut resolution).await;
    server.set(shop_routes(&["cart"]));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
    server.expect_names(VirtualHost::TYPE_URL, &[]).await.unwrap();
}
