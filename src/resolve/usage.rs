//! What clusters are needed for, and how long they stay after that.
//!
//! Three questions must not be mixed up. Is a cluster in the tree, so that snapshots show it? Is it needed, so that it is
//! watched? Does it serve although it is deleted, and until when? The answers follow from roots, descendants and phases;
//! nothing is stored here.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    descendants::Descendants,
    node::TreeNode,
    nodes::Nodes,
    phase::{Grace, Retention},
    routed::{Next, RoutedClusters},
};

/// A view of a graph that answers which routes, calls and aggregates use a cluster, and how long it is kept for them
/// after its deletion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage<'a> {
    /// The clusters.
    pub(super) nodes: &'a Nodes,
    /// The clusters below aggregates.
    pub(super) descendants: &'a Descendants,
    /// The clusters of routes.
    pub(super) routed: &'a RoutedClusters,
}

/// The result of examining a grace.
#[derive(Debug, Clone, Copy)]
pub(super) struct GraceExamined {
    /// The grace after the examination.
    pub(super) grace: Grace,
    /// The entry of the cluster has to be decided on again. The graph marks the cluster, so that the decision is made where all
    /// others are.
    pub(super) is_due: bool,
}

impl Usage<'_> {
    /// Whether the next routes lead to a cluster.
    pub(super) fn is_next(&self, name: &Arc<str>) -> bool {
        self.descendants.next.contains(name) || self.nodes.get(name).is_some_and(|node| node.roots().next)
    }

    /// Whether the next routes need it otherwise than the routes in use: if these do without it, the next can, too.
    pub(super) fn is_awaited(&self, name: &Arc<str>) -> bool {
        let roots = self.nodes.get(name).map(TreeNode::roots).unwrap_or_default();
        !roots.current && (roots.next || !self.descendants.current.contains(name))
    }

    /// Whether the routes in use, a call, or an aggregate of these lead to it.
    pub(super) fn is_in_tree(&self, name: &Arc<str>) -> bool {
        self.descendants.shown.contains(name)
            || self.nodes.get(name).is_some_and(|node| node.roots().in_tree())
    }

    /// Whether routes, a call, or an aggregate lead to it.
    ///
    /// Clusters that nothing needs are unsubscribed at the end of the pass.
    pub(super) fn is_needed(&self, name: &Arc<str>) -> bool {
        self.descendants.contains(name) || self.nodes.get(name).is_some_and(|node| node.roots().any())
    }

    /// The clusters without which the next routes are not used, in the order of their names.
    pub(super) fn delaying(&self) -> impl Iterator<Item = &Arc<str>> {
        self.nodes.index().unready().iter().filter(|name| self.is_next(name))
    }

    /// The clusters of the routes in use that snapshots show by an earlier configuration, or with endpoints that were removed, in the
    /// order of their names.
    pub(super) fn outdated(&self) -> impl Iterator<Item = &Arc<str>> {
        let index = self.nodes.index();
        index.unready().union(index.in_grace()).filter(|name| {
            let node = self.nodes.get(name);
            // An overdue cluster serves for what is in `delaying`, or for an aggregate that is listed by itself.
            let waits = node.is_some_and(|node| !node.phase().is_overdue());
            let is_current = node.is_some_and(|node| node.roots().current);
            waits && (is_current || self.descendants.current.contains(*name))
        })
    }

    /// Whether all clusters of the next routes are ready. While others serve, the routes wait for clusters that are missing only
    /// because the server cannot be reached, and for a while for those that do not exist: the error may be older than the routes.
    pub(super) fn is_next_ready(&self) -> bool {
        let index = self.nodes.index();
        let delays_service = |name: &Arc<str>| self.is_next(name) && self.is_awaited(name);
        self.has_next()
            && self.delaying().next().is_none()
            && !(self.routed.is_serving() && index.unreachable().iter().any(delays_service))
            && self.routed.readiness_deadline().is_none()
    }

    /// The earliest end of a grace, of those that end by themselves.
    pub(super) fn next_grace(&self) -> Option<Instant> {
        let graces = self.nodes.index().in_grace().iter().filter_map(|name| {
            let phase = self.nodes.get(name)?.phase();
            phase.grace().filter(|_| !phase.is_overdue() && !self.is_spared(name))
        });
        graces.map(Grace::until).min()
    }

    /// Whether a deleted cluster, or one whose endpoints were removed, still serves: a server that replaces it may send its
    /// removal first, and the routes that lead elsewhere a moment later.
    ///
    /// The time begins anew when newer routes need the cluster: see [`examined_graces`](Self::examined_graces). If the
    /// routes in use need it as well, it serves until the newer ones are used, since its loss would help no request. The
    /// same holds below an aggregate whose latest configuration cannot be shown yet.
    pub(super) fn retention(&self, name: &Arc<str>, period: Duration, now: Instant) -> Option<Retention> {
        let node = self.nodes.get(name)?;
        let before = node.phase().grace();
        // A resource that was received and waits for another may still show an older error.
        let is_decided = before.is_none() && node.phase().is_ready();
        let has_failed = is_decided && node.shown().is_some_and(|shown| shown.error.is_some());
        // There is something to keep: without an entry, its deletion is its error.
        let serves = self.is_in_tree(name) && node.is_shown();
        let is_awaited = self.routed.is_serving() && self.is_next(name) && !has_failed;
        // `deletion_grace` of 0 switches the graces off.
        if period.is_zero() || !(serves || is_awaited) {
            return None;
        }
        let grace = before.unwrap_or_else(|| Grace::new(now + period));
        let is_succeeded = (self.routed.is_serving() && self.has_next()) || self.is_below_previous(name);
        match now < grace.until() || self.is_spared(name) {
            true => Some(Retention::InGrace(grace)),
            false if serves && is_succeeded => Some(Retention::Overdue(grace)),
            false => None,
        }
    }

    /// Whether routes are expected that are not known yet.
    pub(super) fn expects_routes(&self) -> bool {
        matches!(self.routed.next(), Next::Unknown)
    }

    /// Whether routes are prepared.
    fn has_next(&self) -> bool {
        matches!(self.routed.next(), Next::Clusters(_))
    }

    /// Whether it is below an aggregate whose latest configuration is to be shown as soon as more is known.
    fn is_below_previous(&self, name: &Arc<str>) -> bool {
        self.descendants.previous.contains(name)
    }

    /// Examines the graces, and returns those that differ or are due: they are over, or begin anew since newer routes need
    /// their clusters again.
    pub(super) fn examined_graces(&self, period: Duration, now: Instant) -> Vec<(Arc<str>, GraceExamined)> {
        let examined = self.nodes.index().in_grace().iter().filter_map(|name| {
            let node = self.nodes.get(name)?;
            let before = node.phase().grace()?;
            let after = self.examine(name, node, period, now)?;
            (after.is_due || after.grace != before).then(|| (name.clone(), after))
        });
        examined.collect()
    }

    /// Examines the grace of a cluster that was deleted.
    ///
    /// A grace that begins anew makes the cluster due as well: it may have been overdue, and is decided on again.
    fn examine(
        &self,
        name: &Arc<str>,
        node: &TreeNode,
        period: Duration,
        now: Instant,
    ) -> Option<GraceExamined> {
        let before = node.phase().grace()?;
        let grace = before.with_spared(self.is_spared(name));
        // A call that still holds it has no effect on it.
        let is_led_to = self.is_next(name) || node.roots().current || self.descendants.latest.contains(name);
        let waits = node.phase().is_overdue() && (self.has_next() || self.is_below_previous(name));
        Some(if before.is_spared() && !grace.is_spared() && is_led_to {
            GraceExamined { grace: Grace::new(now + period), is_due: true }
        } else {
            let is_over = grace.until() <= now && !grace.is_spared() && !waits;
            GraceExamined { grace, is_due: is_over }
        })
    }

    /// Whether the next routes, while they are waited for, do without a cluster.
    ///
    /// The grace of such a cluster does not end while the next routes are waited for: they are about to make its loss harmless.
    fn is_spared(&self, name: &Arc<str>) -> bool {
        let needs = |node: &TreeNode| node.roots().needs_by_itself(self.descendants.current.contains(name));
        match self.routed.next() {
            Next::Unknown => true,
            Next::Clusters(_) if !self.is_next(name) => true,
            // It is below an aggregate as that was.
            Next::Clusters(_) | Next::Nothing => {
                !self.descendants.latest.contains(name) && !self.nodes.get(name).is_some_and(needs)
            }
        }
    }
}
