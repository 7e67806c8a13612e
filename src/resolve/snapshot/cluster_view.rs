//! A cluster, a priority and an endpoint, as applications see them.

use std::{fmt, net::SocketAddr, num::NonZeroU32, sync::Arc};

mod cluster_ref;

pub use self::cluster_ref::ClusterRef;

use super::Snapshot;
use crate::{
    error::WatchError,
    lrs::{EndpointReporter, LoadReporter},
    resolve::{cluster_entry::ClusterEntry, pick, query::spread},
    resource::{
        Cluster, ClusterKind, ClusterLoadAssignment, Endpoint, HealthStatus, Metadata,
        endpoints::{LocalityEndpoints, Priority},
        http_filter::FilterOverride,
    },
};

/// A cluster in a [`Snapshot`], with its endpoints or the reason why there are none.
///
/// Four accessors report problems:
///
/// | accessor | concerns | `Some` means | requests |
/// |---|---|---|---|
/// | [`error`](Self::error) | the cluster itself | it does not exist, was rejected without a last known good one, or is an aggregate without a leaf | cannot be sent |
/// | [`warning`](Self::warning) | the cluster itself | [`config`](Self::config) is the last known good one and may be stale | can be sent |
/// | [`endpoints_error`](Self::endpoints_error) | its endpoints, of EDS or DNS | [`assignment`](Self::assignment) is missing, or is the last known good one and may be stale | can be sent if there is an assignment |
/// | [`unusable_reason`](Self::unusable_reason) | both | `error`, or else `endpoints_error` without an assignment | cannot be sent |
///
/// Unhealthy endpoints are not an error: if all endpoints are known and none is usable,
/// [`first_usable_priority`](Self::first_usable_priority) is `None` without an `unusable_reason`.
///
/// ```
/// use xdskit::resolve::ClusterView;
///
/// fn describe(cluster: ClusterView<'_>) -> String {
///     if let Some(why) = cluster.unusable_reason() {
///         return format!("{} cannot be used: {why}", cluster.name());
///     }
///     let leaves: Vec<_> = cluster.leaves().map(ClusterView::name).collect();
///     match cluster.first_usable_priority() {
///         Some(priority) => format!(
///             "{} endpoints of {} are used, of {} in {leaves:?}",
///             priority.usable_endpoints().count(),
///             priority.cluster().name(),
///             cluster.endpoints().count(),
///         ),
///         None => format!("none of {leaves:?} has a usable endpoint"),
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct ClusterView<'a> {
    /// The snapshot.
    snapshot: &'a Snapshot,
    /// The cluster in it.
    entry: &'a Arc<ClusterEntry>,
    /// The filter overrides of the weighted cluster that the route has picked; `None` for a cluster that was not picked by
    /// weight.
    overrides: Option<&'a Arc<[FilterOverride]>>,
}

/// A priority of a cluster: endpoints that are used together.
#[derive(Clone, Copy)]
pub struct PriorityView<'a> {
    /// The cluster.
    cluster: ClusterView<'a>,
    /// The number of the priority; 0 is the highest.
    index: usize,
    /// The localities.
    priority: &'a Priority,
}

/// An endpoint of a cluster, with its locality, priority and cluster.
///
/// ```
/// use xdskit::resolve::PriorityView;
///
/// /// Prints the addresses of a priority with the weights of endpoint and locality.
/// fn weights(priority: PriorityView<'_>) {
///     for endpoint in priority.usable_endpoints() {
///         let locality = endpoint.locality();
///         println!("{} {} in {} {}", endpoint.address(), endpoint.weight(), locality.locality, locality.weight);
///     }
/// }
/// ```
#[derive(Clone, Copy)]
pub struct EndpointView<'a> {
    /// The priority.
    priority: PriorityView<'a>,
    /// The locality in it.
    locality: &'a LocalityEndpoints,
    /// The endpoint in that.
    endpoint: &'a Endpoint,
}

