//! The body of responses.

use std::{
    fmt, mem,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame};
use tokio::{task::AbortHandle, time::Instant};
use tonic::Status;

use super::{
    active::ActiveCall,
    call::TrailerFilters,
    deadline::{CallEnd, Deadline},
    response::{CallGuards, NextFrame, RunningResponse, code_of, is_data},
    status,
    telemetry::CallTelemetry,
};
use crate::{error::Code, resource::http_filter::FilterError};

/// The body of a response of the channel.
///
/// The body ends, if the call fails after the response has begun, with a [`Status`] as error. At the deadline of the call the stream is
/// reset, whether the body is polled or not, and the status is the next frame.
#[derive(Default)]
pub struct ChannelBody {
    state: State,
    /// HTTP filters that handle the trailers, if there are any.
    filters: Option<Box<TrailerFilters>>,
}

/// The source of the frames.
#[derive(Default)]
enum State {
    /// No frame follows.
    #[default]
    Complete,
    /// The response of an endpoint.
    Running(Arc<RunningResponse>),
    /// The response of an HTTP filter.
    Filtered(FilteredResponse),
}

/// The body of a response that an HTTP filter of the application has made, or may have changed.
struct FilteredResponse {
    /// Shared with the timer.
    state: Arc<Mutex<FilteredState>>,
    /// The deadline of the call, also compared at each poll.
    deadline: Option<Instant>,
    /// The task that ends the response at its deadline, unless it has none.
    timer: Option<AbortHandle>,
}

/// The state of a filtered response. The body is taken out while it is polled, since it is code of the application, which must
/// not run under the lock.
enum FilteredState {
    /// Between two polls; `waker` is set if the last poll was pending.
    Waiting { filtered: Box<Filtered>, waker: Option<Waker> },
    /// During a poll, and after the end.
    Polled,
    /// The call has ended with this status, which the application has not received yet.
    Ended(Status),
}

/// A filtered body with what ends with it.
struct Filtered {
    /// The body that the outermost of the filters has returned.
    body: FilteredBody,
    /// Counts the call as running, where no inner body does.
    active: Option<ActiveCall>,
    /// Records the end of the call.
    telemetry: CallTelemetry,
}

/// The body that the filters have made.
type FilteredBody = Pin<Box<dyn Body<Data = Bytes, Error = FilterError> + Send>>;

impl ChannelBody {
    pub(super) fn new(stream: RecvStream, deadline: Deadline, guards: CallGuards) -> Self {
        if stream.is_end_stream() {
            return Self::default();
        }
        let state = State::Running(RunningResponse::new(stream, deadline, guards));
        Self { state, filters: None }
    }

    /// A body of a filter, which ends at the deadline whatever it waits for.
    pub(super) fn filtered(
        body: FilteredBody,
        deadline: Deadline,
        active: Option<ActiveCall>,
        mut telemetry: CallTelemetry,
    ) -> Self {
        if body.is_end_stream() {
            // A status in the headers has ended the records already; without one, the code is what tonic's clients report.
            telemetry.end(Code::Unknown);
            return Self::default();
        }
        let filtered = Box::new(Filtered { body, active, telemetry });
        Self { state: State::Filtered(FilteredResponse::new(filtered, deadline)), filters: None }
    }

    /// Has HTTP filters handle the trailers.
    pub(super) fn with_filters(self, filters: Option<Box<TrailerFilters>>) -> Self {
        Self { filters, ..self }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut polled = match &mut self.state {
            State::Complete => Poll::Ready(None),
            State::Running(running) => running.poll_frame(cx),
            State::Filtered(filtered) => filtered.poll_frame(cx),
        };
        if let Poll::Ready(frame) = &mut polled
            && !is_data(frame)
        {
            // The stream and the counters of the call are released now, however long the application keeps the body.
            self.state = State::Complete;
            if let (Some(Ok(trailers)), Some(filters)) = (frame, &mut self.filters) {
                filters.on_frame(trailers);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Complete)
    }
}

impl FilteredResponse {
    /// Creates the response, with a timer if the call is limited.
    fn new(filtered: Box<Filtered>, deadline: Deadline) -> Self {
        let at = deadline.at();
        let state = Arc::new(Mutex::new(FilteredState::Waiting { filtered, waker: None }));
        let timer = deadline.is_limited().then(|| {
            let ending = state.clone();
            let timer = async move { end_filtered(&ending, deadline.passed().await) };
            tokio::spawn(timer).abort_handle()
        });
        Self { state, deadline: at, timer }
    }

