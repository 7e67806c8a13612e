//! What it costs to record a call: `cargo bench --features fuzzing --bench telemetry`.
//!
//! The calls are not made: each is recorded from its start to its end, with one attempt, without a listener, with spans that nobody wants, and
//! with the metrics that are on by default, beside one addition to an atomic that nobody else touches. *API alone* is with instruments that
//! do nothing, which is what the channel does itself: it reads the clock and makes the labels. The rest is the SDK's. What all that is of a
//! whole call is in the table of features of the bench `channel`.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering},
};

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use ratio::{Candidate, Rounds};
use tracing_subscriber::fmt::MakeWriter;
use xdskit::{fuzzing::CallRecording, metrics::ChannelMetrics};

fn main() {
    let rounds = if env::args().any(|arg| arg == "--quick") { 3 } else { 101 };
    let exporter = InMemoryMetricExporter::default();
    let sdk = SdkMeterProvider::builder().with_periodic_exporter(exporter).build();
    let no_reader = SdkMeterProvider::builder().build();
    let recording = |provider: &SdkMeterProvider| {
        let metrics = ChannelMetrics::builder().all_methods().build(&provider.meter("bench"));
        CallRecording::with_metrics(&metrics)
    };
    let (none, api, all) = (CallRecording::new(), recording(&no_reader), recording(&sdk));
    let atomic = AtomicU64::new(0);
    println!("recording a call, ns, medians of {rounds} rounds in turns\n");
    print(
        vec![
            Candidate::kept("one atomic addition", || atomic.fetch_add(1, Ordering::Relaxed)),
            Candidate::kept("without a listener", || none.call()),
            Candidate::kept("metrics, API alone", || api.call()),
            Candidate::kept("metrics, SDK", || all.call()),
        ],
        rounds,
    );
    let subscriber = tracing_subscriber::fmt().with_writer(Nowhere);
    let _guard = tracing::subscriber::set_default(
        subscriber.with_env_filter("xdskit=trace,xdskit::call=info").finish(),
    );
    println!("\nwith a subscriber that wants all traces but those of calls\n");
    print(
        vec![
            Candidate::kept("one atomic addition", || atomic.fetch_add(1, Ordering::Relaxed)),
            Candidate::kept("spans nobody wants", || none.call()),
        ],
        rounds,
    );
}

fn print(candidates: Vec<Candidate<'_>>, rounds: usize) {
    for (name, taken, ratio) in Rounds::of(candidates, rounds).rows() {
        println!("{name:<26}{taken:>8.1}{ratio:>8.2}x");
    }
}

/// Where the log goes.
struct Nowhere;

impl<'a> MakeWriter<'a> for Nowhere {
    type Writer = std::io::Empty;

    fn make_writer(&'a self) -> Self::Writer {
        std::io::empty()
    }
}
