//! What a target resolves to: the tree of listener, routes, clusters and endpoints, as one coherent value.
//!
//! A [`Snapshot`] is that tree at one time. It never changes, so it can be held for as long as a request needs it, and is
//! read without locks; the next one shares with it what is the same.

mod dns;
mod snapshot;

use std::sync::Arc;

pub use self::{dns::Addresses, snapshot::Snapshot};

use crate::error::WatchError;

/// What a resolution publishes: the tree, or why there is none.
pub(crate) type Resolved = Result<Arc<Snapshot>, WatchError>;
