//! From snapshots to the configurations of clusters.

mod endpoints;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tracing::warn;

use self::endpoints::{Endpoints, hosts, unusable};
use super::{
    cluster_load::ClusterLoad,
    clusters::{ClusterChanges, ClusterConfig},
    hash::hash,
    identity::{EndpointCredentials, Security},
    policies::PolicyLimits,
    policy::{Configured, Drop, LeafConfig},
    settings::BalancerSettings,
    stale_config::merged,
    weights::UtilizationMetrics,
};
use crate::{
    error::{Escaped, shortened},
    resolve::{ClusterView, Snapshot},
    resource::{Cluster, ClusterKind, ClusterLoadAssignment, LbPolicy},
};

/// Translates the clusters of snapshots, as far as they changed (CH1.25).
#[derive(Debug)]
pub(super) struct Translation {
    /// The limits of the channel for hash tables.
    limits: PolicyLimits,
    /// What the subsets of endpoints depend on, so that other channels have others.
    seed: u64,
    /// The largest number of connections to an endpoint (CH4.9).
    max_connections_cap: usize,
    /// See [`BalancerSettings::credentials`].
    credentials: EndpointCredentials,
    /// The snapshot that was translated last.
    snapshot: Option<Arc<Snapshot>>,
    /// The leaves of each target that was translated.
    targets: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    leaves: BTreeMap<Arc<str>, Leaf>,
}

/// A leaf with what it was translated from.
#[derive(Debug, Default)]
struct Leaf {
    /// The number of targets that have it.
    targets: usize,
    cluster: Option<Arc<Cluster>>,
    /// The endpoints of the last translation; `None` as well if the cluster is not called for lack of credentials.
    assignment: Option<Arc<ClusterLoadAssignment>>,
    /// The errors and warnings of both resources, and the lack of credentials.
    note: Option<String>,
    /// The security of the last translation, which an equal configuration reuses.
    security: Security,
    /// The parts of its configuration that are not executed, which were logged.
    warned: BTreeSet<String>,
}

impl Translation {
    pub(super) fn new(settings: &BalancerSettings) -> Self {
        Self {
            limits: PolicyLimits {
                table_entries: settings.ring_size_cap,
                cluster_table_entries: settings.cluster_ring_entries,
            },
            max_connections_cap: settings.max_connections_cap,
            seed: settings.seed,
            credentials: settings.credentials.clone(),
            snapshot: None,
            targets: BTreeMap::new(),
            leaves: BTreeMap::new(),
        }
    }

    /// What changed since the last snapshot: the clusters that are used as targets, and their leaves. `added` are those that are
    /// used from now on, `removed` those that are not any more. Of a target that the snapshot lacks what was known stays.
    pub(super) fn translate(
        &mut self,
        snapshot: &Arc<Snapshot>,
        is_used: impl Fn(&str) -> bool,
        (added, removed): (Vec<Arc<str>>, Vec<Arc<str>>),
    ) -> ClusterChanges {
        let mut changes = ClusterChanges::default();
        let before = self.snapshot.replace(snapshot.clone());
        let changed = match before {
            Some(before) => snapshot.changed_clusters(&before),
            None => snapshot.clusters().map(|cluster| cluster.name().into()).collect(),
        };
        let targets: BTreeSet<_> =
            changed.iter().filter(|name| is_used(name)).cloned().chain(added).collect();
        let mut leaves: BTreeSet<_> = changed.into_iter().collect();
        // Removals first: a leaf that a new target gets as well is then translated anew, and the last change counts.
        for name in removed {
            let leaves = self.targets.remove(&name).unwrap_or_default();
            leaves.iter().for_each(|leaf| self.release(leaf, &mut changes));
            changes.targets.push((name, None));
        }
        for name in targets {
            if let Some(view) = snapshot.cluster(&name) {
                leaves.extend(self.set_target(name, view, &mut changes));
            }
        }
        for name in leaves {
            if let Some(view) = snapshot.cluster(&name)
                && let Some(config) = self.translate_leaf(&name, view)
            {
                changes.leaves.push((name, Some(Arc::new(config))));
            }
        }
        changes
    }

    /// A target that is new, or changed; returns its leaves that are new.
    fn set_target(
        &mut self,
        name: Arc<str>,
        view: ClusterView<'_>,
        changes: &mut ClusterChanges,
    ) -> Vec<Arc<str>> {
        let config = cluster(view);
        let leaves: Vec<Arc<str>> = view.leaves().map(|leaf| leaf.name().into()).collect();
        changes.targets.push((name.clone(), Some(config)));
        let mut new = Vec::new();
        for leaf in &leaves {
            let it = self.leaves.entry(leaf.clone()).or_default();
            it.targets += 1;
            if it.targets == 1 {
                new.push(leaf.clone());
            }
        }
        // Only now, since a leaf of both stays.
        for leaf in self.targets.insert(name, leaves).unwrap_or_default() {
            self.release(&leaf, changes);
        }
        new
    }

