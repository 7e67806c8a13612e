//! Where a cluster stands between its previous and its latest configuration.

use std::time::Instant;

/// The configuration that a cluster serves by: its latest resources, or the ones before them.
///
/// ```text
///  Waiting ──────── on_shown ────────▶ Shown ── on_endpoints_removed ──▶ EndpointsRemoved ──┐
///     │                                                                                     │ the same, when
///     ├── on_deleted ──▶ Deleted ── on_deleted, when the grace is over ──▶ Overdue ◀────────┘ the grace is over
///     │
///     └── on_aggregate ──▶ Linking ◀── on_linked ──▶ Linked
/// ```
///
/// `on_shown`, `on_waiting`, `on_aggregate`, `on_deleted` and `on_endpoints_removed` are legal in every state, since the
/// latest resource decides; `Waiting` is merely the first one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Phase {
    /// The state. It is private, so that nothing outside of this file compares variants.
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The latest configuration is unknown, or its endpoints are. The previous configuration serves meanwhile.
    #[default]
    Waiting,
    /// The cluster, or all that the latest configuration needs, does not exist. The previous configuration serves. The resource
    /// is gone, and its entry in snapshots is not.
    Deleted(Grace),
    /// An aggregate that cannot be shown by its latest configuration yet. Its latest configuration is known, so that aggregates
    /// above it need not wait for more.
    Linking,
    /// An aggregate that is shown by its latest configuration. The entry is made anew by each link.
    Linked,
    /// The latest resources are shown, or the error that there are none.
    Shown,
    /// The latest configuration is shown with endpoints that have been removed. Unlike a deleted cluster it is ready: the
    /// latest configuration is in use, and only its endpoints are older.
    EndpointsRemoved(Grace),
    /// The grace period is over, but the cluster serves until the next routes are used, or the aggregate above it can be shown
    /// by its latest configuration. It is ready, so that the routes that it serves until do not wait for it.
    Overdue(Grace),
}

/// The time for which something serves that has been deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grace {
    /// The time at which it ends. At least `deletion_grace` after the deletion was seen.
    until: Instant,
    /// When the graces were last examined, the next routes did without the cluster, so that its grace did not end. The next
    /// examination compares: if the next routes need the cluster again, they are newer than its deletion, and the grace begins
    /// anew.
    is_spared: bool,
}

/// The reason why a deleted resource serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retention {
    /// The replacement may be about to arrive.
    InGrace(Grace),
    /// The time of the replacement has passed. The deleted resource serves only until the next routes are used, or the
    /// aggregate above it can be shown by its latest configuration.
    Overdue(Grace),
}

impl Phase {
    /// The latest resources are shown from now on.
    pub(super) fn on_shown(&mut self) {
        self.state = State::Shown;
    }

    /// The latest configuration cannot be shown before more is known.
    pub(super) fn on_waiting(&mut self) {
        self.state = State::Waiting;
    }

    /// The latest configuration is an aggregate's. One that is linked already stays so until it is linked again.
    ///
    /// The graph links all aggregates afterwards, whose result decides.
    pub(super) fn on_aggregate(&mut self) {
        self.state = match self.state {
            State::Linked => State::Linked,
            State::Linking
            | State::Waiting
            | State::Deleted(_)
            | State::Shown
            | State::EndpointsRemoved(_)
            | State::Overdue(_) => State::Linking,
        };
    }

    /// The aggregates were linked; whether this one is shown by its latest configuration. Returns whether it can be.
    #[must_use]
    pub(super) fn on_linked(&mut self, linked: bool) -> bool {
        match self.state {
            State::Linking | State::Linked => {
                self.state = if linked { State::Linked } else { State::Linking };
                true
            }
            // Only the shown configuration is an aggregate's.
            State::Waiting
            | State::Deleted(_)
            | State::Shown
            | State::EndpointsRemoved(_)
            | State::Overdue(_) => !linked,
        }
    }

    /// The cluster, or all that its latest configuration needs, has been deleted.
    pub(super) fn on_deleted(&mut self, retention: Retention) {
        self.state = match retention {
            Retention::InGrace(grace) => State::Deleted(grace),
            Retention::Overdue(grace) => State::Overdue(grace),
        };
    }

    /// The endpoints have been removed, and are shown still.
    pub(super) fn on_endpoints_removed(&mut self, retention: Retention) {
        self.state = match retention {
            Retention::InGrace(grace) => State::EndpointsRemoved(grace),
            Retention::Overdue(grace) => State::Overdue(grace),
        };
    }

    /// Records the grace after it was examined. Returns whether there is one.
    #[must_use]
    pub(super) fn on_grace_examined(&mut self, after: Grace) -> bool {
        match &mut self.state {
            State::Deleted(grace) | State::EndpointsRemoved(grace) | State::Overdue(grace) => {
                *grace = after;
                true
            }
            State::Waiting | State::Linking | State::Linked | State::Shown => false,
        }
    }

    /// The grace that runs, or is over while the cluster serves on.
    pub(super) fn grace(self) -> Option<Grace> {
        match self.state {
            State::Deleted(grace) | State::EndpointsRemoved(grace) | State::Overdue(grace) => Some(grace),
            State::Waiting | State::Linking | State::Linked | State::Shown => None,
        }
    }

    /// Whether the latest configuration is shown or, of an aggregate, is known.
    ///
    /// The question of aggregates above it.
    pub(super) fn is_known(self) -> bool {
        match self.state {
            State::Waiting | State::Deleted(_) => false,
            State::Linking
            | State::Linked
            | State::Shown
            | State::EndpointsRemoved(_)
            | State::Overdue(_) => true,
        }
    }

    /// Whether the latest configuration, or its endpoints, are unknown.
    pub(super) fn is_waiting(self) -> bool {
        match self.state {
            State::Waiting => true,
            State::Deleted(_)
            | State::Linking
            | State::Linked
            | State::Shown
            | State::EndpointsRemoved(_)
            | State::Overdue(_) => false,
        }
    }

    /// Whether it is an aggregate that is shown by its latest configuration.
    pub(super) fn is_linked(self) -> bool {
        match self.state {
            State::Linked => true,
            State::Waiting
            | State::Deleted(_)
            | State::Linking
            | State::Shown
            | State::EndpointsRemoved(_)
            | State::Overdue(_) => false,
        }
    }

    /// Whether the next routes need not wait for the cluster.
    ///
    /// The question of the next routes.
    pub(super) fn is_ready(self) -> bool {
        match self.state {
            State::Waiting | State::Deleted(_) | State::Linking => false,
            State::Linked | State::Shown | State::EndpointsRemoved(_) | State::Overdue(_) => true,
        }
    }

    /// Whether the cluster serves although its grace period is over.
    pub(super) fn is_overdue(self) -> bool {
        match self.state {
            State::Overdue(_) => true,
            State::Waiting
            | State::Deleted(_)
            | State::Linking
            | State::Linked
            | State::Shown
            | State::EndpointsRemoved(_) => false,
        }
    }
}

impl Grace {
    /// A grace until some time.
    pub(super) fn new(until: Instant) -> Self {
        Self { until, is_spared: false }
    }

    /// The time at which it ends.
    pub(super) fn until(self) -> Instant {
        self.until
    }

    /// Whether the next routes did without the cluster when graces were last examined.
    pub(super) fn is_spared(self) -> bool {
        self.is_spared
    }

    /// Notes the result of an examination.
    #[must_use]
    pub(super) fn with_spared(self, is_spared: bool) -> Self {
        Self { is_spared, ..self }
    }
}
