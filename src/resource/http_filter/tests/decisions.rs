//! What rules of RBAC say of requests: A41 and A59.

use std::net::SocketAddr;

use crate::resource::{
    http_filter::rbac::{
        AuditCondition, AuditLogger, AuditLoggerConfig, AuditLogging, PeerNames, Permission, Policy,
        Principal, RbacAction, RbacRequest, RbacRules,
    },
    matcher::{Cidr, HeaderCondition, HeaderMatcher, StringMatcher, StringPattern},
};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn range(text: &str) -> Cidr {
    text.parse().unwrap()
}

fn request(path: &str) -> RbacRequest<'_> {
    RbacRequest::new(path, address("10.0.0.7:4000"), address("10.9.9.9:443"))
}

fn text(pattern: StringPattern) -> StringMatcher {
    StringMatcher { pattern, ignore_case: false }
}

fn exact(text: &str) -> StringMatcher {
    self::text(StringPattern::Exact(text.into()))
}

fn header(name: &str, condition: HeaderCondition, invert: bool) -> HeaderMatcher {
    HeaderMatcher { name: name.into(), condition, invert, missing_is_empty: false }
}

fn has(name: &str, value: &str) -> HeaderMatcher {
    header(name, HeaderCondition::Value(exact(value)), false)
}

/// Fits requests for a path, from anybody.
fn for_path(name: &str, path: &str) -> Policy {
    Policy {
        name: name.into(),
        permissions: [Permission::UrlPath(exact(path))].into(),
        principals: [Principal::Any].into(),
    }
}

fn rules(action: RbacAction, policies: Vec<Policy>) -> RbacRules {
    let audit_logging = AuditLogging { condition: AuditCondition::None, loggers: Box::default() };
    RbacRules { action, policies: policies.into(), audit_logging }
}

#[test]
fn a41_rules_allow_or_deny_what_a_policy_fits() {
    let policies = || vec![for_path("a", "/a"), for_path("b", "/b"), for_path("c", "/a")];
    for (action, path, is_allowed, policy) in [
        (RbacAction::Allow, "/a", true, Some("a")),
        (RbacAction::Allow, "/b?x=1", true, Some("b")),
        (RbacAction::Allow, "/c", false, None),
        (RbacAction::Deny, "/a", false, Some("a")),
        (RbacAction::Deny, "/c", true, None),
    ] {
        let rules = rules(action, policies());
        let decision = rules.evaluate(&request(path));
        let name = decision.policy.map(|policy| &*policy.name);
        assert_eq!((decision.is_allowed, name), (is_allowed, policy), "{action:?} {path}");
    }
    // Without a policy nothing is fit.
    assert!(!rules(RbacAction::Allow, vec![]).evaluate(&request("/a")).is_allowed);
    assert!(rules(RbacAction::Deny, vec![]).evaluate(&request("/a")).is_allowed);
}

#[test]
fn a41_a_policy_needs_a_permission_and_a_principal() {
    let nobody = Principal::NotId(Box::new(Principal::Any));
    let nothing = Permission::NotRule(Box::new(Permission::Any));
    let policy = |permissions: &[Permission], principals: &[Principal]| Policy {
        name: "p".into(),
        permissions: permissions.into(),
        principals: principals.into(),
    };
    let (any, anybody) = (Permission::Any, Principal::Any);
    for (policy, expected) in [
        (policy(&[nothing.clone(), any.clone()], &[nobody.clone(), anybody.clone()]), true),
        (policy(std::slice::from_ref(&nothing), std::slice::from_ref(&anybody)), false),
        (policy(std::slice::from_ref(&any), std::slice::from_ref(&nobody)), false),
        (policy(&[], &[anybody]), false),
        (policy(&[any], &[]), false),
    ] {
        assert_eq!(policy.matches(&request("/")), expected, "{policy:?}");
    }
}

#[test]
fn a41_permissions_look_at_what_is_wanted() {
    let (yes, no) = (|| Permission::Any, || Permission::NotRule(Box::new(Permission::Any)));
    for (permission, expected) in [
        (Permission::AndRules([yes(), yes()].into()), true),
        (Permission::AndRules([yes(), no()].into()), false),
        (Permission::AndRules([].into()), true),
        (Permission::OrRules([no(), yes()].into()), true),
        (Permission::OrRules([no(), no()].into()), false),
        (Permission::OrRules([].into()), false),
        (Permission::UrlPath(exact("/a")), true),
        (Permission::UrlPath(exact("/a?x=1")), false),
        (Permission::DestinationIp(range("10.9.0.0/16")), true),
        (Permission::DestinationIp(range("10.0.0.0/16")), false),
        (Permission::DestinationPort(443), true),
        (Permission::DestinationPort(4000), false),
        (Permission::DestinationPort(443 + 65_536), false),
        (Permission::Metadata { invert: false }, false),
        (Permission::Metadata { invert: true }, true),
        (Permission::RequestedServerName(exact("")), true),
        (Permission::RequestedServerName(exact("a.example")), false),
    ] {
        assert_eq!(permission.matches(&request("/a?x=1")), expected, "{permission:?}");
    }
}

