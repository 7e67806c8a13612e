use std::{sync::Arc, time::Instant};

use super::{aggregate::Child, dns::HostSeen, resolver::Reference, snapshot::ClusterEntry};
use crate::{
    error::{Blame, Code, Subject, WatchError},
    observed::Observed,
    resource::{Cluster, ClusterKind, ClusterLoadAssignment, Resource, cluster::HostPort},
};

/// Where the endpoints of a cluster come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// An assignment of this name.
    Eds(Reference),
    /// The addresses of a host.
    Host(HostPort),
}

/// What a source has to say.
#[derive(Debug, Clone)]
pub(crate) enum Endpoints {
    Eds(Arc<Observed<ClusterLoadAssignment>>),
    Host(HostSeen),
}

/// Why a cluster is in the graph, aggregates above it aside.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Roots {
    /// The routes in use lead to it.
    pub(super) current: bool,
    /// The routes that are to be used next lead to it.
    pub(super) next: bool,
    /// A call holds it (A74-6).
    pub(super) held: bool,
}

/// One cluster of the graph.
///
/// ```text
///             on_cluster, endpoints known                 endpoints of another source are not known yet
///  unready ───────────────────────────────▶ ready ─────────────────────────────────────────────────────┐
///     ▲                                      │  ▲                                                       ▼
///     └──────────────────────────────────────┘  └─────────────────────────────── unready, `old` serves meanwhile
///                                                    or its grace is over             ▲
///                                            ready ── deleted while routes name it ───┘
/// ```
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) roots: Roots,
    pub(super) latest: Option<Arc<Observed<Cluster>>>,
    /// What serves until the latest can.
    pub(super) old: Option<Arc<Cluster>>,
    /// What snapshots show.
    pub(super) shown: Option<Arc<ClusterEntry>>,
    /// The latest is shown, or is an aggregate, which the graph decides on.
    pub(super) ready: bool,
    /// Until when it outlives its deletion, or that of its endpoints.
    pub(super) grace: Option<Instant>,
    /// When it was last looked at, what comes next did without it, so that its grace did not end.
    pub(super) is_spared: bool,
    /// It is gone, and its grace is over, but it serves until the next routes are used.
    pub(super) overdue: bool,
    /// The sources that it watches: that of the latest, and that of `old`.
    pub(super) sources: Vec<Source>,
    /// What aggregates above it were last linked by.
    pub(super) standing: ChildState,
}

/// What aggregates above a cluster must know of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ChildState {
    ready: bool,
    exists: bool,
    cut_off: bool,
    overdue: bool,
    pub(super) is_aggregate: bool,
}

impl Roots {
    pub(super) fn any(self) -> bool {
        self.current || self.next || self.held
    }

    /// Whether the cluster is needed apart from the aggregates above it. A call that holds a cluster does not end its service
    /// below an aggregate of the routes in use (`below_current`).
    pub(super) fn needs_by_itself(self, below_current: bool) -> bool {
        self.current || self.next || (self.held && !below_current)
    }
}

impl Node {
    /// The configuration that serves now.
    pub(super) fn serving(&self) -> Option<&Arc<Cluster>> {
        self.shown.as_ref().filter(|shown| shown.error.is_none()).and_then(|shown| shown.config.as_ref())
    }

    /// Whether snapshots show a configuration: it serves, or it is an aggregate that others may serve by, though it stands in a
    /// chain that is too long.
    pub(super) fn is_shown(&self) -> bool {
        self.shown.as_ref().is_some_and(|shown| shown.config.is_some())
    }

    /// The endpoints that serve now, if those of this source, which are the same, have been removed.
    ///
    /// The incremental variant removes endpoints by their name, and a server that replaces them may do so before it tells
    /// what leads to others.
    pub(super) fn removed(&self, source: &Source, seen: &Endpoints) -> Option<Arc<ClusterLoadAssignment>> {
        let shown = self.shown.as_ref().filter(|_| seen.is_missing())?;
        let is_same = Source::of(shown.config.as_ref()?).as_ref() == Some(source);
        shown.endpoints.clone().filter(|_| is_same)
    }

    /// The latest configuration.
    pub(super) fn config(&self) -> Option<&Arc<Cluster>> {
        self.latest.as_ref().and_then(|seen| seen.resource())
    }

