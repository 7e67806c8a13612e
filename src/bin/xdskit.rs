//! The command-line tool: `cargo install xdskit --features cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit::cli::main()
}