#[test]
fn a41_principals_look_at_who_asks() {
    let (yes, no) = (|| Principal::Any, || Principal::NotId(Box::new(Principal::Any)));
    for (principal, expected) in [
        (Principal::AndIds([yes(), yes()].into()), true),
        (Principal::AndIds([yes(), no()].into()), false),
        (Principal::AndIds([].into()), true),
        (Principal::OrIds([no(), yes()].into()), true),
        (Principal::OrIds([no()].into()), false),
        (Principal::OrIds([].into()), false),
        (Principal::DirectRemoteIp(range("10.0.0.0/24")), true),
        (Principal::DirectRemoteIp(range("10.9.0.0/16")), false),
        (Principal::UrlPath(exact("/a")), true),
        (Principal::UrlPath(exact("/b")), false),
        (Principal::Metadata { invert: false }, false),
        (Principal::Metadata { invert: true }, true),
        (Principal::Header(has(":path", "/a")), true),
        (Principal::Header(has("x-user", "ada")), false),
    ] {
        assert_eq!(principal.matches(&request("/a")), expected, "{principal:?}");
    }
}

#[test]
fn a41_3_headers_are_those_of_the_request_and_of_http() {
    let headers =
        [("X-User", "ada"), ("x-user", "bob"), ("te", "trailers"), ("host", "by-header"), ("x-bin", "AAE=")];
    let plain = request("/a?x=1").headers(&headers);
    let named = plain.authority("shop.example").method("GET");
    for (request, name, value) in [
        (plain, "x-user", Some("ada,bob")),
        (plain, "x-bin", Some("AAE=")),
        (plain, "TE", None),
        (plain, "x-none", None),
        (plain, ":path", Some("/a?x=1")),
        (plain, ":method", Some("POST")),
        (plain, ":authority", Some("by-header")),
        (named, ":authority", Some("shop.example")),
        (named, ":method", Some("GET")),
        (request("/"), "x-user", None),
        (request("/"), ":authority", None),
    ] {
        let is_there = Permission::Header(header(name, HeaderCondition::Present(true), false));
        assert_eq!(is_there.matches(&request), value.is_some(), "{name} {request:?}");
        let is_that = Permission::Header(has(name, value.unwrap_or_default()));
        assert_eq!(is_that.matches(&request), value.is_some(), "{name} {request:?}");
        // What is not there fits nothing but that it is not there, inverted or not.
        let inverted = header(name, HeaderCondition::Value(exact("else")), true);
        assert_eq!(Permission::Header(inverted).matches(&request), value.is_some(), "{name}");
        let is_missing = header(name, HeaderCondition::Present(true), true);
        assert_eq!(Permission::Header(is_missing).matches(&request), value.is_none(), "{name}");
    }
}

#[test]
fn a41_4_peers_are_known_by_the_first_kind_of_names_that_they_have() {
    let named = |name: &str| Principal::Authenticated { principal_name: Some(exact(name)) };
    let anyone = Principal::Authenticated { principal_name: None };
    let all = PeerNames { uris: &["spiffe://a", "spiffe://b"], dns_names: &["a.example"], subject: "CN=a" };
    let dns = PeerNames { uris: &[], ..all };
    let subject = PeerNames { dns_names: &[], ..dns };
    let none = PeerNames::default();
    for (peer, fits, fits_not) in [
        (all, &["spiffe://a", "spiffe://b"][..], &["a.example", "CN=a", ""][..]),
        (dns, &["a.example"], &["spiffe://a", "CN=a", ""]),
        (subject, &["CN=a"], &["spiffe://a", "a.example", ""]),
        (none, &[""], &["CN=a"]),
    ] {
        let request = request("/").tls(peer);
        assert!(anyone.matches(&request));
        assert!(fits.iter().all(|name| named(name).matches(&request)), "{peer:?}");
        assert!(!fits_not.iter().any(|name| named(name).matches(&request)), "{peer:?}");
    }
    // Without TLS nobody is known.
    assert!(!anyone.matches(&request("/")) && !named("").matches(&request("/")));
}

#[test]
fn a59_loggers_are_told_of_the_decisions_that_they_want() {
    let logger = AuditLogger { name: "log".into(), config: AuditLoggerConfig::Stdout };
    for (condition, on_deny, on_allow) in [
        (AuditCondition::None, 0, 0),
        (AuditCondition::OnDeny, 1, 0),
        (AuditCondition::OnAllow, 0, 1),
        (AuditCondition::OnDenyAndAllow, 1, 1),
    ] {
        let mut rules = rules(RbacAction::Allow, vec![for_path("a", "/a")]);
        rules.audit_logging = AuditLogging { condition, loggers: [logger.clone()].into() };
        let told = |path: &str| rules.evaluate(&request(path)).loggers.len();
        assert_eq!((told("/b"), told("/a")), (on_deny, on_allow), "{condition:?}");
    }
}

#[test]
fn a_request_is_shown_without_its_headers() {
    let headers = [("authorization", "secret")];
    let shown = format!("{:?}", request("/a").headers(&headers));
    assert!(shown.contains("/a") && !shown.contains("secret"), "{shown}");
}
