//! What the decisions of outlier detection mean for the endpoints of a cluster.

#[cfg(any(test, feature = "fuzzing"))]
use std::collections::BTreeSet;
use std::{mem, net::SocketAddr, sync::Arc};

use tracing::debug;

use super::{Leaf, Scope};
#[cfg(any(test, feature = "fuzzing"))]
use crate::balance::connectivity::Connectivity;
use crate::balance::{
    cluster_endpoint::EndpointKey,
    identity::Identity,
    observer::{Observation, Observer},
    outlier::{Decision, Tracked},
};

impl<H: Clone> Leaf<H> {
    /// Ejects endpoints and ends ejections, if that is due: those of one slice of a sweep. [`choose`](Self::choose) follows: another
    /// priority may be the one in use (CH3.72).
    ///
    /// A picker is made of all endpoints, so it follows the last slice, unless something else changes it before.
    pub(super) fn sweep(&mut self, scope: &mut Scope<'_>) {
        if self.outliers.poll_timeout().is_none_or(|at| at > scope.now) {
            return;
        }
        let published = self.published.clone();
        for (addresses, decision) in self.outliers.sweep(scope.now, scope.random) {
            log(&self.name, &addresses, decision);
            observe(&self.settings.observer, &self.name, decision);
            if let Some(is_ejected) = decision.is_ejected() {
                self.set_ejected(&addresses, is_ejected, scope);
                self.has_unpublished_ejections = true;
            }
        }
        if self.outliers.is_sweeping() {
            self.published = published;
        } else if mem::take(&mut self.has_unpublished_ejections) {
            // The text of a failure names the number of ejected endpoints.
            self.published = None;
        }
    }

    /// An endpoint is ejected from now on, or not any more.
    fn set_ejected(&mut self, addresses: &[SocketAddr], is_ejected: bool, scope: &mut Scope<'_>) {
        self.track_host(addresses, scope);
        // One of a priority that is not in use is there when that is.
        for member in self.members_with(addresses) {
            self.members[member].set_ejected(is_ejected);
            self.settle(member, scope);
        }
    }

    /// The endpoints with these addresses: one, unless they are listed with several identities.
    fn members_with(&self, addresses: &[SocketAddr]) -> Vec<usize> {
        let first = EndpointKey::Endpoint { addresses: addresses.to_vec(), identity: Identity::default() };
        let is_of = |key: &EndpointKey| matches!(key, EndpointKey::Endpoint { addresses: own, .. } if *own == addresses);
        self.by_key.range(first..).take_while(|(key, _)| is_of(key)).map(|(_, member)| *member).collect()
    }

    /// What outlier detection knows of an endpoint, if the cluster has it.
    pub(super) fn tracked(&self, key: &EndpointKey) -> Option<Tracked> {
        match key {
            EndpointKey::Endpoint { addresses, .. } => self.outliers.tracked(addresses),
            EndpointKey::All { .. } => None,
        }
    }
}

/// What a model looks at: the addresses of the ejected endpoints, the number that is counted of them, that of all endpoints, and
/// what the endpoints of the priorities in use are.
#[cfg(any(test, feature = "fuzzing"))]
#[derive(Debug)]
pub(in crate::balance) struct Ejections {
    pub(in crate::balance) ejected: BTreeSet<Vec<SocketAddr>>,
    pub(in crate::balance) counted: usize,
    pub(in crate::balance) total: usize,
    pub(in crate::balance) members: Vec<(Vec<SocketAddr>, bool, Connectivity)>,
    /// A sweep is not over.
    pub(in crate::balance) is_sweeping: bool,
}

#[cfg(any(test, feature = "fuzzing"))]
impl<H: Clone> Leaf<H> {
    pub(in crate::balance) fn ejections(&self) -> Ejections {
        let (ejected, counted, total) = self.outliers.ejected();
        let members = self.by_key.iter().filter_map(|(key, member)| match key {
            EndpointKey::Endpoint { addresses, .. } => {
                let it = &self.members[*member];
                Some((addresses.clone(), it.is_ejected(), it.connectivity))
            }
            EndpointKey::All { .. } => None,
        });
        let ejected = ejected.into_iter().map(<[_]>::to_vec).collect();
        let is_sweeping = self.outliers.is_sweeping();
        Ejections { ejected, counted, total, members: members.collect(), is_sweeping }
    }
}

/// Counts a decision (CH9.17).
fn observe(observer: &Observer, cluster: &Arc<str>, decision: Decision) {
    match decision {
        Decision::Ejected(method) => {
            observer.observe(Observation::Ejected { cluster, method: method.as_str() });
        }
        Decision::NotEjected(method, reason) => {
            let (method, reason) = (method.as_str(), reason.as_str());
            observer.observe(Observation::NotEjected { cluster, method, reason });
        }
        Decision::Unejected => {}
    }
}

fn log(cluster: &Arc<str>, addresses: &[SocketAddr], decision: Decision) {
    match decision {
        Decision::Ejected(method) => {
            debug!(%cluster, ?addresses, method = method.as_str(), "endpoint ejected by outlier detection");
        }
        Decision::NotEjected(method, reason) => {
            let (method, reason) = (method.as_str(), reason.as_str());
            debug!(%cluster, ?addresses, method, reason, "outlier not ejected");
        }
        Decision::Unejected => debug!(%cluster, ?addresses, "ejection of an endpoint ended"),
    }
}
