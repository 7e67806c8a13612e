//! The filters that applications have made of their configurations.

#[cfg(feature = "channel")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{collections::BTreeMap, fmt, sync::Arc};

use super::instances::Instances;
#[cfg(feature = "channel")]
use crate::resource::http_filter::CallFilter;
use crate::{
    base::Custom,
    resource::http_filter::{CustomFilter, HttpFilter},
};

/// The filter that the application has made.
pub(super) struct MadeFilter {
    /// The name in the listener.
    pub(super) name: Box<str>,
    /// The configuration in the listener.
    config: CustomFilter,
    /// The winning override of the route, if there is one.
    setting: Option<Custom>,
    /// The application's filter; `None` if it panicked when it was made, so that calls fail instead of skipping it.
    #[cfg(feature = "channel")]
    pub(super) filter: Option<Box<dyn CallFilter>>,
}

/// Filters that were made while chains are compiled, to be shared by equal routes: for each name the filter without an override,
/// and the last one with another.
#[derive(Debug, Default)]
pub(super) struct MadeFilters<'a>(BTreeMap<&'a str, [Option<Arc<MadeFilter>>; 2]>);

impl<'a> MadeFilters<'a> {
    /// Returns the filter of a configuration and an override, made unless that of an earlier route is equal. `None` if channels
    /// cannot execute it.
    pub(super) fn of(
        &mut self,
        filter: &'a HttpFilter,
        config: &CustomFilter,
        setting: Option<&Custom>,
        instances: &mut Instances,
    ) -> Option<Arc<MadeFilter>> {
        let made = &mut self.0.entry(&filter.name).or_default()[usize::from(setting.is_some())];
        // The configuration in the listener is the same for all routes of a compilation, so overrides alone are compared.
        if let Some(equal) = made.as_ref().filter(|made| made.setting.as_ref() == setting) {
            return Some(equal.clone());
        }
        let new = Arc::new(MadeFilter::new(filter, config, setting, instances)?);
        *made = Some(new.clone());
        Some(new)
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
