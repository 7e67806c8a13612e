//! Types for which a server ends the whole stream.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    id::TypeId,
    stream_event::{Disconnect, DisconnectKind},
};

/// Finds the type for which a server ends the stream, and holds it back so that the others are served.
///
/// istiod ends an aggregated stream with an error at a request for an unknown type. The first request of that type then
/// ends all others with it, on each new stream.
///
/// ```text
///               an error soon after the first        cautious: types that were never answered are
///               request of a type that was           requested one by one, the suspect last
///   usual ────▶ never answered, twice in a row ────▶ (the last type before the error)
///     ▲                                               │ the same suspect twice, another type was answered
///     │ any other end of a stream                     ▼
///     └──────────────────────────────────────────── the suspect is held back; requested again after a pause
/// ```
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// The number of streams in a row that ended with an error soon after the first request of a type.
    ends: u32,
    /// The type that was requested last before the stream ended; `None` while the state is the usual one.
    suspect: Option<TypeId>,
    /// The types that are not requested, each until its retry.
    held_back: BTreeMap<TypeId, HeldBack>,
    /// Types that were answered at some time.
    answered: BTreeSet<TypeId>,
    /// The state of the current stream; empty between streams.
    on_stream: OnStream,
}

/// The state of one stream.
#[derive(Debug, Default)]
struct OnStream {
    /// The types that were never answered, in the order of their first requests.
    requested: Vec<(TypeId, Instant)>,
    /// The time of opening it, or of requesting the last of them.
    last: Option<Instant>,
    /// Whether any type was answered on the stream.
    has_answered: bool,
    /// A type that was answered at some time was requested. The server may have no update of it.
    has_known: bool,
}

/// A type that is not requested.
#[derive(Debug)]
struct HeldBack {
    /// When it is requested again, behind all others.
    retry_at: Instant,
    /// The pause until then, which doubles with each failure.
    pause: Duration,
}

/// The consequence of the end of a stream for its types.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The end concerns no type in particular.
    Usual,
    /// These types were never answered over several streams that ended with an error, and get that error.
    Unanswered(Vec<TypeId>),
}

impl Quarantine {
    /// A stream begins. No type was requested on it.
    pub(crate) fn on_stream_opened(&mut self, now: Instant) {
        self.on_stream = OnStream { last: Some(now), ..OnStream::default() };
    }

    /// The client closed the stream: the types that were requested on it are not on trial any more.
    pub(crate) fn on_stream_closed(&mut self) {
        self.on_stream = OnStream::default();
    }

    /// The first request of a type was written on the stream.
    pub(crate) fn on_requested(&mut self, ty: TypeId, now: Instant) {
        self.on_stream.has_known |= self.answered.contains(&ty);
        if !self.answered.contains(&ty) {
            self.on_stream.requested.push((ty, now));
            self.on_stream.last = Some(now);
        }
    }

    /// A type was answered: it is none for which the server ends streams.
    pub(crate) fn on_response(&mut self, ty: TypeId) {
        self.on_stream.has_answered = true;
        self.on_stream.requested.retain(|(requested, _)| *requested != ty);
        self.answered.insert(ty);
        self.held_back.remove(&ty);
        if self.suspect == Some(ty) {
            self.suspect = None;
        }
    }

