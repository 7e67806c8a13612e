use std::{fmt::Debug, time::Instant};

use bytes::Bytes;

use super::{
    id::TypeId,
    subscription::Subscription,
    subscriptions::{SubId, Subscriptions},
    traffic::RequestKind,
};
use crate::resource::Version;

/// The requests and answers of one type on one server: the difference between the variants of the protocol.
///
/// The subscriptions are in [`Subscriptions`]; a variant determines what to write of them. Its state of a stream ends
/// with the stream.
pub(crate) trait Variant: Debug + Send {
    /// Whether a request for the type was written on this stream; a response without one is ignored (B0.7).
    fn is_requested(&self) -> bool;

    /// A name is subscribed.
    fn on_named(&mut self, subscriptions: &mut Subscriptions, sub: SubId, now: Instant);

    /// A name that was requested from the server is unsubscribed.
    fn on_unnamed(&mut self, sub: SubId, now: Instant);

    /// The wildcard is subscribed. If the server was not notified of its end yet, nothing has happened.
    fn on_wildcard(&mut self, subscriptions: &mut Subscriptions, now: Instant);

    /// The wildcard is unsubscribed.
    fn on_wildcard_ended(&mut self, subscriptions: &mut Subscriptions, now: Instant);

    /// The server took the wildcard for a name.
    fn on_wildcard_refused(&mut self, _: &mut Subscriptions) {}

    /// Whether the wildcard is subscribed and was sent as `*` on this stream, which a server may take for a name.
    fn is_wildcard_spelled(&self, _: &Subscriptions) -> bool {
        false
    }

    /// Whether the wildcard stands for all names, so that no request has them: at a server that takes `*` for a name.
    fn stands_wildcard_for_names(&self, _: &Subscriptions) -> bool {
        false
    }

    /// Whether the last response may be the answer to the wildcard as an empty list, although it was sent as `*` since.
    fn wildcard_crossing(&self) -> Crossing {
        Crossing::No
    }

    /// Whether the server has sent everything before the wildcard was sent as `*`, so that a change may cross that.
    fn was_wildcard_before_star(&self) -> bool {
        false
    }

    /// A request was sent.
    fn on_sent(&mut self, _now: Instant) {}

    /// Whether requesting the wildcard would be no change for the server, although its resources are forgotten here.
    fn is_wildcard_stuck(&self, subscriptions: &Subscriptions) -> bool;

    /// Whether requesting a name that is not held may be no change for the server either, because it has sent it for a wildcard.
    fn may_skip_names(&self) -> bool {
        false
    }

    /// Resources count that the server sends without a request for them. True if a stream is needed for these alone: the variant can
    /// subscribe to nothing.
    fn on_pushed(&mut self, _now: Instant) -> bool {
        false
    }

    /// A stream begins: everything is to be requested again.
    fn on_stream_opened(&mut self, subscriptions: &mut Subscriptions, now: Instant);

    /// The stream has ended, and with it the need to send unsubscriptions: returns their names.
    fn on_stream_closed(&mut self, subscriptions: &mut Subscriptions) -> Vec<SubId>;

    /// A response was received that is going to be answered.
    fn on_response(&mut self, version: &Version, now: Instant);

    /// A response was received that waits behind another one, of this stream or of an earlier one.
    fn on_waiting(&mut self) {}

    /// A request without a stream has the same answer as before.
    fn on_unchanged(&mut self, _now: Instant) {}

    /// A request without a stream has no usable answer.
    fn on_failed(&mut self, _interest: &mut Subscriptions, _now: Instant) {}

    /// A response without errors has this version.
    fn on_accepted(&mut self, subscriptions: &Subscriptions, version: &Version);

    /// A resource is not held any more, although the server considers it held: not because an accepted response lacks
    /// it, but because of an error, or since another one of a rejected response is in use.
    fn on_dropped(&mut self) {}

    /// A name is not subscribed any more, and its resource not held.
    fn on_released(&mut self, _sub: &Subscription) {}

    /// Whether the names of resources that nothing is subscribed to matter.
    fn notes_skipped(&self) -> bool {
        false
    }

    /// A response has a resource without a subscription, so that it is not held.
    fn on_skipped(&mut self, _name: &str) {}

