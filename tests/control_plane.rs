//! The embedded control plane over real connections, with a client that knows nothing but gRPC.
#![cfg(feature = "client")]

#[path = "control_plane/peer.rs"]
mod peer;
#[path = "control_plane/service.rs"]
mod service;