    /// The stream ended by itself.
    pub(crate) fn on_disconnected(&mut self, reason: &Disconnect, now: Instant) -> Ended {
        let OnStream { requested, has_answered, has_known, .. } = std::mem::take(&mut self.on_stream);
        let is_error = match reason.kind {
            DisconnectKind::Failed(_) => true,
            DisconnectKind::Unreachable
            | DisconnectKind::Closed
            | DisconnectKind::TooLarge { .. }
            | DisconnectKind::TooManyPings
            | DisconnectKind::Credentials
            | DisconnectKind::Unusable => false,
        };
        let last = requested.last().filter(|(_, at)| is_error && now <= *at + SOON);
        let Some((last, _)) = last.copied() else {
            // The type on trial did no harm.
            for (ty, _) in &requested {
                self.held_back.remove(ty);
            }
            (self.ends, self.suspect) = (0, None);
            return Ended::Usual;
        };
        self.ends += 1;
        // A retry of a type that was held back has failed: no further suspicion is needed.
        if let Some(held_back) = self.held_back.get_mut(&last) {
            held_back.pause = (held_back.pause * 2).min(LONGEST_PAUSE);
            held_back.retry_at = now + held_back.pause;
            (self.ends, self.suspect) = (0, None);
            return Ended::Unanswered(vec![last]);
        }
        // A server that restarts ends streams as well, so that the first ends are nobody's fault.
        if self.ends <= USUAL_ENDS {
            return match self.ends < USUAL_ENDS {
                true => Ended::Usual,
                false => Ended::Unanswered(requested.into_iter().map(|(ty, _)| ty).collect()),
            };
        }
        // Twice the same type, while the server served another one: otherwise it may end streams for any reason.
        if self.suspect == Some(last) && (has_answered || has_known) {
            self.held_back.insert(last, HeldBack { retry_at: now + FIRST_PAUSE, pause: FIRST_PAUSE });
            (self.ends, self.suspect) = (0, None);
        } else {
            self.suspect = Some(last);
        }
        Ended::Unanswered(requested.into_iter().map(|(ty, _)| ty).collect())
    }

    /// Whether streams end because of some type, so that a response does not make the next one more likely to last.
    pub(crate) fn is_suspicious(&self) -> bool {
        self.ends >= USUAL_ENDS
    }

    /// Whether a type is not requested, so that the others are served.
    pub(crate) fn is_held_back(&self, ty: TypeId) -> bool {
        self.held_back.contains_key(&ty) && !self.on_stream.requested.iter().any(|(other, _)| *other == ty)
    }

    /// The time at which a type may be requested for the first time on the stream, if it may.
    pub(crate) fn begins_at(&self, ty: TypeId, now: Instant) -> Option<Instant> {
        if let Some(held_back) = self.held_back.get(&ty) {
            // Only a stream with other types is worth the risk, and there is one risk at a time.
            let OnStream { requested, last, has_answered, has_known } = &self.on_stream;
            // Without an answer the others are served when the stream has held for a while.
            let first = last.filter(|_| !has_answered).map_or(now, |last| last + SETTLED);
            let is_free = (*has_answered || *has_known) && requested.is_empty();
            return is_free.then(|| held_back.retry_at.max(first));
        }
        if !self.is_suspicious() || self.answered.contains(&ty) {
            return Some(now);
        }
        let last = self.on_stream.last.unwrap_or(now);
        // Of several that wait equally long, the suspect comes last.
        let others = u32::from(!self.on_stream.requested.is_empty()) + u32::from(self.suspect == Some(ty));
        Some((last + APART * others).max(now))
    }
}

/// The time after a request within which an error counts as its answer.
const SOON: Duration = Duration::from_secs(5);

/// The number of such streams after which types are requested one by one.
const USUAL_ENDS: u32 = 2;

/// The wait for the answer to one type before the next is requested.
const APART: Duration = Duration::from_secs(1);

/// The maximum time after which a stream without an answer is healthy.
const SETTLED: Duration = Duration::from_secs(5);

