//! Clusters with their endpoints, in the order of the routes to them.

use std::collections::BTreeSet;

use xdskit::{
    error::Escaped,
    resolve::{ClusterView, Snapshot},
    resource::{
        ClusterKind, Endpoint, HealthStatus, Locality,
        endpoints::{LocalityEndpoints, Priority},
    },
};

use super::{Artist, Branch, Warning, column, join, padding, percent, shown};

/// The state of drawing the clusters of a tree.
struct Clusters<'a> {
    /// Colors and marks.
    artist: Artist,
    /// The resources of the target.
    snapshot: &'a Snapshot,
    /// The warnings of single clusters.
    warnings: &'a [Warning<'a>],
    /// The width of the column of names.
    width: usize,
    /// Each cluster is drawn once.
    drawn: BTreeSet<&'a str>,
}

/// Draws the clusters of the routes, in the order of their first use. `warnings` are those of single clusters.
pub(super) fn draw_clusters(artist: Artist, snapshot: &Snapshot, warnings: &[Warning<'_>]) -> Vec<Branch> {
    let routes = snapshot.virtual_host().routes.iter();
    let mut seen = BTreeSet::new();
    let names = routes.flat_map(|route| route.action.clusters()).filter(|name| seen.insert(&***name));
    let names: Vec<_> = names.map(|name| &**name).collect();
    let width = column(names.iter());
    let mut clusters = Clusters { artist, snapshot, warnings, width, drawn: BTreeSet::new() };
    names.into_iter().map(|name| clusters.draw(name, None)).collect()
}

impl<'a> Clusters<'a> {
    /// `used` is the leaf of the aggregate above that requests are sent to.
    fn draw(&mut self, name: &'a str, used: Option<&str>) -> Branch {
        let Artist { paint } = self.artist;
        let title = format!("{}{}", paint.bold(Escaped(name)), padding(name, self.width));
        let in_use = if used == Some(name) { format!("  {}", paint.green("in use")) } else { String::new() };
        let Some(cluster) = self.snapshot.cluster(name) else {
            // A child that the aggregate has only just added.
            return Branch::leaf(format!("{} {title}  {}", self.artist.bad_mark(), paint.red("not known")));
        };
        if !self.drawn.insert(name) {
            return Branch::leaf(format!(
                "{} {title}{in_use}  {}",
                self.mark(cluster),
                paint.dim("as above")
            ));
        }
        let mut text = format!("{} {title}", self.mark(cluster));
        if let Some(kind) = cluster.kind() {
            text += &format!("  {}", paint.dim(Escaped(self.kind(name, kind))));
        }
        text += &in_use;
        if let Some(error) = cluster.unusable_reason() {
            text += &format!("  {}", self.artist.failure(error));
        }
        let mut below: Vec<_> = self.own_warnings(cluster).map(|warning| self.warning(warning)).collect();
        below.extend(self.drops(cluster));
        let remarks = [
            cluster.config().map(|config| &config.remarks),
            cluster.assignment().map(|assignment| &assignment.remarks),
        ];
        below.extend(self.artist.remarks(&remarks.into_iter().flatten().collect::<Vec<_>>()));
        match cluster.kind() {
            Some(ClusterKind::Aggregate { clusters, .. }) => {
                let used = cluster.first_usable_priority().map(|priority| priority.cluster().name());
                if used.is_none() && cluster.error().is_none() {
                    text += &format!("  {}", paint.red("nothing to send to in any of these"));
                }
                let width = std::mem::replace(&mut self.width, column(clusters.iter()));
                below.extend(clusters.iter().map(|child| self.draw(child, used)));
                self.width = width;
            }
            Some(_) | None => {
                text += &self.emptiness(cluster);
                let mut places = self.places(cluster);
                // A single short entry is appended to the line of the cluster.
                if places.len() == 1 && below.is_empty() && !places[0].text.contains('\n') {
                    text += &format!("  {}", places.remove(0).text);
                }
                below.extend(places);
            }
        }
        Branch { text, below }
    }

    /// The mark of a cluster: good, doubtful or bad.
    fn mark(&self, cluster: ClusterView<'_>) -> String {
        if cluster.first_usable_priority().is_none() {
            self.artist.bad_mark()
        } else if self.own_warnings(cluster).next().is_some() {
            self.artist.warning_mark()
        } else {
            self.artist.good_mark()
        }
    }

    /// The kind of a cluster, with the name or address of its endpoints if that is another one.
    fn kind(&self, name: &str, kind: &ClusterKind) -> String {
        match kind {
            ClusterKind::Eds { service_name, .. } if &**service_name == name => "EDS".to_owned(),
            ClusterKind::Eds { service_name, .. } => format!("EDS {service_name}"),
            ClusterKind::LogicalDns { address, .. } => format!("DNS {address}"),
            ClusterKind::Aggregate { .. } => "aggregate".to_owned(),
            _ => "of an unknown kind".to_owned(),
        }
    }

    /// The warnings about a cluster.
    fn own_warnings(&self, cluster: ClusterView<'a>) -> impl Iterator<Item = &'a Warning<'a>> {
        let warnings = self.warnings.iter();
        warnings.filter(move |warning| warning.is_about(cluster))
    }

    /// A warning in a line.
    fn warning(&self, warning: &Warning<'_>) -> Branch {
        let text = format!("may be stale: {}: {warning}", warning.error().code());
        Branch::leaf(format!("{} {}", self.artist.warning_mark(), self.artist.paint.yellow(text)))
    }

    /// What part of the requests a cluster drops.
    fn drops(&self, cluster: ClusterView<'_>) -> Option<Branch> {
        let drops = &cluster.assignment()?.drops;
        let parts = drops.iter().map(|drop| {
            format!(
                "{} of the requests ({})",
                percent(f64::from(drop.requests_per_million), 1e6),
                Escaped(&drop.category)
            )
        });
        let text = format!("drops {}", join(parts, ", then "));
        (!drops.is_empty()).then(|| Branch::leaf(self.artist.paint.yellow(text).to_string()))
    }

    /// The notice of a cluster without usable endpoints, if its state is known.
    fn emptiness(&self, cluster: ClusterView<'_>) -> String {
        let Some(assignment) = cluster.assignment() else { return String::new() };
        let text = match assignment.endpoints().count() {
            0 => "no endpoints",
            _ if cluster.usable_endpoints_of_all_priorities().next().is_none() => "no usable endpoints",
            _ => return String::new(),
        };
        format!("  {}", self.artist.paint.red(text))
    }

    /// The localities in the order of their priorities, with their endpoints.
    fn places(&self, cluster: ClusterView<'_>) -> Vec<Branch> {
        let Some(assignment) = cluster.assignment() else { return Vec::new() };
        let used = cluster.first_usable_priority().map(|priority| priority.index());
        let priorities = assignment.priorities.iter().enumerate().flat_map(|(index, priority)| {
            let label = if assignment.priorities.len() == 1 {
                String::new()
            } else if used == Some(index) {
                format!("priority {index} {} ", self.artist.paint.green("in use"))
            } else {
                format!("priority {index} ")
            };
            priority.localities.iter().map(move |place| self.place(&label, place, priority))
        });
        let unweighted = assignment.unweighted_localities.iter().map(|place| {
            let endpoints = self.endpoints(&place.endpoints);
            let unused = self.artist.paint.yellow("no weight, not used by channels");
            Branch::leaf(format!("{} {unused}  {}", Escaped(name(&place.locality)), endpoints.join("\n  ")))
        });
        priorities.chain(unweighted).collect()
    }

    /// A locality with its endpoints, and its share among others.
    fn place(&self, label: &str, place: &LocalityEndpoints, among: &Priority) -> Branch {
        let mut text = label.to_owned();
        text += &Escaped(name(&place.locality)).to_string();
        if among.localities.len() > 1 {
            let all: f64 = among.localities.iter().map(|place| f64::from(place.weight.get())).sum();
            text += &format!(" {}", percent(f64::from(place.weight.get()), all));
        }
        let endpoints = self.endpoints(&place.endpoints);
        let separator = if text.is_empty() { "" } else { "  " };
        Branch::leaf(format!("{text}{separator}{}", endpoints.join("\n  ")))
    }

    /// The endpoints, split into lines.
    fn endpoints(&self, all: &[Endpoint]) -> Vec<String> {
        let first = all.first().map(|endpoint| endpoint.weight);
        let is_weighted = all.iter().any(|endpoint| Some(endpoint.weight) != first);
        let texts = all.iter().map(|endpoint| self.endpoint(endpoint, is_weighted));
        shown(texts, |first| all.iter().skip(first).filter(|endpoint| !endpoint.is_healthy()).count())
    }

    /// An endpoint, with its weight and health.
    fn endpoint(&self, endpoint: &Endpoint, is_weighted: bool) -> String {
        let paint = self.artist.paint;
        let mut text = join(endpoint.addresses(), " = ");
        if is_weighted {
            text += &format!(" ×{}", endpoint.weight);
        }
        match endpoint.health {
            HealthStatus::Healthy | HealthStatus::Unknown => format!("{} {text}", self.artist.good_mark()),
            HealthStatus::Draining => format!("{} {text} {}", paint.yellow("◌"), paint.yellow("draining")),
            HealthStatus::Unhealthy
            | HealthStatus::Timeout
            | HealthStatus::Degraded
            | HealthStatus::Unrecognized
            | _ => {
                let health = format!("{:?}", endpoint.health).to_lowercase();
                format!("{} {text} {}", self.artist.bad_mark(), paint.red(health))
            }
        }
    }
}

/// The non-empty parts of region, zone and sub-zone.
fn name(locality: &Locality) -> String {
    let parts = [locality.region(), locality.zone(), locality.sub_zone()];
    join(parts.into_iter().filter(|part| !part.is_empty()), "/")
}
