use super::*;

#[test]
fn sv9_1_the_first_policy_by_name_with_a_permission_and_a_principal_counts() {
    let any = || json!([{"any": true}]);
    let none = || json!([{"not_rule": {"any": true}}]);
    let policies = json!({
        "c": {"permissions": any(), "principals": any()},
        "b": {"permissions": [{"not_rule": {"any": true}}, exact_path("/b")], "principals": any()},
        "a": {"permissions": none(), "principals": any()},
        "d": {"permissions": any(), "principals": any()},
        "0": {"permissions": any(), "principals": [{"not_id": {"any": true}}]},
    });
    for (action, allowed) in [("ALLOW", true), ("DENY", false)] {
        let rbac = with_policies(action, policies.clone());
        for (path, expected) in [("/b", "b"), ("/x", "c")] {
            let plain = plain();
            let decision = rbac.decide(&RequestFacts::new("POST", path, &plain));
            assert_eq!((decision.allowed, decision.matched_policy), (allowed, Some(expected)));
        }
    }
    for (action, allowed) in [("ALLOW", false), ("DENY", true)] {
        let rbac = rbac(action, &none(), &any());
        let plain = plain();
        let decision = rbac.decide(&RequestFacts::new("POST", "/", &plain));
        assert_eq!((decision.allowed, decision.matched_policy), (allowed, None));
    }
}

#[test]
fn sv9_1_policies_for_exact_paths_and_others_count_in_the_order_of_their_names() {
    let any = json!([{"any": true}]);
    let of = |permission: Value| json!({"permissions": [permission], "principals": any.clone()});
    let prefix = |prefix: &str| json!({"url_path": {"path": {"prefix": prefix}}});
    let rbac = with_policies(
        "ALLOW",
        json!({
            "1": of(exact_path("/a")),
            "2": of(prefix("/a")),
            "3": of(json!({"or_rules": {"rules": [exact_path("/b"), exact_path("/ab"), exact_path("/b")]}})),
            "4": of(json!({"and_rules": {"rules": [{"destination_port": 443}, exact_path("/c")]}})),
            "5": of(json!({"url_path": {"path": {"exact": "/D", "ignore_case": true}}})),
            "6": of(exact_path("/d")),
            "7": of(json!({"or_rules": {"rules": [exact_path("/e"), prefix("/f")]}})),
        }),
    );
    let plain = plain();
    for (path, expected) in [
        ("/a", Some("1")),
        ("/ab", Some("2")),
        ("/b", Some("3")),
        ("/c", Some("4")),
        ("/d", Some("5")),
        ("/e", Some("7")),
        ("/f1", Some("7")),
        ("/g", None),
        ("/a?b", Some("1")),
    ] {
        assert_eq!(rbac.decide(&RequestFacts::new("POST", path, &plain)).matched_policy, expected, "{path}");
    }
}

#[test]
fn sv9_2_without_rules_everything_passes_and_without_policies_or_their_parts_none_matches() {
    for config in [json!({}), json!({"rules": {"action": "LOG", "policies": {"p": {}}}})] {
        assert!(passes(&parse(&config).unwrap(), "/"));
    }
    assert!(passes(&Rbac::from_protobuf(Vec::new()).unwrap(), "/"));
    for (action, passed) in [("ALLOW", false), ("DENY", true)] {
        let any = json!([{"any": true}]);
        assert_eq!(passes(&with_policies(action, json!({})), "/"), passed);
        assert_eq!(passes(&rbac(action, &any, &json!([])), "/"), passed);
        assert_eq!(passes(&rbac(action, &json!([]), &any), "/"), passed);
    }
}

#[test]
fn sv9_4_and_of_nothing_matches_or_of_nothing_does_not_and_not_inverts_the_whole() {
    let any = json!({"any": false});
    let never = json!({"not_rule": {"any": true}});
    for (rule, matches) in [
        (any.clone(), true),
        (never.clone(), false),
        (json!({"not_rule": never}), true),
        (json!({"and_rules": {"rules": []}}), true),
        (json!({"or_rules": {"rules": []}}), false),
        (json!({"and_rules": {"rules": [any, never]}}), false),
        (json!({"or_rules": {"rules": [never, any]}}), true),
        (json!({"not_rule": {"and_rules": {"rules": [any, never]}}}), true),
        (json!({"not_rule": {"or_rules": {"rules": []}}}), true),
    ] {
        assert_eq!(passes(&allowing(rule.clone()), "/"), matches, "{rule}");
        let id = rule
            .to_string()
            .replace("_rules", "_ids")
            .replace("_rule", "_id")
            .replace("\"rules\"", "\"ids\"");
        assert_eq!(passes(&allowing_from(serde_json::from_str(&id).unwrap()), "/"), matches, "{id}");
    }
}

#[test]
fn sv9_11_url_path_is_compared_byte_by_byte_without_query_and_fragment() {
    let rbac = allowing(exact_path("/a/b"));
    for path in ["/a/b", "/a/b?", "/a/b?x=/c", "/a/b#c", "/a/b?x#y", "/a/b#x?y"] {
        assert!(passes(&rbac, path), "{path}");
    }
    for path in ["/a/b/", "/A/b", "/a/%62", "/a/bc", "a/b", "/a"] {
        assert!(!passes(&rbac, path), "{path}");
    }
    let of_principal = allowing_from(exact_path("/a/b"));
    assert!(passes(&of_principal, "/a/b?x") && !passes(&of_principal, "/a"));
}

