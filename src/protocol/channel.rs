use std::{
    mem,
    time::{Duration, Instant},
};

use super::{
    delta::{Delta, MOST_WAITING},
    event::ResponseOutcome,
    intake::Intake,
    poll::Poll,
    rejections::{Fingerprint, Rejections},
    sotw::Sotw,
    source_key::SourceKey,
    stream_event::Disconnect,
    subscription::Extent,
    subscriptions::{SubId, Subscriptions},
    variant::{Answer, Crossing, Variant},
};
use crate::resource::Version;

/// Whether a stream owes the answer to a wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllDue {
    /// The wildcard was not requested, or something of the type was received.
    No,
    /// Something of the type is due until then.
    Until(Instant),
    /// Only what is subscribed by name was received, as if `*` were a name like others (B1.23). Unless something else follows
    /// until then, it is.
    Doubted(Instant),
    /// The time has passed, and nothing of the type was received.
    TimedOut,
}

/// One type on one server: the variant of the protocol, and the state that all variants share.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The type URL on the wire: that of v2 at a server of that version.
    pub(crate) type_url: &'static str,
    /// The names that are requested or sent, whatever the variant.
    pub(crate) subscriptions: Subscriptions,
    /// The content and the time of requests.
    pub(super) variant: Box<dyn Variant>,
    /// The response that is being applied, and those that wait behind it.
    pub(super) intake: Intake,
    /// The recent rejections, which delay NACKs.
    rejections: Rejections,
    /// The version of the last response that was accepted, heartbeats of other versions aside.
    accepted: Option<Version>,
    /// The answer to the wildcard, as far as it is due.
    pub(super) all: AllDue,
    /// Set once a response of the type was received on the stream.
    is_answered: bool,
    /// The reason of the last end of a stream on which the type was requested, if nothing of it was ever received.
    pub(super) unanswered: Option<Disconnect>,
    /// The number of the last started does-not-exist timer at the time of the last response.
    answered_timer: u32,
    /// The does-not-exist time of the server.
    resource_timeout: Duration,
    /// Whether the variant is the incremental one, in which a response need not have everything.
    is_delta: bool,
    /// Another stream was opened for a response that may have crossed `*` (B1.23).
    was_star_tried_again: bool,
}

impl AllDue {
    /// The time at which a type without a response counts as unanswered.
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Until(at) | Self::Doubted(at) => Some(at),
            Self::No | Self::TimedOut => None,
        }
    }
}

impl Channel {
    /// A type by its URL of v3. Absence proves nothing of a name for `resource_timeout` after it was unsubscribed and subscribed
    /// again; requests of the incremental variant are at most `limit` bytes long, as far as names allow.
    pub(crate) fn new(
        source_key: &SourceKey,
        type_url: &'static str,
        resource_timeout: Duration,
        limit: usize,
        random: &mut fastrand::Rng,
    ) -> Self {
        let type_url = source_key.api_version().spell(type_url);
        let capabilities = source_key.capabilities();
        let variant: Box<dyn Variant> = if !capabilities.streaming {
            Box::new(Poll::new(type_url, capabilities.polling, random.u64(..)))
        } else if capabilities.incremental {
            Box::new(Delta::new(type_url, resource_timeout, limit))
        } else {
            Box::new(Sotw::new(type_url, resource_timeout))
        };
        Self {
            type_url,
            subscriptions: Subscriptions::default(),
            variant,
            intake: Intake::default(),
            rejections: Rejections::new(if capabilities.incremental { MOST_WAITING } else { 1 }),
            accepted: None,
            all: AllDue::No,
            is_answered: false,
            unanswered: None,
            answered_timer: 0,
            resource_timeout,
            is_delta: capabilities.incremental,
            was_star_tried_again: false,
        }
    }

    /// A response was received, which may be the answer to the wildcard. `last_timer` is the number of the last started
    /// does-not-exist timer: names with a later one were requested behind it.
    pub(super) fn on_response(&mut self, version: &Version, last_timer: u32, now: Instant) {
        self.variant.on_response(version, now);
        self.answered_timer = last_timer;
        self.all = match self.all {
            // B1.23: the content of the response decides (`trust_wildcard`), and not its arrival.
            AllDue::Doubted(_) => self.all,
            // The response may be the answer to the empty list before `*`, which is then still due.
            AllDue::Until(_) if self.variant.wildcard_crossing() != Crossing::No => self.all,
            AllDue::No | AllDue::Until(_) | AllDue::TimedOut => AllDue::No,
        };
        self.is_answered = true;
        self.unanswered = None;
    }

