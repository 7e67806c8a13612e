//! The reason why a connection no longer takes new streams.

use h2::Reason;

use crate::{balance::disconnect::Disconnect, dial};

/// The loss of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::channel) enum Loss {
    /// The peer was pinged more often than it permits (CH3.5).
    TooManyPings,
    /// Any other reason, as metrics name it.
    Other(Disconnect),
}

impl Loss {
    /// Classifies an error of the h2 crate.
    pub(super) fn of(error: &h2::Error) -> Self {
        let go_away = error.reason().filter(|_| error.is_go_away());
        // h2 has sent this GOAWAY itself, for an error of the peer.
        if let Some(reason) = go_away.filter(|_| error.is_library()) {
            return Self::Other(Disconnect::SentGoAway(reason.into()));
        }
        let Some(reason) = go_away.filter(|_| error.is_remote()) else {
            let io = error.get_io();
            return Self::Other(io.map_or(Disconnect::Unknown, |error| Disconnect::of_io(error.kind())));
        };
        if dial::is_too_many_pings(error) {
            return Self::TooManyPings;
        }
        Self::Other(Disconnect::GoAway(reason.into()))
    }

    /// The reason, for metrics (CH9.18).
    pub(in crate::channel) fn reason(self) -> Disconnect {
        match self {
            Self::TooManyPings => Disconnect::GoAway(Reason::ENHANCE_YOUR_CALM.into()),
            Self::Other(reason) => reason,
        }
    }
}
