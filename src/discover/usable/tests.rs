#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    error::Code,
    pb::{
        envoy::config::{
            core::v3::{HealthStatus, Metadata},
            endpoint::v3::{LbEndpoint, lb_endpoint::HostIdentifier},
        },
        google::protobuf::{Struct, UInt32Value, Value, value::Kind},
    },
    resolve::fixture::{self, Draft, assignment, error, locality},
    resource::{Cluster, ClusterLoadAssignment, Listener},
};

#[test]
fn the_healthy_endpoints_of_the_first_priority_that_has_any_are_used() {
    let mut usable = Usable::default();
    let mut step = |priorities: &[&[&str]]| update(&mut usable, &seen(draft().eds("cart", priorities)));
    assert_eq!(
        step(&[&["10.0.0.1:80", "10.0.0.2:80 HEALTHY"], &["10.0.1.1:80"]]),
        "+10.0.0.1:80 +10.0.0.2:80"
    );
    assert_eq!(step(&[&["10.0.0.1:80 DRAINING", "10.0.0.2:80"], &["10.0.1.1:80"]]), "-10.0.0.1:80");
    assert_eq!(
        step(&[&["10.0.0.1:80 TIMEOUT", "10.0.0.2:80 UNHEALTHY"], &["10.0.1.1:80"]]),
        "+10.0.1.1:80 -10.0.0.2:80"
    );
    assert_eq!(
        step(&[&["10.0.0.1:80 DEGRADED"], &["10.0.1.1:80 UNHEALTHY"]]),
        "-10.0.1.1:80",
        "none is left"
    );
    assert_eq!(step(&[&["10.0.0.3:80"]]), "+10.0.0.3:80");
    assert_eq!(step(&[]), "-10.0.0.3:80", "there are no endpoints");
}

#[test]
fn the_leaves_of_an_aggregate_are_used_in_their_order() {
    let mut usable = Usable::default();
    let mut step = |first: &[&[&str]], second: &[&[&str]]| {
        let draft = draft().aggregate("cart", &["b", "missing", "a"]).missing("missing");
        update(&mut usable, &seen(draft.eds("a", second).eds("b", first)))
    };
    assert_eq!(step(&[&["10.0.0.1:80"]], &[&["10.0.1.1:80"]]), "+10.0.0.1:80");
    assert_eq!(
        step(&[&["10.0.0.1:80 UNHEALTHY"], &["10.0.0.2:80"]], &[&["10.0.1.1:80"]]),
        "+10.0.0.2:80 -10.0.0.1:80"
    );
    assert_eq!(step(&[], &[&["10.0.1.1:80"]]), "+10.0.1.1:80 -10.0.0.2:80");
}

#[test]
fn errors_that_may_pass_change_nothing() {
    let lost = || error::<ClusterLoadAssignment>("cart", Code::Unavailable, "connection refused");
    let mut usable = Usable::default();
    assert_eq!(update(&mut usable, &seen(draft().eds("cart", &[&["10.0.0.1:80"]]))), "+10.0.0.1:80");
    assert_eq!(update(&mut usable, &Err(lost())), "", "the target");
    assert_eq!(update(&mut usable, &seen(draft())), "", "the cluster is not known yet");
    let mut entry = fixture::eds("cart", &[]);
    (entry.endpoints, entry.endpoints_error) = (None, Some(lost()));
    assert_eq!(update(&mut usable, &seen(draft().entry(entry.clone()))), "", "the endpoints");
    entry.name = "leaf".into();
    let aggregate = draft().aggregate("cart", &["leaf"]).entry(entry.clone());
    assert_eq!(update(&mut usable, &seen(aggregate)), "", "the endpoints of a leaf");
    (entry.name, entry.config) = ("cart".into(), None);
    (entry.endpoints_error, entry.error) =
        (None, Some(error::<Cluster>("cart", Code::Unavailable, "timeout")));
    assert_eq!(update(&mut usable, &seen(draft().entry(entry))), "", "the cluster");
    assert_eq!(update(&mut usable, &seen(draft().eds("cart", &[]))), "-10.0.0.1:80");
}

#[test]
fn what_is_gone_takes_all_endpoints_away() {
    let missing = Err(error::<Listener>("shop", Code::NotFound, "does not exist"));
    for gone in [missing, seen(draft().missing("cart")), seen(draft().without_endpoints("cart"))] {
        let mut usable = Usable::default();
        assert_eq!(update(&mut usable, &seen(draft().eds("cart", &[&["10.0.0.1:80"]]))), "+10.0.0.1:80");
        assert_eq!(update(&mut usable, &gone), "-10.0.0.1:80", "{gone:?}");
        assert_eq!(update(&mut usable, &gone), "", "{gone:?}");
    }
}

