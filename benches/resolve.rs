//! What it costs to resolve a target whose routes lead to many clusters: `cargo bench --bench resolve`, or with `-- --quick`
//! a short form of it.
//!
//! - *first snapshot*: from the bytes of a listener, N clusters and N assignments until the snapshot of all of them is published,
//!   beside decoding the same bytes of clusters and assignments into the generated messages.
//! - *one update*: a response with the endpoints of one cluster, in the incremental variant, until the next snapshot.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

mod feed;
#[allow(dead_code, reason = "other benches use more of it")]
mod plain;
#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::{cell::Cell, sync::Arc};

use bytes::Bytes;
use feed::Feed;
use plain::{ASSIGNMENTS, CLUSTERS};
use prost::Message;
use ratio::Samples;
use xdskit::{
    Resource, Snapshot,
    client::Resolution,
    config::ApiType,
    pb::{
        envoy::{
            config::{cluster::v3::Cluster, endpoint::v3::ClusterLoadAssignment},
            service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource as Wrapped},
        },
        google::protobuf::Any,
    },
    resource::Listener,
    testing::resources::{listener, route, route_config},
};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (counts, rounds): (&[usize], usize) = match quick {
        true => (&[100, 1_000], 3),
        false => (&[100, 1_000, 10_000], 15),
    };
    // All sizes in turns, so that growth is seen within a round.
    let mut samples = Samples::default();
    for _ in 0..rounds {
        for count in counts {
            round(*count, &mut samples);
        }
    }
    println!("ns, medians of {rounds} rounds in one run; growth: beside {} clusters\n", counts[0]);
    println!(
        "{:>8}{:>28}{:>10}{:>8}{:>16}{:>8}",
        "clusters", "first snapshot, per cluster", "decode", "ratio", "one update", "growth"
    );
    for count in counts {
        let [first, decode, update] = names(*count);
        println!(
            "{count:>8}{:>28.0}{:>10.0}{:>8.2}{:>16.0}{:>8.2}",
            samples.median(first),
            samples.median(decode),
            samples.ratio(first, decode),
            samples.median(update),
            samples.ratio(update, names(counts[0])[2])
        );
    }
}

/// What is measured of a size.
fn names(count: usize) -> [&'static str; 3] {
    match count {
        100 => ["first of 100", "decode of 100", "update of 100"],
        1_000 => ["first of 1,000", "decode of 1,000", "update of 1,000"],
        _ => ["first of 10,000", "decode of 10,000", "update of 10,000"],
    }
}

fn round(count: usize, samples: &mut Samples) {
    let [first, decode, update] = names(count);
    let make = |make: fn(usize, u32) -> Bytes| (0..count).map(|i| make(i, 0)).collect::<Vec<_>>();
    let (clusters, assignments) = (make(plain::cluster), make(plain::assignment));
    let kept = samples.measure(decode, count, || {
        let clusters = clusters.iter().map(|bytes| Cluster::decode(bytes.clone()).expect("valid"));
        let assignments =
            assignments.iter().map(|bytes| ClusterLoadAssignment::decode(bytes.clone()).expect("valid"));
        (clusters.collect::<Vec<_>>(), assignments.collect::<Vec<_>>())
    });
    drop(kept);
    let responses = [
        (Listener::TYPE_URL, 1, stem(count)),
        (CLUSTERS, count, plain::delta(2, CLUSTERS, clusters.iter().enumerate())),
        (ASSIGNMENTS, count, plain::delta(3, ASSIGNMENTS, assignments.iter().enumerate())),
    ];
    let feed = Feed::new(ApiType::AggregatedDeltaGrpc);
    let resolution = feed.client().resolve("xds:///shop");
    let snapshot = samples.measure(first, count, || {
        for (type_url, wanted, response) in responses {
            let asked = Cell::new(0);
            feed.until_asked_for(wanted, |request| {
                asked.set(asked.get() + names_of(type_url, request));
                asked.get()
            });
            feed.answer(response);
        }
        latest(&resolution)
    });
    assert!(snapshot.clusters().all(|cluster| cluster.error().is_none()), "all are ready");
    assert_eq!(snapshot.clusters().count(), count);
    one_update(&feed, &resolution, (count, update), samples);
}

/// Measures changes of the endpoints of one cluster, each of another one.
fn one_update(
    feed: &Feed,
    resolution: &Resolution,
    (count, name): (usize, &'static str),
    samples: &mut Samples,
) {
    let changes: Vec<_> = (1..=CHANGES)
        .map(|turn| {
            let place = turn * 7_919 % count;
            let changed = plain::assignment(place, turn as u32);
            plain::delta(3 + turn, ASSIGNMENTS, [(place, &changed)].into_iter())
        })
        .collect();
    let before = latest(resolution);
    let snapshots = samples.measure(name, CHANGES, || {
        let next = |change| {
            feed.answer(change);
            latest(resolution)
        };
        changes.into_iter().map(next).collect::<Vec<_>>()
    });
    // The endpoints of every snapshot are others than those of the one before.
    let weights = |snapshot: &Snapshot, turn: usize| {
        let name = plain::name(turn * 7_919 % count);
        let cluster = snapshot.cluster(&name).expect("it is there");
        cluster.assignment().expect("it has one").priorities[0].localities[0].weight
    };
    for (turn, (old, new)) in (1..).zip([before].iter().chain(&snapshots).zip(&snapshots)) {
        assert_ne!(weights(old, turn), weights(new, turn), "update {turn} is in its snapshot");
    }
}

fn latest(resolution: &Resolution) -> Arc<Snapshot> {
    resolution.latest().expect("it is known").expect("it is there")
}

/// The listener of the target, with a route to each cluster.
fn stem(count: usize) -> Bytes {
    let route = |i| route::path(format!("/shop.v1.Service{i}/Get")).cluster(plain::name(i));
    let routes = route_config("routes").virtual_host(["*"], (0..count).map(route));
    let listener = listener("shop").inline_routes(routes).into_message();
    let value = listener.encode_to_vec().into();
    let wrapped = Wrapped {
        name: "shop".into(),
        version: "1".into(),
        resource: Some(Any { type_url: Listener::TYPE_URL.into(), value }),
        ..Wrapped::default()
    };
    let response = DeltaDiscoveryResponse {
        nonce: "1".into(),
        type_url: Listener::TYPE_URL.into(),
        resources: vec![wrapped],
        ..DeltaDiscoveryResponse::default()
    };
    response.encode_to_vec().into()
}

/// How many names of a type a request asks for.
fn names_of(type_url: &str, request: Bytes) -> usize {
    let request = DeltaDiscoveryRequest::decode(request).expect("it is one");
    if request.type_url == type_url { request.resource_names_subscribe.len() } else { 0 }
}

/// How many updates are measured together.
const CHANGES: usize = 50;
