//! The results of picks.

use std::sync::Arc;

use thiserror::Error;

use super::Attempt;
use crate::{
    balance::picker::DropCause,
    error::{Code, WatchError},
    escape::debug_as_message,
};

/// The result of a [pick](super::Picker::pick). `C` is what requests are sent with on a connection.
#[derive(Debug)]
#[must_use = "an attempt counts until it is dropped"]
pub enum Pick<C> {
    /// The request is sent to this endpoint.
    Endpoint(Attempt<C>),
    /// No endpoint is connected yet: the request is picked again by a later picker for which
    /// [`has_changed`](super::Picker::has_changed) is true.
    Wait,
    /// The request fails.
    Fail(PickError),
}

/// The reason why a request has no endpoint.
#[derive(Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PickError {
    /// The target cannot be resolved.
    #[error(transparent)]
    Unresolved(WatchError),
    /// No route leads the request to a cluster.
    #[error("no route of {target} leads the request to a cluster")]
    NoRoute {
        /// The target.
        target: Arc<str>,
    },
    /// The cluster is not in the snapshot, or the server has reported that it does not exist.
    #[error("{0}")]
    NoCluster(Arc<str>),
    /// No endpoint of the cluster can be used: none could be connected to, or there is none.
    #[error("{0}")]
    Unavailable(Arc<str>),
    /// A policy of the application has failed the request.
    #[error("{message}")]
    Policy {
        /// The status.
        code: Code,
        /// The message.
        message: Arc<str>,
    },
    /// The configuration drops a share of the requests, and this one is of it.
    #[error("{0}")]
    Dropped(Arc<str>),
    /// As many requests are running as the circuit breaker of the cluster permits.
    #[error("{0}")]
    CircuitBreaker(Arc<str>),
}

debug_as_message!(PickError);

impl PickError {
    /// Whether the next picker may have an endpoint for the request, so that it may wait for that instead of failing. Others fail at
    /// once, and are not retried.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unresolved(error) => error.is_transient(),
            Self::Unavailable(_) | Self::Policy { .. } => true,
            Self::NoRoute { .. } | Self::NoCluster(_) | Self::Dropped(_) | Self::CircuitBreaker(_) => false,
        }
    }

    /// The error of a drop.
    pub(super) fn of_drop(cause: DropCause, reason: Arc<str>) -> Self {
        match cause {
            DropCause::Gone => Self::NoCluster(reason),
            DropCause::Overload => Self::Dropped(reason),
            DropCause::CircuitBreaker => Self::CircuitBreaker(reason),
        }
    }
}
