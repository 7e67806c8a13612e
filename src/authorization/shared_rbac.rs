//! The policies in use.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::rbac::Rbac;

/// The policies in use, which can be replaced while requests are decided about. Clones share them.
///
/// A request is decided about by the policies at its beginning. Reading takes no lock.
#[derive(Debug, Clone)]
pub struct SharedRbac(Arc<ArcSwap<Rbac>>);

impl SharedRbac {
    /// Shares policies.
    pub fn new(rbac: Rbac) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(rbac)))
    }

    /// Replaces the policies, for the requests from now on.
    pub fn replace(&self, rbac: Rbac) {
        self.0.store(Arc::new(rbac));
    }

    /// The policies in use.
    pub fn current(&self) -> Arc<Rbac> {
        self.0.load_full()
    }
}

impl From<Rbac> for SharedRbac {
    fn from(rbac: Rbac) -> Self {
        Self::new(rbac)
    }
}
