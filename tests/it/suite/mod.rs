//! The behaviour of a client on each [`Transport`](crate::transport::Transport).

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
