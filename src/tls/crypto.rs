//! The choice of the cryptography of TLS.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

use thiserror::Error;
use tokio_rustls::rustls::crypto::CryptoProvider;

/// The cryptography of TLS, or its absence, which is the error of each handshake.
///
/// The choice is made once, when a client or a channel is built, so that keys and handshakes have the same. Two values are equal if they are
/// the same provider, since rustls cannot compare providers.
#[derive(Clone)]
pub(crate) struct Crypto(Option<Arc<CryptoProvider>>);

/// The error of TLS without cryptography.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "TLS has no cryptography: enable the feature `tls-ring` or `tls-aws-lc`, install a process default (`CryptoProvider::install_default`), \
     or set `crypto_provider`"
)]
pub(crate) struct NoCrypto;

impl Crypto {
    /// Chooses the provider of the application, or else the default of the process, or else the compiled-in one.
    pub(crate) fn choose(own: Option<&Arc<CryptoProvider>>) -> Self {
        Self::first([own, CryptoProvider::get_default(), COMPILED.as_ref()])
    }

    /// No cryptography, as in a build and a process without any.
    #[cfg(test)]
    pub(crate) fn missing() -> Self {
        Self(None)
    }

    /// Returns the provider.
    pub(crate) fn provider(&self) -> Result<&Arc<CryptoProvider>, NoCrypto> {
        self.0.as_ref().ok_or(NoCrypto)
    }

    /// Takes the first provider.
    fn first<'a>(providers: impl IntoIterator<Item = Option<&'a Arc<CryptoProvider>>>) -> Self {
        Self(providers.into_iter().flatten().next().cloned())
    }
}

impl PartialEq for Crypto {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// Shows whether there is a provider, not its lists of algorithms.
impl fmt::Debug for Crypto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Crypto" } else { "NoCrypto" })
    }
}

/// The compiled-in provider. One value for the process, so that all users of it have an equal one.
static COMPILED: LazyLock<Option<Arc<CryptoProvider>>> = LazyLock::new(|| compiled().map(Arc::new));

/// Returns aws-lc, or else ring, or else nothing. Where both are compiled, ring may be there as a default feature alone, while
/// aws-lc was asked for.
fn compiled() -> Option<CryptoProvider> {
    #[cfg(feature = "tls-aws-lc")]
    return Some(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    #[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
    return Some(tokio_rustls::rustls::crypto::ring::default_provider());
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
    None
}

#[cfg(test)]
mod tests;
