//! The settings of RBAC: rules H3 to H9.

use serde_json::{Value, json};

use super::*;
use crate::{
    pb::{
        envoy::{
            config::{
                core::v3::{CidrRange, TypedExtensionConfig},
                rbac::v3::{
                    self as pb, Permission, Policy, Principal,
                    permission::{self, Rule},
                    principal::{self, Authenticated, Identifier},
                    rbac::{AuditLoggingOptions, audit_logging_options::AuditLoggerConfig as Logger},
                },
                route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
            },
            extensions::filters::http::rbac::v3 as filter,
            r#type::{
                matcher::v3::{
                    MetadataMatcher, PathMatcher, RegexMatcher, StringMatcher, path_matcher,
                    string_matcher::MatchPattern,
                },
                v3::Int32Range,
            },
        },
        google::{
            api::expr::v1alpha1::{CheckedExpr, Expr},
            protobuf::UInt32Value,
        },
        xds::r#type::matcher::v3::Matcher,
    },
    resource::http_filter::rbac::{AuditEvent, AuditLogger, AuditLoggerExtension, RbacAction},
};

const STDOUT: &str = "envoy.extensions.rbac.audit_loggers.stream.v3.StdoutAuditLog";
const BROKEN_REGEX: &str = "(";

fn rules(rules: pb::Rbac) -> filter::Rbac {
    filter::Rbac { rules: Some(rules), ..Default::default() }
}

fn parsed(rules: pb::Rbac, cx: &Context<'_>) -> Result<Value, Invalid> {
    let config = any(RBAC, self::rules(rules).encode_to_vec());
    let parsed = parse_filters(vec![with_config("a", config), router()], Side::Server, cx)?;
    Ok(serde_json::to_value(&parsed[0].config).unwrap()["rbac"]["rules"].take())
}

/// Rules that deny by one policy.
fn with_policy(policy: Policy) -> pb::Rbac {
    pb::Rbac { action: 1, policies: [("p".to_owned(), policy)].into(), ..Default::default() }
}

/// What the one policy of rules becomes.
fn policy(policy: Policy) -> Result<Value, Invalid> {
    parsed(with_policy(policy), &Context::new()).map(|mut rules| rules["policies"][0].take())
}

fn with_rule(rule: Option<Rule>) -> Policy {
    Policy { permissions: vec![Permission { rule }], ..Default::default() }
}

fn with_id(identifier: Option<Identifier>) -> Policy {
    Policy { principals: vec![Principal { identifier }], ..Default::default() }
}

/// What a permission becomes.
fn permission(rule: Rule) -> Result<Value, Invalid> {
    policy(with_rule(Some(rule))).map(|mut policy| policy["permissions"][0].take())
}

/// What a principal becomes.
fn principal(identifier: Identifier) -> Result<Value, Invalid> {
    policy(with_id(Some(identifier))).map(|mut policy| policy["principals"][0].take())
}

/// The path of the error in a policy, without that of the policy.
fn error_in(rejected: Policy) -> String {
    let e = policy(rejected).unwrap_err();
    let inside = e.path().strip_prefix("http_filters[0].typed_config.rules.policies[\"p\"]");
    inside.unwrap().trim_start_matches('.').to_owned()
}

fn text(pattern: MatchPattern) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ignore_case: false }
}

fn exact(exact: &str) -> StringMatcher {
    text(MatchPattern::Exact(exact.into()))
}

fn broken() -> StringMatcher {
    text(MatchPattern::SafeRegex(RegexMatcher { regex: BROKEN_REGEX.into() }))
}

fn path(path: Option<StringMatcher>) -> PathMatcher {
    PathMatcher { rule: path.map(path_matcher::Rule::Path) }
}

fn present(name: &str) -> HeaderMatcher {
    let header_match_specifier = Some(HeaderMatchSpecifier::PresentMatch(true));
    HeaderMatcher { name: name.into(), header_match_specifier, ..Default::default() }
}

fn range(address: &str, bits: u32) -> CidrRange {
    CidrRange { address_prefix: address.into(), prefix_len: Some(UInt32Value { value: bits }) }
}

fn not(rule: Rule) -> Rule {
    Rule::NotRule(Box::new(Permission { rule: Some(rule) }))
}

fn rule_set(rules: Vec<Rule>) -> permission::Set {
    permission::Set { rules: rules.into_iter().map(|rule| Permission { rule: Some(rule) }).collect() }
}

fn not_id(identifier: Identifier) -> Identifier {
    Identifier::NotId(Box::new(Principal { identifier: Some(identifier) }))
}

