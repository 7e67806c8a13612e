//! What remains of a filter under an override: A39-6.

use super::*;

/// A filter with an empty configuration of its type.
fn parsed(type_name: &str) -> HttpFilter {
    let side = if type_name == RBAC { Side::Server } else { Side::Client };
    parse(side, [filter("f", type_name), router()]).unwrap()[0].clone()
}

fn setting(type_name: &str, value: &'static [u8]) -> OverrideSetting {
    overridden(any(type_name, value)).unwrap().remove(0)
}

#[test]
fn a39_6_an_override_replaces_the_configuration_of_its_kind_alone() {
    let fault = HttpFilter { disabled: true, ..parsed(FAULT) };
    assert_eq!(fault.effective(None), EffectiveFilter::Nothing);
    // It also enables what the listener has disabled.
    let other = setting(FAULT, &[0x32, 2, 8, 7]);
    let EffectiveFilter::Fault(effective) = fault.effective(Some(&other)) else { panic!("no fault") };
    assert_eq!(effective.max_active_faults, Some(7));
    // One for another kind counts as none.
    let of_session = setting(StatefulSessionPerRoute::TYPE_NAME, &[]);
    assert_eq!(fault.effective(Some(&of_session)), EffectiveFilter::Nothing);
    let enabled = parsed(FAULT);
    assert_eq!(enabled.effective(Some(&of_session)), enabled.effective(None));
    assert_eq!(enabled.effective(Some(&OverrideSetting::Disabled)), EffectiveFilter::Nothing);
}

#[test]
fn a83_2_an_override_of_gcp_authn_changes_nothing() {
    let authn = parsed(GCP_AUTHN);
    // `cache_config { cache_size { value: 3 } }`
    let three = setting(GCP_AUTHN, &[0x1a, 4, 0x0a, 2, 8, 3]);
    let EffectiveFilter::GcpAuthn(effective) = authn.effective(Some(&three)) else { panic!("not GCP") };
    assert_eq!(effective.cache_size, 10);
}

#[test]
fn a55_2_sessions_without_a_cookie_are_not_kept() {
    let session = parsed(SESSION);
    assert_eq!(session.effective(None), EffectiveFilter::Nothing);
    let none = setting(StatefulSessionPerRoute::TYPE_NAME, &[]);
    assert_eq!(session.effective(Some(&none)), EffectiveFilter::Nothing);
}

#[test]
fn a39_6_the_override_of_the_most_specific_level_wins() {
    let level = |overrides: &[(&str, Any)]| {
        let overrides = overrides.iter().map(|(name, any)| ((*name).to_owned(), any.clone()));
        parse_overrides(overrides.collect(), &Context::new()).unwrap()
    };
    // `rbac { rules { action: DENY } }`
    let deny = any(RbacPerRoute::TYPE_NAME, &[0x12, 4, 0x0a, 2, 8, 1][..]);
    let off = any(RbacPerRoute::TYPE_NAME, "");
    let split = level(&[("other", off.clone())]);
    let route = level(&[("f", deny), ("g", wrapped(None, false, true))]);
    let host = level(&[("f", off.clone()), ("h", off)]);
    let levels: [&[FilterOverride]; 3] = [&split, &route, &host];
    let effective = |name: &str, type_name| {
        let filter = HttpFilter { name: name.into(), ..parsed(type_name) };
        let setting = filter.winning_override(&levels)?;
        let effective = filter.effective(Some(setting));
        if effective == EffectiveFilter::Nothing {
            return Some("nothing");
        }
        assert!(matches!(effective, EffectiveFilter::Rbac(_)), "{effective:?}");
        Some("rules")
    };
    assert_eq!(effective("f", RBAC), Some("rules"));
    assert_eq!(effective("g", RBAC), Some("nothing"));
    assert_eq!(effective("h", RBAC), Some("nothing"));
    assert_eq!(effective("other", RBAC), Some("nothing"));
    assert_eq!(effective("nobody", RBAC), None);
    // One for another kind is skipped, on every level.
    assert_eq!(effective("f", FAULT), None);
    assert_eq!(effective("g", FAULT), Some("nothing"));
}
