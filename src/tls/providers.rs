use std::{fmt, sync::Arc};

use crate::config::Bootstrap;

/// The certificate providers of one client (CH7.4). Making it does no I/O: an instance starts with its first user.
pub(crate) struct Providers {}

impl Providers {
    pub(crate) fn new(_bootstrap: &Bootstrap) -> Arc<Self> {
        Arc::new(Self {})
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Providers").finish_non_exhaustive()
    }
}