/// The pause after which a type that was held back is requested again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    const GOOD: TypeId = TypeId(1);
    const BAD: TypeId = TypeId(0);

    struct Rig {
        quarantine: Quarantine,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            Self { quarantine: Quarantine::default(), now: Instant::now() }
        }

        /// A stream to a server that answers the one type, and ends the stream for the other. Returns the consequence,
        /// and the types that were requested.
        fn stream(&mut self) -> (Ended, Vec<TypeId>) {
            self.quarantine.on_stream_opened(self.now);
            let mut types = vec![];
            let until = self.now + Duration::from_secs(10);
            while self.now < until {
                for ty in [BAD, GOOD].into_iter().filter(|ty| !types.contains(ty)).collect::<Vec<_>>() {
                    if self.quarantine.begins_at(ty, self.now).is_some_and(|at| at <= self.now) {
                        types.push(ty);
                        self.quarantine.on_requested(ty, self.now);
                    }
                }
                self.now += Duration::from_millis(100);
                if types.contains(&BAD) {
                    return (self.end(), types);
                }
                if types.contains(&GOOD) {
                    self.quarantine.on_response(GOOD);
                }
            }
            (Ended::Usual, types)
        }

        fn end(&mut self) -> Ended {
            let reason = Disconnect::new(DisconnectKind::Failed(Code::Unimplemented), "unknown type");
            self.quarantine.on_disconnected(&reason, self.now)
        }
    }

    #[test]
    fn the_type_for_which_streams_end_is_found_and_held_back() {
        let mut rig = Rig::new();
        let mut streams = 0;
        while !rig.quarantine.is_held_back(BAD) {
            rig.stream();
            streams += 1;
            assert!(streams < 6, "{:?}", rig.quarantine);
        }
        assert!(!rig.quarantine.is_held_back(GOOD));
        let (ended, types) = rig.stream();
        assert_eq!((ended, types), (Ended::Usual, vec![GOOD]));
    }

    #[test]
    fn a_type_that_was_held_back_is_requested_again_ever_more_rarely() {
        let mut rig = Rig::new();
        for _ in 0..5 {
            rig.stream();
        }
        assert!(rig.quarantine.is_held_back(BAD));
        let mut pauses = vec![];
        for _ in 0..4 {
            rig.stream();
            let at = rig.quarantine.begins_at(BAD, rig.now).unwrap();
            pauses.push(at.saturating_duration_since(rig.now).as_secs());
            rig.now = rig.now.max(at);
            rig.quarantine.on_requested(BAD, rig.now);
            assert_eq!(rig.end(), Ended::Unanswered(vec![BAD]));
        }
        assert!(pauses[1] > pauses[0] && pauses[3] > 3 * pauses[1], "{pauses:?}");
        rig.stream();
        rig.quarantine.on_response(BAD);
        assert!(!rig.quarantine.is_held_back(BAD), "the server knows it by now");
    }

    #[test]
    fn a_type_is_held_back_on_the_next_stream_when_the_client_closes_the_one_that_it_was_tried_on() {
        let mut rig = Rig::new();
        for _ in 0..5 {
            rig.stream();
        }
        rig.stream();
        rig.now = rig.now.max(rig.quarantine.begins_at(BAD, rig.now).unwrap());
        rig.quarantine.on_requested(BAD, rig.now);
        assert!(!rig.quarantine.is_held_back(BAD), "it is tried");
        rig.quarantine.on_stream_closed();
        assert!(rig.quarantine.is_held_back(BAD));
    }

    #[test]
    fn the_only_type_is_never_held_back() {
        let mut rig = Rig::new();
        for _ in 0..20 {
            rig.quarantine.on_stream_opened(rig.now);
            rig.quarantine.on_requested(BAD, rig.now);
            rig.end();
            assert!(!rig.quarantine.is_held_back(BAD));
        }
    }

    #[test]
    fn ends_that_come_later_or_without_an_error_are_nobodys_fault() {
        let mut rig = Rig::new();
        for end in 0..20 {
            rig.quarantine.on_stream_opened(rig.now);
            rig.quarantine.on_requested(GOOD, rig.now);
            rig.quarantine.on_response(GOOD);
            rig.quarantine.on_requested(BAD, rig.now);
            let ended = if end % 2 == 0 {
                rig.now += SOON + APART;
                rig.end()
            } else {
                let reason = Disconnect::new(DisconnectKind::Closed, "done");
                rig.quarantine.on_disconnected(&reason, rig.now)
            };
            assert_eq!(ended, Ended::Usual);
        }
    }
}
