//! Internals for the fuzz targets: the engine in a simulated world, and alone with a server. With the feature `channel` also
//! those for benches: the balancing of a channel, and the records of its calls. Not a part of the API.

#[cfg(feature = "channel")]
mod balancing;
#[cfg(feature = "tls")]
mod certificates;
mod load_reports;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

#[cfg(feature = "channel")]
pub use self::balancing::{Balancing, Selected, build_ring};
#[cfg(all(feature = "tls", feature = "channel"))]
pub use self::certificates::read_revocation_lists;
#[cfg(feature = "tls")]
pub use self::certificates::{
    accepts_name, read_certificate, read_names, read_pair, read_trust_bundles, spiffe_domain,
};
pub use self::load_reports::{CallCounting, LoadReporting};
#[cfg(feature = "channel")]
pub use crate::channel::telemetry::CallRecording;
pub use crate::engine::simulation::Script;
#[cfg(feature = "json")]
use crate::format::Format;
use crate::{
    base::WatchId,
    config::{ApiType, Bootstrap, Node, Server},
    engine::{Engine, Output, Selection, Timer},
    protocol::{self, StreamCommand, StreamEvent, StreamId},
    resource::{Resource, ResourceType},
};

/// Plays a script; returns the number of occurrences of each event.
///
/// # Panics
/// An invariant is violated.
pub fn play(script: &Script) -> BTreeMap<&'static str, u64> {
    crate::engine::simulation::play(script)
}

/// Plays a script of load balancing, see `balance::simulation`; returns how often picks had each outcome.
///
/// # Panics
/// An invariant is violated.
pub fn play_balancing(seed: u64, script: &[u8]) -> BTreeMap<&'static str, u64> {
    crate::balance::simulation::play(seed, script)
}

/// A client's engine with an open stream to a server, which may send anything.
#[derive(Debug)]
pub struct Receiver {
    engine: Engine,
    now: Instant,
    watches: u64,
    stream: Option<StreamId>,
    /// The last published value of each watch.
    published: BTreeMap<WatchId, crate::resource::Erased>,
    requests: usize,
}

impl Receiver {
    /// The engine of a client without watches, in either variant of the protocol.
    ///
    /// # Panics
    /// Never: the bootstrap is valid.
    #[allow(clippy::disallowed_methods, reason = "its clock begins some time")]
    pub fn new(delta: bool) -> Self {
        let server = Server::new("127.0.0.1:1").insecure();
        let bootstrap = Bootstrap::builder().node(Node::new("n")).server(server).build();
        let api_type = if delta { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc };
        let settings = protocol::Settings { api_type, ..protocol::Settings::default() };
        let engine = Engine::new(Arc::new(bootstrap.expect("it is valid")), settings, 1);
        let (published, now) = (BTreeMap::new(), Instant::now());
        Self { engine, now, watches: 0, stream: None, published, requests: 0 }
    }

    /// Watches a resource; returns the id of the watch.
    pub fn watch<T: Resource>(&mut self, name: &str) -> u64 {
        self.subscribe(ResourceType::of::<T>(), Selection::One(name.into()))
    }

    /// Watches all resources of a type, or a collection.
    pub fn watch_all<T: Resource>(&mut self, collection: Option<&str>) -> u64 {
        let names = collection.map_or(Selection::All, |name| Selection::Collection(name.into()));
        self.subscribe(ResourceType::of::<T>(), names)
    }

    fn subscribe(&mut self, ty: ResourceType, names: Selection) -> u64 {
        self.watches += 1;
        self.engine.subscribe(WatchId::new(self.watches), ty, names, self.now);
        self.drain();
        self.watches
    }

    /// Receives a message from the server, and processes it completely.
    pub fn receive(&mut self, message: Bytes) {
        if let Some(stream) = self.stream {
            self.input(StreamEvent::Received { stream, message, at: None });
        }
        while let Some((_, Timer::Work)) = self.engine.poll_timeout() {
            self.engine.handle_timeout(self.now);
            self.drain();
        }
    }

    /// Advances the time, and handles all deadlines on the way.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some((at, _)) = self.engine.poll_timeout().filter(|(at, _)| *at <= until) {
            self.now = self.now.max(at);
            self.engine.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    /// The value of a watch of one resource, as text; `None` before the first one.
    pub fn seen<T: Resource>(&self, watch_id: u64) -> Option<String> {
        let published = self.published.get(&WatchId::new(watch_id))?;
        published.downcast_ref::<crate::Observed<T>>().map(|observed| format!("{observed:?}"))
    }

    /// The number of requests so far.
    pub fn requests(&self) -> usize {
        self.requests
    }

    fn input(&mut self, input: StreamEvent) {
        self.engine.handle_input(input, self.now);
        self.drain();
    }

    /// Connections are established and requests written at once.
    fn drain(&mut self) {
        let mut inputs = Vec::new();
        while let Some(output) = self.engine.poll_output() {
            match output {
                Output::Transport(StreamCommand::Connect { stream, .. }) => {
                    self.stream = Some(stream);
                    inputs.extend([StreamEvent::Alive { stream }, StreamEvent::Connected { stream }]);
                }
                Output::Transport(StreamCommand::Send { stream, .. }) => {
                    self.requests += 1;
                    inputs.push(StreamEvent::RequestSent { stream });
                }
                Output::Transport(StreamCommand::Disconnect { .. }) => self.stream = None,
                Output::Notify { watch_id, observed } => drop(self.published.insert(watch_id, observed)),
                Output::Transport(StreamCommand::Read { .. }) | Output::Lookup { .. } => {}
            }
        }
        for input in inputs {
            self.input(input);
        }
    }
}

/// Reads a document in the format of a file: binary, text, YAML or JSON by the number, modulo 4. Returns a
/// `DiscoveryResponse`.
#[cfg(feature = "json")]
pub fn read_document(format: u8, document: &[u8]) -> Option<Bytes> {
    let format = [Format::Binary, Format::Text, Format::Yaml, Format::Json][usize::from(format % 4)];
    let read = crate::format::read(document, format);
    match read {
        Ok(read) => Some(read.message),
        Err(error) => {
            assert!(!error.to_string().is_empty(), "every refusal has a reason");
            None
        }
    }
}

/// Converts a `DiscoveryResponse` to JSON.
#[cfg(feature = "json")]
pub fn show_response(response: &[u8]) -> Option<String> {
    crate::format::encode_json("envoy.service.discovery.v3.DiscoveryResponse", response).ok()
}
