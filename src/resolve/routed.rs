//! The clusters that routes name: of those in use, and of those that are prepared.

use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// The clusters that the routes lead to: the routes in use, and those that are prepared.
#[derive(Debug, Default)]
pub(super) struct RoutedClusters {
    /// The clusters of the routes in use. They stay after an error of the target, until there is another tree (F8).
    current: Vec<Arc<str>>,
    /// The clusters of the routes that are prepared.
    next: Next,
    /// The time at which the wait for the next routes began. Set by the first examination of the wait; `None` if no routes are
    /// prepared.
    next_since: Option<Instant>,
    /// The time until which the next routes wait for a cluster that does not exist. Set after each change by the graph; `None`
    /// if no cluster is missing, or the wait is over.
    readiness_deadline: Option<Instant>,
    /// Requests are sent by the current routes. Without a tree in use there is nothing to lose, and new routes are used with
    /// the errors of their clusters.
    is_serving: bool,
}

/// The clusters of the routes that are to be used next.
#[derive(Debug, Clone, Default)]
pub(super) enum Next {
    /// No routes are prepared.
    #[default]
    Nothing,
    /// New routes are expected, and not known yet. Deleted clusters serve meanwhile, as the routes may do without them.
    Unknown,
    /// The clusters of the new routes.
    Clusters(Vec<Arc<str>>),
}

/// The clusters of the routes before and after the next routes are put into use.
#[derive(Debug)]
pub(super) struct Committed<'a> {
    /// The clusters of the previous routes.
    pub(super) before: Vec<Arc<str>>,
    /// The clusters of the routes that are in use now.
    pub(super) after: &'a [Arc<str>],
}

impl RoutedClusters {
    /// The clusters of the routes that are prepared.
    pub(super) fn next(&self) -> &Next {
        &self.next
    }

    /// Whether requests are sent by the current routes.
    pub(super) fn is_serving(&self) -> bool {
        self.is_serving
    }

    /// The time until which the next routes wait for a cluster that does not exist.
    pub(super) fn readiness_deadline(&self) -> Option<Instant> {
        self.readiness_deadline
    }

    /// Withdraws the next routes, and returns their clusters.
    pub(super) fn withdraw_next(&mut self) -> Vec<Arc<str>> {
        mem::take(&mut self.next).into_clusters().unwrap_or_default()
    }

    /// Sets the routes that are prepared; their wait begins anew.
    pub(super) fn set_next(&mut self, next: Next) {
        (self.next, self.next_since) = (next, None);
    }

    /// Puts the next routes into use; `None` if there are none.
    pub(super) fn commit(&mut self) -> Option<Committed<'_>> {
        let names = mem::take(&mut self.next).into_clusters()?;
        let before = mem::replace(&mut self.current, names);
        Some(Committed { before, after: &self.current })
    }

    /// Sets whether requests are sent by the current routes.
    pub(super) fn set_serving(&mut self, is_serving: bool) {
        self.is_serving = is_serving;
    }

    /// The time until which the next routes may wait for a cluster, while others serve: for a period from the first call.
    ///
    /// One period for all clusters: it does not begin anew when another cluster turns out to be missing.
    pub(super) fn wait_limit(&mut self, period: Duration, now: Instant) -> Option<Instant> {
        match self.next {
            Next::Clusters(_) => {
                let until = *self.next_since.get_or_insert(now) + period;
                (self.is_serving && now < until).then_some(until)
            }
            Next::Nothing | Next::Unknown => None,
        }
    }

    /// Sets the time until which the next routes wait.
    pub(super) fn set_readiness_deadline(&mut self, deadline: Option<Instant>) {
        self.readiness_deadline = deadline;
    }

    #[cfg(test)]
    pub(super) fn current(&self) -> &[Arc<str>] {
        &self.current
    }
}

impl Next {
    fn into_clusters(self) -> Option<Vec<Arc<str>>> {
        match self {
            Self::Clusters(names) => Some(names),
            Self::Nothing | Self::Unknown => None,
        }
    }
}