fn id_set(ids: Vec<Identifier>) -> principal::Set {
    principal::Set { ids: ids.into_iter().map(|id| Principal { identifier: Some(id) }).collect() }
}

#[test]
fn h3_accepts_policies_without_conditions() {
    let any = Policy {
        permissions: vec![Permission { rule: Some(Rule::Any(true)) }],
        principals: vec![Principal { identifier: Some(Identifier::Any(true)) }],
        ..Default::default()
    };
    let policies = [("b".to_owned(), any), ("a".to_owned(), Policy::default())].into();
    let message = pb::Rbac { policies, ..Default::default() };
    let expected = json!({
        "action": "allow",
        "policies": [
            {"name": "a", "permissions": [], "principals": []},
            {"name": "b", "permissions": ["any"], "principals": ["any"]},
        ],
        "audit_logging": {"condition": "none", "loggers": []},
    });
    assert_eq!(parsed(message, &Context::new()), Ok(expected));
}

#[test]
fn h3_rejects_conditions_in_any_policy() {
    assert_eq!(error_in(Policy { condition: Some(Expr {}), ..Default::default() }), "condition");
    let checked = Policy { checked_condition: Some(CheckedExpr {}), ..Default::default() };
    assert_eq!(error_in(checked), "checked_condition");
}

#[test]
fn h4_accepts_other_headers_and_takes_host_for_authority() {
    for (name, expected) in
        [("x-user", "x-user"), ("grpc", "grpc"), (":method", ":method"), ("Host", ":authority")]
    {
        let expected = json!({"header": {"name": expected, "present_match": true}});
        assert_eq!(permission(Rule::Header(present(name))), Ok(expected.clone()));
        assert_eq!(principal(Identifier::Header(present(name))), Ok(expected));
    }
}

#[test]
fn h4_rejects_headers_that_must_not_be_looked_at_wherever_they_are() {
    for name in [":scheme", ":SCHEME", "grpc-status", "GRPC-x"] {
        let header = Rule::Header(present(name));
        assert_eq!(error_in(with_rule(Some(header.clone()))), "permissions[0].header.name", "{name}");
        let or = Rule::OrRules(rule_set(vec![Rule::Any(true), not(header.clone())]));
        let and = Rule::AndRules(rule_set(vec![or]));
        assert_eq!(
            error_in(with_rule(Some(and))),
            "permissions[0].and_rules.rules[0].or_rules.rules[1].not_rule.header.name"
        );
        let header = Identifier::Header(present(name));
        let or = Identifier::OrIds(id_set(vec![Identifier::Any(true), not_id(header)]));
        let and = Identifier::AndIds(id_set(vec![or]));
        assert_eq!(
            error_in(with_id(Some(and))),
            "principals[0].and_ids.ids[0].or_ids.ids[1].not_id.header.name"
        );
    }
    let e = permission(Rule::Header(present("Grpc-Status"))).unwrap_err();
    assert_eq!(e.reason(), "\"Grpc-Status\" must not be looked at");
}

#[test]
fn h5_accepts_known_actions() {
    for (number, name) in [(0, "allow"), (1, "deny")] {
        let message = pb::Rbac { action: number, ..Default::default() };
        assert_eq!(parsed(message, &Context::new()).unwrap()["action"], name);
    }
    assert_eq!(serde_json::to_value(RbacAction::Deny).unwrap(), "deny");
}

#[test]
fn h5_accepts_rules_that_only_log_as_if_there_were_none() {
    let nothing = HttpFilterConfig::Rbac(Rbac { rules: None });
    assert_eq!(config(Side::Server, RBAC, &filter::Rbac::default()), Ok(nothing.clone()));
    // Their content is ignored (A41-2).
    let policy = Policy { condition: Some(Expr {}), ..Default::default() };
    let log = pb::Rbac { action: 2, ..with_policy(policy) };
    assert_eq!(config(Side::Server, RBAC, &rules(log)), Ok(nothing));
    let only_log = rules(pb::Rbac { action: 2, ..Default::default() });
    let filter = with_config("a", any(RBAC, only_log.encode_to_vec()));
    let parsed = parse(Side::Server, [filter, router()]).unwrap();
    assert_eq!(parsed[0].effective(None), EffectiveFilter::Nothing);
}

#[test]
fn h5_rejects_unknown_actions() {
    let message = pb::Rbac { action: 3, ..Default::default() };
    let expected = "http_filters[0].typed_config.rules.action: 3 is no known action";
    assert_eq!(parsed(message, &Context::new()).unwrap_err().to_string(), expected);
}

