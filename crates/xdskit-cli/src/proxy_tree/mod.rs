//! The configuration of a proxy as trees, one for each listener: filter chains, routes, clusters and endpoints. Everything that
//! servers send is drawn, with marks on what a gRPC client would not accept.
//!
//! ```text
//! ! listener 0.0.0.0_8080  0.0.0.0:8080  gRPC rejects it: listener_filters: not supported; must be empty
//! ├─ chain 0.0.0.0_8080
//! │  └─ HTTP → routes 8080
//! ├─ ● routes 8080
//! │  └─ virtual host cart (cart.shop, …)
//! │     └─ /*  → 90 % cart-v1, 10 % cart-v2
//! ├─ ● cart-v1  EDS  eu/a  ● 10.0.1.1:8080
//! └─ ✗ cart-v2  EDS  no usable endpoints
//! ```
//!
//! [`Mesh`] is the state, without I/O: resources come in, and the names that they refer to go out as a [`Demand`].

mod cluster;
mod demand;
mod draw;
mod listener;
mod report;
mod routes;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use xdskit::{
    Observed, Resource, WatchError,
    resource::{Inspected, Invalid, Remarks},
};

pub(crate) use self::{
    cluster::{Assignment, Cluster},
    demand::Demand,
    draw::{draw_absence, draw_unused},
    listener::Listener,
    report::{report_absence, report_unused},
    routes::{Destination, RouteTable},
};
use crate::tree::Artist;

/// The resources of a proxy, by type and name.
#[derive(Debug, Default)]
pub(crate) struct Mesh {
    /// The roots of the trees.
    pub(crate) listeners: Resources<Listener>,
    /// The route configurations that listeners lead to.
    pub(crate) routes: Resources<RouteTable>,
    /// All clusters, or those that routes lead to.
    pub(crate) clusters: Resources<Cluster>,
    /// The assignments of EDS clusters, by their service names.
    pub(crate) endpoints: Resources<Assignment>,
}

/// The known resources of a type.
#[derive(Debug)]
pub(crate) struct Resources<C> {
    /// The resources that were received, and the names known to be absent.
    by_name: BTreeMap<Arc<str>, Entry<C>>,
    /// What is known of all other names.
    others: Others,
}

/// What is known of names that are not among the resources of a type.
#[derive(Debug, Clone, Default)]
enum Others {
    /// Any of them may exist.
    #[default]
    Unknown,
    /// All resources of the type are known: another one does not exist.
    Missing,
    /// The resources of the type are not known, and will not be, with the reason.
    Failed(WatchError),
}

/// A resource as it was received, or the reason why there is none.
#[derive(Debug, Clone)]
pub(crate) enum Entry<C> {
    /// The resource was received.
    Present(Present<C>),
    /// There is no resource, with the reason.
    Absent(WatchError),
}

/// A resource as it was received, with what is wrong with it.
#[derive(Debug, Clone)]
pub(crate) struct Present<C> {
    /// What is drawn of it, or the reason why it cannot be read.
    content: Result<C, Invalid>,
    /// The reason why a gRPC client rejects it.
    invalid: Option<Invalid>,
    /// What a gRPC client does not use of it.
    remarks: Remarks,
    /// The reason why it may be stale.
    warning: Option<WatchError>,
}

/// What is drawn of a type of resources.
pub(crate) trait Content: Sized + Send + 'static {
    type Resource: Resource;

    /// Reads a message. Only malformed ones are errors.
    fn read(bytes: &Bytes) -> Result<Self, Invalid>;

    /// The resources of the type.
    fn of(mesh: &mut Mesh) -> &mut Resources<Self>;
}

