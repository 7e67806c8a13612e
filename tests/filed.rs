//! The behaviour of a client that reads files, as far as it does not depend on servers. `files.rs` has what files alone can do.

#![cfg(feature = "files")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;
#[path = "suite/filed.rs"]
mod suite;

/// A file is the state of the world.
const API_TYPE: xdskit::config::ApiType = xdskit::config::ApiType::AggregatedGrpc;
