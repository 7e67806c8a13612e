//! The filters of a route and a cluster, compiled when the configuration changes.

use std::{collections::BTreeSet, mem, sync::Arc};

#[cfg(feature = "rbac")]
use super::shared_rbacs::SharedRbacs;
use super::{Filter, instances::Instances, made_filter::MadeFilters};
#[cfg(feature = "channel")]
use super::{Handler, Hooks};
#[cfg(feature = "rbac")]
use crate::resource::http_filter::rbac::AuditLogger;
use crate::resource::http_filter::{EffectiveFilter, FilterOverride, HttpFilter, OverrideSetting};

/// The filters that handle requests on a route to a cluster, in the order of the listener; never empty.
#[derive(Debug, PartialEq)]
pub(crate) struct FilterChain {
    filters: Box<[Filter]>,
    /// The hooks that some of the filters have.
    #[cfg(feature = "channel")]
    hooks: Hooks,
}

/// Compiles the chains of the routes of a virtual host (CH5.1).
#[derive(Debug)]
pub(crate) struct ChainCompiler<'a> {
    /// The filters of the listener.
    filters: &'a [HttpFilter],
    /// The overrides of the virtual host.
    host: &'a [FilterOverride],
    /// Chains that later routes with equal overrides share: the chain without overrides, and the last other one.
    shared: [Option<Arc<FilterChain>>; 2],
    /// The state of filters that outlives updates and routes.
    compiling: Compiling<'a>,
    /// Names of filters with an effect that channels do not execute.
    unexecuted: BTreeSet<&'a str>,
}

/// A filter of the listener, where it has these overrides.
pub(super) struct FilterSite<'a, 'o> {
    pub(super) filter: &'a HttpFilter,
    /// The overrides of the split, the route and the virtual host.
    levels: [&'o [FilterOverride]; 3],
}

/// What the compilation of a filter reads and adds to, for all routes.
#[derive(Debug, Default)]
pub(super) struct Compiling<'a> {
    /// States that outlive the compilation.
    pub(super) instances: Instances,
    /// Filters of the application that were made for earlier routes.
    pub(super) made: MadeFilters<'a>,
    /// What compiles the filters of a server; `None` for those of a client.
    #[cfg(feature = "rbac")]
    pub(super) server: Option<SharedRbacs<'a>>,
}

/// The result of compiling a filter of the listener for a route.
pub(super) enum Compiled<F> {
    /// The configuration is that of another filter.
    Unknown,
    /// The filter does nothing on the route, so that it costs its calls nothing.
    WithoutEffect,
    Filter(F),
}

impl<'o> FilterSite<'_, 'o> {
    /// The overrides of the filter, the most specific one first, which is the only one with an effect on most filters.
    pub(super) fn overrides(&self) -> impl Iterator<Item = &'o OverrideSetting> {
        self.filter.overrides(&self.levels)
    }
}

impl FilterChain {
    /// Whether the chain has a filter for sessions.
    pub(crate) fn has_session(&self) -> bool {
        self.filters.iter().any(|filter| matches!(filter, Filter::Session(_)))
    }

    /// Returns the filters in order.
    #[cfg(any(feature = "channel", test))]
    pub(super) fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// Returns what handles the rest of a stream at a filter, if the filter does not pass requests on by itself.
    #[cfg(feature = "channel")]
    pub(crate) fn handler(&self, index: usize) -> Option<Handler<'_>> {
        self.filters[index].handler()
    }

    /// Returns the hooks that some of the filters have.
    #[cfg(feature = "channel")]
    pub(super) fn hooks(&self) -> Hooks {
        self.hooks
    }
}

impl<'a> ChainCompiler<'a> {
    /// A compiler for the filters of a listener, with the overrides of a virtual host.
    pub(crate) fn new(filters: &'a [HttpFilter], host: &'a [FilterOverride]) -> Self {
        let (compiling, unexecuted) = (Compiling::default(), BTreeSet::new());
        Self { filters, host, shared: [None, None], compiling, unexecuted }
    }

