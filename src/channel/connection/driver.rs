//! The execution of a connection: its frames, pings, windows and end.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    Ping, PingPong,
    client::{Connection as H2Connection, SendRequest},
};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};
use tracing::warn;

use super::{
    Handle,
    keep_alive::KeepAliveTimer,
    loss::Loss,
    outbound::Outbound,
    responses::Responses,
    socket::Socket,
    window::{Load, StreamWindow},
};
use crate::balance::{disconnect::Disconnect, stream_queue::streams::Streams};

/// Executes a connection until it is closed.
pub(super) struct Driver<F: FnOnce(Loss)> {
    /// Reads and writes frames.
    h2: H2Connection<Socket>,
    /// Set while the connection takes new streams, and the channel begins some.
    send: Option<SendRequest<Bytes>>,
    /// Weak, since its users own it, and it owns a handle of this connection.
    streams: Weak<Streams<Handle>>,
    /// The responses in progress.
    responses: Arc<Responses>,
    /// Counts of what was written.
    outbound: Arc<Outbound>,
    /// The limit of concurrent streams that the peer announced last.
    limit: usize,
    /// Sends pings. h2 has one at a time, which keepalive and window share.
    ping_pong: Option<PingPong>,
    /// Keepalive pings, unless they are off.
    keep_alive: Option<KeepAliveTimer>,
    /// The window of streams.
    window: WindowUpdates,
    /// Whether the channel still uses the connection.
    drain: Drain,
    /// How long streams may run on after a drain.
    drain_limit: Option<Duration>,
    /// Reports the loss of the connection, once.
    on_lost: Option<F>,
}

/// The announcements of windows.
struct WindowUpdates {
    /// Computes the window.
    window: StreamWindow,
    /// The bytes that applications had read at the last poll.
    seen: u64,
    /// The next time to read the unread bytes, which takes a moment for each response.
    next_look: Instant,
}

/// The state of the use of a connection by the channel.
enum Drain {
    /// The channel uses the connection until the other end of this is dropped.
    NotYet(oneshot::Receiver<()>),
    /// The channel no longer uses it; the timer ends the remaining streams, if there is a limit.
    Begun(Option<Pin<Box<Sleep>>>),
}

/// The parts of a driver.
pub(super) struct Parts {
    pub(super) h2: H2Connection<Socket>,
    pub(super) streams: Arc<Streams<Handle>>,
    pub(super) ping_pong: Option<PingPong>,
    pub(super) keep_alive: Option<KeepAliveTimer>,
    pub(super) window: StreamWindow,
    pub(super) drain: oneshot::Receiver<()>,
    pub(super) drain_limit: Option<Duration>,
}

impl<F: FnOnce(Loss)> Driver<F> {
    /// Creates a driver, and sets the limit of streams.
    pub(super) fn new(parts: Parts, on_lost: F) -> Self {
        let Parts { h2, streams, ping_pong, keep_alive, window, drain, drain_limit } = parts;
        let limit = h2.max_concurrent_send_streams();
        streams.set_limit(limit);
        let handle = streams.handle();
        Self {
            limit,
            send: Some(handle.send.clone()),
            responses: handle.responses().clone(),
            outbound: handle.outbound.clone(),
            streams: Arc::downgrade(&streams),
            h2,
            ping_pong,
            keep_alive,
            window: WindowUpdates { window, seen: 0, next_look: Instant::now() },
            drain: Drain::NotYet(drain),
            drain_limit,
            on_lost: Some(on_lost),
        }
    }