#[test]
fn sv9_12_addresses_are_those_of_the_sockets_and_ports_are_those_of_the_server() {
    let destination = |prefix: &str, len: u32| {
        allowing(json!({"destination_ip": {"address_prefix": prefix, "prefix_len": len}}))
    };
    let v4 = between("10.0.0.1:443", "192.0.2.9:50123");
    let mapped = between("[::ffff:10.0.0.1]:443", "[::ffff:192.0.2.9]:50123");
    let v6 = between("[2001:db8::1]:80", "[2001:db8::2]:50123");
    for (rbac, expected) in [
        (destination("10.0.0.0", 8), [true, true, false]),
        (destination("::", 0), [false, false, true]),
        (destination("0.0.0.0", 0), [true, true, false]),
        (destination("192.0.2.0", 24), [false, false, false]),
        (allowing(json!({"destination_ip": {"address_prefix": "10.0.0.1"}})), [true, true, false]),
        (allowing(json!({"destination_port": 443})), [true, true, false]),
        (allowing(json!({"destination_port": 50123})), [false, false, false]),
        (allowing(json!({"destination_port": 65_536 + 443})), [false, false, false]),
    ] {
        assert_eq!(
            [&v4, &mapped, &v6].map(|connection| passes_from(&rbac, connection)),
            expected,
            "{rbac:?}"
        );
    }
    for kind in ["source_ip", "direct_remote_ip", "remote_ip"] {
        let from = |prefix: &str, len: u32| {
            allowing_from(json!({kind: {"address_prefix": prefix, "prefix_len": len}}))
        };
        assert_eq!(
            [&v4, &mapped, &v6].map(|connection| passes_from(&from("192.0.2.0", 24), connection)),
            [true, true, false]
        );
        let forwarded = vec![("x-forwarded-for", "203.0.113.1")];
        let facts = RequestFacts::new("POST", "/", &v4).with_headers(&forwarded);
        assert!(!from("203.0.113.0", 24).decide(&facts).allowed, "{kind}");
    }
}

#[test]
fn sv9_13_a_range_of_ports_includes_its_start_and_not_its_end() {
    let rbac = allowing(json!({"destination_port_range": {"start": 80, "end": 90}}));
    for (port, matches) in [(79, false), (80, true), (89, true), (90, false)] {
        assert_eq!(
            passes_from(&rbac, &between(&format!("10.0.0.1:{port}"), "10.0.0.2:85")),
            matches,
            "{port}"
        );
    }
    let empty = allowing(json!({"destination_port_range": {"start": 80, "end": 80}}));
    assert!(!passes_from(&empty, &between("10.0.0.1:80", "10.0.0.2:1")));
    let negative = allowing(json!({"destination_port_range": {"start": -1, "end": 1}}));
    assert!(passes_from(&negative, &between("10.0.0.1:0", "10.0.0.2:1")));
}

#[test]
fn sv9_14_sv9_15_a_peer_has_the_names_of_the_first_kind_in_its_certificate() {
    let named = |name: &str| allowing_from(json!({"authenticated": {"principal_name": {"exact": name}}}));
    let unnamed = allowing_from(json!({"authenticated": {}}));
    let all = TlsFacts::new()
        .with_uri_sans(["spiffe://a/b", "u"])
        .with_dns_sans(["a.example"])
        .with_subject("CN=a");
    let dns = TlsFacts::new().with_dns_sans(["a.example", "b.example"]).with_subject("CN=a");
    let subject = TlsFacts::new().with_subject("CN=a");
    for (tls, names, others) in [
        (all, vec!["spiffe://a/b", "u"], vec!["a.example", "CN=a", ""]),
        (dns, vec!["a.example", "b.example"], vec!["CN=a", "", "A.example"]),
        (subject, vec!["CN=a"], vec!["", "a"]),
        // Neither a certificate nor names in one.
        (TlsFacts::new(), vec![""], vec!["CN=a"]),
    ] {
        let connection = plain().with_tls(tls);
        assert!(passes_from(&unnamed, &connection));
        for name in names {
            assert!(passes_from(&named(name), &connection), "{name:?} {connection:?}");
        }
        for name in others {
            assert!(!passes_from(&named(name), &connection), "{name:?} {connection:?}");
        }
    }
    for rbac in [unnamed, named(""), named("CN=a")] {
        assert!(!passes_from(&rbac, &plain()), "nobody is authenticated in plain text");
    }
}

#[test]
fn sv9_18_sv9_19_an_rbac_is_decided_without_a_server_and_says_what_it_depends_on() {
    assert!(!allowing(exact_path("/a")).reads_connection());
    assert!(!Rbac::from_protobuf(Vec::new()).unwrap().reads_connection());
    for principal in [
        json!({"authenticated": {}}),
        json!({"not_id": {"remote_ip": {"address_prefix": "10.0.0.0", "prefix_len": 8}}}),
    ] {
        assert!(allowing_from(principal).reads_connection());
    }
    let e = Rbac::from_json(r#"{"rules": {"polices": {}}}"#).unwrap_err();
    assert!(e.to_string().contains("polices"), "a field with a typing error is not overlooked: {e}");
    assert!(Rbac::from_json("{").is_err());
    assert!(Rbac::from_protobuf(vec![0x0a, 0x05]).is_err());
}
