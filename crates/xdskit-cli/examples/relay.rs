//! A management server that gets all of its resources from another one: each name once, whatever the number of
//! clients.
//!
//! ```console
//! $ cargo run --example mesh
//! $ cargo run --example relay -- --bootstrap examples/mesh/bootstrap.json --listen 127.0.0.1:18001
//! ```
//!
//! `--help` prints the options. It is `xdskit relay`, whose code is in `crates/xdskit-cli/src/relay`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit_cli::relay()
}
