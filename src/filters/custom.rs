//! HTTP filters of applications (CH5.2).

use std::sync::Arc;

#[cfg(feature = "channel")]
use http::{HeaderName, HeaderValue};

#[cfg(feature = "channel")]
use super::{Decision, FilterAttempt, FilterRequest, Handler, Hooks, LocalReply, StreamFilter};
use super::{
    chain::{Compiled, Compiling, FilterSite},
    made_filter::MadeFilter,
};
#[cfg(feature = "channel")]
use crate::error::Code;
use crate::resource::http_filter::EffectiveFilter;

/// A filter of the application for the calls on some routes, which handles them itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CustomCallFilter(Arc<MadeFilter>);

impl CustomCallFilter {
    /// Compiles a filter, unless channels cannot execute it.
    pub(super) fn compile<'a>(
        effective: EffectiveFilter<'_>,
        site: &FilterSite<'a, '_>,
        compiling: &mut Compiling<'a>,
    ) -> Compiled<Self> {
        let EffectiveFilter::Custom { filter: config, setting } = effective else {
            return Compiled::Unknown;
        };
        let Compiling { instances, made, .. } = compiling;
        match made.of(site.filter, config, setting, instances) {
            Some(made) => Compiled::Filter(Self(made)),
            None => Compiled::Unknown,
        }
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for CustomCallFilter {
    /// The credentials that the filter has added.
    type State = Vec<(HeaderName, HeaderValue)>;

    fn hooks(&self) -> Hooks {
        // The application may change any header, so the hash is computed before that (CH6.21).
        Hooks { changes_request: true, handler: true, ..Hooks::default() }
    }

    fn handler(&self) -> Option<Handler<'_>> {
        let filter = self.0.filter.as_deref()?;
        Some(Handler { name: &self.0.name, filter })
    }

    /// Fails calls if the filter has no handler.
    fn on_request<'a>(
        &'a self,
        _: &'a mut Option<Self::State>,
        _: &'a mut FilterRequest<'_>,
    ) -> Decision<'a> {
        let reason = format!("HTTP filter {:?} panicked when it was made", self.0.name);
        Decision::Reply(LocalReply::new(Code::Internal, reason))
    }

    fn add_credential(&self, state: &mut Option<Self::State>, name: HeaderName, mut value: HeaderValue) {
        // Neither shown by `Debug` nor added to HPACK's table.
        value.set_sensitive(true);
        state.get_or_insert_default().push((name, value));
    }

    fn has_credentials(&self, state: Option<&Self::State>) -> bool {
        state.is_some()
    }

    fn credentials<'a>(
        &'a self,
        state: &'a mut Option<Self::State>,
        attempt: FilterAttempt<'a>,
    ) -> Decision<'a> {
        for (name, value) in state.iter().flatten() {
            attempt.headers.insert(name.clone(), value.clone());
        }
        Decision::Continue
    }
}

#[cfg(test)]
mod tests;
