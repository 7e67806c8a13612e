use std::{mem, sync::Arc, time::Instant};

use super::{id::EntryId, phase::Phase};
use crate::resource::Version;

mod absence;

pub(super) use absence::Absence;
pub(crate) use absence::Extent;

/// One name of a type at one server: the progress of its request, and of the server's answers.
///
/// The rule of the does-not-exist timer (A57) is here and in [`DoesNotExistTimers`](super::timers::DoesNotExistTimers).
/// The methods are named after messages on the wire, so that a change of the state is found by its cause.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The canonical name.
    name: Arc<str>,
    /// The name in requests, if it differs (X2).
    spelling: Option<Arc<str>>,
    /// The entry in the cache, which several servers may have a subscription of.
    entry: EntryId,
    /// The progress of the request on the current stream; after a stream, of the next one.
    phase: Phase,
    /// Subscribed by name. Without it the name is a member of a collection, or about to be removed.
    is_named: bool,
    /// The last request that was handed out has the name.
    is_requested: bool,
    /// The server sent the name under a wildcard.
    of_wildcard: bool,
    /// The server sent it under a glob, which is subscribed to by a name of its own.
    of_glob: bool,
    /// The cache holds a good resource.
    is_held: bool,
    /// Whether this server has sent the cached resource, in the incremental variant.
    is_own: bool,
    /// Set when another server has sent the cached resource, while this name had a subscription here.
    is_replaced: bool,
    /// The server's version of the cached resource, where resources have versions of their own; empty if the cache
    /// holds another one, or none.
    version: Version,
    /// The server has answered the name on this stream.
    is_answered: bool,
    /// Held since an earlier stream, in a version that this stream's first request did not have: it has to be sent again.
    is_unconfirmed: bool,
    /// Requested before the wildcard, and not answered when that was requested: an answer to it is no sign that the server sends
    /// everything.
    precedes_wildcard: bool,
    /// The end of the time in which absence proves nothing: the name was unsubscribed shortly before, so that a response to
    /// that may be in flight. Boxed, since few subscriptions have one and there may be a million of them.
    doubt_until: Option<Box<Instant>>,
    /// The timer that was started last; earlier ones do not matter any more. 0 if none was.
    timer: u32,
    /// The last response with the name; 0 if there is none.
    last_response: u64,
    /// The position of the name in that response.
    last_position: u32,
    /// The server was due to send it on this stream and did not: its last complete response did not have it, or it is
    /// still unconfirmed after a quiet time.
    is_missing: bool,
    /// Distinguishes it from others that had its slot lately.
    serial: u32,
}

