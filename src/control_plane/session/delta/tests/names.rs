//! `xdstp:` names and globs.

use super::*;

const A: &str = "xdstp://auth/T/foo/a?x=1&y=2";
const B: &str = "xdstp://auth/T/foo/b?x=1&y=2";
const GLOB: &str = "xdstp://auth/T/foo/*?x=1&y=2";

fn with_members() -> Pair {
    Pair::with(&[(EDS, A, "a"), (EDS, B, "b")])
}

/// Replaces the names of the members and of the glob by `A`, `B` and `GLOB`.
fn short(sent: Vec<String>) -> Vec<String> {
    let short = |sent: String| sent.replace(GLOB, "GLOB").replace(A, "A").replace(B, "B");
    sent.into_iter().map(|sent| short(sent).replace("ClusterLoadAssignment", "EDS")).collect()
}

#[test]
fn x4_names_are_matched_whatever_the_order_of_their_parameters() {
    let mut pair = Pair::default();
    assert_eq!(short(pair.exchange(EDS, &["xdstp://auth/T/foo/a?y=2&x=1"], &[])), ["EDS 0: -A"]);
    assert_eq!(pair.session.subscribed(EDS), [A]);
    pair.set(&[(EDS, A, "a")]);
    assert_eq!(short(pair.settle()), ["EDS 1: A@1=a"]);
    let resource = pair.store.get(EDS);
    assert!(resource.resource("xdstp://auth/T/foo/%61?y=2&x=1").is_some());
    pair.remove(EDS, "xdstp://auth/T/foo/a?y=2&x=1");
    assert_eq!(short(pair.settle()), ["EDS 2: -A"]);
    pair.change(EDS, &[], &["xdstp://auth/T/foo/a?y=2&x=1"]);
    assert_eq!(pair.session.subscribed(EDS), Vec::<&str>::new());
}

#[test]
fn x5_a_server_may_spell_a_name_differently() {
    let odd = "xdstp://auth/T/foo/a?y=2&x=1";
    let mut pair = Pair::with(&[(EDS, odd, "a")]);
    assert_eq!(pair.exchange(EDS, &[A], &[]), [format!("ClusterLoadAssignment 1: {odd}@1=a")]);
}

#[test]
fn a_name_that_cannot_be_parsed_is_known_as_it_is_written() {
    let mut pair = Pair::with(&[(EDS, "xdstp://auth", "a")]);
    assert_eq!(pair.exchange(EDS, &["xdstp://auth"], &[]), ["ClusterLoadAssignment 1: xdstp://auth@1=a"]);
}

#[test]
fn x15_members_of_a_glob_come_and_go_as_resources() {
    let mut pair = with_members();
    assert_eq!(short(pair.exchange(EDS, &["xdstp://auth/T/foo/*?y=2&x=1"], &[])), ["EDS 1: A@1=a B@1=b"]);
    pair.set(&[(EDS, B, "b2")]);
    assert_eq!(short(pair.settle()), ["EDS 2: B@2=b2"]);
    pair.remove(EDS, A);
    assert_eq!(short(pair.settle()), ["EDS 3: -A"]);
    assert_eq!(short(pair.exchange(EDS, &[], &[GLOB])), nothing());
    pair.set(&[(EDS, A, "a2")]);
    assert_eq!(pair.settle(), nothing());
}

#[test]
fn x16_a_glob_stands_for_one_segment_of_the_same_authority_type_and_parameters() {
    let mut pair = Pair::default();
    pair.exchange(EDS, &[GLOB], &[]);
    for other in [
        "xdstp://auth/T/foo/d/e?x=1&y=2",
        "xdstp://auth/T/foo?x=1&y=2",
        "xdstp://auth/T/foo/?x=1&y=2",
        "xdstp://other/T/foo/a?x=1&y=2",
        "xdstp://auth/U/foo/a?x=1&y=2",
        "xdstp://auth/T/foo/a?x=1",
        "xdstp://auth/T/foo/a?x=1&y=2&z=3",
        "foo/a",
    ] {
        pair.set(&[(EDS, other, "other")]);
        assert_eq!(pair.settle(), nothing(), "{other}");
    }
    pair.set(&[(EDS, A, "a")]);
    assert_eq!(short(pair.settle()), ["EDS 9: A@9=a"]);
}

