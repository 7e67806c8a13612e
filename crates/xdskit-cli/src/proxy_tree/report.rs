//! The trees as JSON for scripts.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;
use xdskit::error::Code;

use super::{
    Entry, Mesh, Others, Present, RouteTable,
    cluster::{Cluster, EndpointSource, Locality},
    draw::MISSING,
    listener::{Chain, Listener},
};
use crate::json::{Problem, json};

/// A listener with all that it leads to.
#[derive(Serialize)]
struct Tree<'a> {
    /// The target as it was written.
    target: &'a str,
    /// The name of the listener.
    listener: &'a str,
    /// The address of the listener.
    address: Option<&'a str>,
    /// The filter chains in order.
    chains: &'a [Chain],
    /// The problems of the listener.
    #[serde(flatten)]
    state: Problems,
    /// The route configurations that it leads to.
    routes: BTreeMap<&'a str, Table<'a>>,
    /// The clusters that it leads to.
    clusters: BTreeMap<&'a str, Group<'a>>,
}

/// The problems of a resource.
#[derive(Serialize, Default)]
struct Problems {
    /// The reason why a gRPC client rejects it.
    invalid: Option<String>,
    /// The reason why there is none, or why it cannot be read.
    error: Option<Problem>,
    /// The reason why it may be stale.
    warning: Option<Problem>,
}

/// The JSON of a route configuration.
#[derive(Serialize)]
struct Table<'a> {
    /// The routes, if they are there and can be read.
    #[serde(flatten)]
    table: Option<&'a RouteTable>,
    /// The problems of the route configuration.
    #[serde(flatten)]
    state: Problems,
}

/// The JSON of a cluster with its endpoints.
#[derive(Serialize)]
struct Group<'a> {
    /// The discovery type, if the cluster is there and can be read.
    kind: Option<&'a str>,
    /// The name of the assignment of an EDS cluster.
    service: Option<&'a str>,
    /// The clusters of an aggregate.
    children: &'a [Arc<str>],
    /// The endpoints by locality.
    localities: &'a [Locality],
    /// The problems of the cluster.
    #[serde(flatten)]
    state: Problems,
    /// The problems of the assignment of an EDS cluster; `None` for other clusters.
    endpoints: Option<Problems>,
}

/// The line of a listener without a tree.
#[derive(Serialize)]
struct Failure<'a> {
    /// The target as it was written.
    target: &'a str,
    /// The name of the listener.
    listener: &'a str,
    /// Why there is no tree.
    error: Problem,
}

/// The line of the clusters to which no listener leads.
#[derive(Serialize)]
struct Unused<'a> {
    /// The target as it was written.
    target: &'a str,
    /// The clusters to which no listener leads.
    unused_clusters: &'a [Arc<str>],
}

/// A line for a listener of a target.
pub(super) fn report_listener(mesh: &Mesh, target: &str, name: &Arc<str>) -> String {
    let entry = mesh.listeners.get(name);
    if let Some(Entry::Absent(reason)) = entry {
        return report_absence(target, name, reason.into());
    }
    let demand = mesh.demand([name]);
    let routes = demand.routes.iter().map(|name| {
        let entry = mesh.routes.get(name);
        (
            &**name,
            Table { table: entry.and_then(Entry::content), state: Problems::of(entry, &mesh.routes.others) },
        )
    });
    let clusters = demand.clusters.iter().map(|name| (&**name, Group::of(mesh, name)));
    let listener = entry.and_then(Entry::content);
    json(&Tree {
        target,
        listener: name,
        address: listener.map(|listener: &Listener| &*listener.address).filter(|address| !address.is_empty()),
        chains: listener.map_or(&[], |listener| &listener.chains),
        state: Problems::of(entry, &mesh.listeners.others),
        routes: routes.collect(),
        clusters: clusters.collect(),
    })
}

impl<'a> Group<'a> {
    /// The cluster of a name, whether it is there or not.
    fn of(mesh: &'a Mesh, name: &'a str) -> Self {
        let entry = mesh.clusters.get(name);
        let cluster: Option<&Cluster> = entry.and_then(Entry::content);
        let mut group = Self {
            kind: cluster.map(|cluster| &*cluster.kind),
            service: None,
            children: &[],
            localities: &[],
            state: Problems::of(entry, &mesh.clusters.others),
            endpoints: None,
        };
        match cluster.map(|cluster| &cluster.source) {
            Some(EndpointSource::Eds(service)) => {
                let service = service.as_deref().unwrap_or(name);
                let entry = mesh.endpoints.get(service);
                group.service = Some(service);
                group.endpoints = Some(Problems::of(entry, &mesh.endpoints.others));
                group.localities =
                    entry.and_then(Entry::content).map_or(&[], |assignment| &assignment.localities);
            }
            Some(EndpointSource::Aggregate(children)) => group.children = children,
            Some(EndpointSource::Inline(assignment)) => group.localities = &assignment.localities,
            None => {}
        }
        group
    }
}

impl Problems {
    /// The problems of a resource; `others` tells those that are not there whether they are still expected.
    fn of<C>(entry: Option<&Entry<C>>, others: &Others) -> Self {
        match entry {
            Some(Entry::Present(Present { content, invalid, warning, .. })) => Self {
                invalid: invalid.as_ref().map(ToString::to_string),
                error: content.as_ref().err().map(|error| Problem {
                    code: Code::InvalidArgument.as_str(),
                    message: format!("cannot be read: {error}"),
                }),
                warning: warning.as_ref().map(Problem::from),
            },
            Some(Entry::Absent(reason)) => Self { error: Some(reason.into()), ..Self::default() },
            None => {
                let error = match others {
                    Others::Failed(reason) => reason.into(),
                    Others::Unknown | Others::Missing => Problem::not_found(MISSING),
                };
                Self { error: Some(error), ..Self::default() }
            }
        }
    }
}

/// A line for a listener, or for all listeners of a target, that cannot be shown.
pub(crate) fn report_absence(target: &str, name: &str, error: Problem) -> String {
    json(&Failure { target, listener: name, error })
}

/// A line for the clusters that no listener of a target leads to.
pub(crate) fn report_unused(target: &str, clusters: &[Arc<str>]) -> String {
    json(&Unused { target, unused_clusters: clusters })
}