#[test]
fn h5_sv9_17_rejects_a_tree_of_matchers_with_and_without_rules() {
    for rules in [None, Some(pb::Rbac::default())] {
        let message = filter::Rbac { rules, matcher: Some(Matcher {}) };
        let filter = with_config("a", any(RBAC, message.encode_to_vec()));
        let e = parse(Side::Server, [filter, router()]).unwrap_err();
        assert_eq!(e.path(), "http_filters[0].typed_config.matcher");
        let per_route = filter::RbacPerRoute { rbac: Some(message) };
        let e = overridden(any(RbacPerRoute::TYPE_NAME, per_route.encode_to_vec())).unwrap_err();
        assert_eq!(e.path(), "typed_per_filter_config[\"f\"].rbac.matcher");
    }
}

#[test]
fn h5_sv9_17_accepts_and_ignores_shadow_rules_and_statistics() {
    // Fields 2, 3 and 5 of the published message: `shadow_rules` (that cannot be decoded), their prefix, and `shadow_matcher`.
    let bytes = [0x0a, 0x00, 0x12, 0x01, 0xff, 0x1a, 0x01, b'x', 0x2a, 0x00];
    let filter = with_config("a", any(RBAC, bytes.to_vec()));
    let parsed = parse(Side::Server, [filter, router()]).unwrap();
    let EffectiveFilter::Rbac(rules) = parsed[0].effective(None) else { panic!("{parsed:?}") };
    assert_eq!((rules.action, rules.policies.len()), (RbacAction::Allow, 0));
}

#[test]
fn h6_accepts_every_kind_of_permission() {
    let any = || Rule::Any(true);
    for (rule, expected) in [
        // The value of `any` does not matter, as in gRPC.
        (Rule::Any(false), json!("any")),
        (Rule::AndRules(rule_set(vec![any(), any()])), json!({"and_rules": ["any", "any"]})),
        (Rule::OrRules(rule_set(vec![])), json!({"or_rules": []})),
        (not(not(any())), json!({"not_rule": {"not_rule": "any"}})),
        (Rule::UrlPath(path(Some(exact("/a")))), json!({"url_path": {"exact": "/a"}})),
        (Rule::DestinationIp(range("10.1.2.3", 8)), json!({"destination_ip": "10.0.0.0/8"})),
        (Rule::DestinationPort(443), json!({"destination_port": 443})),
        (
            Rule::DestinationPortRange(Int32Range { start: 80, end: 90 }),
            json!({"destination_port_range": {"start": 80, "end": 90}}),
        ),
        (Rule::Metadata(MetadataMatcher { invert: true }), json!({"metadata": {"invert": true}})),
        (Rule::RequestedServerName(exact("")), json!({"requested_server_name": {"exact": ""}})),
    ] {
        assert_eq!(permission(rule), Ok(expected));
    }
}

#[test]
fn h6_accepts_every_kind_of_principal() {
    let any = || Identifier::Any(true);
    let by = |principal_name| Identifier::Authenticated(Authenticated { principal_name });
    let from = json!({"direct_remote_ip": "2001:db8::/32"});
    let range = || range("2001:db8::1", 32);
    for (id, expected) in [
        (Identifier::Any(false), json!("any")),
        (Identifier::AndIds(id_set(vec![])), json!({"and_ids": []})),
        (Identifier::OrIds(id_set(vec![any(), any()])), json!({"or_ids": ["any", "any"]})),
        (not_id(any()), json!({"not_id": "any"})),
        (by(None), json!({"authenticated": {"principal_name": null}})),
        (by(Some(exact("a"))), json!({"authenticated": {"principal_name": {"exact": "a"}}})),
        (Identifier::SourceIp(range()), from.clone()),
        (Identifier::DirectRemoteIp(range()), from.clone()),
        (Identifier::RemoteIp(range()), from),
        (Identifier::UrlPath(path(Some(exact("/a")))), json!({"url_path": {"exact": "/a"}})),
        (Identifier::Metadata(MetadataMatcher { invert: false }), json!({"metadata": {"invert": false}})),
    ] {
        assert_eq!(principal(id), Ok(expected));
    }
}

