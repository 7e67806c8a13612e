//! Limits of time, and delays.

use std::time::Duration;

use crate::backoff::BackoffSettings;

/// The times of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// The time to connect to an agent, with the handshake of HTTP/2.
    pub(super) connect: Duration,
    /// The time until the headers of a stream, and then until its first response.
    pub(super) response: Duration,
    /// The delays between streams.
    pub(super) backoff: BackoffSettings,
    /// The shortest time until a stream is replaced before its identity expires.
    pub(super) renewal: Duration,
}

impl Times {
    /// The times of applications. An agent is on the same machine.
    pub(super) const DEFAULT: Self = Self {
        connect: Duration::from_secs(10),
        response: Duration::from_secs(30),
        backoff: BackoffSettings { max: Duration::from_secs(30), ..BackoffSettings::CONNECTIONS },
        renewal: Duration::from_secs(10),
    };

    /// When another stream is opened for an identity with this remaining validity. Agents replace it earlier.
    pub(super) fn renewal_of(&self, remaining: Duration) -> Duration {
        remaining.mul_f64(0.9).clamp(self.renewal, MAX_RENEWAL.max(self.renewal))
    }
}

/// The longest time until a stream is replaced before its identity expires.
const MAX_RENEWAL: Duration = Duration::from_secs(7 * 24 * 3600);
