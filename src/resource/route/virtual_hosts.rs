//! The virtual hosts of a route configuration, with an index for the search of each request.

use std::sync::{Arc, OnceLock};

use super::host_index::HostIndex;
use crate::resource::{VirtualHost, slices::as_slice};

/// The virtual hosts of a [`RouteConfiguration`](super::RouteConfiguration): a slice, with a search whose time does
/// not grow with its length.
///
/// It is immutable: above a certain number of domains, the first search builds an index of them, which clones share.
#[derive(Clone)]
pub struct VirtualHosts {
    /// The virtual hosts in their order.
    all: Box<[VirtualHost]>,
    /// `None` for a list too short for an index.
    index: OnceLock<Option<Arc<HostIndex>>>,
}

impl VirtualHosts {
    /// A list, whose index is made when it is first searched.
    pub(super) fn new(all: Box<[VirtualHost]>) -> Self {
        Self { all, index: OnceLock::new() }
    }

    /// Returns the index of the virtual host whose domain matches a host best; the first among equals.
    pub(super) fn best(&self, host: &str) -> Option<usize> {
        if let Some(index) = self.index.get_or_init(|| HostIndex::new(&self.all).map(Arc::new)) {
            return index.best(host);
        }
        let fitting = self.all.iter().enumerate().filter_map(|(place, v)| Some((v.fit(host)?, place)));
        fitting.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, place)| place)
    }
}

as_slice! {
    VirtualHosts of VirtualHost;
}
