//! The body of a request: read once, kept for a repeated attempt, and sent on a stream (CH6.16, CH6.17).

mod replay;

use std::{
    any::Any,
    error::Error,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h2::SendStream;
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tonic::{Status, body::Body};

use self::replay::Replay;
pub(super) use self::replay::RetryBuffer;
use super::telemetry::MessageBytes;

/// A body that is read once. Its sent parts are kept to be sent again, as long as the buffer has room.
pub(super) struct RequestBody {
    /// The body of the application.
    body: Body,
    /// The next part, which was read and is not sent yet.
    ahead: Option<Part>,
    /// Whether the end of the body was read.
    is_read: bool,
    /// The sent parts.
    replay: Replay,
}

/// A part of a body.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// Bytes of messages, at least one.
    Data(Bytes),
    /// Trailers, with which the body ends.
    Trailers(Box<HeaderMap>),
    /// The end of a body without trailers.
    End,
}

/// Sends a body on the stream of an attempt.
pub(super) struct RequestUpload {
    /// The stream of the attempt.
    stream: SendStream<Bytes>,
    /// The unsent rest of a part, for which the peer has given no window yet.
    rest: Bytes,
    /// Whether data were sent.
    has_begun: bool,
    /// Counts bytes for telemetry; `None` without it.
    sent: Option<SentBytes>,
}

/// The bytes of messages that were sent.
#[derive(Default)]
struct SentBytes {
    /// The count, without the prefixes of messages.
    bytes: MessageBytes,
    /// A copy of the count for the response, while the upload goes on beside it.
    shared: Option<Arc<AtomicU64>>,
}

/// The upload of the rest of a request whose response has begun.
pub(super) struct DetachedUpload {
    /// The body, which is not sent again any more.
    body: RequestBody,
    /// The sender on the stream of the response.
    upload: RequestUpload,
}

impl RequestBody {
    /// Creates a body that has not been read.
    pub(super) fn new(body: Body, buffer: &Arc<RetryBuffer>) -> Self {
        let is_read = body.is_end_stream();
        let ahead = is_read.then_some(Part::End);
        Self { body, ahead, is_read, replay: Replay::new(buffer) }
    }

    /// Goes back to the first part, for another attempt. Only for a request that [`is_kept`](Self::is_kept).
    pub(super) fn rewind(&mut self) {
        self.replay.rewind();
    }

    /// Whether all sent parts can be sent again.
    pub(super) fn is_kept(&self) -> bool {
        self.replay.is_kept()
    }

    /// Drops the kept parts: the request is not sent again (CH6.11).
    pub(super) fn commit(&mut self) {
        self.replay.discard();
    }

    /// Reads ahead, so that the first data and the end go out together with what precedes them (CH15.6). True if the body has
    /// ended.
    pub(super) fn is_at_end(&mut self, cx: &mut Context<'_>) -> Result<bool, Status> {
        // The next part is a kept one, whatever the body has behind it.
        if self.replay.is_replaying() {
            return Ok(false);
        }
        match self.poll_ahead(cx) {
            Poll::Ready(part) => Ok(matches!(part?, Part::End)),
            Poll::Pending => Ok(false),
        }
    }

    /// Returns the next part, to be sent now. `End` is repeated.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Part, Status>> {
        if let Some(part) = self.replay.next_part() {
            return Poll::Ready(Ok(part));
        }
        ready!(self.poll_ahead(cx))?;
        match self.ahead.take() {
            // The end stays in its place, for `is_at_end` and for a repeated poll.
            Some(Part::End) | None => {
                self.ahead = Some(Part::End);
                Poll::Ready(Ok(Part::End))
            }
            Some(part) => {
                self.replay.keep(&part);
                Poll::Ready(Ok(part))
            }
        }
    }

    /// Reads the next part, unless there is one.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<&Part, Status>> {
        while self.ahead.is_none() && !self.is_read {
            let part = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => Part::End,
                Some(frame) => match frame?.into_data() {
                    // An empty part is none: some peers count empty frames as an attack.
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => Part::Data(data),
                    Err(frame) => {
                        frame.into_trailers().map_or(Part::End, |trailers| Part::Trailers(trailers.into()))
                    }
                },
            };
            self.is_read = !matches!(part, Part::Data(_));
            self.ahead = Some(part);
        }
        Poll::Ready(Ok(self.ahead.get_or_insert(Part::End)))
    }
}

