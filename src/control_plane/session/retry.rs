//! The timer after which rejected resources are sent again.

use std::time::{Duration, Instant};

use super::AfterNack;

/// The time at which rejected resources are sent again; see [`AfterNack::SameResourcesLater`].
#[derive(Debug, Clone, Default)]
pub(super) enum Retry {
    /// No resource is sent again.
    #[default]
    None,
    /// The timer starts with the next known time.
    Begun,
    /// The time to send them.
    At(Instant),
}

impl Retry {
    /// Handles an ACK or NACK.
    pub(super) fn on_answer(&mut self, is_accepted: bool, after_nack: AfterNack) {
        let is_due = !is_accepted && after_nack == AfterNack::SameResourcesLater;
        *self = if is_due { Self::Begun } else { Self::None };
    }

    /// Updates the time. Returns the time of the next retry, and whether one is due now.
    pub(super) fn handle_time(&mut self, now: Instant) -> (Option<Instant>, bool) {
        match *self {
            Self::None => (None, false),
            Self::Begun => {
                *self = Self::At(now + PAUSE);
                (Some(now + PAUSE), false)
            }
            Self::At(at) if at <= now => {
                *self = Self::None;
                (None, true)
            }
            Self::At(at) => (Some(at), false),
        }
    }
}

/// The time after a NACK.
const PAUSE: Duration = Duration::from_secs(5);
