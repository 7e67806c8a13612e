//! The connections of a channel: attempts, established connections, and the tasks that drive them.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    task::{AbortHandle, JoinSet},
};
use tracing::{debug, info};

use super::Event;
use crate::{
    Client,
    background::{TaskEnd, supervise},
    balance::{command::ConnectionId, identity::Destination, stream_queue::streams::Streams},
    channel::{
        connection::{Connection, ConnectionSettings, Handle, LongerIntervals, Loss},
        security::{ChannelSecurity, Peer},
        shared_connections::{Key, Lease, Report, SharedConnections},
    },
    config::Target,
};

/// Executes the commands of the core about connections, and reports their results.
pub(super) struct Connections {
    /// The client, whose shared connections are leased.
    client: Client,
    /// The target, for the log.
    target: Target,
    /// The settings of connections.
    settings: ConnectionSettings,
    /// The TLS of each destination.
    security: ChannelSecurity,
    /// Whether connections are leased from those that channels share.
    is_shared: bool,
    /// Attempts in progress. An event of an attempt that is not here was overtaken by its cancellation.
    attempts: HashMap<ConnectionId, (SocketAddr, Attempt)>,
    /// Connections in use. One that is drained or lost is removed.
    established: HashMap<ConnectionId, (SocketAddr, Established)>,
    /// Keepalive intervals of addresses that have reported too many pings.
    longer_intervals: LongerIntervals,
    /// The tasks of connections, also of those that are drained.
    drivers: JoinSet<()>,
    /// Reports to the task of the channel.
    events: UnboundedSender<Event>,
}

/// An attempt to connect. A lease is cancelled when it is dropped.
enum Attempt {
    /// The task of an attempt for this channel alone.
    Own(AbortHandle),
    /// A lease of a connection that other channels may have, or attempt, already.
    Shared(Lease),
}

