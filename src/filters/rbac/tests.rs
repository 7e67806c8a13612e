use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::*;
use crate::{
    filters::{
        ChainCompiler, Downstream, FilterCallbacks, FilterChain, MalformedValue, OwnedFuture, StreamFilters,
        Token, TokenError,
    },
    rbac::{AuditEvent, ConnectionFacts},
    resource::{
        Context, Extension, Payload,
        http_filter::{
            FilterOverride, HttpFilter, HttpFilterConfig, HttpFilterOverride, OverrideSetting,
            Rbac as RbacConfig, RbacPerRoute, rbac::AuditLogger,
        },
    },
};

/// A side that has a clock alone.
struct Callbacks;

impl FilterCallbacks for Callbacks {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn since_1970(&self) -> Duration {
        Duration::from_secs(7)
    }

    fn sleep(&self, _: Duration) -> OwnedFuture<()> {
        unreachable!("RBAC does not wait")
    }

    fn spawn(&self, _: OwnedFuture<()>) {
        unreachable!("RBAC has no tasks")
    }

    fn fetch_identity_token(&self, _: Arc<str>) -> OwnedFuture<Result<Token, TokenError>> {
        unreachable!("RBAC needs no tokens")
    }

    fn on_malformed(&self, _: MalformedValue, _: u64) {
        unreachable!("RBAC ignores no values")
    }
}

/// Keeps the names of filters and rules, and what was decided.
#[derive(Default)]
struct Journal(Mutex<Vec<String>>);

impl AuditLogger for Journal {
    fn log(&self, event: &AuditEvent<'_>) {
        let line =
            format!("{} {:?} {} {:?}", event.policy_name, event.matched_rule, event.authorized, event.time);
        self.0.lock().unwrap().push(line);
    }
}

fn parsed<T: Extension>(json: &Value) -> T {
    let message = crate::format::decode_json(T::TYPE_NAME, json.to_string().as_bytes()).unwrap();
    assert_eq!(message.warnings, [""; 0]);
    T::parse(Payload::Message(message.message), &Context::new()).unwrap()
}

/// Rules with one policy `p` for a path, and with an audit of all decisions.
fn rules(action: &str, path: &str) -> Value {
    let stdout = "type.googleapis.com/envoy.extensions.rbac.audit_loggers.stream.v3.StdoutAuditLog";
    json!({"rules": {
        "action": action,
        "policies": {"p": {
            "permissions": [{"url_path": {"path": {"exact": path}}}],
            "principals": [{"any": true}],
        }},
        "audit_logging_options": {
            "audit_condition": "ON_DENY_AND_ALLOW",
            "logger_configs": [{"audit_logger": {"name": "a", "typed_config": {"@type": stdout}}}],
        },
    }})
}

fn filter(name: &str, config: &Value) -> HttpFilter {
    HttpFilter {
        name: name.into(),
        config: HttpFilterConfig::Rbac(parsed::<RbacConfig>(config)),
        disabled: false,
    }
}

fn overridden(name: &str, config: &Value) -> FilterOverride {
    let setting = OverrideSetting::Config(HttpFilterOverride::Rbac(parsed::<RbacPerRoute>(config)));
    FilterOverride { filter: name.into(), setting }
}

fn server_chain(
    filters: &[HttpFilter],
    host: &[FilterOverride],
    route: &[FilterOverride],
    stdout: &Arc<dyn AuditLogger>,
) -> Option<Arc<FilterChain>> {
    ChainCompiler::new(filters, host).for_server(stdout).chain(route, &[])
}

/// Runs the filters of a chain for a request.
fn run(chain: Arc<FilterChain>, path: &str, headers: &[(&'static str, &[u8])]) -> Result<(), LocalReply> {
    let connection = ConnectionFacts::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], 9).into());
    let downstream =
        Downstream { method: "POST", path_and_query: path, authority: Some("a"), connection: &connection };
    run_from(chain, Some(&downstream), headers)
}