    /// Has filters that are executed on servers alone compiled, too. `stdout` is the audit logger to the standard output (A59).
    #[cfg(feature = "rbac")]
    #[cfg_attr(not(test), allow(dead_code, reason = "servers are to have chains with it"))]
    #[must_use]
    pub(crate) fn for_server(mut self, stdout: &'a Arc<dyn AuditLogger>) -> Self {
        self.compiling.server = Some(SharedRbacs::new(stdout));
        self
    }

    /// Sets the instances of the generation before, which keep their state (CH5.4). Instances of filters that are no longer
    /// listed end.
    #[must_use]
    pub(crate) fn with_instances(mut self, instances: Instances) -> Self {
        self.compiling.instances = instances;
        self.compiling.instances.retain(self.filters);
        self
    }

    /// Sets the instances of a listener with several chains, whose owner [forgets](Instances::retain_any) those that ended.
    #[cfg(any(test, feature = "server"))]
    #[must_use]
    pub(crate) fn with_shared_instances(mut self, instances: Instances) -> Self {
        self.compiling.instances = instances;
        self
    }

    /// The chain for a route with these overrides, and for one of its weighted clusters with others, which take precedence
    /// (A39-6); `None` if it only forwards requests.
    pub(crate) fn chain(
        &mut self,
        route: &[FilterOverride],
        cluster: &[FilterOverride],
    ) -> Option<Arc<FilterChain>> {
        let (chain, unexecuted) = self.compile(route, cluster);
        self.unexecuted.extend(unexecuted);
        chain
    }

    /// The chain for a route of a server with these overrides; `None` if it has no filters with an effect.
    ///
    /// # Errors
    /// The name of a filter with an effect that is not executed.
    #[cfg(any(test, feature = "server"))]
    pub(crate) fn executed_chain(
        &mut self,
        route: &[FilterOverride],
    ) -> Result<Option<Arc<FilterChain>>, &'a str> {
        let (chain, unexecuted) = self.compile(route, &[]);
        unexecuted.first().map_or(Ok(chain), |name| Err(*name))
    }

    /// Compiles the chain for these overrides; returns with it the names of filters that are not executed.
    fn compile(
        &mut self,
        route: &[FilterOverride],
        cluster: &[FilterOverride],
    ) -> (Option<Arc<FilterChain>>, Vec<&'a str>) {
        let (mut filters, mut unexecuted) = (Vec::new(), Vec::new());
        let levels = [cluster, route, self.host];
        for filter in self.filters {
            let site = FilterSite { filter, levels };
            let effective = filter.effective(site.overrides().next());
            if matches!(effective, EffectiveFilter::Nothing | EffectiveFilter::Router) {
                continue;
            }
            match Filter::compile(effective, &site, &mut self.compiling) {
                Compiled::Filter(filter) => filters.push(filter),
                Compiled::WithoutEffect => {}
                Compiled::Unknown => unexecuted.push(&*filter.name),
            }
        }
        // Calls without a chain skip all that filters need.
        if filters.is_empty() {
            return (None, unexecuted);
        }
        (Some(self.share(filters, usize::from(!(route.is_empty() && cluster.is_empty())))), unexecuted)
    }

    /// The instances, with those that were made.
    pub(crate) fn take_instances(&mut self) -> Instances {
        mem::take(&mut self.compiling.instances)
    }

    /// The names of the filters that have an effect on a route of those up to now, and are not executed.
    pub(crate) fn into_unexecuted(self) -> BTreeSet<&'a str> {
        self.unexecuted
    }

    /// Returns a chain with these filters, shared with earlier routes if one is equal.
    fn share(&mut self, filters: Vec<Filter>, place: usize) -> Arc<FilterChain> {
        // Most routes have no overrides, and those that do often have the same: comparing with two chains finds nearly all, in
        // constant time.
        let equal = self.shared.iter().flatten().find(|chain| *chain.filters == *filters);
        if let Some(chain) = equal {
            return chain.clone();
        }
        let chain = Arc::new(FilterChain {
            #[cfg(feature = "channel")]
            hooks: filters.iter().fold(Hooks::default(), |hooks, filter| hooks.with(filter.hooks())),
            filters: filters.into(),
        });
        self.shared[place] = Some(chain.clone());
        chain
    }
}
