use super::*;
use crate::resource::route_lookup::{HeaderKey, KeyBuilder, MethodName};

/// Keys of `shop.Cart`: of `Get` the constant `c`, the host `h`, the service `s`, the method `m` and the header of a user `u`; of
/// other methods the header `x-tenant` as `t`.
pub(in crate::balance::route_lookup) fn config() -> RouteLookup {
    let method =
        |method: Option<&str>| MethodName { service: "shop.Cart".into(), method: method.map(Into::into) };
    let header = |key: &str, names: &[&str]| HeaderKey {
        key: key.into(),
        names: names.iter().map(|name| (*name).into()).collect(),
    };
    let get = KeyBuilder {
        methods: [method(Some("Get"))].into(),
        headers: [header("u", &["x-user", "x-tenant"])].into(),
        host: Some("h".into()),
        service: Some("s".into()),
        method: Some("m".into()),
        constants: [("c".into(), "constant".into())].into(),
    };
    let others = KeyBuilder {
        methods: [method(None)].into(),
        headers: [header("t", &["x-tenant"])].into(),
        host: None,
        service: None,
        method: None,
        constants: BTreeMap::new(),
    };
    RouteLookup {
        key_builders: [get, others].into(),
        lookup_service: "xds:///lookup".into(),
        lookup_service_timeout: SECOND * 10,
        max_age: SECOND * 100,
        stale_age: Some(SECOND * 50),
        cache_size_bytes: 100_000,
        default_target: None,
    }
}

pub(in crate::balance::route_lookup) const SECOND: Duration = Duration::from_secs(1);

fn key(path: &str) -> LookupKey {
    LookupKey::of_path(path)
}

fn lookups(edit: impl FnOnce(&mut RouteLookup)) -> (Lookups, Instant) {
    limited(LookupLimits::new(), edit)
}

fn limited(limits: LookupLimits, edit: impl FnOnce(&mut RouteLookup)) -> (Lookups, Instant) {
    (Lookups::new(edited(edit), limits, 1), Instant::now())
}

fn edited(edit: impl FnOnce(&mut RouteLookup)) -> Arc<RouteLookup> {
    let mut config = config();
    edit(&mut config);
    Arc::new(config)
}

fn answer(target: &str, header_data: &str) -> Answer {
    Answer { targets: [target.into()].into(), header_data: header_data.into() }
}

/// Begins the lookup of a path, and returns its id.
fn begin(lookups: &mut Lookups, path: &str, now: Instant) -> LookupId {
    let Decision::Wait(id) = lookups.decide(&key(path), now) else { panic!("no lookup begins") };
    let polled = lookups.poll_lookup();
    assert_eq!(polled, Some(Lookup { id, key: key(path), stale: None }));
    id
}

fn respond(lookups: &mut Lookups, path: &str, target: &str, now: Instant) {
    let id = begin(lookups, path, now);
    lookups.handle_result(id, Ok(answer(target, "")), now);
}

fn fail(lookups: &mut Lookups, path: &str, now: Instant) {
    let id = begin(lookups, path, now);
    lookups.handle_result(id, Err("gone".into()), now);
}

/// The target of a call.
fn target(decision: Decision) -> String {
    match decision {
        Decision::Route(answer) => answer.targets.join(","),
        Decision::Default(target) => format!("default {target}"),
        Decision::Wait(_) => "waits".into(),
        Decision::Fail { reason, .. } => reason.to_string(),
    }
}

#[test]
fn rl6_calls_with_one_key_share_a_lookup_and_those_of_others_do_not_wait_for_it() {
    let (mut lookups, now) = lookups(|_| {});
    let first = begin(&mut lookups, "/a/a", now);
    assert_eq!(lookups.decide(&key("/a/a"), now), Decision::Wait(first));
    assert_eq!(lookups.poll_lookup(), None);
    respond(&mut lookups, "/b/b", "b", now);
    assert_eq!(target(lookups.decide(&key("/b/b"), now)), "b");
    assert_eq!(lookups.decide(&key("/a/a"), now), Decision::Wait(first));
    lookups.handle_result(first, Ok(answer("a", "data")), now);
    assert_eq!(lookups.decide(&key("/a/a"), now), Decision::Route(Arc::new(answer("a", "data"))));
    // A second result of a lookup is ignored.
    lookups.handle_result(first, Err("late".into()), now);
    assert_eq!(target(lookups.decide(&key("/a/a"), now)), "a");
}

