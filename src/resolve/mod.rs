//! The result of resolving a target: the tree of listener, routes, clusters and endpoints, as one coherent value.
//!
//! A [`Snapshot`] is that tree at one time. It never changes, so it can be held for as long as a request needs it, and is
//! read without locks; the next one shares with it what is the same.
//!
//! [`Snapshot::route`] finds the [`RouteView`] of a request, which a [`RouteQuery`] describes. The route has [`ClusterView`]s, and
//! these have [`EndpointView`]s. All of these borrow from the snapshot.

mod aggregate;
mod cluster_entry;
mod cluster_ref;
mod cluster_view;
mod dependency;
mod descendants;
mod dns;
mod endpoint_sources;
mod endpoints;
#[cfg(test)]
pub(crate) mod fixture;
mod graph;
mod link;
mod node;
mod nodes;
mod orders;
mod phase;
mod pick;
mod query;
mod reference;
mod resolver;
mod route_resolver;
mod routed;
mod scopes;
mod snapshot;
mod usage;
mod view;

pub use self::{
    cluster_ref::ClusterRef,
    cluster_view::{ClusterView, EndpointView, PriorityView},
    query::{RequestHeaders, RouteQuery},
    snapshot::Snapshot,
    view::{FilterView, RouteView},
};
pub use crate::base::Addresses;

pub(crate) use self::{
    dns::{DnsResolver, HostOrder},
    endpoints::{Endpoints, Source},
    orders::{About, Order, Resolved, Seen, Times, WatchKey},
    resolver::Resolver,
};

#[cfg(test)]
mod tests;
