//! The pool: a task that drives a balancer, a task for each connection, and requests.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    sync::{Notify, mpsc, oneshot, watch},
    task::AbortHandle,
    time::{sleep_until, timeout},
};
use xdskit::{
    Resolution,
    balance::{Balancer, Command, ConnectionId, Pick, PickRequest, Picker, Settings},
    lrs::Outcome,
};

/// A connection: requests to its task, which ends when the last of these is dropped.
type Connection = mpsc::UnboundedSender<(String, oneshot::Sender<String>)>;

enum Event {
    Connected(ConnectionId, Connection),
    Failed(ConnectionId, io::Error),
    Closed(ConnectionId),
}

/// Connections to the endpoints of a target.
pub(crate) struct Pool {
    pickers: watch::Receiver<Picker<Connection>>,
    requests: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(resolution: Resolution) -> Self {
        let wake = Arc::new(Notify::new());
        let waker = wake.clone();
        let settings = Settings::new(fastrand::u64(..))
            .with_connect_backoff(Duration::from_millis(50), Duration::from_millis(200))
            .with_on_request(move || waker.notify_one());
        let mut balancer = Balancer::new(settings);
        let (publish, pickers) =
            watch::channel(balancer.poll_picker(Instant::now()).expect("the first picker"));
        tokio::spawn(drive(balancer, resolution, wake, publish));
        Self { pickers, requests: AtomicUsize::new(0) }
    }

    /// Sends a line, to another endpoint if one is lost before it answers, and returns the answer. Without an endpoint that can be reached
    /// it waits, as calls of gRPC that wait for ready.
    pub(crate) async fn request(&self, cluster: &str, line: String) -> io::Result<String> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (mut pickers, random, mut attempts) = (self.pickers.clone(), fastrand::u64(..), 0);
        while attempts < 4 {
            let picker = pickers.borrow_and_update().clone();
            let request = PickRequest::to_cluster(cluster, random).with_attempt(attempts);
            match picker.pick(&request) {
                Pick::Endpoint(mut attempt) => {
                    let (reply, answer) = oneshot::channel();
                    if attempt.connection().send((line.clone(), reply)).is_ok() {
                        attempt.on_sent();
                        attempts += 1;
                        if let Ok(Ok(answer)) = timeout(ANSWER, answer).await {
                            attempt.finish(Outcome::Success);
                            return Ok(answer);
                        }
                        continue;
                    }
                    // Nothing was sent: the connection is lost, which the next picker knows.
                }
                Pick::Fail(error) if !error.is_transient() => return Err(io::Error::other(error)),
                Pick::Wait | Pick::Fail(_) => {}
            }
            let changed = pickers.wait_for(|next| next.has_changed(&picker, &request));
            timeout(ANSWER, changed).await?.map_err(io::Error::other)?;
        }
        Err(io::Error::other(format!("{cluster}: no attempt was answered")))
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

/// Executes the commands of the balancer, and publishes its pickers.
#[allow(clippy::wildcard_enum_match_arm, reason = "there may be further commands")]
async fn drive(
    mut balancer: Balancer<Connection>,
    mut resolution: Resolution,
    wake: Arc<Notify>,
    publish: watch::Sender<Picker<Connection>>,
) {
    let (events, mut received) = mpsc::unbounded_channel();
    let mut attempts = HashMap::<ConnectionId, AbortHandle>::new();
    loop {
        while let Some(command) = balancer.poll_command(Instant::now()) {
            match command {
                Command::Connect { connection, target, timeout: limit, .. } => {
                    let events = events.clone();
                    let task = tokio::spawn(async move {
                        match timeout(limit, TcpStream::connect(target.address())).await {
                            Ok(Ok(stream)) => run(connection, stream, events).await,
                            Ok(Err(error)) => drop(events.send(Event::Failed(connection, error))),
                            Err(elapsed) => drop(events.send(Event::Failed(connection, elapsed.into()))),
                        }
                    });
                    attempts.insert(connection, task.abort_handle());
                }
                Command::Cancel { connection, .. } => {
                    attempts.remove(&connection).inspect(AbortHandle::abort);
                }
                // The balancer has dropped its handle, and so the task ends with the last request.
                Command::Close { .. } => {}
                _ => {}
            }
        }
        if let Some(picker) = balancer.poll_picker(Instant::now()) {
            publish.send_replace(picker);
        }
        let due = balancer.poll_timeout();
        tokio::select! {
            resolved = resolution.next() => match resolved {
                Some(resolved) => balancer.handle_resolution(resolved, Instant::now()),
                None => return,
            },
            Some(event) = received.recv() => match event {
                Event::Connected(connection, requests) => {
                    attempts.remove(&connection);
                    balancer.handle_connected(connection, requests, Instant::now());
                }
                Event::Failed(connection, error) => {
                    attempts.remove(&connection);
                    balancer.handle_connect_failed(connection, &error, Instant::now());
                }
                Event::Closed(connection) => balancer.handle_closed(connection, Instant::now()),
            },
            () = wake.notified() => {}
            () = async { sleep_until(due.unwrap_or_else(Instant::now).into()).await }, if due.is_some() => {
                balancer.handle_timeout(Instant::now());
            }
        }
    }
}

/// Sends requests on a connection one after the other, and gives each its answer, until either end closes it.
async fn run(connection: ConnectionId, stream: TcpStream, events: mpsc::UnboundedSender<Event>) {
    let (handle, mut requests) = mpsc::unbounded_channel::<(String, oneshot::Sender<String>)>();
    let _ = events.send(Event::Connected(connection, handle));
    let (read, mut write) = stream.into_split();
    let (mut lines, mut waiting) = (BufReader::new(read).lines(), VecDeque::new());
    let mut is_closing = false;
    while !is_closing || !waiting.is_empty() {
        tokio::select! {
            request = requests.recv(), if !is_closing && waiting.len() < PIPELINED => match request {
                Some((line, reply)) => {
                    waiting.push_back(reply);
                    if write.write_all(format!("{line}\n").as_bytes()).await.is_err() { break }
                }
                None => is_closing = true,
            },
            line = lines.next_line() => match (line, waiting.pop_front()) {
                (Ok(Some(line)), Some(reply)) => drop(reply.send(line)),
                // The end of the connection, or an answer to nothing.
                _ => break,
            },
        }
    }
    let _ = events.send(Event::Closed(connection));
}

/// The time for a connection, and for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Requests that are sent before the first of them is answered.
const PIPELINED: usize = 100;
