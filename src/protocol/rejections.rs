//! The delay of NACKs: some servers answer each NACK with the same resources again.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::{burst::Burst, digests::Digests};
use crate::{backoff::Backoff, resource::Version};

/// The recently rejected responses of one type.
///
/// | a rejected response with | is answered |
/// |---|---|
/// | the version *and* the resources of one that was rejected before, in any order | after a delay that grows up to 10 s, or the rate of all NACKs |
/// | another version or other resources | at once, as far as the rate of all NACKs permits: ten in a burst, and then one a second (B0.24) |
///
/// No version is not the same version: responses of the incremental variant need not have one. There the versions of single
/// resources count as that of the response, too.
#[derive(Debug)]
pub(crate) struct Rejections {
    /// The number of NACKs that wait at most: one in the state of the world, where the answer to the newest response stands for all.
    most_waiting: u32,
    /// The stream has ended since the last rejection, and with it all that waited.
    is_stream_new: bool,
    /// At most [`REMEMBERED`], the newest last.
    recent: VecDeque<Rejected>,
    /// The rate of all NACKs.
    burst: Burst,
    /// The last response was rejected, and not only because of resources whose names are known.
    is_last_rejected: bool,
}

/// The identity of a response, by which repetitions are detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) version: Version,
    pub(crate) digests: Digests,
}

/// A rejected response, and the pace of its NACKs.
#[derive(Debug)]
struct Rejected {
    response: Fingerprint,
    /// The delay of the NACK grows with each repetition of the response.
    backoff: Backoff,
    /// The time of its last answer, or of the pending one.
    answered_at: Instant,
    /// A response was accepted since.
    is_followed: bool,
}

impl Rejections {
    /// No response was rejected. So many NACKs wait at most.
    pub(crate) fn new(most_waiting: u32) -> Self {
        Self {
            most_waiting,
            is_stream_new: false,
            recent: VecDeque::new(),
            burst: Burst::default(),
            is_last_rejected: false,
        }
    }

