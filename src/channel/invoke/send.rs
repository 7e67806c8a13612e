//! The messages of a request, on their way from the application to the body that an attempt sends.

use std::{
    fmt,
    future::poll_fn,
    mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use grpc::{
    client::{SendOptions, SendStream},
    core::SendMessage,
};
use http_body::{Body, Frame};
use tonic::Status;

use super::messages::{Encoded, encode};

/// The messages that a client of the crate `grpc` sends in a call of a [`Channel`](crate::Channel).
///
/// The stream holds one message, and a further [`send`](SendStream::send) waits until that is being sent, which takes a connection and
/// the window of the peer. Messages are sent without compression. Dropping the stream ends the request, not the call.
///
/// It is unstable, as all of the feature `grpc`: that crate is a preview.
pub struct GrpcSendStream {
    shared: Arc<Shared>,
}

/// The body of a request, which ends with its [`GrpcSendStream`].
pub(super) struct RequestMessages {
    shared: Arc<Shared>,
}

/// A view of the reason why a request could not be sent, for the status of its call.
pub(super) struct SendFailure {
    shared: Arc<Shared>,
}

/// The message between the stream and the body.
#[derive(Default)]
struct Shared {
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    /// The next part of the body.
    next: Option<Encoded>,
    /// What the request is in.
    phase: Phase,
    /// The task that reads the body, while it waits for a message.
    reader: Option<Waker>,
    /// The task that sends, while it waits for the body.
    writer: Option<Waker>,
}

#[derive(Default)]
enum Phase {
    /// Messages may follow.
    #[default]
    Open,
    /// The application has sent its last message.
    Complete,
    /// A message could not be encoded, so that the call fails.
    Failed(Status),
    /// The body is no longer read: the call has ended, or its server reads no more.
    Gone,
}

/// Creates a stream, and the body with its messages.
pub(super) fn stream() -> (GrpcSendStream, RequestMessages) {
    let shared = Arc::<Shared>::default();
    (GrpcSendStream { shared: shared.clone() }, RequestMessages { shared })
}

impl GrpcSendStream {
    /// The reason why the request cannot be sent.
    pub(super) fn failure(&self) -> SendFailure {
        SendFailure { shared: self.shared.clone() }
    }
}

impl SendStream for GrpcSendStream {
    /// Sends a message.
    ///
    /// A message that cannot be encoded, or has 4 GiB or more, fails the call with INTERNAL.
    ///
    /// # Errors
    /// The message was not sent: the call has ended, the message cannot be encoded, or it follows the final one.
    async fn send(&mut self, message: &dyn SendMessage, options: SendOptions) -> Result<(), ()> {
        poll_fn(|cx| self.shared.poll_free(cx)).await?;
        match encode(message) {
            Ok(encoded) => self.shared.put(encoded, options.final_msg),
            Err(reason) => {
                self.shared.end(Phase::Failed(Status::internal(reason)));
                Err(())
            }
        }
    }
}

impl Drop for GrpcSendStream {
    fn drop(&mut self) {
        self.shared.end(Phase::Complete);
    }
}

impl Body for RequestMessages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut slot = self.shared.lock();
        if let Some(part) = slot.take() {
            let writer = slot.next.is_none().then(|| slot.writer.take()).flatten();
            drop(slot);
            if let Some(writer) = writer {
                writer.wake();
            }
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        match &slot.phase {
            Phase::Failed(status) => Poll::Ready(Some(Err(status.clone()))),
            Phase::Complete | Phase::Gone => Poll::Ready(None),
            Phase::Open => {
                slot.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let slot = self.shared.lock();
        slot.next.is_none() && matches!(slot.phase, Phase::Complete | Phase::Gone)
    }
}

impl Drop for RequestMessages {
    fn drop(&mut self) {
        let mut slot = self.shared.lock();
        slot.next = None;
        if !matches!(slot.phase, Phase::Failed(_)) {
            slot.phase = Phase::Gone;
        }
        let writer = slot.writer.take();
        drop(slot);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

impl SendFailure {
    /// Takes the status of a call whose request could not be sent.
    pub(super) fn take(&self) -> Option<Status> {
        let mut slot = self.shared.lock();
        match mem::replace(&mut slot.phase, Phase::Gone) {
            Phase::Failed(status) => Some(status),
            phase @ (Phase::Open | Phase::Complete | Phase::Gone) => {
                slot.phase = phase;
                None
            }
        }
    }
}

impl Shared {
    /// Ready when a message can be put.
    ///
    /// # Errors
    /// No message can be put any more.
    fn poll_free(&self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let mut slot = self.lock();
        match &slot.phase {
            Phase::Open if slot.next.is_none() => Poll::Ready(Ok(())),
            Phase::Open => {
                slot.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            Phase::Complete | Phase::Failed(_) | Phase::Gone => Poll::Ready(Err(())),
        }
    }

    /// Puts a message, the last one if it is final.
    ///
    /// # Errors
    /// The body is gone.
    fn put(&self, encoded: Encoded, is_final: bool) -> Result<(), ()> {
        let mut slot = self.lock();
        let Phase::Open = slot.phase else { return Err(()) };
        slot.next = Some(encoded);
        if is_final {
            slot.phase = Phase::Complete;
        }
        wake_reader(slot);
        Ok(())
    }

    /// Ends the request after the message that was put.
    fn end(&self, phase: Phase) {
        let mut slot = self.lock();
        if let Phase::Open = slot.phase {
            slot.phase = phase;
            wake_reader(slot);
        }
    }

    /// Locks the slot. No code of the application runs under the lock.
    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Takes the next part of the body.
    fn take(&mut self) -> Option<Bytes> {
        let (part, rest) = self.next.take()?.split();
        self.next = rest;
        Some(part)
    }
}

impl fmt::Debug for GrpcSendStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_open = matches!(self.shared.lock().phase, Phase::Open);
        f.debug_struct("GrpcSendStream").field("is_open", &is_open).finish()
    }
}

/// Wakes the task that reads the body, without the lock.
fn wake_reader(mut slot: MutexGuard<'_, Slot>) {
    let reader = slot.reader.take();
    drop(slot);
    if let Some(reader) = reader {
        reader.wake();
    }
}