    /// Takes a leaf from a target. The leaf is removed with its last target.
    fn release(&mut self, leaf: &Arc<str>, changes: &mut ClusterChanges) {
        let Some(it) = self.leaves.get_mut(leaf) else { return };
        it.targets -= 1;
        if it.targets == 0 {
            self.leaves.remove(leaf);
            changes.leaves.push((leaf.clone(), None));
        }
    }

    /// The configuration of a leaf, if it is another one than before.
    fn translate_leaf(&mut self, name: &Arc<str>, view: ClusterView<'_>) -> Option<LeafConfig> {
        let (cluster, assignment) = (view.config(), view.assignment());
        let refusal = self.refusal(cluster.map(|cluster| &**cluster));
        // An endpoint that is not to be called is as one that is not there.
        let assignment = assignment.filter(|_| refusal.is_none());
        let errors = [view.error(), view.warning(), view.endpoints_error()].into_iter().flatten();
        let note = match (refusal, merged(errors)) {
            (Some(refusal), Some(errors)) => Some(format!("{refusal}; {errors}")),
            (refusal, errors) => refusal.map(ToOwned::to_owned).or(errors),
        };
        let security = self.security(name, cluster.map(|cluster| &**cluster));
        let it = self.leaves.get_mut(name)?;
        let is_same = it.cluster.as_ref().map(Arc::as_ptr) == cluster.map(Arc::as_ptr)
            && it.assignment.as_ref().map(Arc::as_ptr) == assignment.map(Arc::as_ptr)
            && it.note == note;
        // One without a configuration has not been translated.
        if is_same && it.cluster.is_some() {
            return None;
        }
        (it.cluster, it.assignment, it.note) = (cluster.cloned(), assignment.cloned(), note.clone());
        it.security = security.clone();
        let endpoints = Endpoints::new(&security, cluster.is_some_and(|cluster| cluster.http_connect));
        let Configured { policy, subset, .. } = self.policy(name, view);
        let all = assignment.map_or_else(Vec::new, |assignment| endpoints.priorities(assignment));
        // The same for the whole life of the channel (CH3.61), and another one for each cluster.
        let seed = hash(name.as_bytes()) ^ self.seed;
        let chosen = (!subset.is_all()).then(|| {
            all.iter().map(|localities| subset.choose(localities, policy.by_locality, seed)).collect()
        });
        let (priorities, listed) = match chosen {
            Some(chosen) => (chosen, Some(all)),
            None => (all, None),
        };
        Some(LeafConfig {
            policy,
            priorities,
            listed,
            drops: assignment.into_iter().flat_map(|assignment| &assignment.drops).map(drop_share).collect(),
            max_requests: cluster.map_or(DEFAULT_MAX_REQUESTS, |cluster| cluster.max_requests),
            max_connections: cluster.map_or(1, |cluster| self.max_connections(cluster.max_connections)),
            outlier_detection: cluster.and_then(|cluster| cluster.outlier_detection.as_deref()).cloned(),
            service_name: match view.kind() {
                Some(ClusterKind::Eds { service_name, .. }) => service_name.clone(),
                Some(ClusterKind::LogicalDns { .. } | ClusterKind::Aggregate { .. }) | None => "".into(),
            },
            note: note.map(Arc::from),
            unusable: assignment.and_then(|assignment| unusable(assignment)).map(Arc::from),
            is_dns: matches!(view.kind(), Some(ClusterKind::LogicalDns { .. })),
            hosts: cluster
                .map(|cluster| hosts(cluster, assignment.map(|assignment| &**assignment), &endpoints))
                .unwrap_or_default(),
            security,
            load: ClusterLoad::of(view),
            service: cluster.map(|cluster| Arc::new(cluster.telemetry_labels().into())),
        })
    }

    /// How the connections of a cluster are secured. What is equal to what was there before is the same, so that it is compared in no
    /// time.
    fn security(&self, leaf: &str, cluster: Option<&Cluster>) -> Security {
        let known = self.leaves.get(leaf).map(|leaf| &leaf.security);
        let tls = cluster.and_then(|cluster| cluster.tls.as_deref());
        match (&self.credentials, tls) {
            // A cluster with TLS has no endpoints without a choice.
            (EndpointCredentials::Unset | EndpointCredentials::Insecure, _) => Security::Plaintext,
            (EndpointCredentials::Xds { fallback }, None) => fallback.clone(),
            (EndpointCredentials::Xds { .. }, Some(tls)) => match known {
                Some(known @ Security::Cluster { tls: it, .. }) if **it.config() == *tls => known.clone(),
                Some(_) | None => Security::of_cluster(tls),
            },
        }
    }

