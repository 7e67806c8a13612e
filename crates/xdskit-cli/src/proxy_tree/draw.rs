//! The trees as lines of text.

use std::{collections::BTreeSet, sync::Arc};

use xdskit::error::Escaped;

use super::{
    Assignment, Destination, Entry, Mesh, Others, Present, Resources, RouteTable,
    cluster::{Cluster, Endpoint, EndpointSource, Health, Locality},
    demand::MAX_DEPTH,
    listener::{Chain, ChainKind, NetworkFilter, Routes},
    routes::{Host, RouteTarget},
};
use crate::{
    json::Problem,
    tree::{Artist, Branch, column, join, padding, percent, render, shown},
};

/// Draws the tree of a listener, of at most [`MAX_LINES`] lines.
pub(super) fn draw_listener(mesh: &Mesh, artist: Artist, name: &str) -> Vec<String> {
    let mut drawing =
        Drawing { artist, mesh, routes: Vec::new(), clusters: Vec::new(), drawn: BTreeSet::new() };
    let Branch { text, below } = drawing.listener(name);
    let mut lines = vec![text];
    render(&below, "", &mut lines);
    if lines.len() > MAX_LINES {
        let more = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("… and {more} more lines; --json has all of it"));
    }
    lines
}

/// A tree that is being drawn. Each route configuration and each cluster is drawn once.
struct Drawing<'a> {
    /// Colors and marks.
    artist: Artist,
    /// The resources.
    mesh: &'a Mesh,
    /// The named route configurations, in the order of their first use.
    routes: Vec<&'a Arc<str>>,
    /// The clusters that routes and filters name, in the order of their first use.
    clusters: Vec<&'a Arc<str>>,
    /// The clusters that are drawn already, or noted to be.
    drawn: BTreeSet<&'a str>,
}

impl<'a> Drawing<'a> {
    /// A listener, with its chains, and then the route configurations and clusters that these name.
    fn listener(&mut self, name: &str) -> Branch {
        let mesh = self.mesh;
        let (head, mut below) = self.resource(&mesh.listeners, name, "listener ");
        let mut text = head;
        if let Some(listener) = mesh.listeners.content(name) {
            if !listener.address.is_empty() {
                text += &format!("  {}", self.artist.paint.dim(Escaped(&listener.address)));
            }
            below.extend(listener.chains.iter().map(|chain| self.chain(chain)));
            let named = self.routes.clone();
            below.extend(named.into_iter().map(|name| self.named_routes(name)));
            let clusters = self.clusters.clone();
            let width = column(clusters.iter().map(|name| &***name));
            below.extend(clusters.into_iter().map(|name| self.cluster(name, 0, width)));
        }
        text += &self.verdict(&mesh.listeners, name);
        Branch { text, below }
    }

    /// The mark and the name of a resource, and what is to be said of it as a whole.
    fn resource<C>(&self, of_type: &Resources<C>, name: &str, kind: &str) -> (String, Vec<Branch>) {
        let (mark, below) = match of_type.get(name) {
            Some(Entry::Present(present)) => (self.mark(present), self.remarks(present)),
            Some(Entry::Absent(_)) | None => (self.artist.bad_mark(), Vec::new()),
        };
        (format!("{mark} {kind}{}", self.artist.paint.bold(Escaped(name))), below)
    }

    /// The mark of a resource: good, doubtful or bad.
    fn mark<C>(&self, present: &Present<C>) -> String {
        if present.content.is_err() {
            self.artist.bad_mark()
        } else if present.invalid.is_some() || present.warning.is_some() {
            self.artist.warning_mark()
        } else {
            self.artist.good_mark()
        }
    }

    /// What is wrong with a resource.
    fn remarks<C>(&self, present: &Present<C>) -> Vec<Branch> {
        let Artist { paint } = self.artist;
        let mut below = Vec::new();
        if let Err(error) = &present.content {
            let text = format!("cannot be read: {}", Escaped(error));
            below.push(Branch::leaf(format!("{} {}", self.artist.bad_mark(), paint.red(text))));
        }
        if let Some(warning) = &present.warning {
            let text = format!("may be stale: {}: {warning}", warning.code());
            below.push(Branch::leaf(format!("{} {}", self.artist.warning_mark(), paint.yellow(text))));
        }
        below.extend(self.artist.remarks(&[&present.remarks]));
        below
    }