    /// Polls the body outside of the lock.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let taken = mem::replace(&mut *lock(&self.state), FilteredState::Polled);
        let mut filtered = match taken {
            FilteredState::Waiting { filtered, .. } => filtered,
            FilteredState::Ended(status) => return Poll::Ready(Some(Err(status))),
            FilteredState::Polled => return Poll::Ready(None),
        };
        // The deadline ends the response also if there are always more data.
        let polled = match self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            true => Poll::Ready(Some(Err(filtered.end(CallEnd::DeadlineExceeded)))),
            false => filtered.poll_frame(cx),
        };
        match &polled {
            Poll::Ready(frame) if !is_data(frame) => polled,
            Poll::Ready(_) => {
                self.put_back(filtered, None).map_or(polled, |status| Poll::Ready(Some(Err(status))))
            }
            Poll::Pending => {
                let ended = self.put_back(filtered, Some(cx.waker().clone()));
                ended.map_or(polled, |status| Poll::Ready(Some(Err(status))))
            }
        }
    }

    /// Puts the body back after a poll. Returns the status if the call ended during the poll.
    fn put_back(&self, mut filtered: Box<Filtered>, waker: Option<Waker>) -> Option<Status> {
        let mut state = lock(&self.state);
        match &*state {
            FilteredState::Ended(status) => {
                filtered.telemetry.end(status::core_code(status.code()));
                Some(status.clone())
            }
            FilteredState::Polled | FilteredState::Waiting { .. } => {
                *state = FilteredState::Waiting { filtered, waker };
                None
            }
        }
    }
}

/// Ends a response at its deadline or at the shutdown, also during a poll of its body.
fn end_filtered(state: &Mutex<FilteredState>, end: CallEnd) {
    let mut state = lock(state);
    match mem::replace(&mut *state, FilteredState::Polled) {
        FilteredState::Waiting { mut filtered, waker } => {
            *state = FilteredState::Ended(filtered.end(end));
            drop(state);
            // The body is dropped without the lock, since its destructor is code of the application.
            drop(filtered);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        FilteredState::Polled => *state = FilteredState::Ended(end.status(INCOMPLETE)),
        ended @ FilteredState::Ended(_) => *state = ended,
    }
}

impl Filtered {
    /// Polls the body, and records the end of the call.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let polled =
            self.body.as_mut().poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Status::from)));
        if let Poll::Ready(frame) = &polled
            && let Some(code) = code_of(frame)
        {
            if let (Some(active), Code::Ok) = (&mut self.active, code) {
                active.on_ok();
            }
            self.telemetry.end(code);
        }
        polled
    }

    /// Ends the call before the body is complete.
    fn end(&mut self, end: CallEnd) -> Status {
        let status = end.status(INCOMPLETE);
        self.telemetry.end(status::core_code(status.code()));
        status
    }
}

impl Drop for FilteredResponse {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
    }
}

impl fmt::Debug for ChannelBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBody").field("is_complete", &self.is_end_stream()).finish()
    }
}

/// Locks the state of a response. No code of the application runs under the lock, so that its panics leave the state whole.
fn lock(state: &Mutex<FilteredState>) -> MutexGuard<'_, FilteredState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reason in the status of a response that ends early.
const INCOMPLETE: &str = "the response is not complete";
