//! The meaning of targets.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Target,
    config::{AuthorityBuilder, Server},
    error::{Blame, Code},
};

use super::*;

const FEDERATED: &str = "xdstp://mesh.example/envoy.config.listener.v3.Listener/shop";

#[test]
fn a27_9_targets_are_converted_from_texts_and_uris() {
    let shop = Target::new("xds://mesh/shop");
    let uri: http::Uri = "xds://mesh/shop".parse().unwrap();
    let text = "xds://mesh/shop".to_owned();
    let (borrowed, owned) = (std::borrow::Cow::from(text.as_str()), std::borrow::Cow::from(text.clone()));
    let same =
        [Target::from(&uri), uri.into(), borrowed.into(), owned.into(), (&text).into(), (&shop).into()];
    assert!(same.iter().all(|target| *target == shop), "{same:?}");
    assert!("xds:///shop".parse::<http::Uri>().is_err(), "it has no authority");
}

#[apply(servers)]
async fn a27_9_a47_1_targets_lead_to_listeners(transport: Transport) {
    let server = shop().await;
    server.update(|tx| {
        tx.set(listener("shop:80").rds("shop"));
        tx.set(listener("eu/shop").rds("shop"));
        tx.set(listener("a shop").rds("shop"));
        tx.set(listener(FEDERATED).rds("shop"));
    });
    let bootstrap = Bootstrap::builder()
        .server(Server::new(server.uri()).insecure())
        .authority("mesh.example", AuthorityBuilder::default())
        .build();
    let client = transport.builder_from(bootstrap.unwrap()).build().unwrap();
    for (target, expected, authority) in [
        ("xds:///shop", "shop", "shop"),
        ("xds:shop", "shop", "shop"),
        ("xds:///shop:80", "shop:80", "shop:80"),
        ("xds:///eu/shop", "eu/shop", "eu%2Fshop"),
        ("xds:///a%20shop", "a shop", "a%20shop"),
        ("xds://mesh.example/shop", FEDERATED, "shop"),
    ] {
        let snapshot = soon(client.resolve(target).ready()).await.unwrap();
        let seen = (snapshot.target(), &*snapshot.listener().name, snapshot.authority());
        assert_eq!(seen, (target, expected, authority));
    }
}

#[apply(servers)]
async fn a_target_that_cannot_be_read_is_an_error_at_once(transport: Transport) {
    let server = shop().await;
    let client = client_of(transport, &server);
    for (target, reason) in [
        ("", "does not start with `xds:`"),
        ("dns:///shop", "does not start with `xds:`"),
        ("xds:", "no name of a service"),
        ("xds:///shop?x=1", "a query or a fragment has no meaning"),
        ("xds://nowhere.example/shop", "nowhere.example"),
    ] {
        let mut resolution = client.resolve(target);
        let error = soon(resolution.ready()).await.unwrap_err();
        assert_eq!((error.code(), error.blame()), (Code::InvalidArgument, Blame::Local), "{error}");
        assert_eq!((error.name(), error.node_id()), (target, "test-node"));
        assert!(error.to_string().contains(reason), "{error}");
        resolution.request_reresolution();
        drop((resolution.subscribe_cluster("cart"), resolution));
    }
    assert!(soon(client.resolve("xds:///shop").ready()).await.is_ok(), "nothing is the worse for it");
}
