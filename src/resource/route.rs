//! Route configurations.

use std::{ops::Not, sync::Arc};

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Remarks, Resource, VirtualHost, cluster_plugin::Plugins, config_source, remarks,
    route_action::Scope, unexecuted,
};
use crate::base::type_url;
use crate::pb::envoy::config::route::v3 as pb;

mod host_index;
mod virtual_hosts;

pub use self::virtual_hosts::VirtualHosts;
pub use super::routes::{Route, Routes};

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
            config_source::same_stream(vhds.config_source.as_ref(), cx)
                .map_err(|e| e.at("config_source").at("vhds"))?;
            if message.name.is_empty() {
                // The names of its virtual hosts begin with it, see `VirtualHost::resource_name`.
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

#[cfg(test)]
mod tests;
