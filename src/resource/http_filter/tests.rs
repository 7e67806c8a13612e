use serde_json::json;

use super::*;
use crate::pb::{
    envoy::{
        config::{core::v3::ExtensionConfigSource, core::v3::TypedExtensionConfig, rbac::v3 as rules},
        r#type::http::v3::Cookie,
    },
    google::protobuf::Duration,
    xds::r#type::v3::TypedStruct,
};

const ROUTER: &str = HttpFilterKind::Router.config_type();
const FAULT: &str = HttpFilterKind::Fault.config_type();
const RBAC: &str = HttpFilterKind::Rbac.config_type();
const RBAC_PER_ROUTE: &str = "envoy.extensions.filters.http.rbac.v3.RBACPerRoute";
const SESSION: &str = HttpFilterKind::StatefulSession.config_type();
const GARBAGE: &[u8] = &[0xff];

fn any(name: &str, value: impl Into<Bytes>) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: value.into() }
}

fn filter(name: &str, type_name: &str) -> hcm::HttpFilter {
    hcm::HttpFilter {
        name: name.into(),
        config_type: Some(ConfigType::TypedConfig(any(type_name, ""))),
        ..Default::default()
    }
}

fn router() -> hcm::HttpFilter {
    filter("router", ROUTER)
}

fn optional(filter: hcm::HttpFilter) -> hcm::HttpFilter {
    hcm::HttpFilter { is_optional: true, ..filter }
}

fn client(filters: impl IntoIterator<Item = hcm::HttpFilter>) -> Result<Vec<String>, Invalid> {
    let parsed = parse_filters(filters.into_iter().collect(), Side::Client)?;
    Ok(parsed.iter().map(|filter| filter.name.to_string()).collect())
}

fn client_path(filters: impl IntoIterator<Item = hcm::HttpFilter>) -> String {
    client(filters).unwrap_err().path().to_owned()
}

#[test]
fn l11_there_is_at_least_one_filter_after_optional_ones_are_dropped() {
    assert_eq!(client_path([]), "http_filters");
    assert_eq!(client_path([optional(filter("a", "x.Unknown"))]), "http_filters");
    assert_eq!(client([router()]).unwrap(), ["router"]);
}

#[test]
fn l12_filters_have_names() {
    assert_eq!(client_path([filter("", FAULT), router()]), "http_filters[0].name");
}

#[test]
fn l13_names_are_unique_and_types_need_not_be() {
    assert_eq!(client_path([filter("a", FAULT), filter("a", FAULT), router()]), "http_filters[1].name");
    assert_eq!(client([filter("a", FAULT), filter("b", FAULT), router()]).unwrap().len(), 3);
}

#[test]
fn l14_unknown_types_are_ignored_only_when_optional() {
    let unknown = filter("lua", "envoy.extensions.filters.http.lua.v3.Lua");
    let error = client([unknown.clone(), router()]).unwrap_err();
    assert_eq!(error.path(), "http_filters[0]");
    assert!(error.reason().contains("lua.v3.Lua"), "{error}");
    assert_eq!(client([optional(unknown), router()]).unwrap(), ["router"]);
}

#[test]
fn l15_s13_filters_of_the_other_side_are_ignored_only_when_optional() {
    for (side, name) in [(Side::Client, RBAC), (Side::Server, FAULT), (Side::Server, SESSION)] {
        let other = filter("other", name);
        assert!(parse_filters(vec![other.clone(), router()], side).is_err(), "{side:?} {name}");
        assert_eq!(parse_filters(vec![optional(other), router()], side).unwrap().len(), 1);
    }
    assert_eq!(parse_filters(vec![filter("rbac", RBAC), router()], Side::Server).unwrap().len(), 2);
}

#[test]
fn l16_a_bad_configuration_is_rejected_even_when_optional() {
    for name in [FAULT, SESSION, ROUTER] {
        let config_type = Some(ConfigType::TypedConfig(any(name, GARBAGE)));
        let bad = optional(hcm::HttpFilter { config_type, ..filter("a", name) });
        assert_eq!(client_path([bad, router()]), "http_filters[0].typed_config", "{name}");
    }
}

