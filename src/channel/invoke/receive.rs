//! The response of a call: headers, messages, trailers.

use std::{fmt, future::poll_fn, pin::Pin};

use grpc::{
    client::{RecvStream, ResponseStreamItem},
    core::{RecvMessage, ResponseHeaders, Trailers},
};
use http::{HeaderMap, Response};
use http_body::Body;
use tokio::task::{JoinError, JoinHandle};
use tonic::Status;

use super::{messages::ReceivedMessages, metadata, send::SendFailure};
use crate::channel::{ChannelBody, status::GRPC_STATUS};

/// The response that a client of the crate `grpc` receives in a call of a [`Channel`](crate::Channel).
///
/// The items are those of the trait: headers, messages, trailers; trailers alone for a call without a response. The trailers have the
/// status. Its details are the value of `grpc-status-details-bin` in their metadata. Dropping the stream before that cancels the call.
///
/// It is unstable, as all of the feature `grpc`: that crate is a preview.
pub struct GrpcRecvStream {
    state: State,
    /// The reason why the request could not be sent, which precedes the status of the cancelled stream.
    failure: Option<SendFailure>,
    /// The size of the largest message, in bytes.
    limit: usize,
}

enum State {
    /// The response has not begun.
    Calling(CallTask),
    /// The response has begun.
    Receiving { body: ChannelBody, messages: ReceivedMessages },
    /// The call was not made.
    Failed(Status),
    /// The trailers were returned.
    Closed,
}

/// The task of a call until its response begins. It is aborted when it is dropped.
struct CallTask(JoinHandle<Response<ChannelBody>>);

impl GrpcRecvStream {
    /// The response of a call. `limit` is the size of the largest message, in bytes.
    pub(super) fn new(call: JoinHandle<Response<ChannelBody>>, failure: SendFailure, limit: usize) -> Self {
        Self { state: State::Calling(CallTask(call)), failure: Some(failure), limit }
    }

    /// The response of a call that was not made.
    pub(super) fn failed(status: Status) -> Self {
        Self { state: State::Failed(status), failure: None, limit: 0 }
    }

    /// Handles the head of the response.
    fn begin(&mut self, response: Response<ChannelBody>) -> ResponseStreamItem {
        let (parts, body) = response.into_parts();
        if parts.headers.contains_key(GRPC_STATUS) {
            return self.end(parts.headers);
        }
        let messages = ReceivedMessages::new(self.limit, parts.headers.get(GRPC_ENCODING).cloned());
        self.state = State::Receiving { body, messages };
        let metadata = metadata::of_headers(parts.headers);
        ResponseStreamItem::Headers(ResponseHeaders::new().with_metadata(metadata))
    }

    /// Ends the call with trailers that have a status.
    fn end(&mut self, trailers: HeaderMap) -> ResponseStreamItem {
        self.state = State::Closed;
        let status = metadata::status(&trailers);
        let metadata = metadata::of_trailers(trailers);
        ResponseStreamItem::Trailers(Trailers::new(status).with_metadata(metadata))
    }

    /// Ends the call without trailers of a server. The stream is reset, if there is one.
    fn fail(&mut self, status: Status) -> ResponseStreamItem {
        let failure = self.failure.take().and_then(|failure| failure.take());
        let status = failure.unwrap_or(status);
        let mut trailers = HeaderMap::new();
        if status.add_header(&mut trailers).is_err() {
            // Its message or metadata are no headers; the code is one.
            trailers.insert(GRPC_STATUS, (status.code() as i32).into());
        }
        self.end(trailers)
    }

    /// Reads the next message, or the end.
    async fn receive(&mut self, message: &mut dyn RecvMessage) -> ResponseStreamItem {
        let State::Receiving { body, messages } = &mut self.state else {
            return ResponseStreamItem::StreamClosed;
        };
        loop {
            match messages.decode_next(|data| message.decode(data)) {
                Ok(true) => return ResponseStreamItem::Message,
                Ok(false) => {}
                Err(status) => return self.fail(status),
            }
            let frame = match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                Some(Ok(frame)) => frame,
                Some(Err(status)) => return self.fail(status),
                None => return self.fail(Status::unknown("the response ended without a status")),
            };
            match frame.into_data() {
                Ok(data) => messages.push(data),
                Err(frame) => {
                    let trailers = frame.into_trailers().unwrap_or_default();
                    let is_cut = messages.is_incomplete() && metadata::status(&trailers).is_ok();
                    return match is_cut {
                        true => self.fail(Status::internal("the response ended within a message")),
                        false => self.end(trailers),
                    };
                }
            }
        }
    }
}

impl RecvStream for GrpcRecvStream {
    /// Returns the next item.
    ///
    /// A message that is larger than [`max_receive_message_size`](crate::channel::ChannelBuilder::max_receive_message_size) ends the call with
    /// RESOURCE_EXHAUSTED, one that is compressed or cannot be decoded with INTERNAL.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: no item is lost.
    async fn recv(&mut self, message: &mut dyn RecvMessage) -> ResponseStreamItem {
        match &mut self.state {
            State::Calling(CallTask(call)) => match call.await {
                Ok(response) => self.begin(response),
                Err(error) => self.fail(ended(error)),
            },
            State::Receiving { .. } => self.receive(message).await,
            State::Failed(status) => {
                let status = status.clone();
                self.fail(status)
            }
            State::Closed => ResponseStreamItem::StreamClosed,
        }
    }
}

impl Drop for CallTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for GrpcRecvStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::Calling(_) => "calling",
            State::Receiving { .. } => "receiving",
            State::Failed(_) => "failed",
            State::Closed => "closed",
        };
        f.debug_struct("GrpcRecvStream").field("state", &state).finish_non_exhaustive()
    }
}

/// The status of a call whose task has ended without a response.
fn ended(error: JoinError) -> Status {
    match error.is_panic() {
        true => Status::internal("the call panicked, for example in an HTTP filter of the application"),
        false => Status::cancelled("the runtime of the call has ended"),
    }
}

const GRPC_ENCODING: &str = "grpc-encoding";