    /// Why the endpoints of a cluster are not called: it has TLS, and nobody has chosen to execute or to ignore that (CH7.1).
    fn refusal(&self, cluster: Option<&Cluster>) -> Option<&'static str> {
        match self.credentials {
            EndpointCredentials::Unset => cluster?.tls.as_ref().map(|_| NO_CREDENTIALS),
            EndpointCredentials::Insecure | EndpointCredentials::Xds { .. } => None,
        }
    }

    /// The configured limit of connections to an endpoint, between 1 and the cap of the channel.
    fn max_connections(&self, configured: u32) -> usize {
        usize::try_from(configured).unwrap_or(usize::MAX).clamp(1, self.max_connections_cap)
    }

    /// The policy of a leaf, with a warning for each setting that is not executed.
    fn policy(&mut self, leaf: &Arc<str>, view: ClusterView<'_>) -> Configured {
        let Some(config) = view.config() else { return Configured::of(&LbPolicy::RoundRobin) };
        let mut configured = Configured::of(&config.lb_policy);
        configured.policy.policy = configured.policy.policy.limited(&self.limits);
        let mut unexecuted = BTreeSet::new();
        if let Some(name) = &configured.unsupported {
            unexecuted.insert(format!("load balancing policy {name}, round_robin is used instead"));
        }
        if let Some(name) = UtilizationMetrics::left_out(config.lb_policy.utilization_metrics()) {
            let name = shortened(name, MAX_NAME_SHOWN);
            let name = Escaped(&name);
            unexecuted.insert(format!("{UTILIZATION_METRICS}, of which {name} is left out"));
        }
        if self.refusal(Some(config)).is_some() {
            unexecuted.insert("TLS, calls fail since the channel has no credentials".to_owned());
        }
        let remarks = [Some(&config.remarks), view.assignment().map(|assignment| &assignment.remarks)];
        let fields = remarks.into_iter().flatten().flat_map(|remarks| remarks.not_executed());
        unexecuted.extend(fields.map(|field| (*field).to_owned()));
        self.warn(leaf, unexecuted);
        configured
    }

    /// Logs what the configuration before did not have.
    fn warn(&mut self, leaf: &Arc<str>, unexecuted: BTreeSet<String>) {
        let Some(known) = self.leaves.get_mut(leaf) else { return };
        for what in unexecuted.difference(&known.warned) {
            warn!(cluster = &**leaf, "the channel does not execute a part of the configuration: {what}");
        }
        known.warned = unexecuted;
    }
}

/// The configuration of a target: its leaves, or the error in place of them.
fn cluster(view: ClusterView<'_>) -> ClusterConfig {
    let leaves: Vec<_> = view.leaves().map(|leaf| leaf.name().into()).collect();
    match view.error() {
        // Wait-for-ready calls would wait for ever for a cluster that does not exist, so they fail as well (CH1.13).
        Some(error) if error.is_not_found() => ClusterConfig::Gone(error.to_string().into()),
        Some(error) => ClusterConfig::Unusable(error.to_string().into()),
        None if leaves.is_empty() => {
            ClusterConfig::Unusable(format!("cluster {} has no leaf clusters", view.name()).into())
        }
        None => ClusterConfig::Leaves(leaves),
    }
}

fn drop_share(drop: &crate::resource::endpoints::DropOverload) -> Drop {
    Drop { category: (&*drop.category).into(), per_million: drop.requests_per_million }
}

/// Why a cluster with TLS is not called.
#[cfg(feature = "tls")]
const NO_CREDENTIALS: &str = "it has TLS, and the channel has no credentials: set `ChannelBuilder::xds_credentials`, or \
                              `insecure_credentials` to ignore the TLS of clusters";
/// Why a cluster with TLS is not called.
#[cfg(not(feature = "tls"))]
const NO_CREDENTIALS: &str = "it has TLS, and this build has not (feature `tls`): set `ChannelBuilder::insecure_credentials` to \
                              ignore the TLS of clusters";
/// The limit of concurrent requests of a cluster without one (A32).
const DEFAULT_MAX_REQUESTS: u32 = 1_024;
/// The field of the configuration, for warnings.
const UTILIZATION_METRICS: &str = "metric_names_for_computing_utilization";
/// How much of a name a warning shows, in bytes.
const MAX_NAME_SHOWN: usize = 100;

#[cfg(test)]
mod tests;