#[test]
fn an_endpoint_whose_identity_changes_is_inserted_again() {
    let edits: [(&str, Edit); 6] = [
        ("", |_| {}),
        ("", |endpoint| endpoint.health_status = HealthStatus::Healthy.into()),
        ("", |endpoint| endpoint.load_balancing_weight = Some(UInt32Value { value: 7 })),
        ("+10.0.0.1:80", |endpoint| host(endpoint).hostname = "cart.example".into()),
        ("+10.0.0.1:80", |endpoint| {
            let address = host(endpoint).address.clone().map(|mut address| {
                let Some(crate::pb::envoy::config::core::v3::address::Address::SocketAddress(socket)) =
                    &mut address.address
                else {
                    panic!("a socket's address")
                };
                socket.address = "10.0.9.9".into();
                address
            });
            let additional = crate::pb::envoy::config::endpoint::v3::endpoint::AdditionalAddress { address };
            host(endpoint).additional_addresses.push(additional);
        }),
        ("+10.0.0.1:80", |endpoint| {
            let value = Value { kind: Some(Kind::StringValue("blue".into())) };
            let fields = [("colour".to_owned(), value)].into();
            let filter_metadata = [("shop".to_owned(), Struct { fields })].into();
            endpoint.metadata = Some(Metadata { filter_metadata, ..Metadata::default() });
        }),
    ];
    for (expected, edit) in edits {
        let mut usable = Usable::default();
        assert_eq!(update(&mut usable, &edited(|_| {})), "+10.0.0.1:80");
        assert_eq!(update(&mut usable, &edited(edit)), expected);
        assert_eq!(update(&mut usable, &edited(edit)), "", "no second time");
    }
}

proptest! {
    /// After any sequence of states, the changes lead to the usable endpoints, are minimal, and never leave the set
    /// empty in between.
    #[test]
    fn all_changes_together_give_what_is_usable(
        updates in proptest::collection::vec(proptest::collection::vec((0..3_u32, 0..6_u8, 0..4_u8), 0..12), 1..12)
    ) {
        let mut usable = Usable::default();
        let mut replayed: BTreeMap<SocketAddr, Option<Box<str>>> = BTreeMap::new();
        for endpoints in updates {
            let seen = generated(&endpoints);
            let cluster = seen.as_ref().unwrap().cluster("cart").unwrap();
            let expected: BTreeMap<_, _> = cluster
                .first_usable_priority()
                .into_iter()
                .flat_map(PriorityView::usable_endpoints)
                .map(|endpoint| (endpoint.address(), endpoint.hostname().map(Box::from)))
                .collect();
            let never_empty = !replayed.is_empty() && !expected.is_empty();
            let changes = usable.update(&seen, "cart");
            for endpoint in changes.inserted {
                let before = replayed.insert(endpoint.address(), endpoint.hostname().map(Box::from));
                prop_assert_ne!(before, Some(endpoint.hostname().map(Box::from)), "inserted for nothing");
            }
            for address in changes.removed {
                prop_assert!(replayed.remove(&address).is_some(), "removed twice");
                prop_assert!(!never_empty || !replayed.is_empty());
            }
            prop_assert_eq!(&replayed, &expected);
        }
    }
}

type Edit = fn(&mut LbEndpoint);

/// Generates endpoints by priority, number, and properties; only the first of duplicates counts.
fn generated(endpoints: &[(u32, u8, u8)]) -> Resolved {
    let mut known = BTreeSet::new();
    let mut priorities = vec![Vec::new(); 3];
    for (priority, number, like) in endpoints {
        if known.insert(number) {
            priorities[*priority as usize].push((format!("10.0.0.{number}:80"), *like));
        }
    }
    let localities = (0..).zip(&priorities).map(|(priority, endpoints)| {
        let texts: Vec<_> = endpoints
            .iter()
            .map(
                |(address, like)| {
                    if like % 2 == 0 { address.clone() } else { format!("{address} UNHEALTHY") }
                },
            )
            .collect();
        let mut locality = locality(priority, "z", &texts.iter().map(String::as_str).collect::<Vec<_>>());
        for (endpoint, (_, like)) in locality.lb_endpoints.iter_mut().zip(endpoints) {
            host(endpoint).hostname = format!("host-{}", like / 2);
        }
        locality
    });
    let mut entry = fixture::eds("cart", &[]);
    entry.endpoints = Some(assignment("cart", localities.collect()));
    seen(draft().entry(entry))
}

fn edited(edit: Edit) -> Resolved {
    let mut locality = locality(0, "z", &["10.0.0.1:80"]);
    edit(&mut locality.lb_endpoints[0]);
    let mut entry = fixture::eds("cart", &[]);
    entry.endpoints = Some(assignment("cart", vec![locality]));
    seen(draft().entry(entry))
}

fn host(endpoint: &mut LbEndpoint) -> &mut crate::pb::envoy::config::endpoint::v3::Endpoint {
    let Some(HostIdentifier::Endpoint(endpoint)) = &mut endpoint.host_identifier else {
        panic!("an endpoint")
    };
    endpoint
}

/// Returns changes as text: `+` for inserted endpoints, `-` for removed ones.
fn update(usable: &mut Usable, seen: &Resolved) -> String {
    let changes = usable.update(seen, "cart");
    let inserted = changes.inserted.iter().map(|endpoint| format!("+{}", endpoint.address()));
    let removed = changes.removed.iter().map(|address| format!("-{address}"));
    inserted.chain(removed).collect::<Vec<_>>().join(" ")
}

fn draft() -> Draft {
    fixture::snapshot("shop")
}

fn seen(draft: Draft) -> Resolved {
    Ok(Arc::new(draft.build()))
}
