//! One resource, and many who watch it.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    time::Instant,
};

use tokio::sync::watch;
use xdskit::{Watch, resource::ClusterLoadAssignment, testing::resources::endpoints};

use super::{Place, assignment};
use crate::ratio::{median, spent};

/// Waits until all have arrived.
struct Arrivals {
    missing: AtomicUsize,
    all: mpsc::Sender<()>,
}

/// What a round took, in microseconds.
struct Taken {
    ours: f64,
    plain: f64,
    /// The longest time that the client's task was held at once.
    held: f64,
}

pub(super) fn measure(place: &Place, counts: &[usize], rounds: usize) {
    println!("\nfan-out: from a change to the last watcher, medians of {rounds} rounds in turns");
    println!(
        "{:<10}{:>14}{:>18}{:>8}{:>22}",
        "watchers", "µs", "tokio's watch, µs", "ratio", "µs the task is held"
    );
    for count in counts {
        let taken = fan_out(place, *count, rounds);
        let of = |number: fn(&Taken) -> f64| median(taken.iter().map(number));
        let (ours, plain, held) = (of(|taken| taken.ours), of(|taken| taken.plain), of(|taken| taken.held));
        let ratio = of(|taken| taken.ours / taken.plain);
        println!("{count:<10}{ours:>14.0}{plain:>18.0}{ratio:>8.2}{held:>22.0}");
    }
}

fn fan_out(place: &Place, count: usize, rounds: usize) -> Vec<Taken> {
    place.control_plane.set(assignment("first"));
    let (all, arrived) = mpsc::channel();
    let arrivals = Arc::new(Arrivals { missing: AtomicUsize::new(count), all });
    let longest = Arc::new(AtomicU64::new(0));
    let _within = place.clients.enter();
    let (client, driver) = place.client().build_with_driver().expect("it is valid");
    place.clients.spawn(timed(driver, longest.clone()));
    for _ in 0..count {
        let (watch, arrivals) = (client.watch::<ClusterLoadAssignment>("first"), arrivals.clone());
        place.clients.spawn(watch_all_news(watch, arrivals));
    }
    arrived.recv().expect("they run");
    let (plain, _) = watch::channel(0);
    for _ in 0..count {
        place.clients.spawn(receive_all(plain.subscribe(), arrivals.clone()));
    }
    place.quiet();
    let round = |round: usize| {
        arrivals.missing.store(count, Ordering::Release);
        longest.store(0, Ordering::Relaxed);
        let start = Instant::now();
        let changed = format!("10.0.0.2:{}", round + 1);
        place.control_plane.set(endpoints("first").locality("r", "z", [changed.as_str()]));
        arrived.recv().expect("they run");
        let ours = start.elapsed().as_secs_f64() * 1e6;
        place.quiet();
        let held = longest.load(Ordering::Relaxed) as f64 / 1e3;
        arrivals.missing.store(count, Ordering::Release);
        let start = Instant::now();
        plain.send(round).expect("they receive");
        arrived.recv().expect("they run");
        let plain = start.elapsed().as_secs_f64() * 1e6;
        place.quiet();
        Taken { ours, plain, held }
    };
    let taken = (0..rounds).map(round).collect();
    place.clients.block_on(client.shutdown());
    taken
}

impl Arrivals {
    fn arrive(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all.send(()).expect("it is waited for");
        }
    }
}

async fn watch_all_news(mut watch: Watch<ClusterLoadAssignment>, arrivals: Arc<Arrivals>) {
    while watch.next().await.is_some() {
        arrivals.arrive();
    }
}

async fn receive_all(mut receiver: watch::Receiver<usize>, arrivals: Arc<Arrivals>) {
    while receiver.changed().await.is_ok() {
        receiver.borrow_and_update();
        arrivals.arrive();
    }
}

/// Notes the longest time in nanoseconds that a future had the processor for at once.
async fn timed(future: impl Future<Output = ()>, longest: Arc<AtomicU64>) {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| {
        let start = spent();
        let polled = future.as_mut().poll(cx);
        longest.fetch_max((spent() - start).as_nanos() as u64, Ordering::Relaxed);
        polled
    })
    .await;
}