#[test]
fn rl2_a_stale_response_is_refreshed_by_a_call_and_an_expired_one_is_not_used() {
    let (mut lookups, now) = lookups(|_| {});
    let id = begin(&mut lookups, "/a/a", now);
    lookups.handle_result(id, Ok(answer("old", "data")), now);
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 49)), "old");
    assert_eq!(lookups.poll_lookup(), None);
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 50)), "old");
    let refresh = lookups.poll_lookup().unwrap();
    assert_eq!(refresh.stale.as_deref(), Some("data"));
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 99)), "old");
    assert_eq!(lookups.poll_lookup(), None, "one refresh is under way");
    assert_eq!(lookups.decide(&key("/a/a"), now + SECOND * 100), Decision::Wait(refresh.id));
    lookups.handle_result(refresh.id, Ok(answer("new", "")), now + SECOND * 101);
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 200)), "new");
    // Beside this response nothing is known at its end.
    let _ = lookups.poll_lookup();
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 201)), "waits");
}

#[test]
fn rl2_without_a_stale_age_nothing_is_refreshed() {
    let (mut lookups, now) = lookups(|config| config.stale_age = None);
    respond(&mut lookups, "/a/a", "a", now);
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 99)), "a");
    assert_eq!(lookups.poll_lookup(), None);
}

#[test]
fn rl4_a_failed_refresh_leaves_the_response_until_it_expires() {
    let (mut lookups, now) = lookups(|_| {});
    respond(&mut lookups, "/a/a", "a", now);
    let at = now + SECOND * 98;
    let _ = lookups.decide(&key("/a/a"), at);
    let refresh = lookups.poll_lookup().unwrap();
    lookups.handle_result(refresh.id, Err("gone".into()), at);
    assert_eq!(target(lookups.decide(&key("/a/a"), at)), "a");
    assert_eq!(lookups.poll_lookup(), None, "the refresh is in backoff");
    let _ = lookups.decide(&key("/a/a"), at + SECOND * 2 - SECOND / 2);
    assert!(lookups.poll_lookup().is_some(), "the backoff is over");
}

#[test]
fn rl4_failures_of_a_key_have_a_growing_backoff_until_a_response() {
    let (mut lookups, mut now) = lookups(|_| {});
    // So that none is throttled (RL5).
    (0..20).for_each(|path| respond(&mut lookups, &format!("/b/{path}"), "b", now));
    let expected = "route lookup by xds:///lookup: the last lookup has failed: gone";
    let mut before = Duration::ZERO;
    for failures in 0..5 {
        fail(&mut lookups, "/a/a", now);
        let Decision::Fail { reason, retry_at } = lookups.decide(&key("/a/a"), now) else {
            panic!("failure {failures}");
        };
        assert_eq!((&*reason, lookups.poll_lookup()), (expected, None));
        let delay = retry_at - now;
        // 1 s, and 1.6 times the delay before, by up to 20 % longer or shorter.
        assert!(delay > before && delay >= SECOND * 8 / 10, "{delay:?} after {before:?}");
        (before, now) = (delay, retry_at);
    }
    respond(&mut lookups, "/a/a", "a", now);
    // It expires, and the first delay follows again.
    now += SECOND * 100;
    fail(&mut lookups, "/a/a", now);
    let Decision::Fail { retry_at, .. } = lookups.decide(&key("/a/a"), now) else { panic!("it has failed") };
    assert!(retry_at - now <= SECOND * 12 / 10);
}

#[test]
fn rl4_backoffs_end_when_the_lookup_channel_is_ready_again() {
    let (mut lookups, now) = lookups(|_| {});
    fail(&mut lookups, "/a/a", now);
    lookups.handle_ready();
    respond(&mut lookups, "/a/a", "a", now);
    assert_eq!(target(lookups.decide(&key("/a/a"), now)), "a");
}

