//! What a client knows and does at a moment, for its operators (A40).

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{Engine, Peer};
use crate::{
    cache::{AmbientError, Entry, Raw, ResourceState, Update},
    error::Code,
    protocol::{ConnectionState, Subscription},
    resource::{Resource, ResourceType, Secret, Version},
};

/// The status of a whole client.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// In the order of first use.
    pub(crate) servers: Vec<ServerReport>,
    /// Those that somebody wants, in no order that means anything.
    pub(crate) resources: Vec<ResourceReport>,
}

/// What is known of a management server, or a file.
#[derive(Debug)]
pub(crate) struct ServerReport {
    pub(crate) uri: String,
    /// The one type that this is about, unless all types share it.
    pub(crate) type_url: Option<&'static str>,
    pub(crate) connection: ConnectionState,
    /// Why nothing can be had of it.
    pub(crate) failure: Option<String>,
}

/// What is known of a resource.
#[derive(Debug)]
pub(crate) struct ResourceReport {
    /// The number of the type, in the order of first use.
    pub(crate) order: u16,
    pub(crate) type_url: &'static str,
    pub(crate) name: Arc<str>,
    pub(crate) state: ResourceState,
    /// The version that is held, and when it came.
    pub(crate) held: Option<(Version, Instant)>,
    /// The bytes that are held, unless they are not to be shown.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) setback: Option<AmbientError>,
}

impl Engine {
    /// What is known at the moment. It costs a walk of the cache.
    pub(crate) fn status(&mut self) -> Status {
        let servers = self.servers.iter().map(|peer| ServerReport {
            uri: peer.machine.source().to_string(),
            type_url: peer.machine.contact().only(),
            connection: connection(peer),
            failure: peer.failure.as_ref().map(|failure| failure.message().to_owned()),
        });
        let entries = self.table.iter().filter(|(_, entry)| self.is_wanted(entry));
        let resources = entries.map(|(_, entry)| match self.trouble_with_file(entry) {
            None => report(entry, self.types[entry.ty.index()]),
            Some(trouble) => {
                let report = report(entry, self.types[entry.ty.index()]);
                let is_rejected = trouble.error.code() == Code::InvalidArgument;
                let state = if is_rejected { trouble.state } else { report.state };
                ResourceReport { state, setback: Some(trouble), ..report }
            }
        });
        Status { servers: servers.collect(), resources: resources.collect() }
    }

    /// What is wrong with a file as a whole is wrong with each resource in it (D7): there is no other update of one.
    fn trouble_with_file(&self, entry: &Entry) -> Option<AmbientError> {
        let peer = &self.servers[self.active_for(entry)];
        let (failure, at) = peer.failure.as_ref().zip(peer.failed_at)?;
        let error = failure.about(self.subject(entry));
        let update = Update { version: Version::default(), at };
        let is_file = peer.machine.contact().is_file();
        is_file.then_some(AmbientError { state: ResourceState::Nacked, error, update })
    }

    /// Whether anybody watches it, by its name or as a member; others are only waiting to be let go.
    fn is_wanted(&self, entry: &Entry) -> bool {
        let active = self.active_for(entry);
        let machine = &self.servers[active].machine;
        let place = entry.places.at(active);
        !entry.views.is_empty()
            || place.and_then(|sub| machine.sub(entry.ty, sub)).is_some_and(Subscription::is_member)
    }
}

/// A server that is polled has no connection that could end: it is as its last poll was.
fn connection(peer: &Peer) -> ConnectionState {
    let is_failing = peer.machine.contact().polling().is_some() && peer.failure.is_some();
    match peer.machine.stream().connection() {
        ConnectionState::Connected if is_failing => ConnectionState::BackingOff,
        state @ (ConnectionState::Idle
        | ConnectionState::Connecting
        | ConnectionState::Connected
        | ConnectionState::BackingOff) => state,
    }
}

fn report(entry: &Entry, ty: ResourceType) -> ResourceReport {
    let is_secret = ty.is_sensitive() || ty.type_url() == Secret::TYPE_URL;
    ResourceReport {
        order: entry.ty.0,
        type_url: ty.type_url(),
        name: entry.name.clone(),
        state: entry.state(),
        held: entry.held().map(|(version, at)| (version.clone(), at)),
        bytes: entry.raw().filter(|_| !is_secret && !entry.is_glob).map(Raw::to_bytes),
        setback: entry.setback().cloned(),
    }
}
