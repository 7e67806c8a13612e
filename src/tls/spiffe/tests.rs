//! CH7.11: SPIFFE ids and maps of trust bundles.

use serde_json::json;

use super::*;
use crate::tls::fixture::Ca;

#[test]
fn ch7_11_a_spiffe_id_has_a_domain_and_a_path() {
    for good in ["spiffe://a/b", "spiffe://example.org/ns/x/sa/Y_1.2-3", "spiffe://a_b-1.c/..."] {
        assert_eq!(SpiffeId::parse(good).unwrap().as_str(), good);
    }
    assert_eq!(SpiffeId::parse("spiffe://example.org/ns/x").unwrap().domain(), "example.org");
    for bad in [
        "",
        "spiffe:",
        "spiffe://",
        "spiffe:///a",
        "spiffe://a",
        "spiffe://a/",
        "spiffe://a/b/",
        "spiffe://a//b",
        "spiffe://a/./b",
        "spiffe://a/..",
        "Spiffe://a/b",
        "https://a/b",
        "spiffe://A/b",
        "spiffe://a:443/b",
        "spiffe://u@a/b",
        "spiffe://a/b?c",
        "spiffe://a/b#c",
        "spiffe://a/%41",
        "spiffe://a/ä",
        "spiffe://a b/c",
        "spiffe://ä/b",
        " spiffe://a/b",
        "spiffe://a/b\n",
    ] {
        assert!(SpiffeId::parse(bad).is_err(), "{bad:?}");
    }
    let domain = |length| format!("spiffe://{}/b", "a".repeat(length));
    assert!(SpiffeId::parse(&domain(255)).is_ok() && SpiffeId::parse(&domain(256)).is_err());
    let id = |length: usize| format!("spiffe://a/{}", "b".repeat(length - "spiffe://a/".len()));
    assert!(SpiffeId::parse(&id(2048)).is_ok() && SpiffeId::parse(&id(2049)).is_err());
}

fn parse(map: &Value) -> Result<TrustBundleMap, String> {
    TrustBundleMap::parse(map.to_string().as_bytes())
}

#[test]
fn ch7_11_a_map_has_the_roots_of_each_domain_and_may_be_empty() {
    let map =
        parse(&json!({ "trust_domains": { "a.org": Ca::new().bundle(), "b": { "keys": [] }, "c": {} } }));
    let map = map.unwrap();
    assert_eq!(map.domains().collect::<Vec<_>>(), ["a.org", "b", "c"]);
    assert_eq!(map.roots("a.org").unwrap().len(), 1);
    assert!(map.roots("b").unwrap().is_empty() && map.roots("x").is_none());
    assert_eq!(parse(&json!({ "trust_domains": {} })).unwrap().domains().len(), 0);
}

#[test]
fn ch7_11_one_bad_key_makes_the_whole_map_unusable_and_is_named() {
    let good = Ca::new().bundle()["keys"][0].clone();
    let with = |field: &str, value: Value| {
        let mut key = good.clone();
        key[field] = value;
        key
    };
    let without = |field: &str| {
        let mut key = good.clone();
        key.as_object_mut().unwrap().remove(field);
        key
    };
    let x5c = good["x5c"][0].clone();
    for (key, reason) in [
        (json!(1), ": expected an object"),
        (without("kty"), ".kty: missing"),
        (with("kty", json!("")), ".kty: missing"),
        (without("use"), ".use: missing"),
        (with("use", json!("jwt-svid")), ".use: \"jwt-svid\" is not supported, only \"x509-svid\""),
        (without("x5c"), ".x5c: missing"),
        (with("x5c", json!([])), ".x5c: must be one certificate"),
        (with("x5c", json!([x5c, x5c])), ".x5c: must be one certificate"),
        (with("x5c", json!([1])), ".x5c: must be one certificate"),
        (with("x5c", json!(["?"])), ".x5c[0]: not base64: "),
        (with("x5c", json!(["AAAA"])), ".x5c[0]: a certificate that cannot be used: "),
    ] {
        let error = parse(&json!({ "trust_domains": { "a": { "keys": [good, key] } } })).unwrap_err();
        let expected = format!("trust_domains[\"a\"].keys[1]{reason}");
        assert!(error.starts_with(&expected), "{error:?} is not {expected:?}");
    }
}

#[test]
fn ch7_11_a_map_that_is_malformed_is_an_error_with_its_place() {
    for (map, expected) in [
        (json!({}), "trust_domains: missing"),
        (json!([]), "trust_domains: missing"),
        (json!({ "trust_domains": [] }), "trust_domains: expected an object"),
        (json!({ "trust_domains": { "A": {} } }), "trust_domains[\"A\"]: the trust domain has a character"),
        (json!({ "trust_domains": { "": {} } }), "trust_domains[\"\"]: the trust domain must have"),
        (json!({ "trust_domains": { "a": 1 } }), "trust_domains[\"a\"]: expected an object"),
        (json!({ "trust_domains": { "a": { "keys": {} } } }), "trust_domains[\"a\"].keys: expected an array"),
    ] {
        let error = parse(&map).unwrap_err();
        assert!(error.starts_with(expected), "{error:?} is not {expected:?}");
    }
    assert!(TrustBundleMap::parse(b"{\"trust_domains\": {").unwrap_err().starts_with("not JSON: "));
}
