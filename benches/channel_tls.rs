//! What a call over TLS costs the client: the channel beside tonic's own channel, to the same servers, in turns; and both without TLS.
//!
//! ```console
//! $ cargo bench --bench channel_tls        # --quick for a short run
//! ```
//!
//! Processes and cores are those of the bench `channel`.

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
    tls::Pki,
};
use ratio::Samples;
use tokio::runtime::Builder;

fn main() {
    if backends::serve_if_requested() {
        return;
    }
    let rounds = if env::args().any(|arg| arg == "--quick") { 3 } else { 41 };
    cores::pin_client();
    let pki = Pki::new();
    let secured = Backends::start_secured(1, Placement::Pinned, pki.folder());
    let plain = Backends::start(1, Placement::Pinned);
    let (secured_mesh, plain_mesh) = (Mesh::start(&secured.addresses), Mesh::start(&plain.addresses));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let clients = {
        let _within = runtime.enter();
        [
            ("tonic", Client::tonic(&plain.addresses)),
            ("channel", Client::xdskit(&plain_mesh)),
            ("tonic, TLS", Client::tonic_secured(secured.addresses[0], &pki)),
            ("channel, TLS", Client::xdskit_secured(&secured_mesh, &pki)),
        ]
    };
    println!("\ncalls over TLS: CPU of the client's thread in µs; medians of {rounds} rounds in turns\n");
    println!("| message | in flight | tonic | channel | tonic, TLS | channel, TLS | beside tonic with TLS |");
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for (size, in_flight, calls) in
        [(100, 64, 4_000), (100, 1, 500), (64 << 10, 64, 1_000), (64 << 10, 1, 200)]
    {
        let case = Load { calls, in_flight, size };
        let mut cpu = Samples::default();
        for round in 0..=rounds {
            // The first round connects.
            let mut unused = Samples::default();
            let samples = if round == 0 { &mut unused } else { &mut cpu };
            for (name, client) in &clients {
                let calls = samples.measure(name, case.calls, || client.run(&runtime, case));
                load::assert_all_succeed(&calls);
            }
        }
        let of = |name: &str| cpu.median(name) / 1e3;
        println!(
            "| {size} B | {in_flight} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} x |",
            of("tonic"),
            of("channel"),
            of("tonic, TLS"),
            of("channel, TLS"),
            cpu.ratio("channel, TLS", "tonic, TLS"),
        );
    }
}
