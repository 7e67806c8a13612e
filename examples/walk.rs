//! Walks from targets over listeners, routes and clusters to endpoints, and prints trees, on each change, for people or as
//! JSON.
//!
//! ```console
//! $ cargo run --example walk -- --bootstrap bootstrap.json xds:///shop xds:///payments
//! ```
//!
//! `--help` has the rest. It is `xdskit walk`, whose code is in `src/cli/walk`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit::cli::walk()
}
