//! Applications: what they send, how they read responses, and when they lose interest.

use std::{
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, atomic::AtomicUsize},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep, timeout},
};
use tonic::{Code, Status};
use tower_service::Service;

use super::{
    plan::{Plan, Plans},
    report::{Report, SmallPart, SmallParts},
};
use crate::channel::{Channel, ChannelBody};

/// An application that makes calls of one kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Application {
    pub(super) plan: Plan,
    pub(super) sending: Sending,
    pub(super) reading: Reading,
    pub(super) deadline: Option<Duration>,
    pub(super) cancel: Cancel,
    /// The bytes of the request's metadata.
    pub(super) metadata: usize,
    /// Whether another task goes on with the call after its first poll.
    pub(super) moves: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// One message.
    Unary,
    /// So many parts of one byte after the first message.
    SmallParts(u64),
    /// Parts of this size, with a time between them, without an end.
    Endless { size: usize, gap: Duration },
    /// One message, when the response has begun.
    AfterResponse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    AtOnce,
    /// With a time between the frames.
    Slowly(Duration),
    /// The application does something else first.
    Late(Duration),
    /// So many frames are read; the body is held, and never polled again.
    Held(usize),
    /// The body is dropped after so many frames.
    DropAfter(usize),
    /// Another task reads it.
    OtherTask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cancel {
    Never,
    /// The call is dropped when it has waited so many times.
    AfterPolls(usize),
    AfterTime(Duration),
}

/// What applications need.
#[derive(Clone)]
pub(super) struct Environment {
    pub(super) channel: Channel,
    pub(super) plans: Arc<Plans>,
    pub(super) report: Arc<Report>,
    /// How much later than its deadline a call may end.
    pub(super) slack: Duration,
    /// The longest time of a call, by its route.
    pub(super) max_stream_duration: Option<Duration>,
}

/// The body of a request.
pub(super) struct Upload {
    first: Option<Bytes>,
    gate: Option<oneshot::Receiver<()>>,
    parts: u64,
    size: usize,
    gap: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// The parts of one byte that are kept.
    kept: Arc<AtomicUsize>,
}

impl Application {
    /// Makes one call, and reads its response.
    pub(super) async fn call(self, environment: &Environment) {
        let limits = self.deadline.into_iter().chain(environment.max_stream_duration);
        let ends_at = limits.min().map(|deadline| Instant::now() + deadline);
        let (number, message) = environment.plans.add(self.plan, ends_at.map(|at| at + environment.slack));
        let (gate, upload) = Upload::new(self.sending, message);
        if let Sending::SmallParts(parts) = self.sending {
            let parts = parts as usize;
            environment.report.on_small_parts(SmallParts { number, parts, kept: upload.kept.clone() });
        }
        let mut request = Request::post("/near/Application").header("content-type", GRPC);
        if let Some(deadline) = self.deadline {
            request = request.header("grpc-timeout", format!("{}m", deadline.as_millis()));
        }
        for part in 0..self.metadata.div_ceil(METADATA) {
            let length = METADATA.min(self.metadata - part * METADATA);
            request = request.header("x-metadata", "m".repeat(length));
        }
        let mut channel = environment.channel.clone();
        let request = request.body(upload).expect("it is valid");
        let mut call =
            Box::pin(async move { channel.call(request).await.unwrap_or_else(|error| match error {}) });
        let response = match (self.moves, poll_once(call.as_mut()).await) {
            (_, Poll::Ready(response)) => Some(response),
            (false, Poll::Pending) => self.cancel.wait(call).await,
            (true, Poll::Pending) => self.cancel.wait(AbortOnDrop(tokio::spawn(call))).await,
        };
        let Some(response) = response else { return };
        if let Some(gate) = gate {
            // Without a request nobody waits.
            let _ = gate.send(());
        }
        let deadline = ends_at.map(|at| at + environment.slack);
        self.read(response.into_body(), deadline, &environment.report).await;
    }

    async fn read(self, mut body: ChannelBody, deadline: Option<Instant>, report: &Arc<Report>) {
        let (frames, gap) = match self.reading {
            Reading::AtOnce => (usize::MAX, Duration::ZERO),
            Reading::Slowly(gap) => (usize::MAX, gap),
            Reading::Late(delay) => {
                sleep(delay).await;
                (usize::MAX, Duration::ZERO)
            }
            Reading::Held(frames) | Reading::DropAfter(frames) => (frames, Duration::ZERO),
            Reading::OtherTask => {
                // The first poll leaves its waker, which must not be the one that counts.
                if let Poll::Ready(None) = poll_once(poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))).await {
                    return;
                }
                let report = report.clone();
                let reading = read_frames(body, usize::MAX, Duration::ZERO, deadline, report);
                let task = AbortOnDrop(tokio::spawn(async { drop(reading.await) }));
                return task.await;
            }
        };
        let body = read_frames(body, frames, gap, deadline, report.clone()).await;
        if let Reading::Held(_) = self.reading {
            pending::<()>().await;
        }
        drop(body);
    }
}

