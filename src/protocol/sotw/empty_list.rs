use std::time::{Duration, Instant};

use crate::{protocol::variant::Crossing, resource::Version};

/// The answer to the empty list that begins a stream with a wildcard, as far as names beside the wildcard depend on it (B1.23, B1.26).
#[derive(Debug, Default)]
pub(super) struct EmptyList {
    /// The names wait until then for the response, which may have their resources.
    names_wait_until: Option<Instant>,
    /// The version of the last response, or the one that the first request had.
    version: Option<Version>,
    /// The answer that would not be one to `*`.
    before_star: BeforeStar,
    /// The request with `*`, which a change of the server's resources may cross.
    star: Star,
    /// Whether the last response was sent before the server read `*`.
    crossing: Crossing,
    /// The request before `*` was the empty list, or may have been one for the server.
    was_wildcard: bool,
}

/// The last answer before the wildcard was sent as `*`. The server may repeat it, or it may cross the request: with a NACK before,
/// go-control-plane sends the same once more.
#[derive(Debug, Default)]
enum BeforeStar {
    /// `*` was not sent, or another version has come since.
    #[default]
    None,
    /// The first response is still to come.
    Awaited,
    /// A response of this version may be that answer.
    Version(Version),
}

/// The progress of the request that spells the wildcard.
#[derive(Debug, Default, Clone, Copy)]
enum Star {
    #[default]
    NotSpelled,
    Written,
    Sent(Instant),
}

impl Star {
    /// Whether a response may have been sent before the server read the request.
    fn is_crossed(self, now: Instant) -> bool {
        match self {
            Self::NotSpelled => false,
            Self::Written => true,
            Self::Sent(at) => now < at + CROSSING,
        }
    }
}

impl EmptyList {
    /// The empty list was written, and names follow.
    pub(super) fn on_written(&mut self, now: Instant) {
        self.names_wait_until = Some(now + WAIT);
    }

    /// The empty list was taken by the transport, and the wait of the names begins.
    pub(super) fn on_sent(&mut self, now: Instant) {
        if let Some(until) = &mut self.names_wait_until {
            *until = now + WAIT;
        }
        // Until the transport takes the request it may wait behind flow control, for any time.
        if let Star::Written = self.star {
            self.star = Star::Sent(now);
        }
    }

    /// The first request claims this version, which the server may take for known.
    pub(super) fn on_claimed(&mut self, version: &Version) {
        self.version = Some(version.clone()).filter(|version| !version.is_empty());
    }

    /// The wildcard was sent as `*`, in place of the empty list if `was_wildcard` is set, and otherwise of names.
    pub(super) fn on_spelled(&mut self, was_wildcard: bool) {
        self.was_wildcard = was_wildcard;
        self.before_star = self.version.clone().map_or(BeforeStar::Awaited, BeforeStar::Version);
        self.star = Star::Written;
    }

    /// A response was received: the names need not wait any more, and it may be the answer to the empty list or to `*`.
    pub(super) fn on_response(&mut self, version: &Version, now: Instant) {
        self.names_wait_until = None;
        self.crossing = match &self.before_star {
            BeforeStar::None => Crossing::No,
            // The first response answers the empty list, even if `*` was written in between.
            BeforeStar::Awaited => Crossing::Likely,
            BeforeStar::Version(before) if before == version => Crossing::Likely,
            // Resources that change cross the request, too, with another version.
            BeforeStar::Version(_) if self.star.is_crossed(now) => Crossing::Possible,
            BeforeStar::Version(_) => Crossing::No,
        };
        self.before_star = match self.crossing {
            Crossing::No => BeforeStar::None,
            Crossing::Possible | Crossing::Likely => BeforeStar::Version(version.clone()),
        };
        self.version = Some(version.clone());
    }

    /// The time at which names that are `due` may be written.
    pub(super) fn due(&self, due: Instant) -> Instant {
        self.names_wait_until.map_or(due, |until| until.max(due))
    }

    /// Whether the wildcard was sent as `*`, and no response has shown that the server knows that.
    pub(super) fn is_star_unproven(&self) -> bool {
        match self.before_star {
            BeforeStar::None => false,
            BeforeStar::Awaited | BeforeStar::Version(_) => true,
        }
    }

    /// Whether the server has sent everything before `*`.
    pub(super) fn was_wildcard_before_star(&self) -> bool {
        self.was_wildcard
    }

    /// Whether the last response is the answer to the empty list, although the wildcard was sent as `*` since.
    pub(super) fn crossing(&self) -> Crossing {
        self.crossing
    }
}

/// For how long after a request a response may have been sent before the server read it.
const CROSSING: Duration = Duration::from_secs(1);
/// For how long the response to a wildcard is waited for before names are requested beside it.
const WAIT: Duration = Duration::from_secs(1);
