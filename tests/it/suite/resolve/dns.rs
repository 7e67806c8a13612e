//! `LOGICAL_DNS` clusters (A37), with a resolver that the test answers.

use crate::transport::Transport;
use macro_rules_attribute::apply;
use std::io;

use tokio::sync::{mpsc, oneshot};
use xdskit::{
    client::{Addresses, Dns, Lookup},
    error::{Blame, Code},
};

use super::*;

/// A resolver that passes lookups to the test.
#[derive(Debug)]
struct Asking(mpsc::UnboundedSender<Question>);

type Question = (String, oneshot::Sender<io::Result<Addresses>>);

impl Dns for Asking {
    fn lookup<'a>(&'a self, host: &'a str) -> Lookup<'a> {
        let (answer, answered) = oneshot::channel();
        self.0.send((host.to_owned(), answer)).unwrap();
        // Without an answer it panics.
        Box::pin(async { answered.await.unwrap() })
    }
}

struct Questions(mpsc::UnboundedReceiver<Question>);

impl Questions {
    async fn next(&mut self, host: &str) -> oneshot::Sender<io::Result<Addresses>> {
        let (requested, answer) = soon(self.0.recv()).await.unwrap();
        assert_eq!(requested, host);
        answer
    }

    async fn answer(&mut self, host: &str, ips: &[&str]) {
        // The TTL is long, so that only the test causes new lookups.
        let addresses = Addresses::new(ips.iter().map(|ip| ip.parse().unwrap()));
        self.next(host).await.send(Ok(addresses.with_ttl(Duration::from_secs(3600)))).unwrap();
    }

    async fn fail(&mut self, host: &str) {
        self.next(host).await.send(Err(io::Error::new(io::ErrorKind::NotFound, "no such host"))).unwrap();
    }
}

/// A server whose cluster `cart` is a host, and a client without a limit on the rate of lookups.
async fn dns_shop(transport: Transport) -> (TestControlPlane, Client, Questions) {
    let server = shop().await;
    server.set(cluster("cart").logical_dns("cart.example", 8080));
    let (asking, questions) = mpsc::unbounded_channel();
    let builder = transport.builder_of(&server).dns(Asking(asking)).dns_refresh(Duration::from_millis(1));
    (server, builder.build().unwrap(), Questions(questions))
}

#[apply(servers)]
async fn a37_5_a61_all_addresses_of_a_host_are_one_endpoint(transport: Transport) {
    let (_server, client, mut questions) = dns_shop(transport).await;
    let mut resolution = client.resolve("xds:///shop");
    questions.answer("cart.example", &["10.0.0.1", "2001:db8::1"]).await;
    let snapshot = see(&mut resolution, "cart: 10.0.0.1:8080").await;
    let cart = snapshot.cluster("cart").unwrap();
    let [priority] = &cart.priorities().collect::<Vec<_>>()[..] else { panic!("one priority") };
    let [locality] = priority.localities() else { panic!("one locality") };
    assert_eq!(locality.locality, xdskit::resource::endpoints::Locality::default());
    let [endpoint] = &locality.endpoints[..] else { panic!("one endpoint") };
    let addresses: Vec<_> = endpoint.addresses().map(|address| address.to_string()).collect();
    assert_eq!(addresses, ["10.0.0.1:8080", "[2001:db8::1]:8080"]);
    assert_eq!(endpoint.hostname(), Some("cart.example:8080"));
}

