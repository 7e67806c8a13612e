//! The behaviour of a client that polls over REST, as far as it does not depend on streams.

#![cfg(feature = "rest")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

mod common;
#[path = "suite/polled.rs"]
mod suite;

const API_TYPE: xdskit::config::ApiType = xdskit::config::ApiType::Rest;