#[test]
fn rl7_without_a_response_calls_go_to_the_default_target() {
    let (mut lookups, now) = lookups(|config| config.default_target = Some("spare".into()));
    assert_eq!(lookups.poll_targets(), Some(["spare".into()].into()), "before any call");
    fail(&mut lookups, "/a/a", now);
    assert_eq!(target(lookups.decide(&key("/a/a"), now)), "default spare");
    respond(&mut lookups, "/a/a", "a", now + SECOND * 2);
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 2)), "a");
    assert_eq!(lookups.poll_targets(), Some(["a".into(), "spare".into()].into()));
    assert_eq!(lookups.poll_targets(), None);
}

#[test]
fn rl5_throttled_calls_fail_at_once_and_a_refresh_leaves_the_response() {
    let (mut lookups, now) = lookups(|_| {});
    respond(&mut lookups, "/a/a", "a", now);
    for path in 0..200 {
        if let Decision::Wait(id) = lookups.decide(&key(&format!("/b/{path}")), now + SECOND * 50) {
            lookups.handle_result(id, Err("gone".into()), now + SECOND * 50);
        }
        let _ = lookups.poll_lookup();
    }
    let mut throttled = 0;
    for path in 0..20 {
        let decision = lookups.decide(&key(&format!("/c/{path}")), now + SECOND * 50);
        if let Decision::Fail { reason, .. } = decision {
            throttled += 1;
            assert!(reason.ends_with("the lookup was throttled, since lookups have failed"), "{reason}");
        } else {
            assert!(matches!(decision, Decision::Wait(_)), "{decision:?}");
        }
    }
    assert!(throttled > 10, "{throttled}");
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 50)), "a");
}

#[test]
fn rl3_the_least_recently_used_responses_are_evicted() {
    // Each takes 512 bytes and its texts.
    let (mut lookups, now) = lookups(|config| config.cache_size_bytes = 1_600);
    for path in ["/a/a", "/b/b", "/c/c"] {
        respond(&mut lookups, path, "one", now);
    }
    assert_eq!(target(lookups.decide(&key("/a/a"), now)), "one");
    // They are young: nothing is evicted.
    respond(&mut lookups, "/d/d", "two", now);
    assert_eq!(lookups.usage(), (4, 4 * 519));
    respond(&mut lookups, "/e/e", "three", now + SECOND * 5);
    assert_eq!(lookups.usage().0, 3);
    for path in ["/a/a", "/d/d", "/e/e"] {
        assert!(matches!(lookups.decide(&key(path), now + SECOND * 5), Decision::Route(_)), "{path}");
    }
    assert_eq!(lookups.poll_targets(), Some(["one".into(), "three".into(), "two".into()].into()));
    // A smaller cache evicts at once, and the targets of what it evicts are let go.
    lookups.update(edited(|config| config.cache_size_bytes = 600), now + SECOND * 5);
    assert_eq!(lookups.usage().0, 1);
    assert_eq!(lookups.poll_targets(), Some(["three".into()].into()));
}

#[test]
fn rl3_a_response_above_the_size_serves_until_the_next_one() {
    let (mut lookups, now) = lookups(|config| config.cache_size_bytes = 1);
    respond(&mut lookups, "/a/a", "a", now);
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 20)), "a");
    respond(&mut lookups, "/b/b", "b", now + SECOND * 20);
    assert_eq!(lookups.usage().0, 1);
    assert_eq!(target(lookups.decide(&key("/b/b"), now + SECOND * 20)), "b");
}

#[test]
fn rl3_young_responses_have_a_limit() {
    let (mut lookups, now) = lookups(|_| {});
    for path in 0..200 {
        let path = format!("/a/{path}");
        let id = begin(&mut lookups, &path, now);
        lookups.handle_result(id, Ok(answer("a", &"x".repeat(60_000))), now);
        let (_, size) = lookups.usage();
        assert!(size <= 100_000 + (5 << 20), "{size}");
    }
    assert!(lookups.usage().0 < 100);
    // The setting limits both the size of the configuration and that of young ones.
    let (mut lookups, now) = limited(LookupLimits::new().with_cache_size(2_100), |_| {});
    for path in 0..20 {
        respond(&mut lookups, &format!("/a/{}", char::from(b'a' + path)), "one", now);
        assert_eq!(lookups.usage().0, usize::from(path + 1).min(8), "4,200 bytes");
    }
    respond(&mut lookups, "/b/b", "one", now + SECOND * 5);
    assert_eq!(lookups.usage().0, 4, "2,100 bytes");
}

