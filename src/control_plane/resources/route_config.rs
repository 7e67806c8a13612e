use std::time::Duration;

use super::{HttpFilterBuilder, RetryPolicyBuilder, ads, builder, duration};
use crate::pb::{
    envoy::{
        config::{
            core::v3::RuntimeFractionalPercent,
            route::v3::{
                HeaderMatcher, NonForwardingAction, Route, RouteAction, RouteConfiguration, RouteMatch, Vhds,
                VirtualHost, WeightedCluster,
                header_matcher::HeaderMatchSpecifier,
                route::Action,
                route_action::{
                    ClusterSpecifier, HashPolicy,
                    hash_policy::{Header, PolicySpecifier},
                },
                weighted_cluster::ClusterWeight,
            },
        },
        r#type::{
            matcher::v3::{StringMatcher, string_matcher::MatchPattern},
            v3::{FractionalPercent, fractional_percent::DenominatorType},
        },
    },
    google::protobuf::UInt32Value,
};

/// A route configuration without virtual hosts.
pub fn route_config(name: impl Into<String>) -> RouteConfigBuilder {
    RouteConfigBuilder { message: RouteConfiguration { name: name.into(), ..RouteConfiguration::default() } }
}

/// A builder of a RouteConfiguration; see [`route_config`].
#[derive(Debug, Clone, PartialEq)]
pub struct RouteConfigBuilder {
    /// The message so far.
    message: RouteConfiguration,
}

impl RouteConfigBuilder {
    /// Adds a virtual host for some domains, with its routes in order of precedence. Its name is its first domain.
    #[must_use]
    pub fn virtual_host<D: Into<String>>(
        mut self,
        domains: impl IntoIterator<Item = D>,
        routes: impl IntoIterator<Item = RouteBuilder>,
    ) -> Self {
        let domains: Vec<String> = domains.into_iter().map(Into::into).collect();
        self.message.virtual_hosts.push(VirtualHost {
            name: domains.first().cloned().unwrap_or_default(),
            domains,
            routes: routes.into_iter().map(|route| route.message).collect(),
            ..VirtualHost::default()
        });
        self
    }

    /// Enables VHDS: clients request further virtual hosts, each as a resource of its own, from the same server.
    #[must_use]
    pub fn vhds(mut self) -> Self {
        self.message.vhds = Some(Vhds { config_source: Some(ads()) });
        self
    }
}

builder!(RouteConfigBuilder: RouteConfiguration);

/// Routes, beginning with their conditions.
pub mod route {
    use super::RouteMatchBuilder;
    use crate::pb::envoy::{
        config::route::v3::{RouteMatch, route_match::PathSpecifier},
        r#type::matcher::v3::RegexMatcher,
    };

    /// Matches paths that start with a prefix.
    pub fn prefix(prefix: impl Into<String>) -> RouteMatchBuilder {
        path_specifier(PathSpecifier::Prefix(prefix.into()))
    }

    /// Matches one path.
    pub fn path(path: impl Into<String>) -> RouteMatchBuilder {
        path_specifier(PathSpecifier::Path(path.into()))
    }

    /// Matches paths that start with a prefix of whole segments: `/api` matches `/api` and `/api/dev`, but not
    /// `/apis`.
    ///
    /// gRPC's clients reject it; xdskit and Envoy support it.
    pub fn path_separated_prefix(prefix: impl Into<String>) -> RouteMatchBuilder {
        path_specifier(PathSpecifier::PathSeparatedPrefix(prefix.into()))
    }

    /// Matches paths that a regular expression matches as a whole.
    pub fn regex(regex: impl Into<String>) -> RouteMatchBuilder {
        path_specifier(PathSpecifier::SafeRegex(RegexMatcher { regex: regex.into() }))
    }

    /// Conditions with this one on the path.
    fn path_specifier(path: PathSpecifier) -> RouteMatchBuilder {
        RouteMatchBuilder { message: RouteMatch { path_specifier: Some(path), ..RouteMatch::default() } }
    }
}

/// The conditions of a route; see [`route`].
#[derive(Debug, Clone, PartialEq)]
pub struct RouteMatchBuilder {
    /// The conditions so far.
    message: RouteMatch,
}

