//! The behaviour of a client on the incremental variant of the protocol.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;
mod suite;

const API_TYPE: xdskit::config::ApiType = xdskit::config::ApiType::AggregatedDeltaGrpc;
