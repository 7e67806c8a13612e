//! Routes selected by a scope (SRDS).

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Target,
    config::{AuthorityBuilder, Server},
    control_plane::type_url,
    error::Code,
    testing::resources::ListenerBuilder,
};

use super::*;

const COLLECTION: &str = "xdstp://mesh.example/envoy.config.route.v3.ScopedRouteConfiguration/shop/*";

/// The service `shop`, with the routes of a region, each with a cluster of its own.
async fn regions(listener: ListenerBuilder) -> TestControlPlane {
    let server = TestControlPlane::start().await;
    server.update(|tx| {
        tx.set(listener);
        for (region, address) in [("eu", "10.0.0.1:80"), ("us", "10.0.0.2:80")] {
            tx.set(scope(region, [region]));
            tx.set(route_config(region).virtual_host(["*"], [route::prefix("/").cluster(region)]));
            tx.set(cluster(region));
            tx.set(endpoints(region).locality(region, "a", [address]));
        }
    });
    server
}

fn target(region: &str) -> Target {
    Target::new("xds:///shop").with_header("x-region", region)
}

/// Waits for an error of the target, skipping other states.
async fn fails(resolution: &mut Resolution) -> WatchError {
    soon(resolution.wait_for(|seen| seen.is_err())).await.expect("the client is there").unwrap_err()
}

#[apply(servers)]
async fn headers_choose_the_scope(transport: Transport) {
    let server = regions(listener("shop").srds(["x-region"])).await;
    let client = client_of(transport, &server);
    let (mut eu, mut us) = (client.resolve(target("eu")), client.resolve(target("us")));
    let snapshot = see(&mut eu, "eu: 10.0.0.1:80").await;
    assert_eq!(snapshot.scope().map(|scope| &*scope.name), Some("eu"));
    see(&mut us, "us: 10.0.0.2:80").await;
    let error = fails(&mut client.resolve("xds:///shop")).await;
    assert!(error.code() == Code::NotFound && error.to_string().contains("x-region"), "{error}");
    let error = fails(&mut client.resolve(target("asia"))).await;
    assert!(error.to_string().contains("the keys are: [\"eu\"], [\"us\"]"), "{error}");
}

#[apply(servers)]
async fn only_resources_of_the_chosen_scope_are_requested(transport: Transport) {
    let server = regions(listener("shop").srds(["x-region"])).await;
    let client = client_of(transport, &server);
    let mut eu = client.resolve(target("eu"));
    see(&mut eu, "eu: 10.0.0.1:80").await;
    server.expect_names(type_url::ROUTE_CONFIGURATION, &["eu"]).await.unwrap();
    server.expect_names(type_url::CLUSTER, &["eu"]).await.unwrap();
}

#[apply(servers)]
async fn scopes_may_be_in_the_listener(transport: Transport) {
    let own = scope("own", ["asia"])
        .inline_routes(route_config("").virtual_host(["*"], [route::prefix("/").cluster("us")]));
    let server = regions(listener("shop").inline_scopes(["x-region"], [scope("eu", ["eu"]), own])).await;
    let client = client_of(transport, &server);
    see(&mut client.resolve(target("eu")), "eu: 10.0.0.1:80").await;
    let snapshot = see(&mut client.resolve(target("asia")), "us: 10.0.0.2:80").await;
    assert_eq!(snapshot.scope().map(|scope| &*scope.name), Some("own"));
    fails(&mut client.resolve(target("us"))).await;
}

#[apply(servers)]
async fn scopes_are_followed_through_changes(transport: Transport) {
    let server = regions(listener("shop").srds(["x-region"])).await;
    let client = client_of(transport, &server);
    let mut eu = client.resolve(target("eu"));
    see(&mut eu, "eu: 10.0.0.1:80").await;
    server.set(scope("eu", ["eu"]).rds("us"));
    see(&mut eu, "us: 10.0.0.2:80").await;
    server.set(scope("asia", ["asia"]));
    let mut asia = client.resolve(target("asia"));
    server.update(|tx| {
        tx.set(route_config("asia").virtual_host(["*"], [route::prefix("/").cluster("eu")]));
    });
    see(&mut asia, "eu: 10.0.0.1:80").await;
    // Only the incremental variant reports the removal of a scope; in the other one, its key changes.
    if transport.api_type().is_delta() {
        server.remove(type_url::SCOPED_ROUTE_CONFIGURATION, "eu");
    } else {
        server.set(scope("eu", ["africa"]));
    }
    assert_eq!(fails(&mut eu).await.code(), Code::NotFound);
    see(&mut asia, "eu: 10.0.0.1:80").await;
}

#[apply(servers)]
async fn scopes_may_be_those_of_a_collection(transport: Transport) {
    let server = regions(listener("shop").srds_in(COLLECTION, ["x-region"])).await;
    let member = COLLECTION.replace('*', "south");
    server.set(scope(member, ["eu"]).rds("us"));
    let bootstrap = Bootstrap::builder()
        .server(Server::new(server.uri()).insecure())
        .authority("mesh.example", AuthorityBuilder::default())
        .build();
    let client = transport.builder_from(bootstrap.unwrap()).build().unwrap();
    see(&mut client.resolve(target("eu")), "us: 10.0.0.2:80").await;
    let nowhere = listener("shop").srds_in(COLLECTION.replace("mesh.", "other."), ["x-region"]);
    server.set(nowhere);
    let error = fails(&mut client.resolve(target("eu"))).await;
    assert!(error.to_string().contains("other.example"), "{error}");
}
