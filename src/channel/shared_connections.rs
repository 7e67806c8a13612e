//! Connections that the channels of a client use together (CH3.8).

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::{oneshot, watch},
    task::AbortHandle,
};

use super::{
    connection::{Connection, ConnectionSettings, Handle, Loss},
    security::Peer,
};
use crate::{
    balance::{connect_error::ConnectError, disconnect::Disconnect, stream_queue::streams::Streams},
    client::Client,
};

/// The connections of a client's channels that share them, by peer and settings.
pub(super) struct SharedConnections {
    /// Weak: a connection ends with its last lease.
    by_key: Mutex<HashMap<Key, Weak<SharedConnection>>>,
}

/// The identity of a shared connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The address, the proxy and the TLS of the connection.
    pub(super) peer: Peer,
    /// The settings. Channels with other ones have another connection.
    pub(super) settings: ConnectionSettings,
}

/// A connection, or the attempt at one. It is drained, or the attempt is cancelled, when no channel uses it.
struct SharedConnection {
    /// The state, which each lease follows.
    state: watch::Receiver<State>,
    /// Dropped with the last lease, which drains the connection.
    _used: oneshot::Sender<()>,
}

/// The state of a shared connection.
#[derive(Debug, Clone)]
enum State {
    /// The attempt is in progress.
    Connecting,
    /// The connection takes streams.
    Ready(Arc<Streams<Handle>>),
    /// The attempt has failed.
    Failed(ConnectError),
    /// The connection takes no new streams any more.
    Lost(Loss),
}

/// The use of a connection by a channel. The connection is drained when the last lease is dropped.
pub(super) struct Lease {
    _connection: Arc<SharedConnection>,
    /// The task that reports to the channel.
    reports: AbortHandle,
}

/// A report of a connection to a channel that uses it.
pub(super) enum Report {
    /// The connection takes streams.
    Connected(Arc<Streams<Handle>>),
    /// There is no connection. No report follows.
    Failed(ConnectError),
    /// The connection takes no new streams any more. No report follows.
    Lost(Loss),
}

impl SharedConnections {
    /// Returns the connections of the channels of a client.
    pub(super) fn of(client: &Client) -> Arc<Self> {
        client.extension(|_| Self { by_key: Mutex::default() })
    }

    /// Leases the connection to a peer, which is attempted if there is none. Reports come in the order of the variants of
    /// [`Report`], the first one within the timeout. To be called within a runtime.
    pub(super) fn lease(
        &self,
        key: Key,
        timeout: Duration,
        report: impl Fn(Report) + Send + 'static,
    ) -> Lease {
        let connection = self.get(key.clone(), timeout);
        let state = connection.state.clone();
        let reports = tokio::spawn(follow(state, key.peer, timeout, report)).abort_handle();
        Lease { _connection: connection, reports }
    }

    /// Returns the connection of a key, attempted if there is no usable one.
    fn get(&self, key: Key, timeout: Duration) -> Arc<SharedConnection> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let known = by_key.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|connection| connection.is_usable()) {
            return known;
        }
        // CH11.12: keys of ended connections go where the map would grow.
        by_key.retain(|_, connection| connection.strong_count() > 0);
        let connection = SharedConnection::connect(key.clone(), timeout);
        by_key.insert(key, Arc::downgrade(&connection));
        connection
    }
}

impl SharedConnection {
    /// Begins to connect.
    fn connect(key: Key, timeout: Duration) -> Arc<Self> {
        let (states, state) = watch::channel(State::Connecting);
        let (used, is_unused) = oneshot::channel();
        tokio::spawn(run(key, timeout, states, is_unused));
        Arc::new(Self { state, _used: used })
    }

    /// Whether a channel may use it from now on.
    fn is_usable(&self) -> bool {
        // The task has the sender, and drops it at its end, however it ends.
        let is_over = self.state.has_changed().is_err();
        !is_over && matches!(&*self.state.borrow(), State::Connecting | State::Ready(_))
    }
}

/// Connects, and executes the connection.
async fn run(
    Key { peer, settings }: Key,
    timeout: Duration,
    states: watch::Sender<State>,
    mut is_unused: oneshot::Receiver<()>,
) {
    let connected = tokio::select! {
        connected = Connection::connect(&peer, timeout, settings) => connected,
        // Without a lease, no channel follows the state.
        _ = &mut is_unused => return,
    };
    match connected {
        Ok(connection) => {
            states.send_replace(State::Ready(connection.streams()));
            // The state has a handle, which goes with the sender when the connection is drained.
            connection.drive(is_unused, move |loss| drop(states.send_replace(State::Lost(loss)))).await;
        }
        Err(error) => drop(states.send_replace(State::Failed(error))),
    }
}

/// Reports the states of a connection to a channel.
async fn follow(mut state: watch::Receiver<State>, peer: Peer, timeout: Duration, report: impl Fn(Report)) {
    let established = state.wait_for(|state| !matches!(state, State::Connecting));
    // The timeout is that of this lease, whose channel may have joined an attempt of another one.
    let established = match tokio::time::timeout(timeout, established).await {
        Ok(Ok(state)) => state.clone(),
        Ok(Err(_)) => State::Failed(format!("{peer}: the attempt to connect was cancelled").into()),
        Err(_) => State::Failed(format!("{peer}: no HTTP/2 connection within {timeout:?}").into()),
    };
    match established {
        State::Ready(streams) => report(Report::Connected(streams)),
        State::Failed(error) => return report(Report::Failed(error)),
        State::Lost(_) | State::Connecting => {
            return report(Report::Failed(format!("{peer}: the connection was lost").into()));
        }
    }
    let lost = match state.wait_for(|state| matches!(state, State::Lost(_))).await.as_deref() {
        Ok(State::Lost(loss)) => *loss,
        Ok(_) | Err(_) => Loss::Other(Disconnect::Unknown),
    };
    report(Report::Lost(lost));
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.reports.abort();
    }
}

impl fmt::Debug for SharedConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("SharedConnections").field("connections", &by_key.len()).finish_non_exhaustive()
    }
}