    /// The reason why a gRPC client rejects a resource, or why there is none; empty if it is accepted.
    fn verdict<C>(&self, of_type: &Resources<C>, name: &str) -> String {
        match of_type.get(name) {
            Some(Entry::Present(Present { invalid: Some(invalid), .. })) => {
                format!(
                    "  {}",
                    self.artist.paint.yellow(format_args!("gRPC rejects it: {}", Escaped(invalid)))
                )
            }
            Some(Entry::Present(_)) => String::new(),
            Some(Entry::Absent(reason)) => format!("  {}", self.artist.failure(reason)),
            None => match &of_type.others {
                Others::Unknown => format!("  {}", self.artist.paint.red("not known")),
                Others::Missing => format!("  {}", self.artist.paint.red(MISSING)),
                Others::Failed(reason) => format!("  {}", self.artist.failure(reason)),
            },
        }
    }

    /// A filter chain, with the conditions on its connections.
    fn chain(&mut self, chain: &'a Chain) -> Branch {
        let paint = self.artist.paint;
        let mut text = match chain.kind {
            ChainKind::Api => "API listener".to_owned(),
            ChainKind::Matching => "chain".to_owned(),
            ChainKind::Default => "default chain".to_owned(),
        };
        if !chain.name.is_empty() {
            text += &format!(" {}", paint.cyan(Escaped(&chain.name)));
        }
        for condition in &chain.conditions {
            text += &format!("  {}", Escaped(condition));
        }
        if let Some(socket) = &chain.socket {
            text += &format!("  {}", paint.dim(format_args!("transport socket {}", Escaped(socket))));
        }
        let below = chain.filters.iter().flat_map(|filter| self.filter(filter)).collect();
        Branch { text, below }
    }

    /// A network filter.
    fn filter(&mut self, filter: &'a NetworkFilter) -> Vec<Branch> {
        let paint = self.artist.paint;
        match filter {
            NetworkFilter::Http(routes) => routes.iter().map(|routes| self.http(routes)).collect(),
            NetworkFilter::Tcp(clusters) => {
                vec![Branch::leaf(format!("TCP → {}", self.destinations(clusters)))]
            }
            NetworkFilter::Other(name) => {
                vec![Branch::leaf(paint.dim(format_args!("filter {}", Escaped(name))).to_string())]
            }
            NetworkFilter::Malformed(reason) => {
                let text = format!("filter {}", Escaped(reason));
                vec![Branch::leaf(format!("{} {}", self.artist.bad_mark(), paint.red(text)))]
            }
        }
    }

    /// The routes of an HTTP connection manager.
    fn http(&mut self, routes: &'a Routes) -> Branch {
        match routes {
            Routes::Named(name) => {
                if !self.routes.contains(&name) {
                    self.routes.push(name);
                    self.mesh.routes.content(name).into_iter().for_each(|table| self.note_clusters(table));
                }
                Branch::leaf(format!("HTTP → routes {}", self.artist.paint.cyan(Escaped(name))))
            }
            Routes::Inline(table) => {
                self.note_clusters(table);
                Branch { text: "HTTP → its routes".to_owned(), below: self.table(table) }
            }
            Routes::NotFollowed(why) => Branch::leaf(format!(
                "{} {}",
                self.artist.warning_mark(),
                self.artist.paint.yellow(format_args!("HTTP {why}"))
            )),
        }
    }

    /// Notes the clusters of routes, to draw them later.
    fn note_clusters(&mut self, table: &'a RouteTable) {
        table.destinations().for_each(|destination| self.note_cluster(&destination.cluster));
    }

    /// Notes a cluster, unless it is drawn or noted already.
    fn note_cluster(&mut self, name: &'a Arc<str>) {
        if self.drawn.insert(name) {
            self.clusters.push(name);
        }
    }

    /// A route configuration of RDS.
    fn named_routes(&mut self, name: &'a Arc<str>) -> Branch {
        let (text, mut below) = self.resource(&self.mesh.routes, name, "routes ");
        if let Some(table) = self.mesh.routes.content(name) {
            below.extend(self.table(table));
        }
        Branch { text: text + &self.verdict(&self.mesh.routes, name), below }
    }

    /// The virtual hosts of a route configuration.
    fn table(&self, table: &RouteTable) -> Vec<Branch> {
        let hosts = table.hosts.iter().map(|host| self.host(host));
        let on_demand = table.is_on_demand.then(|| {
            let text = self.artist.paint.dim("and virtual hosts on demand (VHDS)").to_string();
            Branch::leaf(text)
        });
        hosts.chain(on_demand).collect()
    }

