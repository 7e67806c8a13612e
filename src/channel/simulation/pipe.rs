//! Streams of bytes in memory, with the delay, the bandwidth and the buffers of a network.

use std::{
    collections::VecDeque,
    future::Future,
    io::{self, ErrorKind},
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// The properties of a network path, the same in both directions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    /// The time from one end to the other.
    pub(super) delay: Duration,
    pub(super) bytes_per_ms: u64,
    /// The bytes that can be written before they are read.
    pub(super) capacity: usize,
}

/// One end of a stream of bytes. Dropping it closes the stream.
pub(in crate::channel) struct Pipe {
    reads: Arc<Shared>,
    writes: Arc<Shared>,
    timer: Option<Pin<Box<Sleep>>>,
    open: Arc<AtomicUsize>,
}

/// Both directions of a stream, for faults of the network.
pub(super) struct Wire([Arc<Shared>; 2]);

struct Shared(Mutex<Direction>);

/// The bytes on their way in one direction.
struct Direction {
    link: Link,
    chunks: VecDeque<Chunk>,
    in_flight: usize,
    /// When the last byte has left the sender.
    free_at: Instant,
    end: Option<End>,
    /// Nothing arrives any more, and nobody is informed.
    is_silent: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Chunk {
    arrives_at: Instant,
    bytes: Bytes,
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// The writer has closed its end; the reader sees that at this time.
    Closed(Instant),
    /// Both ends have errors.
    Reset,
    /// The reader is gone; the writer learns that at this time.
    Unread(Instant),
}

impl Link {
    /// The time that so many bytes take from one end to the other, with those that are already buffered.
    pub(super) fn time_of(&self, bytes: usize) -> Duration {
        let all = bytes + self.capacity;
        // The buffer is full while bytes are on their way.
        let full = (all / self.capacity.max(1)) as u32;
        self.delay * (1 + full) + self.transmission(all)
    }

    fn transmission(&self, bytes: usize) -> Duration {
        let nanoseconds = (bytes as u64).saturating_mul(1_000_000) / self.bytes_per_ms.max(1);
        Duration::from_nanos(nanoseconds)
    }
}

impl Pipe {
    /// Both ends of a stream. `open` counts the ends that are not dropped.
    pub(super) fn pair(link: Link, open: &Arc<AtomicUsize>) -> (Self, Self, Wire) {
        let one = Arc::new(Shared(Mutex::new(Direction::new(link))));
        let other = Arc::new(Shared(Mutex::new(Direction::new(link))));
        open.fetch_add(2, Ordering::Relaxed);
        let end = |reads: &Arc<Shared>, writes: &Arc<Shared>| Self {
            reads: reads.clone(),
            writes: writes.clone(),
            timer: None,
            open: open.clone(),
        };
        (end(&one, &other), end(&other, &one), Wire([one, other]))
    }
}

impl Wire {
    /// Ends the stream at once, with errors at both ends; bytes on their way are lost.
    pub(super) fn cut(&self) {
        for direction in &self.0 {
            direction.change(|direction| {
                direction.chunks.clear();
                direction.end = Some(End::Reset);
                direction.is_silent = false;
            });
        }
    }

    /// Loses all bytes from now on without a sign of it.
    pub(super) fn silence(&self) {
        for direction in &self.0 {
            direction.change(|direction| direction.is_silent = true);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Direction> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a direction, and wakes both of its ends.
    fn change(&self, change: impl FnOnce(&mut Direction)) {
        let wakers = {
            let mut direction = self.lock();
            change(&mut direction);
            [direction.reader.take(), direction.writer.take()]
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Direction {
    fn new(link: Link) -> Self {
        Self {
            link,
            chunks: VecDeque::new(),
            in_flight: 0,
            free_at: Instant::now(),
            end: None,
            is_silent: false,
            reader: None,
            writer: None,
        }
    }

    fn write(&mut self, bytes: &[u8], cx: &Context<'_>) -> Poll<io::Result<usize>> {
        match self.end {
            Some(End::Unread(at)) if at > Instant::now() => return Poll::Ready(Ok(bytes.len())),
            Some(End::Reset | End::Unread(_)) => return Poll::Ready(Err(ErrorKind::BrokenPipe.into())),
            Some(End::Closed(_)) | None => {}
        }
        let room = self.link.capacity.saturating_sub(self.in_flight).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        self.free_at = self.free_at.max(Instant::now()) + self.link.transmission(room);
        let arrives_at = self.free_at + self.link.delay;
        self.in_flight += room;
        self.chunks.push_back(Chunk { arrives_at, bytes: Bytes::copy_from_slice(&bytes[..room]) });
        mem::take(&mut self.reader).into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(room))
    }

    /// Reads what has arrived; otherwise, when something is going to arrive.
    fn read(&mut self, buf: &mut ReadBuf<'_>) -> Result<(), Wait> {
        if self.is_silent {
            return Err(Wait::Forever);
        }
        let now = Instant::now();
        let before = buf.filled().len();
        while let Some(chunk) = self.chunks.front_mut().filter(|chunk| chunk.arrives_at <= now)
            && buf.remaining() > 0
        {
            let length = chunk.bytes.len().min(buf.remaining());
            buf.put_slice(&chunk.bytes[..length]);
            chunk.bytes.advance(length);
            self.in_flight -= length;
            if chunk.bytes.is_empty() {
                self.chunks.pop_front();
            }
        }
        if buf.filled().len() > before {
            mem::take(&mut self.writer).into_iter().for_each(Waker::wake);
            return Ok(());
        }
        match (self.chunks.front(), self.end) {
            (Some(chunk), _) => Err(Wait::Until(chunk.arrives_at)),
            (None, Some(End::Closed(at))) if at <= now => Ok(()),
            (None, Some(End::Closed(at))) => Err(Wait::Until(at)),
            (None, Some(End::Reset)) => Err(Wait::Reset),
            (None, Some(End::Unread(_)) | None) => Err(Wait::Forever),
        }
    }

    fn close(&mut self) {
        if self.end.is_none() {
            let at = self.free_at.max(Instant::now()) + self.link.delay;
            self.end = Some(End::Closed(at));
        }
    }
}

/// Why nothing can be read.
enum Wait {
    Until(Instant),
    Forever,
    Reset,
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { reads, timer, .. } = &mut *self;
        loop {
            let mut direction = reads.lock();
            let at = match direction.read(buf) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(Wait::Reset) => return Poll::Ready(Err(ErrorKind::ConnectionReset.into())),
                Err(Wait::Until(at)) => Some(at),
                Err(Wait::Forever) => None,
            };
            direction.reader = Some(cx.waker().clone());
            drop(direction);
            let Some(at) = at else { return Poll::Pending };
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writes.lock().write(buf, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writes.change(Direction::close);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.writes.change(Direction::close);
        self.reads.change(|direction| {
            if !matches!(direction.end, Some(End::Reset)) {
                let round_trip = 2 * direction.link.delay;
                direction.end = Some(End::Unread(Instant::now() + round_trip.max(TICK)));
            }
            direction.chunks.clear();
        });
    }
}

/// The resolution of timers.
const TICK: Duration = Duration::from_millis(1);
