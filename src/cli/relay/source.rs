//! The management server's resources, as a stream of updates for each subscribed name.

use std::sync::Arc;

use futures_util::{
    StreamExt,
    future::ready,
    stream::{self, BoxStream},
};

use super::raw::{Raw, State};
use crate::{Client, client::WatchAll, name::ResourceName};

/// A subscribed name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic {
    /// The index of its type in [`TYPES`](super::raw::TYPES).
    pub(crate) of_type: usize,
    /// The name of a resource or a collection, or `*`.
    pub(crate) name: Arc<str>,
}

/// An update of a topic.
#[derive(Debug)]
pub(crate) enum Update {
    /// The state of a resource: that of the name, or a member of the collection.
    Resource { name: Arc<str>, state: State },
    /// All members of the collection were received.
    Complete,
}

pub(crate) type Source = BoxStream<'static, (Topic, Update)>;

impl Topic {
    /// Whether it stands for many resources.
    pub(crate) fn is_collection(&self) -> bool {
        &*self.name == "*" || ResourceName::parse(&self.name).is_ok_and(|name| name.is_glob())
    }
}

/// Subscribes to a topic, until the stream is dropped.
pub(crate) fn source(client: &Client, topic: &Topic) -> Source {
    match topic.of_type {
        0 => source_of::<0>(client, topic),
        1 => source_of::<1>(client, topic),
        2 => source_of::<2>(client, topic),
        3 => source_of::<3>(client, topic),
        4 => source_of::<4>(client, topic),
        5 => source_of::<5>(client, topic),
        6 => source_of::<6>(client, topic),
        7 => source_of::<7>(client, topic),
        other => unreachable!("there is no type {other}"),
    }
}

fn source_of<const TYPE: usize>(client: &Client, topic: &Topic) -> Source {
    let of = topic.clone();
    if topic.is_collection() {
        let updates = members(client.watch_all::<Raw<TYPE>>(&*topic.name));
        return updates.map(move |update| (of.clone(), update)).boxed();
    }
    let watch = client.watch::<Raw<TYPE>>(&topic.name);
    watch
        .map(move |seen| {
            let update = Update::Resource { name: of.name.clone(), state: State::from(&*seen) };
            (of.clone(), update)
        })
        .boxed()
}

fn members<const TYPE: usize>(all: WatchAll<Raw<TYPE>>) -> BoxStream<'static, Update> {
    let mut whole = all.clone();
    // A complete collection without members is the only complete state without a change of a member.
    let nothing =
        stream::once(
            async move { whole.wait_for(|members| members.is_complete() && members.is_empty()).await },
        );
    let nothing = nothing.filter_map(|seen| ready(seen.map(|_| Update::Complete)));
    let changes = all.changes().filter(|change| ready(!change.of_collection)).flat_map(|change| {
        let update = Update::Resource { name: change.name, state: State::from(&*change.observed) };
        stream::iter([Some(update), change.complete.then_some(Update::Complete)].into_iter().flatten())
    });
    stream::select(changes, nothing).boxed()
}
