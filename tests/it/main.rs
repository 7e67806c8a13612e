//! The integration tests: clients, control planes and examples over real connections and files.
//!
//! They are one program, since linking a program takes longer than running most of its tests. Only `tests/life.rs` is a
//! program of its own: it counts the allocations of its process. `tests/interop` needs servers in other languages.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;
#[macro_use]
mod transport;

mod balance;
mod channel;
mod control_plane;
mod envoy_bootstrap;
mod examples;
mod files;
mod orca;
mod server;
mod suite;
#[allow(dead_code, reason = "the tests of the library use more of it")]
#[path = "../../src/test_log.rs"]
mod test_log;
mod tracing;
