//! Walks from targets over listeners, routes and clusters to endpoints, and shows what it finds, on each change, as trees
//! for people or as JSON.

mod display;
mod report;
mod screen;

use std::{io, process::ExitCode, sync::Arc, time::SystemTime};

use futures_util::{FutureExt, StreamExt, stream};

use self::{display::Display, report::report};
use super::{
    args::Args,
    program::{self, Program, Stop},
};
use crate::{Target, WatchError, config::Bootstrap, resolve::Snapshot};

pub(super) fn main() -> ExitCode {
    let needs = Some("TARGET, such as xds:///shop,");
    Program { name: "walk", usage: USAGE, needs, takes_headers: true }.main(run)
}

/// The client works on the runtime's thread. This one looks and prints: if nobody reads what it prints, the client is not
/// held up, and states that nobody saw are skipped.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn run(args: &Args<String>, bootstrap: Bootstrap) -> io::Result<()> {
    let client = program::client(args, bootstrap)?;
    let mut output = Output::new(args);
    let resolutions = args.targets.iter().enumerate().map(|(index, target)| {
        let target = Target::new(target.as_str());
        let target = args
            .headers
            .iter()
            .fold(target, |target, (name, value)| target.with_header(name.as_str(), value.as_str()));
        let resolution = client.resolve(target);
        resolution.map(move |seen| (index, seen))
    });
    let mut seen = stream::select_all(resolutions.collect::<Vec<_>>());

    let stop = Stop::on_interrupt();
    loop {
        tokio::select! {
            biased;
            () = stop.wanted() => return Ok(()),
            Some(first) = seen.next() => {
                output.show(first)?;
                // What is there already is drawn at once.
                for _ in 1..args.targets.len() {
                    let Some(Some(next)) = seen.next().now_or_never() else { break };
                    output.show(next)?;
                }
                output.flush()?;
            }
        }
    }
}

/// What is shown of the targets, which go by their numbers.
enum Output {
    /// The last line of each.
    Json {
        targets: Vec<String>,
        told: Vec<String>,
    },
    Text(Display),
}

impl Output {
    fn new(args: &Args<String>) -> Self {
        let targets = args.targets.clone();
        if args.json {
            return Self::Json { told: vec![String::new(); targets.len()], targets };
        }
        Self::Text(Display::new(targets, &io::stdout()))
    }

    fn show(&mut self, (index, seen): (usize, Seen)) -> io::Result<()> {
        match self {
            Self::Json { targets, told } => {
                let line = report(&targets[index], &seen);
                if line == told[index] {
                    return Ok(());
                }
                told[index] = line;
                program::print(&told[index])
            }
            Self::Text(display) => {
                display.show(index, seen, SystemTime::now());
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Json { .. } => Ok(()),
            Self::Text(display) => program::print(&display.draw()),
        }
    }
}

/// What a target resolves to.
type Seen = Result<Arc<Snapshot>, WatchError>;

const USAGE: &str = "\
Walks from targets over listeners, routes and clusters to endpoints, and shows what it finds, on each change.

usage: walk --bootstrap PATH [--protocol sotw|delta] [--resource-timeout SECONDS] [--header NAME=VALUE]... [--json]
            TARGET...

  TARGET                       xds:///name, or xds://authority/name
  --bootstrap PATH             a bootstrap, in gRPC's format or in Envoy's
  --protocol sotw|delta        state of the world, the default, or incremental, where the bootstrap does not say it
  --resource-timeout SECONDS   how long a server may take before a resource counts as non-existent (15)
  --header NAME=VALUE          a header of the requests, of several if repeated: it chooses the routes where these have
                               scopes (SRDS)
  --json                       one JSON object a line instead of trees for people

It runs until it is interrupted (Ctrl-C). RUST_LOG=debug shows what the client does.

Marks in a tree: ● can be used, ◌ draining, ! may be stale, ✗ cannot be used.
";
