use std::{
    panic,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prost::Message;
use serde::Serialize;

use super::*;
use crate::{
    pb::{
        envoy::config::{
            core::v3::TypedExtensionConfig,
            rbac::v3::rbac::{AuditLoggingOptions, audit_logging_options::AuditLoggerConfig as Logger},
        },
        google::protobuf::Any,
    },
    resource::{
        Context, Extension, Invalid, Payload, Registry,
        http_filter::{self, RbacRules},
    },
};

/// Keeps events as texts.
#[derive(Default)]
struct Journal(Mutex<Vec<String>>);

impl AuditLogger for Journal {
    fn log(&self, event: &AuditEvent<'_>) {
        let AuditEvent { rpc_method, principal, policy_name, matched_rule, authorized, time, .. } = event;
        let peer = event.connection.peer_address();
        self.0.lock().unwrap().push(format!(
            "{rpc_method} by {principal:?} from {peer}: {policy_name} {matched_rule:?} {authorized} {time:?}"
        ));
    }
}

impl Journal {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct Panics;

impl AuditLogger for Panics {
    fn log(&self, _: &AuditEvent<'_>) {
        panic!("as it should");
    }
}

const ALL: [AuditCondition; 4] =
    [AuditCondition::None, AuditCondition::OnDeny, AuditCondition::OnAllow, AuditCondition::OnDenyAndAllow];
const TIME: Duration = Duration::from_secs(7);

/// Decides about a request, and returns what is logged.
fn logged(rbac: &Rbac, condition: AuditCondition, facts: &RequestFacts<'_>) -> Vec<String> {
    let journal = Arc::new(Journal::default());
    let loggers: [Arc<dyn AuditLogger>; 2] = [journal.clone(), journal.clone()];
    let audited = rbac.clone().with_auditor(Auditor::new("f", condition, loggers));
    assert_eq!(audited.authorize(facts, TIME), rbac.decide(facts));
    journal.take()
}

#[test]
fn sv10_1_the_condition_is_about_the_decision_and_all_loggers_get_the_event() {
    let plain = plain();
    let (a, b) = (RequestFacts::new("POST", "/a?q", &plain), RequestFacts::new("POST", "/b", &plain));
    for action in ["ALLOW", "DENY"] {
        let rbac = rbac(action, &json!([exact_path("/a")]), &json!([{"any": true}]));
        for facts in [a, b] {
            let allowed = rbac.decide(&facts).allowed;
            for condition in ALL {
                let events = logged(&rbac, condition, &facts);
                assert_eq!(events.len(), if condition.includes(allowed) { 2 } else { 0 }, "{condition:?}");
            }
        }
    }
}

#[test]
fn sv10_2_a_deny_without_a_match_is_an_allow_event_without_a_rule() {
    let plain = plain();
    let rbac = rbac("DENY", &json!([exact_path("/a")]), &json!([{"any": true}]));
    let of = |path, condition| logged(&rbac, condition, &RequestFacts::new("POST", path, &plain));
    assert_eq!(of("/b", AuditCondition::OnAllow), ["/b by \"\" from 10.0.0.2:50123: f \"\" true 7s"; 2]);
    assert_eq!(of("/a", AuditCondition::OnDeny), ["/a by \"\" from 10.0.0.2:50123: f \"p\" false 7s"; 2]);
    let refused = of("//", AuditCondition::OnDenyAndAllow);
    assert_eq!(refused, ["// by \"\" from 10.0.0.2:50123: f \"\" false 7s"; 2], "a refusal is a denial");
    let passes_all = Rbac::from_protobuf(Vec::new()).unwrap();
    let facts = RequestFacts::new("POST", "/a", &plain);
    assert!(
        logged(&passes_all, AuditCondition::OnDenyAndAllow, &facts).is_empty(),
        "SV9.2: no audit without rules"
    );
}

#[test]
fn sv10_3_an_event_has_the_path_the_spiffe_id_and_the_names() {
    let rbac = rbac("ALLOW", &json!([{"any": true}]), &json!([{"any": true}]));
    for (uris, principal) in [
        (vec!["spiffe://a/b"], "spiffe://a/b"),
        (vec!["spiffe://a/b", "spiffe://a/c"], ""),
        (vec!["https://a/b"], ""),
        (vec!["spiffe://a"], ""),
        (vec!["spiffe:///b"], ""),
        (vec![], ""),
    ] {
        let connection = plain().with_tls(TlsFacts::new().with_uri_sans(uris).with_dns_sans(["a"]));
        let facts = RequestFacts::new("POST", "/p.S/M?q", &connection);
        let expected = format!("/p.S/M by {principal:?} from 10.0.0.2:50123: f \"p\" true 7s");
        assert_eq!(logged(&rbac, AuditCondition::OnAllow, &facts)[0], expected);
    }
}

#[test]
fn sv10_6_a_panic_in_a_logger_is_counted_and_harms_neither_the_request_nor_other_loggers() {
    let journal = Arc::new(Journal::default());
    let loggers: [Arc<dyn AuditLogger>; 3] = [Arc::new(Panics), journal.clone(), Arc::new(Panics)];
    let rbac = allowing(json!({"any": true})).with_auditor(Auditor::new(
        "f",
        AuditCondition::OnDenyAndAllow,
        loggers,
    ));
    let plain = plain();
    assert!(rbac.authorize(&RequestFacts::new("POST", "/", &plain), TIME).allowed);
    assert_eq!((rbac.auditor().unwrap().panics(), journal.take().len()), (2, 1));
}

/// A logger of the application: how often it was created, and whether that panics.
#[derive(Debug, PartialEq, Serialize)]
struct Custom {
    panics: bool,
}

static CREATED: AtomicU64 = AtomicU64::new(0);

impl Extension for Custom {
    const TYPE_NAME: &'static str = "example.audit.Custom";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        Ok(Self { panics: !payload.message()?.is_empty() })
    }
}

impl AuditLoggerExtension for Custom {
    fn logger(&self) -> Arc<dyn AuditLogger> {
        CREATED.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "as it should");
        Arc::new(Journal::default())
    }
}