impl<'a> ClusterView<'a> {
    /// A cluster of a snapshot that no route has picked.
    pub(super) fn new(snapshot: &'a Snapshot, entry: &'a Arc<ClusterEntry>) -> Self {
        Self { snapshot, entry, overrides: None }
    }

    /// The cluster as an owned value, with the snapshot and the filter overrides of this view.
    pub fn to_ref(self) -> ClusterRef {
        ClusterRef::new(self.snapshot, self.entry, self.overrides)
    }

    /// The cluster's name.
    pub fn name(self) -> &'a str {
        &self.entry.name
    }

    /// The configuration of the cluster; `None` if there is no such cluster, for the reason of [`error`](Self::error).
    pub fn config(self) -> Option<&'a Arc<Cluster>> {
        self.entry.config.as_ref()
    }

    /// The source of its endpoints; `None` if there is no such cluster.
    pub fn kind(self) -> Option<&'a ClusterKind> {
        self.config().map(|config| &config.kind)
    }

    /// The reason why the cluster itself cannot be used: it does not exist, was rejected without a last known good one, or is an
    /// aggregate without a leaf. Missing endpoints are an [`endpoints_error`](Self::endpoints_error) instead.
    pub fn error(self) -> Option<&'a WatchError> {
        self.entry.error.as_ref()
    }

    /// The reason why [`config`](Self::config) may be stale, such as a rejected update. The cluster remains usable.
    pub fn warning(self) -> Option<&'a WatchError> {
        self.entry.warning.as_ref()
    }

    /// The reason why its endpoints are unknown ([`assignment`](Self::assignment) is `None`) or may be stale (it is `Some`).
    /// Unknown endpoints are no [`error`](Self::error) of the cluster: an aggregate falls back to its other leaves.
    pub fn endpoints_error(self) -> Option<&'a WatchError> {
        self.entry.endpoints_error.as_ref()
    }

    /// The reason why no request can be sent to the cluster itself: its [`error`](Self::error), or its
    /// [`endpoints_error`](Self::endpoints_error) if it has no [`assignment`](Self::assignment).
    ///
    /// An aggregate has no endpoints of its own; the reasons of its [`leaves`](Self::leaves) are to be read, too.
    pub fn unusable_reason(self) -> Option<&'a WatchError> {
        self.error().or(if self.assignment().is_none() { self.endpoints_error() } else { None })
    }

    /// Its endpoints as received from the management server or DNS, with the share of requests to drop; `None` for an aggregate,
    /// and while the endpoints are unknown.
    pub fn assignment(self) -> Option<&'a Arc<ClusterLoadAssignment>> {
        self.entry.endpoints.as_ref()
    }

    /// The clusters with its endpoints, the preferred ones first: the leaves of an aggregate; any other cluster is its own only
    /// leaf. A cluster that does not exist has none.
    pub fn leaves(self) -> impl Iterator<Item = Self> {
        // A37-4: the order was made when the snapshot was; nothing is traversed here.
        let own = match self.kind() {
            Some(ClusterKind::Eds { .. } | ClusterKind::LogicalDns { .. }) => Some(self),
            Some(ClusterKind::Aggregate { .. }) | None => None,
        };
        let named = self.entry.leaves.iter().filter_map(move |name| {
            let leaf = self.snapshot.cluster(name)?;
            Some(leaf.with_overrides(self.overrides))
        });
        own.into_iter().chain(named)
    }

    /// The priorities of all leaves in the order of preference: all priorities of the first leaf precede those of the next.
    pub fn priorities(self) -> impl Iterator<Item = PriorityView<'a>> {
        // A75-1: a leaf keeps its own policy, so that its priorities are never merged with those of another leaf.
        self.leaves().flat_map(Self::own_priorities)
    }

    /// The first priority with a usable endpoint: the one to use as long as connections to it succeed.
    pub fn first_usable_priority(self) -> Option<PriorityView<'a>> {
        self.priorities().find(|priority| priority.usable_endpoints().next().is_some())
    }

    /// An endpoint for a new request, from the [first usable priority](Self::first_usable_priority); `None` without one.
    ///
    /// The locality is chosen in proportion to the weights of the localities with usable endpoints, then the endpoint in
    /// proportion to the weights of the usable endpoints there. Both choices are computed from `random`, a number for this pick,
    /// uniformly distributed over all of `u64`; equal numbers pick the same endpoint. The number of the
    /// [`RouteQuery`](crate::resolve::RouteQuery::new) can be used again, since the choices are independent of those of routing; a retry
    /// needs a new one. The load balancing policy of the cluster is not consulted.
    ///
    /// The time is proportional to the number of endpoints of the priority; nothing is allocated.
    pub fn pick_endpoint(self, random: u64) -> Option<EndpointView<'a>> {
        self.first_usable_priority()?.pick_endpoint(random)
    }

    /// The endpoints of all leaves and priorities, of every health, the preferred ones first.
    pub fn endpoints(self) -> impl Iterator<Item = EndpointView<'a>> {
        self.priorities().flat_map(PriorityView::endpoints)
    }

    /// The endpoints of all leaves and priorities whose health permits new requests: healthy, or of unknown health.
    ///
    /// This is an inventory, not a set to balance over: requests belong to the
    /// [first usable priority](Self::first_usable_priority) alone, and the others are its reserve.
    pub fn usable_endpoints_of_all_priorities(self) -> impl Iterator<Item = EndpointView<'a>> {
        self.endpoints().filter(|endpoint| endpoint.is_healthy())
    }

    /// The endpoints of all leaves and priorities to which requests of an existing session may continue to go (A55). They include
    /// draining ones if the cluster permits these.
    pub fn affinity_endpoints(self) -> impl Iterator<Item = EndpointView<'a>> {
        self.endpoints().filter(|endpoint| endpoint.keeps_sessions())
    }

    /// The reporter of the load of the cluster, for applications that balance by themselves. Calls belong to the reporters of the
    /// [`leaves`](Self::leaves) of an aggregate; its own counts nothing (A37).
    ///
    /// It has no interest of its own in the cluster: counting ends with the last watch or resolution of it.
    pub fn load_reporter(self) -> LoadReporter {
        self.snapshot.routing.loads.reporter(self.name())
    }

    /// Why the cluster or its endpoints may be stale.
    pub(super) fn warnings(self) -> impl Iterator<Item = &'a WatchError> {
        let stale_endpoints = if self.assignment().is_some() { self.endpoints_error() } else { None };
        self.warning().into_iter().chain(stale_endpoints)
    }

    /// The priorities of the cluster itself; an aggregate has none.
    fn own_priorities(self) -> impl Iterator<Item = PriorityView<'a>> {
        let priorities = self.assignment().into_iter().flat_map(|assignment| assignment.priorities.iter());
        priorities.enumerate().map(move |(index, priority)| PriorityView { cluster: self, index, priority })
    }

    /// The cluster with the overrides of the route that has picked it.
    pub(super) fn with_overrides(self, overrides: Option<&'a Arc<[FilterOverride]>>) -> Self {
        Self { overrides, ..self }
    }

    /// The overrides of the route that has picked it.
    pub(super) fn overrides(self) -> &'a [FilterOverride] {
        self.overrides.map_or(&[], |overrides| overrides)
    }
}

