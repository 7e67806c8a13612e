//! A cluster in the graph.
//!
//! A node has the state of one cluster, and no knowledge of others: what depends on several clusters is decided by `Usage` and
//! `Linker`, and applied by the graph. It changes within `Nodes::update` alone, which keeps the indexes in step.

use std::{mem, sync::Arc};

use super::{
    aggregate::Child,
    cluster_entry::ClusterEntry,
    endpoints::{Endpoints, Source, is_lack},
    phase::Phase,
};
use crate::{
    error::WatchError,
    observed::Observed,
    resource::{Cluster, ClusterKind, ClusterLoadAssignment},
};

/// One cluster of the graph: its latest configuration, its entry in snapshots, and the [`Phase`] between the two.
#[derive(Debug, Default)]
pub(super) struct TreeNode {
    /// What leads to it.
    roots: Roots,
    /// The latest state; `None` before the first one. It is what the server has, and decides what is watched; `shown` is what
    /// serves.
    latest: Option<Arc<Observed<Cluster>>>,
    /// The configuration that serves until the latest can. Set when the latest configuration cannot be shown, and dropped when
    /// it is.
    old: Option<Arc<Cluster>>,
    /// The entry of the cluster in snapshots. It stays while the cluster is out of the tree, where no snapshot contains it.
    shown: Option<Arc<ClusterEntry>>,
    /// Where it stands between its previous and its latest configuration.
    phase: Phase,
    /// The sources that are watched for the cluster: that of the latest configuration, and that of `old`. Two at most, so that
    /// a list is searched faster than a set.
    sources: Vec<Source>,
    /// The state that aggregates above it were last linked by. Aggregates are linked again only if it differs, so that an
    /// update of endpoints alone costs one cluster.
    child_state: ChildState,
}

/// The reasons why a cluster is in the graph, aggregates above it aside.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roots {
    /// The routes in use lead to it.
    pub(super) current: bool,
    /// The routes that are to be used next lead to it.
    pub(super) next: bool,
    /// A call holds it (A74-6). Such a cluster is in snapshots, and delays none (F7).
    pub(super) held: bool,
}

/// The state of a cluster as far as it matters to aggregates above it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ChildState {
    /// Whether a state was received.
    is_known: bool,
    /// Whether the cluster exists.
    exists: bool,
    /// Whether nothing can be sent to it.
    is_unreachable: bool,
    /// Whether its grace period is over.
    is_overdue: bool,
    /// Whether its endpoints are unknown.
    lacks_endpoints: bool,
    /// Whether it is an aggregate.
    is_aggregate: bool,
}

/// The traits of a node by which [`Nodes`](super::nodes::Nodes) finds it.
///
/// They are derived from the node, before and after each change, and never set.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Traits {
    /// The cluster is not shown by its latest configuration.
    pub(super) unready: bool,
    /// The cluster cannot get any requests.
    pub(super) unreachable: bool,
    /// The cluster does not exist.
    pub(super) missing: bool,
    /// The cluster was deleted and stays in use.
    pub(super) in_grace: bool,
    /// The cluster is an aggregate.
    pub(super) aggregate: bool,
}

/// The previous configuration of a cluster, which serves on, and the warning that is shown with it.
#[derive(Debug)]
pub(super) struct Retained {
    /// The configuration.
    pub(super) config: Arc<Cluster>,
    /// Why it may be stale.
    pub(super) warning: Option<WatchError>,
}

impl Roots {
    /// Whether anything leads to the cluster.
    pub(super) fn any(self) -> bool {
        self.current || self.next || self.held
    }

    /// Whether snapshots show the cluster for its own sake.
    pub(super) fn in_tree(self) -> bool {
        self.current || self.held
    }

    /// Whether the cluster is needed apart from the aggregates above it. A call that holds a cluster does not end its service
    /// below an aggregate of the routes in use (`below_current`).
    ///
    /// The end of that call must not make the cluster an error while the aggregate is still shown with it.
    pub(super) fn needs_by_itself(self, below_current: bool) -> bool {
        self.current || self.next || (self.held && !below_current)
    }
}

impl ChildState {
    /// Whether the cluster is an aggregate.
    pub(super) fn is_aggregate(self) -> bool {
        self.is_aggregate
    }
}

impl TreeNode {
    /// What leads to the cluster.
    pub(super) fn roots(&self) -> Roots {
        self.roots
    }

    /// What leads to the cluster.
    pub(super) fn roots_mut(&mut self) -> &mut Roots {
        &mut self.roots
    }

