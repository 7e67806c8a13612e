//! The metadata of endpoints, which is reported beside their counts (LR9.5).

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Weak},
};

use serde_json::{Map, Value};

use super::weak_map::Referent;
use crate::{
    config::Locality,
    resource::{ClusterLoadAssignment, metadata::MetadataValue},
};

/// The endpoints of a cluster by EDS.
///
/// The metadata is looked up when a report is written, so that calls, handles and counters have nothing to do with it, and nothing is
/// copied. It is that of the endpoints in use: load reports keep no assignment alive.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignment(Weak<ClusterLoadAssignment>);

/// The metadata of the endpoints that have any, by locality and address.
#[derive(Debug)]
pub(super) struct EndpointMetadata<'a>(BTreeMap<(&'a Locality, SocketAddr), &'a Map<String, Value>>);

impl Assignment {
    pub(super) fn of(assignment: &Arc<ClusterLoadAssignment>) -> Self {
        Self(Arc::downgrade(assignment))
    }

    /// The assignment, as long as it is in use.
    pub(super) fn get(&self) -> Option<Arc<ClusterLoadAssignment>> {
        self.0.upgrade()
    }
}

impl Referent for Assignment {
    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }
}

impl<'a> EndpointMetadata<'a> {
    /// `None` if no endpoint has any.
    /// Takes time for each endpoint of the cluster, so it is made once for a report, and only if the server has requested endpoints.
    pub(super) fn of(assignment: &'a ClusterLoadAssignment) -> Option<Self> {
        let mut all = BTreeMap::new();
        for locality in assignment.localities() {
            for endpoint in &locality.endpoints {
                let Some(MetadataValue::Struct(object)) = endpoint.metadata().get(NAMESPACE) else {
                    continue;
                };
                if object.is_empty() {
                    continue;
                }
                // An application may report an endpoint by any of its addresses. The most preferred priority counts.
                for address in endpoint.addresses() {
                    all.entry((&locality.locality, address)).or_insert(object);
                }
            }
        }
        (!all.is_empty()).then_some(Self(all))
    }

    /// Returns the metadata of an endpoint.
    pub(super) fn get(&self, locality: &Locality, address: SocketAddr) -> Option<&'a Map<String, Value>> {
        self.0.get(&(locality, address)).copied()
    }
}

/// The key of the metadata that is for load balancing. Reports have room for one struct, without keys of filters.
const NAMESPACE: &str = "envoy.lb";
