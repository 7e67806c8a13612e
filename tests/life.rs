//! What watches and clients leave behind when they end: nothing, by the count of bytes, tasks, streams and names. And what calls
//! allocate.
//!
//! A test program of its own, since it counts all that the process allocates.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

#[path = "life/calls.rs"]
mod calls;
#[path = "it/common/mod.rs"]
mod common;
#[allow(unused_macros, dead_code, reason = "of the other test program")]
#[macro_use]
#[path = "it/transport.rs"]
mod transport;

use std::{
    alloc::System,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use common::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{runtime::Handle, sync::Mutex, time};
use transport::Transport;
use xdskit::{
    Client,
    control_plane::{ControlPlane, Event, ServerHandle},
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The tests take turns, for each counts what the whole process does.
static TURN: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn ten_thousand_watches_leave_nothing() {
    let _turn = TURN.lock().await;
    let world = World::start().await;
    let client = Transport::Sotw.builder(world.server.uri()).resource_timeout(DOUBT).build().unwrap();
    let mut anchor = client.watch::<Cluster>("anchor");
    soon(anchor.ready()).await.unwrap();
    // The first ones make room that the others use again.
    world.watch_and_unwatch(&client, 0..100).await;
    let before = world.calm_down(&client).await;
    world.watch_and_unwatch(&client, 100..200).await;
    let after = world.calm_down(&client).await;
    assert_eq!((after.names, after.streams, after.tasks), (1, 1, before.tasks), "{before:?}, {after:?}");
    let grown = after.bytes - before.bytes;
    // How much room is kept for unsubscribed names differs with how many are within a moment: up to 2.4 MB for all of
    // them. What a watch keeps while it lasts is more than 400 bytes.
    assert!(grown < 2_500_000, "250 bytes or more for each watch: {grown} bytes, {before:?}, {after:?}");
}

#[tokio::test]
async fn a_thousand_clients_leave_nothing() {
    let _turn = TURN.lock().await;
    let world = World::start().await;
    let live = |count: usize, shared: bool| {
        let world = &world;
        async move {
            for _ in 0..count {
                let builder = Transport::Sotw.builder(world.server.uri());
                let client = if shared { builder.shared() } else { builder.build() }.unwrap();
                let (mut shop, mut all) =
                    (client.watch::<Cluster>("shop-1"), client.watch::<Cluster>("shop-2"));
                soon(shop.ready()).await.unwrap();
                soon(all.ready()).await.unwrap();
                let _target = client.resolve("xds:///nobody");
            }
        }
    };
    live(100, false).await;
    live(100, true).await;
    world.alone().await;
    let before = world.left().await;
    live(500, false).await;
    live(500, true).await;
    world.alone().await;
    let after = world.left().await;
    assert_eq!((after.streams, after.tasks), (0, before.tasks), "{before:?}, {after:?}");
    let grown = after.bytes - before.bytes;
    assert!(grown < 20_000, "20 bytes or more for each client: {grown} bytes, {before:?}, {after:?}");
}

/// A control plane, and what it sees of its clients.
struct World {
    control_plane: ControlPlane,
    server: ServerHandle,
    /// How many names the newest request lists.
    names: Arc<AtomicUsize>,
    /// The tasks that run without any client.
    tasks: usize,
}

/// What there is at one time.
#[derive(Debug)]
struct Left {
    bytes: isize,
    tasks: usize,
    streams: usize,
    names: usize,
}

impl World {
    async fn start() -> Self {
        let names = Arc::new(AtomicUsize::new(0));
        let newest = names.clone();
        let control_plane = ControlPlane::builder()
            .observe(move |event| {
                if let Event::Request { request, .. } = event {
                    newest.store(request.names().len(), Ordering::Relaxed);
                }
            })
            .build();
        control_plane.update(|tx| {
            tx.set(cluster("anchor", "one"));
            for number in 0..AT_ONCE {
                tx.set(cluster(&format!("shop-{number}"), "one"));
            }
        });
        let server = control_plane.serve("127.0.0.1:0").await.unwrap();
        tokio::task::yield_now().await;
        let tasks = Handle::current().metrics().num_alive_tasks();
        Self { control_plane, server, names, tasks }
    }

    /// In each round, names that the server has, until they are served, and others that nobody has.
    async fn watch_and_unwatch(&self, client: &Client, rounds: std::ops::Range<usize>) {
        for round in rounds {
            let mut served: Vec<_> =
                (0..AT_ONCE).map(|number| client.watch::<Cluster>(format!("shop-{number}"))).collect();
            for watch in &mut served {
                soon(watch.ready()).await.unwrap();
            }
            let unserved: Vec<_> = (0..AT_ONCE)
                .map(|number| client.watch::<Cluster>(format!("nobody-{round}-{number}")))
                .collect();
            tokio::task::yield_now().await;
            drop((served, unserved));
        }
        until("the names are unsubscribed", || self.names.load(Ordering::Relaxed) == 1).await;
    }

    /// Lets the time pass after which the client may forget its unsubscriptions, and gives it an occasion to.
    async fn calm_down(&self, client: &Client) -> Left {
        time::pause();
        time::advance(2 * DOUBT).await;
        time::resume();
        soon(client.watch::<Cluster>("shop-0").ready()).await.unwrap();
        until("the name is unsubscribed", || self.names.load(Ordering::Relaxed) == 1).await;
        self.left().await
    }

    /// Waits until there is no client any more.
    async fn alone(&self) {
        until("streams and tasks end", || {
            self.control_plane.streams() == 0 && Handle::current().metrics().num_alive_tasks() == self.tasks
        })
        .await;
    }

    async fn left(&self) -> Left {
        let stats = ALLOCATOR.stats();
        Left {
            bytes: stats.bytes_allocated as isize - stats.bytes_deallocated as isize,
            tasks: Handle::current().metrics().num_alive_tasks(),
            streams: self.control_plane.streams(),
            names: self.names.load(Ordering::Relaxed),
        }
    }
}

/// Looks again and again, with a bound.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it takes too long until {what}");
        tokio::task::yield_now().await;
    }
}

/// How many watches are started together.
const AT_ONCE: usize = 50;

/// How long a server may take to send something, and so how long the client remembers unsubscribed names.
const DOUBT: Duration = Duration::from_millis(500);
