//! The routes of a filter chain with their HTTP filters, compiled when one of them changes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    filters::{ChainCompiler, FilterChain, Instances},
    resource::{
        RouteConfiguration, VirtualHost, http_filter::HttpFilter, route::Route, route_action::RouteAction,
    },
};

/// A route configuration, and the filters of a filter chain for each of its routes.
#[derive(Debug, Clone)]
pub(super) struct CompiledRoutes {
    pub(super) config: Arc<RouteConfiguration>,
    /// Indexed as the virtual hosts of the configuration.
    hosts: Box<[Arc<CompiledHost>]>,
}

/// The filters of the routes of a virtual host, indexed as its routes.
#[derive(Debug)]
struct CompiledHost {
    routes: Box<[RouteFilters]>,
}

/// The filters of a route.
#[derive(Debug)]
pub(super) enum RouteFilters {
    /// The filters with an effect; `None` without any.
    Executed(Option<Arc<FilterChain>>),
    /// The filter of this name has an effect and cannot be executed, so that requests are refused: it may be one that protects
    /// the application.
    Unexecuted(Box<str>),
}

impl CompiledRoutes {
    /// Compiles the routes of a configuration for the filters of a chain. Virtual hosts that are equal in the previous routes of the
    /// chain are taken over.
    pub(super) fn compile(
        filters: &[HttpFilter],
        config: Arc<RouteConfiguration>,
        previous: Option<&Self>,
        instances: &mut Instances,
    ) -> Self {
        // SV8.5
        let known: BTreeMap<&str, usize> = previous
            .iter()
            .flat_map(|previous| previous.config.virtual_hosts.iter().enumerate())
            .map(|(index, host)| (&*host.name, index))
            .collect();
        let unchanged = |host: &VirtualHost| {
            let (previous, index) = (previous?, *known.get(&*host.name)?);
            (previous.config.virtual_hosts[index] == *host).then(|| previous.hosts[index].clone())
        };
        let hosts = config.virtual_hosts.iter();
        let hosts = hosts.map(|host| {
            unchanged(host).unwrap_or_else(|| Arc::new(CompiledHost::compile(filters, host, instances)))
        });
        Self { hosts: hosts.collect(), config: config.clone() }
    }

    /// The filters of a route, by its indexes in the configuration.
    pub(super) fn filters(&self, host: usize, route: usize) -> &RouteFilters {
        &self.hosts[host].routes[route]
    }

    /// The mistakes because of which requests on some routes are refused, up to a number of them.
    pub(super) fn errors(&self) -> Vec<String> {
        let hosts = self.config.virtual_hosts.iter().zip(&self.hosts);
        let routes = hosts.flat_map(|(host, compiled)| {
            host.routes.iter().zip(&compiled.routes).map(move |(route, filters)| (host, route, filters))
        });
        let errors = routes.filter_map(|(host, route, filters)| {
            let reason = error(route, filters)?;
            let (config, host, route) = (&self.config.name, &host.name, &route.name);
            Some(format!("RouteConfiguration {config:?}, virtual host {host:?}, route {route:?}: {reason}"))
        });
        errors.take(MAX_ERRORS).collect()
    }
}

impl CompiledHost {
    fn compile(filters: &[HttpFilter], host: &VirtualHost, instances: &mut Instances) -> Self {
        let mut chains = ChainCompiler::new(filters, &host.filter_overrides)
            .with_shared_instances(std::mem::take(instances));
        let routes = host.routes.iter().map(|route| match chains.executed_chain(&route.filter_overrides) {
            Ok(chain) => RouteFilters::Executed(chain),
            Err(name) => RouteFilters::Unexecuted(name.into()),
        });
        let routes = routes.collect();
        *instances = chains.take_instances();
        Self { routes }
    }
}

/// Why requests on a route are refused.
fn error(route: &Route, filters: &RouteFilters) -> Option<String> {
    if let RouteFilters::Unexecuted(name) = filters {
        return Some(format!("HTTP filter {name:?} is not executed by servers"));
    }
    let name = action_name(&route.action)?;
    Some(format!("its action is {name}, where servers need non_forwarding_action"))
}

/// The name of an action that is not for servers.
pub(super) fn action_name(action: &RouteAction) -> Option<&'static str> {
    match action {
        RouteAction::NonForwarding => None,
        RouteAction::Forward(_) => Some("route"),
        RouteAction::Unsupported(action) => Some(action.name()),
    }
}

/// The number of mistakes that are reported of a route configuration.
const MAX_ERRORS: usize = 8;