    /// A response was applied; returns the delay of its answer, which is not zero for a rejection that is paced (B0.24).
    pub(crate) fn on_outcome(
        &mut self,
        outcome: &ResponseOutcome,
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> Duration {
        let version = outcome.version.clone();
        if !outcome.error.is_empty() {
            self.rejections.on_cause(outcome.is_unattributed);
            if outcome.is_applied {
                // Some of it is held now in place of what the accepted version stands for.
                self.variant.on_dropped();
            }
            let response = Fingerprint { version, digests: outcome.digests };
            let is_held_back = self.variant.has_held_back(now);
            return self.rejections.on_rejected(response, is_held_back, now, random);
        }
        // A response of heartbeats in a version that is not held confirms nothing: claimed later, that version would stand for
        // resources that are not here.
        if !outcome.is_outdated {
            self.rejections.on_accepted();
            self.variant.on_accepted(&self.subscriptions, &version);
            self.accepted = Some(version);
        }
        Duration::ZERO
    }

    /// A late response was applied. No version stands for what is held then: that of the response is not the server's on a later stream,
    /// or has resources that are not held, and the one before has been replaced in part.
    pub(super) fn on_late_outcome(&mut self, outcome: &ResponseOutcome) {
        if outcome.is_applied {
            self.variant.on_dropped();
        }
    }

    /// Whether the version of the response that is handed out would not stand for what is held of it once its stream has ended (B1.6).
    ///
    /// Without a stream, names are released at once. A resource of such a name is skipped, also if it is one of a wildcard, and
    /// absence proves nothing of the members of a wildcard. A response that waits for consumers is in that state for long (AP9).
    pub(super) fn is_incomplete_without_stream(&self) -> bool {
        self.intake.is_held() || self.subscriptions.takes_all()
    }

    /// The response that is handed out waits for its consumers. True when the stream is to be read on.
    pub(super) fn hold(&mut self, reads_on: bool) -> bool {
        self.intake.hold(reads_on)
    }

    /// The response that was handed out is concluded. True when the credit for the next message is still to be given.
    ///
    /// What the server did not send while it was waiting for the answer proves nothing: the times of the type begin anew.
    pub(super) fn end_hold(&mut self, now: Instant) -> bool {
        if self.intake.is_held() {
            if self.variant.quiet_from().is_some() {
                self.variant.on_undecided(now);
            }
            self.all = match self.all {
                AllDue::Until(at) => AllDue::Until(at.max(now + DOUBT)),
                AllDue::Doubted(at) => AllDue::Doubted(at.max(now + DOUBT)),
                AllDue::No | AllDue::TimedOut => self.all,
            };
        }
        self.intake.conclude()
    }

    /// The time at which a quiet server is not going to confirm anything, unless a response waits for its consumers.
    pub(super) fn quiet_from(&self) -> Option<Instant> {
        self.variant.quiet_from().filter(|_| !self.intake.is_held())
    }

    /// The time at which a wildcard without a response counts as unanswered, unless a response waits for its consumers.
    pub(super) fn all_deadline(&self) -> Option<Instant> {
        self.all.deadline().filter(|_| !self.intake.is_held())
    }

    /// Queues the answer to a response.
    pub(crate) fn answer(&mut self, answer: Answer, now: Instant) {
        // An answer at once is behind the NACKs before it, as far as their rate permits.
        while answer.not_before == now && self.variant.has_held_back(now) && self.rejections.may_release(now)
        {
            self.variant.release_held_back(now);
        }
        self.variant.on_answer(answer, now);
    }

    /// The wildcard was sent as `*` behind an empty list; its answer is due at `until`. The time of an empty list that is not answered
    /// goes on.
    pub(crate) fn on_star_sent(&mut self, until: Instant) {
        if self.is_answered || !matches!(self.all, AllDue::Until(_)) {
            self.all = AllDue::Until(until);
        }
    }

    /// The time of the next write; in the past when it is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.variant.due(&self.subscriptions)
    }

    /// The stream has ended. Returns the names whose unsubscription needs no message any more.
    pub(super) fn on_stream_gone(&mut self) -> Vec<SubId> {
        (self.all, self.is_answered) = (AllDue::No, false);
        self.intake.on_stream_gone();
        self.rejections.on_stream_closed();
        // Nothing on the next stream would show that it is gone, if the version stood for its absence.
        if self.subscriptions.iter().any(|(_, sub)| sub.is_doubted()) {
            self.variant.forget_version();
        }
        let unsubscribed = self.variant.on_stream_closed(&mut self.subscriptions);
        self.subscriptions.iter_mut().for_each(|(_, sub)| sub.on_stream_gone());
        unsubscribed
    }

    /// Whether no response of the type was received since a name was requested, whose does-not-exist timer then began.
    pub(crate) fn is_unanswered(&self, id: SubId) -> bool {
        self.subscriptions.get(id).is_some_and(|sub| sub.timer() > self.answered_timer)
    }

    /// Whether a response of the type was received on the stream.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Whether the last response that was accepted, heartbeats aside, had this version.
    pub(crate) fn is_accepted(&self, version: &Version) -> bool {
        self.accepted.as_ref() == Some(version)
    }

    /// Whether the last response that was not a heartbeat was rejected.
    pub(crate) fn is_last_rejected(&self) -> bool {
        self.rejections.is_last_rejected()
    }

    /// The resources that a response should have, if the type's responses have all resources.
    pub(crate) fn extent(&self) -> Extent {
        match self.subscriptions.sends_all {
            true if self.variant.stands_wildcard_for_names(&self.subscriptions) => Extent::Everything,
            true => Extent::Wildcard,
            // A server that sends more than it was asked for in each response shows by absence that it does not any more.
            false if self.subscriptions.takes_pushed_alone() => Extent::Wildcard,
            false => Extent::Names,
        }
    }

