//! The certificate providers that the channels and servers of a client share.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    config::Bootstrap,
    resource::Registry,
    tls::{Crypto, Providers},
};

/// The certificate providers of a client, by cryptography: it loads keys, so that users with another one share nothing.
pub(super) struct CertificateInstances {
    /// The plugins of the application.
    registry: Arc<Registry>,
    by_crypto: Mutex<Vec<Arc<Providers>>>,
}

impl CertificateInstances {
    /// Creates instances of the plugins of a registry, none of which runs.
    pub(super) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, by_crypto: Mutex::default() }
    }

    /// Returns the instances with a cryptography. No I/O.
    #[cfg_attr(not(feature = "channel"), allow(dead_code, reason = "channels use it"))]
    pub(super) fn of(&self, bootstrap: &Bootstrap, crypto: &Crypto) -> Arc<Providers> {
        let mut known = self.by_crypto.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.iter().find(|providers| providers.crypto() == crypto) {
            return known.clone();
        }
        // Material without users is kept for later ones, but not beside more and more of other cryptography.
        known.retain(|providers| Arc::strong_count(providers) > 1);
        let new = Providers::new(bootstrap, &self.registry, crypto.clone());
        known.push(new.clone());
        new
    }
}
