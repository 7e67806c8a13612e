use super::*;

const ALWAYS: Repeatable = Repeatable { is_kept: true, remaining: None };
const UNAVAILABLE: AttemptEnd = AttemptEnd::Failed(Code::Unavailable, Pushback::Absent);

fn policy(retry_on: &[RetryOn], num_retries: u32) -> Arc<RetryPolicy> {
    Arc::new(RetryPolicy {
        retry_on: retry_on.into(),
        num_retries,
        base_interval: Duration::from_millis(25),
        max_interval: Duration::from_millis(250),
    })
}

/// The retries of calls that retry UNAVAILABLE.
struct Fixture {
    retries: Retries,
    random: fastrand::Rng,
}

impl Fixture {
    fn new(num_retries: u32) -> Self {
        Self::of(Some(policy(&[RetryOn::Unavailable], num_retries)), &RetrySettings::default())
    }

    fn of(policy: Option<Arc<RetryPolicy>>, settings: &RetrySettings) -> Self {
        Self { retries: Retries::new(policy, settings), random: fastrand::Rng::with_seed(7) }
    }

    fn next(&mut self, end: AttemptEnd) -> Next {
        self.retries.next(end, ALWAYS, &mut self.random)
    }

    /// How many further attempts there are if each of them ends so.
    fn retries_of(mut self, end: AttemptEnd) -> usize {
        (0..100).take_while(|_| self.next(end) != Next::Deliver).count()
    }
}

fn pushed(values: &[&str]) -> AttemptEnd {
    AttemptEnd::Failed(Code::Unavailable, Pushback::parse(values.iter().map(|it| it.as_bytes())))
}

#[test]
fn ch6_1_attempts_are_one_more_than_the_retries_and_at_most_those_of_the_channel() {
    for (num_retries, retries) in [(1, 1), (3, 3), (4, 4), (5, 4), (u32::MAX, 4)] {
        assert_eq!(Fixture::new(num_retries).retries_of(UNAVAILABLE), retries, "{num_retries}");
    }
    for (max_attempts, retries) in [(0, 0), (1, 0), (2, 1), (20, 9)] {
        let settings = RetrySettings { max_attempts, throttle: None };
        let it = Fixture::of(Some(policy(&[RetryOn::Unavailable], 9)), &settings);
        assert_eq!(it.retries_of(UNAVAILABLE), retries, "{max_attempts}");
    }
    assert_eq!(Fixture::of(None, &RetrySettings::default()).retries_of(UNAVAILABLE), 0);
}

#[test]
fn ch6_14_a_request_is_repeated_after_the_loss_of_one_connection_and_not_of_a_second() {
    let lost = AttemptEnd::ConnectionLost(Code::Unavailable);
    assert_eq!(Fixture::new(4).retries_of(lost), 1);
    let mut mixed = Fixture::new(4);
    for end in [UNAVAILABLE, lost, UNAVAILABLE] {
        assert!(matches!(mixed.next(end), Next::After(_)), "{end:?}");
    }
    assert_eq!(mixed.next(lost), Next::Deliver);
    assert_eq!(Fixture::of(None, &RetrySettings::default()).retries_of(lost), 0);
}

#[test]
fn ch6_2_the_codes_of_the_policy_are_retried_and_no_others() {
    let conditions = [
        (RetryOn::Cancelled, Code::Cancelled),
        (RetryOn::DeadlineExceeded, Code::DeadlineExceeded),
        (RetryOn::Internal, Code::Internal),
        (RetryOn::ResourceExhausted, Code::ResourceExhausted),
        (RetryOn::Unavailable, Code::Unavailable),
    ];
    for (condition, code) in conditions {
        for number in 0..=16 {
            let other = Code::from_i32(number);
            let it = Fixture::of(Some(policy(&[condition], 1)), &RetrySettings::default());
            let retries = it.retries_of(AttemptEnd::Failed(other, Pushback::Absent));
            assert_eq!(retries, usize::from(other == code), "{condition:?} {other:?}");
        }
    }
    let empty = Fixture::of(Some(policy(&[], 3)), &RetrySettings::default());
    assert_eq!(empty.retries_of(UNAVAILABLE), 0);
}

