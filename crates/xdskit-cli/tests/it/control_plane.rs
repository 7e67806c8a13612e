//! Sequences of requests, which each management server must answer, as the library's control plane is tested.

#[path = "../../../../tests/it/control_plane/peer.rs"]
#[allow(dead_code, reason = "the tests of the library use more of it")]
mod peer;
#[path = "../../../../src/control_plane/session/response_rules.rs"]
#[allow(dead_code, reason = "the tests of the library use more of it")]
mod response_rules;
#[path = "../../../../tests/it/control_plane/sequences.rs"]
#[allow(dead_code, reason = "the tests of the library use more of it")]
pub(crate) mod sequences;

// The messages of `response_rules`.
use xdskit::pb;
