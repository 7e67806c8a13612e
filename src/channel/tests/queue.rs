//! Calls that wait for routes and pickers (CH1.11, CH1.21, CH1.26).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{
    raw::{DATA, HEADERS, RawListener},
    *,
};

/// A call, and how often it was woken.
pub(super) struct Counted<F> {
    pub(super) call: Pin<Box<F>>,
    pub(super) polls: Arc<AtomicUsize>,
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.call.as_mut().poll(cx)
    }
}

impl Mesh {
    fn counted(&self, path: &str) -> (JoinHandle<Result<(), Status>>, Arc<AtomicUsize>) {
        let polls = Arc::<AtomicUsize>::default();
        let call = Box::pin(finish(self.begin(path, Given::default())));
        (tokio::spawn(Counted { call, polls: polls.clone() }), polls)
    }

    fn number(&self) -> u64 {
        self.channel.shared.calls.published.load().number()
    }

    /// Sends all calls whose path begins with this one to a cluster of its own, before all others.
    fn route(&self, prefix: &str, name: &str, others: &str) {
        let routes = [route::prefix(prefix).cluster(name), route::prefix("").cluster(others)];
        self.server.set(route_config("routes").virtual_host(["*"], routes));
    }
}

/// A listener that accepts and says nothing: connections to it are attempted.
fn silent() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn at(name: &str, address: &str) -> EndpointsBuilder {
    endpoints(name).locality("eu", "a", [address])
}

