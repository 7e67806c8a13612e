//! The trees as JSON for scripts.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{
    Entry, Mesh, Others, Present, RouteTable,
    cluster::{Cluster, EndpointSource, Locality},
    draw::MISSING,
    listener::{Chain, Listener},
};
use crate::{
    cli::json::{Problem, json},
    error::Code,
};

/// A listener with all that it leads to.
#[derive(Serialize)]
struct Tree<'a> {
    target: &'a str,
    listener: &'a str,
    address: Option<&'a str>,
    chains: &'a [Chain],
    #[serde(flatten)]
    state: State,
    routes: BTreeMap<&'a str, Table<'a>>,
    clusters: BTreeMap<&'a str, Group<'a>>,
}

/// What is to be said of a resource.
#[derive(Serialize, Default)]
struct State {
    /// The reason why a gRPC client rejects it.
    invalid: Option<String>,
    /// The reason why there is none, or why it cannot be read.
    error: Option<Problem>,
    /// The reason why it may be stale.
    warning: Option<Problem>,
}

#[derive(Serialize)]
struct Table<'a> {
    #[serde(flatten)]
    table: Option<&'a RouteTable>,
    #[serde(flatten)]
    state: State,
}

#[derive(Serialize)]
struct Group<'a> {
    kind: Option<&'a str>,
    /// The name of the assignment of an EDS cluster.
    service: Option<&'a str>,
    /// The clusters of an aggregate.
    children: &'a [Arc<str>],
    localities: &'a [Locality],
    #[serde(flatten)]
    state: State,
    /// What is to be said of the assignment of an EDS cluster.
    endpoints: Option<State>,
}

#[derive(Serialize)]
struct Failure<'a> {
    target: &'a str,
    listener: &'a str,
    error: Problem,
}

#[derive(Serialize)]
struct Unused<'a> {
    target: &'a str,
    unused_clusters: &'a [Arc<str>],
}

impl Mesh {
    /// A line for a listener of a target.
    pub(crate) fn report(&self, target: &str, name: &Arc<str>) -> String {
        let entry = self.listeners.get(name);
        if let Some(Entry::Absent(reason)) = entry {
            return report_absence(target, name, reason.into());
        }
        let demand = self.demand([name]);
        let routes = demand.routes.iter().map(|name| {
            let entry = self.routes.get(name);
            (
                &**name,
                Table { table: entry.and_then(Entry::content), state: State::of(entry, &self.routes.others) },
            )
        });
        let clusters = demand.clusters.iter().map(|name| (&**name, self.group(name)));
        let listener = entry.and_then(Entry::content);
        json(&Tree {
            target,
            listener: name,
            address: listener
                .map(|listener: &Listener| &*listener.address)
                .filter(|address| !address.is_empty()),
            chains: listener.map_or(&[], |listener| &listener.chains),
            state: State::of(entry, &self.listeners.others),
            routes: routes.collect(),
            clusters: clusters.collect(),
        })
    }

    fn group<'a>(&'a self, name: &'a str) -> Group<'a> {
        let entry = self.clusters.get(name);
        let cluster: Option<&Cluster> = entry.and_then(Entry::content);
        let mut group = Group {
            kind: cluster.map(|cluster| &*cluster.kind),
            service: None,
            children: &[],
            localities: &[],
            state: State::of(entry, &self.clusters.others),
            endpoints: None,
        };
        match cluster.map(|cluster| &cluster.source) {
            Some(EndpointSource::Eds(service)) => {
                let service = service.as_deref().unwrap_or(name);
                let entry = self.endpoints.get(service);
                group.service = Some(service);
                group.endpoints = Some(State::of(entry, &self.endpoints.others));
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

impl State {
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
