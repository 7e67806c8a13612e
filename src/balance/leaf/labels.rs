//! The localities of endpoints as the labels of metrics (CH9.14).

use std::{collections::BTreeMap, sync::Arc};

use super::Leaf;
use crate::balance::{
    command::Holder,
    observer::{LocalityLabel, PickLabels},
    policy::LocalityConfig,
};
use crate::resource::Locality;

/// The labels of localities, each of which is made once.
#[derive(Debug, Default)]
pub(super) struct Labels(BTreeMap<Locality, Arc<str>>);

impl<H: Clone> Leaf<H> {
    /// Labels an endpoint with the locality of its place, if somebody listens. [`settle`](Self::settle) follows.
    pub(super) fn label(&mut self, member: usize, (priority, group, index): (usize, usize, usize)) {
        if !self.settings.observer.is_on() {
            return;
        }
        let config = self.config.clone();
        let localities = config.priorities.get(priority).map(Vec::as_slice).unwrap_or_default();
        let is_one = config.policy.policy.shares_connection();
        let label = match localities {
            _ if config.policy.by_locality => self.labels.of(localities.get(group)),
            several if is_one => self.labels.by_address(several),
            several => self.labels.of(listed(several, index)),
        };
        self.members[member].set_locality(label);
    }

    /// Whether the endpoints of a configuration are in the localities of those at the same places before, as far as labels say.
    pub(super) fn are_labels_same(&self, next: &[Vec<LocalityConfig>]) -> bool {
        let counts = |all: &[Vec<LocalityConfig>]| {
            all.iter()
                .map(|localities| localities.iter().map(|locality| locality.endpoints.len()).collect())
                .collect::<Vec<Vec<_>>>()
        };
        !self.settings.observer.is_on()
            || self.config.policy.by_locality
            || counts(&self.config.priorities) == counts(next)
    }

    /// The labels of an endpoint's connections, if somebody listens.
    pub(in crate::balance) fn labels(&self, holder: Holder) -> PickLabels {
        if !self.settings.observer.is_on() {
            return PickLabels::default();
        }
        let endpoint = holder.endpoint().and_then(|member| self.members.get(member));
        let locality = endpoint.and_then(|endpoint| endpoint.locality());
        PickLabels { backend_service: Some(self.name.clone()), locality }
    }
}

impl Labels {
    fn of(&mut self, locality: Option<&LocalityConfig>) -> LocalityLabel {
        locality.map_or(LocalityLabel::None, |locality| LocalityLabel::One(self.text(&locality.locality)))
    }

    fn by_address(&mut self, localities: &[LocalityConfig]) -> LocalityLabel {
        if let [only] = localities {
            return self.of(Some(only));
        }
        let mut labels = BTreeMap::new();
        for it in localities {
            let label = self.text(&it.locality);
            let addresses = it.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
            labels.extend(addresses.map(|address| (*address, label.clone())));
        }
        LocalityLabel::ByAddress(Arc::new(labels))
    }

    fn text(&mut self, locality: &Locality) -> Arc<str> {
        if let Some(known) = self.0.get(locality) {
            return known.clone();
        }
        let label: Arc<str> = locality.to_string().into();
        self.0.insert(locality.clone(), label.clone());
        label
    }
}

/// The locality of an endpoint by its place in the list of all of them.
fn listed(localities: &[LocalityConfig], mut index: usize) -> Option<&LocalityConfig> {
    localities.iter().find(|locality| {
        let is_here = index < locality.endpoints.len();
        index = index.saturating_sub(locality.endpoints.len());
        is_here
    })
}
