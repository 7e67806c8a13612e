//! Prints the resources that a management server sends, on each change, as text or as JSON.
//!
//! ```console
//! $ cargo run --example watch -- --bootstrap bootstrap.json 'listener=*' cluster=shop
//! ```
//!
//! `--help` prints the options. It is `xdskit watch`, whose code is in `crates/xdskit-cli/src/watch`.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdskit_cli::watch()
}
