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
    deadline::{Deadline, Over},
    response::{Guards, NextFrame, RunningResponse, code_of, is_data},
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
}

#[derive(Default)]
enum State {
    #[default]
    Complete,
    Running(Arc<RunningResponse>),
    Filtered(FilteredResponse),
}

/// The body of a response that an HTTP filter of the application has made, or may have changed.
struct FilteredResponse {
    state: Arc<Mutex<FilteredState>>,
    deadline: Option<Instant>,
    timer: Option<AbortHandle>,
}

/// The body is taken out while it is polled, since it is the application's code.
enum FilteredState {
    Waiting { filtered: Box<Filtered>, waker: Option<Waker> },
    Polled,
    Ended(Status),
}

struct Filtered {
    body: FilteredBody,
    /// Counts the call as running, where no inner body does.
    _active: Option<ActiveCall>,
    telemetry: CallTelemetry,
}

type FilteredBody = Pin<Box<dyn Body<Data = Bytes, Error = FilterError> + Send>>;

impl ChannelBody {
    pub(super) fn new(stream: RecvStream, deadline: Deadline, guards: Guards) -> Self {
        if stream.is_end_stream() {
            return Self::default();
        }
        Self { state: State::Running(RunningResponse::new(stream, deadline, guards)) }
    }

    /// A body of a filter, which ends at the deadline whatever it waits for.
    pub(super) fn filtered(
        body: FilteredBody,
        deadline: Deadline,
        active: Option<ActiveCall>,
        mut telemetry: CallTelemetry,
    ) -> Self {
        if body.is_end_stream() {
            telemetry.end(Code::Unknown);
            return Self::default();
        }
        let filtered = Box::new(Filtered { body, _active: active, telemetry });
        Self { state: State::Filtered(FilteredResponse::new(filtered, deadline)) }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = match &mut self.state {
            State::Complete => Poll::Ready(None),
            State::Running(running) => running.poll_frame(cx),
            State::Filtered(filtered) => filtered.poll_frame(cx),
        };
        if let Poll::Ready(frame) = &polled
            && !is_data(frame)
        {
            self.state = State::Complete;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Complete)
    }
}

impl FilteredResponse {
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

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let taken = mem::replace(&mut *lock(&self.state), FilteredState::Polled);
        let mut filtered = match taken {
            FilteredState::Waiting { filtered, .. } => filtered,
            FilteredState::Ended(status) => return Poll::Ready(Some(Err(status))),
            FilteredState::Polled => return Poll::Ready(None),
        };
        // The deadline ends the response also if there are always more data.
        let polled = match self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            true => Poll::Ready(Some(Err(filtered.end(Over::Time)))),
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

    /// Has the response wait for its next poll. Returns the status if it has ended in the meantime.
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

/// Ends a response of a filter.
fn end_filtered(state: &Mutex<FilteredState>, over: Over) {
    let mut state = lock(state);
    match mem::replace(&mut *state, FilteredState::Polled) {
        FilteredState::Waiting { mut filtered, waker } => {
            *state = FilteredState::Ended(filtered.end(over));
            drop(state);
            drop(filtered);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        FilteredState::Polled => *state = FilteredState::Ended(over.status(INCOMPLETE)),
        ended @ FilteredState::Ended(_) => *state = ended,
    }
}

impl Filtered {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let polled =
            self.body.as_mut().poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(Status::from)));
        if let Poll::Ready(frame) = &polled
            && let Some(code) = code_of(frame)
        {
            self.telemetry.end(code);
        }
        polled
    }

    fn end(&mut self, over: Over) -> Status {
        let status = over.status(INCOMPLETE);
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

fn lock(state: &Mutex<FilteredState>) -> MutexGuard<'_, FilteredState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

const INCOMPLETE: &str = "the response is not complete";
