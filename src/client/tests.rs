//! Views and watches with a hand-written driver.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "tests")]

use std::{
    sync::{Arc, Weak, mpsc as std_mpsc},
    task::Poll,
};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::sync::{
    mpsc::{self, UnboundedReceiver},
    watch,
};

use super::{
    command::{Command, Publish},
    identity::Identity,
    observer::Observer,
    registry::{About, Role},
    *,
};
use crate::{
    base::WatchId,
    config::{Bootstrap, Node, Server},
    engine::{SelectedName, Selection},
    error::{Blame, Code},
    lrs::{LoadSettings, Loads},
    observed::{ErasedMembers, ErasedObserved, Member},
    resource::{Context, Erased, Invalid, ResourceType, Version},
};

#[derive(Debug, PartialEq)]
struct Text(&'static str);

/// Another type for the same type URL.
#[derive(Debug)]
struct Impostor;

#[tokio::test]
async fn watches_of_one_name_share_a_slot() {
    let (client, mut driver) = client();
    let first = client.watch::<Text>("a");
    let (watch_id, _) = driver.watched("a");
    let second = client.watch::<Text>("a");
    let third = second.clone();
    driver.expect_nothing();
    drop((first, third));
    driver.expect_nothing();
    drop(second);
    assert_eq!(driver.unwatched(), watch_id);
    driver.expect_nothing();
}

#[tokio::test]
async fn a_name_that_is_watched_again_is_another_watch() {
    let (client, mut driver) = client();
    drop(client.watch::<Text>("a"));
    let again = client.watch::<Text>("a");
    let (first, gone) = driver.watched("a");
    assert_eq!(driver.unwatched(), first);
    let (second, publish) = driver.watched("a");
    assert_ne!(first, second);
    assert!(gone.upgrade().is_none());
    publish.upgrade().unwrap().publish(present("one")).wake();
    assert_eq!(text(&again.latest()), Some("one"));
    let joined = client.watch::<Text>("a");
    driver.expect_nothing();
    assert_eq!(text(&joined.latest()), Some("one"));
}

/// The last watcher is dropped while another one is created: the new watch must stay registered.
#[tokio::test]
async fn a_view_that_ends_does_not_take_its_successor_along() {
    let (client, mut driver) = client();
    let old = client.watch::<Text>("a");
    let (old_id, _) = driver.watched("a");
    drop(old);
    driver.unwatched();
    let _new = client.watch::<Text>("a");
    driver.watched("a");
    // Simulates that the end of the old watch is processed after the beginning of the new one.
    client.registry.forget(&About::Resources(Text::TYPE_URL, Selection::One("a".into())), old_id);
    assert_eq!(driver.unwatched(), old_id);
    let _joined = client.watch::<Text>("a");
    driver.expect_nothing();
}

#[tokio::test]
async fn a_type_url_belongs_to_the_type_that_was_first() {
    let (client, mut driver) = client();
    let _first = client.watch::<Text>("a");
    driver.watched("a");
    let error = client.watch::<Impostor>("a").ready().now_or_never().unwrap().unwrap_err();
    assert_eq!((error.code(), error.blame()), (Code::FailedPrecondition, Blame::Local));
    assert!(error.reason().contains("::Text"), "{error}");
    let error =
        client.watch_all::<Impostor>(ResourceSelector::All).ready().now_or_never().unwrap().unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    // The driver ignores the end of unknown views.
    driver.unwatched();
    driver.unwatched();
    driver.expect_nothing();
}

#[tokio::test]
async fn a_watch_of_all_is_not_one_of_a_name() {
    let (client, mut driver) = client();
    let one = client.watch::<Text>("*");
    let (one_id, _) = driver.watched("*");
    let all = client.watch_all::<Text>(ResourceSelector::All);
    let Command::Watch { watch_id: all_id, names: Selection::All, .. } = driver.0.try_recv().unwrap() else {
        panic!()
    };
    drop(one);
    assert_eq!(driver.unwatched(), one_id);
    drop(all);
    assert_eq!(driver.unwatched(), all_id);
}

#[tokio::test]
async fn watches_end_at_once_when_there_is_no_driver() {
    let (client, driver) = client();
    drop(driver);
    let mut late = client.watch::<Text>("a");
    assert_eq!(late.next().now_or_never(), Some(None));
    let error = late.ready().now_or_never().unwrap().unwrap_err();
    assert_eq!((error.code(), error.name(), error.node_id()), (Code::Cancelled, "a", "n1"));
    client.shutdown().now_or_never().expect("it has ended");
}

#[tokio::test]
async fn a_dropped_future_loses_nothing() {
    let (client, mut driver) = client();
    let mut watch = client.watch::<Text>("a");
    let (_, publish) = driver.watched("a");
    assert_eq!(watch.next().now_or_never(), None);
    assert!(watch.wait_for(|_| false).now_or_never().is_none());
    publish.upgrade().unwrap().publish(present("one")).wake();
    assert!(watch.wait_for(|_| false).now_or_never().is_none());
    assert_eq!(watch.wait_for(|_| true).now_or_never().flatten().as_deref().and_then(text), Some("one"));
}

#[tokio::test]
async fn on_change_begins_no_call_after_its_guard_is_dropped() {
    let (client, mut driver) = client();
    let (calls, called) = std_mpsc::channel();
    let guard =
        client.on_change::<Text, _>("a", move |seen| calls.send(text(seen).unwrap().to_owned()).unwrap());
    let (_, publish) = driver.watched("a");
    let watch = publish.upgrade().unwrap();
    watch.publish(present("one")).wake();
    tokio::task::yield_now().await;
    assert_eq!(called.try_recv().unwrap(), "one");
    // The task is woken, and finds the guard dropped.
    watch.publish(present("two")).wake();
    drop(guard);
    drop(watch);
    while publish.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(called.try_recv(), Err(std_mpsc::TryRecvError::Disconnected));
    driver.unwatched();
}

#[tokio::test]
async fn changes_skip_what_came_and_went_unseen() {
    let (client, mut driver) = client();
    let all = client.watch_all::<Text>(ResourceSelector::All);
    let Command::Watch { publish, .. } = driver.0.try_recv().unwrap() else { panic!() };
    let publish = |members| publish.upgrade().unwrap().publish(Arc::new(members)).wake();
    let mut changes = all.changes();
    let mut next = || match changes.next().now_or_never() {
        Some(Some(change)) => {
            Poll::Ready((change.name.to_string(), text(&change.observed).map(str::to_owned), change.complete))
        }
        Some(None) => panic!("it has not ended"),
        None => Poll::Pending,
    };
    let mut members = members();
    members.map.insert("a".into(), Member(present("1")));
    members.map.insert("b".into(), Member(present("1")));
    publish(members.clone());
    assert_eq!(next(), Poll::Ready(("a".into(), Some("1".into()), false)));
    assert_eq!(next(), Poll::Ready(("b".into(), Some("1".into()), false)), "the state is not complete yet");
    members.map.insert("c".into(), Member(present("1")));
    publish(members.clone());
    members.map.remove("c");
    members.map.remove("a");
    members.complete = true;
    publish(members.clone());
    assert_eq!(next(), Poll::Ready(("a".into(), None, true)));
    assert_eq!(next(), Poll::Pending);
    members.map.insert("a".into(), Member(present("2")));
    publish(members);
    assert_eq!(next(), Poll::Ready(("a".into(), Some("2".into()), true)));
    assert_eq!(changes.members().unwrap().len(), 2);
}

/// The commands that a driver receives.
struct Commands(UnboundedReceiver<Command>);

impl Commands {
    fn watched(&mut self, expected: &str) -> (WatchId, Weak<dyn Publish>) {
        match self.0.try_recv().unwrap() {
            Command::Watch { watch_id, ty, names: Selection::One(name), publish } => {
                assert_eq!((ty.type_url(), name), (Text::TYPE_URL, SelectedName::from(expected)));
                (watch_id, publish)
            }
            other => panic!("{other:?}"),
        }
    }

    fn unwatched(&mut self) -> WatchId {
        match self.0.try_recv().unwrap() {
            Command::Unwatch { watch_id } => watch_id,
            other => panic!("{other:?}"),
        }
    }

    fn expect_nothing(&mut self) {
        assert!(self.0.try_recv().is_err());
    }
}

impl Resource for Text {
    const TYPE_URL: &'static str = "type.googleapis.com/test.Text";

    fn parse(_: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        Err(Invalid::new("made by hand"))
    }
}

impl Resource for Impostor {
    const TYPE_URL: &'static str = Text::TYPE_URL;

    fn parse(_: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self)
    }
}

