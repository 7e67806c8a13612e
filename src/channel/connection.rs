//! HTTP/2 connections to endpoints, on `h2`.

mod driver;
mod frames;
mod http2;
mod inbound;
mod keep_alive;
mod late_frames;
mod load_reports;
mod loss;
mod outbound;
mod preface;
mod responses;
mod socket;
mod window;

use std::{
    future::{Future, poll_fn},
    mem,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::{
    PingPong, SendStream, StreamId,
    client::{Connection as H2Connection, ResponseFuture, SendRequest},
};
use http::{HeaderMap, Request, Response, Uri, uri::Scheme};
use tokio::{sync::oneshot, time::Instant};

use self::{
    driver::{Driver, Parts},
    http2::UNKNOWN_STREAMS,
    inbound::Inbound,
    keep_alive::{KeepAlive, KeepAliveTimer},
    outbound::Outbound,
    socket::Socket,
    window::StreamWindow,
};
pub(super) use self::{
    http2::Http2Settings,
    keep_alive::LongerIntervals,
    load_reports::{LoadWatchSettings, watch_load},
    loss::Loss,
    responses::{OpenResponse, Registration, Responses},
};
use super::{
    malformed::MalformedCounters,
    security::{Peer, Secured},
};
use crate::{
    balance::{
        connect_error::ConnectError,
        picker::{Attempt, Malformed},
        ready_endpoint::ReadyEndpoint,
        status::{ConnectionFacts, TransportFacts},
        stream_queue::Gone,
        stream_queue::streams::Streams,
    },
    escape::{PEER_TEXT, cut},
    resource::load_balancing::AddedMetadata,
};

/// The part of a connection that attempts use: cloned for each stream.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    /// Begins streams.
    send: SendRequest<Bytes>,
    /// The result of the TLS handshake; `None` for plaintext.
    secured: Option<Arc<Secured>>,
    /// The address of the endpoint, for errors.
    address: SocketAddr,
    /// The address of this side; `None` if the transport has none.
    local: Option<SocketAddr>,
    /// The responses in progress on the connection.
    responses: Arc<Responses>,
    /// Counts of what was written.
    outbound: Arc<Outbound>,
    /// The limits of the connection.
    http2: Http2Settings,
}

/// Settings of a connection. Shared connections are shared by equal settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct ConnectionSettings {
    /// Keepalive pings.
    pub(super) keep_alive: KeepAlive,
    /// How long streams may run on after a drain; `None` is without a limit (CH3.9).
    pub(super) drain_limit: Option<Duration>,
    /// The limits of HTTP/2.
    pub(super) http2: Http2Settings,
}

/// An established connection, to be driven by [`drive`](Self::drive).
pub(super) struct Connection {
    /// The connection of the h2 crate, which does nothing unless it is polled.
    h2: H2Connection<Socket>,
    /// The streams of the connection, which picks reserve.
    streams: Arc<Streams<Handle>>,
    /// Sends pings, for keepalive and for the window.
    ping_pong: Option<PingPong>,
    /// Keepalive pings, unless they are off.
    keep_alive: Option<KeepAliveTimer>,
    /// The window of streams.
    window: StreamWindow,
    /// How long streams may run on after a drain; `None` is without a limit.
    drain_limit: Option<Duration>,
}

/// An attempt with a stream reserved on a connection. Dropping it releases the stream for another attempt.
#[derive(Debug)]
pub(super) struct Reserved {
    /// The pick, with its endpoint and what counts the attempt.
    attempt: Attempt<Handle>,
    /// The connection of the stream, if it is not the oldest one of the endpoint.
    other: Option<Arc<Streams<Handle>>>,
    /// The number of the stream, once the request was passed to h2.
    stream: Option<u32>,
    /// Whether the response has begun.
    has_response: bool,
    /// Whether the response is complete.
    is_complete: bool,
}

/// The reason why a request was not sent.
#[derive(Debug)]
pub(super) enum SendError {
    /// The connection takes no new streams (CH6.12).
    Gone,
    /// The headers are larger than the peer accepts.
    /// Both numbers are bytes by the count of HTTP/2; see [`header_list_size`].
    TooLarge { size: usize, limit: u32 },
    /// The request is not one that HTTP/2 can carry.
    Invalid(h2::Error),
}

impl Connection {
    /// Connects. The connection is established when the SETTINGS of the peer have arrived (CH3.4): a listener that accepts and
    /// sends nothing is not a success.
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

