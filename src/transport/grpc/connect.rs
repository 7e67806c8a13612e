//! Connecting to a server: credentials, socket, TLS and HTTP/2, within one timeout.

use std::{
    future::{Future, pending},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Uri};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinHandle},
    time::{Instant, timeout_at},
};

use super::{outgoing::Outgoing, watched_io::WatchedIo};
use crate::{
    config::Server,
    dial::{self, Alpn, SocketOptions},
    transport::{
        ConnectionEvents, Disconnect, DisconnectKind,
        socket::{CallHeaders, CredentialSources, Loader, Secured, explain},
    },
};

/// The parameters for connecting to a server.
#[derive(Debug)]
pub(super) struct Connect<'a> {
    pub(super) server: &'a Server,
    pub(super) credentials: &'a CredentialSources,
    /// The interval of keepalive pings.
    pub(super) keepalive: Duration,
    /// The timeout of the response to a ping.
    pub(super) keepalive_timeout: Duration,
    /// The timeout of all steps together.
    pub(super) connect_timeout: Duration,
    /// Receives the report of the first read.
    pub(super) events: &'a ConnectionEvents,
    /// Collects the tasks of the connection.
    pub(super) tasks: Tasks,
}

/// An HTTP/2 connection.
#[derive(Debug)]
pub(super) struct Link {
    /// Begins streams.
    pub(super) requests: SendRequest<Outgoing>,
    /// The end of the connection, with its reason.
    pub(super) end: End,
    /// The scheme and authority of requests.
    pub(super) origin: Uri,
    /// The headers of the credentials, and the metadata.
    pub(super) headers: HeaderMap,
}

/// The end of a connection, whose error is more precise than that of a stream.
#[derive(Debug)]
pub(super) enum End {
    /// The task that drives the connection.
    ToCome(JoinHandle<hyper::Result<()>>),
    /// The connection has ended, with this error.
    Come(Option<hyper::Error>),
    /// The end of the connection is awaited by another stream; this stream ends with it.
    Elsewhere,
}

impl Connect<'_> {
    /// Loads the headers of the credentials, and the metadata.
    pub(super) async fn headers(&self) -> Result<HeaderMap, Disconnect> {
        let begin = Instant::now();
        let loader = self.loader();
        let CallHeaders { headers, .. } = self.bounded(begin, NO_CREDENTIALS, loader.headers()).await??;
        self.bounded(begin, NO_METADATA, loader.with_metadata(headers)).await?
    }

    /// Connects, and loads the headers.
    pub(super) async fn connect(self) -> Result<Link, Disconnect> {
        let begin = Instant::now();
        let loader = self.loader();
        // Credentials first: without them no connection is made, rather than one that is not secured.
        let mut credentials = self.bounded(begin, NO_CREDENTIALS, loader.load(Alpn::Http2)).await??;
        let headers = std::mem::take(&mut credentials.headers);
        let headers = self.bounded(begin, NO_METADATA, loader.with_metadata(headers)).await??;
        // An unacknowledged request is as bad as an unanswered ping (A18).
        let options =
            SocketOptions { user_timeout: Some(self.keepalive_timeout), ..SocketOptions::default() };
        let open = dial::open(self.server.uri.address(), options);
        let (io, host) = self.bounded(begin, NO_ANSWER, open).await?.map_err(|e| self.unreachable(&e))?;
        let secure = credentials.secure(io, &host);
        let Secured { io, .. } =
            self.bounded(begin, FROZEN, secure).await?.map_err(|e| self.unreachable(&*e))?;
        let handshake = self.http2().handshake(TokioIo::new(WatchedIo::new(io, self.events.clone())));
        let (requests, connection) =
            self.bounded(begin, FROZEN, handshake).await?.map_err(|e| self.unreachable(&e))?;
        let end = tokio::spawn(connection);
        self.tasks.add(end.abort_handle());
        let end = End::ToCome(end);
        let origin = Uri::builder()
            .scheme(if credentials.is_secure() { "https" } else { "http" })
            .authority(self.server.http_authority())
            .path_and_query("/")
            .build()
            .map_err(|e| self.unreachable(&e))?;
        Ok(Link { requests, end, origin, headers })
    }

    /// Returns the loader of credentials.
    fn loader(&self) -> Loader<'_> {
        self.credentials.of(self.server)
    }

    /// Waits for a step, within the remaining time of the common timeout.
    async fn bounded<T>(
        &self,
        begin: Instant,
        what: &str,
        step: impl Future<Output = T>,
    ) -> Result<T, Disconnect> {
        let time = self.connect_timeout;
        let too_long = |_| Disconnect::new(DisconnectKind::Unreachable, format!("{what}, within {time:?}"));
        timeout_at(begin + time, step).await.map_err(too_long)
    }

    /// Returns the failure of a step, with a hint at its cause.
    fn unreachable(&self, why: &(dyn std::error::Error + 'static)) -> Disconnect {
        Disconnect::new(DisconnectKind::Unreachable, explain(why, &self.server.channel_credentials))
    }

    /// Returns the settings of HTTP/2.
    fn http2(&self) -> http2::Builder<Tasks> {
        let mut http2 = http2::Builder::new(self.tasks.clone());
        http2
            .timer(TokioTimer::new())
            .keep_alive_interval(self.keepalive)
            .keep_alive_timeout(self.keepalive_timeout)
            // hyper pings only while streams are open otherwise, and a connection that died between two would fail the next one.
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        http2
    }
}

