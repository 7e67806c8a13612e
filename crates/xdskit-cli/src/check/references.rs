//! References between resources: those that lead nowhere, cycles, and resources that nothing refers to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use xdskit::tool_support::Visited;

use super::{
    finding::{Finding, Rule, Severity},
    kinds::{CLUSTER, ENDPOINTS, EXTENSION, LISTENER, ROUTE, SECRET},
    mesh::Mesh,
};

/// A reference from a resource to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Reference {
    /// The index of the resource with the reference.
    from: usize,
    /// The path of the field.
    path: String,
    /// The kind of the other resource.
    kind: &'static str,
    /// The name of the other resource.
    name: String,
    /// Whether the reference is that of an aggregate cluster to a child.
    is_child: bool,
}

/// A field with the name of another resource.
struct Referrer {
    /// The end of the full name of the message.
    message: &'static str,
    /// The name of the field.
    field: &'static str,
    /// The kind of the other resource.
    kind: &'static str,
}

/// Checks the references of all resources.
pub(crate) fn check(mesh: &mut Mesh) {
    let mut references = Vec::new();
    let mut has_open_clusters = false;
    for resource in 0..mesh.resources.len() {
        mesh.visit(resource, &mut |visited| {
            collect(resource, &visited, &mut references);
            has_open_clusters |= OPEN.iter().any(|field| visited.fields.contains_key(*field));
        });
    }
    report_dangling(mesh, &references);
    report_cycles(mesh, &references);
    report_unreferenced(mesh, &references, has_open_clusters);
}

/// Collects the references in a message.
fn collect(from: usize, visited: &Visited<'_>, references: &mut Vec<Reference>) {
    let Visited { path, message, fields } = visited;
    let under = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    let mut add = |path: String, kind, name: &str, is_child| {
        // Proxies have clusters and routes without a name, which are no references.
        if !name.is_empty() {
            references.push(Reference { from, path, kind, name: name.to_owned(), is_child });
        }
    };
    for Referrer { message: end, field, kind } in &REFERRERS {
        let is_message = message.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if let Some(name) = fields.get(*field).and_then(Value::as_str).filter(|_| is_message) {
            add(under(field), kind, name, false);
        }
    }
    match *message {
        "envoy.extensions.clusters.aggregate.v3.ClusterConfig" => {
            let children = fields.get("clusters").and_then(Value::as_array);
            for (index, child) in children.into_iter().flatten().enumerate() {
                add(under(&format!("clusters[{index}]")), CLUSTER, child.as_str().unwrap_or_default(), true);
            }
        }
        "envoy.config.cluster.v3.Cluster" if fields.get("type").and_then(Value::as_str) == Some("EDS") => {
            let config = fields.get("eds_cluster_config");
            let service = config.and_then(|config| config["service_name"].as_str());
            match service.filter(|name| !name.is_empty()) {
                Some(name) => add(under("eds_cluster_config.service_name"), ENDPOINTS, name, false),
                None => {
                    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
                    add(under("name"), ENDPOINTS, name, false);
                }
            }
        }
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter" => {
            let source = fields.get("config_discovery");
            // A default takes the place of a configuration that does not exist.
            if source.is_some_and(|source| source.get("default_config").is_none()) {
                let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
                add(under("name"), EXTENSION, name, false);
            }
        }
        _ => {}
    }
}

/// Reports the references that lead nowhere. What a configuration has none of at all comes from elsewhere.
fn report_dangling(mesh: &mut Mesh, references: &[Reference]) {
    let mut elsewhere: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for reference in references {
        let Reference { from, path, kind, name, .. } = reference;
        if mesh.find(kind, name).is_some() {
            continue;
        }
        if !mesh.has(kind) {
            *elsewhere.entry((mesh.resources[*from].file(), *kind)).or_default() += 1;
            continue;
        }
        let message = format!("there is no {kind} {name:?}{}", consequence(kind));
        mesh.report(*from, Rule::DanglingReference, path, message);
    }
    for ((file, kind), count) in elsewhere {
        let message = format!(
            "references to the kind {kind} are not checked, since the files have none of it: {count}"
        );
        mesh.push(Finding::new(Rule::DanglingReference, file, message).with_severity(Severity::Note));
    }
}

