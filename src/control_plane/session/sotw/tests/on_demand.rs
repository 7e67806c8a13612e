//! A store that is filled on demand.

use super::*;

fn on_demand() -> Pair {
    Pair { store: Store::new().with_on_demand(true), ..Pair::default() }
}

#[test]
fn a_complete_response_waits_for_all_names_of_the_first_request() {
    let mut pair = on_demand();
    pair.set(&[(CDS, "a", "a1"), (EDS, "a", "e1")]);
    assert_eq!(pair.exchange(CDS, &["a", "b"]), [""; 0], "it would imply that b does not exist");
    assert_eq!(
        pair.exchange(EDS, &["a", "b"]),
        ["ClusterLoadAssignment 1: e1"],
        "it implies nothing about b"
    );
    pair.store.update(|tx| {
        tx.set_absent(CDS, "b");
    });
    assert_eq!(pair.responses(), ["Cluster 2: a1"]);
    assert_eq!(
        pair.exchange(CDS, &["a", "b", "c"]),
        ["Cluster 2: a1"],
        "what is new is not known to the client"
    );
    pair.request(CDS, &["a", "b", "c"]);
    pair.set(&[(CDS, "c", "c1")]);
    assert_eq!(pair.responses(), ["Cluster 3: a1 c1"]);
}

#[test]
fn an_unsubscribed_name_is_not_waited_for() {
    let mut pair = on_demand();
    pair.set(&[(CDS, "a", "a1")]);
    assert_eq!(pair.exchange(CDS, &["a", "b"]), [""; 0]);
    assert_eq!(pair.exchange(CDS, &["a"]), ["Cluster 1: a1"]);
}

#[test]
fn a_wildcard_is_answered_when_it_is_complete() {
    let mut pair = on_demand();
    pair.set(&[(CDS, "a", "a1"), (EDS, "a", "e1")]);
    assert_eq!(pair.exchange(CDS, &[]), [""; 0]);
    assert_eq!(pair.exchange(EDS, &["*"]), [""; 0]);
    pair.store.update(|tx| {
        tx.set_complete(CDS, "*").set_complete(EDS, "*");
    });
    assert_eq!(pair.responses(), ["Cluster 2: a1", "ClusterLoadAssignment 2: e1"]);
}

#[test]
fn wildcards_do_not_have_what_is_not_listed() {
    for (of_type, short) in [(CDS, "Cluster"), (EDS, "ClusterLoadAssignment")] {
        let mut pair = Pair::with(&[(of_type, "b", "b1")]);
        let unlisted = |text: &'static str| AnyResource::new(of_type, "a", text).with_listed(false);
        pair.store.update(|tx| {
            tx.set(unlisted("a1"));
        });
        assert_eq!(pair.exchange(of_type, &["*"]), [format!("{short} 2: b1")]);
        pair.request(of_type, &["*"]);
        pair.store.update(|tx| {
            tx.set(unlisted("a2"));
        });
        assert_eq!(pair.responses(), [""; 0]);
        let both = if of_type == CDS { "a2 b1" } else { "a2" };
        assert_eq!(pair.exchange(of_type, &["*", "a"]), [format!("{short} 3: {both}")]);
    }
}

#[test]
fn a_session_reports_changes_of_the_subscribed_names() {
    let mut pair = Pair::default();
    let changes = |subscribed: &[&str], unsubscribed: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        NameChanges { subscribed: owned(subscribed), unsubscribed: owned(unsubscribed) }
    };
    pair.request(CDS, &[]);
    assert_eq!(*pair.session.changes(), changes(&["*"], &[]));
    pair.responses();
    pair.request(CDS, &["b", "a"]);
    assert_eq!(*pair.session.changes(), changes(&["a", "b"], &["*"]));
    pair.responses();
    pair.request(CDS, &["b", "c"]);
    assert_eq!(*pair.session.changes(), changes(&["c"], &["a"]));
    assert_eq!(pair.session.subscriptions().collect::<Vec<_>>(), [(CDS, "b"), (CDS, "c")]);
}
