//! The embedded control plane over real connections, with a client that knows nothing but gRPC.
#![cfg(feature = "client")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "control_plane/delta.rs"]
mod delta;
#[path = "control_plane/peer.rs"]
mod peer;
#[cfg(feature = "json")]
#[path = "control_plane/rest.rs"]
mod rest;
#[path = "control_plane/service.rs"]
mod service;
#[path = "control_plane/services.rs"]
mod services;
#[path = "control_plane/testing.rs"]
mod testing;
#[path = "control_plane/wanted.rs"]
mod wanted;
