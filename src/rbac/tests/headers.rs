use super::*;

/// A header matcher: `{"name": "x", ..condition}`.
fn header(condition: &Value) -> Value {
    let mut matcher = json!({"name": "x"});
    matcher.as_object_mut().unwrap().extend(condition.as_object().unwrap().clone());
    json!({"header": matcher})
}

fn named(name: &str, exact: &str) -> Rbac {
    allowing(json!({"header": {"name": name, "string_match": {"exact": exact}}}))
}

#[test]
fn sv9_8_truth_table_of_present_and_absent_headers_with_and_without_inversion() {
    // Each condition holds for the first value, and not for the second one.
    for (condition, value, other) in [
        (json!({"string_match": {"exact": "abc"}}), "abc", "ab"),
        (json!({"string_match": {"exact": "ABC", "ignore_case": true}}), "abc", "ab"),
        (json!({"string_match": {"prefix": "ab"}}), "abc", "xab"),
        (json!({"string_match": {"suffix": "bc"}}), "abc", "bcx"),
        (json!({"string_match": {"contains": "b"}}), "abc", "ac"),
        (json!({"string_match": {"safe_regex": {"regex": "[a-c]+"}}}), "abc", "abcd"),
        (json!({"range_match": {"start": "-5", "end": "7"}}), "+6", "7"),
        (json!({"exact_match": "abc"}), "abc", ""),
        (json!({"prefix_match": "ab"}), "abc", "b"),
        (json!({"suffix_match": "bc"}), "abc", "b"),
        (json!({"contains_match": "b"}), "abc", "ac"),
        (json!({"safe_regex_match": {"regex": "abc|d"}}), "d", "abcd"),
    ] {
        for invert in [false, true] {
            let mut inverted = condition.clone();
            inverted["invert_match"] = json!(invert);
            let rbac = allowing(header(&inverted));
            assert_eq!(passes_with(&rbac, &[("x", value)]), !invert, "{inverted}");
            assert_eq!(passes_with(&rbac, &[("x", other)]), invert, "{inverted}");
            assert!(!passes_with(&rbac, &[]), "an absent header never matches: {inverted}");
        }
    }
    for present in [false, true] {
        for invert in [false, true] {
            let rbac = allowing(header(&json!({"present_match": present, "invert_match": invert})));
            assert_eq!(passes_with(&rbac, &[("x", "")]), present != invert);
            assert_eq!(passes_with(&rbac, &[]), present == invert);
        }
    }
}

#[test]
fn sv9_10_a_range_is_of_whole_decimal_integers_of_64_bits() {
    let rbac = allowing(header(&json!({"range_match": {"start": "-9223372036854775808", "end": "10"}})));
    for value in ["0", "-1", "+9", "007", "-9223372036854775808"] {
        assert!(passes_with(&rbac, &[("x", value)]), "{value}");
    }
    for value in ["10", "", " 1", "1 ", "1.0", "1e0", "0x1", "-9223372036854775809", "1,2", "--1"] {
        assert!(!passes_with(&rbac, &[("x", value)]), "{value}");
    }
    let slow = allowing(header(&json!({"string_match": {"safe_regex": {"regex": "(a*)*b"}}})));
    assert!(!passes_with(&slow, &[("x", &"a".repeat(10_000))]), "in linear time");
}

