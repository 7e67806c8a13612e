//! Resolves targets to listeners, routes, clusters and endpoints, and prints each change, as trees or as JSON.

mod display;
mod marks;
mod observe;
mod report;
mod screen;
mod trees;

use std::{env, io, process::ExitCode, sync::Arc, time::SystemTime};

use clap::Parser;
use futures_util::{FutureExt, StreamExt, future::join_all, stream};
use xdskit::{
    Target, WatchError,
    client::{Resolution, Validation},
    config::{Bootstrap, TargetError},
    resolve::{ClusterView, Snapshot},
};

use self::{display::Display, report::report};
use super::{
    args::{Header, Look},
    program::{self, Failure, Program, Stop},
};

/// Resolves targets to listeners, routes, clusters and endpoints, and prints the tree on each change.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "walk", after_help = HELP, args_override_self = true)]
pub(crate) struct WalkArgs {
    #[command(flatten)]
    look: Look,
    /// A header of the requests, of several if repeated: it chooses the routes where these have scopes (SRDS)
    #[arg(long = "header", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    headers: Vec<Header>,
    /// Draws the configuration of proxies: the chains of listeners, with their routes, clusters and endpoints. Resources that gRPC's
    /// rules reject are accepted, and marked with the reason
    #[arg(long)]
    observe: bool,
    // Hidden, to be rejected with a hint at `watch`.
    #[arg(long, hide = true)]
    raw: bool,
    /// xds:///name, or xds://authority/name; with --observe also the name of a listener, or a glob of such names. There `*`, which is
    /// all of them, is the default
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

/// Runs the example.
pub(super) fn main() -> ExitCode {
    Program::Example("walk").main(env::args_os().skip(1), run)
}

/// Shows the targets, once or until it is interrupted.
pub(super) fn run(program: Program, args: &WalkArgs) -> Result<(), Failure> {
    if args.raw {
        let why = "walk shows what resources lead to; xdskit watch shows their messages";
        return Err(Failure::Usage(format!("unknown option --raw: {why}: xdskit watch --raw 'listener=*'")));
    }
    // What is wrong with the command line comes before what is wrong with the bootstrap.
    if args.observe {
        observe::check(args)?;
    } else if args.targets.is_empty() {
        return Err(Failure::Usage("TARGET, such as xds:///shop, is missing".to_owned()));
    } else if program.is_strict() {
        args.targets.iter().try_for_each(|target| usable(target, Target::new(target.as_str()).check()))?;
    }
    // The warnings of a bootstrap are logged.
    program::log_to_stderr();
    let bootstrap = args.look.connect.bootstrap()?;
    if args.observe {
        return observe::run(args, bootstrap);
    }
    if program.is_strict() {
        args.targets.iter().try_for_each(|target| usable(target, bootstrap.listener_name(target)))?;
    }
    walk(args, bootstrap)
}

/// Rejects a target that can never be resolved, with a correction.
fn usable<T>(target: &str, checked: Result<T, TargetError>) -> Result<(), Failure> {
    let Err(error) = checked else { return Ok(()) };
    let hint = match error {
        TargetError::Invalid { .. } => {
            let name = target.split_once("://").map_or(target, |(_, name)| name).trim_start_matches('/');
            let name = name.strip_prefix("xds:").unwrap_or(name);
            format!("; write xds:///{}", if name.is_empty() { "shop" } else { name })
        }
        TargetError::UnknownAuthority { .. }
        | TargetError::Name { .. }
        | TargetError::NoServerTemplate
        | _ => String::new(),
    };
    Err(Failure::Usage(format!("{error}{hint}")))
}

/// The client runs on the thread of the runtime, and printing on this one: slow output does not delay the client, but
/// skips states.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn walk(args: &WalkArgs, bootstrap: Bootstrap) -> Result<(), Failure> {
    let client = args.look.client(bootstrap, Validation::Grpc)?;
    let mut output = Output::new(args);
    let resolutions: Vec<_> = args.targets().map(|target| client.resolve(target)).collect();

    let stop = Stop::on_interrupt();
    if args.look.once {
        return tokio::select! {
            // An interrupt comes first, even if the output is ready.
            biased;
            () = stop.requested() => Err(Failure::Missing),
            ended = once(resolutions, output) => ended,
        };
    }
    let numbered = resolutions.into_iter().enumerate();
    let mut seen = stream::select_all(numbered.map(|(index, one)| one.map(move |seen| (index, seen))));
    let mut resizes = Resizes::new(output.is_drawn())?;
    loop {
        tokio::select! {
            // An interrupt comes first, even while states change all the time.
            biased;
            () = stop.requested() => return Ok(()),
            () = resizes.next() => output.redraw()?,
            Some((index, first)) = seen.next() => {
                output.show(index, first)?;
                // All targets that are resolved already are drawn at once.
                for _ in 1..args.targets.len() {
                    let Some(Some((index, next))) = seen.next().now_or_never() else { break };
                    output.show(index, next)?;
                }
                output.flush()?;
            }
        }
    }
}