impl Mesh {
    /// The resources that listeners refer to, as far as they are known.
    pub(crate) fn demand<'a>(&self, listeners: impl IntoIterator<Item = &'a Arc<str>>) -> Demand {
        let mut demand = Demand::default();
        for listener in listeners {
            if let Some(listener) = self.listeners.content(listener) {
                demand.of_listener(listener, self);
            }
        }
        demand
    }

    /// Whether the tree of a listener is known completely.
    pub(crate) fn knows(&self, listener: &Arc<str>) -> bool {
        // The demand grows with what is known: a listener leads to routes, and these to clusters and endpoints.
        let demand = self.demand([listener]);
        self.listeners.get(listener).is_some()
            && demand.routes.iter().all(|name| self.routes.knows(name))
            && demand.clusters.iter().all(|name| self.clusters.knows(name))
            && demand.endpoints.iter().all(|name| self.endpoints.knows(name))
    }

    /// The known clusters that are not in a demand.
    pub(crate) fn clusters_beside(&self, demand: &Demand) -> Vec<Arc<str>> {
        self.clusters.names().filter(|name| !demand.clusters.contains(*name)).cloned().collect()
    }

    /// Whether something that a listener leads to does not exist or cannot be read, or is an assignment without usable endpoints.
    pub(crate) fn is_incomplete(&self, listener: &Arc<str>) -> bool {
        let demand = self.demand([listener]);
        let is_usable = |name| self.endpoints.content(name).is_some_and(Assignment::is_usable);
        self.listeners.content(listener).is_none()
            || demand.routes.iter().any(|name| self.routes.content(name).is_none())
            || demand.clusters.iter().any(|name| self.clusters.content(name).is_none())
            || !demand.endpoints.iter().all(|name| is_usable(name))
    }

    /// Draws the tree of a listener, as lines of limited number.
    pub(crate) fn draw(&self, artist: Artist, listener: &str) -> Vec<String> {
        draw::draw_listener(self, artist, listener)
    }

    /// Writes the tree of a listener of a target as a line of JSON.
    pub(crate) fn report(&self, target: &str, listener: &Arc<str>) -> String {
        report::report_listener(self, target, listener)
    }
}

impl<C: Content> Entry<C> {
    /// The state of an observed resource; `None` while it is unknown.
    pub(crate) fn of(observed: &Observed<Inspected<C::Resource>>) -> Option<Self> {
        match observed {
            Observed::Absent { reason, .. } => Some(Self::Absent(reason.clone())),
            Observed::Present { resource, warning, .. } => Some(Self::present(resource, warning.clone())),
            Observed::Pending | _ => None,
        }
    }

    /// A resource, and the reason why it may be stale.
    pub(crate) fn present(resource: &Inspected<C::Resource>, warning: Option<WatchError>) -> Self {
        Self::Present(Present {
            // Not from the typed resource, which does not exist where a gRPC client rejects what a proxy accepts.
            content: C::read(resource.bytes()),
            invalid: resource.typed().err().cloned(),
            remarks: resource.typed().ok().and_then(|typed| typed.remarks().cloned()).unwrap_or_default(),
            warning,
        })
    }
}

impl<C> Entry<C> {
    /// What is drawn of the resource, if it can be read.
    fn content(&self) -> Option<&C> {
        match self {
            Self::Present(present) => present.content.as_ref().ok(),
            Self::Absent(_) => None,
        }
    }
}

impl<C> Resources<C> {
    /// Sets the state of a resource; `None` forgets it.
    pub(crate) fn set(&mut self, name: &Arc<str>, entry: Option<Entry<C>>) {
        match entry {
            Some(entry) => drop(self.by_name.insert(name.clone(), entry)),
            None => drop(self.by_name.remove(name)),
        }
    }

    /// Notes that no other names exist, or the reason why nothing is known of them.
    pub(crate) fn complete(&mut self, absence: Option<WatchError>) {
        self.others = match absence {
            Some(reason) if !reason.is_not_found() => Others::Failed(reason),
            Some(_) | None => Others::Missing,
        };
    }

    /// The names of received and of absent resources, sorted.
    fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// The entry of a name; `None` where `others` applies.
    fn get(&self, name: &str) -> Option<&Entry<C>> {
        self.by_name.get(name)
    }

    /// Whether the state of a name is known.
    fn knows(&self, name: &str) -> bool {
        !matches!(self.others, Others::Unknown) || self.by_name.contains_key(name)
    }

    /// The readable content of a resource.
    fn content(&self, name: &str) -> Option<&C> {
        self.get(name).and_then(Entry::content)
    }
}

impl<C> Default for Resources<C> {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), others: Others::Unknown }
    }
}

/// The name of a message without its package, by its type URL.
fn short_name(type_url: &str) -> &str {
    type_url.rsplit(['/', '.']).next().unwrap_or(type_url)
}
