//! What a call costs the client with a client of the crate `grpc`, beside tonic's client on the same channel, in turns. That crate's own
//! channel is measured by `benches/peers/run.sh calls`.
//!
//! ```console
//! $ cargo bench --bench channel_grpc       # --quick for a short run
//! ```
//!
//! The servers are a process of their own, on another core than the client; see `benches/channel.rs`.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "every bench uses a part of it")]
mod calls;
#[allow(dead_code, reason = "every bench uses a part of it")]
mod ratio;

use std::env;

use calls::{
    backends::{self, Backends, Placement},
    clients::Client,
    cores,
    load::{self, Load},
    mesh::Mesh,
};
use ratio::Samples;
use tokio::runtime::Builder;

fn main() {
    if backends::serve_if_requested() {
        return;
    }
    let rounds = if env::args().any(|arg| arg == "--quick") { 3 } else { 41 };
    cores::pin_client();
    let backends = Backends::start(1, Placement::Pinned);
    let mesh = Mesh::start(&backends.addresses);
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clients = {
        let _within = runtime.enter();
        let channel = mesh.channel().build().expect("the target is valid");
        [("tonic", Client::Xdskit(channel.clone())), ("grpc", Client::Invoke(channel))]
    };
    println!(
        "\ncalls: CPU of the client's thread and p50 for each, in µs; medians of {rounds} rounds in turns\n"
    );
    println!(
        "| message | in flight | tonic, CPU | grpc, CPU | beside tonic | tonic, p50 | grpc, p50 | beside tonic |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (size, in_flight, calls) in
        [(100, 64, 4_000), (100, 1, 500), (64 << 10, 64, 1_000), (64 << 10, 1, 200)]
    {
        let load = Load { calls, in_flight, size };
        let (mut cpu, mut p50) = (Samples::default(), Samples::default());
        // The first round connects, and is not counted.
        for round in 0..=rounds {
            let mut unused = [Samples::default(), Samples::default()];
            let [unused_cpu, unused_p50] = &mut unused;
            let (cpu, p50) = if round == 0 { (unused_cpu, unused_p50) } else { (&mut cpu, &mut p50) };
            for (name, client) in &clients {
                let calls = cpu.measure(name, load.calls, || client.run(&runtime, load));
                load::assert_all_succeed(&calls);
                p50.add(name, load::quantile(&calls, 0.5));
            }
        }
        println!(
            "| {size} B | {in_flight} | {:.2} | {:.2} | {:.2} x | {:.1} | {:.1} | {:.2} x |",
            cpu.median("tonic") / 1e3,
            cpu.median("grpc") / 1e3,
            cpu.ratio("grpc", "tonic"),
            p50.median("tonic") / 1e3,
            p50.median("grpc") / 1e3,
            p50.ratio("grpc", "tonic"),
        );
    }
}
