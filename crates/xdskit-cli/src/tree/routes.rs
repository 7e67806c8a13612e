//! Routes, one on each line: the conditions on requests, and the action.

use xdskit::{
    error::Escaped,
    resolve::Snapshot,
    resource::{
        matcher::{HeaderCondition, HeaderMatcher, PathPattern, StringMatcher, StringPattern},
        route_action::{ClusterChoice, RouteAction},
        route_match::RouteMatch,
    },
};

use super::{Artist, Branch, column, join, padding, percent};

/// The routes of a snapshot, to be drawn.
#[derive(Clone, Copy)]
pub(super) struct Routes<'a> {
    /// Colors and marks.
    pub(super) artist: Artist,
    /// The clusters of the routes, which are marked where they are unusable.
    pub(super) snapshot: &'a Snapshot,
}

impl Routes<'_> {
    /// Draws a line for each route.
    pub(super) fn draw(self) -> Vec<Branch> {
        let routes = &self.snapshot.virtual_host().routes;
        if routes.is_empty() {
            let text = format!(
                "{} {}",
                self.artist.bad_mark(),
                self.artist.paint.red("no routes: all requests fail")
            );
            return vec![Branch::leaf(text)];
        }
        let matches: Vec<_> =
            routes.iter().map(|route| Escaped(requests(&route.matcher)).to_string()).collect();
        let width = column(matches.iter());
        let lines = routes.iter().zip(matches).map(|(route, requests)| {
            let space = padding(&requests, width);
            Branch::leaf(format!("{requests}{space}  → {}", self.destination(&route.action)))
        });
        lines.collect()
    }

    /// Where the requests of a route go.
    fn destination(self, action: &RouteAction) -> String {
        let forward = match action {
            RouteAction::Forward(forward) => forward,
            RouteAction::NonForwarding => return self.nowhere("served by the server itself"),
            RouteAction::Unsupported(_) | _ => return self.nowhere("what only a proxy can do"),
        };
        match &forward.clusters {
            ClusterChoice::Cluster(name) => self.cluster_name(name),
            ClusterChoice::WeightedClusters(weighted) => {
                let total = f64::from(weighted.total_weight);
                let parts = weighted.clusters.iter().map(|part| {
                    let percent = percent(f64::from(part.weight), total);
                    format!("{percent} {}", self.cluster_name(&part.name))
                });
                join(parts, ", ")
            }
            ClusterChoice::Plugin(plugin) => format!("what the plugin {} chooses", Escaped(&plugin.name)),
            _ => self.nowhere("what this version of the tool cannot show"),
        }
    }

    /// The name of a cluster, marked if it is unusable.
    fn cluster_name(self, name: &str) -> String {
        match self.snapshot.cluster(name) {
            Some(cluster) if cluster.first_usable_priority().is_some() => Escaped(name).to_string(),
            Some(_) | None => format!("{} {}", self.artist.bad_mark(), self.artist.paint.red(Escaped(name))),
        }
    }

    /// An action with which requests fail.
    fn nowhere(self, what: &str) -> String {
        format!("{} {}", self.artist.bad_mark(), self.artist.paint.red(format_args!("{what}: requests fail")))
    }
}

/// The conditions on requests.
fn requests(matcher: &RouteMatch) -> String {
    let mut text = match &matcher.path.pattern {
        PathPattern::Prefix(prefix) => format!("{prefix}*"),
        PathPattern::Exact(path) => path.to_string(),
        PathPattern::PathSeparatedPrefix(prefix) => format!("{prefix}, {prefix}/*"),
        PathPattern::SafeRegex(regex) => format!("~ {}", regex.as_str()),
        other => format!("{other:?}"),
    };
    if !matcher.path.case_sensitive {
        text += " (in any case)";
    }
    for header in &matcher.headers {
        text += &format!("  {}", condition(header));
    }
    if let Some(part) = matcher.fraction {
        text += &format!("  {} of them", percent(f64::from(part.per_million()), 1e6));
    }
    text
}

/// The condition on a header, as text.
fn condition(header: &HeaderMatcher) -> String {
    let HeaderMatcher { name, condition, invert, .. } = header;
    let text = match condition {
        HeaderCondition::Value(value) => format!("{name}: {}", pattern(value)),
        HeaderCondition::Range { start, end, .. } => format!("{name}: {start}..{end}"),
        HeaderCondition::Present(there) => format!("{} {name}", if *there { "with" } else { "without" }),
        other => format!("{name}: {other:?}"),
    };
    if *invert { format!("not {text}") } else { text }
}

/// A pattern of strings, as text.
fn pattern(value: &StringMatcher) -> String {
    let text = match &value.pattern {
        StringPattern::Exact(text) if text.is_empty() => "\"\"".to_owned(),
        StringPattern::Exact(text) => text.to_string(),
        StringPattern::Prefix(text) => format!("{text}*"),
        StringPattern::Suffix(text) => format!("*{text}"),
        StringPattern::Contains(text) => format!("*{text}*"),
        StringPattern::SafeRegex(regex) => format!("~ {}", regex.as_str()),
        other => format!("{other:?}"),
    };
    if value.ignore_case { format!("{text} (in any case)") } else { text }
}
