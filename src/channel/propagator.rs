//! The context of traces in the headers of requests.

use std::{fmt, sync::Arc};

use http::HeaderMap;
use tracing::Span;

/// The function of the application that adds the context of a span to headers.
#[derive(Clone)]
pub(super) struct Propagator(Arc<Inject>);

type Inject = dyn Fn(&Span, &mut HeaderMap) + Send + Sync;

impl Propagator {
    pub(super) fn new(inject: impl Fn(&Span, &mut HeaderMap) + Send + Sync + 'static) -> Self {
        Self(Arc::new(inject))
    }

    /// Adds the context of the current span: that of the attempt, which its future has entered, or that of the caller if spans of
    /// attempts are disabled.
    pub(super) fn inject(&self, headers: &mut HeaderMap) {
        (self.0)(&Span::current(), headers);
    }
}

impl fmt::Debug for Propagator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Propagator").finish_non_exhaustive()
    }
}
