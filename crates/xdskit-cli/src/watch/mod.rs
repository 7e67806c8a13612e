//! Prints the resources that a management server sends, on each change, as text or as JSON.
//!
//! Commands on standard input add and end watches while it runs.

mod foreground;
mod observe;
mod print;
pub(super) mod target;

use std::{
    collections::HashMap,
    env,
    io::{self, BufRead, IsTerminal},
    process::ExitCode,
    sync::Arc,
    thread,
};

use clap::Parser;
use futures_util::{
    StreamExt,
    future::join_all,
    stream::{AbortHandle, Abortable, BoxStream, SelectAll},
};
use tokio::sync::mpsc;
use xdskit::{Client, client::Validation, config::Bootstrap};

use self::{
    foreground::is_in_foreground,
    observe::Watched,
    print::{Lines, Printer},
    target::{Command, Target},
};
use super::{
    args::Look,
    filter::Filter,
    program::{self, Failure, Program, Stop},
};

/// Prints what a management server sends, on each change.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "watch", after_help = HELP, args_override_self = true)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    look: Look,
    /// Shows only resources whose names match: GLOB, or TYPE=GLOB; several if repeated
    #[arg(long = "filter", value_name = "FILTER", allow_hyphen_values = true)]
    filters: Vec<Filter>,
    /// Accepts resources that gRPC's rules reject, too, and shows the reason beside them
    #[arg(long)]
    observe: bool,
    /// Shows the messages themselves, as JSON; implies --observe. Text that is not for a terminal is JSON alone, and the
    /// rest goes to the standard error
    #[arg(long)]
    raw: bool,
    /// TYPE is listener, route, cluster, endpoints, scoped-route, virtual-host, secret or runtime; NAME is a name, `*` for
    /// all, a glob for the old-style names of some (`outbound|80|*`), or an xdstp:// glob or list
    #[arg(value_name = "TYPE=NAME")]
    targets: Vec<Target>,
}

/// The validation and the form of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Resources that a gRPC client could use.
    Typed,
    /// All resources, with the typed value or the reason why there is none.
    Observed,
    /// All resources, as messages.
    Raw,
}

/// Runs the example.
pub(super) fn main() -> ExitCode {
    Program::Example("watch").main(env::args_os().skip(1), run)
}

/// Prints the watched resources, once or until it is interrupted.
pub(super) fn run(program: Program, args: &WatchArgs) -> Result<(), Failure> {
    if args.targets.is_empty() && (program.is_strict() || args.look.once) {
        return Err(Failure::Usage(NO_TARGET.to_owned()));
    }
    // The warnings of a bootstrap are logged.
    program::log_to_stderr();
    let bootstrap = args.look.connect.bootstrap()?;
    watch(program, args, bootstrap)
}

/// The client runs on the thread of the runtime, and printing on this one: slow output does not delay the client, but
/// skips states.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn watch(program: Program, args: &WatchArgs, bootstrap: Bootstrap) -> Result<(), Failure> {
    let form = args.form();
    let validation = if form == Form::Typed { Validation::Grpc } else { Validation::Observe };
    let client = args.look.client(bootstrap, validation)?;
    let printer = if args.look.json { Printer::Json } else { Printer::text(form == Form::Raw) };
    let mut watches = Watches {
        client,
        form,
        printer,
        filters: args.filters.as_slice().into(),
        handles: HashMap::new(),
        lines: SelectAll::new(),
    };
    let stop = Stop::on_interrupt();
    if args.look.once {
        return tokio::select! {
            biased;
            () = stop.requested() => Err(Failure::Missing),
            ended = watches.once(program, &args.targets) => ended,
        };
    }
    for target in &args.targets {
        watches.watch(target);
    }
    let mut commands = read_commands(program, stop.clone());
    loop {
        tokio::select! {
            // An interrupt comes first, and then commands, even while states change all the time.
            biased;
            () = stop.requested() => return Ok(()),
            Some(command) = commands.recv() => match command {
                Command::Watch(target) => watches.watch(&target),
                Command::Unwatch(target) => watches.unwatch(&target),
                Command::Quit => return Ok(()),
            },
            Some(lines) = watches.lines.next(), if !watches.lines.is_empty() => lines.print()?,
        }
    }
}

