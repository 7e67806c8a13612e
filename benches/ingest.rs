//! What a response costs, from its bytes until all watches have their news and the server has its answer, beside what the
//! same bytes cost at least: `cargo bench --bench ingest`, or with `-- --quick` a short form of it.
//!
//! - *ingest*: N resources that are new. The floors are a protobuf decode into the generated messages which are kept, and one
//!   whose messages are dropped at once.
//! - *unchanged*: the same response again, and again with its resources in another order. The floor compares each resource with
//!   the bytes of last time.
//! - *one of N*: the same response with one resource that differs.
//! - *delta one of N*: a response of the incremental variant with one resource, while N are held. The floor decodes that.
//!
//! At the end stands by how much each grows from the smallest N to the largest. All N are measured in turns.

#![allow(clippy::disallowed_methods, reason = "a bench looks at the clock")]

mod feed;
mod plain;
#[allow(dead_code, reason = "other benches use more of it")]
mod ratio;

use std::cell::Cell;

use bytes::Bytes;
use feed::Feed;
use plain::{ASSIGNMENTS, CLUSTERS};
use prost::Message;
use ratio::Samples;
use xdskit::{
    Observed, Resource, Watch,
    config::ApiType,
    pb::envoy::{
        config::{cluster::v3 as cluster, endpoint::v3 as endpoint},
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    resource::{Cluster, ClusterLoadAssignment},
};

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (turns, counts): (usize, &[Times]) = match quick {
        true => (3, &[(1_000, 3), (10_000, 1)]),
        false => (9, &[(1_000, 11), (10_000, 3), (100_000, 1)]),
    };
    println!(
        "ns per resource, medians of the rounds in one run; x: the median of the ratios in the same round\n"
    );
    let kind = Kind { type_url: CLUSTERS, make: plain::cluster };
    kind.table::<Cluster, cluster::Cluster>(turns, counts);
    let kind = Kind { type_url: ASSIGNMENTS, make: plain::assignment };
    kind.table::<ClusterLoadAssignment, endpoint::ClusterLoadAssignment>(turns, counts);
}

/// How many resources, and how many rounds with them in each turn.
type Times = (usize, usize);

/// A type of resource, and how to make one by its number and turn.
struct Kind {
    type_url: &'static str,
    make: fn(usize, u32) -> Bytes,
}

impl Kind {
    fn table<T: Resource, M: Message + Default>(&self, turns: usize, counts: &[Times]) {
        let bytes = (self.make)(0, 0).len();
        println!("{} of {bytes} bytes", self.type_url.rsplit('.').next().unwrap_or_default());
        let mut all: Vec<_> = counts.iter().map(|_| Samples::default()).collect();
        for _ in 0..turns {
            for ((count, rounds), samples) in counts.iter().zip(&mut all) {
                for _ in 0..*rounds {
                    self.round::<T, M>(*count, samples);
                    self.delta_round::<T, M>(*count, samples);
                }
            }
        }
        counts.iter().zip(&all).for_each(|((count, _), samples)| report(*count, samples));
        if let ([first, .., last], [(few, _), .., (many, _)]) = (&all[..], counts) {
            growth((*few, first), (*many, last));
        }
        println!();
    }

    fn round<T: Resource, M: Message + Default>(&self, count: usize, samples: &mut Samples) {
        let all: Vec<_> = (0..count).map(|number| (self.make)(number, 0)).collect();
        floors::<M>(&all, samples);
        let feed = Feed::new(ApiType::AggregatedGrpc);
        let watches: Vec<Watch<T>> =
            (0..count).map(|number| feed.client().watch(plain::name(number))).collect();
        feed.until_asked_for(count, |request| {
            DiscoveryRequest::decode(request).map_or(0, |request| request.resource_names.len())
        });
        let response = plain::response(1, self.type_url, &all);
        samples.measure("ingest", count, || feed.answer(response));
        assert!(
            watches.iter().all(|watch| matches!(*watch.latest(), Observed::Present { .. })),
            "all are there"
        );

        let response = plain::response(2, self.type_url, &all);
        samples.measure("unchanged", count, || feed.answer(response));
        let mut changed = all.clone();
        changed[count / 2] = (self.make)(count / 2, 1);
        let response = plain::response(3, self.type_url, &changed);
        samples.measure("one of N", count, || feed.answer(response));
        fastrand::Rng::with_seed(4).shuffle(&mut changed);
        let response = plain::response(4, self.type_url, &changed);
        samples.measure("unchanged, shuffled", count, || feed.answer(response));
    }

