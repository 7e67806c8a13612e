//! The clusters whose load is reported, and the servers that they come from.
//!
//! The counters themselves are in [`Loads`], which handles count into without the engine. Here it is only decided which
//! server gets the report of which cluster: that depends on entries, which change by responses, and on active servers, which
//! change by fallback. Neither costs an iteration over the cache.

use std::{collections::BTreeMap, sync::Arc};

use tracing::warn;

use super::{
    Settings,
    authorities::Authorities,
    store::{Change, Store},
};
use crate::{
    cache::Entry,
    escape::Escaped,
    lrs::{ClusterLoads, Loads},
    observed::ErasedObserved,
    protocol::EntryId,
    resource::{Cluster, ClusterKind, Resource},
};

/// Tells the load reports which clusters are reported, and to which server: the one that the cluster is taken from (LR1.1), which is
/// the active one of its authority. So its load goes to another server as soon as the client falls back to that (LR1.3).
#[derive(Debug)]
pub(super) struct LoadSources {
    /// The counters of all handles, which the driver of reports shares.
    loads: Arc<Loads>,
    /// The clusters that ask for reports, with their names.
    reported: BTreeMap<EntryId, Arc<str>>,
    /// The [`switches`](super::authorities::Groups::switches) that are known.
    switches: u64,
}

impl LoadSources {
    pub(super) fn new(settings: &Settings) -> Self {
        let loads = Loads::new(settings.load_reports.clone());
        Self { loads, reported: BTreeMap::new(), switches: 0 }
    }

    pub(super) fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }

    /// A resource has changed.
    pub(super) fn on_changed(
        &mut self,
        store: &Store,
        authorities: &Authorities,
        id: EntryId,
        change: Change,
    ) {
        let is_cluster = || store.get(id).is_some_and(|entry| store.type_url(entry.ty) == Cluster::TYPE_URL);
        if change.changed && is_cluster() {
            self.update(store, authorities, id);
        }
    }

    /// Looks at removed resources, and at all if an authority has another active server.
    /// Active servers change by fallback and reversion; both are counted by `switches`, so that nothing is examined otherwise.
    pub(super) fn refresh(&mut self, store: &mut Store, authorities: &Authorities) {
        while let Some(id) = store.pop_removed() {
            if self.reported.contains_key(&id) {
                self.update(store, authorities, id);
            }
        }
        let switches = authorities.groups().switches();
        if std::mem::replace(&mut self.switches, switches) != switches {
            let ids: Vec<_> = self.reported.keys().copied().collect();
            ids.into_iter().for_each(|id| self.update(store, authorities, id));
        }
    }

    /// Sets the server of a cluster's reports by the state of its entry; none if it is no reported cluster any more.
    fn update(&mut self, store: &Store, authorities: &Authorities, id: EntryId) {
        let entry = store.get(id).and_then(|entry| Some((entry, reported_cluster(entry)?)));
        let name = entry.as_ref().map(|(entry, _)| &entry.name);
        // The id may be that of another cluster before.
        if self.reported.get(&id).is_some_and(|before| Some(before) != name)
            && let Some(before) = self.reported.remove(&id)
        {
            self.loads.set_cluster(&before, None);
        }
        let Some((entry, cluster)) = entry else { return };
        let is_new = self.reported.insert(id, entry.name.clone()).is_none();
        let source = authorities.server(authorities.groups().active(entry.group)).machine.source_key();
        // LR1.2: reports need a stream, which polls and files do not have.
        let Some(server) = source.stream_server() else {
            if is_new {
                let name = Escaped(&entry.name);
                warn!(cluster = %name, %source, "load is not reported: the cluster's source has no stream");
            }
            return self.loads.set_cluster(&entry.name, None);
        };
        let (service, metrics) = (cluster.reported_service(), &cluster.reported_metrics);
        self.loads.set_cluster(&entry.name, Some(ClusterLoads { server, service, metrics }));
    }
}

/// The resource of a cluster whose load is reported. An aggregate is reported as its leaves (LR1.4).
fn reported_cluster(entry: &Entry) -> Option<Arc<Cluster>> {
    let ErasedObserved::Present { resource, .. } = entry.observe(|| None)? else { return None };
    let cluster: Arc<Cluster> = resource.downcast().ok()?;
    let has_endpoints = match cluster.kind {
        ClusterKind::Eds { .. } | ClusterKind::LogicalDns { .. } => true,
        ClusterKind::Aggregate { .. } => false,
    };
    (cluster.report_load && has_endpoints).then_some(cluster)
}