#[tokio::test]
async fn ch1_11_calls_that_wait_are_sent_in_the_order_in_which_they_came() {
    let mut peer = Peer::start().await;
    let mesh = Mesh::start("ch1_11_order", &[&peer]).await;
    let (_silent, address) = silent();
    mesh.server.set(at("ch1_11_order", &address));
    let mut calls = Vec::new();
    for number in 0..20 {
        calls.push(mesh.counted(&format!("/{number}")));
    }
    mesh.picks(20).await;
    let before: Vec<_> = calls.iter().map(|(_, polls)| polls.load(Ordering::Relaxed)).collect();
    mesh.server.set(assignment("ch1_11_order", &[&peer]));
    for number in 0..20 {
        let received = peer.request().await;
        assert_eq!(received.path(), format!("/{number}"));
        for ((_, polls), before) in calls.iter().zip(&before) {
            assert!(polls.load(Ordering::Relaxed) <= before + 2, "woken by a pick and by its response");
        }
        received.respond();
    }
    for (call, _) in calls {
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn ch1_11_a_call_that_waits_for_one_cluster_is_not_woken_by_another() {
    let (mut one, mut other) = (Peer::start().await, Peer::start().await);
    let mesh = Mesh::start("ch1_11_other", &[&one]).await;
    let (_silent, address) = silent();
    mesh.server.set(cluster("ch1_11_waits"));
    mesh.server.set(at("ch1_11_waits", &address));
    mesh.route("/waits", "ch1_11_waits", "ch1_11_other");
    let first = mesh.get("/first");
    one.request().await.respond();
    soon(first).await.unwrap().unwrap();
    let (waiting, polls) = mesh.counted("/waits");
    mesh.picks(1).await;
    let (before, number) = (polls.load(Ordering::Relaxed), mesh.number());
    mesh.server.set(assignment("ch1_11_other", &[&other]));
    until("the other cluster changes", || mesh.number() > number + 1).await;
    let second = mesh.get("/second");
    other.request().await.respond();
    soon(second).await.unwrap().unwrap();
    assert_eq!(polls.load(Ordering::Relaxed), before);
    mesh.server.set(assignment("ch1_11_waits", &[&one]));
    let received = one.request().await;
    assert_eq!((received.path(), polls.load(Ordering::Relaxed)), ("/waits", before + 1));
    received.respond();
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch1_21_a_call_that_waits_keeps_its_cluster_when_routes_change() {
    let (mut one, mut other) = (Peer::start().await, Peer::start().await);
    let mesh = Mesh::start("ch1_21", &[&one]).await;
    let (_silent, address) = silent();
    mesh.server.set(at("ch1_21", &address));
    mesh.server.set(cluster("ch1_21_other"));
    mesh.server.set(assignment("ch1_21_other", &[&other]));
    let waiting = mesh.get("/waiting");
    mesh.picks(1).await;
    let number = mesh.number();
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("ch1_21_other")]));
    until("the new routes are there", || mesh.number() > number).await;
    let next = mesh.get("/next");
    other.request().await.respond();
    soon(next).await.unwrap().unwrap();
    assert!(!waiting.is_finished());
    mesh.server.set(assignment("ch1_21", &[&one]));
    let received = one.request().await;
    assert_eq!(received.path(), "/waiting");
    received.respond();
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn ch1_26_an_update_of_many_endpoints_is_one_publication() {
    let mut peers = Vec::new();
    for _ in 0..10 {
        peers.push(Peer::start().await);
    }
    let all: Vec<_> = peers.iter().collect();
    let mesh = Mesh::start("ch1_26", &all).await;
    mesh.channel.wait_ready(Duration::from_secs(20)).await.unwrap();
    for peer in &mut peers {
        peer.connection().await;
    }
    // Ten endpoints are ready when the eleventh generation since the first is there; what the number is does not matter.
    let mut number = 0;
    until("all are connected", || {
        let is_same = std::mem::replace(&mut number, mesh.number()) == number;
        is_same && mesh.ready_endpoints() == 10
    })
    .await;
    let five: Vec<_> = peers[..5].iter().collect();
    mesh.server.set(assignment("ch1_26", &five));
    until("the update is there", || mesh.ready_endpoints() == 5).await;
    assert_eq!(mesh.number(), number + 1);
}

#[tokio::test]
async fn ch2_8_a_subscribed_cluster_is_connected_without_a_route() {
    let (mut one, mut spare) = (Peer::start().await, Peer::start().await);
    let mesh = Mesh::start("ch2_8", &[&one]).await;
    mesh.server.set(cluster("ch2_8_spare"));
    mesh.server.set(assignment("ch2_8_spare", &[&spare]));
    let first = mesh.get("/first");
    one.request().await.respond();
    soon(first).await.unwrap().unwrap();
    let subscription = mesh.channel.subscribe_cluster("ch2_8_spare");
    assert_eq!(subscription.name(), "ch2_8_spare");
    let again = mesh.channel.subscribe_cluster("ch2_8_spare");
    let connection = spare.connection().await;
    drop(again);
    // Routes find it connected.
    mesh.route("/spare", "ch2_8_spare", "ch2_8");
    let call = loop {
        let call = mesh.get("/spare");
        tokio::select! {
            received = spare.request() => {
                received.respond();
                break call;
            }
            received = one.request() => {
                received.respond();
                soon(call).await.unwrap().unwrap();
            }
        }
    };
    soon(call).await.unwrap().unwrap();
    assert!(spare.has_no_further_connection());
    // Without routes it stays until the subscription ends.
    mesh.server.set(route_config("routes").virtual_host(["*"], [route::prefix("").cluster("ch2_8")]));
    let number = mesh.number();
    until("the routes are there", || mesh.number() > number).await;
    assert!(!connection.is_closed());
    drop(subscription);
    soon(connection.closed()).await;
}

#[tokio::test]
async fn ch15_6_headers_and_the_first_data_are_one_write() {
    let listener = RawListener::bind().await;
    let mesh = Mesh::start("ch15_6", &[]).await;
    mesh.server.set(at("ch15_6", &listener.address.to_string()));
    mesh.channel.connect();
    let mut peer = listener.accept().await;
    mesh.channel.wait_ready(Duration::from_secs(20)).await.unwrap();
    while !peer.is_quiet() {
        peer.read_once().await;
    }
    for (body, expected) in [
        (Given::of([b"hello".to_vec()]), vec![(HEADERS, END_HEADERS), (DATA, END_STREAM)]),
        (Given::default(), vec![(HEADERS, END_HEADERS | END_STREAM)]),
    ] {
        let call = mesh.call("/a", body);
        let frames: Vec<_> = peer.read_once().await.iter().map(|it| (it.kind, it.flags)).collect();
        assert_eq!(frames, expected);
        call.abort();
        // The reset.
        peer.read_once().await;
    }
}

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
