//! HTTP filters of applications (CH5.2).

#[cfg(feature = "channel")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{collections::BTreeMap, fmt, sync::Arc};

#[cfg(feature = "channel")]
use http::{HeaderName, HeaderValue};

#[cfg(feature = "channel")]
use super::{Decision, FilterAttempt, FilterRequest, Handler, Hooks, LocalReply, StreamFilter};
use super::{
    chain::{Compiled, FilterSite},
    instances::{Compiling, Instances},
};
use crate::{
    base::Custom,
    resource::http_filter::{CustomFilter, EffectiveFilter, HttpFilter},
};
#[cfg(feature = "channel")]
use crate::{error::Code, resource::http_filter::CallFilter};

/// A filter of the application for the calls on some routes, which handles them itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CustomCallFilter(Arc<MadeFilter>);

/// The filter that the application has made.
struct MadeFilter {
    /// The name in the listener.
    name: Box<str>,
    /// The configuration in the listener.
    config: CustomFilter,
    /// The winning override of the route, if there is one.
    setting: Option<Custom>,
    /// The application's filter; `None` if it panicked when it was made, so that calls fail instead of skipping it.
    #[cfg(feature = "channel")]
    filter: Option<Box<dyn CallFilter>>,
}

/// Filters that were made while chains are compiled, to be shared by equal routes: for each name the filter without an override,
/// and the last one with another.
#[derive(Debug, Default)]
pub(super) struct MadeFilters<'a>(BTreeMap<&'a str, [Option<CustomCallFilter>; 2]>);

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
        let Compiling { instances, made } = compiling;
        let made = &mut made.0.entry(&site.filter.name).or_default()[usize::from(setting.is_some())];
        if let Some(equal) = made.as_ref().filter(|made| made.0.setting.as_ref() == setting) {
            return Compiled::Filter(equal.clone());
        }
        let Some(filter) = MadeFilter::new(site.filter, config, setting, instances) else {
            return Compiled::Unknown;
        };
        let filter = Self(Arc::new(filter));
        *made = Some(filter.clone());
        Compiled::Filter(filter)
    }
}

#[cfg(feature = "channel")]
impl StreamFilter for CustomCallFilter {
    /// The credentials that the filter has added.
    type State = Vec<(HeaderName, HeaderValue)>;

    fn hooks(&self) -> Hooks {
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

impl MadeFilter {
    /// Makes a filter; `None` if channels cannot execute it.
    #[cfg(feature = "channel")]
    fn new(
        filter: &HttpFilter,
        config: &CustomFilter,
        setting: Option<&Custom>,
        instances: &mut Instances,
    ) -> Option<Self> {
        let (execution, typed) = config.execution()?;
        let name = &filter.name;
        // Code of the application may panic at any update. Its calls fail then, and the channel goes on.
        let state = instances
            .of(filter, || catch_unwind(AssertUnwindSafe(|| execution.state(typed, name))).ok().flatten());
        let made = state.and_then(|state| {
            let made = AssertUnwindSafe(|| execution.call_filter(typed, setting, &state));
            catch_unwind(made).ok().flatten()
        });
        Some(Self { name: name.clone(), config: config.clone(), setting: setting.cloned(), filter: made })
    }

    #[cfg(not(feature = "channel"))]
    fn new(_: &HttpFilter, _: &CustomFilter, _: Option<&Custom>, _: &mut Instances) -> Option<Self> {
        None
    }
}

/// Filters are equal if they do the same: the state is that of the name and the type.
impl PartialEq for MadeFilter {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.config, &self.setting) == (&other.name, &other.config, &other.setting)
    }
}

impl fmt::Debug for MadeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MadeFilter")
            .field("name", &self.name)
            .field("config", &self.config)
            .field("setting", &self.setting)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