#[test]
fn x18_an_empty_glob_is_reported_by_its_own_name() {
    let mut pair = Pair::default();
    assert_eq!(short(pair.exchange(EDS, &[GLOB], &[])), ["EDS 0: -GLOB"]);
    pair.set(&[(EDS, A, "a"), (EDS, B, "b")]);
    assert_eq!(short(pair.settle()), ["EDS 1: A@1=a B@1=b"]);
    pair.remove(EDS, A);
    assert_eq!(short(pair.settle()), ["EDS 2: -A"]);
    pair.remove(EDS, B);
    assert_eq!(short(pair.settle()), ["EDS 3: -GLOB -B"]);
}

#[test]
fn x18_a_glob_that_has_members_again_is_not_reported_empty() {
    let settings = Settings { max_per_response: Some(1), ..Settings::default() };
    let mut pair = Pair { session: DeltaSession::new(settings), ..with_members() };
    pair.exchange(EDS, &["a", GLOB], &[]);
    pair.set(&[(EDS, "a", "1")]);
    pair.responses();
    pair.remove(EDS, A);
    pair.remove(EDS, B);
    pair.answer(EDS, None);
    assert_eq!(short(pair.responses()), ["EDS 4: -GLOB"]);
    pair.set(&[(EDS, A, "a")]);
    pair.answer(EDS, None);
    assert_eq!(short(pair.settle()), ["EDS 5: A@5=a", "EDS 5: -B"]);
    // The glob becomes empty while another response is due.
    pair.set(&[(EDS, "a", "2")]);
    pair.responses();
    pair.remove(EDS, A);
    pair.set(&[(EDS, "a", "3")]);
    pair.answer(EDS, None);
    assert_eq!(short(pair.responses()), ["EDS 8: a@8=3"]);
    pair.set(&[(EDS, B, "b")]);
    pair.answer(EDS, None);
    assert_eq!(short(pair.settle()), ["EDS 9: -A", "EDS 9: B@9=b"]);
}

#[test]
fn several_globs_and_names_stand_beside_each_other() {
    let mut pair = with_members();
    pair.set(&[(EDS, "xdstp://auth/T/bar/c", "c")]);
    let sent = short(pair.exchange(EDS, &[GLOB, A, "xdstp://auth/T/bar/*"], &[]));
    assert_eq!(sent, ["EDS 2: xdstp://auth/T/bar/c@2=c A@1=a B@1=b"]);
    assert_eq!(short(pair.exchange(EDS, &[], &[GLOB])), nothing());
    pair.set(&[(EDS, A, "a2"), (EDS, B, "b2")]);
    assert_eq!(short(pair.settle()), ["EDS 3: A@3=a2"]);
}

#[test]
fn b2_20_a_member_unsubscribed_under_its_glob_is_sent_again() {
    let mut pair = with_members();
    pair.exchange(EDS, &[GLOB, A], &[]);
    assert_eq!(short(pair.exchange(EDS, &[], &[A])), ["EDS 1: A@1=a"]);
    pair.exchange(EDS, &["*"], &[]);
    assert_eq!(short(pair.exchange(EDS, &[], &[GLOB])), ["EDS 1: A@1=a B@1=b"], "under the wildcard");
    assert_eq!(short(pair.exchange(EDS, &[GLOB], &["*"])), ["EDS 1: A@1=a B@1=b"]);
    pair.set(&[(EDS, "other", "1"), (EDS, A, "a2")]);
    assert_eq!(short(pair.settle()), ["EDS 2: A@2=a2"]);
}

#[test]
fn b2_33_members_that_the_client_holds_are_compared() {
    let mut pair = with_members();
    let gone = "xdstp://auth/T/foo/z?y=2&x=1";
    let sent = pair.reconnect(EDS, &[GLOB], &[(A, "1"), (B, "0"), (gone, "1")]);
    assert_eq!(short(sent), ["EDS 1: B@1=b -xdstp://auth/T/foo/z?x=1&y=2"]);
    pair.remove(EDS, A);
    pair.remove(EDS, B);
    assert_eq!(short(pair.reconnect(EDS, &[GLOB], &[(B, "1")])), ["EDS 3: -GLOB -B"]);
}

#[test]
fn an_unsubscribed_glob_cancels_the_updates_due_for_it() {
    let mut pair = with_members();
    pair.exchange(EDS, &[GLOB], &[]);
    pair.set(&[(EDS, A, "a2")]);
    assert_eq!(short(pair.responses()), ["EDS 2: A@2=a2"]);
    pair.set(&[(EDS, A, "a3")]);
    pair.change(EDS, &[], &[GLOB]);
    pair.answer(EDS, None);
    assert_eq!(pair.settle(), nothing());
}