/// Parses rules with loggers of these types, at most one of which panics when it is created.
fn with_loggers(condition: i32, types: &[(&str, &'static [u8])]) -> RbacRules {
    let logger = |(type_name, value): &(&str, &'static [u8])| {
        let typed_config = Any { type_url: format!("x/{type_name}"), value: (*value).into() };
        let audit_logger = TypedExtensionConfig { name: "l".into(), typed_config: Some(typed_config) };
        Logger { audit_logger: Some(audit_logger), is_optional: false }
    };
    let options = AuditLoggingOptions {
        audit_condition: condition,
        logger_configs: types.iter().map(logger).collect(),
    };
    let rules = crate::pb::envoy::config::rbac::v3::Rbac {
        audit_logging_options: Some(options),
        ..Default::default()
    };
    let message =
        crate::pb::envoy::extensions::filters::http::rbac::v3::Rbac { rules: Some(rules), matcher: None };
    let registry = Registry::new().with_audit_logger::<Custom>();
    let cx = Context::new().with_registry(&registry);
    let payload = Payload::Message(message.encode_to_vec().into());
    http_filter::Rbac::parse(payload, &cx).unwrap().rules.unwrap()
}

#[test]
fn sv10_2_sv10_6_loggers_are_created_when_they_are_applied_and_only_if_something_is_logged() {
    const STDOUT: &str = "envoy.extensions.rbac.audit_loggers.stream.v3.StdoutAuditLog";
    let journal: Arc<Journal> = Arc::default();
    let stdout: Arc<dyn AuditLogger> = journal.clone();
    let of = |rules: &RbacRules| Auditor::from_config("f", &rules.audit_logging, &stdout);
    let both = with_loggers(3, &[(STDOUT, b""), (Custom::TYPE_NAME, b"")]);
    assert_eq!(CREATED.load(Ordering::Relaxed), 0, "not when they are parsed");
    assert_eq!(of(&both), of(&both));
    assert_eq!(CREATED.load(Ordering::Relaxed), 2);
    // Loggers without a condition, and a condition without loggers.
    assert_eq!(of(&with_loggers(0, &[(Custom::TYPE_NAME, b"")])), None);
    assert_eq!(of(&with_loggers(3, &[])), None);
    assert_eq!(CREATED.load(Ordering::Relaxed), 2);
    let panics = with_loggers(3, &[(Custom::TYPE_NAME, b"x"), (STDOUT, b"")]);
    let auditor = of(&panics).unwrap();
    assert_eq!((auditor.panics(), CREATED.load(Ordering::Relaxed)), (1, 3));
    assert_ne!(Some(auditor.clone()), of(&both));
    let rbac = Rbac::from_rules(&panics).with_auditor(auditor);
    let plain = plain();
    assert!(!rbac.authorize(&RequestFacts::new("POST", "/", &plain), TIME).allowed);
    assert_eq!(
        journal.take(),
        ["/ by \"\" from 10.0.0.2:50123: f \"\" false 7s"],
        "the other logger is there"
    );
}
