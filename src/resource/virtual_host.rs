//! Virtual hosts: the routes of some domains.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Remarks, Resource,
    cluster_plugin::Plugins,
    http_filter::{self, FilterOverride},
    matcher::{DomainPattern, Fit},
    parts, remarks,
    retry::RetryPolicy,
    route_action::Scope,
    routes::{Route, Routes},
    unexecuted,
};
use crate::base::type_url;
use crate::{name::ResourceName, pb::envoy::config::route::v3 as pb};

/// The routes of some domains: a part of a [`RouteConfiguration`](super::RouteConfiguration), or a resource of its
/// own.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VirtualHost {
    /// The name, for display. A virtual host that is a resource of its own is requested by
    /// [`resource_name`](Self::resource_name) or, from servers that support no other name, by this one.
    pub name: Arc<str>,
    /// The domains; at least one.
    pub domains: Box<[DomainPattern]>,
    /// The routes, of which the first that matches a request is used. Routes that can never match are omitted.
    pub routes: Routes,
    /// The routes that are omitted.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub omitted_routes: Box<[OmittedRoute]>,
    /// The retry policy of routes without one.
    pub retry_policy: Option<RetryPolicy>,
    /// Settings of HTTP filters, sorted by filter; those of a route take precedence.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub filter_overrides: Box<[FilterOverride]>,
    /// What is not used of it; of a part of a route configuration, that has it.
    #[serde(skip_serializing_if = "Remarks::is_empty")]
    pub remarks: Remarks,
}

/// A route that a client cannot use, so that requests are matched by the others as if it were not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OmittedRoute {
    /// Its index among the routes of the message.
    pub index: usize,
    /// The field that a client does not execute, such as `query_parameters`.
    pub field: &'static str,
}

impl VirtualHost {
    /// Rules R6 to R9.
    pub(super) fn parse_message(message: pb::VirtualHost, scope: &Scope<'_>) -> Result<Self, Invalid> {
        if message.domains.is_empty() {
            return Err(Invalid::field("domains", "must not be empty"));
        }
        let domains = parts::each("domains", message.domains, DomainPattern::new)?;
        let (mut routes, mut omitted) = (Vec::with_capacity(message.routes.len()), Vec::new());
        for (index, route) in message.routes.into_iter().enumerate() {
            let route = remarks::within("routes", index, || Route::parse(route, scope));
            match route.map_err(|e| e.at_index("routes", index))? {
                Ok(route) => routes.push(route),
                Err(field) => {
                    let reason = format!("clients do not support {field}");
                    remarks::leave_out(Invalid::new(reason).at_index("routes", index));
                    omitted.push(OmittedRoute { index, field });
                }
            }
        }
        let retry_policy = message.retry_policy.as_ref().map(RetryPolicy::parse).transpose();
        Ok(Self {
            name: message.name.into(),
            domains,
            routes: Routes::new(routes.into()),
            omitted_routes: omitted.into(),
            retry_policy: retry_policy.map_err(|e| e.at("retry_policy"))?,
            filter_overrides: http_filter::parse_overrides(message.typed_per_filter_config, scope.cx)?,
            remarks: Remarks::default(),
        })
    }

    /// Returns the resource name of a host's virtual host in VHDS: the name of the route configuration and the host,
    /// `routes/shop.example`. The host is that of `:authority`, with its port if it has one, in lower case since
    /// hosts are case-insensitive.
    ///
    /// If the route configuration has an `xdstp:` name, that of the virtual host has the same authority and context
    /// parameters, and the host is the last segment of its id.
    ///
    /// The server need not have a resource of that name: in the incremental variant it can send another one with that
    /// alias, which a watch of the alias receives.
    ///
    /// ```
    /// use xdskit::{Client, Watch, resource::VirtualHost};
    ///
    /// fn watch(client: &Client) -> Watch<VirtualHost> {
    ///     client.watch(VirtualHost::resource_name("routes", "shop.example"))
    /// }
    /// ```
    pub fn resource_name(route_config: &str, host: &str) -> String {
        let host = host.to_ascii_lowercase();
        match ResourceName::parse(route_config) {
            Ok(name) => name.part(parts::message_name(Self::TYPE_URL), &host).spelling().to_owned(),
            Err(_) => format!("{route_config}/{host}"),
        }
    }

    /// Returns how well the best of the domains matches a host; `None` if none does.
    pub fn fit(&self, host: &str) -> Option<Fit> {
        self.domains.iter().filter_map(|domain| domain.fit(host)).max()
    }
}

impl Resource for VirtualHost {
    const TYPE_URL: &'static str = type_url::VIRTUAL_HOST;

    fn parse(bytes: &Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::VirtualHost::decode(bytes.clone())?;
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        let (host, remarks) = remarks::collect(|| {
            remarks::scan(&unexecuted::VIRTUAL_HOST, bytes);
            // A route configuration declares the plugins, so that a route of a separate virtual host cannot name one.
            Self::parse_message(message, &Scope { cx, plugins: &Plugins::none() })
        })?;
        Ok(Self { remarks, ..host })
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(&self.remarks)
    }
}

#[cfg(test)]
mod tests;
