//! The cases of gRPC's xDS interoperability tests (psm-interop) that concern the channel, with an embedded control plane and
//! tonic's servers. The names of the tests carry those of the cases.

mod affinity;
mod control_planes;
mod failover;
mod faults;
mod limits;
mod outliers;
mod replacement;
mod retries;
mod routing;
mod security;
mod session;

use super::*;

/// The number of tasks that call while a test changes something.
const TASKS: usize = 4;
