//! The shared state of the streams of a control plane.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{
    event::Event,
    headers::Headers,
    load_hub::LoadHub,
    message::Response,
    method::Method,
    server_limits::ServerLimits,
    session::{Held, NameChanges, Settings},
    store::Store,
    subscriptions::{LastTurn, SubscriptionChanges, Subscriptions, Turns},
};

/// The state that all streams of a control plane share.
pub(super) struct Hub {
    /// The behaviors and limits of the session of each stream.
    pub(super) settings: Settings,
    /// The limits for all streams together.
    pub(super) server_limits: ServerLimits,
    /// Checks the headers of requests.
    pub(super) authorize: Option<Authorize>,
    /// The resources and the faults of tests, which streams follow.
    state: watch::Sender<State>,
    /// The open streams, for commands.
    streams: Mutex<Streams>,
    /// The subscriptions of all clients together.
    subscriptions: watch::Sender<Subscriptions>,
    /// Numbers the changes of subscriptions.
    turns: Turns,
    /// All of them are called with each event, in this order.
    observers: Vec<Observer>,
    /// The streams of load reports.
    pub(super) load_reporting: LoadHub,
}

/// Decides from the headers of a request, before anything else of it is read, whether it is served.
pub(super) type Authorize = Box<dyn Fn(&http::HeaderMap) -> Result<(), Status> + Send + Sync>;

/// Is called with each event, on the task of the stream.
pub(super) type Observer = Box<dyn Fn(&Event) + Send + Sync>;

/// The state that streams follow: each change of it wakes them.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    /// The resources.
    pub(super) store: Store,
    /// Types for which nothing is sent.
    pub(super) held: Held,
    /// When response headers are sent.
    pub(super) headers: Headers,
    /// Whether requests are left unread.
    pub(super) reading_paused: bool,
    /// The status of all REST responses, in place of the resources.
    #[cfg(feature = "json")]
    pub(super) rest_status: Option<http::StatusCode>,
    /// Whether REST requests without matching resources get a 404 in place of an empty response.
    #[cfg(feature = "json")]
    pub(super) rest_not_found: bool,
}

/// The open streams.
#[derive(Debug, Default)]
struct Streams {
    /// The number of streams that were ever opened, which numbers them.
    opened: u64,
    /// The senders of commands by the number of their stream, with the method, since some commands are only for some streams.
    open: BTreeMap<u64, (Method, mpsc::UnboundedSender<Command>)>,
}

/// A command to a stream.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Sends this response unchanged, to streams of its variant and, for streams of one type, of its type.
    Send(Response),
    /// Sends these bytes in place of a response.
    SendRaw(Bytes),
    /// Ends the stream with this status.
    End(Status),
}

impl Command {
    /// Whether a stream of a method gets the command.
    fn is_for(&self, method: &Method) -> bool {
        match self {
            Self::Send(response) => {
                let has_type = method.type_url.is_none_or(|only| only == response.type_url());
                response.variant() == method.variant && has_type
            }
            Self::SendRaw(_) | Self::End(_) => true,
        }
    }
}

impl Hub {
    pub(super) fn new(
        store: Store,
        settings: Settings,
        server_limits: ServerLimits,
        observers: Vec<Observer>,
    ) -> Self {
        let state = State { store, ..State::default() };
        let (state, subscriptions) =
            (watch::Sender::new(state), watch::Sender::new(Subscriptions::default()));
        let (streams, load_reporting) = (Mutex::default(), LoadHub::default());
        let turns = Turns::default();
        let authorize = None;
        Self {
            settings,
            server_limits,
            authorize,
            state,
            streams,
            subscriptions,
            turns,
            observers,
            load_reporting,
        }
    }

    /// Sets the check of the headers of requests.
    pub(super) fn with_authorize(mut self, authorize: Option<Authorize>) -> Self {
        self.authorize = authorize;
        self
    }

    /// Changes the state; `change` returns whether streams must be woken.
    pub(super) fn change(&self, change: impl FnOnce(&mut State) -> bool) -> bool {
        // Without a change, no stream is woken to compare the resources again.
        self.state.send_if_modified(change)
    }

    /// Returns a copy of the state, which shares the resources.
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Returns the state and its changes.
    pub(super) fn follow(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Registers a stream. Returns its number and its commands.
    pub(super) fn open(&self, method: Method) -> (u64, mpsc::UnboundedReceiver<Command>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut streams = self.streams();
        streams.opened += 1;
        let id = streams.opened;
        streams.open.insert(id, (method, sender));
        (id, receiver)
    }

    /// Removes a stream that has ended.
    pub(super) fn close(&self, id: u64) {
        self.streams().open.remove(&id);
    }

    /// Sends a command to all open streams that it applies to; returns their number.
    pub(super) fn command(&self, command: &Command) -> usize {
        let streams = self.streams();
        let addressed = streams.open.values().filter(|(method, _)| command.is_for(method));
        addressed.filter(|(_, stream)| stream.send(command.clone()).is_ok()).count()
    }

    /// Returns the number of open streams.
    pub(super) fn open_streams(&self) -> usize {
        self.streams().open.len()
    }

    /// Returns the current subscriptions.
    pub(super) fn subscriptions(&self) -> Subscriptions {
        self.subscriptions.borrow().clone()
    }

    /// Subscribes to the changes of subscriptions.
    pub(super) fn subscription_changes(&self) -> SubscriptionChanges {
        SubscriptionChanges::new(self.subscriptions.subscribe(), self.turns.clone())
    }

    /// Records a change of the names of a type that a stream subscribes to.
    pub(super) fn on_names_changed(&self, type_url: &str, changes: &NameChanges, last: &mut LastTurn) {
        if !changes.is_empty() {
            let turns = &self.turns;
            self.subscriptions
                .send_modify(|subscriptions| subscriptions.apply(type_url, changes, turns, last));
        }
    }

    /// The number of different names that all clients subscribe to.
    pub(super) fn subscribed_names(&self) -> usize {
        self.subscriptions.borrow().len()
    }

    /// Records the end of a stream with subscriptions to these names.
    pub(super) fn on_stream_ended<'a>(&self, names: impl Iterator<Item = (&'a str, &'a str)>) {
        self.subscriptions.send_modify(|subscriptions| subscriptions.remove_stream(names));
    }

    /// Calls the observers, on the task of the stream.
    pub(super) fn emit(&self, event: &Event) {
        self.observers.iter().for_each(|observer| observer(event));
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // The map is consistent after each statement, so a panic elsewhere does not corrupt it.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, streams, .. } = self;
        f.debug_struct("Hub").field("settings", settings).field("streams", streams).finish_non_exhaustive()
    }
}
