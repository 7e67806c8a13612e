//! The body of a request, with what an attempt has read of it for the next attempt (CH6.16, CH6.17).

use std::{
    error::Error,
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame};

/// A body that is read once, and replayed for a further attempt.
pub(super) struct Recorded<B> {
    body: Pin<Box<B>>,
    record: Record,
    /// How much of the record the current attempt has read.
    replayed: usize,
    is_end: bool,
}

/// What was read of the body.
enum Record {
    Kept {
        data: Vec<Bytes>,
        size: usize,
        trailers: Option<HeaderMap>,
    },
    /// It was too large: the attempt is the last one.
    Dropped,
}

impl<B: Body> Recorded<B> {
    pub(super) fn new(body: B) -> Self {
        let record = Record::Kept { data: Vec::new(), size: 0, trailers: None };
        Self { body: Box::pin(body), record, replayed: 0, is_end: false }
    }

    /// Whether the request ends with its headers.
    pub(super) fn is_empty(&self) -> bool {
        let is_unread = matches!(&self.record, Record::Kept { data, .. } if data.is_empty());
        is_unread && (self.is_end || self.body.is_end_stream())
    }
}

impl<B> Recorded<B> {
    /// Begins again for another attempt; false if that is impossible.
    pub(super) fn rewind(&mut self) -> bool {
        self.replayed = 0;
        matches!(self.record, Record::Kept { .. })
    }
}

impl<B> Recorded<B>
where
    B: Body,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Record::Kept { data, trailers, .. } = &self.record {
            if let Some(data) = data.get(self.replayed) {
                self.replayed += 1;
                return Poll::Ready(Some(Ok(Frame::data(data.clone()))));
            }
            if self.is_end {
                let is_new = mem::replace(&mut self.replayed, usize::MAX) != usize::MAX;
                let trailers = trailers.clone().filter(|_| is_new);
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
        }
        self.body.as_mut().poll_frame(cx).map(|frame| {
            Some(
                frame?.map(|frame| {
                    self.record(frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                }),
            )
            .or_else(|| None)
        })
    }

    fn record(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.is_end = frame.is_trailers() || self.body.is_end_stream();
        if let Record::Kept { data, size, trailers } = &mut self.record {
            if let Some(part) = frame.data_ref() {
                *size += part.len();
                data.push(part.clone());
                self.replayed += 1;
            }
            if let Some(map) = frame.trailers_ref() {
                *trailers = Some(map.clone());
                self.replayed = usize::MAX;
            }
            if *size > MAX_RECORD {
                self.record = Record::Dropped;
            }
        }
        frame
    }
}

/// The bytes of a request that are kept for a further attempt (CH6.16).
const MAX_RECORD: usize = 256 << 10;