    fn delta_round<T: Resource, M: Message + Default>(&self, count: usize, samples: &mut Samples) {
        let all: Vec<_> = (0..count).map(|number| (self.make)(number, 0)).collect();
        let feed = Feed::new(ApiType::AggregatedDeltaGrpc);
        let _watches: Vec<Watch<T>> =
            (0..count).map(|number| feed.client().watch(plain::name(number))).collect();
        let asked = Cell::new(0);
        feed.until_asked_for(count, |request| {
            let new = DeltaDiscoveryRequest::decode(request)
                .map_or(0, |request| request.resource_names_subscribe.len());
            asked.set(asked.get() + new);
            asked.get()
        });
        feed.answer(plain::delta(1, self.type_url, all.iter().enumerate()));
        let changed: Vec<_> = (1..=CHANGES)
            .map(|turn| {
                let place = turn * 7919 % count;
                (place, (self.make)(place, turn as u32))
            })
            .collect();
        samples.measure("decode of the one", CHANGES, || {
            changed.iter().map(|(_, bytes)| M::decode(bytes.clone()).expect("valid")).for_each(drop)
        });
        let message = |(turn, (place, bytes)): (usize, &(usize, Bytes))| {
            plain::delta(2 + turn, self.type_url, [(*place, bytes)].into_iter())
        };
        let changes: Vec<_> = changed.iter().enumerate().map(message).collect();
        samples.measure("delta one of N", CHANGES, || {
            changes.into_iter().for_each(|change| feed.answer(change))
        });
    }
}

/// What the bytes cost at least.
fn floors<M: Message + Default>(all: &[Bytes], samples: &mut Samples) {
    let decode = |bytes: &Bytes| M::decode(bytes.clone()).expect("valid");
    drop(samples.measure("decode, kept", all.len(), || all.iter().map(decode).collect::<Vec<_>>()));
    samples.measure("decode, dropped", all.len(), || all.iter().map(decode).for_each(drop));
    let held: Vec<_> = all.iter().map(|bytes| Bytes::copy_from_slice(bytes)).collect();
    let same =
        samples.measure("compare", all.len(), || all.iter().zip(&held).filter(|(a, b)| a == b).count());
    assert_eq!(same, all.len());
}

fn report(count: usize, samples: &Samples) {
    println!("  N = {count}");
    for name in FLOORS {
        println!("    {name:<22}{:>10.0}", samples.median(name));
    }
    for (name, beside) in COSTS {
        let ratios = beside.iter().map(|to| format!("{:>8.2} x {to}", samples.ratio(name, to)));
        println!("    {name:<22}{:>10.0}{}", samples.median(name), ratios.collect::<String>());
    }
}

/// By how much each cost grows.
fn growth((few, first): (usize, &Samples), (many, last): (usize, &Samples)) {
    println!("  N = {many} beside N = {few}");
    for name in FLOORS.into_iter().chain(COSTS.map(|(name, _)| name)) {
        println!("    {name:<22}{:>8.2} x", last.median(name) / first.median(name));
    }
}

/// What is measured to be compared with.
const FLOORS: [&str; 4] = ["decode, kept", "decode, dropped", "compare", "decode of the one"];

/// What is measured of the client, and what it is compared with.
const COSTS: [(&str, &[&str]); 5] = [
    ("ingest", &["decode, kept", "decode, dropped"]),
    ("unchanged", &["compare", "ingest"]),
    ("unchanged, shuffled", &["ingest"]),
    ("one of N", &["unchanged"]),
    ("delta one of N", &["decode of the one"]),
];

/// How many responses of one resource are measured together.
const CHANGES: usize = 100;
