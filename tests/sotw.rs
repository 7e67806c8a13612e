//! The behaviour of a client on the state-of-the-world variant of the protocol.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;
mod suite;

const API_TYPE: xdskit::config::ApiType = xdskit::config::ApiType::AggregatedGrpc;
