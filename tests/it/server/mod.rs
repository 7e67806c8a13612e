//! Servers on real sockets, with the embedded control plane.

mod draining;
mod filters;
mod peers;
mod requests;
mod serving;
pub(crate) mod world;