#[apply(servers)]
async fn f5_the_first_error_is_shown_and_later_ones_keep_what_is_good(transport: Transport) {
    let (_server, client, mut questions) = dns_shop(transport).await;
    let mut resolution = client.resolve("xds:///shop");
    questions.fail("cart.example").await;
    let snapshot = see(&mut resolution, "cart: UNAVAILABLE").await;
    let cart = snapshot.cluster("cart").unwrap();
    assert!(cart.error().is_none() && cart.config().is_some() && cart.assignment().is_none());
    let note = cart.endpoints_error().unwrap();
    assert_eq!((note.blame(), note.is_transient()), (Blame::Network, true));
    assert_eq!(
        note.to_string(),
        "Cluster \"cart\": dns resolver error for target \"dns:///cart.example\": no such host [node id: test-node]"
    );

    resolution.request_reresolution();
    questions.answer("cart.example", &["10.0.0.1"]).await;
    let snapshot = see(&mut resolution, "cart: 10.0.0.1:8080").await;
    assert!(snapshot.cluster("cart").unwrap().endpoints_error().is_none());

    resolution.request_reresolution();
    questions.fail("cart.example").await;
    let seen = soon(resolution.next()).await.unwrap();
    assert_eq!(text(&seen), "cart: 10.0.0.1:8080", "the last good addresses");
    let seen = seen.unwrap();
    assert_eq!(
        seen.cluster("cart").unwrap().endpoints_error().map(WatchError::code),
        Some(Code::Unavailable)
    );
    assert_eq!(seen.warnings().count(), 1);

    resolution.request_reresolution();
    questions.answer("cart.example", &["10.0.0.2"]).await;
    let snapshot = see(&mut resolution, "cart: 10.0.0.2:8080").await;
    assert_eq!(snapshot.warnings().count(), 0);
}

#[apply(servers)]
async fn a_host_is_looked_up_again_by_itself(transport: Transport) {
    let (_server, client, mut questions) = dns_shop(transport).await;
    let mut resolution = client.resolve("xds:///shop");
    for ip in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
        let addresses = Addresses::new([ip.parse().unwrap()]);
        questions.next("cart.example").await.send(Ok(addresses)).unwrap();
        see(&mut resolution, &format!("cart: {ip}:8080")).await;
    }
}

#[apply(servers)]
async fn a_resolver_that_panics_fails_and_nothing_else_does(transport: Transport) {
    let (server, client, mut questions) = dns_shop(transport).await;
    let mut resolution = client.resolve("xds:///shop");
    drop(questions.next("cart.example").await);
    let snapshot = see(&mut resolution, "cart: UNAVAILABLE").await;
    assert!(
        snapshot
            .cluster("cart")
            .unwrap()
            .endpoints_error()
            .unwrap()
            .reason()
            .ends_with("the resolver panicked")
    );
    resolution.request_reresolution();
    questions.answer("cart.example", &["10.0.0.1"]).await;
    see(&mut resolution, "cart: 10.0.0.1:8080").await;
    server.set(cluster("cart"));
    see(&mut resolution, "cart: 10.0.0.1:80").await;
}

#[apply(servers)]
async fn a_host_that_is_an_address_and_the_systems_resolver(transport: Transport) {
    let server = shop().await;
    server.set(cluster("cart").logical_dns("10.0.0.9", 8080));
    let client = client_of(transport, &server);
    let mut resolution = client.resolve("xds:///shop");
    see(&mut resolution, "cart: 10.0.0.9:8080").await;
    server.set(cluster("cart").logical_dns("localhost", 8080));
    let localhost = |seen: &Result<Arc<Snapshot>, WatchError>| {
        let snapshot = seen.as_ref().unwrap();
        snapshot
            .cluster("cart")
            .unwrap()
            .usable_endpoints_of_all_priorities()
            .any(|endpoint| endpoint.address().ip().is_loopback())
    };
    assert!(soon(resolution.wait_for(localhost)).await.is_some());
}

/// A37: there is one lookup per host, whatever the number of clusters, ports and resolutions.
#[apply(servers)]
async fn one_host_is_looked_up_once_for_all(transport: Transport) {
    let (server, client, mut questions) = dns_shop(transport).await;
    server.update(|tx| {
        tx.set(cluster("other").logical_dns("cart.example", 9090));
        tx.set(shop_routes(&["cart", "other"]));
        tx.set(listener("second").rds("shop"));
    });
    let (mut first, mut second) = (client.resolve("xds:///shop"), client.resolve("xds:///second"));
    questions.answer("cart.example", &["10.0.0.1"]).await;
    for resolution in [&mut first, &mut second] {
        see(resolution, "cart: 10.0.0.1:8080, other: 10.0.0.1:9090").await;
    }
    assert!(questions.0.try_recv().is_err());
}
