//! The body of a request: read once, kept for a repeated attempt, and sent on a stream (CH6.16, CH6.17).

use std::{
    any::Any,
    error::Error,
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h2::SendStream;
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tonic::{Status, body::Body};

use super::telemetry::MessageBytes;

/// How much of requests is kept until their responses begin.
#[derive(Debug)]
pub(super) struct Buffer {
    /// Bytes of one request.
    per_call: usize,
    /// Bytes of all requests of the channel.
    per_channel: usize,
    used: AtomicUsize,
}

/// A body that is read once. What was sent of it is kept, as long as the buffer has room, to be sent again.
pub(super) struct RequestBody {
    body: Body,
    /// The next part of the body, which was read and is not sent yet.
    ahead: Option<Part>,
    /// The end of the body was read.
    is_read: bool,
    kept: Kept,
    /// How many of the kept parts the current attempt has sent.
    replayed: usize,
}

/// A part of a body.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
    End,
}

/// What was sent of a body.
enum Kept {
    Nothing(Arc<Buffer>),
    Parts(Parts),
    /// The request is not sent again.
    Dropped,
}

/// The first part has a place of its own, since most requests have one.
struct Parts {
    first: Part,
    more: Vec<Part>,
    size: usize,
    buffer: Arc<Buffer>,
}

/// Sends a body on the stream of an attempt.
pub(super) struct Pump {
    stream: SendStream<Bytes>,
    /// A part of the body that is not sent completely.
    rest: Bytes,
    has_begun: bool,
    sent: Option<SentBytes>,
}

/// The bytes of messages that were sent, and who else looks at them.
#[derive(Default)]
struct SentBytes {
    bytes: MessageBytes,
    shared: Option<Arc<AtomicU64>>,
}

/// The rest of a request whose response has begun.
pub(super) struct Rest {
    body: RequestBody,
    pump: Pump,
}

impl Buffer {
    pub(super) fn new(per_call: usize, per_channel: usize) -> Arc<Self> {
        Arc::new(Self { per_call, per_channel, used: AtomicUsize::new(0) })
    }