    /// Whether the wildcard is subscribed, and was sent as `*` on the stream.
    pub(crate) fn is_wildcard_spelled(&self) -> bool {
        self.variant.is_wildcard_spelled(&self.subscriptions)
    }

    /// Whether everything was requested, and nothing of the type was received in time.
    pub(crate) fn has_timed_out_all(&self) -> bool {
        self.all == AllDue::TimedOut && self.subscriptions.sends_all
    }

    /// Whether the server has sent a name on this stream before that it does not send now (B1.22). Its resource may be held still,
    /// if its absence is unconfirmed.
    pub(crate) fn has_sent_before(&self, id: SubId) -> bool {
        self.subscriptions.get(id).is_some_and(|sub| self.variant.has_sent(sub))
    }

    /// The resource of a name is not held any more, so that no version stands for it (B1.20).
    pub(crate) fn forget_version(&mut self, id: SubId) {
        self.variant.forget_version();
        if let Some(sub) = self.subscriptions.get_mut(id) {
            sub.forget_version();
        }
    }

    /// The resources of the type's version are not held any more, so that the server has to send everything again. True
    /// when the version was sent on this stream, which is final.
    pub(crate) fn forget_type_version(&mut self) -> bool {
        self.variant.forget_version()
    }

    /// The version of a resource does not count any more, so that the server has to send it again. True when it was
    /// sent on this stream, which is final.
    pub(crate) fn take_back_version(&mut self, id: SubId) -> bool {
        // For the rest of the stream the server considers a resource known whose version the first request had.
        let is_requested = self.variant.is_requested();
        let Some(sub) = self.subscriptions.get_mut(id) else { return false };
        let was_sent = is_requested && sub.has_version() && !sub.is_unconfirmed();
        sub.forget_version();
        was_sent
    }

    /// A subscribed resource is not held any more, although the server considers it held: the version of the type does
    /// not stand for it.
    pub(crate) fn on_dropped(&mut self) {
        self.variant.on_dropped();
    }

    /// A response has a resource that is not subscribed to.
    pub(crate) fn on_skipped(&mut self, name: &str) {
        self.variant.on_skipped(name);
    }

    /// A held resource is a member here because another server has sent it, or its version is unknown: this server has to
    /// send it as well. Where each response has everything (`full_state`), its last response shows that it will not.
    pub(crate) fn on_joined(&mut self, full_state: bool, id: SubId, now: Instant) {
        let has_received_all = full_state && !self.is_delta && self.subscriptions.received_all;
        if self.subscriptions.get_mut(id).is_some_and(|sub| sub.on_joined(has_received_all)) {
            self.variant.on_unconfirmed(now);
        }
    }

    /// The responses of the type are decided on when the server has been quiet for a while.
    pub(crate) fn await_quiet(&mut self, now: Instant) {
        self.variant.on_undecided(now);
    }

    /// A resource from another server is held under a name. Its absence here proves nothing until the does-not-exist
    /// time of this server has passed.
    pub(crate) fn doubt(&mut self, id: SubId, now: Instant) {
        if let Some(sub) = self.subscriptions.get_mut(id) {
            sub.doubt(now + self.resource_timeout);
        }
    }

    /// A response to a wildcard that was sent as `*` has only what is subscribed by name. It may have been under way when the
    /// wildcard was requested, so that the next one is waited for.
    pub(crate) fn doubt_wildcard(&mut self, now: Instant) {
        self.variant.on_dropped();
        self.all = match self.all {
            AllDue::Doubted(at) => AllDue::Doubted(at),
            AllDue::No | AllDue::Until(_) | AllDue::TimedOut => {
                AllDue::Doubted(now + DOUBT.min(self.resource_timeout))
            }
        };
    }

    /// A response to the wildcard has something that was not subscribed by name. True if it may be none to `*`, although it has all
    /// names: another stream shows it, once.
    pub(crate) fn trust_wildcard(&mut self) -> bool {
        let is_answer = match self.variant.wildcard_crossing() {
            Crossing::No => true,
            // What has all names that were requested with the wildcard is the answer to both.
            Crossing::Possible => !self.subscriptions.iter().any(|(_, sub)| sub.is_owed()),
            // go-control-plane sends the same response again for a NACK, whether or not it has read `*`.
            Crossing::Likely => false,
        };
        if !is_answer {
            return false;
        }
        self.all = AllDue::No;
        // A change that crossed `*` may have had the names by chance. The empty list of another stream brings these, so that none is
        // requested beside it; what only a request by name brings is requested there once more.
        let may_have_crossed =
            self.variant.wildcard_crossing() == Crossing::Possible && self.variant.was_wildcard_before_star();
        may_have_crossed && !mem::replace(&mut self.was_star_tried_again, true)
    }
}

/// For how long another response is waited for that shows that `*` is no name for the server.
const DOUBT: Duration = Duration::from_secs(1);
