//! The tests that apply to polled servers: all but those of streams (`scale`, `sharing` and `streams`), and those of
//! polls alone.

mod csds;
mod discover;
mod extensions;
mod federation;
mod meshes;
mod metrics;
mod names;
mod polls;
mod resolve;
mod servers;
mod status;
mod transport;
mod ttl;
mod types;
mod virtual_hosts;
mod watch;

use crate::common::builder_of;
