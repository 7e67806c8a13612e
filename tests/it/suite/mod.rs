//! The tests that apply to polled servers: all but those of streams (`ambient`, `batches`, `scale`, `sharing` and `streams`), and those of
//! polls alone.

mod ambient;
mod any_types;
mod batches;
mod behaviors;
mod csds;
mod discover;
mod extensions;
mod federation;
mod meshes;
mod metrics;
mod names;
mod observe;
mod polls;
mod resolve;
mod scale;
mod servers;
mod sharing;
mod status;
mod streams;
mod transport;
mod ttl;
mod types;
mod virtual_hosts;
mod watch;
