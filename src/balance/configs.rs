//! From snapshots to the configurations of clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tracing::warn;

use super::{
    balancer::{ClusterConfig, ClusterConfigs},
    policy::{ClusterPolicy, Drop, EndpointConfig, LeafConfig, LocalityConfig},
};
use crate::{
    resolve::{ClusterView, Snapshot},
    resource::{Cluster, ClusterKind, ClusterLoadAssignment, LbPolicy, endpoints::LocalityEndpoints},
};

/// Translates the clusters of snapshots. What did not change keeps its configuration (CH1.25).
#[derive(Debug, Default)]
pub(super) struct Translation {
    leaves: BTreeMap<Arc<str>, Leaf>,
    /// Warnings are logged once.
    warned: BTreeSet<String>,
}

/// A leaf with what it was translated from.
#[derive(Debug)]
struct Leaf {
    cluster: Option<Arc<Cluster>>,
    assignment: Option<Arc<ClusterLoadAssignment>>,
    note: Option<Arc<str>>,
    config: Arc<LeafConfig>,
}

impl Translation {
    /// The configurations of some clusters; those that the snapshot lacks are left out.
    pub(super) fn translate<'a>(
        &mut self,
        snapshot: &Snapshot,
        targets: impl Iterator<Item = &'a Arc<str>>,
    ) -> ClusterConfigs {
        let mut configs = ClusterConfigs::default();
        let mut before = std::mem::take(&mut self.leaves);
        for name in targets {
            let Some(view) = snapshot.cluster(name) else { continue };
            configs.targets.insert(name.clone(), cluster(view));
            for leaf in view.leaves() {
                if configs.leaves.contains_key(leaf.name()) {
                    continue;
                }
                let name: Arc<str> = leaf.name().into();
                let translated = self.leaf(leaf, before.remove(&name));
                configs.leaves.insert(name.clone(), translated.config.clone());
                self.leaves.insert(name, translated);
            }
        }
        configs
    }

    fn leaf(&mut self, view: ClusterView<'_>, before: Option<Leaf>) -> Leaf {
        let (cluster, assignment) = (view.config(), view.assignment());
        let note = view.endpoints_error().or(view.error()).map(ToString::to_string);
        let is_same = |it: &Leaf| {
            it.cluster.as_ref().map(Arc::as_ptr) == cluster.map(Arc::as_ptr)
                && it.assignment.as_ref().map(Arc::as_ptr) == assignment.map(Arc::as_ptr)
                && it.note.as_deref() == note.as_deref()
        };
        if let Some(before) = before.filter(is_same) {
            return before;
        }
        let note = note.map(Arc::from);
        let config = Arc::new(LeafConfig {
            policy: self.policy(view),
            priorities: assignment.map_or_else(Vec::new, |it| priorities(it)),
            drops: assignment.into_iter().flat_map(|it| &it.drops).map(drop_share).collect(),
            max_requests: cluster.map_or(DEFAULT_MAX_REQUESTS, |it| it.max_requests),
            service_name: match view.kind() {
                Some(ClusterKind::Eds { service_name, .. }) => service_name.clone(),
                Some(ClusterKind::LogicalDns { .. } | ClusterKind::Aggregate { .. }) | None => "".into(),
            },
            note: note.clone(),
            is_dns: matches!(view.kind(), Some(ClusterKind::LogicalDns { .. })),
        });
        Leaf { cluster: cluster.cloned(), assignment: assignment.cloned(), note, config }
    }

    /// The policy of a cluster, with a warning for each setting that is not executed.
    fn policy(&mut self, view: ClusterView<'_>) -> ClusterPolicy {
        let Some(config) = view.config() else { return ClusterPolicy::of(&LbPolicy::RoundRobin).0 };
        let (policy, unsupported) = ClusterPolicy::of(&config.lb_policy);
        if let Some(name) = unsupported {
            self.warn(view.name(), format!("load balancing policy {name}, round_robin is used instead"));
        }
        if config.outlier_detection.is_some() {
            self.warn(view.name(), "outlier detection".to_owned());
        }
        if config.tls.is_some() {
            self.warn(view.name(), "TLS, connections are plaintext".to_owned());
        }
        if config.http_connect {
            self.warn(view.name(), "HTTP CONNECT proxies, connections are direct".to_owned());
        }
        policy
    }

    fn warn(&mut self, cluster: &str, what: String) {
        let text = format!("{cluster}: {what}");
        if self.warned.insert(text) {
            warn!(cluster, "the channel does not execute a part of the configuration: {what}");
        }
    }
}

fn cluster(view: ClusterView<'_>) -> ClusterConfig {
    let leaves: Vec<_> = view.leaves().map(|leaf| leaf.name().into()).collect();
    match view.error() {
        Some(error) if error.is_not_found() => ClusterConfig::Gone(error.to_string().into()),
        Some(error) => ClusterConfig::Unusable(error.to_string().into()),
        None if leaves.is_empty() => {
            ClusterConfig::Unusable(format!("cluster {} has no leaf clusters", view.name()).into())
        }
        None => ClusterConfig::Leaves(leaves),
    }
}

fn priorities(assignment: &ClusterLoadAssignment) -> Vec<Vec<LocalityConfig>> {
    let each = assignment.priorities.iter().map(|it| it.localities.iter().map(locality).collect());
    each.collect()
}

fn locality(locality: &LocalityEndpoints) -> LocalityConfig {
    let usable = locality.endpoints.iter().filter(|it| it.is_healthy()).map(|it| EndpointConfig {
        addresses: it.addresses().collect(),
        weight: it.weight.get(),
        hostname: it.hostname().map(Into::into),
    });
    let endpoints = usable.collect();
    LocalityConfig { locality: locality.locality.clone(), weight: locality.weight.get(), endpoints }
}

fn drop_share(drop: &crate::resource::endpoints::DropOverload) -> Drop {
    Drop { category: (&*drop.category).into(), per_million: drop.requests_per_million }
}

/// The limit of concurrent requests of a cluster without one (A32).
const DEFAULT_MAX_REQUESTS: u32 = 1_024;