impl Subscription {
    /// A name that is neither requested nor sent.
    pub(super) fn new(name: Arc<str>, entry: EntryId, serial: u32) -> Self {
        Self {
            name,
            spelling: None,
            entry,
            phase: Phase::New,
            is_named: false,
            is_requested: false,
            of_wildcard: false,
            of_glob: false,
            is_held: false,
            is_own: false,
            is_replaced: false,
            version: Version::default(),
            is_answered: false,
            is_unconfirmed: false,
            precedes_wildcard: false,
            doubt_until: None,
            timer: 0,
            last_response: 0,
            last_position: 0,
            is_missing: false,
            serial,
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The name in requests: as it was written by who subscribed first (X2).
    pub(super) fn spelling(&self) -> &str {
        self.spelling.as_ref().unwrap_or(&self.name)
    }

    /// Sets the name in requests, unless the server knows it by another one.
    pub(crate) fn spell(&mut self, spelling: Option<Arc<str>>) {
        // A server that compares the text of names would take another spelling for another name, and send nothing for its end.
        if !self.is_named && !self.is_requested {
            self.spelling = spelling;
        }
    }

    pub(crate) fn entry(&self) -> EntryId {
        self.entry
    }

    pub(super) fn serial(&self) -> u32 {
        self.serial
    }

    /// Replaces the entry; returns the one before.
    pub(crate) fn replace_entry(&mut self, entry: EntryId) -> EntryId {
        mem::replace(&mut self.entry, entry)
    }

    /// Whether it is subscribed to by name.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Sets whether it is subscribed to by name; returns the previous value.
    pub(super) fn set_named(&mut self, is_named: bool) -> bool {
        mem::replace(&mut self.is_named, is_named)
    }

    /// Whether the last request that was handed out has the name.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Whether nothing is subscribed or sent under the name any more, and the server was notified.
    pub(super) fn is_released(&self) -> bool {
        !self.is_named && !self.is_member() && !self.is_requested
    }

    /// Whether it is a member of a collection: of a wildcard or of a glob.
    pub(crate) fn is_member(&self) -> bool {
        self.of_wildcard || self.of_glob
    }

    pub(crate) fn is_wildcard_member(&self) -> bool {
        self.of_wildcard
    }

    pub(crate) fn is_glob_member(&self) -> bool {
        self.of_glob
    }

    /// The name was sent under a wildcard. True when it was not a member before.
    pub(crate) fn join_wildcard(&mut self) -> bool {
        !mem::replace(&mut self.of_wildcard, true)
    }

    /// The name was sent under a glob. True when it was not a member before.
    pub(crate) fn join_glob(&mut self) -> bool {
        !mem::replace(&mut self.of_glob, true)
    }

    /// The wildcard has ended. True when it was a member.
    pub(crate) fn leave_wildcard(&mut self) -> bool {
        mem::take(&mut self.of_wildcard)
    }

    /// The glob has ended.
    pub(crate) fn leave_glob(&mut self) {
        self.of_glob = false;
    }

    /// The resource was deleted: it is no member of anything.
    pub(crate) fn leave_collections(&mut self) {
        (self.of_wildcard, self.of_glob) = (false, false);
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The cache holds a good resource now, or does not any more.
    pub(crate) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// The server's version of the held resource; empty if it has none, or if the cache holds another server's.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Whether the cache holds what this server has sent, as far as it is known.
    pub(super) fn holds_own(&self) -> bool {
        self.is_held && !self.is_replaced
    }

    /// Whether the server knows the version of the held resource.
    pub(crate) fn has_version(&self) -> bool {
        self.is_held && !self.version.is_empty()
    }

    /// The held resource has this version of the server's, or was sent by another server.
    pub(crate) fn on_held(&mut self, own: Option<&Version>, is_replaced: bool) {
        (self.is_own, self.is_replaced) = (own.is_some(), is_replaced);
        self.version = own.cloned().unwrap_or_default();
    }

    /// The server has to send it again.
    pub(crate) fn forget_version(&mut self) {
        self.version = Version::default();
    }

    // Requests.

    /// The name is subscribed, and the server has not answered: a request has to be sent. `doubt_until` is the end of the
    /// time in which a response to its last unsubscription may be in flight.
    pub(super) fn on_subscribed(&mut self, doubt_until: Option<Instant>) {
        self.doubt_until = doubt_until.map(Box::new);
        self.phase = Phase::New;
    }

    /// Whether requesting it again changes nothing for the server, which has answered, or whose time has passed.
    pub(super) fn is_settled(&self) -> bool {
        self.is_requested
            && match self.phase {
                Phase::Answered | Phase::TimedOut | Phase::AbsenceUnconfirmed => true,
                Phase::New | Phase::Requested => false,
            }
    }

    /// A request with the name was handed out.
    pub(super) fn on_requested(&mut self) {
        self.is_requested = true;
    }

    /// A request that unsubscribes from it was handed out. True when the request before had the name.
    pub(super) fn on_unrequested(&mut self) -> bool {
        mem::take(&mut self.is_requested)
    }

    /// Whether the server has answered it on this stream, and has not shown since that it does not exist.
    pub(super) fn was_sent_on_stream(&self) -> bool {
        self.is_answered && !self.is_missing
    }

    /// Whether the server has answered it on this stream, whatever it has shown since.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// The name is omitted from a request, since a response to its last unsubscription may be in flight.
    pub(super) fn on_held_back(&mut self, doubt_until: Instant) {
        self.doubt_until = Some(Box::new(doubt_until));
        self.is_requested = false;
    }

    /// The request was sent, and the does-not-exist time begins now (A57-5). True when a timer is to be started.
    pub(super) fn on_request_sent(&mut self) -> bool {
        if self.phase != Phase::New || !self.is_named || !self.is_requested {
            return false;
        }
        // Another server has sent it, and this one did not before it was requested by name.
        let is_doubted = self.is_doubted();
        self.phase = if is_doubted { Phase::AbsenceUnconfirmed } else { Phase::Requested };
        let starts = !self.is_held || is_doubted;
        if !starts {
            // An older timer must not end for this request.
            self.timer = 0;
        }
        starts
    }

    /// The server has not answered, and gets the request once more: true when it owes an answer.
    pub(super) fn on_request_failed(&mut self) -> bool {
        // A held resource stays in use through failed polls, and is in the next one without a timer.
        let is_owed = self.is_named && !self.is_held && matches!(self.phase, Phase::New | Phase::Requested);
        if is_owed {
            self.phase = Phase::New;
        }
        is_owed
    }

    /// The wildcard is requested, too: an answer that is still owed is no sign of it.
    pub(super) fn on_wildcard_requested(&mut self) {
        self.precedes_wildcard = self.is_requested && matches!(self.phase, Phase::New | Phase::Requested);
    }

    /// Whether it was requested before the wildcard, so that its answer is no sign that the server sends everything.
    pub(crate) fn precedes_wildcard(&self) -> bool {
        self.precedes_wildcard
    }

    // Responses.

    /// Records that a response has the name at a position. True when the same response had it before.
    pub(crate) fn on_mentioned(&mut self, response: u64, position: usize) -> bool {
        self.last_position = position as u32;
        mem::replace(&mut self.last_response, response) == response
    }

    /// Whether a response has the name.
    pub(crate) fn is_mentioned_in(&self, response: u64) -> bool {
        self.last_response == response
    }

    /// Whether a response has the name at a position. Another name in the slot has another one, also if the response has it as well.
    pub(crate) fn is_mentioned_at(&self, response: u64, position: usize) -> bool {
        self.last_response == response && self.last_position as usize == position
    }

    /// Whether a response ever had the name.
    pub(crate) fn was_ever_mentioned(&self) -> bool {
        self.last_response != 0
    }

    /// The position of the name in the last response that had it.
    pub(crate) fn last_position(&self) -> u32 {
        self.last_position
    }

    /// The server has answered.
    pub(crate) fn on_answered(&mut self) {
        self.phase = Phase::Answered;
        self.is_answered = true;
        (self.is_unconfirmed, self.precedes_wildcard, self.is_missing) = (false, false, false);
    }

    /// A response has something of it that is no resource of its own: the error of a name, or the members of a glob.
    pub(crate) fn on_answered_in(&mut self, response: u64) {
        self.last_response = response;
        self.on_answered();
    }

    /// The server has removed it. If its answers do not count at the moment, that matters when it is reverted to.
    pub(crate) fn on_removed(&mut self, counts: bool) {
        self.on_answered();
        self.is_missing = !counts;
    }

    /// Whether the server has sent something under the name, good or bad.
    pub(crate) fn was_there(&self) -> bool {
        self.is_held || self.is_member() || self.phase == Phase::Answered
    }

    /// Whether nothing was received for it, neither on this stream nor before.
    pub(super) fn is_owed(&self) -> bool {
        // A held resource that another server has removed after the request has no timer.
        let is_awaited = match self.phase {
            Phase::New => true,
            Phase::Requested => self.timer != 0,
            Phase::Answered | Phase::AbsenceUnconfirmed | Phase::TimedOut => false,
        };
        self.is_named && !self.is_held && is_awaited
    }

    /// Whether the name is subscribed, and the server has not answered, also when its time has passed.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_named && self.phase != Phase::Answered
    }

    /// Whether the name was requested, and the server has sent nothing of it: also when its time has passed.
    pub(crate) fn is_awaited_from_server(&self) -> bool {
        self.is_named && !self.is_held && matches!(self.phase, Phase::Requested | Phase::TimedOut)
    }

    /// The number of its last timer; 0 if it has none.
    pub(super) fn timer(&self) -> u32 {
        self.timer
    }

    /// A timer of this number was started, which replaces those before.
    pub(super) fn on_timer_started(&mut self, timer: u32) {
        self.timer = timer;
    }

    /// Whether a timer still matters when it ends.
    pub(super) fn is_awaited(&self, timer: u32) -> bool {
        let waits = match self.phase {
            Phase::Requested => self.is_named && !self.is_held,
            Phase::AbsenceUnconfirmed => true,
            Phase::New | Phase::Answered | Phase::TimedOut => false,
        };
        waits && self.timer == timer
    }

    /// The does-not-exist time has passed. An unconfirmed absence is confirmed now; it matters when the server is reverted to.
    pub(super) fn on_deadline(&mut self) {
        self.is_missing |= self.phase == Phase::AbsenceUnconfirmed;
        (self.phase, self.doubt_until) = (Phase::TimedOut, None);
    }

    /// Whether the server has answered, or its time has passed.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::TimedOut | Phase::Answered)
    }

    /// Whether the server has not sent it within the does-not-exist time.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.phase == Phase::TimedOut
    }

