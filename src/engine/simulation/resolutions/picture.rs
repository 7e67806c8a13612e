//! A snapshot in short, so that it can be compared with what should be.

use std::{collections::BTreeMap, fmt};

use super::{
    mesh::Mesh,
    spec::{Generation, Made, Spec, Type},
};
use crate::{
    error::WatchError,
    resolve::{ClusterView, Snapshot},
    resource::listener::RouteSource,
};

/// A snapshot: of what generations its parts are, and what is wrong with them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Picture {
    pub(super) listener: (String, Made),
    /// The name, that of the listener for its own routes, and what they are.
    pub(super) routes: (String, Made),
    /// The domain of the virtual host.
    pub(super) host: String,
    pub(super) warnings: Vec<WatchError>,
    pub(super) clusters: BTreeMap<String, Shown>,
}

/// A cluster in a snapshot.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Shown {
    pub(super) config: Option<Made>,
    pub(super) error: Option<WatchError>,
    pub(super) warning: Option<WatchError>,
    /// Whose endpoints, and of which generation.
    pub(super) endpoints: Option<(String, u32)>,
    pub(super) endpoints_error: Option<WatchError>,
    /// Of an aggregate.
    pub(super) leaves: Vec<String>,
}

impl Picture {
    /// The generations in the snapshot must be known to the mesh.
    pub(super) fn of(snapshot: &Snapshot, mesh: &Mesh) -> Self {
        let listener = snapshot.listener();
        let name = listener.name.to_string();
        let made = mesh.made(&(Type::Listener, name.clone()), listener.generation());
        let generation = snapshot.route_config().generation();
        let api = listener.api().expect("a snapshot has a client's listener");
        let routes = match &api.routes {
            RouteSource::Rds(_) => {
                let name = snapshot.route_config().name.to_string();
                let made = mesh.made(&(Type::Routes, name.clone()), generation);
                (name, made)
            }
            RouteSource::Inline(_) => {
                assert_eq!(generation, made.generation, "the listener's own routes");
                (name.clone(), made.clone())
            }
            RouteSource::Scoped(_) => unreachable!("the mesh has no scopes"),
        };
        let host = &snapshot.virtual_host().domains;
        let clusters: BTreeMap<_, _> =
            snapshot.clusters().map(|view| (view.name().to_owned(), Shown::of(view, mesh))).collect();
        let of_clusters: usize = clusters.values().map(Shown::warnings).sum();
        let warnings: Vec<_> = snapshot.warnings().cloned().collect();
        // The warnings of listener and routes come first, and those of clusters behind them, which are in the clusters here.
        let of_stem = warnings.len() - of_clusters;
        Self {
            listener: (name, made),
            routes,
            host: host[0].as_str().to_owned(),
            warnings: warnings[..of_stem].to_vec(),
            clusters,
        }
    }

    /// The clusters that the routes of the virtual host name.
    pub(super) fn roots(&self) -> Vec<String> {
        let (Spec::Routes(hosts) | Spec::Inline(hosts)) = &self.routes.1.spec else {
            panic!("{:?} are no routes", self.routes)
        };
        let host = hosts.iter().find(|host| host.domain == self.host);
        host.unwrap_or_else(|| panic!("{:?} has no host {:?}", self.routes, self.host)).clusters.clone()
    }

    /// What a cluster of the snapshot is.
    pub(super) fn config(&self, cluster: &str) -> Option<&Spec> {
        self.clusters.get(cluster)?.config.as_ref().map(|made| &made.spec)
    }

    /// Whether a cluster stands in a chain of aggregates that is longer than allowed.
    pub(super) fn is_too_deep(&self, cluster: &str) -> bool {
        self.clusters.get(cluster).is_some_and(Shown::is_too_deep)
    }

