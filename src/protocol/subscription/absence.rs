//! The absence of a name from responses, and what it proves.

use std::time::Instant;

use super::{super::phase::Phase, Subscription};

/// The meaning of an absence from a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The resource does not exist.
    Confirmed,
    /// The response may have crossed the request, whose timer is running or starts when it is sent.
    Awaited,
    /// The response may have crossed the request: a timer is to be started.
    Unconfirmed,
}

/// The resources that a response should have, of a type whose responses have all resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What was subscribed by name before, and not what the wildcard has brought and is requested by name since: the server may take
    /// the wildcard for a name (B1.23).
    Narrow,
    /// What was requested by name.
    Names,
    /// What was requested by name, and the members of the wildcard.
    Wildcard,
    /// Every resource of the server: the wildcard stands for the names, which are in no request (B1.23).
    Everything,
}

impl Subscription {
    /// A response of this extent is complete. True when the name should have been in it and was not. The absence of a name that was
    /// never requested proves nothing, unless the wildcard stands for it.
    pub(crate) fn on_complete_response(&mut self, response: u64, extent: Extent) -> bool {
        self.is_missing = self.lacks(response, extent);
        self.is_missing
    }

    /// Whether a complete response of this extent should have the name and does not.
    pub(crate) fn lacks(&self, response: u64, extent: Extent) -> bool {
        let is_unanswered = matches!(self.phase, Phase::New | Phase::Requested);
        let expected = match (self.is_named, self.of_wildcard, extent) {
            // The wildcard has brought it, and a request with its name may not have been read: a server that takes `*` for a
            // name lacks it.
            (true, true, Extent::Narrow) if is_unanswered => false,
            // No request has the name, so that its phase says nothing.
            (true, _, Extent::Everything) => true,
            // B1.13: a name that no request of the stream has had is missing only if the server has sent it before.
            (true, ..) => self.phase != Phase::New || self.was_ever_mentioned(),
            // Responses to names lack the members of the wildcard, and have those of globs.
            (false, true, Extent::Narrow | Extent::Names) => self.of_glob,
            (false, ..) => true,
        };
        expected && self.last_response != response
    }

    /// A file, which is complete, does not have it. True when that is the answer to its request.
    pub(crate) fn on_absent_from_file(&mut self, response: u64) -> bool {
        let is_unanswered = matches!(self.phase, Phase::New | Phase::Requested);
        let is_absent = is_unanswered
            && self.is_named
            && self.is_requested
            && !self.is_held
            && self.last_response != response;
        if is_absent {
            (self.phase, self.doubt_until) = (Phase::TimedOut, None);
        }
        is_absent
    }

    /// Whether the server was due to send it on this stream, and did not.
    pub(crate) fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// Whether the server has reported on this stream that it does not exist. What lacks a name that was left out of the request
    /// before reports nothing of it.
    pub(crate) fn is_known_missing(&self) -> bool {
        self.is_missing && self.is_answered && self.doubt_until.is_none()
    }

    /// Whether the absence of the name from a response is no proof at the time.
    pub(crate) fn is_absence_doubtful(&self, now: Instant) -> bool {
        let is_doubtful = self.doubt_until.as_ref().is_some_and(|until| **until > now);
        is_doubtful && (self.is_named || !self.is_member())
    }

    /// The name is missing from a response; returns what that means at the time.
    pub(in crate::protocol) fn on_missing(&mut self, now: Instant) -> Absence {
        if !self.is_absence_doubtful(now) {
            return Absence::Confirmed;
        }
        if !self.is_named {
            // It was unsubscribed from once more, and the server is about to be notified.
            return Absence::Awaited;
        }
        if !self.is_requested {
            self.phase = Phase::New;
        }
        match self.phase {
            // The request has not been sent yet, and its time begins with that.
            Phase::New | Phase::AbsenceUnconfirmed => Absence::Awaited,
            Phase::Requested | Phase::Answered | Phase::TimedOut => {
                self.phase = Phase::AbsenceUnconfirmed;
                Absence::Unconfirmed
            }
        }
    }

    /// Absence proves nothing until some time, unless it did not before.
    pub(in crate::protocol) fn doubt(&mut self, until: Instant) {
        self.doubt_until.get_or_insert_with(|| Box::new(until));
    }

    /// The name is subscribed, and was missing while it was not (B1.13). True when a timer is to be started now.
    pub(in crate::protocol) fn doubt_missing(&mut self, until: Instant) -> bool {
        if !self.is_held || !self.is_missing || self.is_member() {
            return false;
        }
        self.doubt(until);
        if !self.is_requested {
            self.phase = Phase::New;
        }
        // Otherwise its time begins with the request.
        let starts = self.phase != Phase::New;
        if starts {
            self.phase = Phase::AbsenceUnconfirmed;
        }
        starts
    }

    /// Whether a good resource is held that the server has sent on this stream, and whose absence is not confirmed.
    pub(in crate::protocol) fn was_answered_before_doubt(&self) -> bool {
        self.is_held && self.is_answered && self.phase == Phase::AbsenceUnconfirmed
    }

    /// Whether a good resource is held whose absence is not confirmed.
    pub(in crate::protocol) fn is_doubted(&self) -> bool {
        self.is_held && self.is_missing && self.doubt_until.is_some()
    }
}
