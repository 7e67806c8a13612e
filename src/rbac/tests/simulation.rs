//! Random policies and requests, beside the plainest reading of the rules.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::{
    model::{self, Request},
    *,
};
use crate::resource::{Context, Extension, Payload, http_filter};

#[test]
fn sv9_1_random_policies_decide_as_the_plainest_reading_of_the_rules() {
    let mut outcomes = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut rng = Rng::with_seed(seed);
        let config = config(&mut rng).to_string();
        let message = crate::format::decode_json(http_filter::Rbac::TYPE_NAME, config.as_bytes()).unwrap();
        assert_eq!(message.warnings, [""; 0], "seed {seed}");
        let parsed = http_filter::Rbac::parse(Payload::Message(message.message), &Context::new());
        let parsed = parsed.unwrap_or_else(|e| panic!("seed {seed}: {e}: {config}"));
        let rules = parsed.rules.as_ref().unwrap();
        let rbac = Rbac::new(&parsed);
        for _ in 0..REQUESTS {
            let request = request(&mut rng);
            let mut facts = RequestFacts::new(request.method, &request.path, &request.connection)
                .with_headers(&request.headers)
                .with_strict_path(false);
            if let Some(authority) = request.authority {
                facts = facts.with_authority(authority);
            }
            let decision = rbac.decide(&facts);
            let decided = match decision.malformed {
                None => Some((decision.allowed, decision.matched_policy.map(str::to_owned))),
                Some(_) => {
                    assert!(!decision.allowed && decision.matched_policy.is_none());
                    None
                }
            };
            let expected = model::decide(rules, &request);
            assert_eq!(decided, expected, "seed {seed}: {request:?} under {config}");
            *outcomes.entry(expected.map(|(allowed, matched)| (allowed, matched.is_some()))).or_insert(0) +=
                1;
        }
    }
    // Each outcome is as frequent as a test of it needs.
    assert_eq!(outcomes.len(), 5, "{outcomes:?}");
    assert!(outcomes.values().all(|count| *count > SEEDS / 8), "{outcomes:?}");
}

fn config(rng: &mut Rng) -> Value {
    let mut policies = serde_json::Map::new();
    for _ in 0..rng.usize(0..5) {
        let permissions: Vec<_> = (0..rng.usize(0..4)).map(|_| rule(rng, 3, false)).collect();
        let principals: Vec<_> = (0..rng.usize(1..4)).map(|_| rule(rng, 2, true)).collect();
        let policy = json!({"permissions": permissions, "principals": principals});
        policies.insert(pick(rng, &["a", "b", "c", "d", "e"]).to_owned(), policy);
    }
    json!({"rules": {"action": pick(rng, &["ALLOW", "DENY"]), "policies": policies}})
}

/// A permission, or a principal.
fn rule(rng: &mut Rng, depth: usize, is_principal: bool) -> Value {
    let mut several =
        || -> Vec<_> { (0..rng.usize(0..4)).map(|_| rule(rng, depth - 1, is_principal)).collect() };
    let (and, or, not, of) = match is_principal {
        false => ("and_rules", "or_rules", "not_rule", "rules"),
        true => ("and_ids", "or_ids", "not_id", "ids"),
    };
    if depth > 0 {
        let rules = several();
        match rng.u8(0..7) {
            0 => return json!({and: {of: rules}}),
            1 | 2 => return json!({or: {of: rules}}),
            3 => return json!({not: rule(rng, depth - 1, is_principal)}),
            _ => {}
        }
    }
    match (rng.u8(0..9), is_principal) {
        (0, _) => json!({"any": true}),
        (1..=2, _) => json!({"header": header(rng)}),
        (3..=5, _) => json!({"url_path": {"path": string(rng, &PATHS)}}),
        (6, _) => json!({"metadata": {"invert": rng.bool()}}),
        (7, false) => match rng.u8(0..4) {
            0 => json!({"destination_ip": range(rng)}),
            1 => json!({"destination_port": pick(rng, &[80, 443])}),
            2 => {
                json!({"destination_port_range": {"start": pick(rng, &[0, 80]), "end": pick(rng, &[80, 443, 444])}})
            }
            _ => json!({"requested_server_name": string(rng, &["", "a"])}),
        },
        (_, false) => json!({"url_path": {"path": {"exact": pick(rng, &PATHS)}}}),
        (7, true) => json!({pick(rng, &["source_ip", "remote_ip", "direct_remote_ip"]): range(rng)}),
        (_, true) => match rng.bool() {
            true => json!({"authenticated": {}}),
            false => json!({"authenticated": {"principal_name": string(rng, &NAMES)}}),
        },
    }
}