#[test]
fn ch6_4_delays_double_from_the_base_to_the_maximum_with_a_fifth_of_jitter() {
    let settings = RetrySettings { max_attempts: 12, throttle: None };
    let (mut shortest, mut longest) = ([Duration::MAX; 10], [Duration::ZERO; 10]);
    for seed in 0..2_000 {
        let mut it = Fixture::of(Some(policy(&[RetryOn::Unavailable], 10)), &settings);
        it.random = fastrand::Rng::with_seed(seed);
        for retry in 0..10 {
            let Next::After(delay) = it.next(UNAVAILABLE) else { panic!("there are 10 retries") };
            (shortest[retry], longest[retry]) = (shortest[retry].min(delay), longest[retry].max(delay));
        }
        assert_eq!(it.next(UNAVAILABLE), Next::Deliver);
    }
    for (retry, millis) in
        [25.0, 50.0, 100.0, 200.0, 250.0, 250.0, 250.0, 250.0, 250.0, 250.0].iter().enumerate()
    {
        let (low, high) = (shortest[retry].as_secs_f64() * 1e3, longest[retry].as_secs_f64() * 1e3);
        assert!((millis * 0.8..millis * 0.805).contains(&low), "{retry}: {low}");
        assert!((millis * 1.195..=millis * 1.2).contains(&high), "{retry}: {high}");
    }
}

#[test]
fn ch6_6_a_delay_that_ends_after_the_deadline_is_not_waited_for() {
    for (remaining, expected) in [(99, false), (100, false), (101, true)] {
        let mut it = Fixture::new(3);
        let can = Repeatable { is_kept: true, remaining: Some(Duration::from_millis(remaining)) };
        let next = it.retries.next(pushed(&["100"]), can, &mut it.random);
        assert_eq!(next != Next::Deliver, expected, "{remaining}");
        assert_eq!(it.retries.previous(), u32::from(expected));
    }
}

#[test]
fn ch6_7_ch6_11_a_committed_request_is_not_sent_again() {
    let committed = Repeatable { is_kept: false, remaining: None };
    for end in [UNAVAILABLE, AttemptEnd::NeverProcessed(Code::Unavailable), pushed(&["5"])] {
        let mut it = Fixture::new(3);
        assert_eq!(it.retries.next(end, committed, &mut it.random), Next::Deliver, "{end:?}");
    }
    let mut it = Fixture::new(3);
    let never_sent = it.retries.next(AttemptEnd::NeverSent, committed, &mut it.random);
    assert_eq!(never_sent, Next::Free, "nothing of it was sent by this attempt");
}

#[test]
fn ch6_8_pushback_is_the_delay_and_begins_the_backoff_anew() {
    let mut it = Fixture::new(4);
    let first = it.next(UNAVAILABLE);
    let second = it.next(UNAVAILABLE);
    assert_eq!(it.next(pushed(&["1234"])), Next::After(Duration::from_millis(1_234)));
    let after = it.next(UNAVAILABLE);
    let millis = |next| match next {
        Next::After(delay) => delay.as_millis(),
        Next::Deliver | Next::Free | Next::NeverSent => panic!("{next:?}"),
    };
    assert!(millis(first) <= 30 && millis(second) >= 40 && millis(after) <= 30);
    assert_eq!(it.next(pushed(&["1"])), Next::Deliver, "it counts as a retry");
}

#[test]
fn ch6_8_pushback_of_another_form_ends_the_call() {
    let parse = |values: &[&str]| Pushback::parse(values.iter().map(|it| it.as_bytes()));
    assert_eq!(parse(&[]), Pushback::Absent);
    assert_eq!(parse(&["0"]), Pushback::After(Duration::ZERO));
    assert_eq!(parse(&["2147483647"]), Pushback::After(Duration::from_millis(2_147_483_647)));
    for value in ["-1", "-2147483648"] {
        assert_eq!(parse(&[value]), Pushback::Never, "{value:?}");
        assert_eq!(Fixture::new(3).next(pushed(&[value])), Next::Deliver, "{value:?}");
    }
    for value in ["", "01", "00", "-01", "-", "+5", "2147483648", "5.0", " 5", "5 ", "1s", "\u{661}", "five"]
    {
        assert_eq!(parse(&[value]), Pushback::Malformed, "{value:?}");
        assert_eq!(Fixture::new(3).next(pushed(&[value])), Next::Deliver, "{value:?}");
    }
    assert_eq!(parse(&["5", "5"]), Pushback::Malformed);
    assert_eq!(Pushback::parse([&b"\xff5"[..]].into_iter()), Pushback::Malformed);
    // Without a retryable code it is of no use.
    assert_eq!(
        Fixture::new(3).next(AttemptEnd::Failed(Code::NotFound, Pushback::After(Duration::ZERO))),
        Next::Deliver
    );
}

#[test]
fn ch6_12_attempts_that_were_never_sent_are_free_up_to_1000() {
    let mut it = Fixture::new(1);
    for _ in 0..MAX_NEVER_SENT {
        assert_eq!(it.next(AttemptEnd::NeverSent), Next::Free);
    }
    assert_eq!(it.next(AttemptEnd::NeverSent), Next::NeverSent);
}