    /// Where the cluster stands between its configurations.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// Where the cluster stands between its configurations.
    pub(super) fn phase_mut(&mut self) -> &mut Phase {
        &mut self.phase
    }

    /// The latest state.
    pub(super) fn latest(&self) -> Option<&Arc<Observed<Cluster>>> {
        self.latest.as_ref()
    }

    /// The entry of the cluster in snapshots.
    pub(super) fn shown(&self) -> Option<&Arc<ClusterEntry>> {
        self.shown.as_ref()
    }

    /// Handles the state of the cluster.
    pub(super) fn on_cluster(&mut self, seen: Arc<Observed<Cluster>>) {
        self.latest = Some(seen);
    }

    /// Shows something of the cluster. Returns whether something else was shown before.
    ///
    /// An entry that shows nothing else is dropped, so that the pointer in snapshots stays the same.
    pub(super) fn show(&mut self, entry: ClusterEntry) -> bool {
        let differs = self.shown.as_ref().is_none_or(|shown| !shown.is_same(&entry));
        if differs {
            self.shown = Some(Arc::new(entry));
        }
        differs
    }

    /// The latest configuration serves: the previous one is not needed any more.
    pub(super) fn forget_old(&mut self) {
        self.old = None;
    }

    /// Whether it is shown by the previous configuration, which is an aggregate's.
    ///
    /// Out of the tree such an entry has to be forgotten: the clusters below it are not kept, and a call that holds the
    /// aggregate would see it without its leaves.
    pub(super) fn is_old_aggregate(&self) -> bool {
        matches!(self.shown_as_child(), Child::Aggregate(_)) && !self.phase.is_linked()
    }

    /// Forgets the shown entry and the one before it.
    pub(super) fn forget_shown(&mut self) {
        (self.shown, self.old) = (None, None);
    }

    /// Keeps the configuration that serves; `None` if nothing serves.
    ///
    /// Called for each update while the latest configuration cannot be shown: the first of these calls decides which
    /// configuration is kept, and those between the two are skipped.
    pub(super) fn retain_old(&mut self) -> Option<Retained> {
        if self.old.is_none() {
            self.old = self.serving().cloned();
        }
        let (config, shown) = self.old.clone().zip(self.shown.as_ref())?;
        Some(Retained { config, warning: shown.warning.clone() })
    }

    /// The sources that are watched for the cluster.
    pub(super) fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Notes a source that is watched for the cluster.
    pub(super) fn add_source(&mut self, source: &Source) {
        self.sources.push(source.clone());
    }

    /// Removes and returns the sources that neither the latest nor the old configuration has.
    ///
    /// Called after the decision what is shown, so that endpoints of the previous configuration are watched as long as it
    /// serves.
    pub(super) fn take_unused_sources(&mut self) -> Vec<Source> {
        let of = |cluster: Option<&Arc<Cluster>>| cluster.and_then(|cluster| Source::of(cluster));
        let needed = [of(self.config()), of(self.old.as_ref())];
        let is_needed = |source: &Source| needed.iter().flatten().any(|needed| needed == source);
        let (kept, unused) = mem::take(&mut self.sources).into_iter().partition(is_needed);
        self.sources = kept;
        unused
    }

    /// Recomputes the state that aggregates above it are linked by, and returns it before and after.
    pub(super) fn update_child_state(&mut self) -> (ChildState, ChildState) {
        // One that has led to other clusters does so until something else is shown.
        let is_aggregate = [self.latest_as_child(), self.shown_as_child()]
            .iter()
            .any(|child| matches!(child, Child::Aggregate(_)));
        let after = ChildState {
            is_known: self.phase.is_known(),
            exists: self.config().is_some(),
            is_unreachable: self.is_unreachable(),
            is_overdue: self.phase.is_overdue(),
            lacks_endpoints: self.lacks_endpoints(),
            is_aggregate,
        };
        (mem::replace(&mut self.child_state, after), after)
    }

    /// The properties by which clusters are indexed.
    pub(super) fn traits(&self) -> Traits {
        Traits {
            unready: !self.phase.is_ready(),
            unreachable: self.is_unreachable(),
            missing: self.is_missing(),
            in_grace: self.phase.grace().is_some(),
            aggregate: self.child_state.is_aggregate,
        }
    }

    /// The configuration that serves now.
    pub(super) fn serving(&self) -> Option<&Arc<Cluster>> {
        self.shown.as_ref().filter(|shown| shown.error.is_none()).and_then(|shown| shown.config.as_ref())
    }

