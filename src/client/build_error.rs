//! The error of building a client.

use thiserror::Error;

#[cfg(feature = "tls")]
use crate::tls::NoCrypto;
use crate::{
    base::Invalid,
    config::ConfigError,
    escape::{Escaped, debug_as_message},
};

/// The reason why a client could not be built.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The client was built outside of a tokio runtime.
    #[error("a client needs a tokio runtime: build it in a task, or within `Runtime::enter`")]
    NoRuntime,
    /// The bootstrap does not match the [extensions](super::ClientBuilder::extensions) of the application: the plugin of a
    /// certificate provider rejected its configuration.
    #[error("bootstrap: {0}")]
    Bootstrap(ConfigError),
    /// An [initial resource](super::ClientBuilder::initial_resources) is invalid.
    #[error("initial resources: {}", Escaped(.0))]
    InitialResources(Invalid),
    /// A management server has the credentials `tls`, and TLS has no cryptography: no feature with one is enabled, the process has no
    /// default, and [`crypto_provider`](super::ClientBuilder::crypto_provider) is not set.
    #[cfg(feature = "tls")]
    #[error("cannot connect to xDS server {}: {NoCrypto}", Escaped(.server))]
    NoCryptoProvider {
        /// The URI of the server.
        server: String,
    },
}

debug_as_message!(BuildError);
