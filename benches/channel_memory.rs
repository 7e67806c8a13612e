//! What a channel allocates for a call, and what it holds for an endpoint (CH11.10).
//!
//! ```console
//! $ cargo bench --bench channel_memory     # --quick for a short run
//! ```
//!
//! Each case is measured in a process of its own, and the servers are another one, so that nothing else is counted.

#[allow(dead_code, reason = "every bench uses a part of it")]
mod calls;

use std::{alloc::System, env, future::Future, hint::black_box, net::SocketAddr, process::Command};

use calls::{
    backends::{self, Backends, Placement},
    clients::Client,
    features::{FEATURES, Feature},
    load::{self, Load},
    mesh::{Mesh, TARGET},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};
use tokio::runtime::{Builder, Runtime};
use xdskit::channel::ChannelState;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    if backends::serve_if_requested() {
        return;
    }
    let args: Vec<_> = env::args().skip(1).collect();
    if let Some([case, client, count]) = args.strip_prefix(&[ROLE.to_owned()]) {
        return println!("{}", measure(case, client, count.parse().expect("a number")));
    }
    let is_quick = args.iter().any(|arg| arg == "--quick");
    println!(
        "allocations of a unary call of 100 B\n\n| endpoints | h2 | tonic | channel |\n|---:|---:|---:|---:|"
    );
    for count in [1, 10] {
        let of = |client| report("call", client, count);
        println!("| {count} | {:.2} | {:.2} | {:.2} |", of("h2"), of("tonic"), of("channel"));
    }
    println!(
        "\nallocations of a unary call of 100 B to 10 endpoints\n\n| feature | allocations |\n|---|---:|"
    );
    for (number, (name, _)) in FEATURES.iter().enumerate() {
        println!("| {name} | {:.2} |", report("feature", &number.to_string(), 10));
    }
    let connected = if is_quick { 50 } else { 250 };
    println!(
        "\nbytes held for each of {connected} idle connections\n\n| h2 | tonic | channel |\n|---:|---:|---:|"
    );
    let of = |client| report("connected", client, connected);
    println!("| {:.0} | {:.0} | {:.0} |", of("h2"), of("tonic"), of("channel"));
    let refused = if is_quick { 1_000 } else { 10_000 };
    println!("\nbytes held for each of {refused} endpoints that refuse connections\n");
    println!("| by the resolution alone | with the channel |\n|---:|---:|");
    println!(
        "| {:.0} | {:.0} |",
        report("refused", "resolution", refused),
        report("refused", "channel", refused)
    );
}

/// Measures a case in a process of its own.
fn report(case: &str, client: &str, count: usize) -> f64 {
    let program = env::current_exe().expect("this program has a path");
    let measured = Command::new(program).args([ROLE, case, client, &count.to_string()]).output();
    let measured = measured.expect("it can be started");
    let text = String::from_utf8_lossy(&measured.stdout);
    let value = text.trim().parse();
    value.unwrap_or_else(|_| panic!("{case} of {client}: {}", String::from_utf8_lossy(&measured.stderr)))
}

fn measure(case: &str, client: &str, count: usize) -> f64 {
    match case {
        "call" => allocations(client, &[], count),
        "feature" => {
            let number: usize = client.parse().expect("a number");
            allocations("channel", FEATURES[number].1, count)
        }
        "connected" => connected(client, count),
        _ => refused(client, count),
    }
}

/// The allocations for each of some calls, one at a time.
fn allocations(name: &str, features: &[Feature], count: usize) -> f64 {
    let backends = Backends::start(count, Placement::Pinned);
    let mesh = Mesh::with(&backends.addresses, features);
    let runtime = runtime();
    let client = client(name, &runtime, &backends.addresses, &mesh);
    let load = Load { calls: 2_000, in_flight: 1, size: 100 };
    load::assert_all_succeed(&client.run(&runtime, load));
    let before = made(&ALLOCATOR.stats());
    load::assert_all_succeed(&client.run(&runtime, load));
    (made(&ALLOCATOR.stats()) - before) as f64 / load.calls as f64
}

/// The bytes for each connection when there is nothing to do.
fn connected(name: &str, count: usize) -> f64 {
    let mut backends = Backends::start(count, Placement::Pinned);
    let mesh = Mesh::start(&backends.addresses);
    let runtime = runtime();
    let before = held(&ALLOCATOR.stats());
    let client = client(name, &runtime, &backends.addresses, &mesh);
    while backends.connections() < count {
        let load = Load { calls: 4 * count, in_flight: 16, size: 100 };
        load::assert_all_succeed(&client.run(&runtime, load));
    }
    let after = held(&ALLOCATOR.stats());
    black_box(client);
    (after - before) as f64 / count as f64
}

/// The bytes for each endpoint of which none accepts connections.
fn refused(name: &str, count: usize) -> f64 {
    // Nobody listens on the first port of these addresses of loopback.
    let address = |number: usize| SocketAddr::from(([127, 1, (number >> 8) as u8, number as u8], 1));
    let addresses: Vec<_> = (0..count).map(address).collect();
    let mesh = Mesh::start(&addresses);
    let runtime = runtime();
    let before = held(&ALLOCATOR.stats());
    let _within = runtime.enter();
    let client = mesh.client();
    if name == "resolution" {
        let mut resolution = client.resolve(TARGET);
        let snapshot = bounded(&runtime, async { resolution.ready().await.expect("it is there") });
        let after = held(&ALLOCATOR.stats());
        black_box(snapshot);
        return (after - before) as f64 / count as f64;
    }
    let channel = client.channel(TARGET).build().expect("the target is valid");
    channel.connect();
    let mut states = channel.watch_state();
    bounded(&runtime, async {
        while states.next().await.expect("it runs") != ChannelState::TransientFailure {}
    });
    let after = held(&ALLOCATOR.stats());
    black_box(channel);
    (after - before) as f64 / count as f64
}

fn client(name: &str, runtime: &Runtime, addresses: &[SocketAddr], mesh: &Mesh) -> Client {
    let _within = runtime.enter();
    match name {
        "h2" => runtime.block_on(Client::direct(addresses)),
        "tonic" => Client::tonic(addresses),
        _ => Client::xdskit(mesh),
    }
}

fn bounded<T>(runtime: &Runtime, future: impl Future<Output = T>) -> T {
    let within = async { tokio::time::timeout(std::time::Duration::from_secs(30), future).await };
    runtime.block_on(within).expect("it takes less than 30 s")
}

fn made(stats: &Stats) -> usize {
    stats.allocations + stats.reallocations
}

fn held(stats: &Stats) -> isize {
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The first argument of a process that measures.
const ROLE: &str = "measure";
