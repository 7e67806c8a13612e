//! A client without a network: what it sends is looked at, and what a server would send is put in. All its work happens on
//! the thread that measures.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use tokio::{runtime::Runtime, sync::Notify};
use xdskit::{
    Bootstrap, Client,
    config::{ApiType, Server},
    transport::{ConnectRequest, Connection, ConnectionEvents, Transport},
};

/// A client, the runtime that it lives in, and the other end of its connection.
pub(crate) struct Feed {
    runtime: Runtime,
    client: Client,
    line: Line,
}

#[derive(Debug, Clone, Default)]
struct Line(Arc<Ends>);

#[derive(Debug, Default)]
struct Ends {
    state: Mutex<State>,
    sent: Notify,
}

#[derive(Debug, Default)]
struct State {
    events: Option<ConnectionEvents>,
    requests: Vec<Bytes>,
}

impl Feed {
    pub(crate) fn new(api_type: ApiType) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = Server::new("localhost:1").insecure();
        let bootstrap = Bootstrap::builder().server(server).build().expect("it is valid");
        let line = Line::default();
        let client = {
            let _within = runtime.enter();
            Client::builder(bootstrap)
                .api_type(api_type)
                .transport(line.clone())
                .build()
                .expect("it is valid")
        };
        Self { runtime, client, line }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Lets the client work until its requests have asked for so many names; `names` counts those of one.
    pub(crate) fn until_asked_for(&self, count: usize, names: impl Fn(Bytes) -> usize) {
        let (mut asked, mut next) = (0, 0);
        self.runtime.block_on(async {
            while asked < count {
                let request = self.line.lock().requests.get_mut(next).map(mem::take);
                match request {
                    Some(request) => {
                        asked = names(request).max(asked);
                        next += 1;
                    }
                    None => self.line.0.sent.notified().await,
                }
            }
        });
    }

    /// Keeps no longer what was asked for.
    #[allow(dead_code, reason = "a bench of time does not mind it")]
    pub(crate) fn forget(&self) {
        self.line.lock().requests = Vec::new();
    }

    /// What a server sends, until it is answered: then everything has been published.
    pub(crate) fn answer(&self, response: Bytes) {
        let (requests, events) = {
            let state = self.line.lock();
            (state.requests.len(), state.events.clone().expect("it is connected"))
        };
        self.runtime.block_on(async {
            events.received(response);
            while self.line.lock().requests.len() == requests {
                self.line.0.sent.notified().await;
            }
        });
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Line {
    fn connect(&self, _: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
        events.alive();
        events.connected();
        self.lock().events = Some(events);
        Box::new(self.clone())
    }
}

impl Connection for Line {
    fn send(&mut self, message: Bytes) {
        let mut state = self.lock();
        state.requests.push(message);
        if let Some(events) = &state.events {
            events.request_sent();
        }
        drop(state);
        self.0.sent.notify_one();
    }

    fn read(&mut self) {}
}
