//! The command-line tool: `cargo install xdskit-cli`. The subcommands that are also examples are the code of these.

use std::process::ExitCode;

use xdskit_cli::Subcommands;

#[path = "../examples/call.rs"]
#[allow(dead_code, reason = "the example has a `main`")]
mod call;
#[path = "../examples/relay.rs"]
#[allow(dead_code, reason = "the example has a `main`")]
mod relay;
#[path = "../examples/walk.rs"]
#[allow(dead_code, reason = "the example has a `main`")]
mod walk;
#[path = "../examples/watch.rs"]
#[allow(dead_code, reason = "the example has a `main`")]
mod watch;

fn main() -> ExitCode {
    xdskit_cli::main(Subcommands { watch: watch::run, walk: walk::run, call: call::run, relay: relay::run })
}
