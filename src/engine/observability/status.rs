//! The state of a client at a moment, for its operators (A40).
//!
//! A status is taken on request and costs an iteration over the cache. It is what CSDS sends: the state of each subscribed
//! resource, the held version and bytes, and the error beside it.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::super::{
    authorities::{Authorities, ServerState},
    store::Store,
};
use crate::{
    cache::{AmbientError, Entry, Raw, ResourceState, Update},
    error::Code,
    protocol::{ConnectionState, Subscription},
    resource::{Remarks, Resource, ResourceType, Secret, Version},
};

/// The status of a whole client.
#[derive(Debug, Default)]
pub(crate) struct Status {
    /// In the order of first use.
    pub(crate) servers: Vec<ServerReport>,
    /// The subscribed resources, in no defined order.
    pub(crate) resources: Vec<ResourceReport>,
}

/// The state of a management server, or a file.
#[derive(Debug)]
pub(crate) struct ServerReport {
    /// The URI, or the path of a file.
    pub(crate) uri: String,
    /// The one type of this source, unless all types share it.
    pub(crate) type_url: Option<&'static str>,
    pub(crate) connection: ConnectionState,
    /// The server error, if nothing can be fetched from it.
    pub(crate) failure: Option<String>,
    /// When the open stream was opened.
    pub(crate) connected_at: Option<Instant>,
    /// What the server has said of itself; see `ControlPlaneInfo`.
    pub(crate) identifier: Option<Arc<str>>,
    pub(crate) system_version: Option<Arc<str>>,
}

/// The state of a resource.
#[derive(Debug)]
pub(crate) struct ResourceReport {
    /// The number of the type, in the order of first use.
    pub(crate) order: u16,
    pub(crate) type_url: &'static str,
    pub(crate) name: Arc<str>,
    pub(crate) state: ResourceState,
    /// The version that is held, and the time of its arrival.
    pub(crate) held: Option<(Version, Instant)>,
    /// The held bytes, unless they are not to be shown.
    pub(crate) bytes: Option<Bytes>,
    pub(crate) ambient_error: Option<AmbientError>,
    /// What is not used of the held resource.
    pub(crate) remarks: Remarks,
    /// The bytes are those of the initial resource, which is in use.
    pub(crate) is_initial: bool,
}

impl Status {
    /// The current state. It costs an iteration over the cache.
    pub(in crate::engine) fn of(authorities: &Authorities, store: &Store) -> Self {
        let servers = authorities.servers().iter().map(|server| ServerReport {
            uri: server.machine.source().to_string(),
            type_url: server.machine.source_key().capabilities().type_url,
            connection: connection(server),
            failure: server.failure.as_ref().map(|failure| failure.message().to_owned()),
            connected_at: server.machine.stream().open_since(),
            identifier: server.machine.control_plane().identifier.clone(),
            system_version: server.machine.control_plane().system_version.clone(),
        });
        let entries = store.iter().filter(|(_, entry)| is_subscribed(authorities, entry));
        let resources = entries.map(|(_, entry)| {
            let report = report(entry, store.ty(entry.ty));
            match file_error(authorities, store, entry) {
                None => report,
                Some(error) => {
                    let is_rejected = error.error.code() == Code::InvalidArgument;
                    let state = if is_rejected { error.state } else { report.state };
                    ResourceReport { state, ambient_error: Some(error), ..report }
                }
            }
        });
        Self { servers: servers.collect(), resources: resources.collect() }
    }
}

/// An error of a file as a whole is an error of each resource in it (D7): they are not updated separately.
fn file_error(authorities: &Authorities, store: &Store, entry: &Entry) -> Option<AmbientError> {
    let server = authorities.server(authorities.groups().active(entry.group));
    let (failure, at) = server.failure.as_ref().zip(server.failed_at)?;
    let error = failure.about(store.subject(entry));
    let update = Update { version: Version::default(), at };
    let is_file = !server.machine.source_key().capabilities().remote;
    is_file.then_some(AmbientError { state: ResourceState::Nacked, error, update })
}

/// Whether a resource is watched, by its name or as a member; others wait for the end of their subscription.
fn is_subscribed(authorities: &Authorities, entry: &Entry) -> bool {
    let active = authorities.groups().active(entry.group);
    let machine = &authorities.server(active).machine;
    let sub = entry.subscriptions.at(active);
    !entry.watches.is_empty()
        || sub.and_then(|sub| machine.sub(entry.ty, sub)).is_some_and(Subscription::is_member)
}

/// A polled server has no connection that could end: its state is that of its last poll.
fn connection(server: &ServerState) -> ConnectionState {
    let is_failing = server.machine.source_key().capabilities().polling.is_some() && server.failure.is_some();
    match server.machine.stream().connection() {
        ConnectionState::Connected if is_failing => ConnectionState::BackingOff,
        state @ (ConnectionState::Idle
        | ConnectionState::Connecting
        | ConnectionState::Connected
        | ConnectionState::BackingOff) => state,
    }
}

/// The report of an entry. Bytes of secrets are left out, since a status is shown to operators and written to logs.
fn report(entry: &Entry, ty: ResourceType) -> ResourceReport {
    let is_secret = ty.is_sensitive() || ty.type_url() == Secret::TYPE_URL;
    let bytes =
        entry.raw().filter(|raw| raw.is_kept()).map(Raw::to_bytes).or_else(|| entry.initial_bytes().cloned());
    ResourceReport {
        order: entry.ty.0,
        type_url: ty.type_url(),
        name: entry.name.clone(),
        state: entry.state(),
        held: entry.held().map(|(version, at)| (version.clone(), at)),
        bytes: bytes.filter(|_| !is_secret && !entry.is_glob),
        is_initial: entry.initial_bytes().is_some(),
        ambient_error: entry.ambient_error().cloned(),
        remarks: entry.resource().and_then(|resource| ty.remarks(resource)).cloned().unwrap_or_default(),
    }
}