    /// Whether the server has sent a name on this stream that was let go since, that nothing was subscribed to, or whose absence is not
    /// confirmed: it may not send it again here.
    fn has_sent(&self, _sub: &Subscription) -> bool {
        false
    }

    /// The version of the type is not to be sent any more, since its resources are not held. True when it was sent on
    /// this stream, which is final, and the server has not answered that.
    fn forget_version(&mut self) -> bool {
        false
    }

    /// A response is answered.
    fn on_answer(&mut self, answer: Answer, now: Instant);

    /// Whether a NACK has to wait.
    fn has_held_back(&self, _now: Instant) -> bool {
        false
    }

    /// The first NACK that has to wait is due, since an answer follows it.
    fn release_held_back(&mut self, _now: Instant) {}

    /// Whether answers or names wait for being written, be it later.
    fn has_unwritten(&self, subscriptions: &Subscriptions) -> bool;

    /// The time of the next write; in the past when it is due.
    fn due(&self, subscriptions: &Subscriptions) -> Option<Instant>;

    /// Whether what is due is an answer.
    fn is_answer_due(&self, now: Instant) -> bool;

    /// Makes the request that is due; `None` when there turns out to be nothing to send.
    fn write(
        &mut self,
        subscriptions: &mut Subscriptions,
        head: Head<'_>,
        now: Instant,
    ) -> (Option<Bytes>, Written);

    /// A decision is pending until the server has been quiet for a while.
    fn on_unconfirmed(&mut self, now: Instant);

    /// A response was received that did not decide whether the server has sent everything: that is decided when it has been
    /// quiet for a while.
    fn on_undecided(&mut self, _now: Instant) {}

    /// The time at which a quiet server is not going to confirm anything from before the stream.
    fn quiet_from(&self) -> Option<Instant>;

    /// The server has been quiet for long enough: missing resources are known. False if the server has sent nothing at all on the stream.
    fn on_quiet(&mut self) -> bool;
}

/// The answer to one response.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The nonce of the response.
    pub(crate) nonce: String,
    /// Its error; without one the answer is an ACK.
    pub(crate) error: Option<String>,
    /// Not before this time, unless something else is written: a server that repeats rejected resources has to wait.
    pub(crate) not_before: Instant,
}

impl Answer {
    /// What the request is for that has it.
    pub(crate) fn kind(&self) -> RequestKind {
        if self.error.is_some() { RequestKind::Nack } else { RequestKind::Ack }
    }

    /// Whether it is a NACK that has to wait.
    pub(crate) fn waits(&self, now: Instant) -> bool {
        self.error.is_some() && self.not_before > now
    }
}

/// The first fields of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub(crate) ty: TypeId,
    /// The client, in the first request of a stream (B0.2).
    pub(crate) node: Option<&'a Bytes>,
}

/// A request, and the effects of writing it.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) ty: TypeId,
    /// What the request is for.
    pub(crate) kind: RequestKind,
    /// The names that are new in the request: their does-not-exist timers begin when it is sent.
    pub(crate) subscribed: Vec<SubId>,
    /// The names that are not in the request any more: they are released when it is sent.
    pub(crate) unsubscribed: Vec<SubId>,
    /// The server was notified of the end of the wildcard, or cannot be.
    pub(crate) wildcard_left: bool,
    /// Set for the first request of the stream that requests everything.
    pub(crate) requests_all: bool,
    /// Set for the first request of the stream that has the wildcard as `*`, which the server may take for a name.
    pub(crate) spells_all: bool,
}

impl Written {
    /// A request without any effect so far.
    pub(crate) fn nothing(ty: TypeId) -> Self {
        Self {
            ty,
            kind: RequestKind::Subscription,
            subscribed: Vec::new(),
            unsubscribed: Vec::new(),
            wildcard_left: false,
            requests_all: false,
            spells_all: false,
        }
    }
}

/// Whether the last response was sent before the server read the request that spells the wildcard (B1.23).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crossing {
    #[default]
    No,
    /// The response has another version than the one before, and came shortly after the request: a change may have crossed that.
    Possible,
    /// The response has the version of the one before, or is the first one.
    Likely,
}
