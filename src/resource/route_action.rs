//! The actions of routes.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde::{Serialize, Serializer};

use super::{
    Context, Invalid,
    cluster_plugin::{ClusterPlugin, Plugins},
    http_filter::{self, FilterOverride},
    matcher, parts, remarks,
    retry::RetryPolicy,
};
use crate::pb::envoy::{
    config::route::v3::{
        self as route,
        route_action::{
            ClusterSpecifier, HashPolicy as Policy, HostRewriteSpecifier, MaxStreamDuration,
            hash_policy::PolicySpecifier,
        },
    },
    r#type::matcher::v3::RegexMatchAndSubstitute,
};

/// The action of a route on a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RouteAction {
    /// Forwards the request to a cluster; for clients.
    #[serde(rename = "route")]
    Forward(ForwardAction),
    /// Serves the request locally; for servers.
    NonForwarding,
    /// An action for proxies alone: a request that matches the route fails (R27).
    Unsupported(ProxyAction),
}

/// The action of a route that only a proxy executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProxyAction {
    /// Redirects the request.
    Redirect,
    /// Responds without a cluster.
    DirectResponse,
    /// Leaves the request to a filter.
    FilterAction,
    /// There is no action, or one that this client does not know.
    Unknown,
}

/// The forwarding of a request to a cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ForwardAction {
    /// The choice of the cluster.
    #[serde(flatten)]
    pub clusters: ClusterChoice,
    /// The computation of the request's hash, for load balancing by hash.
    pub hash_policies: Arc<[HashPolicy]>,
    /// The maximum duration of the request. 0 is no limit; `None` defers to the listener. In JSON as seconds:
    /// `"1.5s"`.
    #[serde(serialize_with = "parts::serialize_some_seconds")]
    pub max_stream_duration: Option<Duration>,
    /// The retry policy; `None` defers to the virtual host.
    pub retry_policy: Option<RetryPolicy>,
    /// Whether the authority becomes the endpoint's hostname; only set by a trusted server.
    pub auto_host_rewrite: bool,
}

/// The choice of a route's cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ClusterChoice {
    /// One cluster.
    Cluster(Arc<str>),
    /// One of several, chosen at random by weight.
    WeightedClusters(WeightedClusters),
    /// The choice of the application's plugin for each request. Its clusters are not known in advance.
    Plugin(Arc<ClusterPlugin>),
}

/// Clusters to choose from: at least one, none with weight 0; the sum of their weights is a `u32`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WeightedClusters {
    /// The clusters, in the order of the message.
    pub clusters: Box<[WeightedCluster]>,
    /// The sum of the weights.
    pub total_weight: u32,
}

/// A cluster with a weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct WeightedCluster {
    /// The cluster's name.
    pub name: Arc<str>,
    /// The weight; the probability is its share of the sum of all.
    pub weight: u32,
    /// Settings of HTTP filters for requests to the cluster, sorted by filter; they take precedence over those of the
    /// route.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub filter_overrides: Arc<[FilterOverride]>,
}

/// One step in the computation of a request's hash.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HashPolicy {
    /// The input of the hash.
    #[serde(flatten)]
    pub source: HashSource,
    /// Whether later steps are skipped if there is a hash already.
    pub terminal: bool,
}

/// The input of a [`HashPolicy`]. Inputs that only a proxy has are omitted from the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HashSource {
    /// The value of a header.
    #[non_exhaustive]
    Header {
        /// The header's name.
        name: Box<str>,
        /// A substitution in the value before it is hashed.
        regex_rewrite: Option<RegexRewrite>,
    },
    /// The identity of the client's channel: all requests of a channel have the same hash.
    ChannelId,
}

/// The replacement of all matches of a regular expression.
#[derive(Debug, Clone, Serialize)]
pub struct RegexRewrite {
    /// The pattern as it was written.
    pattern: Box<str>,
    /// The substitution as it was written.
    substitution: Box<str>,
    /// The substitution in the syntax of the `regex` crate.
    #[serde(skip)]
    template: Box<str>,
    /// The pattern without anchors: each match in a text is replaced.
    #[serde(skip)]
    compiled: regex::bytes::Regex,
}

impl ProxyAction {
    /// The name of its field, such as `direct_response`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::DirectResponse => "direct_response",
            Self::FilterAction => "filter_action",
            Self::Unknown => "unknown",
        }
    }
}

impl RouteAction {
    /// Returns the clusters that are known in advance: not those of a plugin.
    pub fn clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, several) = match self {
            Self::Forward(ForwardAction { clusters: ClusterChoice::Cluster(name), .. }) => (Some(name), None),
            Self::Forward(ForwardAction { clusters: ClusterChoice::WeightedClusters(weighted), .. }) => {
                (None, Some(weighted))
            }
            Self::Forward(ForwardAction { clusters: ClusterChoice::Plugin(_), .. })
            | Self::NonForwarding
            | Self::Unsupported(_) => (None, None),
        };
        one.into_iter().chain(several.into_iter().flat_map(|w| w.clusters.iter().map(|c| &c.name)))
    }
}

