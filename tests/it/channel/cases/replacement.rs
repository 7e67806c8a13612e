//! Endpoints, clusters and routes that are replaced under load, without a failed call.

use std::net::Ipv6Addr;

use xdskit::{
    control_plane::type_url,
    pb::envoy::config::{
        core::v3::{Address, SocketAddress, address, socket_address::PortSpecifier},
        endpoint::v3::{Endpoint, endpoint::AdditionalAddress, lb_endpoint::HostIdentifier},
    },
};

use super::*;
use crate::channel::{backend::HOLD, calls::call_owned};

#[tokio::test]
async fn ch12_remove_instance_group_fails_no_call() {
    let [a, b, c, d] = Backend::start_all(["a", "b", "c", "d"]).await;
    let mesh = Mesh::start(&[&a, &b]).await;
    let first = || locality(endpoints("cart"), "a", 0, &[&a, &b]);
    mesh.server.set(locality(first(), "b", 0, &[&c, &d]));
    let load = mesh.load(TASKS);
    load.until_only(&["a", "b", "c", "d"]).await;
    mesh.server.set(first());
    load.until_only(&["a", "b"]).await;
    let drained = c.calls() + d.calls();
    load.until_only(&["a", "b"]).await;
    assert_eq!(c.calls() + d.calls(), drained, "the removed group gets no new calls");
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch12_remove_neg_fails_no_call() {
    let [a, b] = Backend::start_all(["a", "b"]).await;
    let mesh = Mesh::start(&[&a, &b]).await;
    let load = mesh.load(TASKS);
    for _ in 0..5 {
        load.until_only(&["a", "b"]).await;
        mesh.server.set(cart(&[&a]));
        load.until_only(&["a"]).await;
        mesh.server.set(cart(&[&a, &b]));
    }
    load.until_only(&["a", "b"]).await;
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch12_change_backend_service_fails_no_call() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    let held = tokio::spawn(call_owned(mesh.channel.clone(), HOLD));
    one.holds(1).await;
    let load = mesh.load(TASKS);
    load.until_only(&["one"]).await;
    mesh.server.set(cluster("pay"));
    mesh.server.set(locality(endpoints("pay"), "a", 0, &[&two]));
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("pay")]));
    load.until_only(&["two"]).await;
    mesh.server.remove(type_url::CLUSTER, "cart");
    mesh.server.remove(type_url::ENDPOINTS, "cart");
    load.until_only(&["two"]).await;
    one.release();
    assert_eq!(backend_of(&soon(held).await.unwrap().unwrap()), "one", "a running call ends as it began");
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch12_api_listener_fails_no_call_when_its_routes_are_replaced() {
    let [one, two] = Backend::start_all(["one", "two"]).await;
    let mesh = Mesh::start(&[&one]).await;
    mesh.server.set(cluster("pay"));
    mesh.server.set(locality(endpoints("pay"), "a", 0, &[&two]));
    let load = mesh.load(TASKS);
    let mut old = "routes".to_owned();
    for turn in 0..6 {
        let (target, backend) = if turn % 2 == 0 { ("pay", "two") } else { ("cart", "one") };
        let new = format!("routes-{turn}");
        mesh.server.set(route_config(&*new).virtual_host(["*"], [route::prefix("").cluster(target)]));
        mesh.server.set(listener("shop").rds(&*new));
        load.until_only(&[backend]).await;
        mesh.server.remove(type_url::ROUTE_CONFIGURATION, &old);
        load.until_only(&[backend]).await;
        old = new;
    }
    assert_eq!(load.stop().await, []);
}

#[tokio::test]
async fn ch12_dualstack_endpoints_are_reached_by_either_family() {
    let [v4, both_v4] = Backend::start_all(["v4", "both-v4"]).await;
    let on_v6 = |name| Backend::start_at(name, (Ipv6Addr::LOCALHOST, 0).into());
    let (v6, both_v6) = (on_v6("v6").await, on_v6("both-v6").await);
    let mesh = Mesh::start(&[&v4]).await;
    // Nothing listens on port 1: the first address of the last endpoint, and the second one of that before, are refused.
    let addresses = [v4.text(), v6.text(), both_v4.text(), "127.0.0.1:1".to_owned()];
    let all = endpoints("cart").locality("eu", "a", addresses.iter().map(String::as_str)).edit(|all| {
        let [_, _, fourth, sixth] = &mut all.endpoints[0].lb_endpoints[..] else { panic!("there are 4") };
        for (endpoint, host, port) in [(fourth, "::1", 1), (sixth, "::1", both_v6.address.port())] {
            let Some(HostIdentifier::Endpoint(Endpoint { additional_addresses, .. })) =
                &mut endpoint.host_identifier
            else {
                panic!("it has an address")
            };
            additional_addresses.push(AdditionalAddress { address: Some(address(host, port)) });
        }
    });
    mesh.server.set(all);
    mesh.reach(&["both-v4", "both-v6", "v4", "v6"]).await;
    assert!(mesh.shares(100).await.into_values().eq([25; 4]));
}

fn address(host: &str, port: u16) -> Address {
    let port_specifier = Some(PortSpecifier::PortValue(port.into()));
    let socket = SocketAddress { address: host.into(), port_specifier, ..SocketAddress::default() };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}