    /// Connects without a limit of time.
    async fn establish(peer: &Peer, settings: ConnectionSettings) -> Result<Self, ConnectError> {
        let ConnectionSettings { keep_alive, drain_limit, http2 } = settings;
        // A18: the system gives a connection up when an unanswered ping would, and only where pings are on.
        let user_timeout = keep_alive.interval.map(|_| keep_alive.timeout);
        let (mut socket, secured) = Socket::connect(peer, user_timeout).await?;
        socket.announce_header_list_size(http2.max_header_list_size);
        if keep_alive.interval.is_some() {
            socket.note_reads();
        }
        let local = socket.local_address();
        let (inbound, outbound) = (socket.inbound().clone(), socket.outbound().clone());
        let handshake = http2.client().handshake::<_, Bytes>(socket).await;
        let (send, mut h2) = handshake.map_err(|error| format!("HTTP/2: {}", shown(&error)))?;
        // CH15.2: h2 reports the first SETTINGS by nothing but the limit of streams, which differs from the impossible one then.
        poll_fn(|cx| match Pin::new(&mut h2).poll(cx) {
            Poll::Ready(end) => Poll::Ready(Err(end_before_settings(&end, &inbound))),
            Poll::Pending if send.current_max_send_streams() != UNKNOWN_STREAMS => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        // The limit of the peer is known now, so that the first call does not begin a stream that the peer refuses.
        let limit = send.current_max_send_streams();
        let identity = secured.as_ref().and_then(Secured::peer);
        let (secured, responses) = (secured.map(Arc::new), Responses::new(inbound.clone()));
        let handle = Handle { send, secured, address: peer.address, local, responses, outbound, http2 };
        Ok(Self {
            ping_pong: h2.ping_pong(),
            h2,
            streams: Streams::of_peer(handle, limit, identity),
            keep_alive: KeepAliveTimer::new(keep_alive, &inbound),
            window: StreamWindow::new(&http2, Instant::now().into_std()),
            drain_limit,
        })
    }

    /// Returns the streams of the connection.
    pub(super) fn streams(&self) -> Arc<Streams<Handle>> {
        self.streams.clone()
    }

    /// Executes the connection until it is closed. `on_lost` is called as soon as it takes no new streams: when GOAWAY is read,
    /// not at the next call (CH3.5). After `drain`, the connection ends with its last stream, or after the limit (CH3.9).
    pub(super) async fn drive(self, drain: oneshot::Receiver<()>, on_lost: impl FnOnce(Loss)) {
        let Self { h2, streams, ping_pong, keep_alive, window, drain_limit } = self;
        let parts = Parts { h2, streams, ping_pong, keep_alive, window, drain, drain_limit };
        let mut driver = Driver::new(parts, on_lost);
        poll_fn(|cx| driver.poll(cx)).await;
    }
}

/// Explains a connection that ended before its SETTINGS, or together with them.
fn end_before_settings(end: &Result<(), h2::Error>, inbound: &Inbound) -> String {
    match (inbound.go_away(), end) {
        (Some(go_away), _) => {
            format!("HTTP/2: the server closed the connection at its beginning with {go_away}")
        }
        (None, Err(error)) => format!("HTTP/2: {}", shown(error)),
        (None, Ok(())) => "HTTP/2: closed before SETTINGS".to_owned(),
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
        // A server that is sent more than it accepts may end the connection, and with it all other calls.
        if let Some(limit) = self.responses.inbound().max_header_list_size() {
            let size = request_size(&request);
            if size > limit as usize {
                return Err(SendError::TooLarge { size, limit });
            }
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

    /// The responses under way on the connection.
    pub(super) fn responses(&self) -> &Arc<Responses> {
        &self.responses
    }

    /// The limits of what the connection receives.
    pub(super) fn http2(&self) -> &Http2Settings {
        &self.http2
    }

    /// Adds the identity of the peer to the extensions of a response (CH7.22).
    pub(super) fn identify<B>(&self, response: &mut Response<B>) {
        #[cfg(feature = "tls")]
        if let Some(secured) = self.secured() {
            response.extensions_mut().insert(secured.identity().clone());
        }
        #[cfg(not(feature = "tls"))]
        let _ = response;
    }
}

impl ConnectionFacts for Handle {
    fn facts(&self) -> TransportFacts {
        TransportFacts {
            local: self.local,
            streams_begun: self.outbound.begun_streams(),
            streams_completed: self.outbound.completed_streams(),
            tls: self.secured().map(Secured::status),
        }
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
        Ok(Self { attempt, other, stream: None, has_response: false, is_complete: false })
    }

    /// Reserves a stream like [`new`](Self::new) without waiting; returns the attempt if no connection has one.
    pub(super) fn try_new(attempt: Attempt<Handle>) -> Result<Self, Attempt<Handle>> {
        match attempt.endpoint.connections.try_reserve() {
            Some(other) => Ok(Self { attempt, other, stream: None, has_response: false, is_complete: false }),
            None => Err(attempt),
        }
    }

    /// What the request is sent with.
    pub(super) fn handle(&self) -> &Handle {
        self.streams().handle()
    }

    /// Returns the reason why this side ended the connection; `None` if it did not.
    pub(super) fn lost_by(&self) -> Option<&str> {
        self.streams().reason()
    }

    /// Returns the connection of the reserved stream.
    fn streams(&self) -> &Streams<Handle> {
        self.other.as_ref().unwrap_or_else(|| self.attempt.endpoint.connections.oldest())
    }

    /// Returns the endpoint of the attempt.
    pub(super) fn endpoint(&self) -> &ReadyEndpoint<Handle> {
        &self.attempt.endpoint
    }

    /// Headers that a policy of the application adds to the request.
    pub(super) fn metadata(&self) -> &[AddedMetadata] {
        &self.attempt.metadata
    }

    /// Records the stream of the request: the attempt counts for outlier detection (CH3.65), unless it is never sent.
    pub(super) fn on_stream(&mut self, stream: StreamId) {
        self.stream = Some(stream.as_u32());
        self.attempt.on_stream();
    }

    /// Whether the request is still with this side (CH6.12): the server permits no further stream, or the connection has not written
    /// it yet.
    pub(super) fn is_unsent(&self) -> bool {
        !self.has_response && self.stream.is_none_or(|stream| !self.handle().outbound.has_begun(stream))
    }

    /// Whether the server does not process the request, by the last stream of its GOAWAY (CH6.13).
    pub(super) fn is_excluded(&self) -> bool {
        self.stream.is_some_and(|stream| self.handle().responses.inbound().is_excluded(stream))
    }

    /// Handles a complete response with the status OK.
    pub(super) fn on_ok(&mut self) {
        self.attempt.on_ok();
        self.on_complete();
    }

    /// Handles a complete response, whatever its status: the connection has proved itself (CH3.3).
    pub(super) fn on_complete(&mut self) {
        self.is_complete = true;
        self.streams().on_complete();
    }

    /// Handles the status of the server, with the load report beside it if the policy reads those.
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

    /// Handles the begin of the response.
    pub(super) fn on_response(&mut self) {
        if !mem::replace(&mut self.has_response, true) {
            self.streams().on_response();
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // CH2.22: the server has seen nothing of the attempt.
        if self.is_unsent() {
            self.attempt.on_never_sent();
        }
        if self.is_complete {
            self.handle().outbound.on_completed();
        }
        self.streams().release(self.has_response);
    }
}

/// Sets the scheme of a request on a connection with TLS.
fn set_https(uri: &mut Uri) {
    let mut parts = mem::take(uri).into_parts();
    parts.scheme = Some(Scheme::HTTPS);
    *uri = Uri::from_parts(parts).unwrap_or_default();
}

/// The size of a list of headers by HTTP/2's count: the lengths of names and values, and 32 bytes for each field (RFC 9113,
/// section 6.5.2).
pub(super) fn header_list_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD).sum()
}

/// The size of the header list of a request, with `:method`, `:scheme`, `:authority` and `:path`.
fn request_size(request: &Request<()>) -> usize {
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    // A missing path is sent as `/`, and a missing scheme is that of plaintext.
    let path = uri.path_and_query().map_or(1, |path| path.as_str().len());
    let pseudo = [request.method().as_str().len(), uri.scheme_str().unwrap_or("http").len(), authority, path];
    let names = ":method:scheme:authority:path".len() + pseudo.len() * FIELD_OVERHEAD;
    header_list_size(request.headers()) + pseudo.iter().sum::<usize>() + names
}

/// Returns the text of an error, shortened: it may contain the debug data of a GOAWAY.
pub(super) fn shown(error: &h2::Error) -> String {
    cut(error, PEER_TEXT)
}

/// The bytes that HTTP/2 counts for each field beside its name and value.
const FIELD_OVERHEAD: usize = 32;

#[cfg(test)]
mod tests;
