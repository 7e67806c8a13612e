//! The embedded control plane over real connections, with a client that knows nothing but gRPC.
mod delta;
mod limits;
mod loads;
mod peer;
#[path = "../../../src/control_plane/session/response_rules.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod response_rules;
mod rest;
pub(crate) mod sequences;
mod service;
mod services;
mod subscriptions;
mod testing;

// The messages of `response_rules`.
use xdskit::pb;