#[test]
fn l17_the_type_is_the_one_inside_a_typed_struct() {
    let typed = |inner: &str| {
        let typed = TypedStruct { type_url: format!("type.googleapis.com/{inner}"), value: None };
        let config_type = ConfigType::TypedConfig(any("xds.type.v3.TypedStruct", typed.encode_to_vec()));
        hcm::HttpFilter { config_type: Some(config_type), ..filter("a", "") }
    };
    assert!(client([optional(typed("x.Unknown")), router()]).is_ok());
    assert!(client([typed("x.Unknown"), router()]).unwrap_err().reason().contains("x.Unknown"));
    // A known filter is recognised, and cannot read JSON.
    assert_eq!(client_path([optional(typed(FAULT)), router()]), "http_filters[0].typed_config");
    let config_type = Some(ConfigType::TypedConfig(any("xds.type.v3.TypedStruct", GARBAGE)));
    let garbage = optional(hcm::HttpFilter { config_type, ..filter("a", "") });
    assert_eq!(client_path([garbage, router()]), "http_filters[0].typed_config.value");
}

#[test]
fn l18_a_terminal_filter_is_last_and_the_last_is_terminal() {
    assert_eq!(client_path([router(), filter("r2", ROUTER)]), "http_filters[0]");
    assert_eq!(client_path([filter("a", FAULT)]), "http_filters[0]");
    // Positions are those of the message, whatever was dropped.
    let dropped = optional(filter("x", "x.Unknown"));
    assert_eq!(client_path([dropped.clone(), router(), filter("r2", ROUTER)]), "http_filters[1]");
    assert_eq!(client_path([dropped, filter("a", FAULT)]), "http_filters[1]");
}

#[test]
fn l19_disabled_is_kept_for_whoever_applies_the_filter() {
    let disabled = hcm::HttpFilter { disabled: true, ..filter("a", FAULT) };
    let parsed = parse_filters(vec![disabled, router()], Side::Client).unwrap();
    assert_eq!(parsed.iter().map(|f| f.disabled).collect::<Vec<_>>(), [true, false]);
    let json = json!([
        {"name": "a", "kind": "fault", "disabled": true},
        {"name": "router", "kind": "router", "disabled": false},
    ]);
    assert_eq!(serde_json::to_value(parsed).unwrap(), json);
}

#[test]
fn l20_a_configuration_is_required_unless_optional() {
    let discovery = Some(ConfigType::ConfigDiscovery(ExtensionConfigSource::default()));
    for config_type in [None, discovery] {
        let unset = hcm::HttpFilter { name: "a".into(), config_type, ..Default::default() };
        assert_eq!(client_path([unset.clone(), router()]), "http_filters[0]");
        assert!(client([optional(unset), router()]).is_ok());
    }
}

#[test]
fn h5_rbac_has_a_known_action() {
    for (action, good) in [(0, true), (1, true), (2, true), (3, false)] {
        let rbac = Rbac { rules: Some(rules::Rbac { action }) };
        assert_eq!(HttpFilterKind::Rbac.check(rbac.encode_to_vec().into()).is_ok(), good, "{action}");
    }
}

