//! Overrides of filters: rules FO1 to FO6.

use super::*;

const RBAC_PER_ROUTE: &str = RbacPerRoute::TYPE_NAME;
const SESSION_PER_ROUTE: &str = StatefulSessionPerRoute::TYPE_NAME;
const OVERRIDES: [&str; 4] = [FAULT, RBAC_PER_ROUTE, SESSION_PER_ROUTE, GCP_AUTHN];

fn error(any: Any) -> String {
    overridden(any).unwrap_err().to_string()
}

/// An override of a fault filter with a number to know it by.
fn fault() -> Any {
    any(FAULT, [0x32, 2, 8, 7].to_vec())
}

fn is_fault(setting: &[OverrideSetting]) -> bool {
    matches!(
        setting,
        [OverrideSetting::Config(HttpFilterOverride::Fault(fault))] if fault.max_active_faults == Some(7)
    )
}

#[test]
fn fo1_accepts_a_filter_config_and_unwraps_it() {
    assert!(is_fault(&overridden(fault()).unwrap()));
    assert!(is_fault(&overridden(wrapped(Some(fault()), false, false)).unwrap()));
}

#[test]
fn fo1_rejects_a_filter_config_that_cannot_be_decoded() {
    let error = error(any(FILTER_CONFIG, GARBAGE));
    assert!(error.starts_with("typed_per_filter_config[\"f\"].value: not a valid message"), "{error}");
}

#[test]
fn fo2_ignores_optional_overrides_of_unknown_types() {
    assert_eq!(overridden(wrapped(Some(any("x.Unknown", "")), true, false)), Ok(vec![]));
    assert_eq!(overridden(wrapped(None, true, false)), Ok(vec![]));
}

#[test]
fn fo2_accepts_overrides_of_known_types() {
    for name in OVERRIDES {
        let setting = overridden(any(name, "")).unwrap();
        assert!(matches!(&*setting, [OverrideSetting::Config(_)]), "{name}: {setting:?}");
    }
}

#[test]
fn fo2_rejects_overrides_of_unknown_types() {
    let expected = "typed_per_filter_config[\"f\"]: type \"x.Unknown\" is not supported";
    assert_eq!(error(any("x.Unknown", "")), expected);
    assert_eq!(error(wrapped(Some(any("x.Unknown", "")), false, false)), expected);
}

#[test]
fn fo3_accepts_good_overrides_that_are_optional() {
    assert!(is_fault(&overridden(wrapped(Some(fault()), true, false)).unwrap()));
}

#[test]
fn fo3_rejects_a_bad_override_even_when_optional() {
    for name in OVERRIDES {
        let error = error(wrapped(Some(any(name, GARBAGE)), true, false));
        assert!(error.starts_with("typed_per_filter_config[\"f\"]: not a valid message"), "{name}: {error}");
    }
}

#[test]
fn fo4_accepts_a_disabled_override_whatever_else_it_holds() {
    for config in [None, Some(fault()), Some(any(FAULT, GARBAGE)), Some(any("x.Unknown", ""))] {
        assert_eq!(overridden(wrapped(config, false, true)), Ok(vec![OverrideSetting::Disabled]));
    }
}

#[test]
fn fo4_rejects_an_override_that_is_neither_disabled_nor_anything_else() {
    let expected = "typed_per_filter_config[\"f\"]: there is no configuration";
    assert_eq!(error(wrapped(None, false, false)), expected);
}

#[test]
fn fo5_rejects_an_override_of_a_router() {
    let expected =
        format!("typed_per_filter_config[\"f\"]: {ROUTER:?} configures a filter but overrides none");
    assert_eq!(error(any(ROUTER, "")), expected);
    assert_eq!(error(wrapped(Some(any(ROUTER, "")), true, false)), expected);
    // Nor is a filter overridden by a message that only configures it.
    for name in [RBAC, SESSION] {
        let path = overridden(wrapped(Some(any(name, "")), true, false)).unwrap_err().path().to_owned();
        assert_eq!(path, "typed_per_filter_config[\"f\"]", "{name}");
    }
}

#[test]
fn fo5_accepts_that_a_router_is_disabled() {
    // It needs no configuration of its own, and whoever applies it knows that a router does not end.
    let disabled = overridden_in("router", wrapped(None, false, true), &Context::new());
    assert_eq!(disabled, Ok(vec![OverrideSetting::Disabled]));
}

#[test]
fn fo6_accepts_names_that_no_filter_has() {
    // The filters are configured in another resource (A39-5).
    assert!(is_fault(&overridden_in("nobody", fault(), &Context::new()).unwrap()));
}

#[test]
fn fo6_rejects_an_empty_name() {
    // As gRPC's C core does.
    let e = overridden_in("", fault(), &Context::new()).unwrap_err();
    assert_eq!(e.to_string(), "typed_per_filter_config[\"\"]: the name of the filter is empty");
}
