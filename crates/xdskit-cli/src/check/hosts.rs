//! Virtual hosts, their routes, and the HTTP filters that they have settings for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    finding::Rule,
    kinds::{LISTENER, ROUTE, Verdict},
    mesh::Mesh,
    routes::{self, Match, Path},
    source::{Step, steps},
};

/// A connection manager of a listener.
#[derive(Debug)]
struct Manager {
    /// The index of the listener.
    listener: usize,
    /// The names of its HTTP filters.
    filters: BTreeSet<String>,
    /// Its routes.
    routes: Routes,
    /// Whether it is that of a client's target.
    is_api: bool,
}

/// A route configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Routes {
    /// The index of its resource: the listener, if it is inside of that.
    resource: usize,
    /// The path in the resource; empty for a resource of its own.
    path: String,
}

/// Checks the route configurations of all resources, and those inside of listeners.
pub(crate) fn check(mesh: &mut Mesh) {
    let managers = managers(mesh);
    let inline = managers.iter().map(|manager| manager.routes.clone()).filter(|one| !one.path.is_empty());
    let own = mesh.of_kind(ROUTE).map(|resource| Routes { resource, path: String::new() });
    let all: BTreeSet<_> = inline.chain(own).collect();
    for routes in &all {
        if mesh.resources[routes.resource].is_accepted() {
            check_domains(mesh, routes);
            check_reachability(mesh, routes);
        }
    }
    check_filters(mesh, &managers);
    check_targets(mesh, &managers);
}

/// The connection managers of all listeners whose routes are there.
fn managers(mesh: &Mesh) -> Vec<Manager> {
    let mut managers = Vec::new();
    for listener in mesh.of_kind(LISTENER) {
        mesh.visit(listener, &mut |visited| {
            if !visited.message.ends_with("http_connection_manager.v3.HttpConnectionManager") {
                return;
            }
            let filters = visited.fields.get("http_filters").and_then(Value::as_array).into_iter().flatten();
            let filters = filters.filter_map(|filter| filter["name"].as_str().map(str::to_owned)).collect();
            let named = visited.fields.get("rds").and_then(|rds| rds["route_config_name"].as_str());
            let routes = match named.and_then(|name| mesh.find(ROUTE, name)) {
                Some(resource) => Routes { resource, path: String::new() },
                None if visited.fields.contains_key("route_config") => {
                    Routes { resource: listener, path: format!("{}.route_config", visited.path) }
                }
                None => return,
            };
            managers.push(Manager {
                listener,
                filters,
                routes,
                is_api: visited.path.starts_with("api_listener"),
            });
        });
    }
    managers
}

impl Routes {
    /// The virtual hosts.
    fn virtual_hosts<'m>(&self, mesh: &'m Mesh) -> &'m [Value] {
        let value = &mesh.resources[self.resource].value;
        let value = steps(&self.path).into_iter().try_fold(value, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Index(index) => value.get(index),
        });
        value.and_then(|value| value["virtual_hosts"].as_array()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The path of something in them.
    fn within(&self, path: &str) -> String {
        if self.path.is_empty() { path.to_owned() } else { format!("{}.{path}", self.path) }
    }
}

/// Reports domains that an earlier virtual host has.
fn check_domains(mesh: &mut Mesh, routes: &Routes) {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (index, host) in routes.virtual_hosts(mesh).iter().enumerate() {
        let name = host["name"].as_str().unwrap_or_default();
        for (place, domain) in host["domains"].as_array().into_iter().flatten().enumerate() {
            let domain = domain.as_str().unwrap_or_default().to_ascii_lowercase();
            if let Some(earlier) = seen.get(&domain) {
                let message =
                    format!("the virtual host {earlier:?} has {domain:?} already, and gets its requests");
                let path = routes.within(&format!("virtual_hosts[{index}].domains[{place}]"));
                findings.push((path, message));
            } else {
                seen.insert(domain, name.to_owned());
            }
        }
    }
    for (path, message) in findings {
        mesh.report(routes.resource, Rule::DuplicateDomain, &path, message);
    }
}

/// Reports routes that never match.
fn check_reachability(mesh: &mut Mesh, routes: &Routes) {
    let Some(Verdict::Accepted(remarks)) = &mesh.resources[routes.resource].verdict else { return };
    // Conditions that the client does not execute might be executed by others. In JSON they are unknown, and left out of the
    // message: a warning of the reader has them.
    if remarks.not_executed().iter().any(|field| field.starts_with("RouteMatch.")) {
        return;
    }
    let left_out: Vec<_> = remarks.left_out().iter().map(|part| steps(&part.path)).collect();
    if left_out.iter().any(Vec::is_empty) {
        return;
    }
    let mut findings = Vec::new();
    for (index, host) in routes.virtual_hosts(mesh).iter().enumerate() {
        let under = |place: usize| routes.within(&format!("virtual_hosts[{index}].routes[{place}]"));
        let given = host["routes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let matcher = |(place, route): (usize, &Value)| {
            let path = under(place);
            let is_open = mesh.has_unknown_fields(routes.resource, &format!("{path}.match"));
            let path = steps(&path);
            let is_left_out = left_out.iter().any(|part| part.starts_with(&path));
            let read = Match::of(&route["match"]);
            (!is_left_out).then_some(Match { is_limited: read.is_limited || is_open, ..read })
        };
        let matchers: Vec<_> = given.iter().enumerate().map(matcher).collect();
        for (place, by) in routes::unreachable(&matchers) {
            let earlier = matchers[by].as_ref().map(|earlier| shown(&earlier.path)).unwrap_or_default();
            let message = format!(
                "it never matches: routes[{by}] ({earlier}) is before it and matches all its requests"
            );
            findings.push((under(place), message));
        }
    }
    for (path, message) in findings {
        mesh.report(routes.resource, Rule::UnreachableRoute, &path, message);
    }
}

