//! The configurations of clusters, and their changes.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    connectivity::Connectivity,
    picker::{Choice, ClusterPicker},
    policy::LeafConfig,
};

/// What is known of the clusters that requests may go to.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClusterConfigs {
    /// Clusters that requests are sent to, by name.
    pub(crate) targets: BTreeMap<Arc<str>, ClusterConfig>,
    /// The clusters with endpoints of their own that they consist of.
    pub(crate) leaves: BTreeMap<Arc<str>, Arc<LeafConfig>>,
}

/// Changes of [`ClusterConfigs`]: those that are there from now on, and those that are not any more. Of several changes of one, the
/// last counts.
#[derive(Debug, Default)]
pub(crate) struct ClusterChanges {
    pub(crate) targets: Vec<(Arc<str>, Option<ClusterConfig>)>,
    pub(crate) leaves: Vec<(Arc<str>, Option<Arc<LeafConfig>>)>,
}

/// A cluster that requests are sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterConfig {
    /// The clusters with its endpoints, the preferred one first: the leaves of an aggregate, or the cluster itself. Not empty.
    Leaves(Vec<Arc<str>>),
    /// The server says that it does not exist (CH1.13).
    Gone(Arc<str>),
    /// The cluster cannot be used for another reason.
    Unusable(Arc<str>),
    /// Routes name it, but the configuration lacks it (CH13.11).
    Unknown(Arc<str>),
}

impl ClusterConfig {
    /// The clusters with its endpoints.
    pub(super) fn leaves(&self) -> &[Arc<str>] {
        match self {
            Self::Leaves(leaves) => leaves,
            Self::Gone(_) | Self::Unusable(_) | Self::Unknown(_) => &[],
        }
    }

    /// The picker of a cluster without leaves.
    pub(super) fn picker<H>(&self) -> Option<ClusterPicker<H>> {
        let choice = match self {
            Self::Leaves(_) => return None,
            Self::Gone(reason) => Choice::Gone(reason.clone()),
            Self::Unusable(reason) => Choice::Unusable(reason.clone()),
            Self::Unknown(reason) => Choice::Unknown(reason.clone()),
        };
        Some(ClusterPicker { connectivity: Connectivity::TransientFailure, choice, aggregate: None })
    }
}
