//! The body of responses.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame};
use tokio::task::AbortHandle;
use tonic::Status;

use super::{
    active::ActiveCall, connection::Reserved, deadline::Deadline, status, status::ResponseHead,
    telemetry::CallTelemetry,
};
use crate::{balance::retry::Throttled, error::Code, resource::http_filter::FilterError};

/// The body of a response of the channel.
///
/// If the call fails after the response has begun, it ends with a [`Status`] as error (CH2.26).
#[derive(Default)]
pub struct ChannelBody {
    state: State,
}

#[derive(Default)]
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation more for each call")]
enum State {
    #[default]
    Complete,
    Running(Running),
    Filtered(Box<Filtered>),
}

/// The body of a response that an HTTP filter of the application has made, or may have changed.
struct Filtered {
    body: Pin<Box<dyn Body<Data = Bytes, Error = FilterError> + Send>>,
    deadline: Deadline,
    /// If the call has no other body.
    _active: Option<ActiveCall>,
    telemetry: CallTelemetry,
}

/// What a response that is not complete keeps alive.
struct Running {
    stream: RecvStream,
    /// All data have been read.
    is_at_trailers: bool,
    deadline: Deadline,
    guards: Guards,
}

/// What ends with the call: counters, and the rest of the request.
pub(super) struct Guards {
    pub(super) attempt: Reserved,
    /// For trailers without a status.
    pub(super) head: ResponseHead,
    pub(super) active: ActiveCall,
    pub(super) rest: Option<AbortHandle>,
    /// The throttle of retries, if the channel has one.
    pub(super) throttled: Option<Throttled>,
    pub(super) telemetry: CallTelemetry,
}

impl ChannelBody {
    pub(super) fn new(stream: RecvStream, deadline: Deadline, guards: Guards) -> Self {
        if stream.is_end_stream() {
            return Self::default();
        }
        Self { state: State::Running(Running { stream, is_at_trailers: false, deadline, guards }) }
    }

    /// A body of a filter, which ends at the deadline whatever it waits for.
    pub(super) fn filtered(
        body: Pin<Box<dyn Body<Data = Bytes, Error = FilterError> + Send>>,
        deadline: Deadline,
        active: Option<ActiveCall>,
        mut telemetry: CallTelemetry,
    ) -> Self {
        if body.is_end_stream() {
            telemetry.end(Code::Unknown);
            return Self::default();
        }
        Self { state: State::Filtered(Box::new(Filtered { body, deadline, _active: active, telemetry })) }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match &mut self.state {
            State::Complete => None,
            State::Running(running) => {
                let frame = match running.poll_frame(cx) {
                    Poll::Ready(frame) => frame,
                    Poll::Pending => Some(Err(ready!(poll_over(&mut running.deadline, cx)))),
                };
                if let Some(Err(status)) = &frame {
                    running.guards.on_status(status::core_code(status.code()));
                }
                if let Some(code) = code_of(&frame) {
                    running.guards.telemetry.end(code);
                }
                frame
            }
            State::Filtered(filtered) => {
                let frame = match filtered.body.as_mut().poll_frame(cx) {
                    Poll::Ready(frame) => frame.map(|frame| frame.map_err(Status::from)),
                    Poll::Pending => Some(Err(ready!(poll_over(&mut filtered.deadline, cx)))),
                };
                if let Some(code) = code_of(&frame) {
                    filtered.telemetry.end(code);
                }
                frame
            }
        };
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.state = State::Complete;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Complete)
    }
}

/// The code that a response ends with, if this is its end. Without a status it is what tonic's clients make of that.
fn code_of(frame: &Option<Result<Frame<Bytes>, Status>>) -> Option<Code> {
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

/// Ready when the time of a response is over.
fn poll_over(deadline: &mut Deadline, cx: &mut Context<'_>) -> Poll<Status> {
    deadline.poll_over(cx).map(|over| over.status("the response is not complete"))
}

impl Running {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        while !self.is_at_trailers {
            match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    // An error means that the stream has ended, which the next poll says.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
                        self.guards.telemetry.on_received(&data);
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    return Poll::Ready(Some(Err(self.status(&error))));
                }
                Poll::Ready(None) => self.is_at_trailers = true,
                Poll::Pending => return Poll::Pending,
            }
        }
        self.stream.poll_trailers(cx).map(|trailers| match trailers {
            Ok(trailers) => {
                let trailers = self.guards.head.end(trailers, self.guards.attempt.endpoint().address);
                Some(trailers.map(|mut trailers| {
                    status::correct_deadline(&mut trailers, self.deadline.at());
                    self.guards.attempt.on_trailers(&trailers, self.guards.active.malformed());
                    if let Some(code) = status::in_headers(&trailers) {
                        self.guards.on_status(code);
                    }
                    Frame::trailers(trailers)
                }))
            }
            Err(error) => Some(Err(self.status(&error))),
        })
    }

    fn status(&self, error: &h2::Error) -> Status {
        if self.guards.active.is_shut_down() {
            return Status::cancelled("channel is shut down");
        }
        status::of_stream(error, &self.guards.attempt, self.deadline.at())
    }
}

impl Guards {
    /// The call has ended with this status.
    pub(super) fn on_status(&mut self, code: Code) {
        if code == Code::Ok {
            self.attempt.on_ok();
        }
        if let Some(throttled) = &self.throttled {
            throttled.record(code);
        }
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        if let Some(rest) = &self.rest {
            rest.abort();
        }
    }
}

impl fmt::Debug for ChannelBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBody").field("is_complete", &self.is_end_stream()).finish()
    }
}
