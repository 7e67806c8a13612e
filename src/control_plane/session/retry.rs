use std::time::{Duration, Instant};

use super::AfterNack;

/// When something that was rejected is sent again; see [`AfterNack::SameResourcesLater`].
#[derive(Debug, Clone, Default)]
pub(super) enum Retry {
    #[default]
    None,
    /// The time begins when somebody says what time it is.
    Begun,
    At(Instant),
}

impl Retry {
    pub(super) fn on_answer(&mut self, is_accepted: bool, after_nack: AfterNack) {
        let is_due = !is_accepted && after_nack == AfterNack::SameResourcesLater;
        *self = if is_due { Self::Begun } else { Self::None };
    }

    /// Takes note of the time. Returns when the next time is, and whether it is now.
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

const PAUSE: Duration = Duration::from_secs(5);