/// Reads a number of frames with a time between them. A frame that is read long after the deadline is reported.
async fn read_frames(
    mut body: ChannelBody,
    frames: usize,
    gap: Duration,
    deadline: Option<Instant>,
    report: Arc<Report>,
) -> ChannelBody {
    for _ in 0..frames {
        match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            Some(Ok(frame)) if frame.is_data() => {
                let late =
                    deadline.map(|at| Instant::now().saturating_duration_since(at)).unwrap_or_default();
                report
                    .check(late.is_zero(), || format!("data are read {late:?} after the deadline of a call"));
            }
            Some(_) | None => break,
        }
        if !gap.is_zero() {
            sleep(gap).await;
        }
    }
    body
}

/// The result of a poll.
async fn poll_once<T>(mut future: impl Future<Output = T> + Unpin) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await
}

/// A task that ends with the one that waits for it.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        Pin::new(&mut self.0).poll(cx).map(|output| output.expect("no call panics"))
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cancel {
    /// The output of a future, unless it is dropped before.
    async fn wait<T>(self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        match self {
            Self::Never => Some(future.await),
            Self::AfterTime(time) => timeout(time, future).await.ok(),
            Self::AfterPolls(polls) => {
                let mut left = polls;
                poll_fn(|cx| match future.as_mut().poll(cx) {
                    Poll::Ready(output) => Poll::Ready(Some(output)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => {
                        left -= 1;
                        Poll::Pending
                    }
                })
                .await
            }
        }
    }
}

impl Upload {
    /// A body, and what it waits for.
    fn new(sending: Sending, first: Bytes) -> (Option<oneshot::Sender<()>>, Self) {
        let (parts, size, gap) = match sending {
            Sending::Unary | Sending::AfterResponse => (0, 0, Duration::ZERO),
            Sending::SmallParts(parts) => (parts, 1, Duration::ZERO),
            Sending::Endless { size, gap } => (u64::MAX, size, gap),
        };
        let (open, gate) = match sending {
            Sending::AfterResponse => {
                let (open, gate) = oneshot::channel();
                (Some(open), Some(gate))
            }
            Sending::Unary | Sending::SmallParts(_) | Sending::Endless { .. } => (None, None),
        };
        (open, Self { first: Some(first), gate, parts, size, gap, timer: None, kept: Arc::default() })
    }

    /// One message.
    pub(super) fn unary(message: Bytes) -> Self {
        Self::new(Sending::Unary, message).1
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(gate) = &mut self.gate {
            // An error means that the call has ended.
            let _ = ready!(Pin::new(gate).poll(cx));
            self.gate = None;
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if self.parts == 0 {
            return Poll::Ready(None);
        }
        if !self.gap.is_zero() {
            let gap = self.gap;
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(gap)));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        self.parts -= 1;
        if self.size == 1 {
            return Poll::Ready(Some(Ok(Frame::data(SmallPart::bytes(&self.kept)))));
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&ZEROS[..self.size])))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.gate.is_none() && self.parts == 0
    }
}

/// The status of a response, and the bytes of its body.
pub(super) async fn finish(response: Response<ChannelBody>) -> Result<usize, Status> {
    if let Some(status) =
        Status::from_header_map(response.headers()).filter(|status| status.code() != Code::Ok)
    {
        return Err(status);
    }
    let (mut body, mut bytes, mut has_status) = (response.into_body(), 0, false);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        match frame?.into_data() {
            Ok(data) => bytes += data.len(),
            Err(frame) => {
                let status = frame.trailers_ref().and_then(Status::from_header_map);
                match status {
                    Some(status) if status.code() == Code::Ok => has_status = true,
                    Some(status) => return Err(status),
                    None => {}
                }
            }
        }
    }
    if has_status { Ok(bytes) } else { Err(Status::unknown("no status")) }
}

/// The largest part of an upload.
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];
/// The content type of requests.
pub(super) const GRPC: &str = "application/grpc";
/// The length of a metadata value.
const METADATA: usize = 4_000;
