//! A response in progress: what the application reads of it, and what ends it without the application.

use std::{
    fmt, mem,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;
use http_body::Frame;
use tokio::{task::AbortHandle, time::Instant};
use tonic::Status;

use super::{
    active::ActiveCall,
    connection::{OpenResponse, Registration, Reserved},
    deadline::{CallEnd, Deadline},
    status::{self, ResponseHead},
    telemetry::CallTelemetry,
};
use crate::{background::supervise, balance::retry::Throttled, error::Code};

/// A response in progress. The application reads it by its [body](super::ChannelBody). Its deadline and the end of the channel
/// end it whether the application polls it or not: the stream is reset, and all counts of the call are released.
///
/// The lock belongs to one call: the reader of the response takes it, and its connection for moments.
pub(super) struct RunningResponse {
    state: Mutex<State>,
}

#[expect(clippy::large_enum_variant, reason = "a box would be an allocation more for each call")]
enum State {
    /// Frames may follow.
    Running(Running),
    /// The call has ended with this status, which the application has not received yet.
    Ended(Status),
    /// The application has received the end.
    Complete,
}

struct Running {
    /// The frames of the response.
    stream: RecvStream,
    /// Data from small frames, whose window is given back when the application reads them.
    merged: BytesMut,
    /// The bytes that the application has read since the last sample of the window.
    read: u64,
    /// Whether all data have been read.
    is_at_trailers: bool,
    /// The deadline of the call.
    deadline: Option<Instant>,
    /// What ends with the call.
    guards: CallGuards,
    /// The task of the application, while it waits.
    waker: Option<Waker>,
    /// The registration for the deadline, made after the response itself.
    registration: Option<Registration>,
}

/// The counters and tasks that end with the call.
pub(super) struct CallGuards {
    /// The reserved stream.
    pub(super) attempt: Reserved,
    /// The head of the response, for trailers without a status.
    pub(super) head: ResponseHead,
    /// Counts the call.
    pub(super) active: ActiveCall,
    /// The task of the upload, if it goes on.
    pub(super) upload: Option<AbortHandle>,
    /// The task that waits for the end of a channel that shares its connections.
    pub(super) cancellation: Option<AbortHandle>,
    /// The throttle of retries, if the channel has one.
    pub(super) throttled: Option<Throttled>,
    /// Records the end of the call.
    pub(super) telemetry: CallTelemetry,
}

/// The next frame for the application; `None` at the end.
pub(super) type NextFrame = Option<Result<Frame<Bytes>, Status>>;

impl RunningResponse {
    /// Creates a response whose end was not read yet.
    pub(super) fn new(stream: RecvStream, deadline: Deadline, guards: CallGuards) -> Arc<Self> {
        let responses = guards.attempt.handle().responses().clone();
        let at = deadline.at();
        let running = Running {
            stream,
            merged: BytesMut::new(),
            read: 0,
            is_at_trailers: false,
            deadline: at,
            guards,
            waker: None,
            registration: None,
        };
        let response = Arc::new(Self { state: Mutex::new(State::Running(running)) });
        let running: Arc<dyn OpenResponse> = response.clone();
        let registration = responses.register(Arc::downgrade(&running), at);
        // A response that has ended in the meantime has no place any more.
        if let State::Running(running) = &mut *response.lock() {
            running.registration = Some(registration);
        }
        response.end_when_cancelled(deadline);
        response
    }

    /// Ends the response with the channel, if other channels go on using its connection.
    fn end_when_cancelled(self: &Arc<Self>, deadline: Deadline) {
        let Some(cancelled) = deadline.into_cancelled() else { return };
        let running = Arc::downgrade(self);
        let watch = async move {
            cancelled.await;
            if let Some(running) = running.upgrade() {
                running.end(CallEnd::ShutDown);
            }
        };
        let watch = tokio::spawn(supervise("cancellation of a response", watch, |_| {}));
        if let State::Running(running) = &mut *self.lock() {
            running.guards.cancellation = Some(watch.abort_handle());
        }
    }

    /// Returns the next frame for the application; `None` at the end.
    pub(super) fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let mut state = self.lock();
        let frame = match &mut *state {
            // The deadline ends the response also if there are always more data.
            State::Running(running) if running.is_over() => Some(Err(running.end(CallEnd::DeadlineExceeded))),
            State::Running(running) => ready!(running.poll_frame(cx)),
            State::Ended(status) => Some(Err(status.clone())),
            State::Complete => None,
        };
        if !is_data(&frame) {
            // What ends with the call is released without the lock.
            let ended = mem::replace(&mut *state, State::Complete);
            drop(state);
            drop(ended);
        }
        Poll::Ready(frame)
    }

    /// Ends the response with a status that the application receives next.
    fn end(&self, end: CallEnd) {
        let mut state = self.lock();
        let State::Running(running) = &mut *state else { return };
        let status = running.end(end);
        let waker = running.waker.take();
        let ended = mem::replace(&mut *state, State::Ended(status));
        drop(state);
        // The stream is reset here.
        drop(ended);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Locks the response.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenResponse for RunningResponse {
    fn exceed_deadline(&self) {
        self.end(CallEnd::DeadlineExceeded);
    }

    fn unread(&self) -> usize {
        match &mut *self.lock() {
            State::Running(running) => running.stream.flow_control().used_capacity(),
            State::Ended(_) | State::Complete => 0,
        }
    }

    fn compact(&self) {
        let mut state = self.lock();
        let State::Running(running) = &mut *state else { return };
        running.compact();
        let waker = running.waker.take();
        drop(state);
        // The stream has forgotten who waits for it.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Running {
    /// Polls the next frame, and records the end of the call.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let polled = self.poll_stream(cx);
        match &polled {
            Poll::Pending => self.wait(cx.waker()),
            Poll::Ready(Some(Err(status))) => self.guards.on_status(status::core_code(status.code())),
            Poll::Ready(_) => {}
        }
        if let Poll::Ready(frame) = &polled
            && let Some(code) = code_of(frame)
        {
            self.guards.telemetry.end(code);
        }
        polled
    }

    /// Polls the stream: merged data first, then data, then trailers.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        if !self.merged.is_empty() {
            let data = self.merged.split().freeze();
            return Poll::Ready(Some(Ok(self.take(data))));
        }
        while !self.is_at_trailers {
            match ready!(self.stream.poll_data(cx)) {
                // An application would take an empty frame for data, and read once more for nothing.
                Some(Ok(data)) if data.is_empty() => {}
                Some(Ok(data)) => return Poll::Ready(Some(Ok(self.take(data)))),
                Some(Err(error)) => return Poll::Ready(Some(Err(self.status(&error)))),
                None => self.is_at_trailers = true,
            }
        }
        self.stream.poll_trailers(cx).map(|trailers| {
            let trailers = trailers.map_err(|error| self.status(&error));
            Some(trailers.and_then(|trailers| self.end_with(trailers)))
        })
    }

    /// Handles the trailers.
    ///
    /// # Errors
    /// The status of a call whose trailers are too large or have no status.
    fn end_with(&mut self, trailers: Option<HeaderMap>) -> Result<Frame<Bytes>, Status> {
        if let Some(trailers) = &trailers {
            status::check_header_list(trailers, &self.guards.attempt)?;
        }
        let mut trailers = self.guards.head.end(trailers, self.guards.address())?;
        status::correct_deadline(&mut trailers, self.deadline);
        self.guards.attempt.on_trailers(&trailers, self.guards.active.malformed());
        if let Some(code) = status::in_headers(&trailers) {
            self.guards.on_status(code);
        }
        Ok(Frame::trailers(trailers))
    }

    /// Handles data that the application reads: the endpoint may send as many more bytes.
    fn take(&mut self, data: Bytes) -> Frame<Bytes> {
        // An error means that the stream has ended, which the next poll returns.
        // CH15.7: the window opens by what is read, and not by what has arrived.
        let _ = self.stream.flow_control().release_capacity(data.len());
        let responses = self.guards.attempt.handle().responses();
        self.read = responses.on_consumed(data.len(), self.read);
        self.guards.telemetry.on_received(&data);
        Frame::data(data)
    }

    /// Merges the unread data.
    fn compact(&mut self) {
        let waiting = self.stream.flow_control().used_capacity();
        // Merged data count as used until they are read; more than that are data in h2.
        if waiting <= self.merged.len() {
            return;
        }
        self.merged.reserve(waiting - self.merged.len());
        let mut cx = Context::from_waker(Waker::noop());
        // The end, and errors, are there again when the application polls.
        while let Poll::Ready(Some(Ok(data))) = self.stream.poll_data(&mut cx) {
            self.merged.extend_from_slice(&data);
        }
    }

    /// Remembers the task of the application.
    fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
    }

    /// Whether the deadline has passed.
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Returns the status of a response that ends before it is complete.
    fn end(&mut self, end: CallEnd) -> Status {
        let status = end.status(&format!("{}: the response is not complete", self.guards.address()));
        let code = status::core_code(status.code());
        self.guards.on_status(code);
        self.guards.telemetry.end(code);
        status
    }

    /// Returns the status of a response whose stream has failed.
    fn status(&self, error: &h2::Error) -> Status {
        if self.guards.active.is_shut_down() {
            return Status::cancelled("channel is shut down");
        }
        status::of_stream(error, &self.guards.attempt, self.deadline)
    }
}

