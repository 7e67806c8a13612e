//! The shared state of the streams of load reports.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use tokio::sync::{mpsc, watch};
use tonic::Status;

use super::{
    headers::Headers,
    session::LoadReportingConfig,
    store::loads::{LoadReport, Loads},
};
use crate::pb::envoy::service::load_stats::v3::LoadStatsResponse;

/// The state that all streams of load reports share.
///
/// It is apart from that of the discovery streams, so that neither wakes the other.
#[derive(Debug, Default)]
pub(super) struct LoadHub {
    /// The configuration and the faults, which streams follow.
    state: watch::Sender<LoadState>,
    /// The received reports.
    loads: Mutex<Loads>,
    /// Changes whenever `loads` or the number of streams does.
    changes: watch::Sender<()>,
    /// The open streams, for commands.
    streams: Mutex<Streams>,
}

/// The state that streams follow.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadState {
    /// `None` if load reporting is not served.
    pub(super) config: Option<LoadReportingConfig>,
    /// A fault of tests.
    pub(super) fault: Option<LoadFault>,
    /// Whether reports are left unread.
    pub(super) reading_paused: bool,
    /// When response headers are sent.
    pub(super) headers: Headers,
}

/// A fault of the service of load reports, for tests of clients.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum LoadFault {
    /// No response is sent as long as the fault is set.
    NoResponse,
    /// Each response is sent after this time.
    Delay(Duration),
    /// The stream ends with this status in place of its next response.
    EndBeforeResponse(Status),
    /// The stream ends with this status after its next response.
    EndAfterResponse(Status),
    /// Bytes that are no message are sent in place of each response.
    Undecodable,
}

/// A command to a stream.
#[derive(Debug, Clone)]
pub(super) enum LoadCommand {
    /// Sends these bytes as a response.
    Send(Bytes),
    /// Ends the stream with this status.
    End(Status),
    /// Resets the stream.
    Reset,
}

/// The open streams.
#[derive(Debug, Default)]
struct Streams {
    /// The number of streams that were ever opened, which numbers them.
    opened: u64,
    /// The senders of commands, by the number of the stream.
    open: BTreeMap<u64, mpsc::UnboundedSender<LoadCommand>>,
}

impl LoadHub {
    /// Changes the state, and wakes all streams.
    pub(super) fn change(&self, change: impl FnOnce(&mut LoadState)) {
        self.state.send_modify(change);
    }

    /// Returns a copy of the state.
    pub(super) fn state(&self) -> LoadState {
        self.state.borrow().clone()
    }

    /// Returns a receiver that wakes at each change of the state.
    pub(super) fn follow(&self) -> watch::Receiver<LoadState> {
        self.state.subscribe()
    }

    /// Stops serving, and ends all streams as if it never was served.
    pub(super) fn refuse(&self) {
        self.change(|state| state.config = None);
        self.command(&LoadCommand::End(Status::unimplemented(NOT_SERVED)));
    }

    /// Opens a stream, if load reporting is served.
    pub(super) fn open(&self) -> Option<(u64, mpsc::UnboundedReceiver<LoadCommand>)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let id = {
            let mut streams = self.streams();
            // Checked with the lock, so that `refuse` finds every stream that was opened before it.
            self.state.borrow().config.as_ref()?;
            streams.opened += 1;
            let id = streams.opened;
            streams.open.insert(id, sender);
            id
        };
        self.changes.send_replace(());
        Some((id, receiver))
    }

    /// Removes a stream that has ended, and its requests in progress.
    pub(super) fn close(&self, id: u64) {
        self.streams().open.remove(&id);
        self.loads().on_stream_ended(id);
        self.changes.send_replace(());
    }

    /// Sends a command to all open streams; returns their number.
    pub(super) fn command(&self, command: &LoadCommand) -> usize {
        let streams = self.streams();
        streams.open.values().filter(|stream| stream.send(command.clone()).is_ok()).count()
    }

    /// The number of open streams.
    pub(super) fn open_streams(&self) -> usize {
        self.streams().open.len()
    }

    /// Adds a report.
    pub(super) fn add(&self, report: LoadReport) {
        self.loads().add(report);
        self.changes.send_replace(());
    }

    /// Calls a function with the reports.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Loads) -> T) -> T {
        look(&self.loads())
    }

    /// Forgets all reports.
    pub(super) fn clear(&self) {
        self.loads().clear();
    }

    /// Waits until `look` finds a value. Dropping the future consumes nothing.
    pub(super) async fn find<T>(&self, mut look: impl FnMut(&Loads) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(found) = look(&self.loads()) {
                return found;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn loads(&self) -> MutexGuard<'_, Loads> {
        // The reports are added one by one, so a panic elsewhere does not corrupt them.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        // The map is consistent after each statement, so a panic elsewhere does not corrupt it.
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<LoadStatsResponse> for LoadCommand {
    fn from(response: LoadStatsResponse) -> Self {
        Self::Send(response.encode_to_vec().into())
    }
}

/// The text of the status UNIMPLEMENTED.
pub(super) const NOT_SERVED: &str = "load reporting is not served";
