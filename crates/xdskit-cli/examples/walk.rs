//! Resolves targets to listeners, routes, clusters and endpoints, and prints each change, as trees or as JSON.
//!
//! ```console
//! $ cargo run --example walk -- --bootstrap bootstrap.json xds:///shop xds:///payments
//! ```
//!
//! `--help` prints the options. It is `xdskit walk`, whose code is in `crates/xdskit-cli/src/walk`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit_cli::walk()
}
