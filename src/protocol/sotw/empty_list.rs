use std::time::{Duration, Instant};

use crate::resource::Version;

/// The answer to the empty list that begins a stream with a wildcard, as far as names beside the wildcard depend on it (B1.23, B1.26).
#[derive(Debug, Default)]
pub(super) struct EmptyList {
    /// The names wait until then for the response, which may have their resources.
    names_wait_until: Option<Instant>,
    /// The version of the last response, or the one that the first request had.
    version: Option<Version>,
    /// The answer that would not be one to `*`.
    before_star: BeforeStar,
    /// The last response may have been made before the server read `*`.
    is_crossed: bool,
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
    }

    /// The first request claims this version, which the server may take for known.
    pub(super) fn on_claimed(&mut self, version: &Version) {
        self.version = Some(version.clone()).filter(|version| !version.is_empty());
    }

    /// The wildcard was sent as `*`.
    pub(super) fn on_spelled(&mut self) {
        self.before_star = self.version.clone().map_or(BeforeStar::Awaited, BeforeStar::Version);
    }

    /// A response was received: the names need not wait any more, and it may be the answer to the empty list or to `*`.
    pub(super) fn on_response(&mut self, version: &Version) {
        self.names_wait_until = None;
        self.is_crossed = match &self.before_star {
            BeforeStar::None => false,
            BeforeStar::Awaited => true,
            BeforeStar::Version(before) => before == version,
        };
        self.before_star = match self.is_crossed {
            true => BeforeStar::Version(version.clone()),
            false => BeforeStar::None,
        };
        self.version = Some(version.clone());
    }

    /// The time at which names that are `due` may be written.
    pub(super) fn due(&self, due: Instant) -> Instant {
        self.names_wait_until.map_or(due, |until| until.max(due))
    }

    /// Whether the last response may be the answer to the empty list, although the wildcard was sent as `*` since.
    pub(super) fn is_crossed(&self) -> bool {
        self.is_crossed
    }
}

/// For how long the response to a wildcard is waited for before names are requested beside it.
const WAIT: Duration = Duration::from_secs(1);