    /// A virtual host with its routes.
    fn host(&self, host: &Host) -> Branch {
        let paint = self.artist.paint;
        let mut domains: Vec<_> = host.domains.iter().take(SHOWN_DOMAINS).map(String::as_str).collect();
        if host.domains.len() > SHOWN_DOMAINS {
            domains.push("…");
        }
        let text = format!(
            "virtual host {} {}",
            paint.cyan(Escaped(&host.name)),
            paint.dim(Escaped(format_args!("({})", domains.join(", "))))
        );
        let requests: Vec<_> = host.routes.iter().map(|route| Escaped(&route.requests).to_string()).collect();
        let width = column(requests.iter());
        let routes = host.routes.iter().zip(requests).map(|(route, requests)| {
            let target = match &route.target {
                RouteTarget::Clusters(clusters) => self.shares(clusters),
                RouteTarget::Other(what) => paint.dim(Escaped(what)).to_string(),
            };
            Branch::leaf(format!("{requests}{}  → {target}", padding(&requests, width)))
        });
        Branch { text, below: routes.collect() }
    }

    /// The clusters of a TCP proxy, with their shares.
    fn destinations(&mut self, clusters: &'a [Destination]) -> String {
        clusters.iter().for_each(|destination| self.note_cluster(&destination.cluster));
        self.shares(clusters)
    }

    /// The clusters with their percentages.
    fn shares(&self, clusters: &[Destination]) -> String {
        let total: f64 = clusters.iter().map(|destination| f64::from(destination.weight)).sum();
        match clusters {
            [] => format!("{} {}", self.artist.bad_mark(), self.artist.paint.red("no cluster")),
            [only] => self.cluster_name(&only.cluster),
            several => join(
                several.iter().map(|part| {
                    // Of no weight at all, each has none.
                    let percent = percent(f64::from(part.weight), total.max(1.0));
                    format!("{percent} {}", self.cluster_name(&part.cluster))
                }),
                ", ",
            ),
        }
    }

    /// The name of a cluster, with a mark if it is absent.
    fn cluster_name(&self, name: &str) -> String {
        match self.mesh.clusters.get(name) {
            Some(Entry::Present(_)) => Escaped(name).to_string(),
            Some(Entry::Absent(_)) | None => {
                format!("{} {}", self.artist.bad_mark(), self.artist.paint.red(Escaped(name)))
            }
        }
    }

    /// A cluster, which may be a child of aggregates: `depth` of them.
    fn cluster(&mut self, name: &'a Arc<str>, depth: usize, width: usize) -> Branch {
        let mesh = self.mesh;
        let title = format!("{}{}", self.artist.paint.bold(Escaped(name)), padding(name, width));
        let Some(Entry::Present(present)) = mesh.clusters.get(name) else {
            let text = format!("{} {title}{}", self.artist.bad_mark(), self.verdict(&mesh.clusters, name));
            return Branch::leaf(text);
        };
        let mut below = self.remarks(present);
        let (mut text, mark) = match &present.content {
            Ok(cluster) => {
                let (text, is_usable) = self.source(name, cluster, &mut below);
                self.children(cluster, depth, &mut below);
                (text, if is_usable { self.mark(present) } else { self.artist.bad_mark() })
            }
            Err(_) => (String::new(), self.artist.bad_mark()),
        };
        text += &self.verdict(&mesh.clusters, name);
        // A single short line stands behind the name of the cluster; more would hide the cluster's own state.
        let is_short = below.len() == 1 && !below[0].text.contains('\n') && present.remarks.is_empty();
        if is_short && present.invalid.is_none() && present.warning.is_none() && below[0].below.is_empty() {
            text += &format!("  {}", below.remove(0).text);
        }
        Branch { text: format!("{mark} {title}{text}"), below }
    }

    /// The clusters of an aggregate. One that is drawn already is only named, which also ends circles.
    fn children(&mut self, cluster: &'a Cluster, depth: usize, below: &mut Vec<Branch>) {
        let EndpointSource::Aggregate(children) = &cluster.source else { return };
        if depth >= MAX_DEPTH {
            let text = format!("more than {MAX_DEPTH} aggregates in a chain");
            return below.push(Branch::leaf(self.artist.paint.red(text).to_string()));
        }
        let width = column(children.iter().map(|name| &**name));
        for child in children {
            below.push(match self.drawn.insert(child) {
                true => self.cluster(child, depth + 1, width),
                false => {
                    let seen = self.artist.paint.dim("see the cluster of this name");
                    Branch::leaf(format!("{}{}  {seen}", self.cluster_name(child), padding(child, width)))
                }
            });
        }
    }