impl End {
    /// Waits for the end; returns its error.
    ///
    /// # Cancel safety
    /// It can be called again.
    pub(super) async fn wait(&mut self) -> Option<&hyper::Error> {
        if let Self::Elsewhere = self {
            return pending().await;
        }
        if let Self::ToCome(connection) = self {
            // Assigned after the wait: if that is cancelled, the task is still there for the next one.
            *self = Self::Come(connection.await.ok().and_then(Result::err));
        }
        match self {
            Self::Come(error) => error.as_ref(),
            Self::ToCome(_) | Self::Elsewhere => None,
        }
    }
}

/// The tasks of one connection. hyper spawns its tasks here, so that none outlives the connection for long.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    handles: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Tasks {
    /// Gives the tasks time to close the connection, then aborts those that cannot because the server does not read.
    pub(super) fn end(&self) {
        let tasks = self.clone();
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(FAREWELL).await;
                tasks.abort();
            })),
            // Outside of a runtime there is no timer.
            Err(_) => tasks.abort(),
        }
    }

    /// Aborts all tasks at once.
    fn abort(&self) {
        self.lock().drain(..).for_each(|task| task.abort());
    }

    /// Adds a task of the connection.
    fn add(&self, task: AbortHandle) {
        let mut handles = self.lock();
        // hyper spawns tasks for each stream, and streams reopen on a connection without end. Ended tasks are dropped when the list is
        // full, which then has room for as many as are left, so that a task costs the same however long the list is.
        if handles.len() == handles.capacity() {
            handles.retain(|task| !task.is_finished());
            let running = handles.len();
            handles.reserve(running.max(MIN_ROOM));
        }
        handles.push(task);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<AbortHandle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.add(tokio::spawn(task).abort_handle());
    }
}

/// The texts of steps that took too long.
const NO_CREDENTIALS: &str = "its credentials cannot be read";
const NO_METADATA: &str = "the metadata of its calls cannot be loaded";
/// The probable cause of a connect timeout.
const NO_ANSWER: &str = "no reply from its address, which may be wrong or blocked by a firewall";
const FROZEN: &str = "the server accepts connections but sends nothing";

/// The receive window of a stream: large enough that the response of a large mesh arrives at network speed, and small
/// enough that a server that sends faster than the client processes cannot fill the memory.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The minimum number of tasks that are added between two searches for ended ones.
const MIN_ROOM: usize = 4;

/// The maximum time for informing a server that a stream and its connection have ended.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use hyper::rt::Executor;
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    #[tokio::test]
    async fn tasks_that_have_ended_are_not_kept_while_the_connection_lives() {
        let tasks = Tasks::default();
        let (running, ended) = oneshot::channel::<()>();
        tasks.execute(async {
            pending::<()>().await;
            drop(running);
        });
        for _ in 0..10_000 {
            tasks.execute(async {});
            yield_now().await;
        }
        let kept = tasks.lock().len();
        assert!(kept < 10, "{kept} handles, of which one is of a running task");
        tasks.abort();
        ended.await.expect_err("the running task is aborted");
    }
}
