//! What the tests of the client share.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod bridge;
pub(crate) mod load;
pub(crate) mod meshes;
pub(crate) mod raw;
pub(crate) mod resources;
mod soon;
pub(crate) mod tls;

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use xdskit::{
    Resource,
    config::{Bootstrap, Node, Server},
    control_plane::{self, AnyResource, ControlPlane, Event, Request, session::Behavior, type_url},
    pb::envoy::config::cluster::v3 as pb,
    resource::{Context, Invalid},
    testing,
};

pub(crate) use self::soon::soon;

/// A cluster, as far as these tests look at it.
#[derive(Debug, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) note: String,
}

impl Resource for Cluster {
    const TYPE_URL: &'static str = type_url::CLUSTER;
    const FULL_STATE: bool = true;

    fn parse(bytes: &Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        let cluster = pb::Cluster::decode(bytes.clone()).map_err(|e| Invalid::new(e.to_string()))?;
        let note = cluster.eds_cluster_config.unwrap_or_default().service_name;
        if note == BAD {
            return Err(Invalid::field("eds_cluster_config.service_name", "bad"));
        }
        Ok(Self { name: cluster.name, note })
    }
}

/// A note that makes a cluster invalid.
pub(crate) const BAD: &str = "bad";

pub(crate) fn cluster(name: &str, note: &str) -> AnyResource {
    let eds = pb::cluster::EdsClusterConfig { service_name: note.into(), ..Default::default() };
    let message = pb::Cluster { name: name.into(), eds_cluster_config: Some(eds), ..Default::default() };
    AnyResource::encode(type_url::CLUSTER, name, &message)
}

pub(crate) fn bootstrap(uri: impl Into<String>) -> Bootstrap {
    let server = Server::new(uri).insecure();
    Bootstrap::builder().node(Node::new("test-node")).server(server).build().unwrap()
}

/// What serves the resources of a control plane.
pub(crate) trait Serves {
    fn uri(&self) -> String;
    fn control_plane(&self) -> &ControlPlane;
}

impl Serves for control_plane::ServerHandle {
    fn uri(&self) -> String {
        self.uri()
    }

    fn control_plane(&self) -> &ControlPlane {
        self.control_plane()
    }
}

impl Serves for testing::TestControlPlane {
    fn uri(&self) -> String {
        self.uri()
    }

    fn control_plane(&self) -> &ControlPlane {
        self.control_plane()
    }
}

/// A control plane that serves clusters, each with its note.
pub(crate) async fn serve(clusters: &[(&str, &str)]) -> (ControlPlane, control_plane::ServerHandle) {
    let control_plane = ControlPlane::new();
    control_plane.update(|tx| {
        for (name, note) in clusters {
            tx.set(cluster(name, note));
        }
    });
    let server = control_plane.serve("127.0.0.1:0").await.unwrap();
    (control_plane, server)
}

/// What happens on the streams of a control plane, one after the other.
pub(crate) struct Events {
    events: mpsc::UnboundedReceiver<Event>,
    /// The subscribed names after the last request.
    subscribed: BTreeSet<String>,
}

/// A control plane, and what happens on its streams.
pub(crate) fn observed() -> (ControlPlane, Events) {
    observed_as(Behavior::default())
}

/// The same of one that takes some freedoms of the protocol.
pub(crate) fn observed_as(behavior: Behavior) -> (ControlPlane, Events) {
    let (sender, events) = mpsc::unbounded_channel();
    let builder = ControlPlane::builder().behavior(behavior);
    let control_plane = builder.observe(move |event| drop(sender.send(event.clone()))).build();
    (control_plane, Events { events, subscribed: BTreeSet::new() })
}

impl Events {
    async fn next(&mut self) -> Event {
        let event = soon(self.events.recv()).await.expect("the control plane is there");
        if let Event::Request { request, .. } = &event {
            match request {
                Request::Sotw(request) => self.subscribed = request.resource_names.iter().cloned().collect(),
                Request::Delta(request) => {
                    self.subscribed.extend(request.resource_names_subscribe.iter().cloned());
                    self.subscribed.retain(|name| !request.resource_names_unsubscribe.contains(name));
                }
            }
        }
        event
    }

    /// Waits until a client that uses one type is subscribed to these names.
    pub(crate) async fn until_subscribed(&mut self, names: &[&str]) {
        loop {
            if matches!(self.next().await, Event::Request { .. }) && self.subscribed.iter().eq(names) {
                return;
            }
        }
    }
}

/// The version of a type in a version of a resource: a server that is polled appends the requested names.
pub(crate) fn version(seen: &str) -> &str {
    seen.split_once('-').map_or(seen, |(version, _)| version)
}

/// Waits for an event that fulfils a condition.
pub(crate) async fn event(events: &mut Events, mut condition: impl FnMut(&Event) -> bool) -> Event {
    loop {
        let event = events.next().await;
        if condition(&event) {
            return event;
        }
    }
}

pub(crate) fn note(seen: &xdskit::Observed<Cluster>) -> Option<&str> {
    seen.resource().map(|cluster: &Arc<Cluster>| cluster.note.as_str())
}
