//! The resolved configuration of a target: the tree of listener, routes, clusters and endpoints, as one coherent value.
//!
//! A [`Snapshot`] is the tree at one time. It is immutable, so a request can hold it for any time and read it without
//! locks. Successive snapshots share their common parts.
//!
//! Each request is routed against the latest snapshot: [`Snapshot::route`] takes a [`RouteQuery`] and returns a
//! [`RouteView`], [`RouteView::pick_cluster`] a [`ClusterView`], and [`ClusterView::pick_endpoint`] an [`EndpointView`].
//! Views borrow from the snapshot; a [`ClusterRef`] is an owned cluster, which a future can hold.

mod aggregate;
mod cluster_ref;
mod cluster_view;
mod dependency;
mod dns;
#[cfg(test)]
pub(crate) mod fixture;
mod grace;
mod graph;
mod link;
mod node;
mod pick;
mod query;
mod resolver;
mod route_resolver;
mod scopes;
mod snapshot;
mod view;

use std::sync::Arc;

pub use self::{
    cluster_ref::ClusterRef,
    cluster_view::{ClusterView, EndpointView, PriorityView},
    dns::Addresses,
    query::{RequestHeaders, RouteQuery},
    snapshot::Snapshot,
    view::{FilterView, RouteView},
};

pub(crate) use self::{
    dns::{DnsResolver, HostOrder},
    node::{Endpoints, Source},
    resolver::{About, Key, Order, Resolver, Seen, Times},
};

use crate::error::WatchError;

/// What a resolution publishes: the tree, or why there is none.
pub(crate) type Resolved = Result<Arc<Snapshot>, WatchError>;

#[cfg(test)]
mod tests;
