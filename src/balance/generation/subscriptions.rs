//! The clusters that the application, and the channel for the targets of plugins, subscribe to.

use std::{collections::BTreeMap, sync::Arc};

use crate::balance::{cluster_use::ClusterUse, connectivity::Connectivity};

/// Subscribed clusters, whether or not routes name them (CH1.20).
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// The numbers of subscriptions.
    counts: BTreeMap<Arc<str>, usize>,
    /// The subscribed clusters, as generations share them.
    clusters: Arc<SubscribedClusters>,
}

/// The subscribed clusters of a generation, by name.
#[derive(Debug, Default)]
pub(super) struct SubscribedClusters(BTreeMap<Arc<str>, Arc<ClusterUse>>);

impl Subscriptions {
    pub(super) fn add(&mut self, cluster: Arc<str>) {
        *self.counts.entry(cluster).or_default() += 1;
    }

    /// Says whether the last subscription of a cluster has ended.
    pub(super) fn remove(&mut self, cluster: &Arc<str>) -> bool {
        let Some(count) = self.counts.get_mut(cluster) else { return false };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.counts.remove(cluster);
        }
        is_last
    }

    pub(super) fn contains(&self, cluster: &str) -> bool {
        self.counts.contains_key(cluster)
    }

    /// Gives generations the subscribed clusters of those in use.
    pub(super) fn update(&mut self, uses: &BTreeMap<Arc<str>, Arc<ClusterUse>>) {
        let known = |name: &Arc<str>| Some((name.clone(), uses.get(name)?.clone()));
        self.clusters = Arc::new(SubscribedClusters(self.counts.keys().filter_map(known).collect()));
    }

    /// The clusters for the next generation.
    pub(super) fn clusters(&self) -> &Arc<SubscribedClusters> {
        &self.clusters
    }
}

impl SubscribedClusters {
    /// The indexes of their pickers.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.0.values().map(|cluster| cluster.place())
    }

    /// The cluster of a call among its targets, the preferred one first: the first that has not failed, or else the last one (RL8).
    /// `None` while it is not known whether a target before the last one is usable, and before all of them are subscribed.
    pub(super) fn choose(
        &self,
        targets: &[Arc<str>],
        connectivity: impl Fn(usize) -> Connectivity,
    ) -> Option<&Arc<ClusterUse>> {
        let mut targets = targets.iter();
        while let Some(target) = targets.next() {
            let cluster = self.0.get(target)?;
            let is_last = targets.len() == 0;
            match connectivity(cluster.place()) {
                Connectivity::TransientFailure if !is_last => {}
                Connectivity::Connecting if !is_last => return None,
                Connectivity::Ready
                | Connectivity::Idle
                | Connectivity::Connecting
                | Connectivity::TransientFailure => return Some(cluster),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl8_a_call_goes_to_the_first_target_that_has_not_failed() {
        use Connectivity::{Connecting, Idle, Ready, TransientFailure as Failed};
        let names: [Arc<str>; 2] = ["first".into(), "last".into()];
        let uses = names
            .iter()
            .enumerate()
            .map(|(place, name)| (name.clone(), ClusterUse::new(name.clone(), place, Arc::new(|| {}))));
        let uses = uses.collect();
        let mut subscriptions = Subscriptions::default();
        for name in &names {
            subscriptions.add(name.clone());
        }
        assert!(subscriptions.clusters().choose(&names, |_| Ready).is_none(), "they are not in use yet");
        subscriptions.update(&uses);
        for (states, expected) in [
            ([Ready, Ready], Some(0)),
            ([Idle, Ready], Some(0)),
            ([Failed, Ready], Some(1)),
            ([Failed, Connecting], Some(1)),
            ([Failed, Failed], Some(1)),
            ([Connecting, Ready], None),
        ] {
            let chosen = subscriptions.clusters().choose(&names, |place| states[place]);
            assert_eq!(chosen.map(|cluster| cluster.place()), expected, "{states:?}");
        }
        let alone = subscriptions.clusters().choose(&names[..1], |_| Connecting);
        assert_eq!(alone.map(|cluster| cluster.place()), Some(0));
        assert!(subscriptions.remove(&names[0]) && !subscriptions.remove(&names[0]));
    }
}
