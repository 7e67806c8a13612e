//! A store that is filled on demand.

use super::*;
use crate::control_plane::session::NameChanges;

fn on_demand() -> Pair {
    Pair { store: Store::new().with_on_demand(true), ..Pair::default() }
}

fn absent(pair: &mut Pair, type_url: &str, name: &str) {
    pair.store.update(|tx| {
        tx.set_absent(type_url, name);
    });
}

fn complete(pair: &mut Pair, type_url: &str, name: &str) {
    pair.store.update(|tx| {
        tx.set_complete(type_url, name);
    });
}

#[test]
fn nothing_is_sent_of_unknown_resources_until_they_are_known() {
    let mut pair = on_demand();
    assert_eq!(pair.exchange(CDS, &["a", "b", "c"], &[]), nothing());
    pair.set(&[(CDS, "a", "a1")]);
    assert_eq!(pair.settle(), ["Cluster 1: a@1=a1"]);
    absent(&mut pair, CDS, "b");
    assert_eq!(pair.settle(), ["Cluster 2: -b"]);
    absent(&mut pair, CDS, "b");
    assert_eq!(pair.settle(), nothing(), "it is known");
    pair.set(&[(CDS, "b", "b1")]);
    assert_eq!(pair.settle(), ["Cluster 3: b@3=b1"]);
    absent(&mut pair, CDS, "b");
    assert_eq!(pair.settle(), ["Cluster 4: -b"]);
}

#[test]
fn what_is_forgotten_is_not_removed() {
    let mut pair = on_demand();
    pair.set(&[(CDS, "a", "a1")]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=a1"]);
    pair.remove(CDS, "a");
    assert_eq!(pair.settle(), nothing());
    absent(&mut pair, CDS, "a");
    pair.remove(CDS, "a");
    assert_eq!(pair.exchange(CDS, &["a"], &[]), nothing());
}

#[test]
fn a_wildcard_is_answered_when_it_is_complete() {
    let mut pair = on_demand();
    pair.set(&[(CDS, "a", "a1")]);
    assert_eq!(pair.exchange(CDS, &[], &[]), nothing());
    complete(&mut pair, CDS, "*");
    assert_eq!(pair.settle(), ["Cluster 2: a@1=a1"]);
    pair.remove(CDS, "a");
    assert_eq!(pair.settle(), ["Cluster 3: -a"]);
    complete(&mut pair, EDS, "*");
    assert_eq!(pair.exchange(EDS, &[], &[]), ["ClusterLoadAssignment 1:"], "there are none");
}

#[test]
fn a_glob_is_empty_when_that_is_known() {
    let (glob, member) =
        ("xdstp://auth/envoy.config.cluster.v3.Cluster/*", "xdstp://auth/envoy.config.cluster.v3.Cluster/a");
    let mut pair = on_demand();
    assert_eq!(pair.exchange(CDS, &[glob], &[]), nothing());
    complete(&mut pair, CDS, glob);
    assert_eq!(pair.settle(), [format!("Cluster 1: -{glob}")]);
    pair.set(&[(CDS, member, "a1")]);
    assert_eq!(pair.settle(), [format!("Cluster 2: {member}@2=a1")]);
}

#[test]
fn what_the_client_holds_is_compared_when_something_is_known_of_it() {
    let mut pair = on_demand();
    let held = [("a", "7"), ("b", "7"), ("c", "7"), ("d", "7")];
    assert_eq!(pair.reconnect(CDS, &["a", "b", "c"], &held), ["Cluster 0: -d"], "d is not subscribed");
    pair.answer(CDS, None);
    let own =
        |name: &'static str, version: &'static str| AnyResource::new(CDS, name, "x").with_version(version);
    pair.store.update(|tx| {
        tx.set(own("a", "7")).set(own("b", "8")).set_absent(CDS, "c");
    });
    assert_eq!(pair.settle(), ["Cluster 1: b@8=x -c"]);
}

#[test]
fn wildcards_do_not_have_what_is_not_listed() {
    let mut pair = Pair::default();
    let unlisted = |text: &'static str| AnyResource::new(CDS, "a", text).with_listed(false);
    pair.store.update(|tx| {
        tx.set(unlisted("1"));
    });
    assert_eq!(pair.exchange(CDS, &[], &[]), ["Cluster 1:"]);
    assert_eq!(pair.exchange(CDS, &["a"], &[]), ["Cluster 1: a@1=1"]);
    assert_eq!(pair.exchange(CDS, &[], &["a"]), ["Cluster 1: -a"], "the wildcard does not have it");
    pair.set(&[(CDS, "a", "2")]);
    assert_eq!(pair.settle(), ["Cluster 2: a@2=2"]);
    pair.store.update(|tx| {
        tx.set(unlisted("2"));
    });
    assert_eq!(pair.settle(), ["Cluster 3: -a"]);
    assert_eq!(pair.reconnect(CDS, &[], &[("a", "3")]), ["Cluster 3: -a"]);
}

#[test]
fn a_session_reports_changes_of_the_subscribed_names() {
    let mut pair = Pair::default();
    let changes = |subscribed: &[&str], unsubscribed: &[&str]| {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        NameChanges { subscribed: owned(subscribed), unsubscribed: owned(unsubscribed) }
    };
    pair.change(CDS, &["a", "b", "a"], &[]);
    assert_eq!(*pair.session.changes(), changes(&["a", "b"], &[]));
    pair.change(EDS, &[], &[]);
    assert_eq!(*pair.session.changes(), changes(&["*"], &[]));
    pair.change(CDS, &["b", "c"], &["a", "d", "c"]);
    assert_eq!(*pair.session.changes(), changes(&["c"], &["a", "c"]));
    assert_eq!(pair.session.subscriptions().collect::<Vec<_>>(), [(CDS, "b"), (EDS, "*")]);
}
