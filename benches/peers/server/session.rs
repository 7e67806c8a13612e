//! One stream: what was asked, what was sent, and when it was acknowledged.

use std::{
    mem,
    sync::{Arc, Mutex},
};

use bytes::{Buf, Bytes, BytesMut};
use h2::SendStream;

use crate::{
    catalog::Catalog,
    log::{log, now},
    wire::{self, Kind, Request, Variant},
};

/// What the operator orders to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Push {
    /// All of a type that was asked for.
    All(Kind),
    /// What one resource has become; of clusters all that were asked for, where the variant demands that.
    One(Kind, usize),
    /// Nothing: what has gone over the stream is to be told.
    Stats,
}

/// The server's half of a stream.
///
/// It answers a type when all requests that have arrived are read, and when its last response was acknowledged: so a client
/// that sends a request for each name costs a response for each round trip and not for each name.
pub(crate) struct Session {
    number: u64,
    variant: Variant,
    catalog: Arc<Mutex<Catalog>>,
    sink: SendStream<Bytes>,
    clusters: Channel,
    endpoints: Channel,
    nonce: u64,
    unread: BytesMut,
    requests: u64,
    request_bytes: u64,
    responses: u64,
    response_bytes: u64,
}

/// One type on a stream.
#[derive(Default)]
struct Channel {
    is_begun: bool,
    /// By number. Clients let nothing go here, so that a list of names that is no longer than another has nothing new.
    asked: Vec<bool>,
    unsent: Vec<usize>,
    longest: usize,
    /// The longest request of the state of the world whose names were not looked at yet.
    longer: Option<Bytes>,
    /// The response that is not acknowledged, and when it was sent.
    under_way: Option<(u64, u64)>,
}

impl Session {
    pub(crate) fn new(
        number: u64,
        variant: Variant,
        catalog: Arc<Mutex<Catalog>>,
        sink: SendStream<Bytes>,
    ) -> Self {
        Self {
            number,
            variant,
            catalog,
            sink,
            clusters: Channel::default(),
            endpoints: Channel::default(),
            nonce: 0,
            unread: BytesMut::new(),
            requests: 0,
            request_bytes: 0,
            responses: 0,
            response_bytes: 0,
        }
    }

    /// Takes bytes of the stream: messages behind gRPC's prefix, torn anywhere.
    pub(crate) fn handle_bytes(&mut self, bytes: &Bytes) {
        self.unread.extend_from_slice(bytes);
        while let Some(prefix) = self.unread.first_chunk::<5>() {
            let [_, length @ ..] = *prefix;
            let length = u32::from_be_bytes(length) as usize;
            if self.unread.len() < 5 + length {
                self.unread.reserve(5 + length - self.unread.len());
                return;
            }
            self.unread.advance(5);
            let message = self.unread.split_to(length).freeze();
            self.handle_request(message);
        }
    }

    fn handle_request(&mut self, message: Bytes) {
        self.requests += 1;
        self.request_bytes += message.len() as u64;
        let request = Request::read(&message, self.variant).expect("a client sends requests");
        let Some(kind) = request.kind else { return };
        let stream = self.number;
        let variant = self.variant;
        let channel = self.channel(kind);
        if let Some(reason) = request.error {
            log!(r#""event":"rejected","stream":{stream},"type":"{}","reason":{reason:?}"#, kind.name());
        }
        if let Some((_, pushed)) = channel.under_way.take_if(|(nonce, _)| *nonce == request.nonce) {
            let name = kind.name();
            log!(r#""event":"acked","stream":{stream},"type":"{name}","pushed":{pushed},"acked":{}"#, now());
        }
        let is_first = !mem::replace(&mut channel.is_begun, true);
        if request.names == 0 && is_first {
            self.ask_for_all(kind);
        } else if variant == Variant::Delta {
            self.look_at(kind, &message);
        } else if request.names > channel.longest {
            channel.longest = request.names;
            channel.longer = Some(message);
        }
    }

    /// Answers what is asked for and was not sent yet.
    pub(crate) fn answer(&mut self) {
        for kind in Kind::ALL {
            if self.channel(kind).under_way.is_some() {
                continue;
            }
            if let Some(longer) = self.channel(kind).longer.take() {
                self.look_at(kind, &longer);
            }
            let unsent = mem::take(&mut self.channel(kind).unsent);
            if !unsent.is_empty() {
                self.send(kind, &unsent);
            }
        }
    }

    pub(crate) fn handle_push(&mut self, push: Push) {
        match push {
            Push::All(kind) => {
                let asked = self.asked(kind);
                self.send(kind, &asked);
            }
            Push::One(kind, number) if self.channel(kind).asked.get(number) == Some(&true) => {
                self.send(kind, &[number]);
            }
            Push::One(..) => {}
            Push::Stats => self.tell("stats"),
        }
    }

    /// Tells what has gone over the stream: messages, and their bytes without what carries them.
    pub(crate) fn tell(&self, event: &str) {
        let Self { number, requests, request_bytes, responses, response_bytes, .. } = self;
        log!(
            r#""event":"{event}","stream":{number},"requests":{requests},"request_bytes":{request_bytes},"responses":{responses},"response_bytes":{response_bytes}"#
        );
    }

    fn ask_for_all(&mut self, kind: Kind) {
        let count = self.catalog.lock().expect("nobody panics").body(kind, self.variant).len();
        let channel = self.channel(kind);
        channel.asked = vec![true; count];
        channel.unsent = (0..count).collect();
    }

    fn look_at(&mut self, kind: Kind, message: &Bytes) {
        let variant = self.variant;
        let count = self.catalog.lock().expect("nobody panics").body(kind, variant).len();
        let channel = self.channel(kind);
        channel.asked.resize(count, false);
        wire::each_name(message, variant, |name| match crate::mesh::number(name) {
            Some(number) if number < count && !channel.asked[number] => {
                channel.asked[number] = true;
                channel.unsent.push(number);
            }
            Some(_) | None => {}
        });
    }

    fn asked(&mut self, kind: Kind) -> Vec<usize> {
        let asked = self.channel(kind).asked.iter().enumerate();
        asked.filter(|(_, is_asked)| **is_asked).map(|(number, _)| number).collect()
    }

    fn send(&mut self, kind: Kind, numbers: &[usize]) {
        // A response with clusters has all of them (SotW): those that are missing do not exist.
        let all = (self.variant, kind) == (Variant::Sotw, Kind::Clusters);
        let all = all.then(|| self.asked(kind));
        self.nonce += 1;
        let parts = {
            let catalog = self.catalog.lock().expect("nobody panics");
            let entries = catalog.body(kind, self.variant).of(all.as_deref().unwrap_or(numbers));
            wire::response(self.variant, kind, catalog.version(), self.nonce, entries)
        };
        self.responses += 1;
        self.response_bytes += parts.iter().map(Bytes::len).sum::<usize>() as u64 - 5;
        self.channel(kind).under_way = Some((self.nonce, now()));
        for part in parts {
            // A stream that has ended is noticed where it is read.
            let _ = self.sink.send_data(part, false);
        }
    }

    fn channel(&mut self, kind: Kind) -> &mut Channel {
        match kind {
            Kind::Clusters => &mut self.clusters,
            Kind::Endpoints => &mut self.endpoints,
        }
    }
}
