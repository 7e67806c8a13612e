//! The tests of all variants but for those of answers, of what shares a stream, and of when connections are made; and those
//! of polls alone.

mod discover;
mod extensions;
mod meshes;
mod metrics;
mod names;
mod polls;
mod resolve;
mod ttl;
mod types;
mod virtual_hosts;
