//! The settings of each kind of filter but RBAC: rules H1, H2, H13 and A55-2.

use serde_json::json;

use super::*;
use crate::pb::{
    envoy::{
        config::core::v3::TypedExtensionConfig,
        extensions::{
            filters::{
                common::fault::v3::{FaultDelay as DelayMessage, fault_delay::FaultDelaySecifier},
                http::{
                    fault::v3::{FaultAbort as AbortMessage, HttpFault, fault_abort::ErrorType},
                    gcp_authn::v3::{GcpAuthnFilterConfig, TokenCacheConfig},
                    stateful_session::v3::{
                        StatefulSession as SessionMessage, StatefulSessionPerRoute as PerRouteMessage,
                        stateful_session_per_route::Override,
                    },
                },
            },
            http::stateful_session::cookie::v3::CookieBasedSessionState,
        },
        r#type::{http::v3::Cookie, v3::FractionalPercent},
    },
    google::protobuf::{Duration, UInt32Value, UInt64Value},
};
use crate::resource::matcher::{Denominator, Fraction};

fn client(type_name: &str, message: &impl Message) -> Result<HttpFilterConfig, Invalid> {
    config(Side::Client, type_name, message)
}

/// As JSON, without what every filter has.
fn json_of(type_name: &str, message: &impl Message) -> serde_json::Value {
    serde_json::to_value(client(type_name, message).unwrap()).unwrap()
}

fn path_of(type_name: &str, message: &impl Message) -> String {
    client(type_name, message).unwrap_err().path().to_owned()
}

#[test]
fn h1_accepts_a_router_and_skips_its_fields() {
    let with_fields = with_config("router", any(ROUTER, [0x08, 1, 0x10, 1].to_vec()));
    let parsed = parse(Side::Client, [with_fields]).unwrap();
    assert_eq!(parsed[0].config, HttpFilterConfig::Router);
}

#[test]
fn h1_rejects_a_router_that_cannot_be_decoded() {
    assert_eq!(error_path([with_config("router", any(ROUTER, GARBAGE))]), "http_filters[0].typed_config");
}

fn percent(numerator: u32, denominator: i32) -> Option<FractionalPercent> {
    Some(FractionalPercent { numerator, denominator })
}

fn delay(kind: FaultDelaySecifier) -> HttpFault {
    let delay = DelayMessage { fault_delay_secifier: Some(kind), percentage: percent(25, 0) };
    HttpFault { delay: Some(delay), ..Default::default() }
}

fn fixed(seconds: i64, nanos: i32) -> HttpFault {
    delay(FaultDelaySecifier::FixedDelay(Duration { seconds, nanos }))
}

fn abort(kind: ErrorType) -> HttpFault {
    let abort = AbortMessage { error_type: Some(kind), percentage: percent(7, 1) };
    HttpFault { abort: Some(abort), ..Default::default() }
}

#[test]
fn h2_accepts_delays_and_aborts_of_each_kind() {
    let delayed = json!({"fixed_delay": "1.5s", "percentage": {"numerator": 25, "denominator": "HUNDRED"}});
    assert_eq!(json_of(FAULT, &fixed(1, 500_000_000))["fault"]["delay"], delayed);
    for (abort_with, expected) in [
        (
            ErrorType::HttpStatus(503),
            json!({"http_status": 503, "percentage": {"numerator": 7, "denominator": "TEN_THOUSAND"}}),
        ),
        (
            ErrorType::GrpcStatus(0),
            json!({"grpc_status": "OK", "percentage": {"numerator": 7, "denominator": "TEN_THOUSAND"}}),
        ),
        (
            ErrorType::GrpcStatus(16),
            json!({"grpc_status": "UNAUTHENTICATED", "percentage": {"numerator": 7, "denominator": "TEN_THOUSAND"}}),
        ),
    ] {
        assert_eq!(json_of(FAULT, &abort(abort_with))["fault"]["abort"], expected);
    }
}

