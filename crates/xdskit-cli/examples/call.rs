//! Makes calls through a channel: one of the command line, or those that JSON commands on standard input request.
//!
//! ```console
//! $ cargo run --example call -- --bootstrap bootstrap.json --target xds:///shop /shop.Cart/Get hello
//! $ cargo run --example call -- --bootstrap bootstrap.json --target xds:///shop < commands
//! ```
//!
//! `--help` prints the options and the form of commands. Its code is in `crates/xdskit-cli/src/call`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit_cli::call()
}