    // Streams.

    /// The first request of a stream has its version, or does not. True when it has to be sent again.
    pub(super) fn on_versions_sent(&mut self, is_sent: bool) -> bool {
        self.is_unconfirmed = (self.is_held || self.is_member()) && !is_sent;
        self.is_unconfirmed
    }

    /// Whether the server has to send it again, and has not.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.is_unconfirmed
    }

    /// The name is a member because of another server: this one has to send it as well, unless `has_sent_all` is set, which
    /// means that it will not. True when it is awaited.
    pub(super) fn on_joined(&mut self, has_sent_all: bool) -> bool {
        if self.is_answered || self.has_version() {
            return false;
        }
        self.is_unconfirmed = true;
        self.is_missing |= has_sent_all && self.of_wildcard && !self.is_named;
        true
    }

    /// The server was quiet for a while: unconfirmed resources are not going to be confirmed. For those that the server
    /// has sent itself, that is certain only if it answers.
    pub(super) fn on_quiet(&mut self, has_answered: bool) {
        // A silent server may merely be slow: what it has sent itself on an earlier stream is not given up for that.
        if has_answered || !(self.is_held && self.is_own) {
            self.is_missing |= mem::take(&mut self.is_unconfirmed);
        }
    }

    /// The state of the stream ends.
    pub(super) fn on_stream_closed(&mut self) {
        (self.is_requested, self.is_missing) = (false, false);
        (self.is_answered, self.is_unconfirmed, self.precedes_wildcard) = (false, false, false);
    }

    /// A request that was not answered on the stream is repeated on the next one.
    pub(super) fn on_stream_gone(&mut self) {
        self.doubt_until = None;
        if !self.is_held || self.phase == Phase::Requested {
            self.phase = Phase::New;
        // The channel forgets the version of the type for such a name, so that the next stream brings its resource, or shows
        // its absence.
        } else if self.phase == Phase::AbsenceUnconfirmed {
            self.phase = Phase::Answered;
        }
    }
}
