//! The client against management servers that others wrote. Run by `tests/interop/run.sh`; `README.md` tells what it needs.

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