    /// The bytes that are kept of all requests.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes of a request that has so many already; false if there is no room.
    fn take(&self, bytes: usize, before: usize) -> bool {
        if before + bytes > self.per_call {
            return false;
        }
        let is_taken = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.per_channel;
        if !is_taken {
            self.release(bytes);
        }
        is_taken
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl RequestBody {
    pub(super) fn new(body: Body, buffer: &Arc<Buffer>) -> Self {
        let is_read = body.is_end_stream();
        let ahead = is_read.then_some(Part::End);
        Self { body, ahead, is_read, kept: Kept::Nothing(buffer.clone()), replayed: 0 }
    }

    /// Begins again, for another attempt. Only a request that [`is_kept`](Self::is_kept) can.
    pub(super) fn rewind(&mut self) {
        debug_assert!(self.is_kept(), "the beginning is not there any more");
        self.replayed = 0;
    }

    /// Whether all that was sent can be sent again.
    pub(super) fn is_kept(&self) -> bool {
        match self.kept {
            Kept::Nothing(_) | Kept::Parts(_) => true,
            Kept::Dropped => false,
        }
    }

    /// The request is not sent again (CH6.11).
    pub(super) fn commit(&mut self) {
        self.kept = Kept::Dropped;
    }

    /// Reads ahead, so that the first data and the end go out together with what is before them (CH15.6). True if the body has
    /// ended: nothing follows.
    pub(super) fn is_at_end(&mut self, cx: &mut Context<'_>) -> Result<bool, Status> {
        if self.replay().is_some() {
            return Ok(false);
        }
        match self.poll_ahead(cx) {
            Poll::Ready(part) => Ok(matches!(part?, Part::End)),
            Poll::Pending => Ok(false),
        }
    }

    /// The next part, to be sent now. After the end it is `End` again.
    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<Part, Status>> {
        if let Some(part) = self.replay() {
            let part = part.clone();
            self.replayed += 1;
            return Poll::Ready(Ok(part));
        }
        ready!(self.poll_ahead(cx))?;
        match self.ahead.take() {
            Some(Part::End) | None => {
                self.ahead = Some(Part::End);
                Poll::Ready(Ok(Part::End))
            }
            Some(part) => {
                self.keep(&part);
                Poll::Ready(Ok(part))
            }
        }
    }

    /// What was sent by an earlier attempt, and not yet by this one.
    fn replay(&self) -> Option<&Part> {
        let Kept::Parts(Parts { first, more, .. }) = &self.kept else { return None };
        match self.replayed {
            0 => Some(first),
            replayed => more.get(replayed - 1),
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<&Part, Status>> {
        while self.ahead.is_none() && !self.is_read {
            let part = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                None => Part::End,
                Some(frame) => match frame?.into_data() {
                    // An empty part is none: some peers count empty frames as an attack.
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => Part::Data(data),
                    Err(frame) => frame.into_trailers().map_or(Part::End, Part::Trailers),
                },
            };
            self.is_read = !matches!(part, Part::Data(_));
            self.ahead = Some(part);
        }
        Poll::Ready(Ok(self.ahead.get_or_insert(Part::End)))
    }

    fn keep(&mut self, part: &Part) {
        let size = part.size();
        self.replayed += 1;
        match &mut self.kept {
            Kept::Nothing(buffer) if buffer.take(size, 0) => {
                let (first, buffer) = (part.clone(), buffer.clone());
                self.kept = Kept::Parts(Parts { first, more: Vec::new(), size, buffer });
            }
            Kept::Parts(parts) if parts.buffer.take(size, parts.size) => {
                parts.size += size;
                parts.more.push(part.clone());
            }
            Kept::Nothing(_) | Kept::Parts(_) | Kept::Dropped => self.kept = Kept::Dropped,
        }
    }
}

impl Part {
    fn size(&self) -> usize {
        match self {
            Self::Data(data) => data.len(),
            Self::Trailers(trailers) => {
                trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
            }
            Self::End => 0,
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.buffer.release(self.size);
    }
}

impl Pump {
    /// Counts the bytes of messages if they are needed.
    pub(super) fn new(stream: SendStream<Bytes>, counts_bytes: bool) -> Self {
        let sent = counts_bytes.then(SentBytes::default);
        Self { stream, rest: Bytes::new(), has_begun: false, sent }
    }

    /// The bytes of messages that were sent.
    pub(super) fn sent(&self) -> Option<u64> {
        self.sent.as_ref().map(|it| it.bytes.total())
    }

    /// The same, for a request that is sent beside its response.
    pub(super) fn share_sent(&mut self) -> Arc<AtomicU64> {
        let sent = self.sent.get_or_insert_default();
        let shared = Arc::new(AtomicU64::new(sent.bytes.total()));
        sent.shared = Some(shared.clone());
        shared
    }

    /// Sends what there is of a body. Ready when all of it is sent, or the stream has ended.
    ///
    /// # Errors
    /// The body cannot be read. The stream is cancelled.
    pub(super) fn poll(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let polled = self.poll_send(body, cx);
        if let Poll::Ready(Err(_)) = polled {
            self.stream.send_reset(h2::Reason::CANCEL);
        }
        polled
    }

    fn poll_send(&mut self, body: &mut RequestBody, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        loop {
            if self.rest.is_empty() {
                match ready!(body.poll_part(cx))? {
                    Part::Data(data) => self.rest = data,
                    // An error of the stream has its reason in the response.
                    Part::Trailers(trailers) => {
                        let _ = self.stream.send_trailers(trailers);
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

    /// How much may be sent; `None` if the stream has ended.
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
    fn count(&mut self, part: &[u8]) {
        self.bytes.count(part);
        if let Some(shared) = &self.shared {
            shared.store(self.bytes.total(), Ordering::Relaxed);
        }
    }
}

impl Rest {
    /// The response has begun, so nothing is kept any more.
    pub(super) fn new(mut body: RequestBody, pump: Pump) -> Self {
        body.commit();
        Self { body, pump }
    }
}

impl Future for Rest {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { body, pump } = &mut *self;
        // What cannot be read has cancelled the stream, which is the status of the call.
        if pump.poll(body, cx).is_ready() {
            return Poll::Ready(());
        }
        // The peer may end the stream without reading the rest.
        pump.stream.poll_reset(cx).map(|_| ())
    }
}

/// Any body, as one type. That of tonic's clients is it already.
pub(super) fn erase<B>(body: B) -> Body
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = Some(body);
    if let Some(body) = <dyn Any>::downcast_mut::<Option<Body>>(&mut body) {
        return body.take().unwrap_or_default();
    }
    body.map_or_else(Body::empty, |body| {
        Body::new(body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()))))
    })
}

/// The length of the first data of a request that is sent without regard to flow control.
const UNCHECKED: usize = 16 << 10;
