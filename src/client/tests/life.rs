//! The lifetime of connections, in virtual time.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;

use super::*;
use crate::{
    config::Server,
    transport::{ConnectRequest, Connection, ConnectionEvents, Transport},
};

/// A network in which all servers are reachable, and none responds.
#[derive(Debug, Clone, Default)]
pub(super) struct Network {
    open: Arc<AtomicUsize>,
    /// The lengths of all requests.
    sent: Arc<Mutex<Vec<usize>>>,
    /// The events of each connection, in the order of connecting.
    events: Arc<Mutex<Vec<ConnectionEvents>>>,
}

#[derive(Debug)]
struct Line {
    open: Arc<AtomicUsize>,
    sent: Arc<Mutex<Vec<usize>>>,
    events: ConnectionEvents,
}

impl Network {
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn made(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// The lengths of all requests that were sent.
    pub(super) fn sent(&self) -> Vec<usize> {
        self.sent.lock().unwrap().clone()
    }

    /// Receives a message on the last connection.
    pub(super) fn receive(&self, message: Bytes) {
        self.events.lock().unwrap().last().unwrap().received(message);
    }

    pub(super) fn client(&self) -> ClientBuilder {
        let bootstrap = Bootstrap::builder().server(Server::new("localhost:1").insecure()).build().unwrap();
        Client::builder(bootstrap).transport(self.clone())
    }
}

impl Transport for Network {
    fn connect(&self, _: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
        events.alive();
        events.connected();
        self.open.fetch_add(1, Ordering::Relaxed);
        self.events.lock().unwrap().push(events.clone());
        Box::new(Line { open: self.open.clone(), sent: self.sent.clone(), events })
    }
}

impl Connection for Line {
    fn send(&mut self, message: Bytes) {
        self.sent.lock().unwrap().push(message.len());
        self.events.request_sent();
    }

    fn read(&mut self) {}
}

impl Drop for Line {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_made_for_the_first_watch_and_lingers_after_the_last() {
    let network = Network::default();
    let client = network.client().build().unwrap();
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(network.made(), 0, "there are no subscriptions");
    for _ in 0..3 {
        let watch = client.watch::<Text>("a");
        sleep(Duration::from_secs(1000)).await;
        assert_eq!((network.open(), network.made()), (1, 1));
        drop(watch);
        sleep(Duration::from_secs(29)).await;
        assert_eq!(network.open(), 1, "within the 30 s of the default");
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!((network.open(), network.made()), (0, 1));
    let _again = client.watch::<Text>("a");
    sleep(Duration::from_millis(1)).await;
    assert_eq!((network.open(), network.made()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_linger_time_is_a_setting() {
    let network = Network::default();
    let client = network.client().idle_stream_timeout(Duration::from_secs(5)).build().unwrap();
    let watch = client.watch::<Text>("a");
    sleep(Duration::from_secs(1)).await;
    drop(watch);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(network.open(), 1);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(network.open(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_all_at_once_without_lingering() {
    let network = Network::default();
    let (client, driver) = network.client().build_with_driver().unwrap();
    let driver = tokio::spawn(driver);
    let (watch, handle) = (client.watch::<Text>("a"), client.clone());
    sleep(Duration::from_secs(1)).await;
    drop((client, handle));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(network.open(), 1, "a watch is a handle, too");
    let before = tokio::time::Instant::now();
    drop(watch);
    driver.await.unwrap();
    assert_eq!((network.open(), before.elapsed()), (0, Duration::ZERO));
}

#[tokio::test]
async fn one_with_a_transport_of_its_own_is_shared_with_nobody() {
    let network = Network::default();
    let clients = [network.client().shared().unwrap(), network.client().shared().unwrap()];
    let _watches = clients.each_ref().map(|client| client.watch::<Text>("a"));
    while network.open() < 2 {
        tokio::task::yield_now().await;
    }
}

/// A transport that panics, in the driver.
#[derive(Debug)]
struct Panics;

impl Transport for Panics {
    fn connect(&self, _: ConnectRequest, _: ConnectionEvents) -> Box<dyn Connection> {
        panic!("as it should");
    }
}

#[tokio::test]
async fn a_panic_of_the_driver_ends_all_watches_and_is_logged() {
    let (log, _guard) = crate::test_log::Log::start("xdskit::background=error");
    let bootstrap = Bootstrap::builder().server(Server::new("localhost:1").insecure()).build().unwrap();
    let client = Client::builder(bootstrap).transport(Panics).build().unwrap();
    let (mut watch, mut resolution) = (client.watch::<Text>("a"), client.resolve("xds:///shop"));
    assert!(watch.next().await.is_none());
    assert!(resolution.next().await.is_none());
    assert!(client.watch::<Text>("b").next().await.is_none(), "one that begins later");
    client.shutdown().await;
    let panicked =
        "ERROR xdskit::background: background task panicked task=\"client\" reason=\"as it should\"";
    assert_eq!(log.lines(), [panicked]);
}
