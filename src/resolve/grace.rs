use std::{mem, sync::Arc, time::Instant};

use super::{
    graph::{Graph, Next},
    node::Node,
};

/// Why something serves that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grace {
    /// What replaces it may be on its way.
    Runs,
    /// That has had its time. It only serves until the next routes are used.
    Overdue,
}

impl Graph {
    /// When something that is put off is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let due = self.graces.iter().filter(|name| !self.is_spared(name) && !self.is_overdue(name));
        due.filter_map(|name| self.nodes.get(name)?.grace).chain(self.patience).chain(self.leafless.due).min()
    }

    /// Whether a deleted cluster, or one whose endpoints were removed, still serves: a server that replaces it may send its
    /// removal first, and the routes that lead elsewhere a moment later.
    ///
    /// The time begins anew when newer routes need the cluster: see [`end_graces`](Self::end_graces). If the routes in use need
    /// it as well, it serves until the newer ones are used, since its loss would help nobody.
    pub(super) fn grace(&mut self, name: &Arc<str>, now: Instant) -> Option<Grace> {
        let node = self.nodes.get(name)?;
        // What came and waits for something else may still show an older error.
        let is_decided = node.grace.is_none() && !self.unready.contains(name);
        let has_failed = is_decided && node.shown.as_ref().is_some_and(|shown| shown.error.is_some());
        let serves = self.is_in_tree(name) && node.is_shown();
        let is_awaited = self.serving && self.is_next(name) && !has_failed;
        if self.grace.is_zero() || !(serves || is_awaited) {
            return None;
        }
        let until = node.grace.unwrap_or(now + self.grace);
        let grace = match now < until || self.is_spared(name) {
            true => Grace::Runs,
            false if serves && self.serving && matches!(self.next, Next::Clusters(_)) => Grace::Overdue,
            false => return None,
        };
        self.node(name).grace = Some(until);
        Some(grace)
    }

    /// Until when the next routes wait for clusters that there are not, or that lead to no endpoints, while others serve: these
    /// may be older news than the routes.
    pub(super) fn patience(&mut self, now: Instant) -> Option<Instant> {
        let Next::Clusters(names) = &self.next else { return None };
        let until = *self.next_since.get_or_insert(now) + self.grace;
        let mut lacking = names.iter().filter(|name| self.missing.contains(*name) || self.is_void(name));
        let waits = self.serving && now < until && lacking.any(|name| self.is_awaited(name));
        waits.then_some(until)
    }

    /// Ends the graces that are over, and begins those anew whose clusters newer routes need again. Says whether there were any.
    pub(super) fn end_graces(&mut self, now: Instant) -> bool {
        for name in self.graces.clone() {
            let is_spared = self.is_spared(&name);
            // A call that still holds it is no news of it.
            let is_led_to =
                self.is_next(&name) || self.is_current(&name) || self.below_latest.contains(&name);
            let waits = self.is_overdue(&name) && matches!(self.next, Next::Clusters(_));
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            let was_spared = mem::replace(&mut node.is_spared, is_spared);
            if was_spared && !is_spared && is_led_to {
                node.grace = Some(now + self.grace);
                self.dirty.insert(name);
            } else if node.grace.is_some_and(|until| until <= now) && !is_spared && !waits {
                self.dirty.insert(name);
            }
        }
        !self.dirty.is_empty()
    }

    /// Whether what will be used next, and is waited for, does without a cluster.
    fn is_spared(&self, name: &Arc<str>) -> bool {
        let needed = |node: &Node| node.roots.needs_by_itself(self.below_current.contains(name));
        match &self.next {
            Next::Unknown => true,
            Next::Clusters(_) if !self.is_next(name) => true,
            // It is below an aggregate as that was.
            Next::Clusters(_) | Next::Nothing => {
                !self.below_latest.contains(name) && !self.nodes.get(name).is_some_and(needed)
            }
        }
    }

    fn is_current(&self, name: &Arc<str>) -> bool {
        self.nodes.get(name).is_some_and(|node| node.roots.current)
    }

    /// Whether it only serves until the next routes are used.
    pub(super) fn is_overdue(&self, name: &Arc<str>) -> bool {
        self.nodes.get(name).is_some_and(|node| node.overdue)
    }
}
