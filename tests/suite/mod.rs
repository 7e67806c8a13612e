//! How a client behaves, however it gets resources: [`API_TYPE`](crate::API_TYPE) of the test program. These are the tests for
//! streams; `polled.rs` and `filed.rs` list those that apply without.

mod behaviors;
mod csds;
mod discover;
mod extensions;
mod federation;
mod meshes;
mod metrics;
mod names;
mod observe;
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

use crate::common::builder_of;
