//! What a target resolves to: the tree of listener, routes, clusters and endpoints, as one coherent value.
//!
//! A [`Snapshot`] is that tree at one time. It never changes, so it can be held for as long as a request needs it, and is
//! read without locks; the next one shares with it what is the same.
//!
//! A request asks it for its way with a [`RouteQuery`] and gets a [`RouteView`], that leads to a [`ClusterView`], and that to
//! [`EndpointView`]s. All of these borrow from the snapshot.

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