#[test]
fn ch6_13_ch6_15_one_unprocessed_attempt_is_free_before_the_first_retry() {
    let unprocessed = AttemptEnd::NeverProcessed(Code::Unavailable);
    let mut it = Fixture::new(1);
    assert_eq!((it.next(unprocessed), it.retries.previous()), (Next::Free, 0));
    assert_eq!(it.next(AttemptEnd::NeverSent), Next::Free);
    assert!(matches!(it.next(unprocessed), Next::After(_)), "later ones are those of the policy");
    assert_eq!((it.next(unprocessed), it.retries.previous()), (Next::Deliver, 1));
    let mut it = Fixture::new(2);
    assert!(matches!(it.next(UNAVAILABLE), Next::After(_)));
    assert!(matches!(it.next(unprocessed), Next::After(_)), "a retry has come before");
    let mut it = Fixture::of(None, &RetrySettings::default());
    assert_eq!([it.next(unprocessed), it.next(unprocessed)], [Next::Free, Next::Deliver]);
}

/// How many of so many calls in a row, each of which fails at each attempt, make a second attempt.
fn retried(settings: &RetrySettings, calls: usize) -> usize {
    let once = || Fixture::of(Some(policy(&[RetryOn::Unavailable], 1)), settings);
    (0..calls).filter(|_| once().next(UNAVAILABLE) != Next::Deliver).count()
}

#[test]
fn ch6_18_without_more_than_half_of_its_tokens_a_channel_does_not_retry() {
    let throttle = Throttle::new(10, 0.1).unwrap();
    let settings = RetrySettings { max_attempts: 5, throttle: Some(throttle.clone()) };
    assert_eq!(retried(&settings, 10), 4, "the fifth failure leaves 5 of 10");
    assert_eq!(throttle.tokens.load(Ordering::Relaxed), 0);
    retried(&settings, 3);
    let end = Fixture::of(None, &settings).retries.throttled().unwrap();
    (0..60).for_each(|_| end.record(Code::Ok));
    assert_eq!(throttle.tokens.load(Ordering::Relaxed), 6_000, "there were never less than 0");
    assert_eq!(retried(&settings, 1), 0, "5 are left");
    (0..1_000).for_each(|_| end.record(Code::Ok));
    assert_eq!(throttle.tokens.load(Ordering::Relaxed), 10_000);
}

#[test]
fn ch6_18_what_counts_as_a_failure() {
    let throttle = Throttle::new(100, 1.0).unwrap();
    let settings = RetrySettings { max_attempts: 5, throttle: Some(throttle.clone()) };
    let lost = |end| {
        let before = throttle.tokens.load(Ordering::Relaxed);
        Fixture::of(Some(policy(&[RetryOn::Unavailable], 3)), &settings).next(end);
        before - throttle.tokens.load(Ordering::Relaxed)
    };
    assert_eq!(lost(UNAVAILABLE), 1_000);
    assert_eq!(lost(AttemptEnd::Failed(Code::NotFound, Pushback::Absent)), 0);
    assert_eq!(lost(AttemptEnd::Failed(Code::NotFound, Pushback::Never)), 1_000);
    assert_eq!(lost(AttemptEnd::Failed(Code::NotFound, Pushback::After(Duration::ZERO))), 0);
    assert_eq!(lost(AttemptEnd::NeverProcessed(Code::Unavailable)), 0, "it is free");
    assert_eq!(lost(AttemptEnd::NeverSent), 0);
    let end = Fixture::of(Some(policy(&[RetryOn::Unavailable], 3)), &settings).retries.throttled().unwrap();
    let before = throttle.tokens.load(Ordering::Relaxed);
    end.record(Code::Unavailable);
    end.record(Code::NotFound);
    assert_eq!(before - throttle.tokens.load(Ordering::Relaxed), 1_000, "after the response has begun, too");
}

#[test]
fn ch6_18_numbers_out_of_their_range_are_rejected() {
    for (tokens, ratio) in
        [(0, 0.1), (1_001, 0.1), (10, 0.0), (10, -1.0), (10, f64::NAN), (10, 0.0009), (10, 1e9)]
    {
        assert!(Throttle::new(tokens, ratio).is_err(), "{tokens} {ratio}");
    }
    for (tokens, ratio) in [(1, 0.001), (1_000, 1_000.0)] {
        assert!(Throttle::new(tokens, ratio).is_ok(), "{tokens} {ratio}");
    }
}
