//! How a client behaves, whatever variant of the protocol it speaks: [`API_TYPE`](crate::API_TYPE) of the test program.

mod csds;
mod discover;
mod extensions;
mod federation;
mod meshes;
mod metrics;
mod names;
mod resolve;
mod scale;
mod status;
mod transport;
mod ttl;
mod types;
mod virtual_hosts;
mod watch;
