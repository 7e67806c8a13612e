//! HTTP filters of clients without I/O: what they do with a request before its first attempt (A39).
//!
//! A [`FilterChain`] is compiled for each route and cluster when the configuration changes. The shell runs its filters in their
//! order, once for each call and before any attempt, and executes what each decides.

mod custom;
pub(crate) mod fault;
pub(crate) mod gcp_authn;
pub(crate) mod session;

use std::{collections::BTreeSet, mem, sync::Arc};

pub(crate) use self::custom::{CustomCallFilter, Instances};
use self::{custom::Made, gcp_authn::IdentityTokens};
use crate::resource::http_filter::{EffectiveFilter, Fault, FilterOverride, HttpFilter, SessionCookie};

/// The filters that handle requests on a route to a cluster, in the order of the listener; never empty.
#[derive(Debug, PartialEq)]
pub(crate) struct FilterChain {
    filters: Box<[Filter]>,
}

/// A filter with its effective configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Filter {
    /// Delays and aborts requests (A33).
    Fault(Fault),
    /// Keeps sessions by a cookie (A55).
    Session(Arc<SessionCookie>),
    /// Adds identity tokens (A83).
    GcpAuthn(Arc<IdentityTokens>),
    /// A filter of the application.
    Custom(Arc<CustomCallFilter>),
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
    /// The state of filters that outlives updates.
    instances: Instances,
    /// Filters of the application that were made for earlier routes.
    made: Made<'a>,
    /// Names of filters with an effect that channels do not execute.
    unexecuted: BTreeSet<&'a str>,
}

impl FilterChain {
    /// Returns the filters in order.
    pub(crate) fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// Whether the chain has a filter for sessions.
    pub(crate) fn has_session(&self) -> bool {
        self.filters.iter().any(|filter| matches!(filter, Filter::Session(_)))
    }
}

impl<'a> ChainCompiler<'a> {
    pub(crate) fn new(filters: &'a [HttpFilter], host: &'a [FilterOverride]) -> Self {
        let (instances, made, unexecuted) = (Instances::default(), Made::default(), BTreeSet::new());
        Self { filters, host, shared: [None, None], instances, made, unexecuted }
    }

    /// Sets the instances of the generation before, which keep their state (CH5.4). Instances of filters that are no longer
    /// listed end.
    #[must_use]
    pub(crate) fn with_instances(mut self, instances: Instances) -> Self {
        self.instances = instances;
        self.instances.retain(self.filters);
        self
    }

    /// The chain for a route with these overrides, and for one of its weighted clusters with others, which take precedence
    /// (A39-6); `None` if it only forwards requests.
    pub(crate) fn chain(
        &mut self,
        route: &[FilterOverride],
        cluster: &[FilterOverride],
    ) -> Option<Arc<FilterChain>> {
        let mut filters = Vec::new();
        for filter in self.filters {
            let setting = filter.winning_override(&[cluster, route, self.host]);
            match filter.effective(setting) {
                EffectiveFilter::Nothing | EffectiveFilter::Router => {}
                EffectiveFilter::Fault(fault) if fault::is_ever_injected(fault) => {
                    filters.push(Filter::Fault(fault.clone()));
                }
                // One that never injects anything would still cost each call its draws.
                EffectiveFilter::Fault(_) => {}
                EffectiveFilter::StatefulSession(cookie) => {
                    filters.push(Filter::Session(Arc::new(cookie.clone())));
                }
                EffectiveFilter::GcpAuthn(config) => {
                    filters.push(Filter::GcpAuthn(self.instances.gcp_authn(&filter.name, config)));
                }
                EffectiveFilter::Custom { filter: config, setting } => {
                    match self.made.custom(&mut self.instances, &filter.name, config, setting) {
                        Some(custom) => filters.push(Filter::Custom(custom)),
                        None => drop(self.unexecuted.insert(&filter.name)),
                    }
                }
                // Snapshots have no discovered filters.
                EffectiveFilter::Rbac(_) | EffectiveFilter::Discovered(_) => {
                    self.unexecuted.insert(&filter.name);
                }
            }
        }
        if filters.is_empty() {
            return None;
        }
        Some(self.share(filters, usize::from(!(route.is_empty() && cluster.is_empty()))))
    }

    /// The instances, with those that were made.
    pub(crate) fn take_instances(&mut self) -> Instances {
        mem::take(&mut self.instances)
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
        let chain = Arc::new(FilterChain { filters: filters.into() });
        self.shared[place] = Some(chain.clone());
        chain
    }
}

#[cfg(test)]
mod tests;