impl CallGuards {
    /// Handles the status of the call.
    pub(super) fn on_status(&mut self, code: Code) {
        if code == Code::Ok {
            self.attempt.on_ok();
            self.active.on_ok();
        }
        if let Some(throttled) = &self.throttled {
            throttled.record(code);
        }
    }

    /// Returns the address of the endpoint, for errors.
    fn address(&self) -> SocketAddr {
        self.attempt.endpoint().address
    }
}

impl Drop for CallGuards {
    fn drop(&mut self) {
        for task in self.upload.iter().chain(&self.cancellation) {
            task.abort();
        }
    }
}

impl fmt::Debug for RunningResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningResponse").finish_non_exhaustive()
    }
}

/// Whether the response goes on after this frame.
pub(super) fn is_data(frame: &NextFrame) -> bool {
    matches!(frame, Some(Ok(frame)) if frame.is_data())
}

/// Returns the code that a response ends with, if this frame is its end. Without a status it is UNKNOWN, as tonic's clients
/// report it.
pub(super) fn code_of(frame: &NextFrame) -> Option<Code> {
    match frame {
        Some(Ok(frame)) if frame.is_data() => None,
        Some(Ok(frame)) => {
            let code = frame.trailers_ref().and_then(status::in_headers);
            Some(code.unwrap_or(Code::Unknown))
        }
        Some(Err(status)) => Some(status::core_code(status.code())),
        None => Some(Code::Unknown),
    }
}
