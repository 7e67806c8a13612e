//! The behaviour of a client on the incremental variant, with a stream for each type.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;
mod suite;

const API_TYPE: xdskit::config::ApiType = xdskit::config::ApiType::DeltaGrpc;
