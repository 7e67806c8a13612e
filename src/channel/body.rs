//! Bodies: the pump of requests, and the body of responses.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::{task::AbortHandle, time::Sleep};
use tonic::Status;

use super::{active::ActiveCall, connection::Handle, recorded::Recorded, status};
use crate::balance::picker::Attempt;

/// The body of a response of the channel.
///
/// If the call fails after the response has begun, it ends with a [`Status`] as error (CH2.26).
#[derive(Default)]
pub struct ChannelBody {
    running: Option<Running>,
}

/// What a response that is not complete keeps alive.
struct Running {
    stream: RecvStream,
    /// All data have been read.
    is_at_trailers: bool,
    deadline: Option<Pin<Box<Sleep>>>,
    guards: Guards,
}

/// What ends with the call: counters, and the rest of the request.
pub(super) struct Guards {
    pub(super) attempt: Attempt<Handle>,
    pub(super) active: Option<ActiveCall>,
    pub(super) pump: Option<AbortHandle>,
}

/// Sends the body of a request.
pub(super) struct Pump<B> {
    body: Recorded<B>,
    stream: SendStream<Bytes>,
    /// A part of the body that is not sent yet.
    rest: Option<Bytes>,
    is_end: bool,
    trailers: Option<HeaderMap>,
}

impl ChannelBody {
    pub(super) fn new(stream: RecvStream, deadline: Option<Pin<Box<Sleep>>>, guards: Guards) -> Self {
        if stream.is_end_stream() {
            return Self::default();
        }
        Self { running: Some(Running { stream, is_at_trailers: false, deadline, guards }) }
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(running) = &mut self.running else { return Poll::Ready(None) };
        let frame = match running.poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let deadline = running.deadline.as_mut().map(|it| it.as_mut().poll(cx));
                if !matches!(deadline, Some(Poll::Ready(()))) {
                    return Poll::Pending;
                }
                Some(Err(status::deadline_exceeded("the response is not complete")))
            }
        };
        let frame = match frame {
            Some(Err(_)) if running.guards.is_shut_down() => {
                Some(Err(Status::cancelled("channel is shut down")))
            }
            frame => frame,
        };
        if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
            self.running = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.running.is_none()
    }
}

impl Running {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        while !self.is_at_trailers {
            match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(data))) => {
                    // An error means that the stream has ended, which the next poll says.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    if !data.is_empty() {
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
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => Some(Err(self.status(&error))),
        })
    }

    fn status(&self, error: &h2::Error) -> Status {
        let deadline = self.deadline.as_ref().map(|it| it.deadline());
        status::of_stream(error, self.guards.attempt.endpoint.address, deadline)
    }
}

impl Guards {
    /// The channel was shut down.
    pub(super) fn is_shut_down(&self) -> bool {
        self.active.as_ref().is_some_and(ActiveCall::is_shut_down)
    }
}

impl Drop for Guards {
    fn drop(&mut self) {
        if let Some(pump) = &self.pump {
            pump.abort();
        }
    }
}

impl<B> Pump<B>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(super) fn new(body: Recorded<B>, stream: SendStream<Bytes>) -> Self {
        Self { body, stream, rest: None, is_end: false, trailers: None }
    }

    pub(super) fn into_body(self) -> Recorded<B> {
        self.body
    }

    /// Reads the next part of the body. What cannot be read cancels the stream.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.body.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => self.rest = Some(data),
                Err(frame) => {
                    (self.is_end, self.trailers) = (true, frame.into_trailers().ok());
                }
            },
            Poll::Ready(Some(Err(_))) => {
                self.stream.send_reset(h2::Reason::CANCEL);
                self.is_end = true;
            }
            Poll::Ready(None) => self.is_end = true,
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(())
    }

    /// Sends a part as far as flow control permits.
    fn poll_send(&mut self, cx: &mut Context<'_>, mut data: Bytes) -> Poll<Result<(), h2::Error>> {
        self.stream.reserve_capacity(data.len());
        while !data.is_empty() {
            let capacity = match self.stream.capacity() {
                0 => match self.stream.poll_capacity(cx) {
                    Poll::Ready(Some(capacity)) => capacity?,
                    Poll::Ready(None) => return Poll::Ready(Ok(())),
                    Poll::Pending => {
                        self.rest = Some(data);
                        return Poll::Pending;
                    }
                },
                capacity => capacity,
            };
            let part = data.split_to(capacity.min(data.len()));
            if data.is_empty() {
                // The end goes out with the last part if it is known.
                let is_end =
                    matches!(self.poll_next(cx), Poll::Ready(()) if self.is_end && self.trailers.is_none());
                self.stream.send_data(part, is_end)?;
                if is_end {
                    self.rest = None;
                }
                return Poll::Ready(Ok(()));
            }
            self.stream.send_data(part, false)?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<B> Future for Pump<B>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let it = &mut *self;
        loop {
            if let Some(data) = it.rest.take().filter(|data| !data.is_empty()) {
                match it.poll_send(cx, data) {
                    // The stream has ended; the response says why.
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(())) if it.is_end && it.trailers.is_none() => return Poll::Ready(()),
                    Poll::Ready(Ok(())) => continue,
                    Poll::Pending => return it.poll_reset(cx),
                }
            }
            if it.is_end {
                let _ = match it.trailers.take() {
                    Some(trailers) => it.stream.send_trailers(trailers),
                    None => it.stream.send_data(Bytes::new(), true),
                };
                return Poll::Ready(());
            }
            if it.poll_next(cx).is_pending() {
                return it.poll_reset(cx);
            }
        }
    }
}

impl<B> Pump<B> {
    /// The peer may end the stream without reading the rest.
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx).map(|_| ())
    }
}

impl<B> Unpin for Pump<B> {}

impl fmt::Debug for ChannelBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBody").field("is_complete", &self.running.is_none()).finish()
    }
}