fn client() -> (Client, Commands) {
    let (commands, received) = mpsc::unbounded_channel();
    let bootstrap = Bootstrap::builder().server(Server::new("127.0.0.1:1").insecure()).build().unwrap();
    let bootstrap = Arc::new(bootstrap);
    let observer = Observer::new(Client::builder(bootstrap.clone()).into_observing(), watch::channel(()).1);
    let loads = Loads::new(LoadSettings::default());
    let identity = Identity::new(&Node::new("n1"), "test");
    let registry = Registry::new(commands, identity, bootstrap, Role::Client, loads);
    registry.extensions().insert(observer);
    (Client { registry, runtime: Handle::current(), share: None }, Commands(received))
}

fn present(text: &'static str) -> Erased {
    let resource: Erased = Arc::new(Text(text));
    let observed =
        ErasedObserved::Present { resource, version: Version::from("1"), warning: None, source: None };
    ResourceType::of::<Text>().observe(observed)
}

fn members() -> ErasedMembers {
    ErasedMembers {
        name: "*".into(),
        map: imbl::OrdMap::new(),
        complete: false,
        warning: None,
        type_url: Text::TYPE_URL,
        node: "n1".into(),
    }
}

fn text(seen: &Observed<Text>) -> Option<&'static str> {
    seen.resource().map(|text| text.0)
}

mod callbacks;
mod costs;
#[cfg(feature = "tower")]
mod discover;
mod durations;
mod life;
#[cfg(feature = "test-util")]
mod load_reports;
mod recorders;
mod resolution;
