//! The management server's resources, as a stream of updates for each subscribed name.

use std::sync::Arc;

use futures_util::{
    StreamExt,
    future::ready,
    stream::{self, BoxStream},
};
use xdskit::{Client, client::WatchAll, name::ResourceName, resource::ResourceType};

use super::raw::{Raw, UpstreamState};

/// A subscribed name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Topic {
    /// The type.
    pub(crate) type_url: Arc<str>,
    /// The name of a resource or a collection, or `*`.
    pub(crate) name: Arc<str>,
}

/// An update of a topic.
#[derive(Debug)]
pub(crate) enum Update {
    /// The state of a resource: that of the name, or a member of the collection.
    Resource { name: Arc<str>, state: UpstreamState },
    /// All members of the collection were received.
    Complete,
}

/// The updates of a topic.
pub(crate) type Source = BoxStream<'static, (Topic, Update)>;

impl Topic {
    /// Whether it stands for many resources.
    pub(crate) fn is_collection(&self) -> bool {
        &*self.name == "*" || ResourceName::parse(&self.name).is_ok_and(|name| name.is_glob())
    }
}

/// Subscribes to a topic of a type, until the stream is dropped.
pub(crate) fn source(client: &Client, topic: &Topic, ty: ResourceType) -> Source {
    let of = topic.clone();
    if topic.is_collection() {
        let updates = members(client.watch_all_of_type(ty, &*topic.name));
        return updates.map(move |update| (of.clone(), update)).boxed();
    }
    let watch = client.watch_type::<Raw>(ty, &topic.name);
    watch
        .map(move |seen| {
            let update = Update::Resource { name: of.name.clone(), state: UpstreamState::from(&*seen) };
            (of.clone(), update)
        })
        .boxed()
}

/// The updates of a collection.
fn members(all: WatchAll<Raw>) -> BoxStream<'static, Update> {
    let mut whole = all.clone();
    // A complete collection without members is the only complete state without a change of a member.
    let nothing =
        stream::once(
            async move { whole.wait_for(|members| members.is_complete() && members.is_empty()).await },
        );
    let nothing = nothing.filter_map(|seen| ready(seen.map(|_| Update::Complete)));
    let changes = all.changes().filter(|change| ready(!change.of_collection)).flat_map(|change| {
        let update = Update::Resource { name: change.name, state: UpstreamState::from(&*change.observed) };
        stream::iter([Some(update), change.complete.then_some(Update::Complete)].into_iter().flatten())
    });
    stream::select(changes, nothing).boxed()
}
