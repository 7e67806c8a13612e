//! What a client does with each resource by itself.

use std::collections::BTreeSet;

use clap::ValueEnum;
use serde_json::Value;
use xdskit::{
    config::Bootstrap,
    resource::{Context, Remarks},
};

use super::{
    differences,
    finding::{Finding, Rule, Severity},
    kinds::{ENDPOINTS, LISTENER, Verdict},
    mesh::Mesh,
};

/// The client whose view is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Against {
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Grpc,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Xdskit,
    #[allow(missing_docs, reason = "the docs would be in the help of each option")]
    Observe,
}

/// The side that listeners are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The side of each listener.
    Either,
    /// Clients.
    Client,
    /// Servers.
    Server,
}

/// The client.
#[derive(Debug)]
pub(crate) struct Judge<'b> {
    /// Its kind.
    pub(crate) against: Against,
    /// Its side.
    pub(crate) side: Side,
    /// Its bootstrap. Without one, all that resources need of a bootstrap is there.
    pub(crate) bootstrap: Option<&'b Bootstrap>,
}

impl Judge<'_> {
    /// Checks each resource.
    pub(crate) fn check(&self, mesh: &mut Mesh) {
        let providers = self.providers(mesh);
        let is_trusted =
            |bootstrap: &Bootstrap| bootstrap.servers().any(|server| server.features.trusted_xds_server);
        let cx = Context::new()
            .with_certificate_providers(&providers)
            .with_trusted_server(self.bootstrap.is_none_or(is_trusted));
        let cx = match self.bootstrap {
            Some(bootstrap) => cx.with_allowed_grpc_services(bootstrap.allowed_grpc_services()),
            None => cx,
        };
        for index in 0..mesh.resources.len() {
            let resource = &mut mesh.resources[index];
            let verdict = resource.kind.judge(&resource.bytes, &cx);
            resource.verdict = Some(verdict.clone());
            match verdict {
                Verdict::Rejected { path, reason, is_malformed } => {
                    let finding = mesh.in_resource(index, Rule::Rejected, &path, reason.clone());
                    mesh.push(match self.against {
                        Against::Observe if !is_malformed => {
                            let message = format!("gRPC rejects it: {reason}");
                            Finding { message, ..finding.with_severity(Severity::Note) }
                        }
                        Against::Observe | Against::Grpc | Against::Xdskit => finding,
                    });
                }
                Verdict::Accepted(remarks) => self.check_accepted(mesh, index, &remarks),
            }
            self.check_side(mesh, index);
        }
    }

    /// The names of certificate provider instances: those of the bootstrap, or all that occur.
    fn providers(&self, mesh: &Mesh) -> BTreeSet<String> {
        if let Some(bootstrap) = self.bootstrap {
            return bootstrap.certificate_providers().keys().cloned().collect();
        }
        let mut names = BTreeSet::new();
        for index in 0..mesh.resources.len() {
            mesh.visit(index, &mut |visited| {
                let name = visited.fields.get("instance_name").and_then(Value::as_str);
                names.extend(name.map(str::to_owned));
            });
        }
        names
    }

    /// Reports what has no effect in a resource that the client accepts.
    fn check_accepted(&self, mesh: &mut Mesh, index: usize, remarks: &Remarks) {
        if self.against == Against::Observe {
            return;
        }
        for part in remarks.left_out() {
            mesh.report(index, Rule::LeftOut, &part.path, format!("left out: {}", part.reason));
        }
        match self.against {
            Against::Xdskit => {
                for field in remarks.not_executed() {
                    report_field(mesh, index, field);
                }
            }
            Against::Grpc => {
                let mut found = Vec::new();
                mesh.visit(index, &mut |visited| {
                    let dot = if visited.path.is_empty() { "" } else { "." };
                    for (rule, field, message) in differences::of(&visited) {
                        found.push((rule, format!("{}{dot}{field}", visited.path), message));
                    }
                });
                for (rule, path, message) in found {
                    mesh.report(index, rule, &path, message);
                }
            }
            Against::Observe => {}
        }
        if mesh.resources[index].kind.label == ENDPOINTS && !has_endpoints(&mesh.resources[index].value) {
            let message = "no endpoint of a locality with a weight is usable: calls fail with UNAVAILABLE";
            mesh.report(index, Rule::NoEndpoints, "endpoints", message);
        }
    }

    /// Reports a listener of the other side.
    fn check_side(&self, mesh: &mut Mesh, index: usize) {
        let resource = &mesh.resources[index];
        if resource.kind.label != LISTENER || resource.is_malformed() {
            return;
        }
        let is_api = resource.value.get("api_listener").is_some();
        let message = match self.side {
            Side::Client if !is_api => "it has no api_listener, so that it is no target of a client",
            Side::Server if is_api => {
                "it has an api_listener, so that it is for clients and not for a server"
            }
            Side::Either | Side::Client | Side::Server => return,
        };
        mesh.report(index, Rule::WrongSide, "", message);
    }
}

/// Reports a field that channels do not execute, at its first place.
fn report_field(mesh: &mut Mesh, index: usize, field: &'static str) {
    let (message, name) = field.rsplit_once('.').unwrap_or(("", field));
    let mut paths = Vec::new();
    mesh.visit(index, &mut |visited| {
        let rest = visited.message.strip_suffix(message);
        let is_message = rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if is_message && visited.fields.contains_key(name) {
            let dot = if visited.path.is_empty() { "" } else { "." };
            paths.push(format!("{}{dot}{name}", visited.path));
        }
    });
    let more = match paths.len() {
        0 | 1 => String::new(),
        count => format!(", here and in {} more places", count - 1),
    };
    let path = paths.into_iter().next().unwrap_or_default();
    mesh.report(index, Rule::NotExecuted, &path, format!("channels do not execute {field}{more}"));
}

/// Whether an assignment has an endpoint that is used, or has lists of endpoints elsewhere.
fn has_endpoints(assignment: &Value) -> bool {
    let localities = assignment["endpoints"].as_array().into_iter().flatten();
    localities.into_iter().any(|locality| {
        let is_weighted = locality["load_balancing_weight"].as_u64().is_some_and(|weight| weight > 0);
        let is_elsewhere = ["leds_cluster_locality_config", "load_balancer_endpoints"];
        let mut endpoints = locality["lb_endpoints"].as_array().into_iter().flatten();
        let is_usable = |endpoint: &Value| {
            let health = endpoint.get("health_status").and_then(Value::as_str);
            health.is_none_or(|health| !UNUSABLE.contains(&health))
        };
        is_elsewhere.iter().any(|field| locality.get(*field).is_some())
            || (is_weighted && endpoints.any(is_usable))
    })
}

/// The states of endpoints that get no calls.
const UNUSABLE: [&str; 3] = ["UNHEALTHY", "DRAINING", "TIMEOUT"];
