//! Times to live on a real connection: B1.17, B2.25, B2.26.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::time::Duration;

use bytes::Bytes;

use crate::common::*;
use xdskit::{
    Resource,
    control_plane::type_url,
    error::Code,
    resource::{Context, Invalid},
    testing::TestControlPlane,
};

/// A cluster that stores its time to live.
#[derive(Debug)]
struct Mortal(Option<Duration>);

impl Resource for Mortal {
    const TYPE_URL: &'static str = type_url::CLUSTER;
    const FULL_STATE: bool = true;

    fn parse(_: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self(cx.ttl))
    }
}

#[apply(servers)]
async fn a_resource_can_know_how_long_it_lives(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one").with_ttl(Duration::from_millis(1500)));
    server.set(cluster("cart", "one"));
    let client = transport.client(server.uri());
    for (name, ttl) in [("shop", Some(Duration::from_millis(1500))), ("cart", None)] {
        assert_eq!(soon(client.watch::<Mortal>(name).ready()).await.unwrap().0, ttl);
    }
}

#[apply(servers)]
async fn what_is_not_confirmed_expires_and_comes_back_when_it_is_sent_again(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one").with_ttl(Duration::from_millis(300)));
    let client = transport.client(server.uri());
    let mut shop = client.watch::<Cluster>("shop");
    soon(shop.ready()).await.unwrap();
    server.hold();
    let seen = soon(shop.wait_for(|seen| seen.resource().is_none())).await.unwrap();
    let error = seen.error().expect("a reason");
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.to_string().contains("TTL expired"), "{error}");
    server.release();
    let seen = soon(shop.wait_for(|seen| seen.resource().is_some())).await.unwrap();
    assert_eq!(note(&seen), Some("one"));
}

#[apply(servers)]
async fn what_has_no_time_to_live_any_more_stays(transport: Transport) {
    let server = TestControlPlane::start().await;
    server.set(cluster("shop", "one").with_ttl(Duration::from_millis(300)));
    server.set(cluster("cart", "one").with_ttl(Duration::from_millis(300)));
    let client = transport.client(server.uri());
    let (mut shop, mut cart) = (client.watch::<Cluster>("shop"), client.watch::<Cluster>("cart"));
    soon(shop.ready()).await.unwrap();
    soon(cart.ready()).await.unwrap();
    server.set(cluster("shop", "two"));
    soon(shop.wait_for(|seen| note(seen) == Some("two"))).await.unwrap();
    server.hold();
    soon(cart.wait_for(|seen| seen.resource().is_none())).await.unwrap();
    assert_eq!(note(&shop.latest()), Some("two"), "whose old deadline is over, too");
}