#[test]
fn h2_accepts_faults_that_headers_control() {
    use crate::pb::envoy::extensions::filters::{
        common::fault::v3::fault_delay::HeaderDelay, http::fault::v3::fault_abort::HeaderAbort,
    };
    let HttpFault { delay, .. } = delay(FaultDelaySecifier::HeaderDelay(HeaderDelay {}));
    let HttpFault { abort, .. } = abort(ErrorType::HeaderAbort(HeaderAbort {}));
    let message = HttpFault { delay, abort, max_active_faults: Some(UInt32Value { value: 0 }) };
    let HttpFilterConfig::Fault(fault) = client(FAULT, &message).unwrap() else { panic!("no fault") };
    let expected = Fault {
        delay: Some(FaultDelay {
            kind: DelayKind::HeaderDelay,
            percentage: Fraction::new(25, Denominator::Hundred),
        }),
        abort: Some(FaultAbort {
            kind: AbortKind::HeaderAbort,
            percentage: Fraction::new(7, Denominator::TenThousand),
        }),
        max_active_faults: Some(0),
    };
    assert_eq!(fault, expected);
}

#[test]
fn h2_accepts_a_fault_that_does_nothing() {
    // A delay or failure that is of no kind is none.
    let message = HttpFault {
        delay: Some(DelayMessage { fault_delay_secifier: None, percentage: percent(100, 0) }),
        abort: Some(AbortMessage { error_type: None, percentage: None }),
        max_active_faults: None,
    };
    let nothing = json!({"fault": {"delay": null, "abort": null, "max_active_faults": null}});
    assert_eq!(json_of(FAULT, &message), nothing);
    // Without a percentage, no request is meant.
    let unsaid = AbortMessage { error_type: Some(ErrorType::GrpcStatus(14)), percentage: None };
    let message = HttpFault { abort: Some(unsaid), ..Default::default() };
    assert_eq!(json_of(FAULT, &message)["fault"]["abort"]["percentage"]["numerator"], 0);
}

#[test]
fn h2_rejects_what_no_fault_can_be() {
    for (message, path) in [
        (fixed(-1, 0), "delay.fixed_delay.seconds"),
        (fixed(0, 1_000_000_000), "delay.fixed_delay.nanos"),
        (abort(ErrorType::GrpcStatus(17)), "abort.grpc_status"),
        (abort(ErrorType::GrpcStatus(u32::MAX)), "abort.grpc_status"),
    ] {
        assert_eq!(path_of(FAULT, &message), format!("http_filters[0].typed_config.{path}"));
    }
    let abort = AbortMessage { error_type: None, percentage: percent(1, 3) };
    let unknown = HttpFault { abort: Some(abort), ..Default::default() };
    assert_eq!(path_of(FAULT, &unknown), "http_filters[0].typed_config.abort.percentage.denominator");
}

fn cache(size: Option<u64>) -> GcpAuthnFilterConfig {
    let cache_size = size.map(|value| UInt64Value { value });
    GcpAuthnFilterConfig { cache_config: Some(TokenCacheConfig { cache_size }) }
}

#[test]
fn h13_accepts_a_cache_of_at_least_one_token() {
    for (message, size) in [
        (GcpAuthnFilterConfig::default(), 10),
        (cache(None), 10),
        (cache(Some(1)), 1),
        (cache(Some(u64::MAX)), u64::MAX),
    ] {
        assert_eq!(json_of(GCP_AUTHN, &message), json!({"gcp_authn": {"cache_size": size}}));
    }
}

#[test]
fn h13_rejects_a_cache_without_room() {
    let e = client(GCP_AUTHN, &cache(Some(0))).unwrap_err();
    assert_eq!(e.to_string(), "http_filters[0].typed_config.cache_config.cache_size: must not be 0");
    // Overrides are checked too, though they change nothing (A83-2).
    let e = overridden(any(GCP_AUTHN, cache(Some(0)).encode_to_vec())).unwrap_err();
    assert_eq!(e.path(), "typed_per_filter_config[\"f\"].cache_config.cache_size");
}

const COOKIE_STATE: &str = "envoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionState";

fn session_by(state: Option<Any>) -> SessionMessage {
    let session_state = TypedExtensionConfig { name: "cookie".into(), typed_config: state };
    SessionMessage { session_state: Some(session_state), ..Default::default() }
}

