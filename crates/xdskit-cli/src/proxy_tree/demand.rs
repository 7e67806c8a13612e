//! The resources that listeners lead to, by their names.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    Destination, Listener, Mesh,
    cluster::EndpointSource,
    listener::{NetworkFilter, Routes},
};

/// The names of resources that a listener, or several, refer to, directly or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Demand {
    /// Route configurations.
    pub(crate) routes: BTreeSet<Arc<str>>,
    /// Clusters.
    pub(crate) clusters: BTreeSet<Arc<str>>,
    /// The assignments of EDS clusters.
    pub(crate) endpoints: BTreeSet<Arc<str>>,
}

impl Demand {
    /// Adds the resources that a listener refers to.
    pub(super) fn of_listener(&mut self, listener: &Listener, mesh: &Mesh) {
        let mut clusters = Vec::new();
        for filter in listener.chains.iter().flat_map(|chain| &chain.filters) {
            match filter {
                NetworkFilter::Http(routes) => {
                    routes.iter().for_each(|routes| clusters.extend(self.of_routes(routes, mesh)));
                }
                NetworkFilter::Tcp(destinations) => clusters.extend(destinations),
                NetworkFilter::Other(_) | NetworkFilter::Malformed(_) => {}
            }
        }
        self.of_clusters(clusters.into_iter().map(|destination| &destination.cluster), mesh);
    }

    /// Follows routes, if they are known and were not followed before, to the clusters that they name.
    fn of_routes<'a>(&mut self, routes: &'a Routes, mesh: &'a Mesh) -> Vec<&'a Destination> {
        let table = match routes {
            Routes::Inline(table) => Some(table),
            Routes::Named(name) => {
                let is_new = self.routes.insert(name.clone());
                mesh.routes.content(name).filter(|_| is_new)
            }
            Routes::NotFollowed(_) => None,
        };
        table.map(|table| table.destinations().collect()).unwrap_or_default()
    }

    /// Follows clusters to their children and endpoints. Each is followed once, so that rings end, and chains of aggregates end
    /// at gRPC's limit. Those near the routes are followed first, since a cluster may be at several depths.
    fn of_clusters<'a>(&mut self, clusters: impl Iterator<Item = &'a Arc<str>>, mesh: &'a Mesh) {
        let mut next: VecDeque<_> = clusters.map(|name| (name, 0)).collect();
        while let Some((name, depth)) = next.pop_front() {
            if !self.clusters.insert(name.clone()) {
                continue;
            }
            match mesh.clusters.content(name).map(|cluster| &cluster.source) {
                Some(EndpointSource::Eds(service)) => {
                    self.endpoints.insert(service.as_ref().unwrap_or(name).clone());
                }
                Some(EndpointSource::Aggregate(children)) if depth < MAX_DEPTH => {
                    next.extend(children.iter().map(|child| (child, depth + 1)));
                }
                Some(EndpointSource::Aggregate(_) | EndpointSource::Inline(_)) | None => {}
            }
        }
    }
}

/// The maximum depth of aggregates of aggregates, which is that of gRPC's clients (A37).
pub(super) const MAX_DEPTH: usize = 16;
