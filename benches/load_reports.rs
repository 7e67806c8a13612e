//! What load reports cost: `cargo bench --features fuzzing --bench load_reports`.
//!
//! Counting a call, from its start to its end, beside one addition to an atomic that nobody else touches; and building the report of
//! 1,000 clusters with 10 localities each, beside encoding the same message from its structs, which is the least that it could take.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use prost::Message;
use ratio::{Candidate, Rounds, Samples, spent};
use xdskit::{
    fuzzing::{CallCounting, LoadReporting},
    pb::{envoy::service::load_stats::v3::LoadStatsResponse, google::protobuf as google},
};

const ROUNDS: usize = 51;
const CALLS: u32 = 1_000_000;

fn main() {
    count_alone();
    count_together();
    build();
}

fn count_alone() {
    let (counting, idle) = (CallCounting::new(true), CallCounting::new(false));
    let atomic = AtomicU64::new(0);
    let candidates = vec![
        Candidate::kept("one atomic addition", || atomic.fetch_add(1, Ordering::Relaxed)),
        Candidate::kept("a call that is counted", || counting.call()),
        Candidate::kept("a call that is not", || idle.call()),
    ];
    println!("counting, ns, medians of {ROUNDS} rounds in turns\n");
    for (name, taken, ratio) in Rounds::of(candidates, ROUNDS).rows() {
        println!("{name:<26}{taken:>8.1}{ratio:>8.2}x");
    }
}

/// The time for each call, by the number of threads that count in the same locality.
fn count_together() {
    println!("\ncalls in one locality, ns for each call of the slowest thread\n");
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for threads in (0..).map(|power| 1 << power).take_while(|threads| *threads <= cores) {
        let counting = CallCounting::new(true);
        let count = || {
            let begin = spent();
            (0..CALLS).for_each(|_| counting.call());
            (spent() - begin).as_nanos() as f64 / f64::from(CALLS)
        };
        let taken = thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).fold(0.0, f64::max)
        });
        println!("{threads:>3} threads{taken:>8.1}");
    }
}

fn build() {
    let mut reporting = LoadReporting::new(1_000, 10);
    let interval = Some(google::Duration { seconds: 1, nanos: 0 });
    let all = LoadStatsResponse {
        send_all_clusters: true,
        load_reporting_interval: interval,
        ..LoadStatsResponse::default()
    };
    reporting.receive(&all.encode_to_vec());
    let (mut samples, mut size) = (Samples::default(), 0);
    for _ in 0..ROUNDS {
        reporting.call(true, None);
        size = samples.measure("built", 1, || reporting.pass(Duration::from_secs(1)));
        let messages = reporting.requests();
        let encode =
            || messages.iter().map(|message| black_box(message.encode_to_vec()).len()).sum::<usize>();
        assert_eq!(size, samples.measure("encoded", 1, encode));
    }
    let (built, encoded) = (samples.median("built") / 1e6, samples.median("encoded") / 1e6);
    println!("\na report of 1,000 clusters with 10 localities, {size} bytes, ms\n");
    println!(
        "encoded from structs {encoded:>8.2}\nbuilt {built:>23.2}{:>8.2}x",
        samples.ratio("built", "encoded")
    );
}
