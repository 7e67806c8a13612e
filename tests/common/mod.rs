//! What the tests of the client share.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod tls;

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use xdskit::{
    Client, Resource,
    client::ClientBuilder,
    config::{Bootstrap, Node, Server},
    control_plane::{AnyResource, ControlPlane, Event, type_url},
    pb::envoy::config::cluster::v3 as pb,
    resource::{Context, Invalid},
};

/// A cluster, as far as these tests look at it.
#[derive(Debug, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) note: String,
}

impl Resource for Cluster {
    const TYPE_URL: &'static str = type_url::CLUSTER;
    const FULL_STATE: bool = true;

    fn parse(bytes: Bytes, _: &Context<'_>) -> Result<Self, Invalid> {
        let cluster = pb::Cluster::decode(bytes).map_err(|e| Invalid::new(e.to_string()))?;
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

pub(crate) fn builder(uri: impl Into<String>) -> ClientBuilder {
    Client::builder(bootstrap(uri))
}

pub(crate) fn client(uri: impl Into<String>) -> Client {
    builder(uri).build().unwrap()
}

/// A control plane, and what happens on its streams.
pub(crate) fn observed() -> (ControlPlane, mpsc::UnboundedReceiver<Event>) {
    let (events, observed) = mpsc::unbounded_channel();
    let control_plane =
        ControlPlane::builder().observe(move |event| drop(events.send(event.clone()))).build();
    (control_plane, observed)
}

/// Waits for an event that fulfils a condition.
pub(crate) async fn event(
    events: &mut mpsc::UnboundedReceiver<Event>,
    mut condition: impl FnMut(&Event) -> bool,
) -> Event {
    loop {
        let event = soon(events.recv()).await.expect("the control plane is there");
        if condition(&event) {
            return event;
        }
    }
}

/// Fails if something takes so long that it will not happen.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it takes too long")
}

pub(crate) fn note(seen: &xdskit::Observed<Cluster>) -> Option<&str> {
    seen.resource().map(|cluster: &Arc<Cluster>| cluster.note.as_str())
}
