//! The list of filters of a listener: rules L11 to L20 and S13.

use serde_json::json;

use super::*;
use crate::pb::envoy::config::core::v3::ExtensionConfigSource;

#[test]
fn l11_accepts_a_router_alone() {
    assert_eq!(names([router()]).unwrap(), ["router"]);
}

#[test]
fn l11_rejects_a_list_without_supported_filters() {
    assert_eq!(error_path([]), "http_filters");
    let only = optional(filter("a", "x.Unknown"));
    let expected = "http_filters: there is no filter that is supported; at least a router is needed";
    assert_eq!(error([only]), expected);
}

#[test]
fn l12_accepts_any_name() {
    assert_eq!(names([filter("héllo /1", FAULT), router()]).unwrap(), ["héllo /1", "router"]);
}

#[test]
fn l12_rejects_an_empty_name() {
    assert_eq!(error([filter("", FAULT), router()]), "http_filters[0].name: must not be empty");
    assert_eq!(error_path([optional(filter("", "x.Unknown")), router()]), "http_filters[0].name");
}

#[test]
fn l13_accepts_a_type_twice_under_two_names() {
    assert_eq!(names([filter("a", FAULT), filter("b", FAULT), router()]).unwrap(), ["a", "b", "router"]);
}

#[test]
fn l13_rejects_a_name_twice() {
    assert_eq!(error_path([filter("a", FAULT), filter("a", FAULT), router()]), "http_filters[1].name");
    // Also when one of the two is not known.
    assert_eq!(
        error_path([optional(filter("a", "x.Unknown")), filter("a", FAULT), router()]),
        "http_filters[1].name"
    );
}

fn lua() -> hcm::HttpFilter {
    filter("lua", "envoy.extensions.filters.http.lua.v3.Lua")
}

#[test]
fn l14_accepts_an_optional_filter_of_an_unknown_type_and_ignores_it() {
    assert_eq!(names([optional(lua()), router()]).unwrap(), ["router"]);
}

#[test]
fn l14_rejects_a_filter_of_an_unknown_type() {
    let expected =
        "http_filters[0]: filter type \"envoy.extensions.filters.http.lua.v3.Lua\" is not supported";
    assert_eq!(error([lua(), router()]), expected);
}

/// Side, and filters that are for the other one.
const OF_OTHER_SIDE: [(Side, &str); 4] =
    [(Side::Client, RBAC), (Side::Server, FAULT), (Side::Server, SESSION), (Side::Server, GCP_AUTHN)];

#[test]
fn l15_s13_accepts_filters_of_the_side() {
    for (other, name) in OF_OTHER_SIDE {
        let side = if other == Side::Client { Side::Server } else { Side::Client };
        assert_eq!(parse(side, [filter("own", name), router()]).unwrap().len(), 2, "{name}");
    }
}

#[test]
fn l15_s13_ignores_optional_filters_of_the_other_side() {
    for (side, name) in OF_OTHER_SIDE {
        // Its configuration is not looked at.
        let other = optional(with_config("other", any(name, GARBAGE)));
        let parsed = parse(side, [other, router()]).unwrap();
        assert_eq!(parsed.iter().map(|filter| &*filter.name).collect::<Vec<_>>(), ["router"], "{name}");
    }
}

#[test]
fn l15_rejects_a_filter_for_servers_in_a_clients_listener() {
    assert_eq!(
        error([filter("rbac", RBAC), router()]),
        "http_filters[0]: filter type \"envoy.extensions.filters.http.rbac.v3.RBAC\" is for servers only"
    );
}

#[test]
fn s13_rejects_a_filter_for_clients_in_a_servers_listener() {
    for name in [FAULT, SESSION, GCP_AUTHN] {
        let e = parse(Side::Server, [filter("a", name), router()]).unwrap_err();
        assert_eq!(e.to_string(), format!("http_filters[0]: filter type {name:?} is for clients only"));
    }
}

#[test]
fn l16_accepts_an_optional_filter_with_a_good_configuration() {
    let fault = optional(with_config("a", any(FAULT, [0x32, 2, 8, 7].to_vec())));
    let parsed = parse(Side::Client, [fault, router()]).unwrap();
    let HttpFilterConfig::Fault(fault) = &parsed[0].config else { panic!("{parsed:?}") };
    assert_eq!(fault.max_active_faults, Some(7));
}