#[test]
fn rl3_expired_responses_are_removed_without_calls() {
    let (mut lookups, now) = lookups(|_| {});
    assert_eq!(lookups.poll_timeout(), None);
    respond(&mut lookups, "/a/a", "a", now);
    fail(&mut lookups, "/b/b", now);
    let _ = lookups.poll_targets();
    for entries in [1, 0] {
        let at = lookups.poll_timeout().unwrap();
        lookups.handle_timeout(at);
        assert_eq!(lookups.usage().0, entries, "at {:?}", at - now);
    }
    assert_eq!((lookups.poll_targets(), lookups.poll_timeout()), (Some([].into()), None));
}

#[test]
fn rl10_an_update_keeps_the_responses_unless_the_keys_change() {
    let (mut lookups, now) = lookups(|_| {});
    respond(&mut lookups, "/a/a", "a", now);
    assert!(!lookups.update(edited(|config| config.max_age = SECOND), now));
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 2)), "a");
    assert!(lookups.update(edited(|config| config.lookup_service = "xds:///other".into()), now));
    assert_eq!(target(lookups.decide(&key("/a/a"), now + SECOND * 2)), "a");
    // A lookup under way is not repeated.
    let id = begin(&mut lookups, "/b/b", now);
    lookups.update(edited(|config| config.key_builders[0].host = None), now);
    assert_eq!(lookups.usage(), (0, 0));
    assert_eq!(lookups.decide(&key("/b/b"), now), Decision::Wait(id));
    assert_eq!(lookups.poll_targets(), Some([].into()));
}

#[test]
fn rl11_lookups_under_way_have_a_limit() {
    for limit in [1000, 1, 7] {
        let (mut lookups, now) = limited(LookupLimits::new().with_pending_lookups(limit), |_| {});
        let ids: Vec<_> = (0..limit).map(|path| begin(&mut lookups, &format!("/a/{path}"), now)).collect();
        let expected = format!("route lookup by xds:///lookup: {limit} lookups are under way, the maximum");
        assert_eq!(target(lookups.decide(&key("/b/b"), now)), expected);
        assert_eq!(lookups.decide(&key("/a/0"), now), Decision::Wait(ids[0]));
        lookups.handle_result(ids[0], Ok(answer("a", "")), now);
        let _ = begin(&mut lookups, "/b/b", now);
    }
}

#[test]
fn rl11_the_targets_of_all_responses_have_a_limit() {
    for limit in [1000, 1, 7] {
        let limits = LookupLimits::new().with_clusters(limit);
        let (mut lookups, now) = limited(limits, |config| config.cache_size_bytes = 5 << 20);
        for path in 0..limit {
            respond(&mut lookups, &format!("/a/{path}"), &format!("target{path}"), now);
        }
        respond(&mut lookups, "/b/b", "target0", now);
        assert_eq!(target(lookups.decide(&key("/b/b"), now)), "target0");
        respond(&mut lookups, "/c/c", "other", now);
        let reason = target(lookups.decide(&key("/c/c"), now));
        let expected = format!("the responses have more than {limit} targets together");
        assert!(reason.ends_with(&expected), "{reason}");
        assert_eq!(lookups.poll_targets().unwrap().len(), limit);
        // Those that expire make room.
        lookups.handle_timeout(now + SECOND * 100);
        respond(&mut lookups, "/d/d", "other", now + SECOND * 100);
        assert_eq!(lookups.poll_targets(), Some(["other".into()].into()));
    }
}

#[test]
fn rl11_keys_of_requests_have_a_limit() {
    for (limits, size) in [(LookupLimits::new(), 16 << 10), (LookupLimits::new().with_key_size(100), 100)] {
        let (mut lookups, now) = limited(limits, |_| {});
        let path = |size: usize| format!("/a/{}", "x".repeat(size - 3));
        respond(&mut lookups, &path(size), "a", now);
        assert_eq!(target(lookups.decide(&key(&path(size)), now)), "a");
        let reason = target(lookups.decide(&key(&path(size + 1)), now));
        let expected = format!(
            "the path and the keys of the request have {} bytes, and {size} at most are looked up",
            size + 1
        );
        assert_eq!(reason, format!("route lookup by xds:///lookup: {expected}"));
        assert_eq!(lookups.poll_lookup(), None);
    }
}
