//! What a response costs, from its bytes until all watches have their news and the server has its answer, beside what the
//! same bytes cost at least: `cargo bench --bench ingest`, or with `-- --quick` a short form of it.
//!
//! - *ingest*: N resources that are new. The floors are a protobuf decode into the generated messages which are kept, and one
//!   whose messages are dropped at once.
//! - *unchanged*: the same response again, and again with its resources in another order. The floor compares each resource with
//!   the bytes of last time.
//! - *one of N*: the same response with one resource that differs.
//! - *delta one of N*: a response of the incremental variant with one resource, while N are held.

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
    let counts: &[(usize, usize)] = match quick {
        true => &[(100, 3), (1_000, 3)],
        false => &[(1_000, 101), (10_000, 21), (100_000, 7)],
    };
    println!(
        "ns per resource, medians of the rounds in one run; x: the median of the ratios in the same round\n"
    );
    clusters(counts);
    assignments(counts);
}

fn clusters(counts: &[(usize, usize)]) {
    let kind = Kind { type_url: CLUSTERS, make: plain::cluster };
    kind.table::<Cluster, cluster::Cluster>(counts);
}

fn assignments(counts: &[(usize, usize)]) {
    let kind = Kind { type_url: ASSIGNMENTS, make: plain::assignment };
    kind.table::<ClusterLoadAssignment, endpoint::ClusterLoadAssignment>(counts);
}

/// A type of resource, and how to make one by its number and turn.
struct Kind {
    type_url: &'static str,
    make: fn(usize, u32) -> Bytes,
}

impl Kind {
    fn table<T: Resource, M: Message + Default>(&self, counts: &[(usize, usize)]) {
        let bytes = (self.make)(0, 0).len();
        println!("{} of {bytes} bytes", self.type_url.rsplit('.').next().unwrap_or_default());
        for (count, rounds) in counts {
            let mut samples = Samples::default();
            for _ in 0..*rounds {
                self.round::<T, M>(*count, &mut samples);
                self.delta_round::<T>(*count, &mut samples);
            }
            report(*count, &samples);
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
        // As often as it takes until no resource stands where it stood.
        for turn in 4..6 {
            fastrand::Rng::with_seed(turn as u64).shuffle(&mut changed);
            let response = plain::response(turn, self.type_url, &changed);
            samples.measure("unchanged, shuffled", 2 * count, || feed.answer(response));
        }
    }

    fn delta_round<T: Resource>(&self, count: usize, samples: &mut Samples) {
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
        let changes: Vec<_> = (1..=CHANGES)
            .map(|turn| {
                let place = turn * 7919 % count;
                let changed = (self.make)(place, turn as u32);
                plain::delta(1 + turn, self.type_url, [(place, &changed)].into_iter())
            })
            .collect();
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
    for name in ["decode, kept", "decode, dropped", "compare"] {
        println!("    {name:<22}{:>10.0}", samples.median(name));
    }
    let rows: [(&str, &[&str]); 5] = [
        ("ingest", &["decode, kept", "decode, dropped"]),
        ("unchanged", &["compare", "ingest"]),
        ("unchanged, shuffled", &["ingest"]),
        ("one of N", &["unchanged"]),
        ("delta one of N", &[]),
    ];
    for (name, beside) in rows {
        let ratios = beside.iter().map(|to| format!("{:>8.2} x {to}", samples.ratio(name, to)));
        println!("    {name:<22}{:>10.0}{}", samples.median(name), ratios.collect::<String>());
    }
}

/// How many responses of one resource are measured together.
const CHANGES: usize = 100;