/// The condition of a path, for a message.
fn shown(path: &Path) -> String {
    match path {
        Path::Prefix(text) => format!("prefix {text:?}"),
        Path::Exact(text) => format!("path {text:?}"),
        Path::Separated(text) => format!("path-separated prefix {text:?}"),
        Path::Regex(text) => format!("regular expression {text:?}"),
        Path::Unknown => "another condition".to_owned(),
    }
}

/// Reports settings of HTTP filters that no listener of the routes has.
fn check_filters(mesh: &mut Mesh, managers: &[Manager]) {
    let mut by_routes: BTreeMap<&Routes, BTreeSet<&str>> = BTreeMap::new();
    for manager in managers {
        let names = by_routes.entry(&manager.routes).or_default();
        names.extend(manager.filters.iter().map(String::as_str));
    }
    let mut findings = Vec::new();
    for (routes, filters) in by_routes {
        mesh.visit(routes.resource, &mut |visited| {
            let overrides = visited.fields.get("typed_per_filter_config").and_then(Value::as_object);
            if !is_within(visited.path, &routes.path) {
                return;
            }
            for name in
                overrides.into_iter().flat_map(Map::keys).filter(|name| !filters.contains(name.as_str()))
            {
                let dot = if visited.path.is_empty() { "" } else { "." };
                let path = format!("{}{dot}typed_per_filter_config[{name:?}]", visited.path);
                let message = format!(
                    "no HTTP filter of the listeners with these routes is named {name:?}: it has no effect"
                );
                findings.push((routes.resource, path, message));
            }
        });
    }
    for (resource, path, message) in findings {
        mesh.report(resource, Rule::UnknownFilter, &path, message);
    }
}

/// Whether a path is another one, or that of something in it.
fn is_within(path: &str, outer: &str) -> bool {
    let rest = path.strip_prefix(outer);
    outer.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Reports targets of clients whose routes have no virtual host for them.
fn check_targets(mesh: &mut Mesh, managers: &[Manager]) {
    for Manager { listener, routes, is_api, .. } in managers {
        let name = mesh.resources[*listener].name.clone();
        // Other names are made of a target by a template, which only the bootstrap of the client has.
        let is_known = *is_api && !name.starts_with("xdstp:") && !name.contains('/');
        let is_accepted = [*listener, routes.resource].iter().all(|one| mesh.resources[*one].is_accepted());
        let has_more = mesh.resources[routes.resource].value.get("vhds").is_some();
        if !is_known || !is_accepted || has_more {
            continue;
        }
        let hosts = routes.virtual_hosts(mesh).iter();
        let mut domains = hosts.flat_map(|host| host["domains"].as_array().into_iter().flatten());
        if !domains.any(|domain| matches(domain.as_str().unwrap_or_default(), &name)) {
            let message = format!(
                "no virtual host has a domain for {name:?}, so that the target xds:///{name} does not resolve"
            );
            let path = routes.within("virtual_hosts");
            mesh.report(routes.resource, Rule::NoVirtualHost, &path, message);
        }
    }
}

/// Whether a domain, which may have a wildcard at its begin or end, matches a host.
fn matches(domain: &str, host: &str) -> bool {
    let (domain, host) = (domain.to_ascii_lowercase(), host.to_ascii_lowercase());
    match (domain.strip_prefix('*'), domain.strip_suffix('*')) {
        (Some(suffix), _) => suffix.is_empty() || (host.ends_with(suffix) && host.len() > suffix.len()),
        (None, Some(prefix)) => host.starts_with(prefix) && host.len() > prefix.len(),
        (None, None) => domain == host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_match_as_virtual_hosts_are_chosen() {
        for (domain, host, expected) in [
            ("*", "a", true),
            ("A.example", "a.example", true),
            ("*.example", "a.example", true),
            ("*.example", ".example", false),
            ("a.*", "a.example", true),
            ("a.*", "a.", false),
            ("b", "a", false),
        ] {
            assert_eq!(matches(domain, host), expected, "{domain} {host}");
        }
    }

    #[test]
    fn a_path_is_within_those_around_it() {
        assert!(is_within("a.b[1]", ""));
        assert!(is_within("a.b[1]", "a.b"));
        assert!(is_within("a.b", "a.b"));
        assert!(!is_within("a.bc", "a.b"));
    }
}
