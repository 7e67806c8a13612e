//! A management server in the process, without sockets.

use std::{
    fmt,
    sync::{Arc, Mutex, Weak},
};

use bytes::Bytes;
use prost::Message;

use super::network::lock;
use crate::{
    Bootstrap, Client,
    config::Server,
    control_plane::{Session, Store, session::Settings, store::Transaction},
    pb::envoy::service::discovery::v3::DiscoveryRequest,
    transport::{ConnectRequest, Connection, ConnectionEvents, Disconnect, DisconnectKind, Transport},
};

/// The management server of a run.
#[derive(Clone, Default)]
pub(super) struct Control {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    store: Mutex<Store>,
    streams: Mutex<Vec<Weak<Mutex<Stream>>>>,
}

/// A stream of a client, whose end it is.
struct Line {
    control: Control,
    stream: Arc<Mutex<Stream>>,
}

struct Stream {
    session: Session,
    events: ConnectionEvents,
    /// The messages that the client is ready to read.
    credits: usize,
}

impl Control {
    /// A client of the server.
    pub(super) fn client(&self) -> Client {
        let server = Server::new("control:1").insecure();
        let bootstrap = Bootstrap::builder().server(server).build().unwrap();
        Client::builder(bootstrap).transport(self.clone()).build().unwrap()
    }

    /// Changes resources.
    pub(super) fn update(&self, change: impl FnOnce(&mut Transaction<'_>)) {
        lock(&self.shared.store).update(change);
        let mut streams = lock(&self.shared.streams);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.iter().filter_map(Weak::upgrade).for_each(|stream| self.send(&stream));
    }

    fn send(&self, stream: &Mutex<Stream>) {
        let store = lock(&self.shared.store).clone();
        let mut stream = lock(stream);
        while stream.credits > 0
            && let Some(response) = stream.session.poll_response(&store)
        {
            stream.credits -= 1;
            stream.events.received(response.encode_to_vec().into());
        }
    }
}

impl Transport for Control {
    fn connect(&self, request: ConnectRequest, events: ConnectionEvents) -> Box<dyn Connection> {
        let stream = Stream { session: Session::new(Settings::default()), events, credits: 0 };
        if request.path.contains("LoadStats") {
            stream.events.disconnected(Disconnect::new(DisconnectKind::Unreachable, "no load reports"));
        } else {
            stream.events.alive();
            stream.events.connected();
        }
        let stream = Arc::new(Mutex::new(stream));
        lock(&self.shared.streams).push(Arc::downgrade(&stream));
        Box::new(Line { control: self.clone(), stream })
    }
}

impl Connection for Line {
    fn send(&mut self, message: Bytes) {
        let request = DiscoveryRequest::decode(message).expect("the client writes requests");
        let mut stream = lock(&self.stream);
        // A request that the session ignores is an outdated one.
        let _ = stream.session.handle_request(request);
        stream.events.request_sent();
        drop(stream);
        self.control.send(&self.stream);
    }

    fn read(&mut self) {
        lock(&self.stream).credits += 1;
        self.control.send(&self.stream);
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Control")
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}