/// What follows from a reference that leads nowhere.
fn consequence(kind: &str) -> &'static str {
    match kind {
        CLUSTER => ": its requests fail",
        ROUTE => ": the target does not resolve",
        ENDPOINTS => ": the cluster has no endpoints",
        EXTENSION => ", and the filter has no default: the target does not resolve",
        _ => "",
    }
}

/// Reports aggregate clusters whose children lead back to them.
fn report_cycles(mesh: &mut Mesh, references: &[Reference]) {
    let mut children: BTreeMap<usize, Vec<(usize, &str)>> = BTreeMap::new();
    for Reference { from, path, kind, name, is_child } in references {
        if let Some(child) = mesh.find(kind, name).filter(|_| *is_child) {
            children.entry(*from).or_default().push((child, path));
        }
    }
    // Clusters without children that are left cannot be in a cycle; without them, neither can those above them.
    loop {
        let open: BTreeSet<_> = children.keys().copied().collect();
        let before = open.len();
        children.values_mut().for_each(|of| of.retain(|(child, _)| open.contains(child)));
        children.retain(|_, of| !of.is_empty());
        if children.len() == before {
            break;
        }
    }
    for (from, of) in children {
        for (child, path) in of {
            let name = mesh.resources[child].name.clone();
            let message = format!(
                "the child {name:?} leads into a cycle of aggregate clusters, which have no endpoints"
            );
            mesh.report(from, Rule::AggregateCycle, path, message);
        }
    }
}

/// Reports resources that nothing refers to, if there are resources that could.
fn report_unreferenced(mesh: &mut Mesh, references: &[Reference], has_open_clusters: bool) {
    let referenced: BTreeSet<_> =
        references.iter().filter_map(|reference| mesh.find(reference.kind, &reference.name)).collect();
    let checked = [
        (ROUTE, mesh.has(LISTENER)),
        (CLUSTER, !has_open_clusters && (mesh.has(LISTENER) || mesh.has(ROUTE))),
        (ENDPOINTS, mesh.has(CLUSTER)),
        (EXTENSION, mesh.has(LISTENER)),
    ];
    for (kind, _) in checked.into_iter().filter(|(_, is_checked)| *is_checked) {
        let unreferenced: Vec<_> = mesh.of_kind(kind).filter(|index| !referenced.contains(index)).collect();
        for index in unreferenced {
            mesh.report(index, Rule::Unreferenced, "", format!("no resource refers to this {kind}"));
        }
    }
}

/// The fields that choose clusters by something else than their name.
const OPEN: [&str; 5] = [
    "cluster_header",
    "cluster_specifier_plugin",
    "inline_cluster_specifier_plugin",
    "cluster_specifier_plugins",
    "scoped_routes",
];

/// The fields that name other resources.
const REFERRERS: [Referrer; 7] = [
    Referrer { message: "http_connection_manager.v3.Rds", field: "route_config_name", kind: ROUTE },
    Referrer { message: "route.v3.ScopedRouteConfiguration", field: "route_configuration_name", kind: ROUTE },
    Referrer { message: "route.v3.RouteAction", field: "cluster", kind: CLUSTER },
    Referrer { message: "route.v3.WeightedCluster.ClusterWeight", field: "name", kind: CLUSTER },
    Referrer { message: "tcp_proxy.v3.TcpProxy", field: "cluster", kind: CLUSTER },
    Referrer { message: "tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight", field: "name", kind: CLUSTER },
    Referrer { message: "tls.v3.SdsSecretConfig", field: "name", kind: SECRET },
];
