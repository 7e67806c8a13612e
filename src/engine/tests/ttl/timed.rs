//! A client whose server sends resources with times to live.

use std::time::Duration;

use prost::Message;

use crate::{
    config::{ApiType, AuthorityBuilder, Bootstrap, Server, ServerBuilder},
    engine::{
        Timer,
        tests::rig::{Rig, any, stream_to},
    },
    pb::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource as Wrapper},
        google::protobuf::{self, Any},
    },
    protocol::{DisconnectKind, Settings},
    resource::Resource,
};

pub(super) const NONE: [&str; 0] = [];

/// A client and a server in one of the variants.
pub(super) struct Timed {
    pub(super) rig: Rig,
    pub(super) delta: bool,
    /// The stream.
    pub(super) server: u32,
    pub(super) attempt: u64,
    pub(super) outputs: u64,
}

/// An entry of a response.
#[derive(Clone)]
pub(super) struct Word {
    pub(super) name: &'static str,
    pub(super) version: String,
    pub(super) text: Option<&'static str>,
    pub(super) ttl: Option<Duration>,
}

/// A resource whose version is its text.
pub(super) fn whole(name: &'static str, text: &'static str) -> Word {
    Word { name, version: text.into(), text: Some(text), ttl: None }
}

/// That a version of a resource is what it was.
pub(super) fn heartbeat(name: &'static str, version: &str) -> Word {
    Word { name, version: version.into(), text: None, ttl: None }
}

impl Word {
    pub(super) fn ttl(self, seconds: u64) -> Self {
        Self { ttl: Some(Duration::from_secs(seconds)), ..self }
    }

    pub(super) fn wrapper<T: Resource>(&self) -> Wrapper {
        let ttl =
            self.ttl.map(|ttl| protobuf::Duration { seconds: ttl.as_secs() as i64, ..Default::default() });
        let resource = self.text.map(|text| any::<T>(self.name, text));
        Wrapper { name: self.name.into(), version: self.version.clone(), resource, ttl, ..Wrapper::default() }
    }
}

impl Timed {
    pub(super) fn new(delta: bool) -> Self {
        Self::with(delta, Server::new("127.0.0.1:1").insecure())
    }

    pub(super) fn with(delta: bool, server: ServerBuilder) -> Self {
        let bootstrap = Bootstrap::builder().server(server).authority("a", AuthorityBuilder::default());
        Self::of(delta, bootstrap.build().unwrap())
    }

    pub(super) fn of(delta: bool, bootstrap: Bootstrap) -> Self {
        let api_type = if delta { ApiType::AggregatedDeltaGrpc } else { ApiType::AggregatedGrpc };
        let rig = Rig::of(bootstrap, Settings { api_type, ..Settings::default() });
        Self { rig, delta, server: 0, attempt: 1, outputs: 0 }
    }

    pub(super) fn open<T: Resource>(&mut self, names: &[&str]) {
        for name in names {
            match name.ends_with("/*") {
                true => self.rig.watch_all::<T>(name),
                false => self.rig.watch::<T>(name),
            };
        }
        self.connect();
    }

    /// Connects; returns the first request.
    pub(super) fn connect(&mut self) -> Vec<String> {
        let outputs = self.rig.connect_to(stream_to(self.server, self.attempt));
        self.sent();
        outputs
    }

    pub(super) fn sent(&mut self) {
        // A wildcard is the first request, and names beside it the second one.
        while !self.rig.sent_to(stream_to(self.server, self.attempt)).is_empty() {}
        self.rig.pass(Duration::from_millis(1));
    }

    /// A response comes; what is ordered then.
    pub(super) fn respond<T: Resource>(&mut self, words: &[Word], removed: &[&str]) -> Vec<String> {
        self.outputs += 1;
        let (nonce, type_url) = (format!("nonce{}", self.outputs), T::TYPE_URL.to_owned());
        let wrappers = words.iter().map(Word::wrapper::<T>);
        let wrap = |wrapper: Wrapper| match wrapper.ttl.is_some() || wrapper.resource.is_none() {
            true => Any {
                type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(),
                value: wrapper.encode_to_vec().into(),
            },
            false => wrapper.resource.unwrap(),
        };
        let message = match self.delta {
            true => DeltaDiscoveryResponse {
                nonce,
                type_url,
                resources: wrappers.collect(),
                removed_resources: removed.iter().map(|&name| name.to_owned()).collect(),
                ..Default::default()
            }
            .encode_to_vec(),
            false => {
                // Heartbeats have the version that was accepted last (B1.18).
                let version_info = words.first().map_or("none".into(), |word| word.version.clone());
                let resources = wrappers.map(wrap).collect();
                DiscoveryResponse { nonce, type_url, resources, version_info, ..Default::default() }
                    .encode_to_vec()
            }
        };
        let outputs = self.rig.receive_from(stream_to(self.server, self.attempt), message);
        self.sent();
        outputs
    }

    /// A response comes that is accepted; what is published then.
    pub(super) fn accept<T: Resource>(&mut self, words: &[Word]) -> Vec<String> {
        let outputs = self.respond::<T>(words, &[]);
        let nonce = format!("nonce{}", self.outputs);
        let is_ack = |outputs: &String| outputs.starts_with("send") && outputs.ends_with(&nonce);
        assert!(outputs.iter().any(is_ack), "no ACK of {nonce}: {outputs:?}");
        published(outputs)
    }

    /// What is published within some seconds. Nothing is sent, nor is anything else due.
    pub(super) fn pass(&mut self, seconds: u64) -> Vec<String> {
        let outputs = self.rig.pass(Duration::from_secs(seconds));
        let updates = published(outputs.clone());
        assert_eq!(updates, outputs);
        updates
    }

    /// The stream ends, and the next one begins; returns the first request.
    pub(super) fn reconnect(&mut self) -> String {
        self.disconnect();
        self.rig.pass(Duration::from_secs(5));
        self.attempt += 1;
        let outputs = self.connect();
        outputs.into_iter().find(|outputs| outputs.starts_with("send")).expect("a request")
    }

    pub(super) fn disconnect(&mut self) {
        self.rig.disconnect_from(stream_to(self.server, self.attempt), DisconnectKind::Closed);
    }

    /// Seconds until something expires.
    pub(super) fn until_expiry(&self) -> Option<u64> {
        let (at, timer) = self.rig.engine.poll_timeout()?;
        assert_eq!(timer, Timer::Expiry);
        Some((at - self.rig.now).as_secs_f64().round() as u64)
    }
}

pub(super) fn published(outputs: Vec<String>) -> Vec<String> {
    outputs.into_iter().filter(|outputs| outputs.starts_with('#')).collect()
}

/// Runs a test on both variants.
pub(super) fn in_both(test: impl Fn(Timed)) {
    for delta in [false, true] {
        test(Timed::new(delta));
    }
}