    /// The aggregates that lead to a cluster in one step.
    pub(super) fn above<'a>(&'a self, cluster: &str) -> impl Iterator<Item = &'a str> {
        let leads = move |name: &&'a str| match self.config(name) {
            Some(Spec::Aggregate(below)) => below.iter().any(|below| below == cluster),
            _ => false,
        };
        self.clusters.keys().map(String::as_str).filter(leads)
    }

    /// What kinds of things it shows.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let stale = (!self.warnings.is_empty()).then_some("stale tree");
        stale.into_iter().chain(self.clusters.values().flat_map(Shown::kinds))
    }

    /// Whether requests can be sent to a cluster.
    pub(super) fn is_usable(&self, cluster: &str) -> bool {
        let has_endpoints = |name: &String| {
            self.clusters.get(name).is_some_and(|shown| shown.error.is_none() && shown.endpoints.is_some())
        };
        let Some(shown) = self.clusters.get(cluster).filter(|shown| shown.error.is_none()) else {
            return false;
        };
        shown.endpoints.is_some() || shown.leaves.iter().any(has_endpoints)
    }
}

impl Shown {
    fn of(view: ClusterView<'_>, mesh: &Mesh) -> Self {
        let name = view.name().to_owned();
        let config = view.config().map(|config| {
            assert_eq!(*config.name, *name);
            mesh.made(&(Type::Cluster, name.clone()), config.generation())
        });
        let is_aggregate = matches!(config, Some(Made { spec: Spec::Aggregate(_), .. }));
        let leaves = is_aggregate.then(|| view.leaves().map(|leaf| leaf.name().to_owned()));
        let endpoints = view.assignment().map(|found| (found.cluster_name.to_string(), found.generation()));
        Self {
            config,
            error: view.error().cloned(),
            warning: view.warning().cloned(),
            endpoints,
            endpoints_error: view.endpoints_error().cloned(),
            leaves: leaves.into_iter().flatten().collect(),
        }
    }

    fn kinds(&self) -> impl Iterator<Item = &'static str> {
        let Self { config, error, warning, endpoints, endpoints_error, .. } = self;
        let spec = config.as_ref().map(|made| &made.spec);
        let aggregate = matches!(spec, Some(Spec::Aggregate(_)));
        let kinds = [
            (config.is_none(), "missing cluster"),
            (warning.is_some(), "stale cluster"),
            (aggregate && error.is_none(), "aggregate"),
            (self.is_too_deep(), "deep aggregate"),
            (error.as_ref().is_some_and(|error| error.reason().ends_with("leaf clusters")), "void aggregate"),
            (matches!(spec, Some(Spec::Dns(..))), "host"),
            (endpoints.is_none() && endpoints_error.is_some(), "missing endpoints"),
            (endpoints.is_some() && endpoints_error.is_some(), "stale endpoints"),
        ];
        kinds.into_iter().filter_map(|(is_so, kind)| is_so.then_some(kind))
    }

    /// Whether it stands in a chain of aggregates that is longer than allowed.
    fn is_too_deep(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.reason().ends_with("depth (16)"))
    }

    /// How many of the snapshot's warnings are its own.
    fn warnings(&self) -> usize {
        let stale = self.endpoints.is_some() && self.endpoints_error.is_some();
        usize::from(self.warning.is_some()) + usize::from(stale)
    }
}

/// Only what there is, on a line.
impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, error, warning, endpoints, endpoints_error, leaves } = self;
        match config {
            Some(config) => write!(f, "{config:?}")?,
            None => f.write_str("nothing")?,
        }
        if let Some((whose, generation)) = endpoints {
            write!(f, ", endpoints of {whose}@{generation}")?;
        }
        if !leaves.is_empty() {
            write!(f, ", leaves {}", leaves.join(" "))?;
        }
        for (what, why) in [("error", error), ("warning", warning), ("endpoints_error", endpoints_error)] {
            if let Some(why) = why {
                write!(f, ", {what} {}: {}", why.code(), why.reason())?;
            }
        }
        Ok(())
    }
}
