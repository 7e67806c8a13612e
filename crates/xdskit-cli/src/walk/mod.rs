//! Resolves targets to listeners, routes, clusters and endpoints, and prints each change, as trees or as JSON.

mod display;
mod marks;
mod observe;
mod report;
mod screen;
mod trees;

use std::{io, sync::Arc, time::SystemTime};

use clap::Parser;
use xdskit::{Snapshot, Target, WatchError};

pub use self::observe::observe;
use self::{display::Display, report::report};
use super::{
    args::{Header, Look},
    program::{self, Failure, Program},
};

/// Resolves targets to listeners, routes, clusters and endpoints, and prints the tree on each change.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "walk", after_help = HELP, args_override_self = true)]
pub struct WalkArgs {
    /// The options that it shares with `watch`.
    #[command(flatten)]
    pub look: Look,
    /// A header of the requests, of several if repeated: it chooses the routes where these have scopes (SRDS)
    #[arg(long = "header", value_name = "NAME=VALUE", allow_hyphen_values = true)]
    pub headers: Vec<Header>,
    /// Draws the configuration of proxies: the chains of listeners, with their routes, clusters and endpoints. Resources that gRPC's
    /// rules reject are accepted, and marked with the reason
    #[arg(long)]
    pub observe: bool,
    // Hidden, to be rejected with a hint at `watch`.
    #[arg(long, hide = true)]
    raw: bool,
    /// xds:///name, or xds://authority/name; with --observe also the name of a listener, or a glob of such names. There `*`, which is
    /// all of them, is the default
    #[arg(value_name = "TARGET")]
    pub targets: Vec<String>,
}

impl WalkArgs {
    /// Checks what the parser leaves open.
    ///
    /// # Errors
    /// The command line cannot be used, whatever the bootstrap has.
    pub fn check(&self, program: Program) -> Result<(), Failure> {
        if self.raw {
            let why = "walk shows what resources lead to; xdskit watch shows their messages";
            return Err(Failure::Usage(format!(
                "unknown option --raw: {why}: xdskit watch --raw 'listener=*'"
            )));
        }
        if self.observe {
            return observe::check(self);
        }
        if self.targets.is_empty() {
            return Err(Failure::Usage("TARGET, such as xds:///shop, is missing".to_owned()));
        }
        if program.is_strict() {
            self.targets.iter().try_for_each(|target| Target::new(target.as_str()).check())?;
        }
        Ok(())
    }
}

/// The output for the targets, which are identified by their indexes.
pub struct Output(Form);

/// The form of the output.
enum Form {
    /// The last line of each target.
    Json { targets: Vec<String>, printed: Vec<String> },
    /// The trees of all targets.
    Text(Display),
}

impl Output {
    /// The output that the command line asks for.
    pub fn new(args: &WalkArgs) -> Self {
        let targets = args.targets.clone();
        if args.look.json {
            return Self(Form::Json { printed: vec![String::new(); targets.len()], targets });
        }
        let display = Display::new(targets, &io::stdout());
        Self(Form::Text(if args.look.once { display.once() } else { display }))
    }

    /// Shows the state of a target, unless it is as before.
    ///
    /// # Errors
    /// The standard output has failed.
    pub fn show(&mut self, index: usize, seen: Seen) -> io::Result<()> {
        match &mut self.0 {
            Form::Json { targets, printed } => {
                let line = report(&targets[index], &seen);
                if line == printed[index] {
                    return Ok(());
                }
                printed[index] = line;
                program::print(&printed[index])
            }
            Form::Text(display) => {
                display.show(index, seen, SystemTime::now());
                Ok(())
            }
        }
    }

    /// Draws the trees that have changed.
    ///
    /// # Errors
    /// The standard output has failed.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Form::Json { .. } => Ok(()),
            Form::Text(display) => program::print(&display.draw()),
        }
    }

    /// Redraws for a changed size of the terminal.
    ///
    /// # Errors
    /// The standard output has failed.
    pub fn redraw(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Form::Json { .. } => Ok(()),
            Form::Text(display) => program::print(&display.redraw()),
        }
    }

    /// Whether the trees are redrawn in place.
    pub fn is_drawn(&self) -> bool {
        matches!(self.0, Form::Text(_)) && io::IsTerminal::is_terminal(&io::stdout())
    }
}

/// The size changes of the terminal, if trees are drawn on one.
pub struct Resizes {
    /// `None` if no trees are redrawn.
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Resizes {
    /// Listens to the signal only for trees on a terminal.
    ///
    /// # Errors
    /// The signal cannot be received.
    #[cfg(unix)]
    pub fn new(is_drawn: bool) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let signal = is_drawn.then(|| signal(SignalKind::window_change())).transpose()?;
        Ok(Self { signal })
    }

    /// Without size changes: there is no such signal, and trees keep their form until the next change.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn new(_: bool) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next change, for ever where there are none.
    pub async fn next(&mut self) {
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
pub type Seen = Result<Arc<Snapshot>, WatchError>;

const HELP: &str = "\
It runs until it is interrupted (Ctrl-C). RUST_LOG=debug shows what the client does.
Exit codes: 0; 1 for failures, and for --once if something is missing, endpoints included; 2 for a bad command line or bootstrap.

Marks in a tree: ● can be used, ◌ draining, ! may be stale, ✗ cannot be used.
On a terminal, in front of lines: + new, ~ changed, - something below is gone.";
