//! Route configurations and their routes.

use std::{ops::Not, sync::Arc};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Remarks, Resource, VirtualHost,
    cluster_plugin::Plugins,
    http_filter::{self, FilterOverride},
    parts, remarks,
    route_action::{ForwardAction, ProxyAction, RouteAction, Scope},
    route_match::RouteMatch,
    unexecuted,
};
use crate::base::type_url;
use crate::pb::envoy::config::route::v3::{self as pb, route::Action};

mod host_index;
mod list;
mod path_index;

pub use self::list::{Routes, VirtualHosts};

/// A route configuration: virtual hosts with their routes.
///
/// Every virtual host and every route in it is usable. Routes that a client can never use are omitted instead of
/// invalidating the whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RouteConfiguration {
    /// The name; empty only for one inside a listener.
    pub name: Arc<str>,
    /// The virtual hosts, in the order of the message; there may be none.
    pub virtual_hosts: VirtualHosts,
    /// Whether the server has more virtual hosts as resources of their own (VHDS): see
    /// [`VirtualHost::resource_name`]. A resolution requests the one that it needs.
    #[serde(skip_serializing_if = "Not::not")]
    pub vhds: bool,
    /// What is not used of it; of one inside a listener, the listener has that.
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
}

/// A route: conditions on a request, and the action on matching requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Route {
    /// The name, for display; often empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// The conditions on a request. In JSON `match`.
    #[serde(rename = "match")]
    pub matcher: RouteMatch,
    /// The action on matching requests.
    pub action: RouteAction,
    /// Settings of HTTP filters, sorted by filter; those of a weighted cluster take precedence.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub filter_overrides: Box<[FilterOverride]>,
}

impl RouteConfiguration {
    /// Rules R1 to R28.
    pub(super) fn parse_message(message: pb::RouteConfiguration, cx: &Context<'_>) -> Result<Self, Invalid> {
        let plugins = Plugins::parse(message.cluster_specifier_plugins, cx)?;
        let scope = Scope { cx, plugins: &plugins };
        let mut virtual_hosts = Vec::with_capacity(message.virtual_hosts.len());
        for (i, host) in message.virtual_hosts.into_iter().enumerate() {
            let host = remarks::within("virtual_hosts", i, || VirtualHost::parse_message(host, &scope));
            virtual_hosts.push(host.map_err(|e| e.at_index("virtual_hosts", i))?);
        }
        if let Some(vhds) = &message.vhds {
            parts::same_stream(vhds.config_source.as_ref(), cx)
                .map_err(|e| e.at("config_source").at("vhds"))?;
            if message.name.is_empty() {
                return Err(Invalid::field("vhds", "needs a name of the route configuration"));
            }
        }
        let (virtual_hosts, vhds) = (VirtualHosts::new(virtual_hosts.into()), message.vhds.is_some());
        Ok(Self { name: message.name.into(), virtual_hosts, vhds, remarks: Remarks::default() })
    }

    /// Returns the virtual host of a host, by the domain that matches best (see [`Fit`](super::matcher::Fit)); the
    /// first among equals.
    pub fn virtual_host(&self, host: &str) -> Option<&VirtualHost> {
        // A28-1.
        self.virtual_host_index(host).map(|index| &self.virtual_hosts[index])
    }

    /// Returns the index of [`virtual_host`](Self::virtual_host) in `virtual_hosts`.
    pub fn virtual_host_index(&self, host: &str) -> Option<usize> {
        self.virtual_hosts.best(host)
    }
}

impl Resource for RouteConfiguration {
    const TYPE_URL: &'static str = type_url::ROUTE_CONFIGURATION;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::RouteConfiguration::decode(bytes.clone())?;
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let (routes, remarks) = remarks::collect(|| {
            remarks::scan(&unexecuted::ROUTE_CONFIGURATION, bytes);
            Self::parse_message(message, cx)
        })?;
        Ok(Self { remarks, ..routes })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

impl Route {
    /// Rules R10 to R27; the name of a field for a route to be omitted because of it.
    pub(super) fn parse(
        message: pb::Route,
        scope: &Scope<'_>,
    ) -> Result<Result<Self, &'static str>, Invalid> {
        let Some(matcher) = message.r#match else {
            return Err(Invalid::field("match", "must be set"));
        };
        if !matcher.query_parameters.is_empty() {
            return Ok(Err("query_parameters"));
        }
        let matcher = RouteMatch::parse(matcher).map_err(|e| e.at("match"))?;
        let action = match message.action {
            Some(Action::Route(action)) => match ForwardAction::parse(action, scope) {
                Ok(Ok(action)) => RouteAction::Forward(action),
                Ok(Err(field)) => return Ok(Err(field)),
                Err(e) => return Err(e.at("route")),
            },
            Some(Action::NonForwardingAction(_)) => RouteAction::NonForwarding,
            Some(Action::Redirect(_)) => RouteAction::Unsupported(ProxyAction::Redirect),
            Some(Action::DirectResponse(_)) => RouteAction::Unsupported(ProxyAction::DirectResponse),
            Some(Action::FilterAction(_)) => RouteAction::Unsupported(ProxyAction::FilterAction),
            None => RouteAction::Unsupported(ProxyAction::Unknown),
        };
        let filter_overrides = http_filter::parse_overrides(message.typed_per_filter_config, scope.cx)?;
        Ok(Ok(Self { name: message.name.into(), matcher, action, filter_overrides }))
    }
}

#[cfg(test)]
mod tests;