impl RouteMatchBuilder {
    /// Requires a header with this value.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let exact = StringMatcher {
            match_pattern: Some(MatchPattern::Exact(value.into())),
            ..StringMatcher::default()
        };
        self.message.headers.push(HeaderMatcher {
            name: name.into(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact)),
            ..HeaderMatcher::default()
        });
        self
    }

    /// Limits the route to a fraction of the matching requests, in parts per million.
    #[must_use]
    pub fn per_million(mut self, requests: u32) -> Self {
        let default_value =
            FractionalPercent { numerator: requests, denominator: DenominatorType::Million.into() };
        self.message.runtime_fraction =
            Some(RuntimeFractionalPercent { default_value: Some(default_value), ..Default::default() });
        self
    }

    /// Routes to a cluster.
    pub fn cluster(self, name: impl Into<String>) -> RouteBuilder {
        self.forward(ClusterSpecifier::Cluster(name.into()))
    }

    /// Routes to weighted clusters.
    pub fn weighted<N: Into<String>>(self, clusters: impl IntoIterator<Item = (N, u32)>) -> RouteBuilder {
        let weight = |(name, weight): (N, u32)| ClusterWeight {
            name: name.into(),
            weight: Some(UInt32Value { value: weight }),
            ..ClusterWeight::default()
        };
        let clusters = clusters.into_iter().map(weight).collect();
        self.forward(ClusterSpecifier::WeightedClusters(WeightedCluster { clusters, ..Default::default() }))
    }

    /// Serves requests locally instead of forwarding them.
    pub fn non_forwarding(self) -> RouteBuilder {
        self.action(Action::NonForwardingAction(NonForwardingAction {}))
    }

    /// Routes to clusters.
    fn forward(self, clusters: ClusterSpecifier) -> RouteBuilder {
        self.action(Action::Route(RouteAction {
            cluster_specifier: Some(clusters),
            ..RouteAction::default()
        }))
    }

    /// Completes the route.
    fn action(self, action: Action) -> RouteBuilder {
        RouteBuilder {
            message: Route { r#match: Some(self.message), action: Some(action), ..Route::default() },
        }
    }
}

/// A route; see [`route`].
#[derive(Debug, Clone, PartialEq)]
pub struct RouteBuilder {
    /// The message so far.
    message: Route,
}

impl RouteBuilder {
    /// Sets the name of the route.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.message.name = name.into();
        self
    }

    /// Limits the time of requests (`max_stream_duration`, A31). Those with a timeout of their own have the shorter one.
    #[must_use]
    pub fn timeout(self, limit: Duration) -> Self {
        self.edit_action(|action| {
            action.max_stream_duration.get_or_insert_default().max_stream_duration = Some(duration(limit));
        })
    }

    /// Retries requests that fail.
    #[must_use]
    pub fn retry(self, policy: RetryPolicyBuilder) -> Self {
        self.edit_action(|action| action.retry_policy = Some(policy.into_message()))
    }

    /// Makes the hash of a request of the values of a header, for `ring_hash` and `maglev`. Further headers add to it.
    #[must_use]
    pub fn hash_header(self, name: impl Into<String>) -> Self {
        let header = Header { header_name: name.into(), ..Header::default() };
        let policy =
            HashPolicy { policy_specifier: Some(PolicySpecifier::Header(header)), ..HashPolicy::default() };
        self.edit_action(|action| action.hash_policy.push(policy))
    }

    /// Gives an HTTP filter of the listener, by its name there, another configuration for this route.
    #[must_use]
    pub fn override_filter(mut self, name: impl Into<String>, filter: impl Into<HttpFilterBuilder>) -> Self {
        self.message.typed_per_filter_config.insert(name.into(), filter.into().into_override());
        self
    }

    /// Edits the action of a route to clusters; other routes stay as they are, without it.
    fn edit_action(self, edit: impl FnOnce(&mut RouteAction)) -> Self {
        self.edit(|route| {
            if let Some(Action::Route(action)) = &mut route.action {
                edit(action);
            }
        })
    }

    /// Edits the message directly.
    #[must_use]
    pub fn edit(mut self, edit: impl FnOnce(&mut Route)) -> Self {
        edit(&mut self.message);
        self
    }
}