    /// A response was rejected: returns the delay of the answer. While another one `is_held_back`, that of a repetition takes its place
    /// where one waits at most.
    pub(crate) fn on_rejected(
        &mut self,
        response: Fingerprint,
        is_held_back: bool,
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> Duration {
        // The same response an hour later is a push by an operator, and no answer to the NACK.
        self.recent.retain(|rejected| !rejected.is_over(now));
        if std::mem::take(&mut self.is_stream_new) {
            self.burst.forget_waiting(now);
        }
        let known = self.recent.iter_mut().find(|rejected| rejected.response == response);
        if let Some(rejected) = known {
            // A repetition counts as well: a server that changes something every second, and repeats each response, would have two or
            // three NACKs for each change without bound.
            let is_merged = is_held_back && self.most_waiting == 1;
            let of_rate =
                if is_merged { self.burst.delay(now) } else { self.burst.take(self.most_waiting, now) };
            let delay = rejected.backoff.next(random).max(of_rate);
            (rejected.answered_at, rejected.is_followed) = (now + delay, false);
            return delay;
        }
        let delay = self.burst.take(self.most_waiting, now);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        let backoff = Backoff::for_rejections();
        self.recent.push_back(Rejected { response, backoff, answered_at: now + delay, is_followed: false });
        delay
    }

    /// A response was accepted.
    pub(crate) fn on_accepted(&mut self) {
        self.is_last_rejected = false;
        self.recent.iter_mut().for_each(|rejected| rejected.is_followed = true);
    }

    /// Whether a NACK that waits may be written earlier. It counts since its response was rejected.
    pub(crate) fn may_release(&self, now: Instant) -> bool {
        !self.burst.is_overdrawn(now)
    }

    /// The stream ended. The responses on the next one answer no NACK.
    pub(crate) fn on_stream_closed(&mut self) {
        self.recent.clear();
        self.is_stream_new = true;
    }

    /// A response was rejected, `is_unattributed` if not only because of resources whose names are known.
    pub(crate) fn on_cause(&mut self, is_unattributed: bool) {
        self.is_last_rejected = is_unattributed;
    }

    /// Whether the newest response that was not a heartbeat was rejected in that way.
    pub(crate) fn is_last_rejected(&self) -> bool {
        self.is_last_rejected
    }
}

impl Rejected {
    /// Whether the same response would be another push, not an answer to the NACK.
    fn is_over(&self, now: Instant) -> bool {
        let memory = if self.is_followed { MEMORY_AFTER_ACCEPTANCE } else { MEMORY };
        self.answered_at + memory <= now
    }
}

/// The number of rejected responses that are remembered: a server may split one change over several.
const REMEMBERED: usize = 8;

/// The time for which a rejected response is remembered after its answer.
const MEMORY: Duration = Duration::from_secs(30);

/// The time for which a rejected response is remembered once another one was accepted: a server that answers a NACK does so at once, while an operator who takes
/// back a good change needs longer.
const MEMORY_AFTER_ACCEPTANCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        rejections: Rejections,
        random: fastrand::Rng,
        now: Instant,
    }

    impl Rig {
        fn new() -> Self {
            Self { rejections: Rejections::new(1), random: fastrand::Rng::with_seed(3), now: Instant::now() }
        }

        fn reject(&mut self, version: &str, contents: u64) -> Duration {
            self.reject_versions(version, Digests { contents, versions: 0 })
        }

        fn reject_versions(&mut self, version: &str, digests: Digests) -> Duration {
            let response = Fingerprint { version: version.into(), digests };
            self.rejections.on_rejected(response, false, self.now, &mut self.random)
        }
    }

    #[test]
    fn b0_24_rejected_responses_are_answered_in_a_burst_whatever_differs_between_them() {
        type Response = fn(u64) -> (&'static str, Digests);
        let responses: [Response; 3] = [
            |number| ("", Digests { contents: 1, versions: number }),
            |number| ("", Digests { contents: number, versions: 0 }),
            |number| ("1", Digests { contents: number, versions: 0 }),
        ];
        for response in responses {
            let mut rig = Rig::new();
            let delays: Vec<_> = (0..20)
                .map(|number| {
                    let (version, digests) = response(number);
                    rig.reject_versions(version, digests)
                })
                .collect();
            assert_eq!(delays[..10], [Duration::ZERO; 10]);
            assert!(delays[10..].iter().all(|delay| !delay.is_zero()), "{delays:?}");
        }
    }

    #[test]
    fn a_repeated_response_waits_longer_each_time_and_a_new_one_does_not_wait() {
        let mut rig = Rig::new();
        assert_eq!(rig.reject("1", 1), Duration::ZERO);
        let mut last = Duration::ZERO;
        for _ in 0..5 {
            let delay = rig.reject("1", 1);
            assert!(delay > last, "{delay:?} after {last:?}");
            last = delay;
            rig.now += delay;
        }
        assert_eq!(rig.reject("2", 2), Duration::ZERO);
        assert!(rig.reject("1", 1) > last, "another rejected response in between changes nothing");
    }

    /// Found by the fuzzer of operations.
    #[test]
    fn b0_24_repetitions_while_a_nack_waits_take_nothing_of_the_rate() {
        let mut rig = Rig::new();
        rig.reject("1", 1);
        for _ in 0..20 {
            let response = Fingerprint { version: "1".into(), digests: Digests { contents: 1, versions: 0 } };
            rig.rejections.on_rejected(response, true, rig.now, &mut rig.random);
        }
        assert_eq!(rig.reject("2", 2), Duration::ZERO);
    }

    /// Found by the fuzzer of operations.
    #[test]
    fn b0_24_repetitions_of_ever_new_rejected_responses_are_paced_with_these() {
        let mut rig = Rig::new();
        let (start, mut answers) = (rig.now, 0);
        for version in 0..100 {
            let until = start + Duration::from_millis(400) * (version + 1);
            while rig.now < until {
                let delay = rig.reject(&version.to_string(), 1);
                rig.now += delay + Duration::from_millis(20);
                answers += 1;
            }
        }
        assert!(answers <= 10 + (rig.now - start).as_secs() + 1, "{answers} NACKs in {:?}", rig.now - start);
    }

    #[test]
    fn the_same_resources_under_other_versions_are_answered_at_once_ten_times_and_then_once_a_second() {
        let mut rig = Rig::new();
        let delays: Vec<_> = (0..14).map(|version| rig.reject(&version.to_string(), 1).as_secs()).collect();
        assert_eq!(delays, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
        rig.now += Duration::from_secs(60);
        assert_eq!(rig.reject("15", 1), Duration::ZERO);
    }

    #[test]
    fn a_change_split_over_a_good_and_a_bad_response_is_paced_although_the_good_one_is_accepted() {
        let mut rig = Rig::new();
        let mut answers = 0;
        let until = rig.now + Duration::from_secs(60);
        while rig.now < until {
            let delay = rig.reject("1", 1);
            rig.now += delay + Duration::from_millis(1);
            rig.rejections.on_accepted();
            answers += 1;
        }
        assert!(answers < 15, "{answers} NACKs in a minute");
        rig.now += Duration::from_secs(2);
        assert_eq!(rig.reject("1", 1), Duration::ZERO, "a push of its own is answered at once");
    }

    #[test]
    fn a_rejection_is_the_last_word_until_a_response_is_accepted() {
        let mut rig = Rig::new();
        assert!(!rig.rejections.is_last_rejected());
        rig.rejections.on_cause(true);
        assert!(rig.rejections.is_last_rejected());
        rig.rejections.on_accepted();
        assert!(!rig.rejections.is_last_rejected());
    }
}
