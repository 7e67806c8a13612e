//! The body of the request of a stream.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::Frame;
use tonic::{Status, body::Body};

use crate::transport::ConnectionEvents;

/// The body of the request. It reports when HTTP/2 has room for a message, which is later than when HTTP/2 takes it:
/// a message is held back while the server's window is closed, and the next one is only polled for after that.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The encoded requests.
    pub(super) body: Body,
    /// Whether a message was taken since the last poll.
    pub(super) taken: Arc<AtomicBool>,
    pub(super) events: ConnectionEvents,
}

impl hyper::body::Body for Outgoing {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.taken.swap(false, Ordering::Relaxed) {
            self.events.request_sent();
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
