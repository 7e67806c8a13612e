//! The result of resolving a target, as JSON for scripts.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use serde::Serialize;
use xdskit::{
    WatchError,
    resolve::{ClusterView, EndpointView, Snapshot},
    resource::ClusterKind,
};

use crate::{
    json::{Problem, json},
    tree::Warning,
};

/// One line.
pub(crate) fn report(target: &str, seen: &Result<Arc<Snapshot>, WatchError>) -> String {
    match seen {
        Ok(snapshot) => json(&Tree::new(target, snapshot)),
        Err(error) => json(&Failure { target, error: error.into() }),
    }
}

/// The line of a target that was resolved.
#[derive(Serialize)]
struct Tree<'a> {
    /// The target as it was written.
    target: &'a str,
    /// The name of the listener.
    listener: &'a str,
    /// The name of the route configuration.
    route_config: &'a str,
    /// The name of the virtual host for the target.
    virtual_host: &'a str,
    /// The clusters by name.
    clusters: BTreeMap<&'a str, Group<'a>>,
    /// Why resources may be stale.
    warnings: Vec<Problem>,
    /// The name of the scope, if routes have scopes.
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
}

/// The JSON of a cluster.
#[derive(Serialize)]
struct Group<'a> {
    /// The kind, if the cluster is known.
    kind: Option<&'static str>,
    /// The usable addresses.
    endpoints: Vec<SocketAddr>,
    /// The clusters of an aggregate that are none themselves.
    leaves: Vec<&'a str>,
    /// Why the cluster cannot be used.
    error: Option<Problem>,
}

/// The line of a target that cannot be resolved.
#[derive(Serialize)]
struct Failure<'a> {
    /// The target as it was written.
    target: &'a str,
    /// Why there is no configuration.
    error: Problem,
}

impl<'a> Tree<'a> {
    /// The configuration of a target.
    fn new(target: &'a str, snapshot: &'a Snapshot) -> Self {
        let problem = |warning: Warning<'_>| Problem {
            code: warning.error().code().as_str(),
            message: warning.to_string(),
        };
        Self {
            target,
            listener: &snapshot.listener().name,
            route_config: &snapshot.route_config().name,
            virtual_host: &snapshot.virtual_host().name,
            clusters: snapshot.clusters().map(|cluster| (cluster.name(), Group::new(cluster))).collect(),
            warnings: Warning::of(snapshot).into_iter().map(problem).collect(),
            scope: snapshot.scope().map(|scope| &*scope.name),
        }
    }
}

impl<'a> Group<'a> {
    /// A cluster of it.
    fn new(cluster: ClusterView<'a>) -> Self {
        // An aggregate has the endpoints of its leaves, which have entries of their own.
        let (kind, endpoints, leaves) = match cluster.kind() {
            Some(ClusterKind::Eds { .. }) => (Some("eds"), usable_addresses(cluster), Vec::new()),
            Some(ClusterKind::LogicalDns { .. }) => {
                (Some("logical_dns"), usable_addresses(cluster), Vec::new())
            }
            Some(ClusterKind::Aggregate { .. }) => {
                (Some("aggregate"), Vec::new(), cluster.leaves().map(ClusterView::name).collect())
            }
            None | Some(_) => (None, Vec::new(), Vec::new()),
        };
        Self { kind, endpoints, leaves, error: cluster.unusable_reason().map(Problem::from) }
    }
}

/// The addresses of usable endpoints, in the order of priorities. A host of logical DNS is one endpoint with all of
/// its addresses.
fn usable_addresses(cluster: ClusterView<'_>) -> Vec<SocketAddr> {
    let is_host = matches!(cluster.kind(), Some(ClusterKind::LogicalDns { .. }));
    let addresses = |endpoint: EndpointView<'_>| {
        let count = if is_host { usize::MAX } else { 1 };
        endpoint.addresses().take(count).collect::<Vec<_>>()
    };
    cluster.usable_endpoints_of_all_priorities().flat_map(addresses).collect()
}