impl ForwardAction {
    /// Rules R18 to R26; the name of the cluster specifier for a route to be dropped because that is not supported (R21).
    pub(super) fn parse(
        message: route::RouteAction,
        scope: &Scope<'_>,
    ) -> Result<Result<Self, &'static str>, Invalid> {
        let clusters = match ClusterChoice::parse(message.cluster_specifier, scope)? {
            Ok(clusters) => clusters,
            Err(specifier) => return Ok(Err(specifier)),
        };
        let mut hash_policies = Vec::with_capacity(message.hash_policy.len());
        for (i, policy) in message.hash_policy.into_iter().enumerate() {
            let policy = HashPolicy::parse(policy).map_err(|e| e.at_index("hash_policy", i))?;
            if policy.is_none() {
                let reason = "clients have no such input of a hash";
                remarks::leave_out(Invalid::new(reason).at_index("hash_policy", i).at("route"));
            }
            hash_policies.extend(policy);
        }
        let max_stream_duration =
            message.max_stream_duration.as_ref().map(max_stream_duration).transpose()?.flatten();
        let retry_policy = message.retry_policy.as_ref().map(RetryPolicy::parse).transpose();
        // A81-1: the authority decides which certificate a server shows, so an untrusted control plane must not choose it.
        let auto_host_rewrite = match message.host_rewrite_specifier {
            Some(HostRewriteSpecifier::AutoHostRewrite(rewrite)) => rewrite.value && scope.cx.trusted_server,
            None => false,
        };
        Ok(Ok(Self {
            clusters,
            // The default value does not allocate.
            hash_policies: if hash_policies.is_empty() { Arc::default() } else { hash_policies.into() },
            max_stream_duration,
            retry_policy: retry_policy.map_err(|e| e.at("retry_policy"))?,
            auto_host_rewrite,
        }))
    }
}

/// The context in which routes of a route configuration are parsed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    /// The settings of validation.
    pub(super) cx: &'a Context<'a>,
    /// The declared cluster specifier plugins.
    pub(super) plugins: &'a Plugins,
}

impl ClusterChoice {
    /// Parses where requests go; the inner error is why the action is not supported.
    fn parse(
        specifier: Option<ClusterSpecifier>,
        scope: &Scope<'_>,
    ) -> Result<Result<Self, &'static str>, Invalid> {
        match specifier {
            Some(ClusterSpecifier::Cluster(name)) if name.is_empty() => {
                Err(Invalid::field("cluster", "must not be empty"))
            }
            Some(ClusterSpecifier::Cluster(name)) => Ok(Ok(Self::Cluster(name.into()))),
            Some(ClusterSpecifier::WeightedClusters(weighted)) => WeightedClusters::parse(weighted, scope.cx)
                .map(|weighted| Ok(Self::WeightedClusters(weighted)))
                .map_err(|e| e.at("weighted_clusters")),
            Some(ClusterSpecifier::ClusterSpecifierPlugin(name)) => {
                let plugin = scope.plugins.find(&name).map_err(|e| e.at("cluster_specifier_plugin"))?;
                Ok(plugin.map(Self::Plugin).ok_or("cluster_specifier_plugin"))
            }
            // R21: clusters are watched before requests are routed to them, so that a request cannot name one.
            Some(ClusterSpecifier::ClusterHeader(_)) => Ok(Err("cluster_header")),
            None => Ok(Err("cluster_specifier")),
        }
    }
}

impl WeightedClusters {
    /// Parses clusters with weights.
    fn parse(message: route::WeightedCluster, cx: &Context<'_>) -> Result<Self, Invalid> {
        // R19: the sum is a `u64`, so that it cannot wrap around before it is checked.
        let mut clusters = Vec::with_capacity(message.clusters.len());
        let mut total = 0u64;
        for (i, cluster) in message.clusters.into_iter().enumerate() {
            let weight = cluster.weight.map_or(0, |weight| weight.value);
            if weight == 0 {
                continue;
            }
            total += u64::from(weight);
            clusters
                .push(WeightedCluster::parse(cluster, weight, cx).map_err(|e| e.at_index("clusters", i))?);
        }
        match u32::try_from(total) {
            Ok(0) => Err(Invalid::field("clusters", "no cluster has a weight above 0")),
            Ok(total_weight) => Ok(Self { clusters: clusters.into(), total_weight }),
            Err(_) => {
                let reason = format!("the sum of the weights is {total}, over {}", u32::MAX);
                Err(Invalid::field("clusters", reason))
            }
        }
    }

    /// Returns the cluster for a random number; `draw` is uniformly distributed below `total_weight`.
    /// `None` for a number that is not below it.
    pub fn pick(&self, draw: u32) -> Option<&WeightedCluster> {
        self.pick_place(draw).map(|place| &self.clusters[place])
    }

    /// The place of the cluster that [`pick`](Self::pick) returns.
    pub(crate) fn pick_place(&self, draw: u32) -> Option<usize> {
        let mut left = draw;
        self.clusters.iter().position(|cluster| match left.checked_sub(cluster.weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })
    }
}

impl Serialize for WeightedClusters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.clusters.serialize(serializer)
    }
}

