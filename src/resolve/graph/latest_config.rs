//! The configuration that a cluster is to be shown by.

use std::sync::Arc;

use super::super::endpoints::Source;
use crate::{error::WatchError, resource::Cluster};

/// The latest configuration of a cluster with endpoints of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatestConfig<'a> {
    /// The cluster.
    pub(super) config: &'a Arc<Cluster>,
    /// Why it may be stale.
    pub(super) warning: Option<&'a WatchError>,
    /// Where its endpoints are. It may be another one than that of the configuration that is shown.
    pub(super) source: &'a Source,
}