#[test]
fn h6_rejects_kinds_that_are_not_supported() {
    assert_eq!(error_in(with_rule(None)), "permissions[0]");
    assert_eq!(error_in(with_id(None)), "principals[0]");
    let none = || Permission { rule: None };
    assert_eq!(error_in(with_rule(Some(Rule::NotRule(Box::new(none()))))), "permissions[0].not_rule");
    let set = permission::Set { rules: vec![none()] };
    assert_eq!(error_in(with_rule(Some(Rule::AndRules(set)))), "permissions[0].and_rules.rules[0]");
    let none = Box::new(Principal { identifier: None });
    assert_eq!(error_in(with_id(Some(Identifier::NotId(none)))), "principals[0].not_id");
    // `matcher` and `filter_state`, which proxies have.
    let matcher = Policy::decode(&[0x0a, 2, 0x62, 0][..]).unwrap();
    assert_eq!(policy(matcher).unwrap_err().reason(), "no rule that is supported");
    let state = Policy::decode(&[0x12, 2, 0x62, 0][..]).unwrap();
    assert_eq!(policy(state).unwrap_err().reason(), "no identifier that is supported");
}

#[test]
fn h6_rejects_what_is_nested_too_deep() {
    let nested = |depth| (0..depth).fold(Rule::Any(true), |rule, _| not(rule));
    let filter = |depth| {
        with_config("a", any(RBAC, rules(with_policy(with_rule(Some(nested(depth))))).encode_to_vec()))
    };
    assert_eq!(parse(Side::Server, [filter(80), router()]).unwrap().len(), 2);
    for depth in [100, 1_000] {
        let e = parse(Side::Server, [filter(depth), router()]).unwrap_err();
        assert_eq!(e.path(), "http_filters[0].typed_config", "{depth}");
        assert!(e.reason().starts_with("not a valid message"), "{e}");
    }
}

#[test]
fn h7_accepts_matchers_and_ranges_that_are_valid() {
    let regex = text(MatchPattern::SafeRegex(RegexMatcher { regex: "/[a-z]+".into() }));
    assert_eq!(
        permission(Rule::UrlPath(path(Some(regex)))),
        Ok(json!({"url_path": {"safe_regex": "/[a-z]+"}}))
    );
    // A prefix longer than the address is the whole address, as elsewhere (S20).
    assert_eq!(
        permission(Rule::DestinationIp(range("10.1.2.3", 99))),
        Ok(json!({"destination_ip": "10.1.2.3/32"}))
    );
}

#[test]
fn h7_rejects_matchers_and_ranges_that_are_not() {
    let unset = || HeaderMatcher { name: "x".into(), ..Default::default() };
    let prefix = || text(MatchPattern::Prefix(String::new()));
    for (rule, path) in [
        (Rule::UrlPath(path(None)), "url_path.path"),
        (Rule::UrlPath(path(Some(broken()))), "url_path.path.safe_regex.regex"),
        (Rule::UrlPath(path(Some(prefix()))), "url_path.path.prefix"),
        (Rule::UrlPath(path(Some(StringMatcher::default()))), "url_path.path"),
        (Rule::RequestedServerName(prefix()), "requested_server_name.prefix"),
        (Rule::DestinationIp(range("host", 8)), "destination_ip.address_prefix"),
        (Rule::Header(unset()), "header"),
        (Rule::DestinationPortRange(Int32Range { start: 2, end: 1 }), "destination_port_range"),
    ] {
        assert_eq!(error_in(with_rule(Some(rule))), format!("permissions[0].{path}"));
    }
    let by = |name| Identifier::Authenticated(Authenticated { principal_name: Some(name) });
    for (id, path) in [
        (by(broken()), "authenticated.principal_name.safe_regex.regex"),
        (by(StringMatcher::default()), "authenticated.principal_name"),
        (Identifier::SourceIp(range("", 0)), "source_ip.address_prefix"),
        (Identifier::DirectRemoteIp(range("10.0.0", 8)), "direct_remote_ip.address_prefix"),
        (Identifier::RemoteIp(range("::g", 8)), "remote_ip.address_prefix"),
        (Identifier::UrlPath(path_of_broken()), "url_path.path.safe_regex.regex"),
        (Identifier::Header(unset()), "header"),
    ] {
        assert_eq!(error_in(with_id(Some(id))), format!("principals[0].{path}"));
    }
}

fn path_of_broken() -> PathMatcher {
    path(Some(broken()))
}

/// A logger of the application.
#[derive(Debug, PartialEq, Serialize)]
struct Journal {
    bytes: usize,
}

impl Extension for Journal {
    const TYPE_NAME: &'static str = "example.Journal";

    fn parse(payload: Payload, _: &Context<'_>) -> Result<Self, Invalid> {
        match payload.message()?.len() {
            0 => Err(Invalid::field("bytes", "must be set")),
            bytes => Ok(Self { bytes }),
        }
    }
}

