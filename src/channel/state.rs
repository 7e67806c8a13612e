//! The state of a channel, and watches of it.

use std::fmt;

use serde::Serialize;
use tokio::sync::watch;

use crate::balance::connectivity::Connectivity;

/// The state of a channel, of the clusters of its newest routes together. In JSON it is a name such as
/// `TRANSIENT_FAILURE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ChannelState {
    /// There are no connections, and none are attempted until there is a call.
    Idle,
    /// The target is being resolved, or connections are being established.
    Connecting,
    /// Calls can be sent.
    Ready,
    /// The target cannot be resolved, or no endpoint can be reached; fail-fast calls fail.
    TransientFailure,
    /// The channel was shut down, or its task has ended: it has panicked, or the runtime that the channel was built on has ended.
    /// This is final, and all calls fail with the reason.
    Shutdown,
}

/// The states of a channel, made by [`Channel::watch_state`](super::Channel::watch_state).
#[derive(Debug, Clone)]
pub struct StateWatch {
    states: watch::Receiver<ChannelState>,
    /// Whether the first state was returned.
    has_begun: bool,
}

/// The publisher of the state of a channel.
#[derive(Debug)]
pub(super) struct States {
    states: watch::Sender<ChannelState>,
}

impl StateWatch {
    /// The current state at first, then each later one; a slow watcher skips states, never the latest. `None` after
    /// [`ChannelState::Shutdown`] was returned, and when the channel has ended.
    ///
    /// # Cancel safety
    /// No state is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<ChannelState> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(*self.states.borrow_and_update());
        }
        if *self.states.borrow() == ChannelState::Shutdown && !self.states.has_changed().unwrap_or(false) {
            return None;
        }
        self.states.changed().await.ok()?;
        Some(*self.states.borrow_and_update())
    }
}

impl States {
    /// Begins with `Idle`.
    pub(super) fn new() -> Self {
        Self { states: watch::Sender::new(ChannelState::Idle) }
    }

    /// Returns the current state.
    pub(super) fn current(&self) -> ChannelState {
        *self.states.borrow()
    }

    /// Returns a watch that begins with the current state.
    pub(super) fn watch(&self) -> StateWatch {
        StateWatch { states: self.states.subscribe(), has_begun: false }
    }

    /// Sets the state, unless it is `Shutdown`, which is final (CH1.6).
    pub(super) fn set(&self, state: ChannelState) {
        self.states.send_if_modified(|current| {
            let is_new = *current != state && *current != ChannelState::Shutdown;
            if is_new {
                *current = state;
            }
            is_new
        });
    }
}

/// The name in the documentation of gRPC.
impl fmt::Display for ChannelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "IDLE",
            Self::Connecting => "CONNECTING",
            Self::Ready => "READY",
            Self::TransientFailure => "TRANSIENT_FAILURE",
            Self::Shutdown => "SHUTDOWN",
        })
    }
}

impl From<Connectivity> for ChannelState {
    fn from(connectivity: Connectivity) -> Self {
        match connectivity {
            Connectivity::Idle => Self::Idle,
            Connectivity::Connecting => Self::Connecting,
            Connectivity::Ready => Self::Ready,
            Connectivity::TransientFailure => Self::TransientFailure,
        }
    }
}
