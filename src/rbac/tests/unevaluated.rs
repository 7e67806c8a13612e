//! What is accepted and never evaluated, and what is not supported: none is a silent no-op (GHSA-hrxh-6v49-42gf).

use super::*;

/// What becomes of the result of a rule.
type Effect = fn(bool) -> bool;

/// Rules around a rule, with their effect on its result: NOT, OR and AND, and all of them nested.
fn around(rule: &Value) -> Vec<(Value, Effect)> {
    let never = json!({"not_rule": {"any": true}});
    vec![
        (rule.clone(), |holds| holds),
        (json!({"not_rule": rule}), |holds| !holds),
        (json!({"not_rule": {"not_rule": rule}}), |holds| holds),
        (json!({"or_rules": {"rules": [never, rule]}}), |holds| holds),
        (json!({"or_rules": {"rules": [{"any": true}, rule]}}), |_| true),
        (json!({"and_rules": {"rules": [{"any": true}, rule]}}), |holds| holds),
        (json!({"and_rules": {"rules": [never, rule]}}), |_| false),
        (
            json!({"not_rule": {"and_rules": {"rules": [{"or_rules": {"rules": [rule]}}, {"any": true}]}}}),
            |holds| !holds,
        ),
    ]
}

/// The same as a principal.
fn as_principal(rule: &Value) -> Value {
    let text =
        rule.to_string().replace("_rules", "_ids").replace("_rule", "_id").replace("\"rules\"", "\"ids\"");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn sv13_7_sv9_13_metadata_never_matches_and_always_with_invert() {
    for invert in [false, true] {
        for (rule, result) in around(&json!({"metadata": {"invert": invert}})) {
            for (action, passes_if) in [("ALLOW", true), ("DENY", false)] {
                let passed = passes(&rbac(action, &json!([rule]), &json!([{"any": true}])), "/");
                assert_eq!(passed, result(invert) == passes_if, "{action} {rule}");
                let id = as_principal(&rule);
                let passed = passes(&rbac(action, &json!([{"any": true}]), &json!([id])), "/");
                assert_eq!(passed, result(invert) == passes_if, "{action} {id}");
            }
        }
    }
}

#[test]
fn sv13_7_sv9_13_the_requested_server_name_is_empty() {
    for (matcher, holds) in [
        (json!({"exact": ""}), true),
        (json!({"exact": "shop.example"}), false),
        (json!({"prefix": "s"}), false),
        (json!({"safe_regex": {"regex": ".*"}}), true),
        (json!({"safe_regex": {"regex": ".+"}}), false),
    ] {
        for (rule, result) in around(&json!({"requested_server_name": matcher})) {
            let tls = plain().with_tls(TlsFacts::new());
            let rbac = allowing(rule.clone());
            assert_eq!([passes(&rbac, "/"), passes_from(&rbac, &tls)], [result(holds); 2], "{rule}");
        }
    }
}

#[test]
fn sv13_7_sv9_17_what_is_not_supported_is_rejected_wherever_it_is() {
    // A permission without a kind that is known, as one of a newer server is read.
    for unsupported in [json!({}), json!({"header": {"name": "x"}}), json!({"url_path": {}})] {
        for (rule, _) in around(&unsupported) {
            for action in ["ALLOW", "DENY"] {
                for policy in [
                    json!({"permissions": [{"any": true}, rule], "principals": [{"any": true}]}),
                    json!({"permissions": [{"any": true}], "principals": [{"any": true}, as_principal(&rule)]}),
                ] {
                    let config = json!({"rules": {"action": action, "policies": {"p": policy}}});
                    let e = parse(&config).unwrap_err();
                    assert!(e.path().starts_with("rules.policies[\"p\"]."), "{e}");
                }
            }
        }
    }
    for (field, name) in [("condition", "condition"), ("checked_condition", "checked_condition")] {
        let policy = json!({"permissions": [{"any": true}], "principals": [{"any": true}], field: {}});
        let e = parse(&json!({"rules": {"policies": {"p": policy}}})).unwrap_err();
        assert_eq!(e.path(), format!("rules.policies[\"p\"].{name}"));
    }
    assert_eq!(parse(&json!({"matcher": {}})).unwrap_err().path(), "matcher");
}

#[test]
fn sv13_7_rules_at_the_limit_of_nesting_are_decided() {
    // Messages are nested at most 100 deep: RBAC, the rules, an entry of the map and the policy are four of them.
    let nested = |depth: usize| {
        let mut length = Vec::new();
        let mut permission = vec![0x18, 0x01]; // any
        for _ in 0..depth {
            length.clear();
            prost::encoding::encode_varint(permission.len() as u64, &mut length);
            permission = [&[0x42][..], &length, &permission].concat(); // not_rule
        }
        permission
    };
    let rbac = |depth| {
        let field = |tag: u8, value: &[u8]| {
            let mut field = vec![tag];
            prost::encoding::encode_varint(value.len() as u64, &mut field);
            [&field, value].concat()
        };
        let policy = [field(0x0a, &nested(depth)), field(0x12, &[0x18, 0x01])].concat();
        let entry = [field(0x0a, b"p"), field(0x12, &policy)].concat();
        Rbac::from_protobuf(field(0x0a, &field(0x12, &entry)))
    };
    for depth in [90, 91] {
        assert_eq!(passes(&rbac(depth).unwrap(), "/"), depth % 2 == 0);
    }
    for depth in [100, 10_000] {
        assert!(rbac(depth).unwrap_err().reason().starts_with("not a valid message"));
    }
}
