//! Decisions by policies, and their audit.

mod audit;
mod headers;
mod model;
mod request;
mod rules;
mod simulation;
mod unevaluated;

use serde_json::{Value, json};

use super::*;

/// RBAC with one policy `p`.
fn rbac(action: &str, permissions: &Value, principals: &Value) -> Rbac {
    with_policies(action, json!({"p": {"permissions": permissions, "principals": principals}}))
}

fn with_policies(action: &str, policies: Value) -> Rbac {
    parse(&json!({"rules": {"action": action, "policies": policies}})).unwrap()
}

fn parse(config: &Value) -> Result<Rbac, crate::resource::Invalid> {
    Rbac::from_json(&config.to_string())
}

/// RBAC that allows the requests with a permission.
fn allowing(permission: Value) -> Rbac {
    rbac("ALLOW", &json!([permission]), &json!([{"any": true}]))
}

/// RBAC that allows the requests of a principal.
fn allowing_from(principal: Value) -> Rbac {
    rbac("ALLOW", &json!([{"any": true}]), &json!([principal]))
}

/// A connection in plain text from 10.0.0.2 to 10.0.0.1, port 443.
fn plain() -> ConnectionFacts {
    between("10.0.0.1:443", "10.0.0.2:50123")
}

fn between(local: &str, peer: &str) -> ConnectionFacts {
    ConnectionFacts::new(local.parse().unwrap(), peer.parse().unwrap())
}

/// Whether a request for a path passes.
fn passes(rbac: &Rbac, path: &str) -> bool {
    rbac.decide(&RequestFacts::new("POST", path, &plain())).allowed
}

/// Whether a request on a connection passes.
fn passes_from(rbac: &Rbac, connection: &ConnectionFacts) -> bool {
    rbac.decide(&RequestFacts::new("POST", "/", connection)).allowed
}

/// Whether a request with these headers passes.
fn passes_with(rbac: &Rbac, headers: &[(&str, &str)]) -> bool {
    let headers = headers.to_vec();
    let decision = rbac.decide(&RequestFacts::new("POST", "/", &plain()).with_headers(&headers));
    assert_eq!(decision.malformed, None);
    decision.allowed
}

fn exact_path(path: &str) -> Value {
    json!({"url_path": {"path": {"exact": path}}})
}
