//! Files in place of servers (rules D1 to D9).
//!
//! ```text
//!   send ────────▶ ┌──────┐ read ┌─────────┐ DiscoveryResponse
//!   changes ─────▶ │ task │ ───▶ │ content │ ──▶ received
//!   (settled)      └──────┘      └─────────┘ ──▶ failed
//! ```
//!
//! A file is read for each request, and when it has changed and no further change has followed for a moment: a
//! partially written file is never an update. A file that is unreadable or unusable is reported, and read again after
//! the next change.

mod content;
mod read;
mod watch;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    task::AbortHandle,
    time::{Instant, timeout},
};
use tracing::{debug, info, warn};

use self::watch::{Hub, Watch};
use super::{Connection, ConnectionEvents, Disconnect, DisconnectKind};
use crate::{config::PathSource, escape::Escaped, format::Read};

/// The transport for files.
#[derive(Debug)]
pub(super) struct Files {
    /// The watcher of the file system, shared by all files.
    hub: Arc<Hub>,
    /// The maximum size of a file in bytes.
    limit: usize,
}

impl Files {
    pub(super) fn new(limit: usize) -> Self {
        Self { hub: Arc::default(), limit }
    }

    /// Opens a file: a task reads and watches it until the connection is dropped.
    pub(super) fn open(
        &self,
        file: Arc<PathSource>,
        type_url: &'static str,
        events: ConnectionEvents,
    ) -> Box<dyn Connection> {
        let (requests, requested) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        let watch = Watch::new(self.hub.clone(), file.clone());
        let reader = Reader {
            file,
            type_url,
            limit: self.limit,
            events,
            requested,
            permits: permits.clone(),
            watch: Some(watch),
            last: Last::Nothing,
        };
        let task = tokio::spawn(reader.run()).abort_handle();
        Box::new(Opened { requests, permits, task })
    }
}

/// The driver's end of an opened file.
#[derive(Debug)]
struct Opened {
    /// A value for each request, whose content is ignored.
    requests: mpsc::UnboundedSender<()>,
    /// A permit for each message that may be reported.
    permits: Arc<Semaphore>,
    task: AbortHandle,
}

impl Connection for Opened {
    /// The content of the request is ignored: the response is always the whole file (D8).
    fn send(&mut self, _: Bytes) {
        // An error means that the task has ended, which happens on request alone.
        let _ = self.requests.send(());
    }

    fn read(&mut self) {
        self.permits.add_permits(1);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The task of a file.
#[derive(Debug)]
struct Reader {
    file: Arc<PathSource>,
    type_url: &'static str,
    /// The maximum size of the file in bytes.
    limit: usize,
    events: ConnectionEvents,
    /// Requests; closed when the connection is dropped.
    requested: mpsc::UnboundedReceiver<()>,
    permits: Arc<Semaphore>,
    /// The watch of the file; `None` while the reading thread has it.
    watch: Option<Watch>,
    /// The last report, which is not repeated without a request.
    last: Last,
}

/// The last report of a file.
#[derive(Debug, PartialEq)]
enum Last {
    Nothing,
    Received(Bytes),
    Failed(Disconnect),
}

impl Reader {
    /// Reads the file for each request and after each change.
    async fn run(mut self) {
        info!(file = %self.file, "watching file");
        // A file needs no connection: that it cannot be read is the failure of a poll, after which it is watched on.
        self.events.connected();
        loop {
            let Some(watch) = &self.watch else { return };
            let is_requested = tokio::select! {
                request = self.requested.recv() => match request {
                    Some(()) => true,
                    None => return,
                },
                // Nothing is read before the first request.
                () = watch.changed(), if self.last != Last::Nothing => false,
            };
            if !is_requested {
                settle(watch).await;
            }
            let Some(read) = self.read().await else { return };
            if is_requested {
                // Only now: the does-not-exist timer starts here, and must not expire before the file was read.
                self.events.request_sent();
            }
            self.report(read, is_requested).await;
        }
    }

    /// Reads the file between writes; `None` when the runtime ends.
    async fn read(&mut self) -> Option<Result<Read, Disconnect>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let (mut watch, file, type_url) = (self.watch.take()?, self.file.clone(), self.type_url);
            let limit = self.limit;
            let reading = tokio::task::spawn_blocking(move || {
                // Before the file is read: a change between both is an event that has it read again.
                if let Err(error) = watch.follow() {
                    warn!(%file, error = %Escaped(&error), "file watch failed, changes may be missed");
                }
                (look(&file, type_url, limit), watch)
            });
            let (outcome, watch) = reading.await.ok()?;
            let is_settled = !watch.is_being_written() || Instant::now() >= until;
            if !is_settled || (outcome.is_none() && Instant::now() < until) {
                settle(&watch).await;
                self.watch = Some(watch);
                continue;
            }
            self.watch = Some(watch);
            let unsteady = || Err(unusable("it is written all the time".to_owned()));
            return Some(outcome.unwrap_or_else(unsteady));
        }
    }

    /// Reports the content, unless it equals the last report and was not requested.
    async fn report(&mut self, read: Result<Read, Disconnect>, is_requested: bool) {
        let last = match read {
            Ok(Read { message, warnings, .. }) => {
                let last = Last::Received(message.clone());
                if self.last != last
                    && let Some(first) = warnings.first()
                {
                    warn!(file = %self.file, count = warnings.len(), first, "unknown fields skipped");
                    warnings
                        .iter()
                        .for_each(|warning| debug!(file = %self.file, warning, "unknown field skipped"));
                }
                if is_requested || self.last != last {
                    debug!(file = %self.file, bytes = message.len(), "file read");
                    let permit = self.permits.acquire().await.expect("the semaphore is never closed");
                    permit.forget();
                    self.events.received(message);
                }
                last
            }
            Err(reason) => {
                // A failure is no message, so that it takes no permit.
                let last = Last::Failed(reason.clone());
                if is_requested || self.last != last {
                    self.events.failed(reason);
                }
                last
            }
        };
        self.last = last;
    }
}

/// Reads the file once; `None` if it was, or may have been, written meanwhile.
fn look(file: &PathSource, type_url: &str, limit: usize) -> Option<Result<Read, Disconnect>> {
    match read::steady(file, limit) {
        Ok(None) => None,
        Ok(Some(document)) => Some(content::read(&document, &file.path, type_url).map_err(unusable)),
        Err(reason) => Some(Err(reason)),
    }
}

/// Returns the failure of a poll whose file is unusable.
fn unusable(why: String) -> Disconnect {
    Disconnect::new(DisconnectKind::Unusable, why)
}

/// Waits until no event has occurred for a while, and the writer has closed the file.
async fn settle(watch: &Watch) {
    let until = Instant::now() + PATIENCE;
    loop {
        let quiet = timeout(SETTLE, watch.changed()).await.is_err();
        if quiet && !watch.is_being_written() {
            return;
        }
        if Instant::now() >= until {
            return watch.forget_writer();
        }
    }
}

/// The time without events after which a file is read.
const SETTLE: Duration = Duration::from_millis(100);

/// The maximum wait for a file that is written continuously, or that a writer keeps open.
const PATIENCE: Duration = Duration::from_secs(10);