/// Prints the first tree of each target, in their order.
async fn once(resolutions: Vec<Resolution>, mut output: Output) -> Result<(), Failure> {
    let first = resolutions.into_iter().map(|mut resolution| async move { resolution.next().await });
    let mut missing = false;
    for (index, seen) in join_all(first).await.into_iter().enumerate() {
        let Some(seen) = seen else { return Err(Failure::Missing) };
        missing |= seen.as_ref().map_or(true, |snapshot| snapshot.clusters().any(is_incomplete));
        output.show(index, seen)?;
    }
    output.flush()?;
    if missing { Err(Failure::Missing) } else { Ok(()) }
}

/// Whether calls of a cluster would fail: it is unusable, or known to be without endpoints.
fn is_incomplete(cluster: ClusterView<'_>) -> bool {
    let is_empty = || cluster.usable_endpoints_of_all_priorities().next().is_none();
    cluster.unusable_reason().is_some() || cluster.assignment().is_some() && is_empty()
}

impl WalkArgs {
    /// The targets, with the headers of the command line.
    fn targets(&self) -> impl Iterator<Item = Target> {
        self.targets.iter().map(|target| {
            let target = Target::new(target.as_str());
            self.headers.iter().fold(target, |target, Header { name, value }| {
                target.with_header(name.as_str(), value.as_str())
            })
        })
    }
}

/// The output for the targets, which are identified by their indexes.
enum Output {
    /// The last line of each target.
    Json { targets: Vec<String>, printed: Vec<String> },
    /// The trees of all targets.
    Text(Display),
}

impl Output {
    /// The output that the command line asks for.
    fn new(args: &WalkArgs) -> Self {
        let targets = args.targets.clone();
        if args.look.json {
            return Self::Json { printed: vec![String::new(); targets.len()], targets };
        }
        let display = Display::new(targets, &io::stdout());
        Self::Text(if args.look.once { display.once() } else { display })
    }

    /// Shows the state of a target, unless it is as before.
    fn show(&mut self, index: usize, seen: Seen) -> io::Result<()> {
        match self {
            Self::Json { targets, printed } => {
                let line = report(&targets[index], &seen);
                if line == printed[index] {
                    return Ok(());
                }
                printed[index] = line;
                program::print(&printed[index])
            }
            Self::Text(display) => {
                display.show(index, seen, SystemTime::now());
                Ok(())
            }
        }
    }

    /// Draws the trees that have changed.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Json { .. } => Ok(()),
            Self::Text(display) => program::print(&display.draw()),
        }
    }

    /// Redraws for a changed size of the terminal.
    fn redraw(&mut self) -> io::Result<()> {
        match self {
            Self::Json { .. } => Ok(()),
            Self::Text(display) => program::print(&display.redraw()),
        }
    }

    /// Whether the trees are redrawn in place.
    fn is_drawn(&self) -> bool {
        matches!(self, Self::Text(_)) && io::IsTerminal::is_terminal(&io::stdout())
    }
}

/// The size changes of the terminal, if trees are drawn on one.
struct Resizes {
    /// `None` if no trees are redrawn.
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Resizes {
    /// Listens to the signal only for trees on a terminal.
    #[cfg(unix)]
    fn new(is_drawn: bool) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let signal = is_drawn.then(|| signal(SignalKind::window_change())).transpose()?;
        Ok(Self { signal })
    }

    /// No size changes: there is no such signal, and trees keep their form until the next change.
    #[cfg(not(unix))]
    fn new(_: bool) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next change, for ever where there are none.
    async fn next(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

/// The result of resolving a target.
type Seen = Result<Arc<Snapshot>, WatchError>;

const HELP: &str = "\
It runs until it is interrupted (Ctrl-C). RUST_LOG=debug shows what the client does.
Exit codes: 0; 1 for failures, and for --once if something is missing, endpoints included; 2 for a bad command line or bootstrap.

Marks in a tree: ● can be used, ◌ draining, ! may be stale, ✗ cannot be used.
On a terminal, in front of lines: + new, ~ changed, - something below is gone.";