fn header(rng: &mut Rng) -> Value {
    let (key, condition) = match rng.u8(0..4) {
        0 => ("present_match", json!(rng.bool())),
        1 => ("range_match", json!({"start": pick(rng, &[-1, 1]), "end": pick(rng, &[1, 17])})),
        _ => ("string_match", string(rng, &VALUES)),
    };
    json!({"name": pick(rng, &HEADERS), key: condition, "invert_match": rng.bool()})
}

/// A matcher that fits some of these texts, and parts of them.
fn string(rng: &mut Rng, texts: &[&str]) -> Value {
    let text = pick(rng, texts);
    let part = &text[rng.usize(0..=text.len())..];
    let ignore_case = rng.bool();
    match rng.u8(0..5) {
        0 if !text.is_empty() => json!({"prefix": text[..1], "ignore_case": ignore_case}),
        1 if !part.is_empty() => json!({"suffix": part, "ignore_case": ignore_case}),
        2 if !part.is_empty() => json!({"contains": part, "ignore_case": ignore_case}),
        3 => json!({"safe_regex": {"regex": format!("{}.*", text.replace(['+', '?', '.'], "."))}}),
        _ => json!({"exact": text, "ignore_case": ignore_case}),
    }
}

fn range(rng: &mut Rng) -> Value {
    let len = pick(rng, &[0, 8, 31, 32, 64, 128]);
    json!({"address_prefix": pick(rng, &ADDRESSES), "prefix_len": len})
}

fn request(rng: &mut Rng) -> Request {
    let address =
        |rng: &mut Rng, port: u16| (pick(rng, &ADDRESSES).parse::<std::net::IpAddr>().unwrap(), port).into();
    let port = pick(rng, &[80, 443]);
    let mut connection = ConnectionFacts::new(address(rng, port), address(rng, 50_123));
    if rng.bool() {
        let mut names = |most| -> Vec<_> { (0..rng.usize(0..most)).map(|_| pick(rng, &NAMES)).collect() };
        let tls = TlsFacts::new().with_uri_sans(names(3)).with_dns_sans(names(3));
        connection = connection.with_tls(tls.with_subject(pick(rng, &NAMES)));
    }
    let query = pick(rng, &["", "", "?a", "#a", "?/a/b"]);
    let headers = (0..rng.usize(0..6)).map(|_| {
        let value = match rng.u8(0..60) {
            0 => vec![b'a', 0xff],
            _ => pick(rng, &VALUES).into(),
        };
        (pick(rng, &HEADERS), value)
    });
    let headers = headers.collect();
    Request {
        method: pick(rng, &["GET", "POST"]),
        path: format!("{}{query}", pick(rng, &PATHS)),
        authority: pick(rng, &[None, Some("a"), Some("A")]),
        headers,
        connection,
    }
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

const PATHS: [&str; 6] = ["/", "/a", "/A", "/a/b", "/p.S/M", "/p.S/N"];
const HEADERS: [&str; 9] = ["x", "X", "y", "x-bin", "te", "connection", ":path", ":method", "host"];
const VALUES: [&str; 10] = ["", "a", "A", "ab", "1", "+16", "YQ==", "GET", "x, y", "/a"];
const NAMES: [&str; 5] = ["", "a", "spiffe://a/b", "CN=a", "A"];
const ADDRESSES: [&str; 6] = ["10.0.0.1", "10.0.0.2", "11.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "::1"];
/// The worlds of a run.
const SEEDS: u64 = 400;
/// The requests in a world.
const REQUESTS: usize = 50;
