//! Filters that ask external services, which an application must register: rules H11 and H12.

use serde_json::{Value, json};

use super::*;
use crate::{
    config::{AllowedGrpcService, ChannelCredentials},
    pb::{
        envoy::{
            config::{
                common::mutation_rules::v3::HeaderMutationRules as MutationMessage,
                core::v3::{
                    GrpcService, HeaderValue, RuntimeFeatureFlag, RuntimeFractionalPercent,
                    grpc_service::{EnvoyGrpc, GoogleGrpc, TargetSpecifier},
                },
            },
            extensions::filters::http::{
                ext_authz::v3::{
                    ExtAuthz as AuthzMessage, ExtAuthzPerRoute as AuthzRoute, ext_authz::Services,
                    ext_authz_per_route,
                },
                ext_proc::v3::{
                    ExtProcOverrides, ExtProcPerRoute as ProcRoute, ExternalProcessor,
                    HeaderForwardingRules as ForwardingMessage, ProcessingMode as Mode, ext_proc_per_route,
                },
            },
            r#type::{
                matcher::v3::{ListStringMatcher, RegexMatcher, StringMatcher, string_matcher::MatchPattern},
                v3::{FractionalPercent, HttpStatus},
            },
        },
        google::protobuf::{BoolValue, Duration},
    },
};

const TARGET: &str = "dns:///ask.example:443";
const SEND: i32 = 1;
const SKIP: i32 = 2;
const GRPC: i32 = 5;

fn service(target: &str) -> GrpcService {
    let google = GoogleGrpc { target_uri: target.into(), ..Default::default() };
    GrpcService { target_specifier: Some(TargetSpecifier::GoogleGrpc(google)), ..Default::default() }
}

/// A service with everything that only a trusted server may configure.
fn secured() -> GrpcService {
    let google = GoogleGrpc {
        target_uri: "dns:///other:1".into(),
        channel_credentials_plugin: vec![any("x.Tls", "top secret")],
        call_credentials_plugin: vec![any("x.Token", "top secret")],
        ..Default::default()
    };
    let initial_metadata = ["authorization", "x-trace-bin"].map(|key| HeaderValue {
        key: key.into(),
        value: "top secret".into(),
        ..Default::default()
    });
    GrpcService {
        target_specifier: Some(TargetSpecifier::GoogleGrpc(google)),
        timeout: Some(Duration { seconds: 0, nanos: 200_000_000 }),
        initial_metadata: initial_metadata.into(),
    }
}

fn processor() -> ExternalProcessor {
    ExternalProcessor {
        grpc_service: Some(service(TARGET)),
        processing_mode: Some(Mode::default()),
        ..Default::default()
    }
}

fn authz() -> AuthzMessage {
    AuthzMessage { services: Some(Services::GrpcService(service(TARGET))), ..Default::default() }
}