impl<'a> PriorityView<'a> {
    /// The cluster of it: for an aggregate, the leaf.
    pub fn cluster(self) -> ClusterView<'a> {
        self.cluster
    }

    /// Its index among the priorities of [its cluster](Self::cluster); 0 is preferred.
    pub fn index(self) -> usize {
        self.index
    }

    /// Its localities, with their weights.
    pub fn localities(self) -> &'a [LocalityEndpoints] {
        &self.priority.localities
    }

    /// Its endpoints of every health, locality by locality.
    pub fn endpoints(self) -> impl Iterator<Item = EndpointView<'a>> {
        self.localities().iter().flat_map(move |locality| {
            let endpoints = locality.endpoints.iter();
            endpoints.map(move |endpoint| EndpointView { priority: self, locality, endpoint })
        })
    }

    /// Its endpoints that new requests may be sent to: healthy, or of unknown health.
    pub fn usable_endpoints(self) -> impl Iterator<Item = EndpointView<'a>> {
        self.endpoints().filter(|endpoint| endpoint.is_healthy())
    }

    /// One of the [`usable_endpoints`](Self::usable_endpoints), as [`ClusterView::pick_endpoint`] chooses it.
    pub fn pick_endpoint(self, random: u64) -> Option<EndpointView<'a>> {
        let (locality, endpoint) = pick::endpoint(self.localities(), spread(random, ENDPOINT))?;
        Some(EndpointView { priority: self, locality, endpoint })
    }
}

