//! The features of `xdstp:` names, on real connections to embedded control planes: globs, lists, redirects and
//! alternatives.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use xdskit::{
    Client, Observed, Resource, WatchError,
    client::{Members, WatchAll},
    config::{AuthorityBuilder, Bootstrap, Node, Server},
    control_plane::AnyResource,
    error::Code,
    name::ResourceName,
    resource::{Cluster, ClusterKind},
    testing::{
        TestControlPlane,
        resources::{cluster, collection},
    },
};

use crate::common::soon;

const SHOP: &str = "xdstp://here/envoy.config.cluster.v3.Cluster/shop/*";
const LIST: &str = "xdstp://here/envoy.config.cluster.v3.ClusterCollection/shop";

/// The name of a cluster of the authority `here`.
fn here(id: &str) -> String {
    format!("xdstp://here/envoy.config.cluster.v3.Cluster/{id}")
}

fn there(id: &str) -> String {
    format!("xdstp://there/envoy.config.cluster.v3.Cluster/{id}")
}

/// A cluster under another name, with a note to distinguish it.
fn named(name: String, note: &str) -> AnyResource {
    AnyResource::from(cluster("c").eds_service(note)).with_name(name)
}

fn client(transport: Transport, here: &TestControlPlane, there: &TestControlPlane) -> Client {
    let server = |control_plane: &TestControlPlane| Server::new(control_plane.uri()).insecure();
    let of = |control_plane| AuthorityBuilder::default().server(server(control_plane));
    let bootstrap = Bootstrap::builder().node(Node::new("me")).server(server(here));
    let bootstrap = bootstrap.authority("here", of(here)).authority("there", of(there)).build().unwrap();
    transport.builder_from(bootstrap).build().unwrap()
}

fn note(seen: &Observed<Cluster>) -> String {
    match seen.resource().map(|cluster| &cluster.kind) {
        Some(ClusterKind::Eds { service_name, .. }) => service_name.to_string(),
        Some(_) | None => seen.error().map(WatchError::code).map_or("?".into(), |code| code.to_string()),
    }
}

/// Waits until the members are these, by the ends of their names and their notes.
async fn until(watch: &mut WatchAll<Cluster>, expected: &[(&str, &str)]) {
    let are = |members: &Members<Cluster>| {
        let seen =
            members.iter().map(|(name, seen)| (name.rsplit('/').next().unwrap().to_owned(), note(seen)));
        members.is_complete() && seen.eq(expected.iter().map(|(name, note)| ((*name).into(), (*note).into())))
    };
    soon(watch.wait_for(are)).await.unwrap();
}

#[apply(servers)]
async fn x15_x18_members_of_a_glob_come_change_and_go_also_across_reconnects(transport: Transport) {
    let server = TestControlPlane::start().await;
    for (id, note) in [("shop/cart", "1"), ("shop/till", "2"), ("shop/a/b", "3"), ("other/x", "4")] {
        server.set(named(here(id), note));
    }
    let client = client(transport, &server, &server);
    let mut shop = client.watch_all::<Cluster>(SHOP);
    until(&mut shop, &[("cart", "1"), ("till", "2")]).await;
    let mut one = client.watch::<Cluster>(here("shop/cart"));
    soon(one.ready()).await.unwrap();
    server.update(|tx| {
        tx.set(named(here("shop/cart"), "5"));
        tx.set(named(here("shop/desk"), "6"));
        tx.remove(Cluster::TYPE_URL, &here("shop/till"));
    });
    until(&mut shop, &[("cart", "5"), ("desk", "6")]).await;
    soon(one.wait_for(|seen| note(seen) == "5")).await.unwrap();
    server.stop().await;
    server.remove(Cluster::TYPE_URL, &here("shop/desk"));
    server.set(named(here("shop/exit"), "7"));
    server.restart().await;
    until(&mut shop, &[("cart", "5"), ("exit", "7")]).await;
    drop(shop);
    server.set(named(here("shop/cart"), "8"));
    soon(one.wait_for(|seen| note(seen) == "8")).await.unwrap();
}

#[apply(servers)]
async fn x12_x14_members_of_a_list_are_fetched_or_inline(transport: Transport) {
    let server = TestControlPlane::start().await;
    if !transport.api_type().is_aggregated() {
        // The type of a list has no service of its own.
        let refused =
            soon(client(transport, &server, &server).watch_all::<Cluster>(LIST).next()).await.unwrap();
        assert_eq!(refused.warning().map(WatchError::code), Some(Code::Unimplemented));
        return;
    }
    let shop = || collection(LIST);
    server.set(named(here("cart"), "1"));
    server.set(named(here("till"), "2"));
    let inline = |note: &str| cluster("c").eds_service(note);
    server.set(shop().locator(&here("cart")).locator(&here("till")).inline("pay", "1", inline("3")));
    let client = client(transport, &server, &server);
    let mut members = client.watch_all::<Cluster>(LIST);
    until(&mut members, &[("cart", "1"), ("till", "2"), ("shop#entry=pay", "3")]).await;
    let mut pay = client.watch::<Cluster>(format!("{LIST}#entry=pay"));
    assert_eq!(note(&soon(pay.next()).await.unwrap()), "3");
    server.set(named(here("cart"), "4"));
    until(&mut members, &[("cart", "4"), ("till", "2"), ("shop#entry=pay", "3")]).await;
    server.set(shop().locator(&here("cart")).inline("pay", "2", inline("5")));
    until(&mut members, &[("cart", "4"), ("shop#entry=pay", "5")]).await;
    assert_eq!(note(&soon(pay.next()).await.unwrap()), "5");
}

#[apply(servers)]
async fn x20_a_redirect_leads_to_another_authority_and_back(transport: Transport) {
    let (first, second) = (TestControlPlane::start().await, TestControlPlane::start().await);
    first.set(AnyResource::redirect(Cluster::TYPE_URL, here("x"), &there("y")).unwrap());
    second.set(named(there("y"), "1"));
    let client = client(transport, &first, &second);
    let mut x = client.watch::<Cluster>(here("x"));
    assert_eq!(note(&soon(x.next()).await.unwrap()), "1");
    second.set(named(there("y"), "2"));
    assert_eq!(note(&soon(x.next()).await.unwrap()), "2");
    first.set(named(here("x"), "3"));
    assert_eq!(note(&soon(x.next()).await.unwrap()), "3");
}

#[apply(servers)]
async fn x21_an_alternative_serves_until_the_source_is_back(transport: Transport) {
    let (first, second) = (TestControlPlane::start().await, TestControlPlane::start().await);
    first.stop().await;
    second.set(named(there("x"), "theirs"));
    let client = client(transport, &first, &second);
    let mut x = client.watch::<Cluster>(format!("{}#alt={}", here("x"), there("x")));
    assert_eq!(note(&soon(x.next()).await.unwrap()), "theirs");
    first.set(named(here("x"), "ours"));
    first.restart().await;
    assert_eq!(note(&soon(x.next()).await.unwrap()), "ours");
}

#[apply(servers)]
async fn x7_context_parameters_are_part_of_the_requested_name(transport: Transport) {
    let server = TestControlPlane::start().await;
    let name = ResourceName::parse(&here("x")).unwrap().with_resource_attribute("vip", "10.0.0.1");
    server.set(named(name.to_string(), "1"));
    let client = client(transport, &server, &server);
    assert_eq!(note(&soon(client.watch::<Cluster>(&name).next()).await.unwrap()), "1");
    let refused = soon(client.watch::<Cluster>(name.as_str()).ready()).await.unwrap_err();
    assert!(refused.to_string().contains("is reserved"), "text cannot have them: {refused}");
}
