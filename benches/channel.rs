//! What a call costs the client: the channel beside tonic's own channels, and beside HTTP/2 without more, to the same servers, in
//! turns (CH11.5).
//!
//! ```console
//! $ cargo bench --bench channel            # --quick for a short run; --only calls, features, cold or throughput for a part
//! ```
//!
//! The servers are a process of their own. On Linux the client's thread is pinned to the first core that the process may use, and
//! the servers to the last one; `taskset -c 2,3 cargo bench …` selects others.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "every bench uses a part of it")]
mod calls;
#[allow(dead_code, reason = "every bench uses a part of it")]
mod ratio;

use std::{env, time::Instant};

use calls::{
    backends::{self, Backends, Placement},
    clients::Client,
    cores,
    features::FEATURES,
    load::{self, Load},
    mesh::Mesh,
};
use ratio::Samples;
use tokio::runtime::{Builder, Runtime};

fn main() {
    if backends::serve_if_requested() {
        return;
    }
    let args: Vec<_> = env::args().skip(1).collect();
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let only = args.iter().position(|arg| arg == "--only").and_then(|place| args.get(place + 1));
    let is_part = |name: &str| only.is_none_or(|only| only == name);
    cores::pin_client();
    if is_part("calls") {
        cost_of_calls(if is_quick { 3 } else { 41 });
    }
    if is_part("features") {
        cost_of_features(if is_quick { 3 } else { 41 });
    }
    if is_part("cold") {
        first_calls(if is_quick { 5 } else { 101 });
    }
    if is_part("throughput") {
        throughput(if is_quick { 3 } else { 41 });
    }
}

/// CPU of the client's thread for a call, and its latency.
fn cost_of_calls(rounds: usize) {
    println!(
        "\ncalls: CPU of the client's thread and p50 for each, in µs; medians of {rounds} rounds in turns\n"
    );
    println!(
        "| endpoints | message | in flight | h2, CPU | tonic, CPU | channel, CPU | beside tonic | beyond h2, µs | \
         h2, p50 | tonic, p50 | channel, p50 | beside tonic |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for count in [1, 10] {
        let backends = Backends::start(count, Placement::Pinned);
        let mesh = Mesh::start(&backends.addresses);
        let runtime = runtime();
        let clients = {
            let _within = runtime.enter();
            [
                ("h2", runtime.block_on(Client::direct(&backends.addresses))),
                ("tonic", Client::tonic(&backends.addresses)),
                ("channel", Client::xdskit(&mesh)),
            ]
        };
        for (size, in_flight, calls) in
            [(100, 64, 4_000), (100, 1, 500), (64 << 10, 64, 1_000), (64 << 10, 1, 200)]
        {
            let case = Load { calls, in_flight, size };
            print_costs(count, case, &costs(&clients, &runtime, case, rounds));
        }
    }
}

/// CPU and p50 of each client; the first round connects, and is not counted.
fn costs(clients: &[(&'static str, Client)], runtime: &Runtime, load: Load, rounds: usize) -> [Samples; 2] {
    let mut costs = [Samples::default(), Samples::default()];
    for round in 0..=rounds {
        let mut unused = [Samples::default(), Samples::default()];
        let [cpu, p50] = if round == 0 { &mut unused } else { &mut costs };
        for (name, client) in clients {
            let calls = cpu.measure(name, load.calls, || client.run(runtime, load));
            load::assert_all_succeed(&calls);
            p50.add(name, load::quantile(&calls, 0.5));
        }
    }
    costs
}

fn print_costs(count: usize, load: Load, [cpu, p50]: &[Samples; 2]) {
    let Load { in_flight, size, .. } = load;
    let of = |samples: &Samples, name| samples.median(name) / 1e3;
    println!(
        "| {count} | {size} B | {in_flight} | {:.2} | {:.2} | {:.2} | {:.2} x | {:.2} | {:.1} | {:.1} | {:.1} | {:.2} x |",
        of(cpu, "h2"),
        of(cpu, "tonic"),
        of(cpu, "channel"),
        cpu.ratio("channel", "tonic"),
        cpu.difference("channel", "h2") / 1e3,
        of(p50, "h2"),
        of(p50, "tonic"),
        of(p50, "channel"),
        p50.ratio("channel", "tonic"),
    );
}

/// What a call costs the client's thread with each feature of the configuration, beside one without any.
fn cost_of_features(rounds: usize) {
    let backends = Backends::start(10, Placement::Pinned);
    let runtime = runtime();
    let clients = FEATURES.map(|(name, features)| {
        let _within = runtime.enter();
        (name, Client::xdskit(&Mesh::with(&backends.addresses, features)))
    });
    let (none, _) = FEATURES[0];
    for (in_flight, calls) in [(64, 4_000), (1, 500)] {
        let [cpu, _] = costs(&clients, &runtime, Load { calls, in_flight, size: 100 }, rounds);
        println!(
            "\nfeatures, {in_flight} in flight: CPU of the client's thread for each call of 100 B to 10 endpoints; \
             medians of {rounds} rounds in turns\n\n| feature | µs | beside none |\n|---|---:|---:|"
        );
        for (name, _) in FEATURES {
            println!("| {name} | {:.2} | {:.2} x |", cpu.median(name) / 1e3, cpu.ratio(name, none));
        }
    }
}

/// From nothing to the response of the first call: a client, its connection to the control plane, four resources in order, and a
/// connection to the endpoint.
fn first_calls(rounds: usize) {
    let backends = Backends::start(1, Placement::Pinned);
    let mesh = Mesh::start(&backends.addresses);
    let runtime = runtime();
    let _within = runtime.enter();
    let mut samples = Samples::default();
    for _ in 0..rounds {
        for name in ["tonic", "channel"] {
            let start = Instant::now();
            let client = match name {
                "tonic" => Client::tonic(&backends.addresses),
                _ => Client::xdskit(&mesh),
            };
            load::assert_all_succeed(&client.run(&runtime, Load { calls: 1, in_flight: 1, size: 100 }));
            samples.add(name, start.elapsed().as_nanos() as f64);
        }
    }
    println!("\nfirst call of a channel, in ms; medians of {rounds} rounds in turns\n");
    println!("| tonic | channel |\n|---:|---:|");
    println!("| {:.2} | {:.2} |", samples.median("tonic") / 1e6, samples.median("channel") / 1e6);
}

/// Calls a second on tokio's runtime as it comes, on all cores, which the servers share.
fn throughput(rounds: usize) {
    let load = Load { calls: 10_000, in_flight: 64, size: 100 };
    let backends = Backends::start(1, Placement::Free);
    let mesh = Mesh::start(&backends.addresses);
    cores::unpin();
    let runtime = Runtime::new().expect("a runtime");
    let _within = runtime.enter();
    let clients = [("tonic", Client::tonic(&backends.addresses)), ("channel", Client::xdskit(&mesh))];
    let mut samples = Samples::default();
    for round in 0..=rounds {
        for (name, client) in &clients {
            let start = Instant::now();
            load::assert_all_succeed(&client.run(&runtime, load));
            if round > 0 {
                samples.add(name, start.elapsed().as_nanos() as f64 / load.calls as f64);
            }
        }
    }
    cores::pin_client();
    println!(
        "\nthroughput of the multi-threaded runtime, calls a second; medians of {rounds} rounds in turns\n"
    );
    println!("| tonic | channel | beside tonic |\n|---:|---:|---:|");
    println!(
        "| {:.0} | {:.0} | {:.2} x |",
        1e9 / samples.median("tonic"),
        1e9 / samples.median("channel"),
        samples.ratio("tonic", "channel"),
    );
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