fn run_from(
    chain: Arc<FilterChain>,
    downstream: Option<&Downstream<'_>>,
    headers: &[(&'static str, &[u8])],
) -> Result<(), LocalReply> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    let mut filters = StreamFilters::new(chain);
    let callbacks: Arc<dyn FilterCallbacks> = Arc::new(Callbacks);
    for index in 0..filters.len() {
        let mut request = FilterRequest {
            path: downstream.map_or("/", |downstream| downstream.path_and_query),
            headers: &mut map,
            upstream: None,
            downstream,
            random: &mut fastrand::Rng::with_seed(1),
            callbacks: &callbacks,
        };
        match filters.on_request(index, &mut request) {
            Decision::Continue => {}
            Decision::Reply(reply) => return Err(reply),
            Decision::Wait(_) => panic!("RBAC waits"),
        }
    }
    Ok(())
}

fn code(result: Result<(), LocalReply>) -> Code {
    result.map_or_else(|reply| reply.code, |()| Code::Ok)
}

#[test]
fn sv9_3_all_filters_run_in_order_and_a_denial_has_a_constant_message() {
    let journal: Arc<Journal> = Arc::default();
    let stdout: Arc<dyn AuditLogger> = journal.clone();
    let filters = [filter("deny", &rules("DENY", "/a")), filter("allow", &rules("ALLOW", "/b"))];
    let chain = server_chain(&filters, &[], &[], &stdout).unwrap();
    let events = |path| {
        let code = code(run(chain.clone(), path, &[]));
        (code, std::mem::take(&mut *journal.0.lock().unwrap()))
    };
    assert_eq!(events("/a"), (Code::PermissionDenied, vec!["deny \"p\" false 7s".to_owned()]));
    let passed = vec!["deny \"\" true 7s".to_owned(), "allow \"p\" true 7s".to_owned()];
    assert_eq!(events("/b?q"), (Code::Ok, passed));
    let denied = vec!["deny \"\" true 7s".to_owned(), "allow \"\" false 7s".to_owned()];
    assert_eq!(events("/c"), (Code::PermissionDenied, denied));
    let message = run(chain, "/a", &[]).unwrap_err().message;
    assert_eq!(message, "Unauthorized request rejected", "it does not name the policy");
}

#[test]
fn sv9_2_an_override_replaces_the_rules_and_one_without_rules_disables_the_filter() {
    let stdout: Arc<dyn AuditLogger> = Arc::new(Journal::default());
    let filters = [filter("f", &rules("DENY", "/a"))];
    let (deny_b, none) =
        (overridden("f", &json!({"rbac": rules("DENY", "/b")})), overridden("f", &json!({})));
    let other = overridden("g", &json!({"rbac": rules("DENY", "/b")}));
    let code_of = |host: &[FilterOverride], route: &[FilterOverride], path| match server_chain(
        &filters, host, route, &stdout,
    ) {
        Some(chain) => code(run(chain, path, &[])),
        None => Code::Ok,
    };
    let (deny, none, other) = (&[deny_b][..], &[none][..], &[other][..]);
    for (host, route, a, b) in [
        (&[][..], &[][..], Code::PermissionDenied, Code::Ok),
        (&[], deny, Code::Ok, Code::PermissionDenied),
        (deny, &[], Code::Ok, Code::PermissionDenied),
        (deny, none, Code::Ok, Code::Ok),
        (none, deny, Code::Ok, Code::PermissionDenied),
        (&[], other, Code::PermissionDenied, Code::Ok),
    ] {
        assert_eq!((code_of(host, route, "/a"), code_of(host, route, "/b")), (a, b));
    }
    let log = [filter("f", &json!({"rules": {"action": "LOG"}}))];
    assert!(server_chain(&log, &[], &[], &stdout).is_none(), "SV9.2: it costs requests nothing");
}

#[test]
fn routes_share_equal_rules() {
    let stdout: Arc<dyn AuditLogger> = Arc::new(Journal::default());
    let filters = [filter("f", &rules("DENY", "/a"))];
    let route = || [overridden("f", &json!({"rbac": rules("DENY", "/b")}))];
    let mut compiler = ChainCompiler::new(&filters, &[]).for_server(&stdout);
    let chains = [&[][..], &route(), &[], &route()].map(|route| compiler.chain(route, &[]).unwrap());
    assert!(Arc::ptr_eq(&chains[0], &chains[2]) && Arc::ptr_eq(&chains[1], &chains[3]));
    assert!(!Arc::ptr_eq(&chains[0], &chains[1]));
    assert!(compiler.into_unexecuted().is_empty());
}

#[test]
fn rbac_is_executed_on_servers_alone() {
    let filters = [filter("f", &rules("DENY", "/a"))];
    let mut compiler = ChainCompiler::new(&filters, &[]);
    assert!(compiler.chain(&[], &[]).is_none());
    assert_eq!(compiler.into_unexecuted().into_iter().collect::<Vec<_>>(), ["f"]);
    let stdout: Arc<dyn AuditLogger> = Arc::new(Journal::default());
    let chain = server_chain(&filters, &[], &[], &stdout).unwrap();
    assert_eq!(
        code(run_from(chain, None, &[])),
        Code::Internal,
        "a request without a connection does not pass"
    );
}

#[test]
fn sv9_9_sv9_11_requests_that_cannot_be_decided_about_are_refused_as_their_protocol_has_it() {
    let stdout: Arc<dyn AuditLogger> = Arc::new(Journal::default());
    let mut config = rules("DENY", "/a");
    config["rules"]["policies"]["q"] = json!({
        "permissions": [{"header": {"name": "x", "string_match": {"exact": "a"}}}],
        "principals": [{"any": true}],
    });
    let chain = server_chain(&[filter("f", &config)], &[], &[], &stdout).unwrap();
    let grpc: (&str, &[u8]) = ("content-type", b"application/grpc");
    let bad: (&str, &[u8]) = ("x", b"\xff");
    assert_eq!(code(run(chain.clone(), "/b", &[bad])), Code::InvalidArgument);
    assert_eq!(code(run(chain.clone(), "/b", &[bad, grpc])), Code::Internal);
    assert_eq!(code(run(chain.clone(), "/b//a", &[])), Code::InvalidArgument);
    assert_eq!(code(run(chain, "/b//a", &[grpc])), Code::Ok);
}