#[test]
fn sv9_5_pseudo_headers_are_those_of_the_request_in_any_case() {
    let plain = plain();
    let headers = vec![
        (":path", "/other"),
        (":method", "PUT"),
        ("host", "other"),
        (":authority", "other"),
        (":status", "200"),
    ];
    let facts =
        RequestFacts::new("GET", "/a?b", &plain).with_headers(&headers).with_authority("shop.example");
    for (name, value) in [
        (":path", "/a?b"),
        (":PATH", "/a?b"),
        (":method", "GET"),
        (":Method", "GET"),
        (":authority", "shop.example"),
        (":AUTHORITY", "shop.example"),
        ("host", "shop.example"),
        ("HoSt", "shop.example"),
    ] {
        assert!(named(name, value).decide(&facts).allowed, "{name}");
    }
    for name in [":status", ":protocol"] {
        assert!(!named(name, "200").decide(&facts).allowed, "{name} is no header of requests");
    }
    let without = RequestFacts::new("GET", "/", &plain).with_headers(&headers);
    assert!(!named("host", "other").decide(&without).allowed, "the authority alone counts");
    for name in [":scheme", "grpc-timeout", ":Scheme", "GRPC-Status"] {
        let nested = json!({"not_rule": {"header": {"name": name, "present_match": true}}});
        let policy = json!({"p": {"permissions": [nested], "principals": [{"any": true}]}});
        parse(&json!({"rules": {"policies": policy}})).unwrap_err();
    }
}

#[test]
fn sv9_6_several_values_are_joined_and_names_have_no_case() {
    let several = [("X", "a"), ("y", "b"), ("x", "c")];
    assert!(passes_with(&named("x", "a,c"), &several));
    assert!(passes_with(&named("X", "a,c"), &several));
    assert!(!passes_with(&named("x", "a"), &several) && !passes_with(&named("x", "a, c"), &several));
    assert!(passes_with(&named("user-agent", "curl"), &[("user-agent", "curl")]));
    assert!(passes_with(
        &named("content-type", "application/grpc+proto"),
        &[("content-type", "application/grpc+proto")]
    ));
}

#[test]
fn sv9_6_binary_headers_are_base64_without_padding() {
    for (values, expected) in [
        (vec!["YQ=="], "YQ"),
        (vec!["YQ"], "YQ"),
        (vec!["YWI=", "YQ=="], "YWI,YQ"),
        (vec!["YWI=,YQ==, Yg=="], "YWI,YQ,Yg"),
        (vec![""], ""),
    ] {
        let headers: Vec<_> = values.into_iter().map(|value| ("x-id-bin", value)).collect();
        assert!(passes_with(&named("x-id-bin", expected), &headers), "{expected}");
    }
    assert!(!passes_with(&named("x-id-bin", "YQ=="), &[("x-id-bin", "YQ==")]));
}

#[test]
fn sv9_7_headers_of_the_hop_are_absent() {
    for name in [
        "te",
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
        "trailer",
        "proxy-authenticate",
        "Proxy-Authorization",
    ] {
        let rbac = allowing(json!({"header": {"name": name, "present_match": true}}));
        assert!(!passes_with(&rbac, &[(name, "a")]), "{name}");
    }
    let named_by = [("x", "a"), ("Connection", "close, X"), ("y", "b")];
    assert!(!passes_with(&named("x", "a"), &named_by) && passes_with(&named("y", "b"), &named_by));
}

#[test]
fn sv9_9_a_matched_header_that_is_not_utf_8_refuses_the_request() {
    let headers: Vec<(&str, &[u8])> = vec![("x", b"a"), ("x", b"\xff"), ("y", b"\xff")];
    let plain = plain();
    let facts = RequestFacts::new("POST", "/", &plain).with_headers(&headers);
    let never_reached = json!({
        "a": {"permissions": [{"any": true}], "principals": [{"any": true}]},
        "b": {"permissions": [header(&json!({"present_match": true}))], "principals": [{"any": true}]},
    });
    for rbac in [with_policies("ALLOW", never_reached.clone()), with_policies("DENY", never_reached)] {
        let decision = rbac.decide(&facts);
        assert_eq!((decision.allowed, decision.matched_policy), (false, None));
        assert_eq!(decision.malformed, Some(MalformedRequest::HeaderNotUtf8("x")));
    }
    assert!(!named("z", "a").decide(&facts).allowed, "other headers do not matter");
    assert_eq!(named("z", "a").decide(&facts).malformed, None);
}