/// Calls `with` with a context that has both filters, and whose bootstrap allows the target.
fn in_context<T>(trusted: bool, with: impl Fn(&Context<'_>) -> T) -> T {
    let registry = Registry::new().with_http_filter::<ExtProc>().with_http_filter::<ExtAuthz>();
    let allowed = AllowedGrpcService::new(ChannelCredentials::Insecure);
    let allowed = [(TARGET.to_owned(), allowed)].into();
    let cx = Context::new().with_registry(&registry).with_allowed_grpc_services(&allowed);
    with(&cx.with_trusted_server(trusted))
}

fn parsed(type_name: &str, message: &impl Message, trusted: bool) -> Result<HttpFilter, Invalid> {
    let filter = with_config("a", any(type_name, message.encode_to_vec()));
    in_context(trusted, |cx| {
        parse_filters(vec![filter.clone(), router()], Side::Client, cx).map(|parsed| parsed[0].clone())
    })
}

/// The settings as JSON.
fn json_of(type_name: &str, message: &impl Message) -> Value {
    let filter = parsed(type_name, message, false).unwrap();
    serde_json::to_value(&filter.config).unwrap()["custom"][type_name].take()
}

/// The path of an error, without that of the filter.
fn path_of(type_name: &str, message: &impl Message) -> String {
    let e = parsed(type_name, message, false).unwrap_err();
    e.path().strip_prefix("http_filters[0].typed_config").unwrap().trim_start_matches('.').to_owned()
}

fn route_setting(message: &impl Message, type_name: &str) -> Result<OverrideSetting, Invalid> {
    let any = any(type_name, message.encode_to_vec());
    in_context(false, |cx| overridden_in("a", any.clone(), cx).map(|mut all| all.remove(0)))
}

const PROC: &str = ExtProc::TYPE_NAME;
const AUTHZ: &str = ExtAuthz::TYPE_NAME;

fn proc(message: &ExternalProcessor) -> ExtProc {
    let filter = parsed(PROC, message, false).unwrap();
    let HttpFilterConfig::Custom(custom) = &filter.config else { panic!("{filter:?}") };
    custom.get::<ExtProc>().unwrap().clone()
}

fn list(pattern: MatchPattern) -> Option<ListStringMatcher> {
    let matcher = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
    Some(ListStringMatcher { patterns: vec![matcher] })
}

fn yes() -> Option<BoolValue> {
    Some(BoolValue { value: true })
}

fn broken_regex() -> RegexMatcher {
    RegexMatcher { regex: "(".into() }
}

#[test]
fn h11_h12_rejects_filters_that_no_application_registers() {
    for (name, bytes) in [(PROC, processor().encode_to_vec()), (AUTHZ, authz().encode_to_vec())] {
        let e = error([with_config("a", any(name, bytes)), router()]);
        assert_eq!(e, format!("http_filters[0]: filter type {name:?} is not supported"));
    }
}

#[test]
fn h11_accepts_a_service_and_a_mode_with_defaults() {
    let expected = json!({
        "grpc_service": {
            "target_uri": TARGET,
            "timeout": null,
            "initial_metadata": [],
            "channel_credentials": [],
            "call_credentials": [],
        },
        "failure_mode_allow": false,
        "processing_mode": {
            "request_headers": true,
            "request_body": false,
            "response_headers": true,
            "response_body": false,
            "response_trailers": false,
        },
        "request_attributes": [],
        "response_attributes": [],
        "mutation_rules": {
            "disallow_all": false,
            "disallow_expression": null,
            "allow_expression": null,
            "disallow_is_error": false,
        },
        "forward_rules": {"allowed_headers": [], "disallowed_headers": []},
        "disable_immediate_response": false,
        "observability_mode": false,
        "deferred_close_timeout": "5s",
    });
    assert_eq!(json_of(PROC, &processor()), expected);
}

#[test]
fn h11_accepts_every_setting() {
    let mode = Mode {
        request_header_mode: SKIP,
        response_header_mode: SEND,
        request_body_mode: GRPC,
        response_body_mode: GRPC,
        response_trailer_mode: SEND,
    };
    let message = ExternalProcessor {
        processing_mode: Some(mode),
        request_attributes: vec!["request.path".into()],
        response_attributes: vec!["response.code".into()],
        failure_mode_allow: true,
        disable_immediate_response: true,
        observability_mode: true,
        deferred_close_timeout: Some(Duration { seconds: 1, nanos: 0 }),
        ..processor()
    };
    let json = json_of(PROC, &message);
    let mode = json!({
        "request_headers": false,
        "request_body": true,
        "response_headers": true,
        "response_body": true,
        "response_trailers": true,
    });
    assert_eq!(json["processing_mode"], mode);
    assert_eq!(
        (&json["request_attributes"][0], &json["response_attributes"][0]),
        (&json!("request.path"), &json!("response.code"))
    );
    for (field, expected) in [
        ("failure_mode_allow", json!(true)),
        ("disable_immediate_response", json!(true)),
        ("observability_mode", json!(true)),
        ("deferred_close_timeout", json!("1s")),
    ] {
        assert_eq!(json[field], expected, "{field}");
    }
}

#[test]
fn h11_rejects_what_is_missing_or_of_no_use() {
    let mode = |mode| ExternalProcessor { processing_mode: Some(mode), ..processor() };
    let close = |seconds| ExternalProcessor {
        deferred_close_timeout: Some(Duration { seconds, nanos: 0 }),
        ..processor()
    };
    let forward = |allowed_headers, disallowed_headers| ExternalProcessor {
        forward_rules: Some(ForwardingMessage { allowed_headers, disallowed_headers }),
        ..processor()
    };
    let mutation = |rules| ExternalProcessor { mutation_rules: Some(rules), ..processor() };
    let empty = || list(MatchPattern::Prefix(String::new()));
    let allow = MutationMessage { allow_expression: Some(broken_regex()), ..Default::default() };
    let disallow = MutationMessage { disallow_expression: Some(broken_regex()), ..Default::default() };
    for (message, path) in [
        (ExternalProcessor { processing_mode: None, ..processor() }, "processing_mode"),
        (ExternalProcessor { grpc_service: None, ..processor() }, "grpc_service"),
        (mode(Mode { request_body_mode: 1, ..Default::default() }), "processing_mode.request_body_mode"),
        (mode(Mode { response_body_mode: 2, ..Default::default() }), "processing_mode.response_body_mode"),
        (
            mode(Mode { response_body_mode: GRPC, ..Default::default() }),
            "processing_mode.response_trailer_mode",
        ),
        (mode(Mode { request_header_mode: 3, ..Default::default() }), "processing_mode.request_header_mode"),
        (close(0), "deferred_close_timeout"),
        (close(-1), "deferred_close_timeout.seconds"),
        (forward(empty(), None), "forward_rules.allowed_headers.patterns[0].prefix"),
        (forward(None, empty()), "forward_rules.disallowed_headers.patterns[0].prefix"),
        (mutation(allow), "mutation_rules.allow_expression.regex"),
        (mutation(disallow), "mutation_rules.disallow_expression.regex"),
    ] {
        assert_eq!(path_of(PROC, &message), path);
    }
    let garbage = with_config("a", any(PROC, GARBAGE));
    let e =
        in_context(false, |cx| parse_filters(vec![garbage.clone(), router()], Side::Client, cx)).unwrap_err();
    assert_eq!(e.path(), "http_filters[0].typed_config");
}

#[test]
fn h11_accepts_overrides_which_change_the_fields_that_they_set() {
    let base = proc(&ExternalProcessor { request_attributes: vec!["a".into()], ..processor() });
    assert_eq!(base.overridden(None), Some(base.clone()));
    let overrides = ExtProcOverrides {
        processing_mode: Some(Mode { request_header_mode: SKIP, ..Default::default() }),
        response_attributes: vec!["b".into()],
        failure_mode_allow: yes(),
        ..Default::default()
    };
    let overrides = ProcRoute { r#override: Some(ext_proc_per_route::Override::Overrides(overrides)) };
    let setting = route_setting(&overrides, ExtProcPerRoute::TYPE_NAME).unwrap();
    let filter = parsed(PROC, &processor(), false).unwrap();
    let EffectiveFilter::Custom { setting: Some(setting), .. } = filter.effective(Some(&setting)) else {
        panic!("{setting:?}");
    };
    let changed = base.overridden(setting.get::<ExtProcPerRoute>()).unwrap();
    let mut expected = base.clone();
    expected.processing_mode.request_headers = false;
    expected.response_attributes = ["b".into()].into();
    expected.failure_mode_allow = true;
    assert_eq!(changed, expected);
    let disabled = ProcRoute { r#override: Some(ext_proc_per_route::Override::Disabled(true)) };
    let OverrideSetting::Config(HttpFilterOverride::Custom(disabled)) =
        route_setting(&disabled, ExtProcPerRoute::TYPE_NAME).unwrap()
    else {
        panic!("not custom");
    };
    assert_eq!(base.overridden(disabled.get::<ExtProcPerRoute>()), None);
    let unset = route_setting(&ProcRoute::default(), ExtProcPerRoute::TYPE_NAME);
    let OverrideSetting::Config(HttpFilterOverride::Custom(unset)) = unset.unwrap() else {
        panic!("not custom")
    };
    assert_eq!(base.overridden(unset.get::<ExtProcPerRoute>()), Some(base));
}

#[test]
fn h11_rejects_bad_overrides() {
    let mode = Mode { response_body_mode: GRPC, ..Default::default() };
    let with_mode = ExtProcOverrides { processing_mode: Some(mode), ..Default::default() };
    let with_service = ExtProcOverrides { grpc_service: Some(service("dns:///x")), ..Default::default() };
    for (overrides, path) in [
        (with_mode, "processing_mode.response_trailer_mode"),
        (with_service, "grpc_service.google_grpc.target_uri"),
    ] {
        let message = ProcRoute { r#override: Some(ext_proc_per_route::Override::Overrides(overrides)) };
        let e = route_setting(&message, ExtProcPerRoute::TYPE_NAME).unwrap_err();
        assert_eq!(e.path(), format!("typed_per_filter_config[\"a\"].overrides.{path}"));
    }
}

fn enabled(numerator: u32) -> Option<RuntimeFractionalPercent> {
    let default_value = Some(FractionalPercent { numerator, denominator: 0 });
    Some(RuntimeFractionalPercent { default_value, ..Default::default() })
}

#[test]
fn h12_accepts_a_service_with_defaults() {
    let json = json_of(AUTHZ, &authz());
    assert_eq!(json["grpc_service"]["target_uri"], TARGET);
    assert_eq!(json["filter_enabled"], json!({"numerator": 100, "denominator": "HUNDRED"}));
    assert_eq!(json["status_on_error"], 403);
    for field in
        ["deny_at_disable", "failure_mode_allow", "failure_mode_allow_header_add", "include_peer_certificate"]
    {
        assert_eq!(json[field], false, "{field}");
    }
}

#[test]
fn h12_accepts_every_setting_on_both_sides() {
    let message = AuthzMessage {
        filter_enabled: enabled(7),
        deny_at_disable: Some(RuntimeFeatureFlag { default_value: yes() }),
        failure_mode_allow: true,
        failure_mode_allow_header_add: true,
        status_on_error: Some(HttpStatus { code: 503 }),
        include_peer_certificate: true,
        allowed_headers: list(MatchPattern::Exact("x-user".into())),
        decoder_header_mutation_rules: Some(MutationMessage { disallow_all: yes(), ..Default::default() }),
        ..authz()
    };
    let json = json_of(AUTHZ, &message);
    assert_eq!(json["filter_enabled"]["numerator"], 7);
    assert_eq!((&json["status_on_error"], &json["deny_at_disable"]), (&json!(503), &json!(true)));
    assert_eq!(json["forward_rules"]["allowed_headers"], json!([{"exact": "x-user"}]));
    assert_eq!(json["mutation_rules"]["disallow_all"], true);
    let filter = with_config("a", any(AUTHZ, message.encode_to_vec()));
    let both = in_context(false, |cx| parse_filters(vec![filter.clone(), router()], Side::Server, cx));
    assert_eq!(both.unwrap().len(), 2);
}

#[test]
fn h12_rejects_what_is_missing_or_of_no_use() {
    let unset = RuntimeFractionalPercent::default();
    let rules = MutationMessage { allow_expression: Some(broken_regex()), ..Default::default() };
    let status = |code| AuthzMessage { status_on_error: Some(HttpStatus { code }), ..authz() };
    for (message, path) in [
        (AuthzMessage::default(), "grpc_service"),
        (AuthzMessage { filter_enabled: Some(unset), ..authz() }, "filter_enabled.default_value"),
        (
            AuthzMessage { deny_at_disable: Some(RuntimeFeatureFlag::default()), ..authz() },
            "deny_at_disable.default_value",
        ),
        (status(-1), "status_on_error.code"),
        (
            AuthzMessage { allowed_headers: list(MatchPattern::Suffix(String::new())), ..authz() },
            "allowed_headers.patterns[0].suffix",
        ),
        (
            AuthzMessage { decoder_header_mutation_rules: Some(rules), ..authz() },
            "decoder_header_mutation_rules.allow_expression.regex",
        ),
    ] {
        assert_eq!(path_of(AUTHZ, &message), path);
    }
}

#[test]
fn h12_accepts_overrides_that_disable() {
    for (disabled, expected) in [(Some(true), true), (Some(false), false), (None, false)] {
        let message = AuthzRoute { r#override: disabled.map(ext_authz_per_route::Override::Disabled) };
        let OverrideSetting::Config(HttpFilterOverride::Custom(setting)) =
            route_setting(&message, ExtAuthzPerRoute::TYPE_NAME).unwrap()
        else {
            panic!("not custom");
        };
        assert_eq!(setting.get::<ExtAuthzPerRoute>().unwrap().disabled, expected);
    }
}

#[test]
fn a102_a_service_of_an_untrusted_server_is_one_that_the_bootstrap_allows() {
    let of = |service| ExternalProcessor { grpc_service: Some(service), ..processor() };
    // What only a trusted server may configure is left out.
    let GrpcService { target_specifier, .. } = service(TARGET);
    let json = json_of(PROC, &of(GrpcService { target_specifier, ..secured() }));
    assert_eq!(json["grpc_service"]["initial_metadata"], json!([]));
    assert_eq!(json["grpc_service"]["timeout"], "0.2s");
    let e = parsed(PROC, &of(service("dns:///other:1")), false).unwrap_err();
    assert_eq!(
        e.to_string(),
        "http_filters[0].typed_config.grpc_service.google_grpc.target_uri: \"dns:///other:1\" is not among the \
         bootstrap's allowed_grpc_services"
    );
}

#[test]
fn a102_a_trusted_server_configures_the_calls_of_a_service() {
    let message = ExternalProcessor { grpc_service: Some(secured()), ..processor() };
    let filter = parsed(PROC, &message, true).unwrap();
    let json = serde_json::to_value(&filter.config).unwrap()["custom"][PROC]["grpc_service"].take();
    let expected = json!({
        "target_uri": "dns:///other:1",
        "timeout": "0.2s",
        "initial_metadata": [{"key": "authorization"}, {"key": "x-trace-bin"}],
        "channel_credentials": [{"type_name": "x.Tls"}],
        "call_credentials": [{"type_name": "x.Token"}],
    });
    assert_eq!(json, expected);
    assert!(!format!("{filter:?}").contains("secret"), "{filter:?}");
    let HttpFilterConfig::Custom(custom) = &filter.config else { panic!("{filter:?}") };
    let service = &custom.get::<ExtProc>().unwrap().grpc_service;
    assert_eq!(service.channel_credentials[0].config, "top secret");
    assert_eq!(service.initial_metadata[0].value, "top secret");
}

#[test]
fn a102_services_that_cannot_be_called_are_rejected() {
    let envoy = Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc::default()));
    let timeout = |seconds| Some(Duration { seconds, nanos: 0 });
    let bare = || service("dns:///other:1");
    let entry = |key: &str, value: &str| GrpcService {
        initial_metadata: vec![HeaderValue { key: key.into(), value: value.into(), ..Default::default() }],
        ..secured()
    };
    for (service, path) in [
        (GrpcService::default(), "google_grpc"),
        (GrpcService { target_specifier: envoy, ..Default::default() }, "envoy_grpc"),
        (service(""), "google_grpc.target_uri"),
        (GrpcService { timeout: timeout(0), ..secured() }, "timeout"),
        (GrpcService { timeout: timeout(-1), ..secured() }, "timeout.seconds"),
        (bare(), "google_grpc.channel_credentials_plugin"),
        (entry("", ""), "initial_metadata[0].key"),
        (entry(":path", ""), "initial_metadata[0].key"),
        (entry("X-Upper", ""), "initial_metadata[0].key"),
        (entry(&"x".repeat(16_385), ""), "initial_metadata[0].key"),
        (entry("x", "\n"), "initial_metadata[0].value"),
        (entry("x-bin", &"x".repeat(16_385)), "initial_metadata[0].value"),
    ] {
        let message = ExternalProcessor { grpc_service: Some(service), ..processor() };
        let e = parsed(PROC, &message, true).unwrap_err();
        assert_eq!(e.path(), format!("http_filters[0].typed_config.grpc_service.{path}"));
    }
}

#[test]
fn a92_headers_are_forwarded_unless_disallowed_or_others_are_allowed() {
    let rules = |allowed_headers, disallowed_headers| {
        let forward_rules = Some(ForwardingMessage { allowed_headers, disallowed_headers });
        proc(&ExternalProcessor { forward_rules, ..processor() }).forward_rules
    };
    let x = || list(MatchPattern::Prefix("x-".into()));
    let secret = || list(MatchPattern::Contains("secret".into()));
    for (rules, plain, allowed, secret) in [
        (rules(None, None), true, true, true),
        (rules(x(), None), false, true, true),
        (rules(None, secret()), true, true, false),
        (rules(x(), secret()), false, true, false),
    ] {
        let seen = ["accept", "x-user", "x-secret"].map(|name| rules.forwards(name));
        assert_eq!(seen, [plain, allowed, secret], "{rules:?}");
    }
}

#[test]
fn a92_headers_are_changed_unless_disallowed_or_others_are_allowed() {
    let regex = |regex: &str| Some(RegexMatcher { regex: regex.into() });
    let rules =
        |rules| proc(&ExternalProcessor { mutation_rules: Some(rules), ..processor() }).mutation_rules;
    let none = MutationMessage::default();
    let allow = MutationMessage { allow_expression: regex("x-.*"), ..none.clone() };
    let disallow = MutationMessage { disallow_expression: regex("x-secret"), ..none.clone() };
    let both = MutationMessage { disallow_expression: regex("x-secret"), ..allow.clone() };
    let all = MutationMessage { disallow_all: yes(), ..allow.clone() };
    for (message, expected) in [
        (none, [true, true, true]),
        (allow, [false, true, true]),
        (disallow, [true, true, false]),
        (both, [false, true, false]),
        (all, [false, false, false]),
    ] {
        let rules = rules(message);
        assert_eq!(["accept", "x-user", "x-secret"].map(|name| rules.allows(name)), expected, "{rules:?}");
        assert!(!rules.allows("host") && !rules.allows(":path"));
    }
}