    /// Executes the connection. Ready when it is closed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Frames first: what they bring, such as GOAWAY or other SETTINGS, decides all that follows.
        let end = self.poll_frames(cx);
        if let Some(loss) = self.loss(&end, cx) {
            self.lose(loss);
        }
        let limit = self.h2.max_concurrent_send_streams();
        if limit != self.limit {
            self.limit = limit;
            self.with_streams(|streams| streams.set_limit(limit));
        }
        if end.is_ready() || self.poll_pings(cx).is_ready() {
            return Poll::Ready(());
        }
        self.poll_windows(cx);
        self.poll_drain(cx)
    }

    /// Reads and writes frames.
    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let end = Pin::new(&mut self.h2).poll(cx);
        // The socket reads no further before that.
        if self.responses.inbound().needs_compaction() {
            self.responses.compact();
        }
        end
    }

    /// Returns the reason why the connection has ceased to take new streams, once.
    fn loss(&mut self, end: &Poll<Result<(), h2::Error>>, cx: &mut Context<'_>) -> Option<Loss> {
        let refusal = self.send.as_mut()?.poll_ready(cx);
        match (refusal, end) {
            (Poll::Ready(Err(error)), _) => Some(Loss::of(&error)),
            (_, Poll::Ready(Err(error))) => Some(Loss::of(error)),
            (_, Poll::Ready(Ok(()))) => Some(Loss::Other(Disconnect::Unknown)),
            // Its streams go on, on the way to its end.
            (_, Poll::Pending) if self.is_worn_out() => Some(Loss::Other(Disconnect::Shutdown)),
            (_, Poll::Pending) => None,
        }
    }

    /// Whether the connection is to be replaced before h2 closes it, or its window is used up.
    fn is_worn_out(&self) -> bool {
        self.outbound.is_worn_out() || self.responses.inbound().is_window_used_up()
    }

    /// Ends the use of the connection for new streams, and reports that.
    fn lose(&mut self, loss: Loss) {
        self.send = None;
        if let Some(streams) = self.streams.upgrade() {
            streams.close();
            // h2 has found an error of the protocol, which ends all calls of the connection at once.
            if let Loss::Other(Disconnect::SentGoAway(_)) = loss {
                let (reason, running) = (loss.reason().name(), streams.running());
                warn!(endpoint = %streams.handle().address, reason, running, "the connection was closed by the channel");
            }
        }
        if let Some(on_lost) = self.on_lost.take() {
            on_lost(loss);
        }
    }

    /// Handles pings. Ready when the peer has not responded in time.
    fn poll_pings(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(ping_pong) = &mut self.ping_pong else { return Poll::Pending };
        // h2 has one ping under way at a time: a pong of keepalive finds no sample that it could end.
        if let Poll::Ready(Ok(_)) = ping_pong.poll_pong(cx) {
            let consumed = self.responses.inbound().consumed();
            self.window.window.on_pong(consumed, Instant::now().into_std());
        }
        let Some(keep_alive) = &mut self.keep_alive else { return Poll::Pending };
        let has_calls = self.streams.upgrade().is_some_and(|streams| streams.running() > 0);
        let lost = keep_alive.poll(cx, has_calls, ping_pong);
        if lost.is_ready() {
            let reason = keep_alive.reason();
            self.with_streams(|streams| streams.set_reason(reason));
            self.lose(Loss::Other(Disconnect::TimedOut));
        }
        lost
    }

    /// Measures how much applications read, and announces the windows that they need.
    fn poll_windows(&mut self, cx: &mut Context<'_>) {
        let WindowUpdates { window, seen, next_look } = &mut self.window;
        let consumed = self.responses.inbound().consumed();
        let before = mem::replace(seen, consumed);
        if self.responses.inbound().take_bulk()
            && window.wants_sample(Instant::now().into_std())
            && let Some(ping_pong) = &mut self.ping_pong
            // An error means that a ping is under way already.
            && ping_pong.send_ping(Ping::opaque()).is_ok()
        {
            // What asks for the sample counts, as in gRPC: nothing else may follow before the answer.
            window.on_ping(before);
        }
        // Most connections never outgrow the initial window, and cost neither a clock nor the locks of responses.
        if !window.may_change() {
            return;
        }
        let now = Instant::now();
        if now < *next_look {
            return;
        }
        *next_look = now + LOOK_INTERVAL;
        let streams = self.streams.upgrade().map_or(0, |streams| streams.running());
        let load = Load { streams, unread: self.responses.unread() };
        // An error means that the peer has not confirmed the last window.
        if let Some(size) = window.change(load)
            && self.h2.set_initial_window_size(size).is_ok()
        {
            window.on_announced(size);
            self.responses.inbound().set_window(size);
            // h2 writes the SETTINGS when it is polled the next time.
            cx.waker().wake_by_ref();
        }
    }

    /// Ready when the time of a drain is over.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Drain::NotYet(drain) = &mut self.drain {
            if Pin::new(drain).poll(cx).is_pending() {
                return Poll::Pending;
            }
            // A connection that was lost ends by itself.
            let limit = self.drain_limit.filter(|_| self.on_lost.is_some());
            self.drain = Drain::Begun(limit.map(|limit| Box::pin(sleep(limit))));
            // The end of the last handle ends the connection when its streams have ended; this polls it once more.
            (self.send, self.on_lost) = (None, None);
            self.with_streams(Streams::close);
            cx.waker().wake_by_ref();
        }
        let Drain::Begun(Some(limit)) = &mut self.drain else { return Poll::Pending };
        let over = limit.as_mut().poll(cx);
        if over.is_ready() {
            let limit = self.drain_limit.unwrap_or_default();
            let reason = format!("the channel no longer uses it, and its drain limit of {limit:?} is over");
            self.with_streams(|streams| streams.set_reason(reason));
        }
        over
    }

    /// Calls a function with the streams, if anybody uses them.
    fn with_streams(&self, change: impl FnOnce(&Streams<Handle>)) {
        if let Some(streams) = self.streams.upgrade() {
            change(&streams);
        }
    }
}

impl<F: FnOnce(Loss)> Drop for Driver<F> {
    /// However the driver ends, nobody waits for a stream any more, and nobody takes the connection for a usable one.
    fn drop(&mut self) {
        self.with_streams(Streams::close);
        self.responses.close();
        if let Some(on_lost) = self.on_lost.take() {
            on_lost(Loss::Other(Disconnect::Unknown));
        }
    }
}

/// The shortest time between two looks at the unread bytes of a connection: each locks the registry and every response for a
/// moment.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
