use super::*;

fn facts_of<'a>(path: &'a str, plain: &'a ConnectionFacts) -> RequestFacts<'a> {
    RequestFacts::new("GET", path, plain)
}

#[test]
fn sv9_11_ambiguous_paths_are_refused_where_a_policy_matches_paths() {
    let plain = plain();
    let of_paths = [
        rbac("DENY", &json!([{"url_path": {"path": {"prefix": "/admin"}}}]), &json!([{"any": true}])),
        rbac(
            "DENY",
            &json!([{"header": {"name": ":path", "string_match": {"prefix": "/admin"}}}]),
            &json!([{"any": true}]),
        ),
        rbac("DENY", &json!([{"any": true}]), &json!([{"not_id": {"url_path": {"path": {"prefix": "/"}}}}])),
    ];
    let ambiguous = [
        "//admin",
        "/a//b",
        "/./admin",
        "/x/../admin",
        "/x/..",
        "/.",
        "/..",
        "/x/%2e%2E/admin",
        "/.%2e/admin",
        "/x%2Fadmin",
        "/x%2fadmin",
        "/x%5Cadmin",
        "/x\\admin",
        "/x//",
        "/x//?a",
    ];
    let plain_paths = [
        "/",
        "/x",
        "/x/",
        "/...",
        "/x/..a",
        "/.well-known/a",
        "/x?a=//b/../c",
        "/a%20b",
        "/%2e%2e%2e",
        "/a.b",
        "*",
        "",
    ];
    for rbac in &of_paths {
        for path in ambiguous {
            let decision = rbac.decide(&facts_of(path, &plain));
            assert_eq!(decision.malformed, Some(MalformedRequest::AmbiguousPath), "{path}");
            assert!(!decision.allowed);
        }
        for path in plain_paths {
            assert_eq!(rbac.decide(&facts_of(path, &plain)).malformed, None, "{path}");
        }
    }
    let other = allowing(json!({"destination_port": 443}));
    assert!(other.decide(&facts_of("//admin", &plain)).allowed, "no policy matches paths");
}

#[test]
fn sv9_11_ambiguous_paths_of_grpc_are_names_and_the_check_is_a_setting() {
    let (rbac, plain) = (allowing(json!({"url_path": {"path": {"prefix": "/"}}})), plain());
    for (content_type, passes) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc;x", true),
        ("application/grpc-web", false),
        ("application/json", false),
    ] {
        let headers = vec![("content-type", content_type)];
        let facts = facts_of("/a//b", &plain).with_headers(&headers);
        assert_eq!(rbac.decide(&facts).allowed, passes, "{content_type}");
    }
    assert!(rbac.decide(&facts_of("/a//b", &plain).with_strict_path(false)).allowed);
}
