//! HTTP/2 connections to endpoints, on `h2`.

mod keep_alive;
mod load_reports;
mod loss;
mod socket;
mod tunnel;

use std::{
    future::{Future, poll_fn},
    mem,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    SendStream,
    client::{Builder, Connection as H2Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response, Uri, uri::Scheme};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep},
};

pub(super) use self::{keep_alive::LongerIntervals, load_reports::watch_load, loss::Loss};
use self::{
    keep_alive::{KeepAlive, Pings},
    socket::Socket,
};
use super::{
    malformed::MalformedCounters,
    security::{Peer, Secured},
};
use crate::{
    balance::{
        connect_error::ConnectError,
        disconnect::Disconnect,
        picker::{Attempt, Malformed, ReadyEndpoint},
        stream_queue::Gone,
        streams::Streams,
    },
    resource::load_balancing::AddedMetadata,
};

/// What requests are sent with.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    send: SendRequest<Bytes>,
    /// With TLS alone.
    secured: Option<Arc<Secured>>,
}

/// How connections are made and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct ConnectionSettings {
    pub(super) keep_alive: KeepAlive,
    /// How long streams may run on after a drain; forever without it (CH3.9).
    pub(super) drain_limit: Option<Duration>,
}

/// An established connection, to be driven by [`drive`](Self::drive).
pub(super) struct Connection {
    h2: H2Connection<Socket>,
    streams: Arc<Streams<Handle>>,
    pings: Option<Pings>,
    drain_limit: Option<Duration>,
}

/// An attempt with a stream of its connection. When it is dropped, another attempt can have the stream.
#[derive(Debug)]
pub(super) struct Reserved {
    attempt: Attempt<Handle>,
    /// The connection of the stream, if it is not the oldest one of the endpoint.
    other: Option<Arc<Streams<Handle>>>,
    has_response: bool,
}

/// Why a request was not sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// The connection takes no new streams (CH6.12).
    Gone,
    /// The request is not one that HTTP/2 can carry.
    Invalid(h2::Error),
}

/// What executes a connection.
struct Driver<F: FnOnce(Loss)> {
    h2: H2Connection<Socket>,
    /// Until no new streams are taken, or none are wanted.
    send: Option<SendRequest<Bytes>>,
    /// Those who use the connection have it, and it has a handle.
    streams: Weak<Streams<Handle>>,
    limit: usize,
    pings: Option<Pings>,
    drain: Drain,
    drain_limit: Option<Duration>,
    on_lost: Option<F>,
}

/// Whether the channel still uses a connection.
enum Drain {
    NotYet(oneshot::Receiver<()>),
    /// The time left to the streams that run.
    Begun(Option<Pin<Box<Sleep>>>),
}

impl Connection {
    /// Connects. The connection is established when the SETTINGS of the peer are there (CH3.4): a listener that accepts and says
    /// nothing is not a success.
    ///
    /// # Errors
    /// A text with the address: the attempt failed, or took longer than the timeout.
    pub(super) async fn connect(
        peer: &Peer,
        timeout: Duration,
        settings: ConnectionSettings,
    ) -> Result<Self, ConnectError> {
        match tokio::time::timeout(timeout, Self::establish(peer, settings)).await {
            Ok(established) => established.map_err(|error| {
                let text = format!("{peer}: {error}");
                error.with_text(text)
            }),
            Err(_) => Err(format!("{peer}: no HTTP/2 connection within {timeout:?}").into()),
        }
    }

