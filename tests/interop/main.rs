//! The client with management servers, and the channel with gRPC servers, of other projects. Run by
//! `tests/interop/run.sh`; `README.md` lists the requirements.

mod ads;
mod backend;
mod channel;
mod clients;
mod delta;
mod dumps;
mod envoy;
mod expiry;
mod faults;
mod guides;
mod http;
mod library;
#[allow(dead_code, reason = "the integration tests use all of it")]
#[path = "../it/common/load.rs"]
mod load;
mod loads;
mod mesh;
mod observer;
mod peer;
mod process;
#[path = "../it/common/raw.rs"]
mod raw;
mod rbac;
mod regexes;
mod relay;
mod rewatch;
mod security;
mod setup;
mod status;
mod strict;
mod walk;
mod walker;
mod watch;
mod ways;