    /// The kind of a cluster and what is to be said of its endpoints, which follow below; and whether they are usable.
    fn source(&self, name: &str, cluster: &Cluster, below: &mut Vec<Branch>) -> (String, bool) {
        let paint = self.artist.paint;
        let mut text = format!("  {}", paint.dim(Escaped(&cluster.kind)));
        match &cluster.source {
            EndpointSource::Aggregate(_) => (text, true),
            EndpointSource::Inline(assignment) => {
                below.extend(self.places(assignment));
                // Those of the original destination, or a sink, have none.
                (text, assignment.is_usable() || assignment.endpoints().next().is_none())
            }
            EndpointSource::Eds(service) => {
                if let Some(service) = service.as_ref().filter(|service| ***service != *name) {
                    text += &format!(" {}", paint.dim(Escaped(service)));
                }
                let service = service.as_deref().unwrap_or(name);
                let Some(assignment) = self.mesh.endpoints.content(service) else {
                    return (text + &self.verdict(&self.mesh.endpoints, service), false);
                };
                if let Some(Entry::Present(present)) = self.mesh.endpoints.get(service) {
                    below.extend(self.remarks(present));
                    if present.invalid.is_some() {
                        text += &format!("  endpoints:{}", self.verdict(&self.mesh.endpoints, service));
                    }
                }
                below.extend(self.places(assignment));
                let notice = match (assignment.is_usable(), assignment.endpoints().next()) {
                    (true, _) => return (text, true),
                    (false, None) => "no endpoints",
                    (false, Some(_)) => "no usable endpoints",
                };
                (format!("{text}  {}", paint.red(notice)), false)
            }
        }
    }

    /// The localities of an assignment.
    fn places(&self, assignment: &Assignment) -> Vec<Branch> {
        let several = assignment.localities.iter().any(|locality| locality.priority > 0);
        assignment.localities.iter().map(|locality| self.place(locality, several)).collect()
    }

    /// A locality with its endpoints.
    fn place(&self, locality: &Locality, has_priorities: bool) -> Branch {
        let mut words = Vec::new();
        if has_priorities {
            words.push(format!("priority {}", locality.priority));
        }
        if !locality.name.is_empty() {
            words.push(Escaped(&locality.name).to_string());
        }
        if let Some(weight) = locality.weight.filter(|weight| *weight != 1) {
            words.push(format!("weight {weight}"));
        }
        let endpoints = match &locality.collection {
            Some(collection) => format!("endpoints in the collection {} (LEDS)", Escaped(collection)),
            None => {
                let texts = locality.endpoints.iter().map(|endpoint| self.endpoint(endpoint));
                let is_unusable = |endpoint: &Endpoint| endpoint.health != Health::Usable;
                shown(texts, |hidden| {
                    locality.endpoints.iter().skip(hidden).filter(|one| is_unusable(one)).count()
                })
                .join("\n  ")
            }
        };
        let separator = if words.is_empty() { "" } else { "  " };
        Branch::leaf(format!("{}{separator}{endpoints}", words.join(" ")))
    }

    /// An endpoint with the mark of its health.
    fn endpoint(&self, endpoint: &Endpoint) -> String {
        let paint = self.artist.paint;
        let address = Escaped(&endpoint.address);
        match endpoint.health {
            Health::Usable => format!("{} {address}", self.artist.good_mark()),
            Health::Draining => format!("{} {address} {}", paint.yellow("◌"), paint.yellow("draining")),
            Health::Unusable(why) => format!("{} {address} {}", self.artist.bad_mark(), paint.red(why)),
        }
    }
}

/// The line of a listener that is gone, or of listeners that there are none of.
pub(crate) fn draw_absence(artist: Artist, name: &str, reason: &Problem) -> Vec<String> {
    let title = artist.paint.bold(Escaped(name));
    let reason = format!("{}: {}", reason.code, Escaped(&reason.message));
    vec![format!("{} listener {title}  {}", artist.bad_mark(), artist.paint.red(reason))]
}

/// The lines of clusters that no listener leads to.
pub(crate) fn draw_unused(artist: Artist, clusters: &[Arc<str>]) -> Vec<String> {
    let mut lines = vec![format!("{} clusters that no listener leads to", artist.paint.dim("○"))];
    let shown = clusters.iter().take(MAX_LINES);
    let mut below: Vec<_> = shown.map(|name| Branch::leaf(Escaped(name).to_string())).collect();
    if clusters.len() > MAX_LINES {
        below
            .push(Branch::leaf(format!("… and {} more; --json has all of them", clusters.len() - MAX_LINES)));
    }
    render(&below, "", &mut lines);
    lines
}

/// The maximum number of shown domains of a virtual host.
const SHOWN_DOMAINS: usize = 3;

/// The reason why there is no resource of a name.
pub(super) const MISSING: &str = "does not exist: the server has sent all others";

/// The maximum number of lines of a tree.
pub(super) const MAX_LINES: usize = 10_000;