    async fn establish(peer: &Peer, settings: ConnectionSettings) -> Result<Self, ConnectError> {
        let ConnectionSettings { keep_alive, drain_limit, .. } = settings;
        let user_timeout = keep_alive.interval.map(|_| keep_alive.timeout);
        let (mut socket, secured) = Socket::connect(peer, user_timeout).await?;
        let reads = keep_alive.interval.map(|_| socket.note_reads());
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME)
            .initial_max_send_streams(UNKNOWN);
        let handshake = builder.handshake::<_, Bytes>(socket).await;
        let (send, mut h2) = handshake.map_err(|error| format!("HTTP/2: {error}"))?;
        poll_fn(|cx| match Pin::new(&mut h2).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err("HTTP/2: closed before SETTINGS".to_owned())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(format!("HTTP/2: {error}"))),
            Poll::Pending if send.current_max_send_streams() != UNKNOWN => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let pings = reads.and_then(|reads| Pings::new(keep_alive, h2.ping_pong(), reads));
        let limit = send.current_max_send_streams();
        let peer = secured.as_ref().and_then(Secured::peer);
        let handle = Handle { send, secured: secured.map(Arc::new) };
        Ok(Self { h2, streams: Streams::of_peer(handle, limit, peer), pings, drain_limit })
    }

    pub(super) fn streams(&self) -> Arc<Streams<Handle>> {
        self.streams.clone()
    }

    /// Executes the connection until it is closed. `on_lost` is called as soon as it takes no new streams: when GOAWAY is read,
    /// not at the next call (CH3.5). After `drain`, the connection ends with its last stream, or after the limit (CH3.9).
    pub(super) async fn drive(self, drain: oneshot::Receiver<()>, on_lost: impl FnOnce(Loss)) {
        let Self { h2, streams, pings, drain_limit } = self;
        let limit = h2.max_concurrent_send_streams();
        streams.set_limit(limit);
        let (send, on_lost, drain) =
            (Some(streams.handle().send.clone()), Some(on_lost), Drain::NotYet(drain));
        let used = Arc::downgrade(&streams);
        drop(streams);
        let mut driver = Driver { h2, send, streams: used, limit, pings, drain, drain_limit, on_lost };
        poll_fn(|cx| driver.poll(cx)).await;
    }
}

impl<F: FnOnce(Loss)> Driver<F> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let end = Pin::new(&mut self.h2).poll(cx);
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
        self.poll_drain(cx)
    }

    /// Whether the connection has ceased to take new streams.
    fn loss(&mut self, end: &Poll<Result<(), h2::Error>>, cx: &mut Context<'_>) -> Option<Loss> {
        let refusal = self.send.as_mut()?.poll_ready(cx);
        match (refusal, end) {
            (Poll::Ready(Err(error)), _) => Some(Loss::of(&error)),
            (_, Poll::Ready(Err(error))) => Some(Loss::of(error)),
            (_, Poll::Ready(Ok(()))) => Some(Loss::Other(Disconnect::Unknown)),
            (_, Poll::Pending) => None,
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.send = None;
        self.with_streams(Streams::close);
        if let Some(on_lost) = self.on_lost.take() {
            on_lost(loss);
        }
    }

    /// Ready when the peer does not answer.
    fn poll_pings(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(pings) = &mut self.pings else { return Poll::Pending };
        let has_calls = self.streams.upgrade().is_some_and(|it| it.running() > 0);
        let lost = pings.poll(cx, has_calls);
        if lost.is_ready() {
            let reason = pings.reason();
            self.with_streams(|streams| streams.set_reason(reason));
            self.lose(Loss::Other(Disconnect::TimedOut));
        }
        lost
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

    fn with_streams(&self, change: impl FnOnce(&Streams<Handle>)) {
        if let Some(streams) = self.streams.upgrade() {
            change(&streams);
        }
    }
}

impl<F: FnOnce(Loss)> Drop for Driver<F> {
    /// However the driver ends, nobody waits for a stream any more.
    fn drop(&mut self) {
        self.with_streams(Streams::close);
    }
}

impl Handle {
    /// Begins a stream. The peer permits it if the attempt is [`Reserved`].
    pub(super) fn send(
        &self,
        mut request: Request<()>,
        is_end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), SendError> {
        if self.is_private() {
            set_https(request.uri_mut());
        }
        let mut send = self.send.clone();
        send.send_request(request, is_end).map_err(|error| {
            // The connection refuses every stream after GOAWAY, its end, or its last stream id, and otherwise this request alone.
            match send.poll_ready(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Err(_)) => SendError::Gone,
                Poll::Ready(Ok(())) | Poll::Pending => SendError::Invalid(error),
            }
        })
    }

    /// Whether nobody else can read what the connection carries, so that credentials are sent on it (CH2.21).
    pub(super) fn is_private(&self) -> bool {
        self.secured.is_some()
    }

    /// What is known of the peer, if the connection has TLS.
    pub(super) fn secured(&self) -> Option<&Secured> {
        self.secured.as_deref()
    }

    /// Notes in a response who sent it (CH7.22).
    pub(super) fn identify<B>(&self, response: &mut Response<B>) {
        #[cfg(feature = "tls")]
        if let Some(secured) = self.secured() {
            response.extensions_mut().insert(secured.identity().clone());
        }
        #[cfg(not(feature = "tls"))]
        let _ = response;
    }
}