    /// Whether snapshots show a configuration: it serves, or it is an aggregate that others may serve by, though it is
    /// in a chain that is too long.
    pub(super) fn is_shown(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.config.is_some())
    }

    /// Whether the cluster serves by other endpoints than those of a source.
    ///
    /// True in particular for a cluster that was an aggregate, or whose EDS service was replaced.
    pub(super) fn serves_without(&self, source: &Source) -> bool {
        let serves_otherwise = |shown: &Arc<ClusterEntry>| {
            let serves = shown.endpoints.is_some() || !shown.leaves.is_empty();
            serves && shown.config.as_ref().and_then(|config| Source::of(config)).as_ref() != Some(source)
        };
        self.shown.as_ref().is_some_and(serves_otherwise)
    }

    /// The endpoints that serve now, if those of this source, which are the same, have been removed.
    ///
    /// The incremental variant removes endpoints by their name, and a server that replaces them may do so before it sends
    /// the resources that lead to others.
    pub(super) fn removed_endpoints(
        &self,
        source: &Source,
        seen: &Endpoints,
    ) -> Option<Arc<ClusterLoadAssignment>> {
        let shown = self.shown.as_ref().filter(|_| seen.is_missing())?;
        let is_same = Source::of(shown.config.as_ref()?).as_ref() == Some(source);
        shown.endpoints.clone().filter(|_| is_same)
    }

    /// The latest configuration.
    pub(super) fn config(&self) -> Option<&Arc<Cluster>> {
        self.latest.as_ref().and_then(|seen| seen.resource())
    }

    /// The latest configuration as aggregates above it see it.
    pub(super) fn latest_as_child(&self) -> Child<'_> {
        self.config().map_or(Child::Nothing, child)
    }

    /// The shown configuration as aggregates above it see it.
    pub(super) fn shown_as_child(&self) -> Child<'_> {
        self.shown.as_ref().and_then(|shown| shown.config.as_ref()).map_or(Child::Nothing, child)
    }

    /// Whether it is known that there is no such cluster.
    ///
    /// A deleted cluster in its grace is not missing, as it serves. Once the grace is over it counts as missing, although it
    /// may still serve.
    fn is_missing(&self) -> bool {
        if self.phase.is_overdue() {
            return true;
        }
        let error =
            self.shown.as_ref().filter(|shown| shown.config.is_none()).and_then(|shown| shown.error.as_ref());
        error.is_some_and(WatchError::is_not_found) && self.config().is_none()
    }

    /// Whether requests can be sent to its endpoints.
    pub(super) fn has_endpoints(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.error.is_none() && shown.endpoints.is_some())
    }

    /// Whether it has no endpoints because there are none, or none were received.
    ///
    /// An assignment without endpoints is no lack: the server has sent it.
    pub(super) fn lacks_endpoints(&self) -> bool {
        let lacks = |shown: &Arc<ClusterEntry>| {
            let endpoints_error =
                shown.endpoints_error.as_ref().filter(|_| shown.error.is_none() && shown.endpoints.is_none());
            endpoints_error.is_some_and(is_lack)
        };
        self.shown.as_ref().is_some_and(lacks)
    }

    /// Whether nothing is known because the server cannot be reached. A host that cannot be looked up is as good as one
    /// without addresses (F5).
    pub(super) fn is_unreachable(&self) -> bool {
        // An aggregate has no resource of its own that could be unreachable, nor has a cluster without an entry yet.
        let Some(shown) =
            self.shown.as_ref().filter(|_| !matches!(self.latest_as_child(), Child::Aggregate(_)))
        else {
            return false;
        };
        let is_host = |config: &Arc<Cluster>| matches!(Source::of(config), Some(Source::Host(_)));
        let reason = match (&shown.error, &shown.endpoints) {
            // The cluster is known, and its endpoints are not: their reason counts.
            (None, None) if !shown.config.as_ref().is_some_and(is_host) => shown.endpoints_error.as_ref(),
            (None, _) => None,
            (error, _) => error.as_ref(),
        };
        reason.is_some_and(WatchError::is_of_server)
    }
}

/// What a cluster is below an aggregate.
fn child(cluster: &Arc<Cluster>) -> Child<'_> {
    match &cluster.kind {
        ClusterKind::Aggregate { clusters } => Child::Aggregate(clusters),
        ClusterKind::Eds { .. } | ClusterKind::LogicalDns { .. } => Child::Leaf,
    }
}
