//! Virtual hosts: the routes of some hosts.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;

use super::{
    Context, Invalid, Resource,
    cluster_plugin::Plugins,
    http_filter::{self, FilterOverride},
    matcher::{DomainPattern, Fit},
    retry::RetryPolicy,
    route::Route,
    route_action::Scope,
};
use crate::pb::envoy::config::route::v3 as pb;

/// The routes of some hosts: a part of a [`RouteConfiguration`](super::RouteConfiguration), or a resource by itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct VirtualHost {
    /// Its name, for people; as a resource by itself, also what it is asked for by.
    pub name: Arc<str>,
    /// The hosts; at least one.
    pub domains: Box<[DomainPattern]>,
    /// The routes; the first that matches a request wins. Those that can never match here are left out (R11, R21).
    pub routes: Box<[Route]>,
    /// When requests are tried again, where the route does not say.
    pub retry_policy: Option<RetryPolicy>,
    /// Settings of HTTP filters, sorted by filter; those of a route win over them.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub filter_overrides: Box<[FilterOverride]>,
}

impl VirtualHost {
    /// Rules R6 to R9.
    pub(super) fn parse_message(message: pb::VirtualHost, scope: &Scope<'_>) -> Result<Self, Invalid> {
        if message.domains.is_empty() {
            return Err(Invalid::field("domains", "must not be empty"));
        }
        let domains = message.domains.into_iter().enumerate();
        let domains = domains
            .map(|(i, domain)| DomainPattern::new(domain).map_err(|e| e.at_index("domains", i)))
            .collect::<Result<_, _>>()?;
        let mut routes = Vec::with_capacity(message.routes.len());
        for (i, route) in message.routes.into_iter().enumerate() {
            routes.extend(Route::parse(route, scope).map_err(|e| e.at_index("routes", i))?);
        }
        let retry_policy = message.retry_policy.as_ref().map(RetryPolicy::parse).transpose();
        Ok(Self {
            name: message.name.into(),
            domains,
            routes: routes.into(),
            retry_policy: retry_policy.map_err(|e| e.at("retry_policy"))?,
            filter_overrides: http_filter::parse_overrides(message.typed_per_filter_config, scope.cx)?,
        })
    }

    /// How well the best of the domains fits a host; `None` if none does.
    pub fn fit(&self, host: &str) -> Option<Fit> {
        self.domains.iter().filter_map(|domain| domain.fit(host)).max()
    }
}

impl Resource for VirtualHost {
    const TYPE_URL: &'static str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

    fn parse(bytes: Bytes, cx: &Context<'_>) -> Result<Self, Invalid> {
        let message = pb::VirtualHost::decode(bytes)?;
        if message.name.is_empty() {
            return Err(Invalid::field("name", "must not be empty"));
        }
        Self::parse_message(message, &Scope { cx, plugins: &Plugins::none() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(domains: &[&str]) -> Result<VirtualHost, Invalid> {
        let domains = domains.iter().map(|&domain| domain.into()).collect();
        let message = pb::VirtualHost { name: "shop".into(), domains, ..Default::default() };
        VirtualHost::parse(message.encode_to_vec().into(), &Context::new())
    }

    #[test]
    fn r6_domains_must_not_be_empty() {
        assert_eq!(parse(&[]).unwrap_err().path(), "domains");
        assert!(parse(&["*"]).is_ok());
    }

    #[test]
    fn r7_patterns_have_their_wildcard_at_an_end() {
        for good in ["a", "*", "*.a", "a.*", "*a", "a:80"] {
            assert!(parse(&[good]).is_ok(), "{good:?}");
        }
        for bad in ["", "a*b"] {
            assert_eq!(parse(&["ok", bad]).unwrap_err().path(), "domains[1]", "{bad:?}");
        }
    }

    #[test]
    fn g6_a_resource_has_a_name() {
        let message = pb::VirtualHost { domains: vec!["*".into()], ..Default::default() };
        let error = VirtualHost::parse(message.encode_to_vec().into(), &Context::new()).unwrap_err();
        assert_eq!(error.path(), "name");
    }

    #[test]
    fn r8_the_retry_policy_is_checked() {
        let retry_policy = Some(pb::RetryPolicy {
            num_retries: Some(crate::pb::google::protobuf::UInt32Value { value: 0 }),
            ..Default::default()
        });
        let message = pb::VirtualHost {
            name: "shop".into(),
            domains: vec!["*".into()],
            retry_policy,
            ..Default::default()
        };
        let error = VirtualHost::parse(message.encode_to_vec().into(), &Context::new()).unwrap_err();
        assert_eq!(error.path(), "retry_policy.num_retries");
    }
}