impl Reserved {
    /// Waits for a stream, in the order of the attempts, while the peer permits no further one on its connections (CH4.13).
    ///
    /// # Cancel safety
    /// An attempt that is dropped leaves the queue at once.
    pub(super) async fn new(attempt: Attempt<Handle>) -> Result<Self, Gone> {
        let waiter = attempt.endpoint.connections.queue().wait()?;
        let other = Some(waiter.await?);
        Ok(Self { attempt, other, has_response: false })
    }

    /// The same without waiting.
    pub(super) fn try_new(attempt: Attempt<Handle>) -> Result<Self, Attempt<Handle>> {
        match attempt.endpoint.connections.try_reserve() {
            Some(other) => Ok(Self { attempt, other, has_response: false }),
            None => Err(attempt),
        }
    }

    /// What the request is sent with.
    pub(super) fn handle(&self) -> &Handle {
        self.streams().handle()
    }

    /// Why the connection was ended from this side, if it was.
    pub(super) fn lost_by(&self) -> Option<&str> {
        self.streams().reason()
    }

    fn streams(&self) -> &Streams<Handle> {
        self.other.as_ref().unwrap_or_else(|| self.attempt.endpoint.connections.oldest())
    }

    pub(super) fn endpoint(&self) -> &ReadyEndpoint<Handle> {
        &self.attempt.endpoint
    }

    /// Headers that a policy of the application adds to the request.
    pub(super) fn metadata(&self) -> &[AddedMetadata] {
        &self.attempt.metadata
    }

    /// The request was sent: the attempt is one for outlier detection (CH3.65).
    pub(super) fn on_stream(&mut self) {
        self.attempt.on_stream();
    }

    /// The response is complete, with the status OK.
    pub(super) fn on_ok(&mut self) {
        self.attempt.on_ok();
        self.on_complete();
    }

    /// The response is complete, whatever its status is: the connection has proved itself (CH3.3).
    pub(super) fn on_complete(&self) {
        self.streams().on_complete();
    }

    /// The status of the server, with the load that it reports if the policy reads that.
    pub(super) fn on_trailers(&mut self, trailers: &HeaderMap, malformed: &MalformedCounters) {
        self.on_complete();
        if !self.attempt.reads_reports() {
            return;
        }
        let attempt = &mut self.attempt;
        let read = load_reports::in_trailers(trailers).and_then(|message| match message {
            Some(message) => attempt.on_encoded_report(&message, Instant::now().into_std()),
            None => Ok(()),
        });
        if let Err(Malformed) = read {
            malformed.on_load_report();
        }
    }

    /// The response has begun.
    pub(super) fn on_response(&mut self) {
        if !mem::replace(&mut self.has_response, true) {
            self.streams().on_response();
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.streams().release(self.has_response);
    }
}

/// The scheme is that of the connection.
fn set_https(uri: &mut Uri) {
    let mut parts = mem::take(uri).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

/// The limit of streams until the SETTINGS of the peer are there, which no peer can send (CH15.2).
const UNKNOWN: usize = usize::MAX - 1;
/// The bytes that a peer may send on a stream before they are read.
const STREAM_WINDOW: u32 = 1 << 20;
/// The bytes that a peer may send on all streams of a connection before they are read.
const CONNECTION_WINDOW: u32 = 4 << 20;
/// The longest frame that a peer may send.
const MAX_FRAME: u32 = 64 << 10;

#[cfg(test)]
mod tests;
