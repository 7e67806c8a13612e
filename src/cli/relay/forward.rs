//! The relay: it asks for what its clients ask for, and gives them what it gets.

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

use super::{
    figures::Figures,
    raw::TYPES,
    source::{News, Source, Topic, source},
    stock::{Stock, Tally},
};
use crate::{
    Client,
    control_plane::{ControlPlane, WantedChange},
};

/// Serves what its clients get.
pub(crate) struct Relay {
    /// They have a stream each: on one alone what was sent for a name would look like a member of the wildcard, too.
    names: Client,
    collections: Client,
    control_plane: ControlPlane,
    figures: Arc<Figures>,
    linger: Duration,
    stock: Stock,
    topics: BTreeMap<Topic, Asked>,
    sources: ReadyChunks<SelectAll<Abortable<Source>>>,
    /// Topics that nobody wants, by the time when they are let go.
    unwanted: VecDeque<(Instant, Topic)>,
}

/// A topic that is asked for.
struct Asked {
    source: AbortHandle,
    /// When it is let go, if nobody wants it.
    until: Option<Instant>,
}

impl Relay {
    /// A relay of what two clients of a management server get, one for names and one for wildcards and other collections. What
    /// nobody wants any more is kept for a while.
    pub(crate) fn new([names, collections]: [Client; 2], linger: Duration) -> Self {
        let figures = Arc::new(Figures::new());
        let observer = figures.clone();
        // Versions of the state-of-the-world variant that no run before has used.
        let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let control_plane = ControlPlane::builder()
            .on_demand(true)
            .identifier("xdskit relay")
            .version_prefix(format!("{run:x}-"))
            .observe(move |event| observer.observe(event))
            .build();
        // With a source that never ends there is always something to wait for.
        let never: Source = stream::pending().boxed();
        let sources = SelectAll::from_iter([Abortable::new(never, AbortHandle::new_pair().1)]);
        Self {
            names,
            collections,
            control_plane,
            figures,
            linger,
            stock: Stock::default(),
            topics: BTreeMap::new(),
            sources: sources.ready_chunks(BATCH),
            unwanted: VecDeque::new(),
        }
    }

    pub(crate) fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    pub(crate) fn figures(&self) -> Arc<Figures> {
        self.figures.clone()
    }

    /// Relays until the client is shut down.
    pub(crate) async fn run(mut self) {
        let mut wanted = self.control_plane.wanted_changes();
        loop {
            let next = self.unwanted.front().map(|(at, _)| *at);
            tokio::select! {
                Some(change) = wanted.next() => self.on_wanted(&change),
                Some(news) = self.sources.next() => self.on_news(news),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => self.let_go(),
                else => return,
            }
            self.figures.note_stock(self.topics.len(), &self.stock);
        }
    }

    fn on_wanted(&mut self, change: &WantedChange) {
        let Some(of_type) = TYPES.iter().position(|known| *known == &*change.type_url) else {
            if change.wanted {
                self.figures.tell(format!(
                    "{} is not relayed, but clients request {:?}",
                    change.type_url, change.name
                ));
            }
            return;
        };
        let topic = Topic { of_type, name: change.name.clone() };
        match (self.topics.get_mut(&topic), change.wanted) {
            (Some(asked), true) => asked.until = None,
            (Some(asked), false) => {
                let until = Instant::now() + self.linger;
                asked.until = Some(until);
                self.unwanted.push_back((until, topic));
            }
            (None, true) => {
                let (handle, registration) = AbortHandle::new_pair();
                let client = if topic.is_collection() { &self.collections } else { &self.names };
                let news = Abortable::new(source(client, &topic), registration);
                self.sources.get_mut().push(news);
                self.topics.insert(topic, Asked { source: handle, until: None });
            }
            (None, false) => {}
        }
    }

    /// All news of a batch get to the clients at once.
    fn on_news(&mut self, batch: Vec<(Topic, News)>) {
        let Self { stock, topics, control_plane, figures, .. } = self;
        let mut tally = Tally::default();
        control_plane.update(|tx| {
            for (topic, news) in batch {
                if topics.contains_key(&topic) {
                    tally += stock.take(&topic, news, tx);
                }
            }
        });
        figures.note_news(tally);
    }

    /// Lets go what nobody wanted for long enough.
    fn let_go(&mut self) {
        let now = Instant::now();
        let Self { stock, topics, unwanted, control_plane, linger, .. } = self;
        control_plane.update(|tx| {
            while unwanted.front().is_some_and(|(at, _)| *at <= now)
                && let Some((at, topic)) = unwanted.pop_front()
            {
                let Some(asked) = topics.get_mut(&topic).filter(|asked| asked.until == Some(at)) else {
                    continue;
                };
                if control_plane.wanted().streams(TYPES[topic.of_type], &topic.name) > 0 {
                    // Somebody wants it again, of which we have not been told.
                    asked.until = Some(now + *linger);
                    unwanted.push_back((now + *linger, topic));
                    continue;
                }
                asked.source.abort();
                topics.remove(&topic);
                stock.let_go(&topic, tx);
            }
        });
    }
}

/// How many news are passed on at once, if there are as many.
const BATCH: usize = 1000;
