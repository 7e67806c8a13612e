//! Drawing of a snapshot as a tree, for people.

use std::{env, fmt::Display, io::IsTerminal};

use xdskit::{
    error::MergedError,
    resolve::{ClusterView, Snapshot},
    resource::{
        ClusterKind, HealthStatus,
        matcher::PathPattern,
        route_action::{ClusterChoice, RouteAction},
    },
};

/// Colours for a terminal, and plain text elsewhere.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    /// Whether there are colours.
    on: bool,
}

impl Paint {
    /// Colours for a terminal, unless the user disables them (`NO_COLOR`).
    pub(crate) fn for_output(output: &impl IsTerminal) -> Self {
        Self { on: output.is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    pub(crate) fn bold(self, text: impl Display) -> String {
        self.style(1, text)
    }

    pub(crate) fn dim(self, text: impl Display) -> String {
        self.style(2, text)
    }

    pub(crate) fn red(self, text: impl Display) -> String {
        self.style(31, text)
    }

    pub(crate) fn green(self, text: impl Display) -> String {
        self.style(32, text)
    }

    pub(crate) fn yellow(self, text: impl Display) -> String {
        self.style(33, text)
    }

    pub(crate) fn cyan(self, text: impl Display) -> String {
        self.style(36, text)
    }

    /// A text with the codes of a style around it, where there are styles.
    fn style(self, code: u8, text: impl Display) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// A line of the tree, and the lines below it.
struct Branch {
    text: String,
    below: Vec<String>,
}

/// Draws what a target leads to: its routes, and its clusters with their endpoints.
pub(crate) fn draw(paint: Paint, target: &str, snapshot: &Snapshot) -> Vec<String> {
    let host = snapshot.virtual_host();
    let (listener, routes) = (&snapshot.listener().name, &snapshot.route_config().name);
    let domains: Vec<_> = host.domains.iter().map(|domain| domain.as_str()).collect();
    let warnings = MergedError::of(snapshot.warnings());
    let mark = if warnings.iter().any(|warning| !is_of_cluster(warning, snapshot)) {
        paint.yellow("!")
    } else {
        paint.green("●")
    };
    let mut lines = vec![format!(
        "{mark} {}  listener {} → routes {} → virtual host {} {}",
        paint.bold(target),
        paint.cyan(listener),
        paint.cyan(routes),
        paint.cyan(&host.name),
        paint.dim(format_args!("({})", domains.join(", ")))
    )];
    let branches: Vec<_> = warnings
        .iter()
        .filter(|warning| !is_of_cluster(warning, snapshot))
        .map(|warning| Branch { text: stale(paint, warning), below: Vec::new() })
        .chain(draw_routes(snapshot))
        .chain(draw_clusters(paint, snapshot, &warnings))
        .collect();
    for (index, branch) in branches.iter().enumerate() {
        let (here, below) = if index + 1 == branches.len() { ("└─", "  ") } else { ("├─", "│ ") };
        lines.push(format!("{here} {}", branch.text));
        for (index, line) in branch.below.iter().enumerate() {
            let there = if index + 1 == branch.below.len() { "└─" } else { "├─" };
            lines.push(format!("{below} {there} {line}"));
        }
    }
    lines
}

/// A line for each route: the path that it matches, and where it leads to.
fn draw_routes(snapshot: &Snapshot) -> Vec<Branch> {
    let routes = &snapshot.virtual_host().routes;
    let paths: Vec<_> = routes
        .iter()
        .map(|route| {
            let pattern = &route.matcher.path.pattern;
            // The mesh has no others.
            let PathPattern::Prefix(prefix) = pattern else { return format!("{pattern:?}") };
            format!("{prefix}*")
        })
        .collect();
    let width = paths.iter().map(String::len).max().unwrap_or(0);
    let lines = routes.iter().zip(paths).map(|(route, path)| Branch {
        text: format!("{path:width$}  → {}", destination(&route.action)),
        below: Vec::new(),
    });
    lines.collect()
}

/// The clusters of a route, with their shares.
fn destination(action: &RouteAction) -> String {
    let RouteAction::Forward(forward) = action else { return format!("{action:?}") };
    match &forward.clusters {
        ClusterChoice::Cluster(name) => name.to_string(),
        ClusterChoice::WeightedClusters(weighted) => {
            let share = |weight: u32| f64::from(weight) / f64::from(weighted.total_weight) * 100.0;
            let parts =
                weighted.clusters.iter().map(|part| format!("{:.0} % {}", share(part.weight), part.name));
            parts.collect::<Vec<_>>().join(", ")
        }
        ClusterChoice::Plugin(_) | _ => "what a plugin chooses".to_owned(),
    }
}

/// A line for each cluster, with its localities and endpoints below it, or behind it if there is only one line of them.
fn draw_clusters(paint: Paint, snapshot: &Snapshot, warnings: &[MergedError<'_>]) -> Vec<Branch> {
    let mut names: Vec<&str> = Vec::new();
    for name in snapshot.virtual_host().routes.iter().flat_map(|route| route.action.clusters()) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let clusters = names.iter().filter_map(|name| snapshot.cluster(name)).map(|cluster| {
        let own: Vec<_> = warnings.iter().filter(|warning| is_about(warning, cluster)).collect();
        let mark = match (cluster.unusable_reason(), own.is_empty()) {
            (Some(_), _) => paint.red("✗"),
            (None, true) => paint.green("●"),
            (None, false) => paint.yellow("!"),
        };
        let padding = " ".repeat(width - cluster.name().len());
        let kind = match cluster.kind() {
            Some(ClusterKind::Eds { .. }) => "EDS",
            Some(_) => "not EDS",
            None => "unknown",
        };
        let mut text = format!("{mark} {}{padding}  {}", paint.bold(cluster.name()), paint.dim(kind));
        let mut below: Vec<_> = own.iter().map(|warning| stale(paint, warning)).collect();
        below.extend(draw_localities(paint, cluster));
        if let [only] = &*below {
            text += &format!("  {only}");
            below.clear();
        }
        Branch { text, below }
    });
    clusters.collect()
}

/// A line for each locality, with its share of the requests and its endpoints.
fn draw_localities(paint: Paint, cluster: ClusterView<'_>) -> Vec<String> {
    let Some(assignment) = cluster.assignment() else { return Vec::new() };
    let localities = assignment.priorities.iter().flat_map(|priority| {
        let total: u32 = priority.localities.iter().map(|place| place.weight.get()).sum();
        let is_only = priority.localities.len() == 1;
        priority.localities.iter().map(move |place| {
            let share = f64::from(place.weight.get()) / f64::from(total) * 100.0;
            let share = if is_only { String::new() } else { format!(" {share:.0} %") };
            let endpoints = place.endpoints.iter().map(|endpoint| match endpoint.health {
                HealthStatus::Healthy | HealthStatus::Unknown => {
                    format!("  {} {}", paint.green("●"), endpoint.address())
                }
                HealthStatus::Draining => {
                    format!("  {} {} {}", paint.yellow("◌"), endpoint.address(), paint.yellow("draining"))
                }
                HealthStatus::Unhealthy
                | HealthStatus::Timeout
                | HealthStatus::Degraded
                | HealthStatus::Unrecognized
                | _ => format!("  {} {}", paint.red("✗"), endpoint.address()),
            });
            let endpoints: String = endpoints.collect();
            format!("{}/{}{share}{endpoints}", place.locality.region(), place.locality.zone())
        })
    });
    localities.collect()
}

/// An error beside a resource that stays in use.
fn stale(paint: Paint, warning: &MergedError<'_>) -> String {
    format!(
        "{} {}",
        paint.yellow("!"),
        paint.yellow(format_args!("may be stale: {}: {warning}", warning.error().code()))
    )
}

/// Whether an error is about a single cluster, and not about the tree above it.
fn is_of_cluster(warning: &MergedError<'_>, snapshot: &Snapshot) -> bool {
    snapshot.clusters().any(|cluster| is_about(warning, cluster))
}

/// Whether an error is about this cluster or its endpoints alone.
fn is_about(warning: &MergedError<'_>, cluster: ClusterView<'_>) -> bool {
    warning.resources() == 1
        && [cluster.warning(), cluster.endpoints_error()].contains(&Some(warning.error()))
}