#[test]
fn l16_rejects_a_bad_configuration_even_when_optional() {
    for name in [FAULT, SESSION, GCP_AUTHN, ROUTER] {
        let bad = optional(with_config("a", any(name, GARBAGE)));
        let error = error([bad, router()]);
        assert!(error.starts_with("http_filters[0].typed_config: not a valid message"), "{name}: {error}");
    }
}

const TYPED_STRUCTS: [&str; 2] = ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"];

#[test]
fn l17_accepts_the_type_inside_a_typed_struct() {
    for outer in TYPED_STRUCTS {
        let unknown = optional(with_config("a", typed_struct(outer, "x.Unknown")));
        assert_eq!(names([unknown, router()]).unwrap(), ["router"], "{outer}");
    }
}

#[test]
fn l17_rejects_typed_structs_that_no_filter_reads() {
    for outer in TYPED_STRUCTS {
        let unknown = with_config("a", typed_struct(outer, "x.Unknown"));
        let expected = "http_filters[0]: filter type \"x.Unknown\" is not supported";
        assert_eq!(error([unknown, router()]), expected);
        // A filter that is known is recognised, and does not read JSON.
        let known = optional(with_config("a", typed_struct(outer, FAULT)));
        assert_eq!(error_path([known, router()]), "http_filters[0].typed_config");
        let garbage = optional(with_config("a", any(outer, GARBAGE)));
        assert_eq!(error_path([garbage, router()]), "http_filters[0].typed_config.value");
    }
}

#[test]
fn l18_accepts_one_terminal_filter_at_the_end() {
    // What is dropped behind it does not count.
    let filters = [filter("a", FAULT), router(), optional(filter("x", "x.Unknown"))];
    assert_eq!(names(filters).unwrap(), ["a", "router"]);
}

#[test]
fn l18_rejects_a_terminal_filter_before_the_last_and_a_last_that_is_none() {
    let expected = "http_filters[0]: \"router\" ends the chain but is not the last filter";
    assert_eq!(error([router(), filter("r2", ROUTER)]), expected);
    let expected = "http_filters[0]: the last filter, \"a\", does not end the chain as a router does";
    assert_eq!(error([filter("a", FAULT)]), expected);
    // Positions are those of the message, whatever was dropped.
    let dropped = optional(filter("x", "x.Unknown"));
    assert_eq!(error_path([dropped.clone(), router(), filter("r2", ROUTER)]), "http_filters[1]");
    assert_eq!(error_path([dropped, filter("a", FAULT)]), "http_filters[1]");
}

#[test]
fn l19_accepts_a_disabled_filter_and_marks_it() {
    let disabled = hcm::HttpFilter { disabled: true, ..filter("a", FAULT) };
    let parsed = parse(Side::Client, [disabled, router()]).unwrap();
    assert_eq!(parsed.iter().map(|f| f.disabled).collect::<Vec<_>>(), [true, false]);
    let fault = json!({"fault": {"delay": null, "abort": null, "max_active_faults": null}});
    let json = json!([
        {"name": "a", "config": fault, "disabled": true},
        {"name": "router", "config": "router", "disabled": false},
    ]);
    assert_eq!(serde_json::to_value(parsed).unwrap(), json);
}

#[test]
fn l19_rejects_a_disabled_filter_with_a_bad_configuration() {
    // An override may enable it, so it must be usable.
    let bad = hcm::HttpFilter { disabled: true, ..with_config("a", any(FAULT, GARBAGE)) };
    assert_eq!(error_path([bad, router()]), "http_filters[0].typed_config");
}

fn unset() -> hcm::HttpFilter {
    hcm::HttpFilter { name: "a".into(), ..Default::default() }
}

fn discovered() -> hcm::HttpFilter {
    let discovery = ConfigType::ConfigDiscovery(ExtensionConfigSource::default());
    hcm::HttpFilter { config_type: Some(discovery), ..unset() }
}

#[test]
fn l20_accepts_an_optional_filter_without_configuration_and_ignores_it() {
    for unset in [unset(), discovered()] {
        assert_eq!(names([optional(unset), router()]).unwrap(), ["router"]);
    }
}

#[test]
fn l20_rejects_a_filter_without_configuration() {
    assert_eq!(error([unset(), router()]), "http_filters[0]: typed_config must be set");
    assert_eq!(
        error([discovered(), router()]),
        "http_filters[0]: no type of config_discovery.type_urls is supported"
    );
}