    /// What the latest configuration is for aggregates above it.
    pub(super) fn as_child(&self) -> Child<'_> {
        self.config().map_or(Child::Nothing, child)
    }

    /// What the shown configuration is for aggregates above it.
    pub(super) fn as_shown_child(&self) -> Child<'_> {
        self.shown.as_ref().and_then(|shown| shown.config.as_ref()).map_or(Child::Nothing, child)
    }

    /// Whether it is known that there is no such cluster.
    pub(super) fn is_missing(&self) -> bool {
        if self.overdue {
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

    /// Whether it has no endpoints because there are none, or none came.
    pub(super) fn lacks_endpoints(&self) -> bool {
        let lacks = |shown: &Arc<ClusterEntry>| {
            let note = shown.note.as_ref().filter(|_| shown.error.is_none() && shown.endpoints.is_none());
            note.is_some_and(is_lack)
        };
        self.shown.as_ref().is_some_and(lacks)
    }

    /// Whether nothing is there because the server cannot be reached. A host that cannot be looked up is as good as one
    /// without addresses (F5).
    pub(super) fn is_cut_off(&self) -> bool {
        let Some(shown) = self.shown.as_ref().filter(|_| !matches!(self.as_child(), Child::Aggregate(_)))
        else {
            return false;
        };
        let is_host = |config: &Arc<Cluster>| matches!(Source::of(config), Some(Source::Host(_)));
        let missing = match (&shown.error, &shown.endpoints) {
            (None, None) if !shown.config.as_ref().is_some_and(is_host) => shown.note.as_ref(),
            (None, _) => None,
            (error, _) => error.as_ref(),
        };
        missing.is_some_and(WatchError::is_of_server)
    }

    /// What aggregates above it must know now.
    pub(super) fn judge_standing(&self) -> ChildState {
        // One that has led to other clusters does so until something else is shown.
        let is_aggregate =
            [self.as_child(), self.as_shown_child()].iter().any(|child| matches!(child, Child::Aggregate(_)));
        let (exists, cut_off) = (self.config().is_some(), self.is_cut_off());
        ChildState { ready: self.ready, exists, cut_off, overdue: self.overdue, is_aggregate }
    }
}

impl Endpoints {
    /// Why there are none. A host that cannot be looked up has no such reason (F5).
    fn absence(&self) -> Option<&WatchError> {
        match self {
            Self::Eds(seen) => match &**seen {
                Observed::Absent { reason } => Some(reason),
                Observed::Present { .. } | Observed::Pending => None,
            },
            Self::Host(_) => None,
        }
    }

    /// Whether nothing is known because the server cannot be reached.
    pub(super) fn is_cut_off(&self) -> bool {
        self.absence().is_some_and(WatchError::is_of_server)
    }

    /// Whether there are none of that name, or none came.
    pub(super) fn are_lacking(&self) -> bool {
        self.absence().is_some_and(is_lack)
    }

    /// Whether it is known that there are none of that name.
    fn is_missing(&self) -> bool {
        self.absence().is_some_and(WatchError::is_not_found)
    }
}

/// Whether an error may be older news than what leads to the resource.
fn is_lack(reason: &WatchError) -> bool {
    reason.is_not_found() || reason.is_transient()
}

impl Source {
    /// Where a cluster's endpoints come from; `None` for an aggregate's.
    pub(super) fn of(cluster: &Cluster) -> Option<Self> {
        match &cluster.kind {
            ClusterKind::Eds { service_name, source } => {
                Some(Self::Eds(Reference { name: service_name.clone(), source: source.clone() }))
            }
            ClusterKind::LogicalDns { address } => Some(Self::Host(address.clone())),
            ClusterKind::Aggregate { .. } => None,
        }
    }
}

impl ClusterEntry {
    /// A cluster of which nothing is there but the reason.
    pub(super) fn failed(name: &Arc<str>, config: Option<Arc<Cluster>>, error: WatchError) -> Self {
        Self { config, error: Some(error), ..Self::empty(name) }
    }

    /// A cluster with endpoints of its own.
    pub(super) fn with_endpoints(
        name: &Arc<str>,
        config: &Arc<Cluster>,
        warning: Option<WatchError>,
        (endpoints, node): (&Endpoints, &Arc<str>),
    ) -> Self {
        let (endpoints, note) = match endpoints {
            Endpoints::Eds(seen) => (seen.resource().cloned(), seen.error().cloned()),
            Endpoints::Host(seen) => {
                let note = seen.error().map(|why| {
                    let about =
                        Subject { type_url: Cluster::TYPE_URL, name: name.clone(), node: node.clone() };
                    WatchError::new(Code::Unavailable, Blame::Network, about, why)
                });
                (seen.assignment().cloned(), note)
            }
        };
        Self { config: Some(config.clone()), warning, endpoints, note, ..Self::empty(name) }
    }

    /// The same with these endpoints, unless there are others.
    pub(super) fn or_endpoints(self, endpoints: Option<Arc<ClusterLoadAssignment>>) -> Self {
        Self { endpoints: self.endpoints.or(endpoints), ..self }
    }

    /// An aggregate.
    pub(super) fn with_leaves(
        name: &Arc<str>,
        config: &Arc<Cluster>,
        warning: Option<WatchError>,
        leaves: Vec<Arc<str>>,
    ) -> Self {
        Self { config: Some(config.clone()), warning, leaves: leaves.into(), ..Self::empty(name) }
    }

    /// Whether another entry says the same.
    pub(super) fn says(&self, other: &Self) -> bool {
        fn same<T>(ours: Option<&Arc<T>>, theirs: Option<&Arc<T>>) -> bool {
            ours.map(Arc::as_ptr) == theirs.map(Arc::as_ptr)
        }
        same(self.config.as_ref(), other.config.as_ref())
            && same(self.endpoints.as_ref(), other.endpoints.as_ref())
            && self.error == other.error
            && self.warning == other.warning
            && self.note == other.note
            && self.leaves == other.leaves
    }

    fn empty(name: &Arc<str>) -> Self {
        Self {
            name: name.clone(),
            config: None,
            error: None,
            warning: None,
            endpoints: None,
            note: None,
            leaves: Arc::default(),
        }
    }
}

fn child(cluster: &Arc<Cluster>) -> Child<'_> {
    match &cluster.kind {
        ClusterKind::Aggregate { clusters } => Child::Aggregate(clusters),
        ClusterKind::Eds { .. } | ClusterKind::LogicalDns { .. } => Child::Leaf,
    }
}
