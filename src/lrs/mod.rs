//! Load reports (LRS): how many calls an application sends where, for the management server that balances them.
//!
//! A `Channel` counts by itself. An application with its own balancing counts with a [`LoadReporter`], which it gets
//! from a client by the name of a cluster, or from a cluster of a snapshot.
//!
//! ```text
//!   LoadReporter ──▶ Counters ◀── LocalityReporter::call_started     on any thread, without a lock
//!                       ▲
//!                       │ take, on_written
//!   CDS ──▶ Loads ── ServerLoads ──▶ LoadStream ──▶ Connect, Send, Read, Finish ──▶ transport
//!            where and whether          ▲
//!                                       └── Connected, RequestSent, Received, Disconnected, timeout
//! ```
//!
//! `Loads` is what the handles and the driver share. `Reporting` is all that the driver drives, without I/O (LR2.8): a `LoadStream`
//! for each server.

mod counters;
mod departed;
mod destination;
mod encode;
mod endpoint_metadata;
mod key_loads;
mod lanes;
#[cfg(feature = "tower")]
mod layer;
mod loads;
mod locality_loads;
mod metrics;
mod outcome;
mod reporting;
mod response;
mod server_loads;
mod settings;
mod silence;
mod stats;
mod stream;
mod turn;
mod weak_map;

#[cfg(feature = "tower")]
pub use self::layer::{LoadReportBody, LoadReportFuture, LoadReportLayer, LoadReportService};
pub use self::{
    counters::ReportedCall,
    loads::{DropReporter, EndpointReporter, LoadReporter, LocalityReporter},
    metrics::{MetricSum, OrcaLoadReport},
    outcome::Outcome,
    stats::{LoadStats, LocalityStats},
    stream::LoadStreamState,
};
pub(crate) use self::{
    loads::{ClusterLoads, Loads},
    reporting::{LoadStreamReport, LoadTarget, Reporting},
    settings::LoadSettings,
    stream::LoadCommand,
};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
