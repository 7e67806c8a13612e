//! HTTP filters of applications (CH5.2), and the state of the instances of filters (CH5.4).

#[cfg(feature = "channel")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{collections::BTreeMap, fmt, sync::Arc};

use super::gcp_authn::IdentityTokens;
#[cfg(feature = "channel")]
use crate::resource::http_filter::{CallFilter, FilterState};
use crate::{
    base::Custom,
    resource::http_filter::{CustomFilter, GcpAuthn, HttpFilter, HttpFilterConfig},
};

/// A filter of the application for the calls on some routes.
pub(crate) struct CustomCallFilter {
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

/// The state of filters over updates of the listener and the routes, by their names and types (A83-2).
#[derive(Default)]
pub(crate) struct Instances {
    /// States that filters of the application have made, by name and type.
    #[cfg(feature = "channel")]
    custom: BTreeMap<(Box<str>, &'static str), FilterState>,
    /// Tokens by the name of the filter.
    gcp_authn: BTreeMap<Box<str>, Arc<IdentityTokens>>,
}

/// Filters that were made while chains are compiled, to be shared by equal routes: for each name the filter without an override,
/// and the last one with another.
#[derive(Debug, Default)]
pub(super) struct Made<'a>(BTreeMap<&'a str, [Option<Arc<CustomCallFilter>>; 2]>);

impl CustomCallFilter {
    /// The name in the listener.
    #[cfg(feature = "channel")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the filter; `None` if it panicked when it was made.
    #[cfg(feature = "channel")]
    pub(crate) fn filter(&self) -> Option<&dyn CallFilter> {
        self.filter.as_deref()
    }
}

impl Instances {
    /// Forgets the instances that are not among the filters of a listener.
    pub(crate) fn retain(&mut self, listed: &[HttpFilter]) {
        // By name and type: another type under the same name is another filter, and must not get its state.
        let find =
            |name: &str| listed.iter().find(|filter| *filter.name == *name).map(|filter| &filter.config);
        #[cfg(feature = "channel")]
        self.custom.retain(|(name, type_name), _| {
            matches!(find(name), Some(HttpFilterConfig::Custom(it)) if it.type_name() == *type_name)
        });
        self.gcp_authn.retain(|name, _| matches!(find(name), Some(HttpFilterConfig::GcpAuthn(_))));
    }

    /// The tokens of the filter with this name, whose cache has its configured size from now on (CH5.13).
    pub(super) fn gcp_authn(&mut self, name: &str, config: &GcpAuthn) -> Arc<IdentityTokens> {
        let capacity = usize::try_from(config.cache_size).unwrap_or(usize::MAX);
        let tokens = self.gcp_authn.entry(name.into()).or_insert_with(|| IdentityTokens::new(name, capacity));
        tokens.set_capacity(capacity);
        tokens.clone()
    }

    /// A filter of the application; `None` if channels cannot execute it.
    #[cfg(feature = "channel")]
    fn custom(
        &mut self,
        name: &str,
        config: &CustomFilter,
        setting: Option<&Custom>,
    ) -> Option<CustomCallFilter> {
        let (execution, typed) = config.execution()?;
        let key = (name.into(), config.type_name());
        let known = self.custom.get(&key).cloned();
        // Code of the application may panic at any update. Its calls fail then, and the channel goes on.
        let state = known.or_else(|| {
            let made = catch_unwind(AssertUnwindSafe(|| execution.state(typed, name))).ok().flatten()?;
            self.custom.insert(key, made.clone());
            Some(made)
        });
        let filter = state.and_then(|state| {
            let made = AssertUnwindSafe(|| execution.call_filter(typed, setting, &state));
            catch_unwind(made).ok().flatten()
        });
        Some(CustomCallFilter {
            name: name.into(),
            config: config.clone(),
            setting: setting.cloned(),
            filter,
        })
    }

    #[cfg(not(feature = "channel"))]
    fn custom(&mut self, _: &str, _: &CustomFilter, _: Option<&Custom>) -> Option<CustomCallFilter> {
        None
    }
}

impl<'a> Made<'a> {
    /// A filter of the application; `None` if channels cannot execute it.
    pub(super) fn custom(
        &mut self,
        instances: &mut Instances,
        name: &'a str,
        config: &CustomFilter,
        setting: Option<&Custom>,
    ) -> Option<Arc<CustomCallFilter>> {
        let made = &mut self.0.entry(name).or_default()[usize::from(setting.is_some())];
        if let Some(equal) = made.as_ref().filter(|made| made.setting.as_ref() == setting) {
            return Some(equal.clone());
        }
        *made = Some(Arc::new(instances.custom(name, config, setting)?));
        made.clone()
    }
}

/// Filters are equal if they do the same: the state is that of the name and the type.
impl PartialEq for CustomCallFilter {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.config, &self.setting) == (&other.name, &other.config, &other.setting)
    }
}

impl fmt::Debug for CustomCallFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomCallFilter")
            .field("name", &self.name)
            .field("config", &self.config)
            .field("setting", &self.setting)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instances").field("gcp_authn", &self.gcp_authn).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
