//! Prints the resources that a management server sends, on each change, as text or as JSON.
//!
//! Commands on standard input add and end watches while it runs.

#[cfg(test)]
mod banner;
mod decoder;
mod foreground;
mod print;
mod target;
mod targets;

use std::{
    io::{self, BufRead, IsTerminal},
    thread,
};

use clap::Parser;
use tokio::sync::mpsc;

use self::foreground::is_in_foreground;
pub use self::{
    decoder::Decoder,
    print::{Content, Lines, Present, Printer},
    target::{Command, Target, TargetType},
    targets::Targets,
};
use super::{
    args::Look,
    filter::Filter,
    program::{Failure, Program, Stop},
};

/// Prints what a management server sends, on each change.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(name = "watch", after_help = HELP, args_override_self = true)]
pub struct WatchArgs {
    /// The options that it shares with `walk`.
    #[command(flatten)]
    pub look: Look,
    /// Shows only resources whose names match: GLOB, or TYPE=GLOB; several if repeated
    #[arg(long = "filter", value_name = "FILTER", allow_hyphen_values = true)]
    filters: Vec<Filter>,
    /// Accepts resources that gRPC's rules reject, too, and shows the reason beside them
    #[arg(long, conflicts_with = "type_url")]
    observe: bool,
    /// Shows the messages themselves, as JSON; implies --observe. Text that is not for a terminal is JSON alone, and the
    /// rest goes to the standard error
    #[arg(long)]
    raw: bool,
    /// What to watch.
    #[command(flatten)]
    pub targets: Targets,
}

/// The validation and the form of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Resources that a gRPC client could use.
    Typed,
    /// All resources, with the typed value or the reason why there is none.
    Observed,
    /// All resources, as messages.
    Raw,
}

impl WatchArgs {
    /// Checks what the parser leaves open.
    ///
    /// # Errors
    /// The command line cannot be used, whatever the bootstrap has.
    pub fn check(&self, program: Program) -> Result<(), Failure> {
        if !self.targets.list.is_empty() || !(program.is_strict() || self.look.once) {
            return Ok(());
        }
        let missing = if self.targets.type_url.is_some() { NO_NAME } else { NO_TARGET };
        Err(Failure::Usage(missing.to_owned()))
    }

    /// The form in which resources are printed. Messages of `--type` have no rules, so that they need no observing client.
    pub fn form(&self) -> Form {
        match (self.raw && self.targets.type_url.is_none(), self.observe) {
            (true, _) => Form::Raw,
            (false, true) => Form::Observed,
            (false, false) => Form::Typed,
        }
    }

    /// Whether the filters pass a resource.
    pub fn shows(&self, ty: &TargetType, name: &str) -> bool {
        Filter::any_passes(&self.filters, ty.kind(), name)
    }
}

/// Reads the commands on standard input, and reports invalid ones on standard error. EOF on standard input does not
/// stop the program. There are none on the terminal of a program that runs in the background.
pub fn read_commands(program: Program, args: &WatchArgs, stop: Stop) -> mpsc::UnboundedReceiver<Command> {
    let (sender, receiver) = mpsc::unbounded_channel();
    if io::stdin().is_terminal() && !is_in_foreground() {
        return receiver;
    }
    let type_url = args.targets.type_url.clone();
    // A separate thread, since reading cannot be cancelled: it ends with the process.
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n') {
            let command = line.map_err(|error| format!("the standard input cannot be read: {error}"));
            match command.and_then(|line| Command::parse(&line, type_url.as_ref())) {
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

/// The error of a command line with a type and without a name.
const NO_NAME: &str = "NAME is missing: which resources of --type to watch, such as '*' for all";

const HELP: &str = "\
Commands are read from the standard input, one a line: watch TYPE=NAME, unwatch TYPE=NAME, quit. A program that is
started in the background reads none from its terminal. With --type, each TYPE=NAME is a NAME alone.
In globs, * is any text, ? any character, and \\ takes away the meaning of these.
It runs until it is interrupted (Ctrl-C). RUST_LOG=debug shows what the client does.
Exit codes: 0; 1 for failures, and for --once if something is missing; 2 for a bad command line or bootstrap.";