impl<'a> EndpointView<'a> {
    /// The endpoint itself, with the lifetime of the snapshot.
    pub fn endpoint(self) -> &'a Endpoint {
        self.endpoint
    }

    /// Its main address.
    pub fn address(self) -> SocketAddr {
        self.endpoint.address()
    }

    /// Its further addresses, such as an IPv6 address (A61).
    pub fn additional_addresses(self) -> &'a [SocketAddr] {
        self.endpoint.additional_addresses()
    }

    /// All its addresses, the main one first.
    pub fn addresses(self) -> impl Iterator<Item = SocketAddr> + Clone {
        self.endpoint.addresses()
    }

    /// Its name for TLS and for authority rewriting (A81), not empty.
    pub fn hostname(self) -> Option<&'a str> {
        self.endpoint.hostname()
    }

    /// Its health as reported by the management server.
    pub fn health(self) -> HealthStatus {
        self.endpoint.health
    }

    /// Whether new requests may be sent to it: it is healthy, or its health is unknown.
    pub fn is_healthy(self) -> bool {
        self.endpoint.is_healthy()
    }

    /// Its share of the requests, in proportion to the other endpoints of its [locality](Self::locality).
    pub fn weight(self) -> NonZeroU32 {
        self.endpoint.weight
    }

    /// Its key on a hash ring, in place of its address (A76); not empty.
    pub fn hash_key(self) -> Option<&'a str> {
        self.endpoint.hash_key()
    }

    /// Its metadata.
    pub fn metadata(self) -> &'a Metadata {
        self.endpoint.metadata()
    }

    /// The cluster that it belongs to: of an aggregate, the leaf.
    pub fn cluster(self) -> ClusterView<'a> {
        self.priority.cluster
    }

    /// The priority that it belongs to.
    pub fn priority(self) -> PriorityView<'a> {
        self.priority
    }

    /// The locality that it belongs to, with its weight.
    pub fn locality(self) -> &'a LocalityEndpoints {
        self.locality
    }

    /// The reporter of its load in its cluster and locality, for applications that balance by themselves (LRS). Calls that it counts
    /// count for the locality, and for the endpoint if the management server asks for that.
    ///
    /// This takes a short lock, and the result is to be kept as long as the endpoint is; equal endpoints have the same counters. Like
    /// [`ClusterView::load_reporter`], it has no interest of its own in the cluster.
    pub fn load_reporter(self) -> EndpointReporter {
        self.cluster().load_reporter().locality(&self.locality.locality).endpoint(self.address())
    }

    /// Whether requests of an existing session may continue to go to it (A55).
    pub fn keeps_sessions(self) -> bool {
        self.cluster()
            .config()
            .is_some_and(|config| config.override_host_status.contains(self.endpoint.health))
    }
}

impl fmt::Debug for ClusterView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.entry, f)
    }
}

impl fmt::Debug for PriorityView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PriorityView")
            .field("cluster", &self.cluster.name())
            .field("index", &self.index)
            .field("localities", &self.priority.localities)
            .finish()
    }
}

impl fmt::Debug for EndpointView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointView")
            .field("cluster", &self.cluster().name())
            .field("priority", &self.priority.index)
            .field("locality", &self.locality.locality)
            .field("endpoint", self.endpoint)
            .finish()
    }
}

/// Keeps the pick of an endpoint apart from those of routes and clusters.
const ENDPOINT: u64 = u64::MAX - 1;

#[cfg(test)]
mod tests;