impl WatchArgs {
    /// The form in which resources are printed.
    fn form(&self) -> Form {
        match (self.raw, self.observe) {
            (true, _) => Form::Raw,
            (false, true) => Form::Observed,
            (false, false) => Form::Typed,
        }
    }
}

/// The watches, and their pending output.
struct Watches {
    /// The client of all watches.
    client: Client,
    /// The form of resources.
    form: Form,
    /// Formats them.
    printer: Printer,
    /// The names to print.
    filters: Arc<[Filter]>,
    /// The watches by target.
    handles: HashMap<Target, AbortHandle>,
    /// The output of all of them.
    lines: SelectAll<Abortable<BoxStream<'static, Lines>>>,
}

impl Watches {
    /// Begins a watch, unless it exists already.
    fn watch(&mut self, target: &Target) {
        if self.handles.contains_key(target) {
            return;
        }
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(target.clone(), handle);
        let lines = self.watched(target).changes(&self.client);
        self.lines.push(Abortable::new(lines, registration));
    }

    /// Ends the watch of a target.
    fn unwatch(&mut self, target: &Target) {
        if let Some(handle) = self.handles.remove(target) {
            handle.abort();
        }
    }

    /// What a watch of a target needs.
    fn watched(&self, target: &Target) -> Watched {
        let Self { form, printer, filters, .. } = self;
        Watched { target: target.clone(), form: *form, printer: *printer, filters: filters.clone() }
    }

    /// Prints the first complete state of all targets, in their order.
    async fn once(&self, program: Program, targets: &[Target]) -> Result<(), Failure> {
        let watched: Vec<_> = targets.iter().map(|target| self.watched(target)).collect();
        let states = join_all(watched.iter().map(|watched| watched.first(&self.client))).await;
        let mut missing = false;
        for (target, state) in targets.iter().zip(states) {
            missing |= state.missing || state.lines.is_empty();
            if state.lines.is_empty() {
                program.complain(&format!("{target}: nothing matches"));
            }
            for lines in state.lines {
                lines.print()?;
            }
        }
        if missing { Err(Failure::Missing) } else { Ok(()) }
    }
}

/// Reads the commands on standard input, and reports invalid ones on standard error. EOF on standard input does not
/// stop the program. There are none on the terminal of a program that runs in the background.
fn read_commands(program: Program, stop: Stop) -> mpsc::UnboundedReceiver<Command> {
    let (sender, receiver) = mpsc::unbounded_channel();
    if io::stdin().is_terminal() && !is_in_foreground() {
        return receiver;
    }
    // A separate thread, since reading cannot be cancelled: it ends with the process.
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            let command = line.map_err(|error| format!("the standard input cannot be read: {error}"));
            match command.and_then(|line| Command::parse(&line)) {
                // At once, and not behind the commands before it.
                Ok(Some(Command::Quit)) => stop.request(),
                Ok(Some(command)) => {
                    let _ = sender.send(command); // It fails only at the end of the program.
                }
                Ok(None) => {}
                Err(error) => program.complain(&error),
            }
        }
    });
    receiver
}

/// The error of a command line without a target.
const NO_TARGET: &str = "TYPE=NAME is missing: what to watch, such as 'cluster=*' for all clusters, \
                         'cluster=outbound|80|*' for some, or cluster=shop for one";

const HELP: &str = "\
Commands are read from the standard input, one a line: watch TYPE=NAME, unwatch TYPE=NAME, quit. A program that is
started in the background reads none from its terminal.
In globs, * is any text, ? any character, and \\ takes away the meaning of these.
It runs until it is interrupted (Ctrl-C). RUST_LOG=debug shows what the client does.
Exit codes: 0; 1 for failures, and for --once if something is missing; 2 for a bad command line or bootstrap.";
