//! The tool as a whole: its subcommands, and what it prints of itself.

use std::{env, ffi::OsString, process::ExitCode};

use clap::{Command, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{
    call::CallArgs,
    check::{self, CheckArgs},
    program::{self, Failure, Program},
    relay::RelayArgs,
    status::{self, StatusArgs},
    walk::WalkArgs,
    watch::WatchArgs,
};

/// The subcommands that are also examples, each by the function of its example.
#[derive(Debug, Clone, Copy)]
pub struct Subcommands {
    /// `xdskit watch`.
    pub watch: fn(Program, &WatchArgs) -> Result<(), Failure>,
    /// `xdskit walk`.
    pub walk: fn(Program, &WalkArgs) -> Result<(), Failure>,
    /// `xdskit call`.
    pub call: fn(Program, &CallArgs) -> Result<(), Failure>,
    /// `xdskit relay`.
    pub relay: fn(Program, &RelayArgs) -> Result<(), Failure>,
}

/// Runs the tool `xdskit`.
pub fn main(subcommands: Subcommands) -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    let program = Program::Tool(subcommand(args.first()));
    program.main(args, |program, Tool { command }: &Tool| command.run(program, subcommands))
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
    Call(CallArgs),
    Status(StatusArgs),
    Relay(RelayArgs),
    Check(CheckArgs),
    /// Prints the completions of this tool for a shell
    Completions {
        /// Whose they are
        shell: Shell,
    },
    /// Prints the manual page of this tool, or of a subcommand
    Man {
        /// The subcommand
        #[arg(value_name = "SUBCOMMAND", value_parser = SUBCOMMANDS)]
        subcommand: Option<String>,
    },
}

impl ToolCommand {
    /// Runs the command.
    fn run(&self, program: Program, subcommands: Subcommands) -> Result<(), Failure> {
        match self {
            Self::Watch(args) => (subcommands.watch)(program, args),
            Self::Walk(args) => (subcommands.walk)(program, args),
            Self::Call(args) => (subcommands.call)(program, args),
            Self::Status(args) => status::run(program, args),
            Self::Relay(args) => (subcommands.relay)(program, args),
            Self::Check(args) => check::run(program, args),
            Self::Completions { shell } => complete(*shell),
            Self::Man { subcommand } => print_manual(subcommand.as_deref()),
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

/// Prints the manual page of the tool, or of a subcommand.
fn print_manual(subcommand: Option<&str>) -> Result<(), Failure> {
    let mut page = Vec::new();
    manual(subcommand).render(&mut page)?;
    Ok(program::print(&String::from_utf8_lossy(&page))?)
}

/// The manual page of the tool, or of a subcommand, with the version of the tool.
fn manual(subcommand: Option<&str>) -> Man {
    // `xdskit help` has no page of its own, and would be listed as if it had.
    let command = subcommand.map_or_else(|| Tool::command().disable_help_subcommand(true), described);
    Man::new(command).source(concat!("xdskit ", env!("CARGO_PKG_VERSION")))
}

/// A subcommand under the name of its manual page.
fn described(name: &str) -> Command {
    let mut tool = Tool::command();
    // Usages have the names of the commands above them only once the tool is built.
    tool.build();
    let subcommand = tool.find_subcommand(name).cloned().unwrap_or_default();
    subcommand.display_name(format!("xdskit-{name}"))
}

/// The names of all commands.
const SUBCOMMANDS: [&str; 8] = ["watch", "walk", "call", "status", "relay", "check", "completions", "man"];

#[cfg(test)]
mod tests;
