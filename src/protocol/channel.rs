use std::time::{Duration, Instant};

use super::{
    delta::Delta, poll::Poll, rejections::Rejections, sotw::Sotw, source_key::SourceKey,
    stream_event::Disconnect, subscriptions::Subscriptions, timers::Wait, variant::Variant,
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
    /// Nothing of the type was received in time.
    TimedOut,
}

/// One type on one server: the variant of the protocol, and the state that all variants share.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The type URL on the wire.
    pub(crate) type_url: &'static str,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) variant: Box<dyn Variant>,
    pub(crate) rejections: Rejections,
    /// The version of the last response that was accepted, heartbeats of other versions aside.
    pub(crate) accepted: Option<Version>,
    pub(crate) all: AllDue,
    /// A response was received on the stream.
    pub(crate) is_answered: bool,
    /// The reason of the last end of a stream on which the type was requested, if nothing of it was ever received.
    pub(crate) unanswered: Option<Disconnect>,
    /// The number of the last started does-not-exist timer at the time of the last response.
    pub(crate) answered_timer: u32,
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
    /// A type by its URL of v3. Absence proves nothing of a name for `doubt` after it was unsubscribed and subscribed
    /// again; requests of the incremental variant are at most `limit` bytes long, as far as names allow.
    pub(crate) fn new(
        source_key: &SourceKey,
        type_url: &'static str,
        doubt: Duration,
        limit: usize,
        random: &mut fastrand::Rng,
    ) -> Self {
        let type_url = source_key.api_version().spell(type_url);
        let capabilities = source_key.capabilities();
        let variant: Box<dyn Variant> = if !capabilities.streaming {
            Box::new(Poll::new(type_url, capabilities.polling, random.u64(..)))
        } else if capabilities.incremental {
            Box::new(Delta::new(type_url, doubt, limit))
        } else {
            Box::new(Sotw::new(type_url, doubt))
        };
        Self {
            type_url,
            subscriptions: Subscriptions::default(),
            variant,
            rejections: Rejections::default(),
            accepted: None,
            all: AllDue::No,
            is_answered: false,
            unanswered: None,
            answered_timer: 0,
        }
    }

    /// A response was received, which may be the answer to the wildcard.
    pub(crate) fn on_response(&mut self) {
        self.all = match self.all {
            AllDue::Doubted(_) => self.all,
            AllDue::Until(_) if self.variant.is_wildcard_crossed() => self.all,
            AllDue::No | AllDue::Until(_) | AllDue::TimedOut => AllDue::No,
        };
        self.is_answered = true;
        self.unanswered = None;
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
}

pub(crate) fn is_awaited(types: &[Option<Channel>], wait: &Wait) -> bool {
    let channel = types.get(wait.ty.index()).and_then(Option::as_ref);
    let sub = channel.and_then(|channel| channel.subscriptions.get(wait.sub));
    sub.is_some_and(|sub| sub.is_awaited(wait.number))
}
