use std::time::{Duration, Instant};

/// Names of a request that may have crossed a response, so that the server may have missed them.
///
/// A server may drop a request with an outdated nonce (B1.8). The answer to the response that crossed it repeats the names; but
/// where that is a NACK, some servers read none from it (istiod, Consul). Then they are sent once more behind it.
#[derive(Debug, Default)]
pub(crate) struct Crossed {
    /// The last such request; `None` when no response can have crossed one any more.
    request: Option<Request>,
}

/// The last request since a change of names that was not a NACK.
#[derive(Debug)]
struct Request {
    /// The nonce that it had. A response with another one may have been sent before the server read it.
    nonce: String,
    /// The time at which it was written.
    at: Instant,
    /// The repetitions of the names that are left.
    left: u8,
}

/// The names of a written request, compared with the request before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenNames {
    /// Names were added or removed.
    Changed,
    /// The names were sent once more because a NACK may have hidden them.
    Repeated,
    /// An answer, whose names are those of the last request.
    Same,
}

impl WrittenNames {
    /// A change goes before a repetition: it starts the count of repetitions anew.
    pub(crate) fn of(is_change: bool, is_repeated: bool) -> Self {
        match (is_change, is_repeated) {
            (true, _) => Self::Changed,
            (false, true) => Self::Repeated,
            (false, false) => Self::Same,
        }
    }
}

impl Crossed {
    /// A request that is not a NACK was written.
    pub(crate) fn on_written(&mut self, names: WrittenNames, nonce: &str, now: Instant) {
        let is_change = names == WrittenNames::Changed;
        match &mut self.request {
            // The names were sent once more, with this nonce: a response of another one may have crossed them.
            Some(request) if !is_change => {
                nonce.clone_into(&mut request.nonce);
                request.at = now;
                request.left -= u8::from(names == WrittenNames::Repeated).min(request.left);
            }
            request if is_change => {
                *request = Some(Request { nonce: nonce.to_owned(), at: now, left: REPETITIONS });
            }
            Some(_) | None => {}
        }
    }

    /// A response was received. It has crossed nothing if the request was written longer than `doubt` ago.
    pub(crate) fn on_response(&mut self, doubt: Duration, now: Instant) {
        if self.request.as_ref().is_some_and(|request| request.at + doubt <= now) {
            self.request = None;
        }
    }

    /// Whether the response with this nonce, which was rejected, may have been in flight when the names were changed.
    pub(crate) fn is_crossed_by(&self, nonce: &str) -> bool {
        self.request.as_ref().is_some_and(|request| request.left > 0 && request.nonce != nonce)
    }
}

/// Without a limit, a server that answers each repetition with rejected resources would never end them.
const REPETITIONS: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    const DOUBT: Duration = Duration::from_secs(15);

    #[test]
    fn a_change_is_in_doubt_until_no_response_can_have_crossed_it() {
        let now = Instant::now();
        let mut crossed = Crossed::default();
        assert!(!crossed.is_crossed_by("1"), "nothing was changed");
        crossed.on_written(WrittenNames::Changed, "1", now);
        assert!(!crossed.is_crossed_by("1"), "the server had sent nothing newer");
        crossed.on_response(DOUBT, now);
        assert!(crossed.is_crossed_by("2"));
        crossed.on_response(DOUBT, now + DOUBT);
        assert!(!crossed.is_crossed_by("2"));
    }

    #[test]
    fn names_are_repeated_a_few_times_for_each_change() {
        let now = Instant::now();
        let mut crossed = Crossed::default();
        crossed.on_written(WrittenNames::Changed, "0", now);
        let mut repetitions = 0;
        for nonce in (1..100).map(|nonce: u32| nonce.to_string()) {
            if crossed.is_crossed_by(&nonce) {
                crossed.on_written(WrittenNames::Repeated, &nonce, now);
                repetitions += 1;
            }
        }
        assert_eq!(repetitions, REPETITIONS);
        crossed.on_written(WrittenNames::Changed, "100", now);
        assert!(crossed.is_crossed_by("101"));
    }
}
