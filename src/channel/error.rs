//! The errors of building a channel.

use crate::{bootstrap::BootstrapError, client::BuildError, config::TargetError, escape::debug_as_message};

/// The reason why a [`Channel`](super::Channel) cannot be built.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// Neither a bootstrap nor a client was given, and the environment has no bootstrap or an unusable one.
    #[error(
        "the channel to {target} was given no bootstrap and no client, and cannot use the environment: {error}"
    )]
    Bootstrap {
        /// The target.
        target: String,
        /// The reason, which names the environment variables.
        error: BootstrapError,
    },
    /// The target cannot be parsed, or its authority is not in the bootstrap (A47-1).
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The client of the bootstrap cannot be built.
    #[error(transparent)]
    Client(#[from] BuildError),
    /// The authority is not one of a URI, or has escapes, which HTTP/2 permits and the `http` crate does not: the service of a target
    /// has them for each character that no authority can have (A47).
    #[error(
        "the authority {authority:?} of the channel to {target} cannot be sent: {reason}; ChannelBuilder::authority sets another one"
    )]
    Authority {
        /// The target.
        target: String,
        /// The authority as given.
        authority: String,
        /// The reason.
        reason: String,
    },
    /// A number of [`ChannelBuilder::retry_throttle`](super::ChannelBuilder::retry_throttle) is out of its range.
    #[error("the retry throttle of the channel to {target} is not valid: {reason}")]
    RetryThrottle {
        /// The target.
        target: String,
        /// The reason.
        reason: String,
    },
    /// [`ChannelBuilder::certificate_revocation`](super::ChannelBuilder::certificate_revocation) is set, and no connection would have a certificate to check.
    #[error(
        "the channel to {target} has revocation lists, and no `xds_credentials`: its connections have no TLS"
    )]
    RevocationWithoutCredentials {
        /// The target.
        target: String,
    },
}

debug_as_message!(ChannelError);
