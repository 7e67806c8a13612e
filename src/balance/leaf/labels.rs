//! The localities of endpoints as the labels of metrics (CH9.14).

use std::{collections::BTreeMap, sync::Arc};

use super::cluster::Cluster;
use crate::{
    balance::{endpoint_spec::ListPosition, locality_config::LocalityConfig, observer::LocalityLabel},
    resource::Locality,
};

/// The labels of localities, each of which is made once.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<Locality, Arc<str>>);

impl Labels {
    /// The label of the endpoint at a position, if metrics have an observer.
    pub(super) fn at(&mut self, position: ListPosition, cluster: &Cluster) -> Option<LocalityLabel> {
        if !cluster.settings.observer.is_on() {
            return None;
        }
        let localities = cluster.config.priorities.get(position.priority);
        let localities = localities.map(Vec::as_slice).unwrap_or_default();
        Some(match localities {
            _ if cluster.config.policy.by_locality => self.of(localities.get(position.list)),
            // One connection for the whole list: the label follows from the connected address.
            several if cluster.policy().shares_connection() => self.by_address(several),
            several => self.of(listed(several, position.index)),
        })
    }

    /// Forgets the labels of localities that are not listed any more.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The label of a locality, or none without a locality.
    fn of(&mut self, locality: Option<&LocalityConfig>) -> LocalityLabel {
        locality.map_or(LocalityLabel::None, |locality| LocalityLabel::One(self.text(&locality.locality)))
    }

    /// The label of each address, for a connection to the endpoints of several localities.
    fn by_address(&mut self, localities: &[LocalityConfig]) -> LocalityLabel {
        if let [only] = localities {
            return self.of(Some(only));
        }
        let mut labels = BTreeMap::new();
        for locality in localities {
            let label = self.text(&locality.locality);
            let addresses = locality.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
            labels.extend(addresses.map(|address| (*address, label.clone())));
        }
        LocalityLabel::ByAddress(Arc::new(labels))
    }

    /// The text of a locality, which all its endpoints share.
    fn text(&mut self, locality: &Locality) -> Arc<str> {
        if let Some(known) = self.0.get(locality) {
            return known.clone();
        }
        let label: Arc<str> = locality.to_string().into();
        self.0.insert(locality.clone(), label.clone());
        label
    }
}

/// The locality of an endpoint by its index in the list of all of them.
fn listed(localities: &[LocalityConfig], mut index: usize) -> Option<&LocalityConfig> {
    localities.iter().find(|locality| {
        let is_here = index < locality.endpoints.len();
        index = index.saturating_sub(locality.endpoints.len());
        is_here
    })
}
