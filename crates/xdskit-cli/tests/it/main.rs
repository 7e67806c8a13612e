//! The tool and its examples, run as programs: their command lines are stable, and scripts drive them.
//!
//! What they share with the tests of the library is in the files of those.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod any_types;
#[path = "../../../../tests/it/channel/backend.rs"]
#[allow(dead_code, reason = "the tests of channels use more of it")]
mod backend;
#[path = "../../src/watch/banner.rs"]
mod banner;
mod call;
mod check;
mod collections;
mod common;
mod control_plane;
mod messages;
#[path = "../../../../tests/it/examples/process.rs"]
mod process;
mod proxies;
mod redaction;
mod relay;
#[path = "../../../../tests/it/examples/server.rs"]
mod server;
mod status;
mod tool;
mod transports;
mod trees;
mod walk;
mod watch;

use serde_json::Value;

use server::Server;

/// What is watched, the name, and the state.
fn brief(line: &Value) -> String {
    ["watch", "name", "state"].map(|key| line[key].as_str().expect("each line has it")).join(" ")
}

/// Sorted.
fn keys(object: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = object.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}
