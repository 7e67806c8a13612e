//! The relay: it subscribes to the resources that its clients subscribe to, and passes them on.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::{
    StreamExt,
    stream::{self, AbortHandle, Abortable, ReadyChunks, SelectAll},
};
use tokio::time::{Instant, sleep_until};
use xdskit::{
    Client,
    control_plane::{ControlPlane, ControlPlaneBuilder, SubscriptionChange},
    error::Code,
};

use super::{
    figures::Figures,
    mirror::{Counters, Mirror},
    raw::{MAX_TYPES, Types},
    source::{Source, Topic, Update, source},
};

/// A relay, which serves the resources that its clients receive.
pub struct Relay {
    /// The two clients have separate streams: on a shared one, a resource for a name would look like a member of the
    /// wildcard, too.
    names: Client,
    /// For collections and wildcards.
    collections: Client,
    /// Serves the clients.
    control_plane: ControlPlane,
    /// The statistics.
    figures: Arc<Figures>,
    /// The time for which a topic without subscriptions is kept.
    linger: Duration,
    /// The resources as they are served.
    mirror: Mirror,
    /// The types that were requested.
    types: Types,
    /// The subscribed topics.
    topics: BTreeMap<Topic, Subscription>,
    /// The updates of all topics, several at once.
    sources: ReadyChunks<SelectAll<Abortable<Source>>>,
    /// Topics without subscriptions, by the time at which they are unsubscribed from.
    idle: VecDeque<(Instant, Topic)>,
}

/// A subscribed topic.
struct Subscription {
    /// Ends the updates.
    source: AbortHandle,
    /// The time at which it is unsubscribed from, if it has no subscriptions.
    until: Option<Instant>,
}

impl Relay {
    /// A relay with two clients of a management server, one for names and one for wildcards and other collections, and
    /// with the settings of its own control plane. A topic without subscriptions is kept for `linger`.
    pub fn new(
        [names, collections]: [Client; 2],
        control_plane: ControlPlaneBuilder,
        mirror: Mirror,
        linger: Duration,
    ) -> Self {
        let figures = Arc::new(Figures::new());
        let observer = figures.clone();
        // Versions of the state-of-the-world variant that differ from those of previous runs.
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let control_plane = control_plane
            .on_demand(true)
            .identifier("xdskit relay")
            .version_prefix(format!("{run:x}-"))
            .observe(move |event| observer.observe(event))
            .build();
        // With a source that never ends, the set of sources is never empty.
        let never: Source = stream::pending().boxed();
        let sources = SelectAll::from_iter([Abortable::new(never, AbortHandle::new_pair().1)]);
        Self {
            names,
            collections,
            control_plane,
            figures,
            linger,
            mirror,
            types: Types::default(),
            topics: BTreeMap::new(),
            sources: sources.ready_chunks(BATCH),
            idle: VecDeque::new(),
        }
    }

    /// Serves the clients.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The statistics.
    pub fn figures(&self) -> Arc<Figures> {
        self.figures.clone()
    }

    /// Relays until the client is shut down.
    pub async fn run(mut self) {
        let mut changes = self.control_plane.subscription_changes();
        loop {
            let next = self.idle.front().map(|(at, _)| *at);
            tokio::select! {
                Some(change) = changes.next() => self.on_subscription_change(&change),
                Some(batch) = self.sources.next() => self.on_updates(batch),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.unsubscribe_idle(),
                else => return,
            }
            self.figures.set_sizes(self.topics.len(), &self.mirror);
        }
    }

    /// Subscribes to a new topic. One that is no longer needed lingers, since a client may be about to return.
    fn on_subscription_change(&mut self, change: &SubscriptionChange) {
        let Some(ty) = self.types.of(&change.type_url) else { return self.refuse(change) };
        let topic = Topic { type_url: change.type_url.clone(), name: change.name.clone() };
        match (self.topics.get_mut(&topic), change.subscribed) {
            // The entry in `idle` stays, and is skipped when its time has come.
            (Some(subscription), true) => subscription.until = None,
            (Some(subscription), false) => {
                let until = Instant::now() + self.linger;
                subscription.until = Some(until);
                self.idle.push_back((until, topic));
            }
            (None, true) => {
                let (handle, registration) = AbortHandle::new_pair();
                let client = if topic.is_collection() { &self.collections } else { &self.names };
                let updates = Abortable::new(source(client, &topic, ty), registration);
                self.sources.get_mut().push(updates);
                self.topics.insert(topic, Subscription { source: handle, until: None });
            }
            (None, false) => {}
        }
    }

    /// Answers the subscription to a name of a type above the limit with an error, and logs it.
    fn refuse(&self, SubscriptionChange { type_url, name, subscribed, .. }: &SubscriptionChange) {
        if !subscribed {
            // The last subscription has ended, and the error goes with it: clients may invent any number of types.
            self.control_plane.remove(type_url, name);
            return;
        }
        let reason = format!("the relay passes on {MAX_TYPES} types, and others were requested before");
        self.figures.report_error(format!("{type_url} {name:?} is not relayed: {reason}"));
        self.control_plane.update(|tx| {
            tx.set_error(type_url, name, Code::Unimplemented as i32, &reason);
        });
    }

    /// Applies a batch of updates, which are sent to the clients together.
    fn on_updates(&mut self, batch: Vec<(Topic, Update)>) {
        let Self { mirror, topics, control_plane, figures, .. } = self;
        let mut counters = Counters::default();
        control_plane.update(|tx| {
            for (topic, update) in batch {
                // Updates of the batch may be older than the end of their topic.
                if topics.contains_key(&topic) {
                    counters += mirror.apply(&topic, update, tx);
                }
            }
        });
        figures.count_updates(counters);
    }

    /// Unsubscribes from topics that have had no subscriptions for long enough.
    fn unsubscribe_idle(&mut self) {
        let now = Instant::now();
        let Self { mirror, topics, idle, control_plane, linger, .. } = self;
        control_plane.update(|tx| {
            while idle.front().is_some_and(|(at, _)| *at <= now)
                && let Some((at, topic)) = idle.pop_front()
            {
                // Subscribed to again since: the entry is outdated, and the topic has another one if it is idle.
                let Some(subscription) =
                    topics.get_mut(&topic).filter(|subscription| subscription.until == Some(at))
                else {
                    continue;
                };
                if control_plane.subscriptions().streams(&topic.type_url, &topic.name) > 0 {
                    // There is a new subscription whose event has not been processed yet.
                    subscription.until = Some(now + *linger);
                    idle.push_back((now + *linger, topic));
                    continue;
                }
                subscription.source.abort();
                topics.remove(&topic);
                mirror.remove_topic(&topic, tx);
            }
        });
    }
}

/// The maximum number of updates in a batch.
const BATCH: usize = 1000;
