//! Route configurations, as far as they are drawn: the requests of each route and its clusters.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use serde::Serialize;
use xdskit::{
    pb::envoy::{
        config::route::v3::{
            self as pb, header_matcher::HeaderMatchSpecifier, route::Action, route_action::ClusterSpecifier,
            route_match::PathSpecifier,
        },
        r#type::matcher::v3::string_matcher::MatchPattern,
    },
    resource::{self, Invalid},
};

use super::{Content, Mesh, Resources};

/// The virtual hosts of a route configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RouteTable {
    /// The virtual hosts, in the order of the resource.
    #[serde(rename = "virtual_hosts")]
    pub(crate) hosts: Vec<Host>,
    /// Whether there are more virtual hosts on demand (VHDS).
    #[serde(rename = "on_demand")]
    pub(crate) is_on_demand: bool,
}

/// A virtual host, also as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Host {
    /// The name.
    pub(crate) name: String,
    /// The patterns of authorities.
    pub(crate) domains: Vec<String>,
    /// The routes; the first one that matches applies.
    pub(crate) routes: Vec<Route>,
}

/// A route of a virtual host, also as JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Route {
    /// The conditions on requests, as text.
    pub(crate) requests: String,
    /// Where the requests go.
    #[serde(flatten)]
    pub(crate) target: RouteTarget,
}

/// The destination of the requests of a route.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RouteTarget {
    /// One or several clusters, with their weights.
    Clusters(Vec<Destination>),
    /// An action without a known cluster, as text.
    #[serde(rename = "action")]
    Other(String),
}

/// A cluster with its share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Destination {
    /// The name of the cluster.
    pub(crate) cluster: Arc<str>,
    /// The weight among all of the route.
    pub(crate) weight: u32,
}

impl Content for RouteTable {
    type Resource = resource::RouteConfiguration;

    fn read(bytes: &Bytes) -> Result<Self, Invalid> {
        Ok(Self::of(pb::RouteConfiguration::decode(bytes.clone())?))
    }

    fn of(mesh: &mut Mesh) -> &mut Resources<Self> {
        &mut mesh.routes
    }
}

impl RouteTable {
    /// Reads a route configuration.
    pub(super) fn of(message: pb::RouteConfiguration) -> Self {
        let hosts = message.virtual_hosts.into_iter().map(|host| Host {
            name: host.name,
            domains: host.domains,
            routes: host.routes.into_iter().map(Route::of).collect(),
        });
        Self { hosts: hosts.collect(), is_on_demand: message.vhds.is_some() }
    }

    /// The clusters that the routes name, in order.
    pub(super) fn destinations(&self) -> impl Iterator<Item = &Destination> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        routes.flat_map(|route| match &route.target {
            RouteTarget::Clusters(clusters) => clusters.as_slice(),
            RouteTarget::Other(_) => &[],
        })
    }
}

impl Route {
    /// Reads a route.
    fn of(route: pb::Route) -> Self {
        let target = match route.action {
            Some(Action::Route(action)) => RouteTarget::of(action),
            Some(Action::Redirect(_)) => RouteTarget::Other("a redirect".to_owned()),
            Some(Action::DirectResponse(response)) => {
                RouteTarget::Other(format!("a direct response, status {}", response.status))
            }
            Some(Action::FilterAction(_)) => RouteTarget::Other("an action of a filter".to_owned()),
            Some(Action::NonForwardingAction(_)) => {
                RouteTarget::Other("served by the server itself".to_owned())
            }
            None => RouteTarget::Other("an action of another kind, or none".to_owned()),
        };
        Self { requests: requests(route.r#match.unwrap_or_default()), target }
    }
}

impl RouteTarget {
    /// Reads the action of a route to clusters.
    fn of(action: pb::RouteAction) -> Self {
        let one = |name: String| Destination { cluster: name.into(), weight: 1 };
        match action.cluster_specifier {
            Some(ClusterSpecifier::Cluster(name)) => Self::Clusters(vec![one(name)]),
            Some(ClusterSpecifier::WeightedClusters(weighted)) => {
                // Entries of weight 0 get nothing, and those by a header have no name.
                let parts = weighted.clusters.into_iter().filter(|part| !part.name.is_empty());
                let parts = parts.map(|part| Destination {
                    cluster: part.name.into(),
                    weight: part.weight.map_or(0, |weight| weight.value),
                });
                Self::Clusters(parts.collect())
            }
            Some(ClusterSpecifier::ClusterHeader(header)) => {
                Self::Other(format!("the cluster in the header {header}"))
            }
            Some(ClusterSpecifier::ClusterSpecifierPlugin(plugin)) => {
                Self::Other(format!("what the plugin {plugin} chooses"))
            }
            None => Self::Other("a cluster specifier of another kind, or none".to_owned()),
        }
    }
}

/// The conditions on requests.
fn requests(from: pb::RouteMatch) -> String {
    let mut text = match from.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => format!("{prefix}*"),
        Some(PathSpecifier::Path(path)) => path,
        Some(PathSpecifier::SafeRegex(regex)) => format!("~ {}", regex.regex),
        Some(PathSpecifier::PathSeparatedPrefix(prefix)) => format!("{prefix}, {prefix}/*"),
        Some(PathSpecifier::ConnectMatcher(_)) => "CONNECT".to_owned(),
        Some(PathSpecifier::PathMatchPolicy(policy)) => format!("paths by {}", policy.name),
        None => "paths by another specifier, or none".to_owned(),
    };
    if from.case_sensitive.is_some_and(|sensitive| !sensitive.value) {
        text += " (in any case)";
    }
    for header in from.headers {
        text += &format!("  {}", condition(header));
    }
    for parameter in from.query_parameters {
        text += &format!("  query {}", parameter.name);
    }
    if from.runtime_fraction.is_some() {
        text += "  a part of them";
    }
    text
}

/// The condition on a header, as text.
fn condition(header: pb::HeaderMatcher) -> String {
    let name = header.name;
    let text = match header.header_match_specifier {
        Some(HeaderMatchSpecifier::ExactMatch(value)) => format!("{name}: {value}"),
        Some(HeaderMatchSpecifier::PrefixMatch(value)) => format!("{name}: {value}*"),
        Some(HeaderMatchSpecifier::SuffixMatch(value)) => format!("{name}: *{value}"),
        Some(HeaderMatchSpecifier::ContainsMatch(value)) => format!("{name}: *{value}*"),
        Some(HeaderMatchSpecifier::SafeRegexMatch(regex)) => format!("{name}: ~ {}", regex.regex),
        Some(HeaderMatchSpecifier::RangeMatch(range)) => format!("{name}: {}..{}", range.start, range.end),
        Some(HeaderMatchSpecifier::PresentMatch(false)) => format!("without {name}"),
        Some(HeaderMatchSpecifier::PresentMatch(true)) | None => format!("with {name}"),
        Some(HeaderMatchSpecifier::StringMatch(matcher)) => match matcher.match_pattern {
            Some(MatchPattern::Exact(value)) => format!("{name}: {value}"),
            Some(MatchPattern::Prefix(value)) => format!("{name}: {value}*"),
            Some(MatchPattern::Suffix(value)) => format!("{name}: *{value}"),
            Some(MatchPattern::Contains(value)) => format!("{name}: *{value}*"),
            Some(MatchPattern::SafeRegex(regex)) => format!("{name}: ~ {}", regex.regex),
            None => format!("{name}: by another matcher"),
        },
    };
    if header.invert_match { format!("not {text}") } else { text }
}
