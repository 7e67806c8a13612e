//! The body of a request, and the report that it was sent.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::transport::ConnectionEvents;

/// Reports that a request was sent, at most once.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    events: ConnectionEvents,
    is_settled: Arc<AtomicBool>,
}

impl Sent {
    pub(super) fn new(events: ConnectionEvents) -> Self {
        Self { events, is_settled: Arc::default() }
    }

    /// Reports that the request was sent, once.
    pub(super) fn report(&self) {
        if !self.is_settled.swap(true, Ordering::Relaxed) {
            self.events.request_sent();
        }
    }

    /// Disables the report after the end of the exchange.
    pub(super) fn forget(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }
}

/// The body of a request, in one piece. It counts as sent when HTTP has taken it and polls for more, or drops it.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The request, until HTTP has taken it.
    json: Option<Bytes>,
    sent: Sent,
    /// Whether HTTP has taken the request.
    is_taken: bool,
}

impl Outgoing {
    pub(super) fn new(json: Bytes, sent: Sent) -> Self {
        Self { json: Some(json), sent, is_taken: false }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(json) = self.json.take() else {
            self.sent.report();
            return Poll::Ready(None);
        };
        self.is_taken = true;
        Poll::Ready(Some(Ok(Frame::data(json))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.json.as_ref().map_or(0, |json| json.len() as u64))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if self.is_taken {
            self.sent.report();
        }
    }
}
