//! The resolved configuration of a target: the tree of listener, routes, clusters and endpoints, as one coherent value.
//!
//! A [`Snapshot`] is the tree at one time. It is immutable, so a request can hold it for any time and read it without
//! locks. Successive snapshots share their common parts.
//!
//! Each request is routed against the latest snapshot: [`Snapshot::route`] takes a [`RouteQuery`] and returns a
//! [`RouteView`], [`RouteView::pick_cluster`] a [`ClusterView`], and [`ClusterView::pick_endpoint`] an [`EndpointView`].
//! Views borrow from the snapshot; a [`ClusterRef`] is an owned cluster, which a future can hold.

mod aggregate;
mod builder;
mod cluster_entry;
mod dependency;
mod descendants;
mod dns;
mod endpoint_sources;
mod endpoints;
mod extension_configs;
#[cfg(test)]
pub(crate) mod fixture;
mod graph;
mod leds;
mod link;
mod messages;
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

pub use self::{
    builder::{SnapshotBuilder, SnapshotError},
    query::{RequestHeaders, RouteQuery},
    snapshot::{ClusterRef, ClusterView, EndpointView, FilterView, PriorityView, RouteView, Snapshot},
};
pub use crate::base::Addresses;

pub(crate) use self::{
    dns::{DnsResolver, HostOrder, LookupId},
    endpoints::{Endpoints, Source},
    orders::{About, Order, Resolved, Seen, Times, WatchKey},
    resolver::Resolver,
};

#[cfg(test)]
mod tests;