fn by_cookie(name: &str, path: &str, ttl: Option<Duration>) -> SessionMessage {
    let cookie = Some(Cookie { name: name.into(), path: path.into(), ttl });
    session_by(Some(any(COOKIE_STATE, CookieBasedSessionState { cookie }.encode_to_vec())))
}

#[test]
fn a55_2_accepts_sessions_by_a_named_cookie() {
    let ttl = Some(Duration { seconds: 90, nanos: 0 });
    for (message, cookie) in [
        (SessionMessage::default(), json!(null)),
        (by_cookie("id", "", None), json!({"name": "id", "path": "/", "ttl": "0s"})),
        (by_cookie("id", "/shop", ttl), json!({"name": "id", "path": "/shop", "ttl": "90s"})),
    ] {
        assert_eq!(json_of(SESSION, &message), json!({"stateful_session": {"cookie": cookie}}));
    }
}

#[test]
fn a55_2_rejects_sessions_by_anything_else() {
    let negative = Some(Duration { seconds: -1, nanos: 0 });
    for (message, path) in [
        (by_cookie("", "/", None), ".cookie.name"),
        (by_cookie("id", "/", negative), ".cookie.ttl.seconds"),
        (session_by(Some(any(COOKIE_STATE, ""))), ".cookie"),
        (session_by(Some(any(COOKIE_STATE, GARBAGE))), ""),
        (session_by(Some(any("x.HeaderBased", ""))), ""),
        (session_by(None), ""),
    ] {
        let expected = format!("session_state.typed_config{path}");
        assert_eq!(path_of(SESSION, &message), format!("http_filters[0].typed_config.{expected}"));
        let route = PerRouteMessage { r#override: Some(Override::StatefulSession(message)) };
        let e = overridden(any(StatefulSessionPerRoute::TYPE_NAME, route.encode_to_vec())).unwrap_err();
        assert_eq!(e.path(), format!("typed_per_filter_config[\"f\"].stateful_session.{expected}"));
    }
}

#[test]
fn a55_2_accepts_overrides_that_keep_no_sessions() {
    let disabled = PerRouteMessage { r#override: Some(Override::Disabled(true)) };
    let none = StatefulSessionPerRoute { session: None };
    let none = OverrideSetting::Config(HttpFilterOverride::StatefulSession(none));
    for message in [disabled, PerRouteMessage::default()] {
        let setting = overridden(any(StatefulSessionPerRoute::TYPE_NAME, message.encode_to_vec()));
        assert_eq!(setting, Ok(vec![none.clone()]));
    }
}

#[test]
fn a55_2_a_cookie_is_for_the_paths_below_its_own() {
    for (own, path, expected) in [
        ("/", "/shop.Cart/Get", true),
        ("", "/shop.Cart/Get", true),
        ("/shop", "/shop", true),
        ("/shop", "/shop?x=/", true),
        ("/shop", "/shop/cart", true),
        ("/shop", "/shop.Cart/Get", false),
        ("/shop/", "/shop/cart", true),
        ("/shop/", "/shop", false),
        ("/shop", "/", false),
    ] {
        let HttpFilterConfig::StatefulSession(session) =
            client(SESSION, &by_cookie("id", own, None)).unwrap()
        else {
            panic!("no session");
        };
        assert_eq!(session.cookie.unwrap().is_for(path), expected, "{own} {path}");
    }
}

/// Fields of messages that this crate lacks are found by their numbers.
#[test]
fn fields_of_filters_that_channels_do_not_execute_are_remarks() {
    use crate::resource::{Extension, Payload, http_filter::Router, remarks};
    fn fields<T: Extension>(message: &'static [u8]) -> Vec<&'static str> {
        let parse = || T::parse(Payload::Message(message.into()), &Context::new());
        remarks::collect(parse).unwrap().1.not_executed().to_vec()
    }
    assert_eq!(fields::<Fault>(b"\x1a\x01c\x22\x00\x32\x02\x08\x01"), ["HTTPFault.upstream_cluster"]);
    assert_eq!(
        fields::<Router>(b"\x10\x01\x20\x01\x30\x01"),
        ["Router.respect_expected_rq_timeout", "Router.start_child_span"]
    );
    assert_eq!(fields::<GcpAuthn>(b"\x0a\x02\x0a\x00"), ["GcpAuthnFilterConfig.http_uri"]);
}
