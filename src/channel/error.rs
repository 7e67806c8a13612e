//! The errors of a channel: of building it, and of waiting for it.

use std::{fmt, sync::Arc};

use super::ChannelState;
use crate::{
    bootstrap::BootstrapError,
    client::BuildError,
    config::TargetError,
    error::shortened,
    escape::{Escaped, debug_as_message},
};

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
    /// [`ChannelBuilder::user_agent`](super::ChannelBuilder::user_agent) has characters that no header can have: control characters.
    #[error("the user agent {user_agent:?} of the channel to {target} is no value of a header")]
    UserAgent {
        /// The target.
        target: String,
        /// The user agent as given.
        user_agent: String,
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
    /// [`ChannelBuilder::xds_credentials`](super::ChannelBuilder::xds_credentials) are set, and TLS has no cryptography: no feature with
    /// one is enabled, the process has no default, and neither the channel nor its client has a `crypto_provider`.
    #[cfg(feature = "tls")]
    #[error("the channel to {target} has `xds_credentials`: {}", crate::tls::NoCrypto)]
    NoCryptoProvider {
        /// The target.
        target: String,
    },
}

/// The reason why [`Channel::wait_ready`](super::Channel::wait_ready) has ended without a ready channel.
#[derive(Clone, PartialEq, thiserror::Error)]
pub struct NotReadyError {
    /// The target of the channel.
    target: Arc<str>,
    /// The state at the end of the wait.
    state: ChannelState,
    /// The last failure.
    reason: Option<Arc<str>>,
}

impl NotReadyError {
    pub(crate) fn new(target: &str, state: ChannelState, reason: Option<Arc<str>>) -> Self {
        Self { target: target.into(), state, reason }
    }

    /// The state of the channel at the end of the wait.
    pub fn state(&self) -> ChannelState {
        self.state
    }

    /// The last failure, as in the status of a call that fails for it: why the target cannot be resolved, or why a cluster or its
    /// endpoints cannot be used; or the reason of the shutdown. `None` if nothing has failed so far, such as while a server does not
    /// answer.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

impl fmt::Display for NotReadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the channel to {} is not ready: {}", Escaped(&self.target), self.state)?;
        let write = |reason: &Arc<str>| write!(f, ": {}", Escaped(shortened(reason, LONGEST_REASON)));
        self.reason.as_ref().map_or(Ok(()), write)
    }
}

debug_as_message!(ChannelError);
debug_as_message!(NotReadyError);

/// The largest part of a reason in a message, in bytes; the middle of a longer one is left out.
const LONGEST_REASON: usize = 2048;
