//! Streams from the point of view of an application and of servers.

mod credentials;

use crate::common::*;
use crate::transport::Transport;
use macro_rules_attribute::apply;
use tonic::Status;
use xdskit::{
    Observed,
    config::{AuthorityBuilder, Bootstrap, Server},
    control_plane::{Event, session::Held},
    error::Code,
};

#[apply(streams)]
async fn a_stream_that_fails_with_a_status_is_opened_again(transport: Transport) {
    let (control_plane, mut events) = observed();
    control_plane.set_held(Held::all());
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    let client = transport.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    event(&mut events, |event| matches!(event, Event::Request { .. })).await;
    control_plane.disconnect(Status::permission_denied("who are you?"));
    let error = soon(shop.ready()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "whatever the status: {error}");
    assert!(error.reason().contains("PERMISSION_DENIED: who are you?"), "{error}");
    control_plane.set_held(Held::none());
    control_plane.set(cluster("shop", "one"));
    assert_eq!(note(&soon(shop.wait_for(Observed::is_present)).await.unwrap()), Some("one"));
}

#[apply(streams)]
async fn a47_equal_servers_of_authorities_share_a_stream(transport: Transport) {
    let (_here, here) =
        serve(&[("cart", "1"), ("xdstp://here/envoy.config.cluster.v3.Cluster/shop", "2")]).await;
    let (_there, there) = serve(&[("xdstp://there/envoy.config.cluster.v3.Cluster/taxes", "3")]).await;
    let server = |of: &xdskit::control_plane::ServerHandle| Server::new(of.uri()).insecure();
    let bootstrap = Bootstrap::builder()
        .server(server(&here))
        .authority("here", AuthorityBuilder::default().server(server(&here)))
        .authority("there", AuthorityBuilder::default().server(server(&there)));
    let client = transport.builder_from(bootstrap.build().unwrap()).build().unwrap();
    let mut watches = [
        "cart",
        "xdstp://here/envoy.config.cluster.v3.Cluster/shop",
        "xdstp://there/envoy.config.cluster.v3.Cluster/taxes",
    ]
    .map(|name| client.watch::<Cluster>(name));
    for watch in &mut watches {
        soon(watch.ready()).await.unwrap();
    }
    assert_eq!((here.control_plane().streams(), there.control_plane().streams()), (1, 1));
}
