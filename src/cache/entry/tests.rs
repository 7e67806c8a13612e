use super::*;
use crate::error::{Blame, Code, Subject};

const KEEP: Policy = Policy { keep_deleted: true, fail_on_data_errors: false };
const DROP: Policy = Policy { keep_deleted: false, fail_on_data_errors: false };
const FAIL: Policy = Policy { keep_deleted: true, fail_on_data_errors: true };

fn about() -> Subject {
    Subject { type_url: "t", name: "a".into(), node: "n".into() }
}

fn error(code: Code) -> WatchError {
    WatchError::new(code, Blame::Peer, about(), "why")
}

fn update(version: &str) -> Update {
    Update { version: version.into(), at: Instant::now() }
}

fn entry() -> Entry {
    Entry::new("a".into(), (GroupId(0), TypeId(0)))
}

fn held() -> Entry {
    let mut entry = entry();
    assert_eq!(entry.on_accepted(Arc::new(1u8), b"1"[..].into(), update("1")), Changed::Yes);
    entry
}

/// What a watch sees: the version if present, and the code of the error.
fn seen(entry: &Entry) -> (Option<String>, Option<Code>) {
    match entry.observe(|| None) {
        None => (None, None),
        Some(ErasedObserved::Absent { reason }) => (None, Some(reason.code())),
        Some(ErasedObserved::Present { version, warning, .. }) => {
            (Some(version.to_string()), warning.map(|warning| warning.code()))
        }
    }
}

#[test]
fn last_good_wins_over_a_rejection() {
    let mut entry = held();
    let rejected = || WatchError::rejected(about(), crate::resource::Invalid::new("bad"));
    assert_eq!(entry.on_rejected(rejected(), KEEP, update("2")), Changed::Yes);
    assert_eq!(seen(&entry), (Some("1".into()), Some(Code::InvalidArgument)));
    assert_eq!(
        entry.on_rejected(rejected(), KEEP, update("2")),
        Changed::No,
        "the same error is published once"
    );
    assert_eq!(entry.on_unchanged(&"2".into(), Instant::now()), Changed::Yes, "and cleared by the resource");
    assert_eq!(seen(&entry), (Some("2".into()), None));
    assert_eq!(entry.on_unchanged(&"3".into(), Instant::now()), Changed::No);
}

#[test]
fn a_rejection_without_a_good_resource_is_its_absence() {
    let mut entry = entry();
    assert_eq!(seen(&entry), (None, None));
    assert_eq!(entry.on_rejected(error(Code::InvalidArgument), DROP, update("1")), Changed::Yes);
    assert_eq!(seen(&entry), (None, Some(Code::InvalidArgument)));
}

#[test]
fn a88_4_fail_on_data_errors_drops() {
    for bad in [Entry::on_rejected, Entry::on_deleted] {
        let mut entry = held();
        assert_eq!(bad(&mut entry, error(Code::NotFound), FAIL, update("2")), Changed::Yes);
        assert_eq!(seen(&entry), (None, Some(Code::NotFound)));
    }
    let mut entry = held();
    assert_eq!(entry.on_server_error(error(Code::Unavailable), None, update("2")), Changed::Yes);
    assert_eq!(seen(&entry), (Some("1".into()), Some(Code::Unavailable)));
    assert_eq!(entry.on_server_error(error(Code::NotFound), Some(FAIL), update("3")), Changed::Yes);
    assert_eq!(seen(&entry), (None, Some(Code::NotFound)));
}

#[test]
fn deletion_is_honoured_or_kept_by_policy() {
    let mut entry = held();
    assert_eq!(entry.on_deleted(error(Code::NotFound), KEEP, update("2")), Changed::Yes);
    assert_eq!(seen(&entry), (Some("1".into()), Some(Code::NotFound)));
    assert_eq!(entry.on_deleted(error(Code::NotFound), DROP, update("2")), Changed::Yes);
    assert_eq!(seen(&entry), (None, Some(Code::NotFound)));
    assert_eq!(entry.on_deleted(error(Code::NotFound), DROP, update("2")), Changed::No);
    let mut entry = self::entry();
    assert_eq!(
        entry.on_deleted(error(Code::NotFound), DROP, update("2")),
        Changed::No,
        "never seen: the timer decides"
    );
}

#[test]
fn the_does_not_exist_timer_changes_no_held_resource() {
    let mut entry = held();
    assert_eq!(entry.on_timeout(error(Code::NotFound), Instant::now()), Changed::No);
    let mut entry = self::entry();
    assert_eq!(entry.on_timeout(error(Code::NotFound), Instant::now()), Changed::Yes);
    assert!(!entry.is_held() && !entry.shows_failure());
}

#[test]
fn a_server_error_is_shown_unless_something_else_is_known() {
    let failure = || Some(error(Code::Unavailable));
    let code = |entry: &Entry| match entry.observe(failure) {
        Some(ErasedObserved::Absent { reason }) => Some(reason.code()),
        Some(ErasedObserved::Present { warning, .. }) => warning.map(|warning| warning.code()),
        None => None,
    };
    assert_eq!(code(&entry()), Some(Code::Unavailable));
    assert_eq!(code(&held()), Some(Code::Unavailable));
    let mut gone = entry();
    assert!(bool::from(gone.on_timeout(error(Code::NotFound), Instant::now())));
    assert_eq!(code(&gone), Some(Code::NotFound));
}

#[test]
fn a40_2_a_setback_lasts_until_a_good_update_and_notes_the_last_attempt() {
    let mut entry = held();
    let rejected = || WatchError::rejected(about(), crate::resource::Invalid::new("bad"));
    assert_eq!((entry.state(), entry.ambient_error().is_some()), (ResourceState::Acked, false));
    let first = update("2");
    assert_eq!(entry.on_rejected(rejected(), KEEP, first.clone()), Changed::Yes);
    let again = Update { version: "3".into(), at: first.at + std::time::Duration::from_secs(1) };
    assert_eq!(entry.on_rejected(rejected(), KEEP, again.clone()), Changed::No);
    let ambient_error = entry.ambient_error().unwrap();
    assert_eq!((entry.state(), entry.is_held()), (ResourceState::Nacked, true));
    assert_eq!((ambient_error.update.version.as_str(), ambient_error.update.at), ("3", again.at));
    assert_eq!(entry.held().unwrap().0.as_str(), "1");
    assert_eq!(entry.on_unchanged(&"4".into(), again.at), Changed::Yes);
    assert_eq!((entry.state(), entry.ambient_error().is_some()), (ResourceState::Acked, false));
    assert_eq!(entry.held().map(|(version, at)| (version.as_str(), at)), Some(("4", again.at)));
}
