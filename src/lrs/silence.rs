//! The warning about a server that does not respond to load reports.

use std::time::{Duration, Instant};

/// The wait for the first response to load reports. A server that is silent is worth one warning, until it has responded: one that permits
/// a single stream for a connection never opens a second one.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When the server counts as silent; `None` without a stream, and after a warning.
    until: Option<Instant>,
    /// Whether the warning was logged. A response replaces the whole value.
    is_reported: bool,
}

impl Silence {
    /// Handles the begin of a stream.
    pub(super) fn begin(&mut self, now: Instant) {
        self.until = (!self.is_reported).then_some(now + LONGEST);
    }

    /// Handles the end of a stream, which is reported for its own reason.
    pub(super) fn end(&mut self) {
        self.until = None;
    }

    /// Returns the deadline of the first response.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether a warning is due: once.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let is_over = self.until.take_if(|until| *until <= now).is_some();
        self.is_reported |= is_over;
        is_over
    }
}

/// The time without a response after which a server is silent.
const LONGEST: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lr2_5_a_server_without_a_response_is_reported_once_until_it_has_responded() {
        let mut now = Instant::now();
        let mut silence = Silence::default();
        silence.begin(now);
        assert!(!silence.is_over(now + LONGEST - Duration::from_millis(1)));
        assert!(silence.is_over(now + LONGEST));
        assert!(!silence.is_over(now + LONGEST), "once for a stream");
        now += 2 * LONGEST;
        silence.begin(now);
        assert_eq!(silence.until(), None, "once for a server");
        silence = Silence::default();
        silence.begin(now);
        silence.end();
        assert!(!silence.is_over(now + LONGEST), "its stream has ended");
        silence.begin(now);
        assert!(silence.is_over(now + LONGEST), "it was silent again after a response");
    }
}
