//! The examples, run as programs. Those of the command-line tool are tested in its crate, as the tool itself.

mod balance;
mod filters;
mod interop_client;
mod load;
#[allow(dead_code, reason = "the tests of the tool use more of it")]
mod process;
mod quickstart;
mod serve;
mod server;
mod store;

use process::Process;
use server::Server;

#[tokio::test]
async fn all_examples_have_help() {
    for example in EXAMPLES {
        let mut help = Process::start(example, ["--help"]);
        help.assert_is_help(&format!("usage: {example}")).await;
        let mut bad = Process::start(example, ["--bogus"]);
        bad.assert_is_rejected("--bogus").await;
    }
}

#[tokio::test]
async fn a_broken_pipe_is_a_good_end() {
    let help = EXAMPLES.map(|example| (example, ["--help"].as_slice()));
    for (example, args) in help.into_iter().chain([("quickstart", [].as_slice())]) {
        let mut process = Process::into_a_broken_pipe(example, args);
        process.assert_ends_well(&format!("{example} {args:?}")).await;
    }
}

const EXAMPLES: [&str; 12] = [
    "mesh",
    "soak",
    "greeter",
    "grpc_greeter",
    "filters",
    "session",
    "load",
    "quickstart",
    "interop_client",
    "tcp",
    "udp_relay",
    "serve",
];
