//! Observability for operators: the status of a client at a moment (A40), and its metrics (A78, A88).

#[cfg_attr(not(feature = "client"), allow(dead_code, reason = "metrics alone read them"))]
mod metrics;
mod status;

#[cfg(any(test, feature = "client"))]
pub(crate) use self::metrics::Metric;
#[cfg(any(test, feature = "client", feature = "fuzzing"))]
pub(crate) use self::status::Status;
#[cfg(any(test, feature = "client"))]
pub(crate) use self::status::{ResourceReport, ServerReport};