#[test]
fn a55_2_sessions_are_kept_by_a_named_cookie() {
    let session = |name: &str, value: Vec<u8>| StatefulSession {
        session_state: Some(TypedExtensionConfig {
            name: "cookie".into(),
            typed_config: Some(any(name, value)),
        }),
        ..Default::default()
    };
    let cookie = |name: &str, seconds| {
        let ttl = Some(Duration { seconds, nanos: 0 });
        let cookie = Some(Cookie { name: name.into(), ttl, ..Default::default() });
        CookieBasedSessionState { cookie }.encode_to_vec()
    };
    for (session, path) in [
        (StatefulSession::default(), None),
        (session(COOKIE_STATE, cookie("id", 0)), None),
        (session(COOKIE_STATE, cookie("", 0)), Some("session_state.typed_config.cookie.name")),
        (session(COOKIE_STATE, cookie("id", -1)), Some("session_state.typed_config.cookie.ttl.seconds")),
        (session(COOKIE_STATE, Vec::new()), Some("session_state.typed_config.cookie.name")),
        (session("x.HeaderBased", Vec::new()), Some("session_state.typed_config")),
    ] {
        let bytes = Bytes::from(session.encode_to_vec());
        let checked = HttpFilterKind::StatefulSession.check(bytes);
        assert_eq!(checked.err().as_ref().map(Invalid::path), path);
        let per_route = StatefulSessionPerRoute { r#override: Some(Override::StatefulSession(session)) };
        let checked = HttpFilterKind::StatefulSession.check_override(per_route.encode_to_vec().into());
        assert_eq!(checked.is_err(), path.is_some());
    }
}

fn overrides(filter: &str, any: Any) -> Result<Vec<OverrideSetting>, Invalid> {
    let parsed = parse_overrides(BTreeMap::from([(filter.to_owned(), any)]))?;
    Ok(parsed.iter().map(|o| o.setting.clone()).collect())
}

fn wrapped(config: Option<Any>, is_optional: bool, disabled: bool) -> Any {
    any(FILTER_CONFIG, FilterConfig { config, is_optional, disabled }.encode_to_vec())
}

fn fault_override() -> OverrideSetting {
    OverrideSetting::Config { kind: HttpFilterKind::Fault, config: Bytes::new() }
}

#[test]
fn fo1_a_filter_config_is_unwrapped() {
    assert_eq!(overrides("f", any(FAULT, "")), Ok(vec![fault_override()]));
    assert_eq!(overrides("f", wrapped(Some(any(FAULT, "")), false, false)), Ok(vec![fault_override()]));
    let error = overrides("f", any(FILTER_CONFIG, GARBAGE)).unwrap_err();
    assert_eq!(error.path(), "typed_per_filter_config[\"f\"].value");
}

#[test]
fn fo2_unknown_types_are_ignored_only_when_optional() {
    let unknown = any("x.Unknown", "");
    let error = overrides("f", unknown.clone()).unwrap_err();
    assert_eq!(error.path(), "typed_per_filter_config[\"f\"]");
    assert!(overrides("f", wrapped(Some(unknown.clone()), false, false)).is_err());
    assert_eq!(overrides("f", wrapped(Some(unknown), true, false)), Ok(vec![]));
    assert!(overrides("f", wrapped(None, false, false)).is_err());
    assert_eq!(overrides("f", wrapped(None, true, false)), Ok(vec![]));
}

#[test]
fn fo3_a_bad_configuration_is_rejected_even_when_optional() {
    for name in [FAULT, RBAC_PER_ROUTE, HttpFilterKind::StatefulSession.override_type().unwrap()] {
        assert!(overrides("f", wrapped(Some(any(name, "")), true, false)).is_ok(), "{name}");
        assert!(overrides("f", wrapped(Some(any(name, GARBAGE)), true, false)).is_err(), "{name}");
    }
}

#[test]
fn fo4_a_disabled_filter_needs_no_configuration() {
    assert_eq!(overrides("f", wrapped(None, false, true)), Ok(vec![OverrideSetting::Disabled]));
}

#[test]
fn fo5_a_router_is_not_overridden_nor_is_a_filter_by_its_own_configuration() {
    for name in [ROUTER, RBAC, SESSION] {
        assert!(overrides("f", wrapped(Some(any(name, "")), true, false)).is_err(), "{name}");
    }
}

#[test]
fn fo6_an_override_names_its_filter() {
    assert!(overrides("", any(FAULT, "")).is_err());
}

#[test]
fn h9_an_rbac_override_without_rules_switches_it_off() {
    let config = Bytes::new();
    let off = OverrideSetting::Config { kind: HttpFilterKind::Rbac, config };
    assert_eq!(overrides("f", any(RBAC_PER_ROUTE, "")), Ok(vec![off]));
}
