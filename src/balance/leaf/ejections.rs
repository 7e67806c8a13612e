//! The decisions of outlier detection, for logs, metrics and models.

#[cfg(any(test, feature = "fuzzing"))]
use std::collections::BTreeSet;
use std::net::SocketAddr;

use tracing::debug;

use super::cluster::Cluster;
#[cfg(any(test, feature = "fuzzing"))]
use super::endpoints::EndpointTable;
#[cfg(any(test, feature = "fuzzing"))]
use crate::balance::{connectivity::Connectivity, endpoint_spec::EndpointKey, outlier::Outliers};
use crate::balance::{observer::Observation, outlier::Decision};

/// Logs a decision, and counts it (CH9.17).
pub(super) fn report(cluster: &Cluster, addresses: &[SocketAddr], decision: Decision) {
    let (name, observer) = (&cluster.name, &cluster.settings.observer);
    match decision {
        Decision::Ejected(method) => {
            let method = method.as_str();
            debug!(cluster = %name, ?addresses, method, "endpoint ejected by outlier detection");
            observer.observe(Observation::Ejected { cluster: name, method });
        }
        Decision::NotEjected(method, reason) => {
            let (method, reason) = (method.as_str(), reason.as_str());
            debug!(cluster = %name, ?addresses, method, reason, "outlier not ejected");
            observer.observe(Observation::NotEjected { cluster: name, method, reason });
        }
        Decision::Unejected => debug!(cluster = %name, ?addresses, "ejection of an endpoint ended"),
    }
}

/// What a model looks at.
#[cfg(any(test, feature = "fuzzing"))]
#[derive(Debug)]
pub(in crate::balance) struct Ejections {
    /// The addresses of the ejected endpoints.
    pub(in crate::balance) ejected: BTreeSet<Vec<SocketAddr>>,
    /// The number of ejected endpoints, as it is counted.
    pub(in crate::balance) counted: usize,
    /// The number of all endpoints.
    pub(in crate::balance) total: usize,
    /// The endpoints of the priorities in use: their addresses, whether they are ejected, and their connectivity.
    pub(in crate::balance) members: Vec<(Vec<SocketAddr>, bool, Connectivity)>,
    /// A sweep is not over.
    pub(in crate::balance) is_sweeping: bool,
}

#[cfg(any(test, feature = "fuzzing"))]
impl Ejections {
    /// What outlier detection and the endpoints of a cluster have.
    pub(super) fn of<H: Clone>(outliers: &Outliers, endpoints: &EndpointTable<H>) -> Self {
        let (ejected, counted, total) = outliers.ejected();
        let members = endpoints.with_keys().filter_map(|(key, endpoint)| match key {
            EndpointKey::Endpoint { addresses, .. } => {
                Some((addresses.clone(), endpoint.is_ejected(), endpoint.connectivity))
            }
            EndpointKey::All { .. } => None,
        });
        let ejected = ejected.into_iter().map(<[_]>::to_vec).collect();
        let is_sweeping = outliers.is_sweeping();
        Self { ejected, counted, total, members: members.collect(), is_sweeping }
    }
}