impl AuditLogger for Journal {
    fn log(&self, _: &AuditEvent<'_>) {}
}

impl AuditLoggerExtension for Journal {
    fn logger(&self) -> Arc<dyn AuditLogger> {
        Arc::new(Self { bytes: self.bytes })
    }
}

fn logger(config: Option<Any>, is_optional: bool) -> Logger {
    let audit_logger = TypedExtensionConfig { name: "log".into(), typed_config: config };
    Logger { audit_logger: Some(audit_logger), is_optional }
}

fn audit(condition: i32, loggers: Vec<Logger>, cx: &Context<'_>) -> Result<Value, Invalid> {
    let options = AuditLoggingOptions { audit_condition: condition, logger_configs: loggers };
    let message = pb::Rbac { audit_logging_options: Some(options), ..Default::default() };
    parsed(message, cx).map(|mut rules| rules["audit_logging"].take())
}

#[test]
fn h8_accepts_loggers_that_are_known() {
    let registry = Registry::new().with_audit_logger::<Journal>();
    let cx = Context::new().with_registry(&registry);
    let loggers =
        vec![logger(Some(any(STDOUT, "")), false), logger(Some(any("example.Journal", "xyz")), false)];
    let expected = json!({"condition": "on_deny", "loggers": [
        {"name": "log", "config": "stdout"},
        {"name": "log", "config": {"custom": {"example.Journal": {"bytes": 3}}}},
    ]});
    assert_eq!(audit(1, loggers, &cx), Ok(expected));
    for (number, name) in [(0, "none"), (2, "on_allow"), (3, "on_deny_and_allow")] {
        assert_eq!(audit(number, vec![], &cx), Ok(json!({"condition": name, "loggers": []})));
    }
}

#[test]
fn h8_ignores_optional_loggers_of_unknown_types() {
    let unknown = logger(Some(any("example.Journal", "xyz")), true);
    assert_eq!(audit(3, vec![unknown], &Context::new()).unwrap()["loggers"], json!([]));
}

#[test]
fn h8_rejects_loggers_that_cannot_be_used() {
    let registry = Registry::new().with_audit_logger::<Journal>();
    let cx = Context::new().with_registry(&registry);
    for (bad, path) in [
        (logger(None, true), ""),
        (Logger { audit_logger: None, is_optional: true }, ""),
        (logger(Some(any("x.Unknown", "")), false), ""),
        (logger(Some(any(STDOUT, GARBAGE)), true), ""),
        (logger(Some(typed_struct("xds.type.v3.TypedStruct", STDOUT)), true), ""),
        (logger(Some(any("example.Journal", "")), true), ".bytes"),
    ] {
        let e = audit(0, vec![logger(Some(any(STDOUT, "")), false), bad], &cx).unwrap_err();
        let at = "http_filters[0].typed_config.rules.audit_logging_options";
        assert_eq!(e.path(), format!("{at}.logger_configs[1].audit_logger.typed_config{path}"));
    }
    let e = audit(4, vec![], &cx).unwrap_err();
    assert!(e.to_string().ends_with("audit_logging_options.audit_condition: 4 is no known condition"));
}

#[test]
fn h9_accepts_an_override_without_rules_which_switches_the_filter_off() {
    let mut off = overridden(any(RbacPerRoute::TYPE_NAME, "")).unwrap();
    let off = off.remove(0);
    assert_eq!(off, OverrideSetting::Config(HttpFilterOverride::Rbac(RbacPerRoute { rbac: None })));
    let deny = rules(pb::Rbac { action: 1, ..Default::default() });
    let filter = with_config("f", any(RBAC, deny.encode_to_vec()));
    let parsed = parse(Side::Server, [filter, router()]).unwrap();
    let EffectiveFilter::Rbac(rules) = parsed[0].effective(None) else { panic!("{parsed:?}") };
    assert_eq!(rules.action, RbacAction::Deny);
    assert_eq!(parsed[0].effective(Some(&off)), EffectiveFilter::Nothing);
}

#[test]
fn h9_rejects_an_override_with_bad_rules() {
    let rbac = rules(pb::Rbac { action: 3, ..Default::default() });
    let per_route = filter::RbacPerRoute { rbac: Some(rbac) };
    let e = overridden(any(RbacPerRoute::TYPE_NAME, per_route.encode_to_vec())).unwrap_err();
    assert_eq!(e.to_string(), "typed_per_filter_config[\"f\"].rbac.rules.action: 3 is no known action");
}
