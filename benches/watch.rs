//! What watches cost on a real connection: `cargo bench --bench watch`, or with `-- --quick` a short form of it.
//!
//! - *watch*: many watches that begin on a live stream, some time apart: the requests that they cost, and their bytes beside
//!   those of the longest one, which names everything. Then one at a time: how long until the server has the request.
//! - *fan-out*: many watchers of one resource: how long from the change at the server until the last of them has seen it,
//!   beside as many receivers of a `watch` channel of tokio, and how long the client's task is held at once.
//! - *idle*: how often a client wakes in a minute in which nothing happens, on a clock that is turned by hand.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

mod fan_out;
#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use ratio::median;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};
use xdskit::{
    Bootstrap, Client, Watch,
    client::ClientBuilder,
    config::Server,
    control_plane::{ControlPlane, Event},
    resource::ClusterLoadAssignment,
    testing::resources::{EndpointsBuilder, endpoints},
};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let place = Place::new();
    match quick {
        true => {
            watch(&place, 1_000, 1);
            delay(&place, 11);
            fan_out::measure(&place, &[1_000], 3);
        }
        false => {
            watch(&place, 10_000, 5);
            delay(&place, 201);
            fan_out::measure(&place, &[1_000, 10_000, 100_000], 21);
        }
    }
    idle(&place);
}

/// A server, in a runtime of its own, and what it has been asked.
struct Place {
    servers: Runtime,
    clients: Runtime,
    control_plane: ControlPlane,
    addr: String,
    requests: mpsc::Receiver<Asked>,
}

/// A request, as the server got it.
struct Asked {
    at: Instant,
    bytes: usize,
}

impl Place {
    fn new() -> Self {
        let servers = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let clients = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        let (asked, requests) = mpsc::channel();
        let observe = move |event: &Event| {
            if let Event::Request { bytes, .. } = event {
                // Nobody listens any more when all is over.
                let _ = asked.send(Asked { at: Instant::now(), bytes: *bytes });
            }
        };
        let control_plane = ControlPlane::builder().observe(observe).build();
        let server = servers.block_on(control_plane.serve("127.0.0.1:0")).expect("a port");
        let addr = server.addr().to_string();
        servers.spawn(async move {
            std::future::pending::<()>().await;
            drop(server);
        });
        Self { servers, clients, control_plane, addr, requests }
    }

    fn client(&self) -> ClientBuilder {
        let server = Server::new(self.addr.as_str()).insecure();
        let bootstrap = Bootstrap::builder().server(server).build().expect("it is valid");
        Client::builder(bootstrap).keep_alive_interval(Duration::from_secs(3_600))
    }

    /// A client with one watch that is served and answered: on a live stream.
    fn live(&self) -> (Client, Watch<ClusterLoadAssignment>) {
        self.control_plane.set(assignment("first"));
        let _within = self.clients.enter();
        let client = self.client().build().expect("it is valid");
        let mut first = client.watch("first");
        self.clients.block_on(first.ready()).expect("it is there");
        self.quiet();
        (client, first)
    }

    /// Waits until no requests come any more; gives those that came.
    fn quiet(&self) -> Vec<Asked> {
        let next = || self.requests.recv_timeout(Duration::from_millis(300)).ok();
        std::iter::from_fn(next).collect()
    }
}

fn watch(place: &Place, count: usize, rounds: usize) {
    println!("watch: {count} on a live stream, medians of {rounds} rounds");
    println!("{:<10}{:>10}{:>12}{:>22}", "µs apart", "requests", "bytes", "x the longest request");
    let names: Vec<_> = (0..count).map(|i| format!("service-{i:05}.example.com")).collect();
    place.control_plane.update(|tx| {
        for name in &names {
            tx.set(assignment(name));
        }
    });
    for apart in [0, 20, 50] {
        let taken: Vec<_> =
            (0..rounds).map(|_| watch_once(place, &names, Duration::from_micros(apart))).collect();
        let of = |number: fn(&(usize, usize, f64)) -> f64| median(taken.iter().map(number));
        let (requests, bytes, times) = (of(|t| t.0 as f64), of(|t| t.1 as f64), of(|t| t.2));
        println!("{apart:<10}{requests:>10.0}{bytes:>12.0}{times:>22.2}");
    }
}