impl RequestUpload {
    /// Creates a sender on a stream.
    pub(super) fn new(stream: SendStream<Bytes>, counts_bytes: bool) -> Self {
        let sent = counts_bytes.then(SentBytes::default);
        Self { stream, rest: Bytes::new(), has_begun: false, sent }
    }

    /// Returns the bytes of messages that were sent, if they are counted.
    pub(super) fn sent(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.bytes.total())
    }

    /// Returns the number of bytes of messages that were sent, updated while the upload goes on beside the response.
    pub(super) fn share_sent(&mut self) -> Arc<AtomicU64> {
        let sent = self.sent.get_or_insert_default();
        let shared = Arc::new(AtomicU64::new(sent.bytes.total()));
        sent.shared = Some(shared.clone());
        shared
    }

    /// Sends a body as far as possible. Ready when all of it is sent, or the stream has ended.
    ///
    /// # Errors
    /// The body cannot be read. The stream is reset.
    pub(super) fn poll(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let polled = self.poll_send(body, cx);
        if let Poll::Ready(Err(_)) = polled {
            // A server must not take a part of the body for all of it.
            self.stream.send_reset(h2::Reason::CANCEL);
        }
        polled
    }

    /// Sends a body, and leaves the stream as it is after an error.
    fn poll_send(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        loop {
            if self.rest.is_empty() {
                match ready!(body.poll_part(cx))? {
                    Part::Data(data) => self.rest = data,
                    // An error of the stream has its reason in the response.
                    Part::Trailers(trailers) => {
                        let _ = self.stream.send_trailers(*trailers);
                        return Poll::Ready(Ok(()));
                    }
                    Part::End => {
                        let _ = self.stream.send_data(Bytes::new(), true);
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            let Some(capacity) = ready!(self.poll_capacity(cx)) else { return Poll::Ready(Ok(())) };
            let part = self.rest.split_to(capacity.min(self.rest.len()));
            // The end goes out with the last data if it is known.
            let is_end = self.rest.is_empty() && body.is_at_end(cx)?;
            if let Some(sent) = &mut self.sent {
                sent.count(&part);
            }
            if self.stream.send_data(part, is_end).is_err() || is_end {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Returns how many bytes may be sent; `None` if the stream has ended.
    fn poll_capacity(&mut self, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        // The beginning of a request may wait for flow control in h2, which most need not.
        if !mem::replace(&mut self.has_begun, true) && self.rest.len() <= UNCHECKED {
            return Poll::Ready(Some(self.rest.len()));
        }
        self.stream.reserve_capacity(self.rest.len());
        match self.stream.capacity() {
            0 => self.stream.poll_capacity(cx).map(|capacity| capacity.and_then(Result::ok)),
            capacity => Poll::Ready(Some(capacity)),
        }
    }
}

impl SentBytes {
    /// Counts sent bytes.
    fn count(&mut self, part: &[u8]) {
        self.bytes.count(part);
        if let Some(shared) = &self.shared {
            shared.store(self.bytes.total(), Ordering::Relaxed);
        }
    }
}

impl DetachedUpload {
    /// Creates the upload, and drops the kept parts, since the response has begun.
    pub(super) fn new(mut body: RequestBody, upload: RequestUpload) -> Self {
        body.commit();
        Self { body, upload }
    }
}

impl Future for DetachedUpload {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { body, upload } = &mut *self;
        // What cannot be read has cancelled the stream, which is the status of the call.
        if upload.poll(body, cx).is_ready() {
            return Poll::Ready(());
        }
        // The peer may end the stream without reading the rest.
        upload.stream.poll_reset(cx).map(|_| ())
    }
}

/// Converts any body to one type; the body of tonic's clients has it already, and is not wrapped.
pub(super) fn erase<B>(body: B) -> Body
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Downcast by reference, which takes no box; the `Option` lets the body out of the reference.
    let mut body = Some(body);
    if let Some(body) = <dyn Any>::downcast_mut::<Option<Body>>(&mut body) {
        return body.take().unwrap_or_default();
    }
    body.map_or_else(Body::empty, |body| {
        Body::new(body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))))
    })
}

/// The length up to which the first data of a request are sent without regard to flow control.
const UNCHECKED: usize = 16 << 10;
