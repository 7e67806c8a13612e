//! The command-line tool: `cargo install xdskit-cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit_cli::main()
}