/// The requests, their bytes, and how often the longest of them these are.
fn watch_once(place: &Place, names: &[String], apart: Duration) -> (usize, usize, f64) {
    let (client, _first) = place.live();
    let mut watches: Vec<Watch<ClusterLoadAssignment>> = Vec::with_capacity(names.len());
    let mut due = Instant::now();
    for name in names {
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        due += apart;
        watches.push(client.watch(name));
    }
    for watch in &mut watches {
        place.clients.block_on(watch.ready()).expect("it is there");
    }
    let asked = place.quiet();
    let bytes: usize = asked.iter().map(|asked| asked.bytes).sum();
    let longest = asked.iter().map(|asked| asked.bytes).max().unwrap_or(0);
    place.clients.block_on(client.shutdown());
    (asked.len(), bytes, bytes as f64 / longest as f64)
}

/// The time from a watch until the server has its request, beside a message to a server and back without any protocol.
fn delay(place: &Place, rounds: usize) {
    let (client, _first) = place.live();
    let mut plain = place.servers.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("it has one");
        tokio::spawn(async move { echo(listener).await });
        place.clients.spawn(TcpStream::connect(addr)).await.expect("it runs").expect("it listens")
    });
    plain.set_nodelay(true).expect("it is connected");
    let (mut until_asked, mut there_and_back) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let name = format!("late-{round}");
        place.control_plane.set(assignment(&name));
        let start = Instant::now();
        let mut late: Watch<ClusterLoadAssignment> = client.watch(&name);
        let asked = place.requests.recv().expect("the server runs");
        until_asked.push((asked.at - start).as_secs_f64() * 1e6);
        place.clients.block_on(late.ready()).expect("it is there");
        place.quiet();
        let start = Instant::now();
        plain = place.clients.block_on(place.clients.spawn(there_and_back_again(plain))).expect("it runs");
        there_and_back.push(start.elapsed().as_secs_f64() * 1e6);
    }
    println!("\na single watch, medians of {rounds} rounds");
    println!("{:<52}{:>8.0} µs", "until the server has the request", median(until_asked.into_iter()));
    println!("{:<52}{:>8.0} µs", "a message over TCP and back", median(there_and_back.into_iter()));
    place.clients.block_on(client.shutdown());
}

async fn echo(listener: TcpListener) {
    let (mut peer, _) = listener.accept().await.expect("it connects");
    peer.set_nodelay(true).expect("it is connected");
    let mut message = [0; MESSAGE];
    while peer.read_exact(&mut message).await.is_ok() {
        peer.write_all(&message).await.expect("it is connected");
    }
}

async fn there_and_back_again(mut to: TcpStream) -> TcpStream {
    let mut message = [1; MESSAGE];
    to.write_all(&message).await.expect("it is connected");
    to.read_exact(&mut message).await.expect("it is echoed");
    to
}

/// How often the client's task is polled, and how often its whole runtime wakes, in a minute without news.
fn idle(place: &Place) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (polls, parked_without, parked) = runtime.block_on(async {
        place.control_plane.set(assignment("first"));
        let (client, driver) = place.client().build_with_driver().expect("it is valid");
        let polls = Arc::new(AtomicU64::new(0));
        tokio::spawn(counted(driver, polls.clone()));
        let mut first: Watch<ClusterLoadAssignment> = client.watch("first");
        first.ready().await.expect("it is there");
        // What is under way comes to its end, and so do the times that begin with a stream.
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let parks = || tokio::runtime::Handle::current().metrics().worker_park_count(0);
        let (polls_before, parks_before) = (polls.load(Ordering::Relaxed), parks());
        tokio::time::sleep(Duration::from_secs(60)).await;
        let result = (polls.load(Ordering::Relaxed) - polls_before, parks() - parks_before);
        client.shutdown().await;
        let before = parks();
        tokio::time::sleep(Duration::from_secs(60)).await;
        (result.0, parks() - before, result.1)
    });
    println!("\nidle: in a minute with one watch on a live stream");
    println!("{:<52}{polls:>8}", "polls of the client's task");
    println!("{:<52}{parked:>8}", "rests of the runtime, with the one of this minute");
    println!("{:<52}{parked_without:>8}", "the same without a client");
}

/// Counts how often a future is polled.
async fn counted(future: impl Future<Output = ()>, polls: Arc<AtomicU64>) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await;
}

fn assignment(name: &str) -> EndpointsBuilder {
    endpoints(name).locality("r", "z", ["10.0.0.1:80"])
}

/// About as long as a request with one name.
const MESSAGE: usize = 100;