/// A value whose end drains a connection.
enum Established {
    /// The end of this drains the connection.
    Own(#[expect(dead_code, reason = "its end is what counts")] oneshot::Sender<()>),
    /// A lease, whose connection is drained with the last one.
    Shared(#[expect(dead_code, reason = "its end is what counts")] Lease),
}

/// The task that reads load reports beside the calls. It is aborted when this is dropped.
pub(super) struct LoadWatch(AbortHandle);

impl Connections {
    pub(super) fn new(
        client: Client,
        target: Target,
        settings: ConnectionSettings,
        security: ChannelSecurity,
        events: UnboundedSender<Event>,
    ) -> Self {
        Self {
            client,
            target,
            settings,
            security,
            is_shared: false,
            attempts: HashMap::new(),
            established: HashMap::new(),
            longer_intervals: LongerIntervals::default(),
            drivers: JoinSet::new(),
            events,
        }
    }

    /// Sets whether connections are leased from those that the channels of the client share (CH3.8).
    pub(super) fn with_shared(mut self, is_shared: bool) -> Self {
        self.is_shared = is_shared;
        self
    }

    /// Begins an attempt. All work, such as reading certificates, is done by a task of its own (CH7.23).
    pub(super) fn connect(&mut self, id: ConnectionId, destination: &Destination, timeout: Duration) {
        let peer = self.security.peer(destination);
        let address = peer.address;
        let keep_alive = self.longer_intervals.apply(address, self.settings.keep_alive);
        let settings = ConnectionSettings { keep_alive, ..self.settings };
        let attempt = match self.is_shared {
            true => self.lease(id, Key { peer, settings }, timeout),
            false => self.attempt(id, peer, timeout, settings),
        };
        self.attempts.insert(id, (address, attempt));
    }

    /// Cancels an attempt.
    pub(super) fn cancel(&mut self, id: ConnectionId) {
        if let Some((_, Attempt::Own(attempt))) = self.attempts.remove(&id) {
            attempt.abort();
        }
    }

    /// Closes a connection as soon as its streams have ended.
    pub(super) fn drain(&mut self, id: ConnectionId) {
        // The connection sees the end of this half, and ends with its last stream.
        self.established.remove(&id);
    }

    /// Handles a connection, which is driven from now on; `None` if its attempt was cancelled meanwhile.
    pub(super) fn on_connected(
        &mut self,
        id: ConnectionId,
        connection: Connection,
    ) -> Option<Arc<Streams<Handle>>> {
        let (address, _) = self.attempts.remove(&id)?;
        let (drain, is_drained) = oneshot::channel();
        self.established.insert(id, (address, Established::Own(drain)));
        let (streams, events) = (connection.streams(), self.events.clone());
        let on_lost = move |loss| {
            // Without a task nobody counts connections.
            let _ = events.send(Event::Lost(id, loss));
        };
        self.drivers.spawn(connection.drive(is_drained, on_lost));
        Some(streams)
    }

    /// Handles a leased connection; false if its attempt was cancelled meanwhile.
    pub(super) fn on_joined(&mut self, id: ConnectionId) -> bool {
        let Some((address, Attempt::Shared(lease))) = self.attempts.remove(&id) else { return false };
        self.established.insert(id, (address, Established::Shared(lease)));
        true
    }

    /// Handles a failed attempt; false if it was cancelled meanwhile.
    pub(super) fn on_failed(&mut self, id: ConnectionId, error: &str) -> bool {
        let is_known = self.attempts.remove(&id).is_some();
        if is_known {
            debug!(target_name = %self.target, error, "connection attempt failed");
        }
        is_known
    }

    /// Handles a connection that takes no new streams any more; false if it was drained meanwhile.
    pub(super) fn on_lost(&mut self, id: ConnectionId, loss: Loss) -> bool {
        let Some((address, _)) = self.established.remove(&id) else { return false };
        match loss {
            Loss::TooManyPings => self.on_too_many_pings(address),
            Loss::Other(_) => {}
        }
        true
    }

    /// Logs that a further connection may be due.
    pub(super) fn on_full(&self, id: ConnectionId) {
        if let Some((address, _)) = self.established.get(&id) {
            debug!(target_name = %self.target, %address, "all streams are in use, a further connection is requested");
        }
    }

    /// Waits for the end of a connection; `None` if there is none.
    ///
    /// # Cancel safety
    /// No end is lost.
    pub(super) async fn ended(&mut self) -> Option<()> {
        self.drivers.join_next().await.map(|_| ())
    }

    /// Lets connections end by themselves.
    pub(super) fn detach(&mut self) {
        self.drivers.detach_all();
    }

    /// Ends all connections.
    pub(super) async fn shut_down(&mut self) {
        self.drivers.shutdown().await;
    }

    /// Doubles the keepalive interval of the next connections to an address.
    fn on_too_many_pings(&mut self, address: SocketAddr) {
        // Both maps are by connection. The set is made for this rare event alone.
        let used: HashSet<_> = self
            .attempts
            .values()
            .map(|(at, _)| *at)
            .chain(self.established.values().map(|(at, _)| *at))
            .collect();
        let doubled = self.longer_intervals.double(address, self.settings.keep_alive, |at| used.contains(at));
        if let Some(interval) = doubled {
            info!(target_name = %self.target, %address, ?interval, "the server reports too many pings");
        }
    }

    /// Leases a shared connection.
    fn lease(&self, id: ConnectionId, key: Key, timeout: Duration) -> Attempt {
        let events = self.events.clone();
        let report = move |report| {
            // Without a task nobody counts connections.
            let _ = events.send(match report {
                Report::Connected(streams) => Event::Joined(id, streams),
                Report::Failed(error) => Event::Failed(id, error),
                Report::Lost(loss) => Event::Lost(id, loss),
            });
        };
        Attempt::Shared(SharedConnections::of(&self.client).lease(key, timeout, report))
    }

    /// Begins an attempt of its own.
    fn attempt(
        &self,
        id: ConnectionId,
        peer: Peer,
        timeout: Duration,
        settings: ConnectionSettings,
    ) -> Attempt {
        let (events, on_end) = (self.events.clone(), self.events.clone());
        let text = peer.to_string();
        let attempt = async move {
            let event = match Connection::connect(&peer, timeout, settings).await {
                Ok(established) => Event::Connected(id, Box::new(established)),
                Err(error) => Event::Failed(id, error),
            };
            // Without a task nobody counts connections.
            let _ = events.send(event);
        };
        let attempt = supervise("connection attempt", attempt, move |end| {
            // An attempt that is cancelled is not waited for.
            if let TaskEnd::Panicked(message) = end {
                let error = format!("{text}: the attempt to connect panicked: {message}");
                let _ = on_end.send(Event::Failed(id, error.into()));
            }
        });
        Attempt::Own(tokio::spawn(attempt).abort_handle())
    }
}

impl LoadWatch {
    pub(super) fn new(reading: AbortHandle) -> Self {
        Self(reading)
    }
}

impl Drop for LoadWatch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
