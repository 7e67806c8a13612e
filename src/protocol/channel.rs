use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::{Duration, Instant},
};

use super::{
    backoff::Backoff,
    contact::Contact,
    delta::Delta,
    envelope::Envelope,
    interest::{Interest, Phase},
    poll::Poll,
    sotw::Sotw,
    timers::Wait,
    variant::Variant,
};

/// One type on one server: the variant of the protocol, and what is common to all variants.
#[derive(Debug)]
pub(crate) struct Channel {
    /// The type as it is called on the wire.
    pub(crate) type_url: &'static str,
    pub(crate) interest: Interest,
    pub(crate) variant: Box<dyn Variant>,
    pub(crate) rejected: Option<Rejected>,
}

/// The last response, if it was rejected: a server may send it for ever.
#[derive(Debug)]
pub(crate) struct Rejected {
    fingerprint: u64,
    backoff: Backoff,
}

impl Channel {
    /// A type by its URL of v3. `doubt` is for how long absence proves nothing of a name that was let go and asked for again;
    /// requests of the incremental variant are at most `limit` bytes long, as far as names allow.
    pub(crate) fn new(
        contact: &Contact,
        type_url: &'static str,
        (doubt, limit): (Duration, usize),
        random: &mut fastrand::Rng,
    ) -> Self {
        let type_url = contact.api_version().spell(type_url);
        let variant: Box<dyn Variant> = if contact.is_polled() {
            Box::new(Poll::new(type_url, contact.polling(), random.u64(..)))
        } else if contact.is_delta() {
            Box::new(Delta::new(type_url, doubt, limit))
        } else {
            Box::new(Sotw::new(type_url, doubt))
        };
        Self { type_url, interest: Interest::default(), variant, rejected: None }
    }

    /// When there is something to write; in the past when it is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.variant.due(&self.interest)
    }

    /// How long to wait with the answer: a response that repeats the last rejected one is answered ever more slowly.
    pub(crate) fn on_rejected(
        &mut self,
        fingerprint: u64,
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> Duration {
        match &mut self.rejected {
            Some(rejected) if rejected.fingerprint == fingerprint => rejected.backoff.next(random),
            Some(_) | None => {
                self.rejected = Some(Rejected { fingerprint, backoff: Backoff::for_rejections(now) });
                Duration::ZERO
            }
        }
    }
}

/// Tells the resources of one response from those of another.
pub(crate) fn fingerprint(envelope: &Envelope) -> u64 {
    let mut hasher = DefaultHasher::new();
    envelope.contents().for_each(|bytes| bytes.hash(&mut hasher));
    hasher.finish()
}

pub(crate) fn is_awaited(types: &[Option<Channel>], wait: &Wait) -> bool {
    let channel = types.get(wait.ty.index()).and_then(Option::as_ref);
    let sub = channel.and_then(|channel| channel.interest.get(wait.sub));
    sub.is_some_and(|sub| {
        let waits = match sub.phase {
            Phase::Requested => sub.named && !sub.held,
            Phase::Doubted => true,
            Phase::New | Phase::Answered | Phase::TimedOut => false,
        };
        waits && sub.timer == wait.number
    })
}