impl WeightedCluster {
    /// `weight` is not 0: the caller skips such clusters before their other fields are checked (R19).
    fn parse(
        message: route::weighted_cluster::ClusterWeight,
        weight: u32,
        cx: &Context<'_>,
    ) -> Result<Self, Invalid> {
        if message.name.is_empty() {
            let reason = if message.cluster_header.is_empty() {
                "must not be empty"
            } else {
                "must not be empty; cluster_header is not supported"
            };
            return Err(Invalid::field("name", reason));
        }
        let overrides = http_filter::parse_overrides(message.typed_per_filter_config, cx)?;
        // The default value does not allocate.
        let filter_overrides = if overrides.is_empty() { Arc::default() } else { overrides.into() };
        Ok(Self { name: message.name.into(), weight, filter_overrides })
    }
}

impl HashPolicy {
    /// Rules R22 and R23; `None` for an unsupported input.
    fn parse(message: Policy) -> Result<Option<Self>, Invalid> {
        // A42-1: unsupported inputs are skipped as in gRPC; the next policy of the list may still have a result.
        let source = match message.policy_specifier {
            Some(PolicySpecifier::Header(header)) => {
                HashSource::header(header).map_err(|e| e.at("header"))?
            }
            Some(PolicySpecifier::FilterState(state)) if state.key == CHANNEL_ID => HashSource::ChannelId,
            Some(
                PolicySpecifier::FilterState(_)
                | PolicySpecifier::Cookie(_)
                | PolicySpecifier::ConnectionProperties(_)
                | PolicySpecifier::QueryParameter(_),
            )
            | None => return Ok(None),
        };
        Ok(Some(Self { source, terminal: message.terminal }))
    }
}

impl HashSource {
    /// Parses a header as a source of hashes.
    fn header(message: route::route_action::hash_policy::Header) -> Result<Self, Invalid> {
        if message.header_name.is_empty() {
            return Err(Invalid::field("header_name", "must not be empty"));
        }
        let regex_rewrite = message.regex_rewrite.map(RegexRewrite::parse).transpose();
        Ok(Self::Header {
            name: message.header_name.into(),
            regex_rewrite: regex_rewrite.map_err(|e| e.at("regex_rewrite"))?,
        })
    }
}

impl RegexRewrite {
    /// Parses a pattern and its substitution.
    fn parse(message: RegexMatchAndSubstitute) -> Result<Self, Invalid> {
        let pattern = match message.pattern {
            Some(pattern) if pattern.regex.is_empty() => {
                return Err(Invalid::field("pattern.regex", "must not be empty"));
            }
            Some(pattern) => pattern.regex,
            None => return Err(Invalid::field("pattern", "must be set")),
        };
        let compiled = matcher::compile(&pattern).map_err(|e| e.at("pattern.regex"))?;
        Ok(Self {
            pattern: pattern.into(),
            template: template(&message.substitution).into(),
            substitution: message.substitution.into(),
            compiled,
        })
    }

    /// Returns the pattern, as written.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns the replacement of a match, as written: `\N` stands for the text of capture group N.
    pub fn substitution(&self) -> &str {
        &self.substitution
    }

    /// Replaces each match in the text.
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, [u8]> {
        self.apply_to_bytes(text.as_bytes())
    }

    /// As [`apply`](Self::apply), for the value of a header, which may not be UTF-8.
    pub(crate) fn apply_to_bytes<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        self.compiled.replace_all(text, self.template.as_bytes())
    }
}

impl PartialEq for RegexRewrite {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.substitution == other.substitution
    }
}

/// Rule R24: a limit on the timeout of the request takes precedence over one on the stream.
fn max_stream_duration(message: &MaxStreamDuration) -> Result<Option<Duration>, Invalid> {
    let MaxStreamDuration { max_stream_duration, grpc_timeout_header_max } = message;
    let at = |field, limit: &Option<_>| {
        limit.as_ref().map(parts::duration).transpose().map_err(|e| e.at(field).at("max_stream_duration"))
    };
    let stream = at("max_stream_duration", max_stream_duration)?;
    Ok(at("grpc_timeout_header_max", grpc_timeout_header_max)?.or(stream))
}

/// Rewrites `\1` to `${1}`, the syntax of the `regex` crate; a dollar in the message is literal.
fn template(substitution: &str) -> String {
    let mut template = String::with_capacity(substitution.len());
    let mut rest = substitution.chars();
    while let Some(c) = rest.next() {
        match (c, rest.as_str().chars().next()) {
            ('$', _) => template.push_str("$$"),
            ('\\', Some(digit @ '0'..='9')) => {
                // In braces, so that a letter or digit behind it is not a part of the group's name.
                template.extend(["${", digit.encode_utf8(&mut [0; 4]), "}"]);
                rest.next();
            }
            ('\\', Some('\\')) => {
                template.push('\\');
                rest.next();
            }
            _ => template.push(c),
        }
    }
    template
}

/// The only filter state that clients have (R23).
const CHANNEL_ID: &str = "io.grpc.channel_id";

#[cfg(test)]
mod tests;
