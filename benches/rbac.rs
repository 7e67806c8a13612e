//! What a decision of RBAC costs, beside finding the path in a map, which is the least that an index of paths has to do: `cargo bench
//! --bench rbac`, or with `-- --quick` a short form of it.
//!
//! - *map*: finding the path of the request in a map of 100 paths.
//! - *1 path*, *100 paths*, *10,000 paths*: so many policies for an exact path each; the request is for the last one.
//! - *no path*: 100 policies for exact paths, of which none is that of the request.
//! - *100 prefixes*: as many policies that the index cannot find, which are all looked at.
//! - *headers*: 100 policies for exact paths, each with a rule about one of two headers.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::{collections::BTreeMap, hint::black_box};

use ratio::{Candidate, Rounds};
use serde_json::{Value, json};
use xdskit::rbac::{ConnectionFacts, Rbac, RequestFacts};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let rounds = if quick { 3 } else { 21 };
    let connection = ConnectionFacts::new(([10, 0, 0, 1], 443).into(), ([10, 0, 0, 2], 50_123).into());
    let headers = vec![("content-type", "application/grpc"), ("x-user", "ada"), ("x-team", "shop")];
    let last = path(99);
    let request = RequestFacts::new("POST", &last, &connection).with_headers(&headers);
    let other = RequestFacts::new("POST", "/shop.Cart/Other", &connection).with_headers(&headers);
    let far = path(9_999);
    let far = RequestFacts::new("POST", &far, &connection).with_headers(&headers);

    let map: BTreeMap<_, _> = (0..100).map(|i| (path(i), i)).collect();
    let [one, hundred, many] =
        [(99, 100), (0, 100), (0, 10_000)].map(|(from, to)| of_policies(from..to, exact));
    let (prefixes, with_headers) = (of_policies(0..100, prefix), of_policies(0..100, exact_with_header));
    let candidates = vec![
        Candidate::kept("map", || map.get(black_box(last.as_str()))),
        Candidate::kept("1 path", || one.decide(black_box(&request))),
        Candidate::kept("100 paths", || hundred.decide(black_box(&request))),
        Candidate::kept("10,000 paths", || many.decide(black_box(&far))),
        Candidate::kept("no path", || hundred.decide(black_box(&other))),
        Candidate::kept("100 prefixes", || prefixes.decide(black_box(&request))),
        Candidate::kept("headers", || with_headers.decide(black_box(&request))),
    ];
    assert!(
        hundred.decide(&request).allowed
            && many.decide(&far).allowed
            && with_headers.decide(&request).allowed
    );
    assert!(!hundred.decide(&other).allowed && prefixes.decide(&request).allowed);
    println!("ns per decision, medians of {rounds} rounds in turns; ratio: beside the map\n");
    println!("{:<14}{:>8}{:>10}", "", "ns", "ratio");
    for (name, ns, ratio) in Rounds::of(candidates, rounds).rows() {
        println!("{name:<14}{ns:>8.0}{ratio:>10.2}");
    }
}

/// RBAC that allows by one policy for each number.
fn of_policies(numbers: std::ops::Range<usize>, permission: fn(usize) -> Value) -> Rbac {
    let policy = |i| json!({"permissions": [permission(i)], "principals": [{"any": true}]});
    let policies: serde_json::Map<_, _> = numbers.map(|i| (format!("policy-{i:05}"), policy(i))).collect();
    Rbac::from_json(&json!({"rules": {"policies": policies}}).to_string()).expect("the policies are valid")
}

fn exact(i: usize) -> Value {
    json!({"url_path": {"path": {"exact": path(i)}}})
}

fn prefix(i: usize) -> Value {
    json!({"url_path": {"path": {"prefix": path(i)}}})
}

fn exact_with_header(i: usize) -> Value {
    let (name, value) = if i.is_multiple_of(2) { ("x-user", "ada") } else { ("x-team", "shop") };
    json!({"and_rules": {"rules": [exact(i), {"header": {"name": name, "string_match": {"exact": value}}}]}})
}

fn path(i: usize) -> String {
    format!("/shop.Cart{i:05}/Get")
}
