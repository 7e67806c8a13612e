//! What calls notice of changes: of 100 updates of the configuration a second, and of a server that is killed.
//!
//! ```console
//! $ cargo bench --bench channel_changes    # --quick for a short run
//! ```
//!
//! As in the bench `channel`, the servers are processes of their own on another core than the client's thread.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "every bench uses a part of it")]
mod calls;
#[allow(dead_code, reason = "every bench uses a part of it")]
mod ratio;

use std::{
    env,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use calls::{
    backends::{self, Backends, Placement},
    cores,
    load::{self, Call},
    mesh::{CLUSTER, Mesh, TARGET, assignment},
};
use ratio::Samples;
use tokio::runtime::{Builder, Runtime};
use xdskit::{
    Channel,
    pb::{
        envoy::config::cluster::v3::{CircuitBreakers, circuit_breakers::Thresholds},
        google::protobuf::UInt32Value,
    },
    testing::resources::{cluster, route, route_config},
};

fn main() {
    if backends::serve_if_requested() {
        return;
    }
    let is_quick = env::args().any(|arg| arg == "--quick");
    cores::pin_client();
    let rounds = if is_quick { 2 } else { 21 };
    updates(rounds, if is_quick { QUICK_ROUND } else { ROUND });
    killed(rounds);
}

/// Rounds without and with updates, in turns.
fn updates(rounds: usize, time: Duration) {
    let backends = Backends::start(10, Placement::Pinned);
    let mesh = Mesh::start(&backends.addresses);
    let runtime = runtime();
    let channel = connect(&runtime, &mesh);
    let (mut samples, mut failed, mut updates) = (Samples::default(), 0, 0);
    for _ in 0..rounds {
        for (name, is_changing) in [("quiet", false), ("changing", true)] {
            let end = Instant::now() + time;
            let updater = is_changing.then(|| {
                let (mesh, addresses) = (mesh.clone(), backends.addresses.clone());
                thread::spawn(move || update_until(end, &mesh, &addresses, updates))
            });
            let calls = runtime.block_on(load::run_while(&channel, LOAD, move || Instant::now() < end));
            if let Some(updater) = updater {
                updates = updater.join().expect("it does not panic");
            }
            failed += calls.iter().filter(|call| call.error.is_some()).count();
            samples.add(name, load::quantile(&calls, 0.99));
        }
    }
    println!("\n100 updates a second: medians of {rounds} rounds in turns\n");
    println!(
        "| updates | failed calls | p99 without, µs | p99 with, µs | ratio |\n|---:|---:|---:|---:|---:|"
    );
    println!(
        "| {updates} | {failed} | {:.0} | {:.0} | {:.2} x |",
        samples.median("quiet") / 1e3,
        samples.median("changing") / 1e3,
        samples.ratio("changing", "quiet")
    );
}

/// Changes the endpoints, the cluster and the routes in turn, after so many updates; gives the number of all.
fn update_until(end: Instant, mesh: &Mesh, addresses: &[SocketAddr], before: usize) -> usize {
    cores::pin_servers();
    let mut turn = before;
    while Instant::now() < end {
        turn += 1;
        let is_odd = turn / 3 % 2 == 1;
        let is_new = match turn % 3 {
            // One endpoint leaves, and comes back.
            0 => mesh.control_plane.set(assignment(&addresses[usize::from(is_odd)..])),
            1 => mesh.control_plane.set(cluster(CLUSTER).edit(|cluster| {
                let max_requests = Some(UInt32Value { value: if is_odd { 10_000 } else { 20_000 } });
                let thresholds = vec![Thresholds { max_requests, ..Thresholds::default() }];
                cluster.circuit_breakers = Some(CircuitBreakers { thresholds, ..CircuitBreakers::default() });
            })),
            _ => {
                let route = route::prefix("").cluster(CLUSTER).named(if is_odd { "odd" } else { "even" });
                mesh.control_plane.set(route_config("routes").virtual_host(["*"], [route]))
            }
        };
        assert!(is_new, "each update is a change");
        thread::sleep(BETWEEN_UPDATES);
    }
    turn
}

/// A server of ten is killed under load, which the control plane does not notice.
fn killed(rounds: usize) {
    let (mut failed, mut later) = (0, 0);
    for _ in 0..rounds {
        let (others, mut victim) =
            (Backends::start(9, Placement::Pinned), Backends::start(1, Placement::Pinned));
        let addresses = [&others.addresses[..], &victim.addresses].concat();
        let mesh = Mesh::start(&addresses);
        let runtime = runtime();
        let channel = connect(&runtime, &mesh);
        let killer = thread::spawn(move || {
            thread::sleep(BEFORE_KILL);
            victim.kill();
        });
        let end = Instant::now() + 2 * BEFORE_KILL;
        let calls = runtime.block_on(load::run_while(&channel, LOAD, move || Instant::now() < end));
        killer.join().expect("it does not panic");
        let (of_connection, after) = failures(&calls);
        failed += of_connection;
        later += after;
    }
    println!("\na killed server of ten, 64 calls in flight: {rounds} rounds\n");
    println!(
        "| calls that were running on its connection, a round | calls that began later and failed |\n|---:|---:|"
    );
    println!("| {:.1} | {later} |", failed as f64 / rounds as f64);
}

/// The calls that failed: those that had begun when the first one failed, and those that began later.
fn failures(calls: &[Call]) -> (usize, usize) {
    let failed = || calls.iter().filter(|call| call.error.is_some());
    let Some(first) = failed().map(|call| call.end).min() else { return (0, 0) };
    let later = failed().filter(|call| call.start > first).count();
    (failed().count() - later, later)
}

fn connect(runtime: &Runtime, mesh: &Mesh) -> Channel {
    let channel = {
        let _within = runtime.enter();
        mesh.client().channel(TARGET).build().expect("the target is valid")
    };
    let warm_up = load::Load { calls: 2_000, in_flight: 64, size: 100 };
    load::assert_all_succeed(&runtime.block_on(load::run(&channel, warm_up)));
    channel
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Calls in flight, and bytes of a message.
const LOAD: (usize, usize) = (64, 100);
const BETWEEN_UPDATES: Duration = Duration::from_millis(10);
/// How long a round of updates takes.
const ROUND: Duration = Duration::from_secs(2);
const QUICK_ROUND: Duration = Duration::from_millis(300);
const BEFORE_KILL: Duration = Duration::from_millis(300);
