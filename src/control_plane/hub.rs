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
    message::Response,
    method::Method,
    session::{Held, NameChanges, Settings},
    store::Store,
    wanted::Wanted,
};

/// What all streams of a control plane share.
pub(super) struct Hub {
    pub(super) settings: Settings,
    state: watch::Sender<State>,
    streams: Mutex<Streams>,
    wanted: watch::Sender<Wanted>,
    observers: Vec<Observer>,
}

pub(super) type Observer = Box<dyn Fn(&Event) + Send + Sync>;

/// What streams follow: they look at it anew whenever it changes.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) store: Store,
    pub(super) held: Held,
    pub(super) headers: Headers,
    /// Requests are left unread.
    pub(super) deaf: bool,
    /// What requests of REST are answered by in place of what they ask for.
    #[cfg(feature = "json")]
    pub(super) rest_status: Option<http::StatusCode>,
    /// Requests of REST for what does not exist are answered by 404 in place of a response without resources.
    #[cfg(feature = "json")]
    pub(super) rest_not_found: bool,
}

/// When a server sends the headers of its response.
///
/// Real servers differ: some send them when the stream opens, some with their first message. A client must cope with all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Headers {
    /// When the stream opens.
    #[default]
    AtOnce,
    /// With the first response.
    WithFirstResponse,
    /// Never, until the stream ends. Responses wait for them.
    Never,
}

#[derive(Debug, Default)]
struct Streams {
    opened: u64,
    open: BTreeMap<u64, (Method, mpsc::UnboundedSender<Command>)>,
}

/// An order to a stream.
#[derive(Debug, Clone)]
pub(super) enum Command {
    /// Send this response as it is. It goes to streams of its variant only, and of its type if they have one.
    Send(Response),
    /// Send these bytes as if they were a response.
    SendRaw(Bytes),
    /// End with this status.
    End(Status),
}

impl Command {
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
    pub(super) fn new(store: Store, settings: Settings, observers: Vec<Observer>) -> Self {
        let state = State { store, ..State::default() };
        let (state, wanted) = (watch::Sender::new(state), watch::Sender::new(Wanted::default()));
        Self { settings, state, streams: Mutex::default(), wanted, observers }
    }

    /// Changes the state; `change` says whether there is anything that streams must look at.
    pub(super) fn change(&self, change: impl FnOnce(&mut State) -> bool) -> bool {
        self.state.send_if_modified(change)
    }

    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    pub(super) fn follow(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    pub(super) fn open(&self, method: Method) -> (u64, mpsc::UnboundedReceiver<Command>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut streams = self.streams();
        streams.opened += 1;
        let id = streams.opened;
        streams.open.insert(id, (method, sender));
        (id, receiver)
    }

    pub(super) fn close(&self, id: u64) {
        self.streams().open.remove(&id);
    }

    /// Gives an order to all streams that are open and that it is for; returns how many these are.
    pub(super) fn command(&self, command: &Command) -> usize {
        let streams = self.streams();
        let addressed = streams.open.values().filter(|(method, _)| command.is_for(method));
        addressed.filter(|(_, stream)| stream.send(command.clone()).is_ok()).count()
    }

    pub(super) fn open_streams(&self) -> usize {
        self.streams().open.len()
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.wanted.borrow().clone()
    }

    pub(super) fn follow_wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// A stream wants other names of a type than before.
    pub(super) fn want(&self, type_url: &str, changes: &NameChanges) {
        if !changes.is_empty() {
            self.wanted.send_modify(|wanted| wanted.change(type_url, changes));
        }
    }

    /// A stream that wanted these names has ended.
    pub(super) fn want_no_longer<'a>(&self, names: impl Iterator<Item = (&'a str, &'a str)>) {
        self.wanted.send_modify(|wanted| wanted.forget(names));
    }

    pub(super) fn emit(&self, event: &Event) {
        self.observers.iter().for_each(|observer| observer(event));
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // The map is whole after each statement, so a panic elsewhere does not spoil it.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, streams, .. } = self;
        f.debug_struct("Hub").field("settings", settings).field("streams", streams).finish_non_exhaustive()
    }
}
