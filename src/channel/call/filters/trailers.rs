//! The trailers of responses, as filters see them.

use std::{
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::{
    filters::StreamFilters,
    resource::http_filter::{FilterBody, FilterError},
};

/// The filters that handle the trailers of a response.
pub(in crate::channel) struct TrailerFilters {
    filters: StreamFilters,
    /// The indexes of the filters that the request has passed.
    passed: Range<usize>,
}

/// A body between two filters of the application.
struct FilteredBody {
    body: FilterBody,
    filters: Box<TrailerFilters>,
}

impl TrailerFilters {
    /// Takes the filters that the request has passed from their call; `None` if none of the chain handles trailers.
    pub(super) fn new(filters: &mut StreamFilters, passed: Range<usize>) -> Option<Box<Self>> {
        if !filters.hooks().on_trailers || passed.is_empty() {
            return None;
        }
        Some(Box::new(Self { filters: filters.take(passed.clone()), passed }))
    }

    /// Passes a frame of the response to the filters if it has the trailers.
    pub(in crate::channel) fn on_frame(&mut self, frame: &mut Frame<Bytes>) {
        if let Some(trailers) = frame.trailers_mut() {
            self.filters.on_trailers(self.passed.clone(), trailers);
        }
    }

    /// Returns the body with the trailers as these filters change them.
    pub(super) fn wrap(filters: Option<Box<Self>>, body: FilterBody) -> FilterBody {
        match filters {
            Some(filters) => FilterBody::new(FilteredBody { body, filters }),
            None => body,
        }
    }
}

impl Body for FilteredBody {
    type Data = Bytes;
    type Error = FilterError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FilterError>>> {
        let Self { body, filters } = &mut *self;
        let mut frame = ready!(Pin::new(body).poll_frame(cx));
        if let Some(Ok(frame)) = &mut frame {
            filters.on_frame(frame);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
