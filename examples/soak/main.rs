//! A soak test of the client: real sockets, real time, and random faults.
//!
//! ```console
//! $ cargo run --release --example soak -- --minutes 10
//! ```
//!
//! Two authorities have a primary and a fallback server each, behind proxies, all in this process. Their resources
//! change all the time, while connections are cut and stalled, servers freeze, stop and restart, and resources are
//! invalidated, deleted and restored. In the end all faults are repaired, and every watcher must agree with its
//! primary server within the maximum backoff. The exit code is 1 if one does not, or if one ever lost a good value
//! that was not deleted.

mod args;
mod faults;
#[path = "../common/print_line.rs"]
mod print_line;
mod report;
mod watchers;
mod world;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinSet, time::sleep};
use xdskit::Client;

use args::Args;
use print_line::print_line;
use report::{Agreement, Left, Memory, Report};
use watchers::Watchers;
use world::World;

#[tokio::main]
async fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => args,
        Ok(None) => {
            print_line(USAGE.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!(
                "soak: {error}\nusage: soak [--minutes N | --seconds N] [--seed N]; soak --help has the rest"
            );
            return ExitCode::from(2);
        }
    };
    print_line(format_args!("soak for {:?}, seed {}", args.time, args.seed));
    match soak(args).await {
        Ok(report) => {
            print_line(report.to_string().trim_end());
            if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn soak(args: Args) -> Result<Report, String> {
    let world = Arc::new(World::start().await.map_err(|e| e.to_string())?);
    let tasks = Handle::current().metrics().num_alive_tasks();
    let client = Client::builder(world.bootstrap()?)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .build()
        .map_err(|e| e.to_string())?;
    let watchers = Watchers::start(&client, &world);
    if let Err(missing) = watchers.agree(&world, Duration::from_secs(30)).await {
        return Err(format!("not all is served at the start: {missing:?}"));
    }
    let before = Memory::now();

    let deadline = Instant::now() + args.time;
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut busy = JoinSet::new();
    for site in 0..world.sites().len() {
        busy.spawn(faults::break_site(world.clone(), site, random.fork(), deadline));
    }
    busy.spawn(faults::spoil(world.clone(), random.fork(), deadline));
    busy.spawn(world::keep_changing(world.clone(), random.fork(), deadline));
    busy.spawn(world::keep_visiting(world.clone(), client.clone(), random.fork(), deadline));
    while busy.join_next().await.is_some() {}

    // All faults are repaired: from here on, every change must reach every watcher.
    let bound = recovery(watchers.longest_silence());
    let healed = Instant::now();
    world.finish();
    let disagreeing = watchers.agree(&world, bound + Duration::from_secs(60)).await.err().unwrap_or_default();
    let agreement = Agreement { time: healed.elapsed(), bound, watchers: watchers.count(), disagreeing };
    let memory = (before, Memory::now());

    let counters = watchers.end();
    client.shutdown().await;
    drop(client);
    let left = left(&world, tasks).await;
    let faults = world.faults();
    Ok(Report { updates: world.updates(), visits: world.visits(), counters, faults, agreement, memory, left })
}

/// The maximum time until a client that received nothing from a server for this long receives from it again. It
/// detects a dead connection by its keepalive, and by then has waited through delays of 1 s, 1.6 s, 1.6² s …, of
/// which the next is at most three quarters of their sum, and one second; all 20 % more or less. One second is for
/// the processing itself.
fn recovery(silence: Duration) -> Duration {
    let delay = (1.0 + 0.75 * silence.as_secs_f64()).min(120.0);
    KEEPALIVE + KEEPALIVE_TIMEOUT + Duration::from_secs_f64(1.2 * delay) + Duration::from_secs(1)
}

/// Waits briefly for tasks and connections to end, and counts those that do not.
async fn left(world: &World, tasks_before: usize) -> Left {
    let begin = Instant::now();
    loop {
        let tasks = Handle::current().metrics().num_alive_tasks().saturating_sub(tasks_before);
        let left = Left { tasks, streams: world.streams() };
        if left == (Left { tasks: 0, streams: 0 }) || begin.elapsed() > Duration::from_secs(20) {
            return left;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

const USAGE: &str = "\
usage: soak [--minutes N | --seconds N] [--seed N]

Breaks the connections of a client at random, and reports what it lost.

  --minutes N, --seconds N  how long; 10 minutes by default
  --seed N                  which faults; a random number by default
";
const KEEPALIVE: Duration = Duration::from_secs(2);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(1);
