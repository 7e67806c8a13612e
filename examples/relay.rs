//! A management server that gets all it serves from another one: each name once, however many clients subscribe to it.
//!
//! ```console
//! $ cargo run --example mesh
//! $ cargo run --example relay -- --bootstrap examples/mesh/bootstrap.json --listen 127.0.0.1:18001
//! ```
//!
//! `--help` has the rest. It is `xdskit relay`, whose code is in `src/cli/relay`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit::cli::relay()
}
