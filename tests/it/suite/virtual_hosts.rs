//! Virtual hosts as resources of their own, by the names of VHDS: `<route configuration>/<host>`.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Resource, RouteQuery,
    control_plane::AnyResource,
    pb::envoy::config::route::v3 as pb,
    resource::{VirtualHost, route_action::RouteAction},
    testing::{
        TestControlPlane,
        resources::{route, route_config},
    },
};

use crate::common::soon;

/// The virtual host `shop` of the route configuration `routes`, with one route.
fn shop(transport: Transport, cluster: &str) -> AnyResource {
    let routes = [route::prefix("/cart/").cluster(cluster)];
    let message = route_config("routes").virtual_host(["*.shop", "shop"], routes).into_message();
    let host = pb::VirtualHost { name: "shop".into(), ..message.virtual_hosts[0].clone() };
    let host = AnyResource::encode(VirtualHost::TYPE_URL, "shop", &host);
    // The state-of-the-world variant has no aliases.
    if transport.api_type().is_delta() {
        host.with_name("routes/shop").with_aliases(["routes/a.shop", "routes/b.shop"])
    } else {
        host.with_name("routes/a.shop")
    }
}

/// The clusters of a request for this path.
fn clusters(host: &VirtualHost, path: &str) -> Vec<String> {
    let route = RouteQuery::new(path, 0).route_in(host);
    let action: Option<&RouteAction> = route.map(|route| &route.action);
    action.into_iter().flat_map(RouteAction::clusters).map(|name| name.to_string()).collect()
}

#[apply(every_transport)]
async fn b2_19_a_virtual_host_is_watched_by_route_configuration_and_host(transport: Transport) {
    if !transport.has_virtual_hosts().await {
        return;
    }
    let server = TestControlPlane::start().await;
    server.set(shop(transport, "a"));
    let client = transport.builder_of(&server).build().unwrap();
    let mut watch = client.watch::<VirtualHost>(VirtualHost::resource_name("routes", "a.shop"));
    let host = soon(watch.ready()).await.unwrap();
    assert_eq!(&*host.name, "shop");
    assert!(host.fit("a.shop").is_some() && host.fit("other").is_none());
    assert_eq!(clusters(&host, "/cart/7?x"), ["a"]);
    assert_eq!(clusters(&host, "/"), [""; 0]);
    server.set(shop(transport, "b"));
    let to_b = |host: &VirtualHost| clusters(host, "/cart/7") == ["b"];
    soon(watch.wait_for(|seen| seen.resource().is_some_and(|host| to_b(host)))).await.unwrap();
}
