//! The client with management servers of other projects. Run by `tests/interop/run.sh`; `README.md` lists the
//! requirements.

mod ads;
mod delta;
mod dumps;
mod envoy;
mod expiry;
mod faults;
mod http;
mod library;
mod mesh;
mod observer;
mod peer;
mod process;
mod relay;
mod rewatch;
mod setup;
mod status;
mod strict;
mod walk;
mod walker;
mod watch;
mod ways;
