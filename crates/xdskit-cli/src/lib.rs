//! The code of the command-line tool `xdskit`. This is not a stable API: its functions are for the tool and the
//! examples.

#![allow(clippy::disallowed_methods, reason = "the tool has a runtime and a clock")]

mod args;
mod call;
mod codec;
mod filter;
mod json;
mod kind;
mod paint;
mod program;
mod proxy_tree;
mod relay;
mod status;
mod tree;
mod usage;
mod walk;
mod watch;
mod wrap;

use std::{env, ffi::OsString, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

#[doc(hidden)]
pub use self::{
    paint::Paint,
    program::print_line,
    tree::{Artist, Warning},
};
use self::{
    program::{Failure, Program},
    relay::RelayArgs,
    status::StatusArgs,
    walk::WalkArgs,
    watch::WatchArgs,
};

/// Runs the tool `xdskit`.
pub fn main() -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    let program = Program::Tool(subcommand(args.first()));
    program.main(args, |program, Tool { command }: &Tool| command.run(program))
}

/// Runs the example `watch`: prints the resources that a management server sends.
pub fn watch() -> ExitCode {
    watch::main()
}

/// Runs the example `walk`: prints the trees that targets resolve to.
pub fn walk() -> ExitCode {
    walk::main()
}

/// Runs the example `call`: makes calls through a channel.
pub fn call() -> ExitCode {
    call::main()
}

/// Runs the example `relay`: serves many clients from one subscription.
pub fn relay() -> ExitCode {
    relay::main()
}

/// Looks at a service mesh by xDS: what its management servers send, and what its clients know.
#[derive(Debug, Parser)]
#[command(name = "xdskit", version, subcommand_value_name = "SUBCOMMAND", arg_required_else_help = false)]
struct Tool {
    #[command(subcommand)]
    command: ToolCommand,
}

#[derive(Debug, Subcommand)]
enum ToolCommand {
    Watch(WatchArgs),
    Walk(WalkArgs),
    Status(StatusArgs),
    Relay(RelayArgs),
    /// Prints the completions of this tool for a shell
    Completions {
        /// Whose they are
        shell: Shell,
    },
}

impl ToolCommand {
    /// Runs the command.
    fn run(&self, program: Program) -> Result<(), Failure> {
        match self {
            Self::Watch(args) => watch::run(program, args),
            Self::Walk(args) => walk::run(program, args),
            Self::Status(args) => status::run(program, args),
            Self::Relay(args) => relay::run(program, args),
            Self::Completions { shell } => complete(*shell),
        }
    }
}

/// The requested subcommand, for errors about it.
fn subcommand(first: Option<&OsString>) -> Option<&'static str> {
    let first = first?.to_str()?;
    SUBCOMMANDS.into_iter().find(|name| *name == first)
}

/// Prints the completions for a shell.
fn complete(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Tool::command(), "xdskit", &mut script);
    Ok(program::print(&String::from_utf8_lossy(&script))?)
}

/// The names of all commands.
const SUBCOMMANDS: [&str; 5] = ["watch", "walk", "status", "relay", "completions"];

#[cfg(test)]
mod tests;
