//! The cluster and the endpoint of a call, as its filters see and change them.

use std::{mem, net::SocketAddr, sync::Arc};

use crate::{
    balance::session_endpoints::HostOverride, channel::call::Routed, filters::Upstream, resource::Cluster,
};

impl Upstream for Routed {
    fn cluster(&self) -> &str {
        self.cluster.name()
    }

    fn cluster_resource(&self) -> Option<Arc<Cluster>> {
        self.cluster.resource()
    }

    /// The replaced cluster is kept beside the others, so that a later filter may select it (CH8.9).
    fn select_cluster(&mut self, is_selected: &dyn Fn(&str) -> bool) {
        if let Some(selected) = self.others.iter_mut().find(|cluster| is_selected(cluster.name())) {
            mem::swap(&mut self.cluster, selected);
        }
    }

    fn override_host(&mut self, addresses: Option<&[SocketAddr]>) {
        let session = &mut self.attributes.session;
        if addresses.is_some() || session.is_none() {
            let addresses = addresses.unwrap_or_default();
            *session = Some(Box::new(HostOverride::new(addresses.into())));
        }
    }
}
